//! The details of an entry: a date, a reference, a reason.
//!
//! The details of an entry are one text, and equal texts are held once.

/// Separates the parts of a text of details. In a part, where no line can have it, it becomes a space.
const SEPARATOR: char = '\n';

/// The details of an entry. Each may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Details<'t> {
    /// The date, as `YYYY-MM-DD`.
    pub date: Option<&'t str>,
    /// The reference, such as the number of a case.
    pub reference: Option<&'t str>,
    /// The reason, for clients to show.
    pub reason: Option<&'t str>,
}

impl<'t> Details<'t> {
    /// No details.
    pub const NONE: Self = Self { date: None, reference: None, reason: None };

    /// Returns whether there are no details.
    pub const fn is_empty(&self) -> bool {
        self.date.is_none() && self.reference.is_none() && self.reason.is_none()
    }

    /// Appends the details as one text.
    pub(super) fn write(&self, text: &mut String) {
        for (number, part) in [self.date, self.reference, self.reason].into_iter().enumerate() {
            text.extend((number > 0).then_some(SEPARATOR));
            text.extend(part.unwrap_or_default().chars().map(|c| if c == SEPARATOR { ' ' } else { c }));
        }
    }

    /// Returns the details of a text from [`write`](Self::write).
    pub(super) fn read(text: &'t str) -> Self {
        let mut parts = text.splitn(3, SEPARATOR).map(|part| Some(part).filter(|part| !part.is_empty()));
        let mut next = || parts.next().flatten();
        Self { date: next(), reference: next(), reason: next() }
    }
}

impl<'t> From<Option<&'t str>> for Details<'t> {
    /// A reason alone.
    fn from(reason: Option<&'t str>) -> Self {
        Self { reason: reason.filter(|reason| !reason.is_empty()), ..Self::NONE }
    }
}
