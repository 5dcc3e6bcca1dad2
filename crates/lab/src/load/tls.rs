//! The TLS options of the load commands.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use shoal_load::{TlsSettings, TlsVersion};

use super::target::LoadTarget;

/// The options of TLS.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The connections")]
pub(super) struct TlsArgs {
    /// Use TLS of this version, 1.3 or 1.2. A URL with https or wss implies 1.3
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = "1.3", value_parser = tls_version)]
    tls: Option<TlsVersion>,

    /// Resume TLS sessions with the tracker's tickets, each of which is used once (RFC 8446, C.4)
    #[arg(long)]
    resumption: bool,

    /// Accept only certificates that are signed by one of these: a PEM file
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the TLS settings for a target and a preset, each of which may require TLS.
    pub(super) fn settings(&self, target: &LoadTarget, by_preset: bool) -> Result<Option<TlsSettings>> {
        let Self { tls, resumption, ca } = self;
        let (plain, secure) = (target.scheme(false), target.scheme(true));
        ensure!(
            target.scheme_tls != Some(false) || tls.is_none() && !by_preset,
            "an {plain}:// address has no TLS: give {secure}://, or a preset without TLS"
        );
        let is_tls = target.scheme_tls == Some(true) || tls.is_some() || by_preset;
        ensure!(is_tls || !resumption && ca.is_none(), "--resumption and --ca require TLS: add --tls");
        Ok(is_tls.then(|| TlsSettings {
            version: tls.unwrap_or(TlsVersion::Tls13),
            resumption: *resumption,
            trusted: ca.clone(),
            name: target.name.clone(),
        }))
    }
}

fn tls_version(text: &str) -> Result<TlsVersion> {
    match text {
        "1.2" => Ok(TlsVersion::Tls12),
        "1.3" => Ok(TlsVersion::Tls13),
        _ => Err(anyhow::anyhow!("give 1.3 or 1.2, and the address before --tls")),
    }
}
