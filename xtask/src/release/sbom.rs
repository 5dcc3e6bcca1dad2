//! The bill of materials of a program, in the format of CycloneDX.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::tree::Tree;
use super::{read, write};
use crate::setup::cargo_tool;
use crate::shell::{cargo, root, run};

/// The name of the files that cargo-cyclonedx writes beside each manifest of the workspace.
const FILE: &str = "release-bill-of-materials";

/// Writes the bill of materials of a program for a target.
pub(super) fn write_for(tree: &Tree, program: &str, target: &str, file: &Path) -> Result<()> {
    cargo_tool("cargo-cyclonedx")?;
    let manifest = format!("{}/Cargo.toml", folder(program));
    let mut make =
        cargo(&["cyclonedx", "--format", "json", "--quiet", "--no-build-deps", "--manifest-path", &manifest]);
    make.args(["--target", target, "--override-filename", FILE]);
    // Without this variable, the file would have the time, and a random number.
    run(make.env("SOURCE_DATE_EPOCH", tree.commit_s.to_string()))?;
    let text = read(&root().join(folder(program)).join(format!("{FILE}.json")))?;
    remove_others()?;
    write(file, &text.replace(&format!("{}/", root().display()), ""))
}

/// Returns the folder of the package of a program.
fn folder(program: &str) -> &str {
    if program == "shoal" { "crates/shoal" } else { "crates/lab" }
}

fn remove_others() -> Result<()> {
    for parent in ["crates", "."] {
        for entry in fs::read_dir(root().join(parent)).context("cannot read the workspace")? {
            let file = entry?.path().join(format!("{FILE}.json"));
            if file.exists() {
                fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
            }
        }
    }
    Ok(())
}
