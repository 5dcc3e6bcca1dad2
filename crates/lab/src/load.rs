//! `shoal-lab load`.

use std::process::ExitCode;

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Load {}

impl Load {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("load is not there yet")
    }
}
