//! The tracker's program. All its code is in the library beside this file, where tests can reach it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use shoal::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    shoal::cli::run()
}
