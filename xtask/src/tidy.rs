//! Rules of this repository that no compiler and no lint checks.
//!
//! Faults fail the task. Advice (long files, long functions) is only printed, because there can be good reasons not to
//! follow it.

pub(crate) mod links;
mod manifests;
mod names;
mod size;
mod text;
pub(crate) mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell::{command, output, root, title};

pub(crate) use size::functions;

/// A file of the repository.
pub(crate) struct File {
    /// Relative to the root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

struct Finding {
    is_fault: bool,
    path: PathBuf,
    line: usize,
    message: String,
}

pub(crate) fn run() -> Result<()> {
    title("tidy");
    let files = files(root())?;
    let mut findings = Vec::new();
    for file in &files {
        // The text of a licence must not be changed.
        if !file.path.ends_with("LICENSE-APACHE") {
            text::check(file, &mut findings);
        }
        size::check(file, &mut findings);
        links::check(file, &files, &mut findings);
        names::check(file, &files, &mut findings);
        manifests::check(file, &mut findings);
        words::check(file, &mut findings);
    }
    for Finding { is_fault, path, line, message } in &findings {
        let kind = if *is_fault { "fault" } else { "advice" };
        eprintln!("{kind}: {}:{line}: {message}", path.display());
    }
    let faults = findings.iter().filter(|finding| finding.is_fault).count();
    ensure!(faults == 0, "there are {faults} faults, see above");
    manifests::check_features()?;
    eprintln!("{} files are tidy", files.len());
    Ok(())
}

/// Returns the files of a checkout that git tracks, or would track after `git add --all`.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    let mut list = command("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = output(list.current_dir(root));
    let list = list.context("cannot list the files of the repository")?;
    let paths = list.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut files = Vec::new();
    let is_a = |path: &Path, extension: &str| path.extension().is_some_and(|own| own == extension);
    // Files that are generated or of others, and the inputs of fuzz targets, are left out.
    let is_left_out =
        |path: &PathBuf| path.starts_with("fuzz/corpus") || path.starts_with("vendor") || is_a(path, "lock");
    for path in paths.filter(|path| !is_left_out(path)) {
        let Ok(bytes) = fs::read(root.join(&path)) else {
            continue; // The file was deleted, but git still tracks it.
        };
        // Links may lead to a picture, but its contents are not checked; nor are those of the XDP program.
        let bytes = if is_a(&path, "png") || is_a(&path, "o") { Vec::new() } else { bytes };
        let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))?;
        files.push(File { path, text });
    }
    Ok(files)
}

impl File {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|own| own == extension)
    }

    fn fault(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { is_fault: true, path: self.path.clone(), line, message: message.into() }
    }

    fn advice(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { is_fault: false, ..self.fault(line, message) }
    }

    /// Returns the lines with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> + Clone {
        (1..).zip(self.text.split('\n'))
    }
}
