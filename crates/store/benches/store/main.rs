//! Micro-benchmarks of the store: the time of every operation, the memory at every size, the longest pause, and the
//! effect of an attacker that knows the order of a table on all of these.
//!
//! `cargo bench -p shoal-store --bench store -- [--json] [--filter TEXT]`; without `--bench` (as under `cargo test`)
//! every case runs once at a tiny size, so that the tests cover it.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod attack;
mod batch;
mod counting;
mod data;
mod memory;
mod operations;
mod pause;
mod report;

use std::process::ExitCode;

use report::{Case, Report};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let tiny = !flag("--bench") && !flag("--full");
    let cases = cases(tiny);
    if let Some(name) = value("--child") {
        // A case that measures the memory of a whole process runs in a process of its own.
        return cases.into_iter().find(|case| case.name == name).map_or(ExitCode::FAILURE, |case| {
            (case.run)().iter().for_each(|figure| println!("{}", figure.to_json()));
            ExitCode::SUCCESS
        });
    }
    let filter = value("--filter").unwrap_or_default();
    let mut report = Report::new(flag("--json"), tiny);
    for case in cases.into_iter().filter(|case| case.matches(&filter)) {
        report.run(case);
    }
    report.finish()
}

/// Returns all cases, in the order in which they are printed.
fn cases(tiny: bool) -> Vec<Case> {
    let mut cases = operations::cases(tiny);
    cases.extend(memory::cases(tiny));
    cases.extend(pause::cases(tiny));
    cases.extend(batch::cases(tiny));
    cases.extend(attack::cases(tiny));
    cases
}
