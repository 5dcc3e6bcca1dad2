//! The parts of a list that are published.

use core::fmt;

/// A part of an entry of a published list, in addition to its info hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocklistField {
    /// The date.
    Date,
    /// The reference.
    Reference,
    /// The reason.
    Reason,
}

impl BlocklistField {
    const ALL: [Self; 3] = [Self::Date, Self::Reference, Self::Reason];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == text)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Reference => "reference",
            Self::Reason => "reason",
        }
    }
}

impl fmt::Display for BlocklistField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
