//! Writes the manual pages and the completions for shells from the command line of the program, for the packages:
//! `cargo run -p shoal --example manual -- DIRECTORY`. It is not a command of the program, which would grow by it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap_complete::Shell;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).context("usage: manual DIRECTORY")?;
    let [manual, completions] = ["man", "completions"].map(|name| PathBuf::from(&directory).join(name));
    for directory in [&manual, &completions] {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let mut command = shoal::cli::command();
    clap_mangen::generate_to(command.clone(), &manual).context("cannot write the manual pages")?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "shoal", &completions)
            .with_context(|| format!("cannot write the completions for {shell}"))?;
    }
    Ok(())
}
