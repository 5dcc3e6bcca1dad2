//! TLS of the generator, as the command line spells it.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use shoal_load::{TlsSettings, TlsVersion};

use super::target::Target;

/// How TLS is spoken, and whether.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The connections")]
pub(super) struct Tls {
    /// TLS of this version, 1.3 or 1.2. An address with https or wss means 1.3
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = "1.3", value_parser = tls_version)]
    tls: Option<TlsVersion>,

    /// Resume TLS sessions with the tickets that the tracker hands out, each used once (RFC 8446, C.4)
    #[arg(long)]
    resumption: bool,

    /// Accept only certificates that these vouch for: a file in PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Tls {
    /// What it comes to for an address and a preset, which may both want TLS.
    pub(super) fn settings(&self, target: &Target, by_preset: bool) -> Result<Option<TlsSettings>> {
        let Self { tls, resumption, ca } = self;
        let (plain, secure) = (target.scheme(false), target.scheme(true));
        ensure!(
            target.scheme_tls != Some(false) || tls.is_none() && !by_preset,
            "an {plain}:// address has no TLS: give {secure}://, or a preset without TLS"
        );
        let is_tls = target.scheme_tls == Some(true) || tls.is_some() || by_preset;
        ensure!(is_tls || !resumption && ca.is_none(), "--resumption and --ca are about TLS: add --tls");
        Ok(is_tls.then(|| TlsSettings {
            version: tls.unwrap_or(TlsVersion::Tls13),
            resumption: *resumption,
            trusted: ca.clone(),
            name: target.name.clone(),
        }))
    }
}

/// How the JSON spells a version.
pub(super) fn version_in_words(tls: &TlsSettings) -> &'static str {
    match tls.version {
        TlsVersion::Tls12 => "1.2",
        TlsVersion::Tls13 => "1.3",
    }
}

fn tls_version(text: &str) -> Result<TlsVersion> {
    match text {
        "1.2" => Ok(TlsVersion::Tls12),
        "1.3" => Ok(TlsVersion::Tls13),
        _ => Err(anyhow::anyhow!("give 1.3 or 1.2, and the address before --tls")),
    }
}
