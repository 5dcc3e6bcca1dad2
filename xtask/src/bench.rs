//! Micro-benchmarks, which are the `cargo bench` targets of the crates that they measure.

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use shoal_testkit::tools;

use crate::shell::{build_dist, cargo, run};

const BENCHES: [(&str, &str, &[&str]); 13] = [
    ("store", "shoal-store", &["store"]),
    ("insight", "shoal-engine", &["insight"]),
    ("snapshot", "shoal-store", &["snapshot"]),
    ("cores", "shoal-store", &["cores"]),
    ("relay", "shoal-relay", &["relay"]),
    ("lists", "shoal-access", &["lists"]),
    ("takedown", "shoal", &["takedown"]),
    ("limits", "shoal-engine", &["limits"]),
    ("replication", "shoal-engine", &["replication"]),
    ("cluster", "shoal", &["cluster"]),
    ("xdp", "shoal-compare", &["xdp"]),
    ("net", "shoal-net", &["echo", "respond"]),
    ("instructions", "shoal-engine", &["instructions"]),
];

/// A benchmark and its arguments.
#[derive(Args)]
pub(crate) struct Bench {
    /// The benchmark: docs/benchmarking.md says what each measures, and its options
    #[arg(value_parser = PossibleValuesParser::new(BENCHES.map(|(name, ..)| name)))]
    name: String,
    /// Arguments of the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Bench {
    /// Returns the comparison with the accepted instructions, without any options.
    pub(crate) fn instructions() -> Self {
        Self { name: "instructions".to_owned(), arguments: Vec::new() }
    }

    pub(crate) fn run(self) -> Result<()> {
        let bench = BENCHES.into_iter().find(|(name, ..)| *name == self.name);
        let (name, package, benches) = bench.context("clap accepts no other name")?;
        if name == "xdp" {
            build_dist("shoal")?;
        }
        let arguments = match name {
            "takedown" | "cluster" | "xdp" => with_lab(self.arguments)?,
            _ => self.arguments,
        };
        for bench in benches {
            run(cargo(&["bench", "--locked", "--package", package, "--bench", bench, "--"]).args(&arguments))?;
        }
        Ok(())
    }
}

/// Builds `shoal-lab`, which puts load on a tracker, and adds its path to the arguments of a benchmark.
fn with_lab(arguments: Vec<String>) -> Result<Vec<String>> {
    build_dist("shoal-lab")?;
    let lab = tools::target_directory()?.join("dist/shoal-lab");
    Ok([vec!["--lab".to_owned(), lab.display().to_string()], arguments].concat())
}
