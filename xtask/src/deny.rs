//! Dependencies: licences, sources, duplicates, and known faults.

use anyhow::Result;

use crate::setup::cargo_tool;
use crate::shell::{self, cargo, command, output, title};

pub(crate) fn run() -> Result<()> {
    title("dependencies");
    cargo_tool("cargo-deny")?;
    shell::run(&mut cargo(&["deny", "--locked", "check", "licenses", "bans", "sources"]))?;
    // The database of advisories comes from GitHub, which not every machine reaches.
    match output(&mut command("timeout", &["60", "cargo", "deny", "fetch", "db"])) {
        Ok(_) => shell::run(&mut cargo(&["deny", "--locked", "check", "--disable-fetch", "advisories"])),
        Err(error) => {
            eprintln!(
                "advisories NOT checked, because their database cannot be fetched: {}",
                last_line(&error)
            );
            Ok(())
        }
    }
}

fn last_line(error: &anyhow::Error) -> String {
    error.to_string().lines().last().unwrap_or_default().to_owned()
}
