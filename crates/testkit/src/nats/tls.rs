//! The certificates of a private authority, for servers and clients on loopback.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::nats::write_secret;

/// Certificate files. They exist as long as any copy of this.
#[derive(Clone, Debug)]
pub struct Tls {
    directory: Arc<TempDir>,
    /// Whether clients must show a certificate of the same authority.
    pub verifies_clients: bool,
}

impl Tls {
    /// Creates an authority, a certificate for a server called "localhost" at 127.0.0.1, and one for a client.
    ///
    /// # Errors
    /// Returns an error if the files cannot be written.
    pub fn create() -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create the directory of certificates")?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        fs::write(directory.path().join("ca.pem"), authority.pem())?;
        for (name, hosts) in
            [("server", vec!["localhost".to_owned(), "127.0.0.1".to_owned()]), ("client", vec![])]
        {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(hosts)?.signed_by(&key, &authority)?;
            fs::write(directory.path().join(format!("{name}.pem")), certificate.pem())?;
            write_secret(&directory.path().join(format!("{name}.key")), &key.serialize_pem())?;
        }
        Ok(Self { directory: Arc::new(directory), verifies_clients: false })
    }

    /// Returns the certificate of the authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Returns the certificate and the key of the client.
    #[must_use]
    pub fn client(&self) -> [PathBuf; 2] {
        [self.file("client.pem"), self.file("client.key")]
    }

    pub(crate) fn text(&self) -> String {
        let (certificate, key) = (self.file("server.pem"), self.file("server.key"));
        let (authority, verify) = (self.authority(), self.verifies_clients);
        format!(
            "tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {authority:?}, verify: {verify} }}\n"
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
