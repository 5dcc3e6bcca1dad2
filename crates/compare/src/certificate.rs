//! The certificate of all trackers in an HTTPS comparison: self-signed for this host, ECDSA P-256.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use shoal_session::tls::{SelfSigned, self_signed};

use crate::description::{CERTIFICATE, CERTIFICATE_AND_KEY, KEY};

/// Returns the server name of clients.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(Ipv4Addr::LOCALHOST.into())
}

/// A certificate with its key, and the configuration of a client that trusts it.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pem: SelfSigned,
    client: Arc<ClientConfig>,
}

impl Certificate {
    /// Creates one.
    ///
    /// # Errors
    /// Returns an error if cryptography fails.
    pub(crate) fn new() -> Result<Self> {
        let pem = self_signed(&["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.certificate_pem.as_bytes())?)?;
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { pem, client: Arc::new(client) })
    }

    /// Returns the configuration of a client that trusts this certificate only.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// Writes the files that descriptions may refer to.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let SelfSigned { certificate_pem, key_pem } = &self.pem;
        let both = format!("{key_pem}{certificate_pem}");
        let files = [(CERTIFICATE, certificate_pem), (KEY, key_pem), (CERTIFICATE_AND_KEY, &both)];
        for (name, text) in files {
            let write: io::Result<()> = fs::write(folder.join(name), text);
            write.with_context(|| format!("cannot write {}", folder.join(name).display()))?;
        }
        Ok(())
    }
}
