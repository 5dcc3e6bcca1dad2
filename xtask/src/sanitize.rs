//! Tests under AddressSanitizer: the code that shares memory with the kernel, and the store's pages.
//!
//! The toolchain of the repository contains the sanitizer's runtime, but the option is unstable, so the task sets
//! `RUSTC_BOOTSTRAP`. The standard library itself is not instrumented.
//!
//! The sanitizer does not see accesses by the kernel, and knows nothing of mappings. The arena of the store therefore
//! tells it which pages are free, so that an access to one is an error.

use std::env;

use anyhow::Result;
use clap::Args;

use crate::shell::{cargo, output, run, title};

/// Tests under AddressSanitizer.
#[derive(Args)]
pub(crate) struct Sanitize {
    /// Only tests whose name contains TEXT
    filter: Option<String>,
}

/// The tests of each package. They cover all of its `unsafe` code; the others take long and add none.
const TESTS: [(&str, &[&str]); 3] = [
    (
        "shoal-net",
        &["--lib", "--test", "back_ends", "--test", "client", "--test", "streams", "--test", "stream_end"],
    ),
    // The others need the kernel, or contain no `unsafe` code: loom changes stacks, of which the sanitizer knows nothing.
    ("shoal-xdp", &["--lib"]),
    ("shoal-store", &["--lib", "--test", "oracle", "--test", "limits", "--test", "walk"]),
];

/// `shoal_asan` lets the arena report its free pages to the sanitizer, which knows nothing of mappings.
const FLAGS: &str = "-Zsanitizer=address --cfg shoal_asan";

impl Sanitize {
    pub(crate) fn run(self) -> Result<()> {
        let host = output(&mut crate::shell::command("rustc", &["--print", "host-tuple"]))?;
        for (package, tests) in TESTS {
            title(&format!("{package} under AddressSanitizer"));
            // With a target given, the flags do not apply to build scripts and procedural macros.
            let mut test = cargo(&["test", "--locked", "--target", host.trim(), "--package", package]);
            test.args(tests).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
            // Memory that the kernel may still use is leaked on purpose.
            test.env("ASAN_OPTIONS", env::var_os("ASAN_OPTIONS").unwrap_or_else(|| "detect_leaks=0".into()));
            run(test.arg("--").args(&self.filter))?;
        }
        Ok(())
    }
}
