//! Micro-benchmarks. The programs that measure live beside what they measure, as `cargo bench` targets.

use anyhow::Result;
use clap::Subcommand;

use crate::shell::{cargo, run};

/// Which benchmark.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Time, memory and pauses of the store: `--json` prints lines of JSON, `--filter TEXT` picks cases
    Store {
        /// Handed to the benchmark as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// CPU time for each datagram of the I/O back ends, over loopback
    Net {
        /// Handed to the benchmark as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let (package, bench, arguments) = match self {
            Self::Store { arguments } => ("shoal-store", "store", arguments),
            Self::Net { arguments } => ("shoal-net", "echo", arguments),
        };
        run(cargo(&["bench", "--locked", "--package", package, "--bench", bench, "--"]).args(arguments))
    }
}
