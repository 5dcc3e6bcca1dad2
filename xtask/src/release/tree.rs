//! The tree of a release: its commit, its version, and what the manifests and the changelog say about it.

use anyhow::{Context, Result, ensure};

use super::{notes, read};
use crate::shell::{command, output, root};

pub(super) struct Tree {
    /// The version of all packages.
    pub(super) version: String,
    /// The oldest Rust that builds it.
    pub(super) rust_version: String,
    /// The commit.
    pub(super) commit: String,
    /// The time of the commit, in seconds since 1970, and the time of every file of the release.
    pub(super) commit_s: u64,
}

impl Tree {
    /// Reads the tree. Fails if it has changes, unless it is a draft, or if the changelog does not have its version.
    pub(super) fn read(is_draft: bool) -> Result<Self> {
        let git = |arguments: &[&str]| -> Result<String> {
            Ok(output(&mut command("git", arguments))?.trim().to_owned())
        };
        let changes = git(&["status", "--porcelain"])?;
        ensure!(
            changes.is_empty() || is_draft,
            "a release is made of a commit, and these files differ from it: commit or remove them\n{changes}"
        );
        let manifest = read(&root().join("Cargo.toml"))?;
        let tree = Self {
            version: workspace_value(&manifest, "version")?,
            rust_version: workspace_value(&manifest, "rust-version")?,
            commit: git(&["rev-parse", "HEAD"])?,
            commit_s: git(&["show", "--no-patch", "--format=%ct", "HEAD"])?.parse()?,
        };
        tree.notes()?;
        Ok(tree)
    }

    /// Returns the notes of the release.
    pub(super) fn notes(&self) -> Result<String> {
        notes::of_version(&read(&root().join("CHANGELOG.md"))?, &self.version)
    }
}

/// Returns a value of `[workspace.package]`, which all packages inherit.
fn workspace_value(manifest: &str, key: &str) -> Result<String> {
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("workspace.package]"));
    let mut values = section.into_iter().flat_map(str::lines).filter_map(|line| line.split_once(" = "));
    let value = values.find_map(|(name, value)| (name == key).then_some(value));
    let value = value.with_context(|| format!("Cargo.toml lacks {key} in [workspace.package]"))?;
    Ok(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_version_is_in_one_place() {
        let manifest = read(&root().join("Cargo.toml")).unwrap();
        let version = workspace_value(&manifest, "version").unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        for folder in crates.chain([root().join("xtask")]) {
            let manifest = read(&folder.join("Cargo.toml")).unwrap();
            for key in ["version", "rust-version"] {
                assert!(
                    manifest.contains(&format!("\n{key}.workspace = true\n")),
                    "{}: {key}",
                    folder.display()
                );
            }
        }
    }

    #[test]
    fn a_value_is_read_from_its_section() {
        let manifest = "[workspace]\nversion = \"1\"\n\n[workspace.package]\nversion = \"2\"\n\n[other]\nlicense = \"3\"\n";
        assert_eq!(workspace_value(manifest, "version").unwrap(), "2");
        assert!(workspace_value(manifest, "license").is_err());
    }
}
