//! The developer tasks, run as `cargo xtask TASK`.
#![forbid(unsafe_code)]

mod bench;
mod book;
mod bpf;
mod ci;
mod figures;
mod fuzz;
mod publish;
mod release;
mod sanitize;
mod screenshots;
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
    /// Run all checks and all tests, as CI does; CONTRIBUTING.md lists them
    Ci,
    /// Run all tests: units, properties, fuzz corpora, the binary over every back end, real clients
    Test,
    /// Install everything that the tests need and this machine lacks: packages, Rust components, a Python environment
    Setup,
    /// Check rules that no compiler checks: words, sizes, links, TODOs, paths, white space
    Tidy,
    /// Build the book of all pages, in target/book/html
    Book,
    /// Take the pictures of the README: status page, top, comparison
    Screenshots,
    /// Print figures of the sources: lines, lengths of functions, functions used once, banned words
    Figures(figures::Figures),
    /// Check licences, sources, duplicates and advisories of all dependencies
    Deny,
    /// Publish the crates that others can use on crates.io, in the order of their dependencies
    Publish(publish::Publish),
    /// Build the XDP program and compare it with the object in the repository
    Bpf(bpf::Bpf),
    /// Run a micro-benchmark
    ///
    /// Exit code 1 if a figure misses its bar.
    Bench(bench::Bench),
    /// Fuzz the parsers with cargo-fuzz on a nightly toolchain
    Fuzz(fuzz::Fuzz),
    /// Tests of the I/O and of the store under AddressSanitizer
    Sanitize(sanitize::Sanitize),
    /// Make a release in dist/: static programs, Debian package, image, bills of materials, licences, notes, checksums
    ///
    /// The tree must have no changes, and CHANGELOG.md a heading with its version. The same commit makes the same bytes.
    Release(release::Release),
    /// Attack the built tracker in a network of its own, with honest clients at the same time
    ///
    /// Exit codes: 0 if the tracker withstood every attack, 1 if an attack succeeded, 2 if one could not be run.
    Siege(siege::Siege),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Ci => ci::run(),
        Task::Test => test::run(),
        Task::Setup => setup::run(),
        Task::Tidy => tidy::run(),
        Task::Book => book::run(),
        Task::Screenshots => screenshots::run(),
        Task::Figures(figures) => figures.run(),
        Task::Deny => ci::deny(),
        Task::Publish(publish) => publish.run(),
        Task::Bpf(bpf) => bpf.run(),
        Task::Bench(bench) => bench.run(),
        Task::Fuzz(fuzz) => fuzz.run(),
        Task::Sanitize(sanitize) => sanitize.run(),
        Task::Release(release) => release.run(),
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
