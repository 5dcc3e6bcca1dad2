//! The licences of everything that a program contains, gathered from the sources that it was built from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell::{cargo, output};

/// How the names of files with licences begin, in lower case.
const FILES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// Libraries of a static program that come from no package: names, and files with their licences. Debian has the texts of common
/// licences in each installation.
const LIBRARIES: [(&str, &str, &str); 2] = [
    ("the Rust standard library", "MIT OR Apache-2.0", "licenses/MIT.txt"),
    (
        "the GNU C library, whose sources Debian has as the package glibc",
        "LGPL-2.1-or-later",
        "/usr/share/common-licenses/LGPL-2.1",
    ),
];

/// Returns all licences of a program on a target, each text once. Fails if a package tells no licence.
pub(super) fn of_program(program: &str, target: &str) -> Result<String> {
    Metadata::read(program, target)?.licences()
}

/// The packages of a program, as `cargo metadata` tells.
struct Metadata {
    packages: Vec<Value>,
}

impl Metadata {
    /// Reads what a program contains on a target.
    fn read(program: &str, target: &str) -> Result<Self> {
        let arguments = ["metadata", "--locked", "--format-version", "1", "--filter-platform", target];
        let metadata: Value = serde_json::from_str(&output(&mut cargo(&arguments))?)?;
        let (all, nodes) = (list(&metadata["packages"]), list(&metadata["resolve"]["nodes"]));
        let root = all.iter().find(|package| package["name"] == program);
        let root = root.with_context(|| format!("there is no package {program}"))?;
        let mut contained = BTreeSet::new();
        let mut open = vec![text(&root["id"])];
        while let Some(id) = open.pop() {
            if contained.insert(id) {
                let node = nodes.iter().find(|node| node["id"] == id).context("a package is unresolved")?;
                open.extend(
                    list(&node["deps"]).iter().filter(|&used| is_linked(used)).map(|used| text(&used["pkg"])),
                );
            }
        }
        let packages = all.iter().filter(|package| contained.contains(text(&package["id"])));
        Ok(Self { packages: packages.cloned().collect() })
    }

    fn licences(&self) -> Result<String> {
        let mut texts = BTreeMap::<String, BTreeSet<String>>::new();
        for package in
            self.packages.iter().filter(|package| !package["source"].is_null() || is_vendored(package))
        {
            let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
            let licence = package["license"].as_str().with_context(|| format!("{name} tells no licence"))?;
            let folder =
                Path::new(text(&package["manifest_path"])).parent().context("a manifest has a folder")?;
            let own = licence_files(folder)?;
            ensure!(!own.is_empty() || !licence.is_empty(), "{name} has no licence");
            for text in if own.is_empty() { vec![without_file(package)] } else { own } {
                texts.entry(text).or_default().insert(format!("{name} ({licence})"));
            }
        }
        for (name, licence, file) in LIBRARIES {
            texts.entry(of_library(file)?).or_default().insert(format!("{name} ({licence})"));
        }
        let line = "=".repeat(80);
        let mut all = String::from("This program contains the following libraries, under these licences.\n");
        for (text, names) in texts {
            let names: Vec<_> = names.into_iter().collect();
            all.push_str(&format!("\n{line}\n{}\n{line}\n\n{text}\n", names.join("\n")));
        }
        Ok(all)
    }
}

/// Returns whether a dependency is part of the program, and not only of its build or its tests.
fn is_linked(dependency: &Value) -> bool {
    list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
}

/// Returns whether a package of the repository is a changed one of others.
fn is_vendored(package: &Value) -> bool {
    text(&package["manifest_path"]).contains("/vendor/")
}

/// Returns the texts of the licences in the folder of a package.
fn licence_files(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if FILES.iter().any(|beginning| name.starts_with(beginning)) && entry.path().is_file() {
            texts.push(tidy(&String::from_utf8_lossy(&fs::read(entry.path())?)));
        }
    }
    Ok(texts)
}

/// Returns a text without the differences that mean nothing, so that equal licences appear once.
fn tidy(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned()
}

/// Returns what is known of a package that has no file with its licence.
fn without_file(package: &Value) -> String {
    let authors: Vec<&str> = list(&package["authors"]).iter().map(text).collect();
    let authors = if authors.is_empty() { "their authors".to_owned() } else { authors.join(", ") };
    format!(
        "Copyright of {authors}. The package has no file with its licence; see {}",
        text(&package["repository"])
    )
}

/// Returns the text of a licence that is not that of a package.
fn of_library(file: &str) -> Result<String> {
    let sysroot = output(&mut crate::shell::command("rustc", &["--print", "sysroot"]))?;
    let file = Path::new(sysroot.trim()).join("share/doc/rust").join(file);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(tidy(&text))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licences_of_the_tracker_are_found() {
        let metadata = Metadata::read("shoal", "x86_64-unknown-linux-gnu").unwrap();
        let names: Vec<&str> = metadata.packages.iter().map(|package| text(&package["name"])).collect();
        assert!(
            ["shoal-engine", "aws-lc-sys", "async-nats", "rustls"].iter().all(|name| names.contains(name))
        );
        // Of tests, of builds and of the laboratory.
        assert!(!["proptest", "cc", "plotters"].iter().any(|name| names.contains(name)), "{names:?}");
        let licences = metadata.licences().unwrap();
        for name in names.iter().filter(|name| !name.starts_with("shoal")) {
            assert!(licences.contains(&format!("\n{name} ")), "{name}");
        }
        assert!(licences.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
    }
}
