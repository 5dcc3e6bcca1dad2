//! Names of files and tests in Markdown and comments must exist, so that a move between crates leaves no false ones.
//!
//! Checked are the paths of Rust files between back quotes, from the root or from `crates`, and the package and target of
//! `cargo test` and `cargo bench`. The changelog and the diary of benchmarks tell of the past.

use std::path::Path;

use super::{File, Finding};

pub(super) fn check(file: &File, files: &[File], findings: &mut Vec<Finding>) {
    let is_past = file.path.starts_with("bench-runs") || file.path.ends_with("CHANGELOG.md");
    if is_past || !(file.has_extension("md") || file.has_extension("rs")) {
        return;
    }
    let exists = |path: &str| files.iter().any(|file| file.path == Path::new(path));
    for (number, line) in file.lines() {
        if file.has_extension("rs") && !line.trim_start().starts_with("//") {
            continue;
        }
        for path in quoted(line).filter(|text| is_source(text)) {
            if !exists(path) && !exists(&format!("crates/{path}")) {
                findings.push(file.fault(number, format!("there is no {path}")));
            }
        }
        for missing in quoted(line).filter_map(|text| missing_target(text, exists)) {
            findings.push(file.fault(number, missing));
        }
    }
}

/// Returns the texts between back quotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_source(text: &str) -> bool {
    let is_path = |char: char| char.is_ascii_alphanumeric() || "_-./".contains(char);
    let is_below_a_crate = text.contains("/src/") || text.contains("/tests/") || text.contains("/benches/");
    is_below_a_crate && text.ends_with(".rs") && text.chars().all(is_path) && !text.starts_with("src/")
}

/// Returns the package or target that a command of cargo names, if it does not exist.
fn missing_target(command: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let mut words = command.split_whitespace().skip_while(|word| *word != "cargo").skip(1);
    if !matches!(words.next(), Some("test" | "bench")) {
        return None;
    }
    let words: Vec<&str> = words.collect();
    let value =
        |options: &[&str]| words.windows(2).find(|pair| options.contains(&pair[0])).map(|pair| pair[1]);
    let package = value(&["-p", "--package"])?;
    let is_name = |name: &str| name.chars().all(|char| char.is_ascii_lowercase() || "-_".contains(char));
    if !is_name(package) {
        return None;
    }
    let folder = match package {
        "xtask" => "xtask".to_owned(),
        name => format!("crates/{}", name.strip_prefix("shoal-").unwrap_or(name)),
    };
    if !exists(&format!("{folder}/Cargo.toml")) {
        return Some(format!("there is no package {package}"));
    }
    let targets = [("--test", "tests"), ("--bench", "benches")];
    targets.into_iter().find_map(|(option, targets)| {
        let name = value(&[option]).filter(|name| is_name(name))?;
        let path = format!("{folder}/{targets}/{name}");
        let is_there = exists(&format!("{path}.rs")) || exists(&format!("{path}/main.rs"));
        (!is_there).then(|| format!("{package} has no {option} {name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> usize {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let there = ["crates/wire/Cargo.toml", "crates/wire/src/udp.rs", "crates/wire/tests/url/main.rs"];
        let files: Vec<File> = there.map(|path| file(path, "")).into();
        let mut findings = Vec::new();
        check(&file("docs/a.md", text), &files, &mut findings);
        findings.len()
    }

    #[test]
    fn paths_and_targets_exist() {
        for good in ["`wire/src/udp.rs`", "`crates/wire/src/udp.rs`", "`cargo test -p shoal-wire --test url`"]
        {
            assert_eq!(faults(good), 0, "{good}");
        }
        for other in ["wire/src/http.rs", "`src/http.rs`", "`cargo test -p CRATE`", "`cargo fmt -p none`"] {
            assert_eq!(faults(other), 0, "{other}");
        }
        for bad in
            ["`wire/src/http.rs`", "`cargo test -p shoal-http`", "`X=1 cargo test -p shoal-wire --test http`"]
        {
            assert_eq!(faults(bad), 1, "{bad}");
        }
    }
}
