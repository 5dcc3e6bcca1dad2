//! `shoal-lab`, the laboratory beside the tracker: it puts load on any tracker, compares trackers side by side, and
//! tells what a tracker does right and wrong.
//!
//! Owns the command line, the terminal and the exit codes; each subcommand is a module. What is measured or judged,
//! and how, is the business of `shoal-load`, `shoal-compare` and `shoal-conform`.
#![forbid(unsafe_code)]

mod compare;
mod conform;
mod echo;
mod interrupt;
mod load;
mod output;
mod shape;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The laboratory for BitTorrent trackers: load, compare, conform.
#[derive(Debug, Parser)]
#[command(name = "shoal-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Without a comment here it has that of its struct, with the long help; so has echo.
    Load(Box<load::Load>),
    /// Run trackers side by side under the same load
    Compare(Box<compare::Compare>),
    /// Tell what a tracker does right and wrong, rule by rule
    Conform(conform::Conform),
    Echo(echo::Echo),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Load(load) => load.run(),
        Command::Compare(compare) => compare.run(),
        Command::Conform(conform) => conform.run(),
        Command::Echo(echo) => echo.run(),
    };
    outcome.unwrap_or_else(|error| {
        output::tell(&format!("shoal-lab: {error:#}"));
        ExitCode::FAILURE
    })
}
