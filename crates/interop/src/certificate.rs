//! The certificate of a test, made by the tracker's own command, which nobody trusts unless told to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::network::{PROXY_NAME, TRACKER_NAME};
use crate::tools;

/// A certificate for the tracker and for the proxies in front of it, as PEM files.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate alone.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Both in one file, as hitch wants them.
    pub both: PathBuf,
}

impl Certificate {
    /// Makes one in `directory`.
    ///
    /// # Errors
    /// Where the tracker does not build or makes none.
    pub fn make(directory: &Path) -> Result<Self> {
        let path = |name: &str| directory.join(name);
        let made = Self { certificate: path("cert.pem"), key: path("key.pem"), both: path("both.pem") };
        let mut command = Command::new(tools::shoal()?);
        command.args(["tls", "self-signed", "--name", TRACKER_NAME, "--name", PROXY_NAME]);
        command.arg("--cert").arg(&made.certificate).arg("--key").arg(&made.key);
        let output = command.output().context("cannot run shoal")?;
        ensure!(output.status.success(), "no certificate: {}", String::from_utf8_lossy(&output.stderr));
        fs::write(&made.both, [fs::read(&made.key)?, fs::read(&made.certificate)?].concat())?;
        Ok(made)
    }
}
