//! Where the access log goes.

use core::convert::Infallible;
use core::fmt;
use core::ops::RangeInclusive;
use std::path::PathBuf;

use super::quote;
use crate::raw::Raw;
use crate::value::Value;

/// The socket of the journal of the system.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The target of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// There is no access log.
    Off,
    /// Standard error, between the lines of the other log.
    Stderr,
    /// The socket of a journal of systemd.
    Journald(PathBuf),
    /// A file, to which lines are appended.
    File(PathBuf),
}

impl fmt::Display for AccessLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => Ok(()),
            Self::Stderr => f.write_str("stderr"),
            Self::Journald(socket) if socket.as_os_str() == JOURNAL_SOCKET => f.write_str("journald"),
            Self::Journald(socket) => write!(f, "journald:{}", socket.display()),
            Self::File(file) => write!(f, "{}", file.display()),
        }
    }
}

impl Value for AccessLogTarget {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "a file with an absolute path, \"stderr\", \"journald\", \"journald:/path/of/a/socket\", or \"\" for none"
            .to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        let absolute = |path: &str| {
            let is_path = path.starts_with('/') && !path.ends_with('/');
            let is_shown = !path.contains(|c: char| c.is_control() || matches!(c, '"' | '\\'));
            (is_path && is_shown).then(|| PathBuf::from(path))
        };
        match raw.text()? {
            "" => Some(Self::Off),
            "stderr" => Some(Self::Stderr),
            "journald" => Some(Self::Journald(JOURNAL_SOCKET.into())),
            text => match text.strip_prefix("journald:") {
                Some(socket) => absolute(socket).map(Self::Journald),
                None => absolute(text).map(Self::File),
            },
        }
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.to_string())
    }
}
