//! Tells the program which commit it was built from, where that can be known.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    // Not SHOAL_…: cargo passes the variable on to `cargo run`, and the tracker refuses variables it does not know.
    println!("cargo:rustc-env=BUILD_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
    println!("cargo:rerun-if-changed=build.rs");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) =
            git(&["rev-parse", "--git-path", file]).map(PathBuf::from).filter(|path| path.exists())
        {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

/// The commit, marked if tracked files differ from it.
fn commit() -> Option<String> {
    git(&["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=-modified"])
}

/// Returns the output of git, if there is a git and a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
