//! Writes the manual pages and the completions for shells from the command line of the program, for the packages:
//! `cargo run -p shoal --example manual -- DIRECTORY`. It is not a command of the program, which would grow by it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap_complete::Shell;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).context("usage: manual DIRECTORY")?;
    let [manual, completions] = ["man", "completions"].map(|name| PathBuf::from(&directory).join(name));
    for directory in [&manual, &completions] {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    // Not the build of this example.
    let mut command = shoal::cli::command().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command.clone(), &manual).context("cannot write the manual pages")?;
    for page in fs::read_dir(&manual).with_context(|| format!("cannot read {}", manual.display()))? {
        keep_columns(&page.context("cannot read the manual pages")?.path())?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "shoal", &completions)
            .with_context(|| format!("cannot write the completions for {shell}"))?;
    }
    Ok(())
}

/// Marks the examples of a manual page, which are indented, as lines that are shown as they are.
fn keep_columns(page: &Path) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let mut marked = String::new();
    let mut is_example = false;
    for line in text.lines() {
        if line.starts_with("  ") != is_example {
            is_example = !is_example;
            marked += if is_example { ".nf\n" } else { ".fi\n" };
        }
        marked += line;
        marked.push('\n');
    }
    fs::write(page, marked).with_context(|| format!("cannot write {}", page.display()))
}
