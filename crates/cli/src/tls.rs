//! `shoal tls`: certificates for trials.
//!
//! This module owns the files that it writes. `shoal_session::tls` owns their contents.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Subcommand};
use shoal_session::tls::SelfSignedError;

use shoal_runtime::clock;
use shoal_runtime::failure::Failure;

/// The commands of `shoal tls`.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Make a self-signed certificate for trials, valid for a year, with an ECDSA key (P-256)
    SelfSigned(SelfSigned),
}

#[derive(Debug, Args)]
#[command(
    override_usage = "shoal tls self-signed --name NAME (--out DIR | --cert FILE --key FILE) [--force]"
)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct SelfSigned {
    /// A host name or IP address that clients connect to; repeat it for more
    #[arg(long = "name", value_name = "NAME", required = true)]
    names: Vec<String>,

    /// Write DIR/cert.pem and DIR/key.pem, and create DIR if necessary; or name both files
    #[arg(long, value_name = "DIR", required_unless_present = "cert", conflicts_with_all = ["cert", "key"])]
    out: Option<PathBuf>,

    /// Write the certificate to FILE
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Write the private key to FILE, readable only by you
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Replace existing files
    #[arg(long)]
    force: bool,
}

/// Executes the command, and returns a text with the next steps.
pub fn run(action: &Action) -> Result<String, Failure> {
    let Action::SelfSigned(arguments) = action;
    let (certificate, key) = files(arguments)?;
    let now = UNIX_EPOCH + Duration::from_secs(clock::unix_s());
    let made =
        shoal_session::tls::self_signed_for_a_year(&arguments.names, now).map_err(|error| match error {
            SelfSignedError::Other(_) => Failure::Other(error.into()),
            SelfSignedError::NoName | SelfSignedError::BadName(_) => {
                Failure::Configuration(error.to_string())
            }
        })?;
    make_way(&[&certificate, &key], arguments.force)?;
    write(&key, 0o600, &made.key_pem)?;
    write(&certificate, 0o644, &made.certificate_pem)?;
    Ok(advice(arguments, &certificate, &key))
}

/// Returns the paths of certificate and key, in a form that stays valid if the tracker starts in another directory.
fn files(arguments: &SelfSigned) -> Result<(PathBuf, PathBuf), Failure> {
    let (certificate, key) = match (&arguments.out, &arguments.cert, &arguments.key) {
        (Some(directory), ..) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("the directory {} cannot be created", directory.display()))?;
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

/// Ensures that none of the files exists, before any of them is written.
fn make_way(files: &[&Path], is_forced: bool) -> Result<(), Failure> {
    for file in files {
        let shown = file.display();
        match fs::symlink_metadata(file) {
            Ok(_) if !is_forced => {
                return Err(Failure::Configuration(format!("{shown} exists; --force replaces it")));
            }
            // The file is removed rather than overwritten, so that a process that has it open, or a link to it, does
            // not see the new key.
            Ok(_) => fs::remove_file(file).with_context(|| format!("{shown} cannot be replaced"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => Err(error).with_context(|| format!("{shown} cannot be read"))?,
        }
    }
    Ok(())
}

/// Writes a new file. Its permissions are restricted from the start.
fn write(file: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut new: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
        new.write_all(text.as_bytes())
    };
    written().with_context(|| format!("{} cannot be written", file.display())).map_err(Failure::from)
}

fn advice(arguments: &SelfSigned, certificate: &Path, key: &Path) -> String {
    let names = arguments.names.join(", ");
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    // In a URL, an IPv6 address is in brackets. A star stands for any word.
    let host = match arguments.names.first().map_or("", String::as_str) {
        name if name.contains(':') => format!("[{name}]"),
        name => name.replace('*', "any"),
    };
    format!(
        "\
{certificate} is a certificate for {names}, valid for a year; {key} is its private key.

To serve HTTPS with it, add this to the configuration:

[tls]
listen = [\"0.0.0.0:8443\", \"[::]:8443\"]
certificates = [{certificate:?}]
keys = [{key:?}]

It is self-signed, so clients must be told to trust it, for example:
  curl --cacert {certificate} https://{host}:8443/announce
"
    )
}
