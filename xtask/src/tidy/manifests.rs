//! Rules of manifests: every crate inherits its lints and its licence from the workspace, a published crate says what it
//! is for, and the commands of the README share what they build.
//!
//! Cargo builds a dependency once for each set of its features. `shoal-lab` needs some features that the tracker does
//! not. The tracker asks for them too: otherwise `cargo run` would build half of the tracker again after
//! `cargo build -p shoal -p shoal-lab`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::{File, Finding};
use crate::shell::{cargo, output};

const INHERITED: [(&str, &str); 3] = [
    ("[lints]\nworkspace = true\n", "its lints"),
    ("\nlicense.workspace = true\n", "its licence"),
    ("\npublish.workspace = true\n", "`publish = false`; a crate for others has `publish = true`"),
];

/// The keys of a crate for others, whose users have nothing but its package.
const FOR_OTHERS: [&str; 3] = ["\nreadme = \"README.md\"\n", "\nkeywords = [", "\ncategories = ["];

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    let is_crate = file.path.ends_with("Cargo.toml") && file.text.contains("[package]");
    // The fuzz targets are another workspace, for another compiler.
    if !is_crate || file.text.contains("\n[workspace]\n") || file.text.starts_with("[workspace]\n") {
        return;
    }
    let is_for_others = file.text.contains("\npublish = true\n");
    if is_for_others {
        for text in FOR_OTHERS.iter().filter(|text| !file.text.contains(**text)) {
            findings.push(file.fault(1, format!("is published without `{}`", text.trim())));
        }
    }
    for (text, what) in INHERITED {
        let is_inherited = file.text.contains(text) || (is_for_others && text.contains("publish"));
        if !is_inherited {
            findings.push(file.fault(1, format!("does not inherit {what} from the workspace")));
        }
    }
}

/// The sets of features of each package and version. Build scripts and programs may use different sets.
type Features = BTreeMap<String, Vec<String>>;

/// Checks that the tracker is built with the same features alone and together with the laboratory.
pub(super) fn check_features() -> Result<()> {
    let alone = features(&["-p", "shoal"])?;
    let together = features(&["-p", "shoal", "-p", "shoal-lab"])?;
    let is_shared = |sets: &[String], of_both: &[String]| sets.iter().all(|set| of_both.contains(set));
    let differing = alone.iter().filter(|(package, sets)| !is_shared(sets, &together[*package]));
    let differing: Vec<_> = differing
        .map(|(package, sets)| format!("{package}: {sets:?}, not {:?}", together[package]))
        .collect();
    ensure!(
        differing.is_empty(),
        "`-p shoal` builds other features than `-p shoal -p shoal-lab`; add them to crates/shoal/Cargo.toml:\n{}",
        differing.join("\n")
    );
    Ok(())
}

fn features(packages: &[&str]) -> Result<Features> {
    let fixed = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p} {f}"];
    let tree = output(&mut cargo(&[&fixed[..], packages].concat()))
        .context("cannot list the features of packages")?;
    let mut features = Features::new();
    for line in tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty()) {
        // A line is "name v1.2.3 one,two", with "(proc-macro)" or a path before the features in some cases.
        let mut words = line.split(' ');
        let package = words.by_ref().take(2).collect::<Vec<_>>().join(" ");
        let set = words.next_back().unwrap_or_default().to_owned();
        let sets = features.entry(package).or_default();
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    Ok(features)
}
