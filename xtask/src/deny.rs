//! Dependencies: licences, sources, duplicates, and known faults.

use anyhow::Result;

use crate::setup::tool;
use crate::shell::{self, command, output, title};

pub(crate) fn run() -> Result<()> {
    title("dependencies");
    let cargo_deny = tool("cargo-deny")?.display().to_string();
    shell::run(&mut command(&cargo_deny, &["--locked", "check", "licenses", "bans", "sources"]))?;
    // The database of advisories comes from GitHub, which not every machine reaches.
    match output(&mut command("timeout", &["60", &cargo_deny, "fetch", "db"])) {
        Ok(_) => {
            shell::run(&mut command(&cargo_deny, &["--locked", "check", "--disable-fetch", "advisories"]))
        }
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
