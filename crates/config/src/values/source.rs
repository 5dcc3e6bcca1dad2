//! Where a list comes from.

use core::fmt;
use std::path::PathBuf;

/// A source of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// A file.
    Path(PathBuf),
}

impl ListSource {
    /// Parses a source. A URL is none: there may be no file of that name, so taking it for one would hide a mistake.
    pub(super) fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains("://")).then(|| Self::Path(PathBuf::from(text)))
    }
}

impl fmt::Display for ListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_back_as_they_are_written() {
        for text in ["/etc/shoal/deny", "deny.txt", "a b"] {
            assert_eq!(ListSource::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "http://lists.example/deny", "ftp://lists.example/deny"] {
            assert_eq!(ListSource::parse(text), None, "{text}");
        }
    }
}
