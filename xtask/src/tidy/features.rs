//! The commands of the README share what they have built.
//!
//! Cargo builds a dependency once for each set of its features. `shoal-lab` needs some that the tracker does not, so the
//! tracker asks for them too: otherwise `cargo run` would build half of the tracker again after
//! `cargo build -p shoal -p shoal-lab`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::shell::{cargo, output};

/// The features of each package and version; a package may be there with several sets, for build scripts and for programs.
type Features = BTreeMap<String, Vec<String>>;

pub(super) fn check() -> Result<()> {
    let alone = features(&["-p", "shoal"])?;
    let together = features(&["-p", "shoal", "-p", "shoal-lab"])?;
    let differing = alone.iter().filter(|(package, sets)| !is_shared(sets, &together[*package]));
    let differing: Vec<_> = differing
        .map(|(package, sets)| format!("{package}: {sets:?}, not {:?}", together[package]))
        .collect();
    ensure!(
        differing.is_empty(),
        "`-p shoal` builds other features than `-p shoal -p shoal-lab`; let crates/shoal/Cargo.toml ask for them:\n{}",
        differing.join("\n")
    );
    Ok(())
}

/// Whether all that is built for the tracker alone is built for both, too.
fn is_shared(alone: &[String], together: &[String]) -> bool {
    alone.iter().all(|set| together.contains(set))
}

fn features(packages: &[&str]) -> Result<Features> {
    let fixed = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p} {f}"];
    let tree =
        output(&mut cargo(&[&fixed[..], packages].concat())).context("tidy asks cargo for features")?;
    let mut features = Features::new();
    for line in tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty()) {
        // "name v1.2.3 one,two", or with "(proc-macro)" or a path between.
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
