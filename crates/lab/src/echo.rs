//! `shoal-lab echo`.

use std::process::ExitCode;

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Echo {}

impl Echo {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("echo is not there yet")
    }
}
