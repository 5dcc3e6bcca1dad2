//! `shoal-lab`, the laboratory beside the tracker: it puts load on trackers, compares them side by side, checks their
//! conformance, disturbs them under load, and attacks Shoal.
//!
//! This crate owns the command line, the terminal and the exit codes; each subcommand is a module. `shoal-load`,
//! `shoal-compare`, `shoal-conform` and `shoal-trial` define what is measured or judged, and how.
#![forbid(unsafe_code)]

mod chaos;
mod compare;
mod conform;
mod echo;
mod load;
mod process;
mod shape;
mod siege;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The laboratory for BitTorrent trackers: load, compare, conform, chaos, siege.
#[derive(Debug, Parser)]
#[command(name = "shoal-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Without a doc comment, a command has the long help of its struct.
    Load(Box<load::LoadArgs>),
    /// Run trackers side by side under the same load
    Compare(Box<compare::CompareArgs>),
    /// Check what a tracker does right and wrong, rule by rule
    Conform(Box<conform::ConformArgs>),
    /// Restart, kill, stop and damage a tracker under load, and count what is lost
    Chaos(Box<chaos::ChaosArgs>),
    // As for `Load`.
    Siege(siege::SiegeArgs),
    Echo(echo::EchoArgs),
}

fn main() -> ExitCode {
    shoal_net::names::load_no_libraries();
    let outcome = match Arguments::parse().command {
        Command::Load(load) => load.run(),
        Command::Compare(compare) => compare.run(),
        Command::Conform(conform) => conform.run(),
        Command::Chaos(chaos) => chaos.run(),
        Command::Siege(siege) => siege.run(),
        Command::Echo(echo) => echo.run(),
    };
    outcome.unwrap_or_else(|error| {
        terminal::note(&format!("shoal-lab: {error:#}"));
        ExitCode::FAILURE
    })
}
