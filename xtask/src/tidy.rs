//! Rules of this repository that no compiler and no lint checks.
//!
//! Faults fail the task; advice (long files, long functions) is only printed, because breaking such a rule can be
//! right.

mod features;
mod links;
mod manifests;
mod size;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell::{command, output, root, title};

/// A file of the repository.
struct File {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

/// Something that is not as it should be.
struct Finding {
    is_fault: bool,
    path: PathBuf,
    line: usize,
    message: String,
}

pub(crate) fn run() -> Result<()> {
    title("tidy");
    let files = files()?;
    let mut findings = Vec::new();
    for file in &files {
        // The text of a licence is given, white space and all.
        if !file.path.starts_with("LICENSE-APACHE") {
            text::check(file, &mut findings);
        }
        size::check(file, &mut findings);
        links::check(file, &files, &mut findings);
        manifests::check(file, &mut findings);
    }
    for Finding { is_fault, path, line, message } in &findings {
        let kind = if *is_fault { "fault" } else { "advice" };
        eprintln!("{kind}: {}:{line}: {message}", path.display());
    }
    let faults = findings.iter().filter(|finding| finding.is_fault).count();
    ensure!(faults == 0, "{faults} faults, see above");
    features::check()?;
    eprintln!("{} files are tidy", files.len());
    Ok(())
}

/// The files that git knows, or would know if one added everything.
fn files() -> Result<Vec<File>> {
    let list = output(&mut command("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]));
    let list = list.context("tidy asks git which files there are")?;
    let paths = list.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut files = Vec::new();
    for path in paths.filter(|path| !is_foreign(path)) {
        let Ok(bytes) = fs::read(root().join(&path)) else {
            continue; // Deleted, but not yet in git's eyes.
        };
        let bytes = if is_picture(&path) { Vec::new() } else { bytes };
        let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))?;
        files.push(File { path, text });
    }
    Ok(files)
}

/// Files that machines write, and the inputs of fuzz targets.
fn is_foreign(path: &Path) -> bool {
    path.starts_with("fuzz/corpus") || path.extension().is_some_and(|extension| extension == "lock")
}

/// Pictures: links may lead to them, but there is nothing to read.
fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "png")
}

impl File {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|own| own == extension)
    }

    fn fault(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { is_fault: true, path: self.path.clone(), line, message: message.into() }
    }

    fn advice(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { is_fault: false, ..self.fault(line, message) }
    }

    /// Lines with their numbers.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.split('\n'))
    }
}
