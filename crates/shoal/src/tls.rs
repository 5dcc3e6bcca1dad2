//! `shoal tls`: certificates for trials.
//!
//! Owns the files that it writes. What goes into them is the business of `shoal_tls`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Subcommand};
use shoal_tls::SelfSignedError;

use crate::clock;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Make a certificate that no authority has signed, for trials: valid for a year, with an ECDSA key (P-256)
    SelfSigned(SelfSigned),
}

#[derive(Debug, Args)]
#[command(
    override_usage = "shoal tls self-signed --name NAME (--out DIR | --cert FILE --key FILE) [--force]"
)]
pub(crate) struct SelfSigned {
    /// A host name or IP address that clients connect to; repeat it for more
    #[arg(long = "name", value_name = "NAME", required = true)]
    names: Vec<String>,

    /// Write DIR/cert.pem and DIR/key.pem, and make DIR if need be; or name both files
    #[arg(long, value_name = "DIR", required_unless_present = "cert", conflicts_with_all = ["cert", "key"])]
    out: Option<PathBuf>,

    /// Write the certificate to FILE
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Write the private key to FILE, readable for nobody else
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

/// Does it, and says what to do next.
pub(crate) fn run(action: &Action) -> Result<String, Failure> {
    match action {
        Action::SelfSigned(wish) => self_signed(wish),
    }
}

fn self_signed(wish: &SelfSigned) -> Result<String, Failure> {
    let (certificate, key) = files(wish)?;
    let now = UNIX_EPOCH + Duration::from_secs(clock::unix_s());
    let made = shoal_tls::self_signed_for_a_year(&wish.names, now).map_err(|error| match error {
        SelfSignedError::Other(_) => Failure::Other(error.into()),
        SelfSignedError::NoName | SelfSignedError::BadName(_) => Failure::Configuration(error.to_string()),
    })?;
    make_way(&[&certificate, &key], wish.force)?;
    write(&key, 0o600, &made.key_pem)?;
    write(&certificate, 0o644, &made.certificate_pem)?;
    Ok(advice(wish, &certificate, &key))
}

/// Where to write certificate and key, as paths that are still right when the tracker is started elsewhere.
fn files(wish: &SelfSigned) -> Result<(PathBuf, PathBuf), Failure> {
    let (certificate, key) = match (&wish.out, &wish.cert, &wish.key) {
        (Some(directory), ..) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("the directory {} cannot be made", directory.display()))?;
            (directory.join("cert.pem"), directory.join("key.pem"))
        }
        (None, Some(certificate), Some(key)) if certificate != key => (certificate.clone(), key.clone()),
        _ => return Err(Failure::Configuration("--cert and --key must be two files".to_owned())),
    };
    let absolute = |file: PathBuf| {
        std::path::absolute(&file).with_context(|| format!("{} cannot be a file", file.display()))
    };
    Ok((absolute(certificate)?, absolute(key)?))
}

/// Sees to it that none of the files exists, before any is written.
fn make_way(files: &[&Path], is_forced: bool) -> Result<(), Failure> {
    for file in files {
        let shown = file.display();
        match fs::symlink_metadata(file) {
            Ok(_) if !is_forced => {
                return Err(Failure::Configuration(format!("{shown} exists; --force replaces it")));
            }
            // Removed rather than written over, so that nobody who had it open, or links to it, sees the new key.
            Ok(_) => fs::remove_file(file).with_context(|| format!("{shown} cannot be replaced"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => Err(error).with_context(|| format!("{shown} cannot be looked at"))?,
        }
    }
    Ok(())
}

/// Writes a new file. Its permissions are right from the beginning.
fn write(file: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut new: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
        new.write_all(text.as_bytes())
    };
    written().with_context(|| format!("{} cannot be written", file.display())).map_err(Failure::from)
}

fn advice(wish: &SelfSigned, certificate: &Path, key: &Path) -> String {
    let names = wish.names.join(", ");
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    format!(
        "\
{certificate} is a certificate for {names}, valid for a year; {key} is its private key.

To serve HTTPS with it, put this into the configuration:

[tls]
listen = [\"0.0.0.0:8443\", \"[::]:8443\"]
certificates = [{certificate:?}]
keys = [{key:?}]

No authority has signed it, so clients must be told to trust it, for instance
  curl --cacert {certificate} https://{host}:8443/announce
",
        host = url_host(wish.names.first().map_or("", String::as_str)),
    )
}

/// A name as it stands in a URL, where an IPv6 address is in brackets and a star would be any word.
fn url_host(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.replace('*', "any") }
}
