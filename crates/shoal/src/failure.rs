//! Why the tracker does not start or had to stop, and the exit code that tells.

use core::fmt;
use std::process::ExitCode;

use shoal_config::Problems;

/// What ends the program otherwise than by wish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration cannot be used. The text says which keys and what would be accepted.
    Configuration(String),
    /// Anything else, with its causes.
    Other(anyhow::Error),
}

impl Failure {
    /// 2 for what the operator wrote, 1 for what the machine did.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) => ExitCode::from(2),
            Self::Other(_) => ExitCode::from(1),
        }
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        let count = problems.0.len();
        let head = if count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
        Self::Configuration(
            format!("the configuration has {head}\n{problems}").trim_end().replace('\n', "\n  "),
        )
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(text) => f.write_str(text),
            Self::Other(error) => write!(f, "{error:#}"),
        }
    }
}
