//! Figures of the sources: lines, lengths of functions, functions that are used once, short files, words of the list.
//!
//! The source is read line by line and relies on the layout of rustfmt, like the rest of [`crate::tidy`]. Names are
//! compared as text. The figures are therefore good for comparing two states of the repository, not exact to the last
//! digit. "Program" means everything but tests and benchmarks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::shell::root;
use crate::tidy::{self, File, functions, words};

/// A file with fewer lines is short.
const SHORT_FILE_LINES: usize = 40;

/// The sources to measure, and the output.
#[derive(Args)]
pub(crate) struct Figures {
    /// Another checkout of the repository to measure [default: this one]
    path: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// List the private functions that are used once
    #[arg(long)]
    used_once: bool,
}

impl Figures {
    pub(crate) fn run(self) -> Result<()> {
        let files = tidy::files(self.path.as_deref().unwrap_or(root()))?;
        let programs = programs(&files);
        let private = private_functions(&programs);
        if self.used_once {
            for function in private.iter().filter(|function| function.is_used_once) {
                println!("{}:{}: {}", function.path.display(), function.line, function.name);
            }
            return Ok(());
        }
        let figures = figures(&files, &programs, &private);
        if self.json {
            let fields = figures.iter().map(|(key, _, value)| format!("  \"{key}\": {value}"));
            println!("{{\n{}\n}}", fields.collect::<Vec<_>>().join(",\n"));
        } else {
            figures.iter().for_each(|(_, name, value)| println!("{name:<50} {value:>8}"));
        }
        Ok(())
    }
}

/// Returns the key, the name and the value of each figure.
fn figures(
    files: &[File],
    programs: &[Program<'_>],
    private: &[Private<'_>],
) -> Vec<(&'static str, &'static str, String)> {
    let lines = |is_counted: fn(&str) -> bool| -> usize {
        let count = |program: &Program<'_>| program.lines.iter().filter(|(_, line)| is_counted(line)).count();
        programs.iter().map(count).sum()
    };
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let mut lengths: Vec<usize> = programs.iter().flat_map(Program::function_lengths).collect();
    lengths.sort_unstable();
    let percentile = |percent: usize| lengths.get(lengths.len() * percent / 100).copied().unwrap_or(0);
    let used_once = private.iter().filter(|function| function.is_used_once).count();
    let rust = || files.iter().filter(|file| file.has_extension("rs"));
    let short = rust().filter(|file| file.text.lines().count() < SHORT_FILE_LINES).count();
    let hits: usize = files.iter().map(|file| words::hits(file).count()).sum();
    #[expect(clippy::cast_precision_loss, reason = "counts of functions are small")]
    let used_once_percent = 100.0 * used_once as f64 / lengths.len().max(1) as f64;
    vec![
        ("program_lines", "lines of programs", lines(|_| true).to_string()),
        ("program_code_lines", "  without comments and blank lines", lines(is_code).to_string()),
        ("functions", "functions", lengths.len().to_string()),
        ("function_lines_median", "  lines, median", percentile(50).to_string()),
        ("function_lines_p90", "  lines, 90th percentile", percentile(90).to_string()),
        ("function_lines_p99", "  lines, 99th percentile", percentile(99).to_string()),
        ("function_lines_max", "  lines, longest", lengths.last().copied().unwrap_or(0).to_string()),
        ("private_functions", "private functions", private.len().to_string()),
        ("private_functions_used_once", "  used once", used_once.to_string()),
        (
            "functions_used_once_percent",
            "  used once, per cent of all functions",
            format!("{used_once_percent:.1}"),
        ),
        ("files", "Rust files, with tests", rust().count().to_string()),
        ("files_short", "  shorter than 40 lines", short.to_string()),
        ("words", "banned words and constructions", hits.to_string()),
    ]
}

/// A source file without its tests.
struct Program<'f> {
    path: &'f Path,
    /// The lines with their numbers.
    lines: Vec<(usize, &'f str)>,
}

/// Returns the sources of libraries and programs, without tests and benchmarks.
fn programs(files: &[File]) -> Vec<Program<'_>> {
    let is_source = |file: &&File| {
        let mut parts = file.path.iter();
        file.has_extension("rs") && parts.any(|part| part == "src") && !file.path.starts_with("fuzz")
    };
    let mut test_modules = BTreeSet::new();
    let mut programs = Vec::new();
    for file in files.iter().filter(is_source) {
        let (lines, modules) = without_tests(file);
        test_modules.extend(modules.iter().map(|module| folder(&file.path).join(module)));
        programs.push(Program { path: &file.path, lines });
    }
    // The file of a test module, or of one of its children.
    let is_test = |path: &Path| {
        test_modules.iter().any(|module| path.starts_with(module) || path == module.with_extension("rs"))
    };
    programs.retain(|program| !is_test(program.path));
    programs
}

/// Returns the lines outside test items, and the names of test modules in other files.
fn without_tests(file: &File) -> (Vec<(usize, &str)>, Vec<&str>) {
    let (mut program_lines, mut modules) = (Vec::new(), Vec::new());
    let mut lines = (1..).zip(file.text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            program_lines.push((number, line));
            continue;
        }
        let indentation = &line[..line.len() - line.trim_start().len()];
        let is_attribute = |line: &str| line.trim_start().starts_with("#[");
        while lines.next_if(|(_, line)| is_attribute(line)).is_some() {}
        let Some((_, head)) = lines.next() else { break };
        if let Some(module) = head.trim().strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            modules.push(module);
        }
        if !head.ends_with([';', '}', ',']) {
            let is_end = |line: &str| {
                line.strip_prefix(indentation).is_some_and(|rest| matches!(rest, "}" | "};" | "},"))
            };
            lines.by_ref().find(|(_, line)| is_end(line));
        }
    }
    (program_lines, modules)
}

