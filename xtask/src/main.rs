//! Every developer task, as `cargo xtask TASK`.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod deny;
mod fuzz;
mod setup;
mod shell;
mod siege;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer tasks of Shoal.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// All checks and all tests, as CI runs them: set-up, format, tidy, lints, docs, dependencies, siege, tests
    Ci,
    /// All tests: units, properties, fuzz corpora, the binary over every back end, real clients
    Test,
    /// Install what the tests need and this machine lacks: packages, Rust components, a Python environment
    Setup,
    /// Rules of this repository that no compiler checks: sizes, links, TODOs, paths, white space
    Tidy,
    /// Licences, sources, duplicates and advisories of all dependencies
    Deny,
    /// Micro-benchmarks
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Fuzz the parsers with cargo-fuzz on a nightly toolchain
    Fuzz(fuzz::Fuzz),
    /// Attack the built tracker in a network of its own, with honest clients beside
    ///
    /// Exit codes: 0 if every attack was held, 1 if one got through, 2 if one could not be run.
    Siege(siege::Siege),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Ci => ci::run(),
        Task::Test => test::run(),
        Task::Setup => setup::run(),
        Task::Tidy => tidy::run(),
        Task::Deny => deny::run(),
        Task::Bench(bench) => bench.run(),
        Task::Fuzz(fuzz) => fuzz.run(),
        Task::Siege(siege) => return siege.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
