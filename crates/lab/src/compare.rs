//! `shoal-lab compare`.

use std::process::ExitCode;

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Compare {}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("compare is not there yet")
    }
}
