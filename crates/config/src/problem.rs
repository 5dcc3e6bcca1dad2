//! Problems in a configuration, described for the operator.

use core::fmt;

/// A single problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key and its value, if there are any.
    pub subject: String,
    /// Where the value was set.
    pub provenance: Provenance,
    /// The reason for the refusal, and the values that would be accepted.
    pub fault: String,
}

/// All problems of a configuration. The list is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// The place where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// The value is the default.
    Default,
    /// The tracker runs with this value, and a change needs a restart.
    Running,
    /// A line of a file.
    File {
        /// The path as the operator wrote it.
        path: String,
        /// The line number, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// The name of the variable.
        name: String,
    },
    /// The option `--set` of the command line.
    CommandLine,
    /// The nodes of a cluster share the value.
    Cluster,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::Running => f.write_str("in use until a restart"),
            Self::File { path, line } => write!(f, "{path}, line {line}"),
            Self::CommandLine => f.write_str("--set"),
            Self::Cluster => f.write_str("the shared state of the cluster"),
            Self::Environment { name } => write!(f, "environment variable {name}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.subject, self.provenance, self.fault)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "{problem}"))
    }
}

impl core::error::Error for Problems {}
