//! Micro-benchmarks, which are the `cargo bench` targets of the crates that they measure.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::shell::{cargo, run};

/// The arguments of a benchmark.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Arguments of the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure time, memory and pauses of the store: `--json` prints lines of JSON, `--filter TEXT` chooses cases
    Store(BenchArguments),
    /// Measure how announces per second grow from one worker to two, and predict them for up to 128: `--json` prints
    /// lines of JSON
    Cores(BenchArguments),
    /// Measure the mean time and the longest call of the swarms of WebTorrent: `--json` prints lines of JSON,
    /// `--filter TEXT` chooses cases
    Relay(BenchArguments),
    /// Measure the CPU time of the I/O back ends over loopback, for each datagram and then for each response over
    /// TCP: `--only BACKEND` chooses one
    Net(BenchArguments),
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let (package, benches, arguments) = match self {
            Self::Store(BenchArguments { arguments }) => ("shoal-store", &["store"][..], arguments),
            Self::Cores(BenchArguments { arguments }) => ("shoal-store", &["cores"][..], arguments),
            Self::Relay(BenchArguments { arguments }) => ("shoal-relay", &["relay"][..], arguments),
            Self::Net(BenchArguments { arguments }) => ("shoal-net", &["echo", "respond"][..], arguments),
        };
        for bench in benches {
            run(cargo(&["bench", "--locked", "--package", package, "--bench", bench, "--"]).args(&arguments))?;
        }
        Ok(())
    }
}
