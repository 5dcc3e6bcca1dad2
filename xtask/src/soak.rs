//! The soak of the XDP data path, which `shoal-lab soak` runs. This module builds it and the tracker.

use std::process::Command;

use anyhow::Result;
use clap::Args;
use shoal_testkit::tools;

use crate::shell::{build_dist, run, title};

/// The arguments of `shoal-lab soak`, which declares and documents them.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Soak {
    /// Options of the soak; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    arguments: Vec<String>,
}

impl Soak {
    pub(crate) fn run(self) -> Result<()> {
        title("soak");
        for package in ["shoal", "shoal-lab"] {
            build_dist(package)?;
        }
        let lab = tools::target_directory()?.join("dist/shoal-lab");
        run(Command::new(lab).arg("soak").args(&self.arguments))
    }
}
