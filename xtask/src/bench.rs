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
    /// CPU time of the I/O back ends over loopback, for each datagram and then for each response over TCP:
    /// `--only BACKEND` picks one
    Net {
        /// Handed to the benchmark as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let (package, benches, arguments) = match self {
            Self::Store { arguments } => ("shoal-store", &["store"][..], arguments),
            Self::Net { arguments } => ("shoal-net", &["echo", "respond"][..], arguments),
        };
        for bench in benches {
            run(cargo(&["bench", "--locked", "--package", package, "--bench", bench, "--"]).args(&arguments))?;
        }
        Ok(())
    }
}
