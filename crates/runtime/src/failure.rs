//! Why the tracker does not start or had to stop, and the exit code for it.

use core::fmt;
use std::process::ExitCode;

use shoal_config::Problems;

/// An error that ends the program.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is invalid. The text names the keys and the accepted values.
    Configuration(String),
    /// The tracker does not permit the command.
    NotPermitted(String),
    /// The tracker has nothing with the name in a command.
    NothingFound(String),
    /// Any other error, with its causes.
    Other(anyhow::Error),
}

impl Failure {
    /// Returns the exit code: 2 for a mistake of the operator, 1 for an error of the host, and others for a tracker's
    /// reply to a command.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(_) => ExitCode::from(2),
            Self::NotPermitted(_) => ExitCode::from(5),
            Self::NothingFound(_) => ExitCode::from(3),
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
            Self::Configuration(text) | Self::NotPermitted(text) | Self::NothingFound(text) => {
                f.write_str(text)
            }
            Self::Other(error) => write!(f, "{error:#}"),
        }
    }
}