/// Returns the folder of the child modules of a source file.
fn folder(path: &Path) -> PathBuf {
    let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|root| path.ends_with(root));
    if is_root { path.parent().unwrap_or(Path::new("")).to_path_buf() } else { path.with_extension("") }
}

impl Program<'_> {
    fn function_lengths(&self) -> Vec<usize> {
        functions(self.lines.iter().copied()).map(|(_, length)| length).collect()
    }

    /// Returns the identifiers of the code, outside comments and strings, each with whether it is called or defined there
    /// as a function. A function that is only named, in a table or as an argument, is not called.
    fn identifiers(&self) -> impl Iterator<Item = (&str, bool)> {
        let is_joined = |char: char| char.is_alphanumeric() || char == '_';
        let code = self.lines.iter().map(|(_, line)| line.split("//").next().unwrap_or_default());
        let pieces = code.flat_map(|code| code.split('"').step_by(2));
        pieces.flat_map(move |piece| {
            let mut rest = piece;
            std::iter::from_fn(move || {
                rest = &rest[rest.find(is_joined)?..];
                let end = rest.find(|char| !is_joined(char)).unwrap_or(rest.len());
                let (word, behind) = rest.split_at(end);
                rest = behind;
                Some((word, behind.starts_with(['(', '<']) || behind.starts_with("::<")))
            })
        })
    }

    /// Returns the line and name of each private function outside traits and their implementations.
    fn private_functions(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        let mut of_trait: Option<&str> = None;
        for (number, line) in &self.lines {
            let indentation = &line[..line.len() - line.trim_start().len()];
            if of_trait.is_some_and(|end| line.strip_prefix(end) == Some("}")) {
                of_trait = None;
            }
            let head = line.trim_start();
            let is_trait = head.starts_with("impl") && head.contains(" for ")
                || head.starts_with("trait ")
                || head.starts_with("pub") && head.contains(" trait ");
            if is_trait && !head.ends_with('}') && of_trait.is_none() {
                of_trait = Some(indentation);
            }
            let mut words = head.split(' ').skip_while(|word| matches!(*word, "const" | "async" | "unsafe"));
            if words.next() == Some("fn") && of_trait.is_none() {
                let name = words.next().unwrap_or_default();
                let name = name.split(['(', '<']).next().unwrap_or_default();
                if name != "main" {
                    found.push((*number, name));
                }
            }
        }
        found
    }
}

struct Private<'f> {
    path: &'f Path,
    line: usize,
    name: &'f str,
    is_used_once: bool,
}

/// Finds all private functions, and counts their calls in their own module and its children. A name that is defined there
/// more than once counts as called more than once.
fn private_functions<'p>(programs: &'p [Program<'_>]) -> Vec<Private<'p>> {
    // The number of times that a name stands anywhere, and of those as a call or a definition.
    let mut counts: BTreeMap<&Path, BTreeMap<&str, (usize, usize)>> = BTreeMap::new();
    for program in programs {
        let of_file = counts.entry(program.path).or_default();
        for (name, is_call) in program.identifiers() {
            let (all, calls) = of_file.entry(name).or_default();
            (*all, *calls) = (*all + 1, *calls + usize::from(is_call));
        }
    }
    let mut found = Vec::new();
    for program in programs {
        let children = folder(program.path);
        let scope: Vec<&Path> = programs
            .iter()
            .map(|other| other.path)
            .filter(|path| *path == program.path || path.starts_with(&children))
            .collect();
        for (line, name) in program.private_functions() {
            let counts = scope.iter().filter_map(|path| counts[path].get(name));
            let seen = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            // The definition and one call.
            found.push(Private { path: program.path, line, name, is_used_once: seen == (2, 2) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.to_owned() }
    }

    const MODULE: &str = "\
fn once() {}

pub fn public() {
    once();
    twice(\"once\");
    twice(1); // once
}

fn twice(a: u8) {}

impl Display for A {
    fn of_a_trait() {}
}

#[cfg(test)]
mod tests {
    fn helper() {}
}
";

    #[test]
    fn private_functions_are_found_with_their_uses() {
        let files = [file("crates/a/src/a.rs", MODULE)];
        let programs = programs(&files);
        let found = private_functions(&programs);
        let found: Vec<_> = found.iter().map(|found| (found.line, found.name, found.is_used_once)).collect();
        assert_eq!(found, [(1, "once", true), (9, "twice", false)]);
    }

    #[test]
    fn tests_are_no_part_of_a_program() {
        let files = [
            file(
                "crates/a/src/a.rs",
                "#[cfg(test)]\nmod deep;\n\n#[cfg(test)]\nuse x::{\n    y,\n};\nfn f() {}\n",
            ),
            file("crates/a/src/a/deep.rs", "fn g() {}\n"),
            file("crates/a/tests/b.rs", "fn h() {}\n"),
        ];
        let programs = programs(&files);
        let lines: Vec<_> =
            programs.iter().flat_map(|program| &program.lines).map(|(_, line)| *line).collect();
        assert_eq!(lines, ["", "fn f() {}"]);
    }

    #[test]
    fn a_use_in_a_child_module_counts() {
        let files = [
            file("crates/a/src/a.rs", "fn shared() {}\nfn f() { shared() }\n"),
            file("crates/a/src/a/child.rs", "fn g() { super::shared() }\n"),
        ];
        let programs = programs(&files);
        assert!(
            private_functions(&programs)
                .iter()
                .all(|function| function.name != "shared" || !function.is_used_once)
        );
    }
}
