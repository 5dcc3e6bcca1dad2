//! The certificate of all trackers in an HTTPS comparison: self-signed for this host, ECDSA P-256.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use shoal_session::tls::{SelfSigned, self_signed};
use shoal_testkit::client::tls::Tls;

use crate::description::{CERTIFICATE, CERTIFICATE_AND_KEY, KEY};

/// A certificate with its key, and a client that trusts it.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pem: SelfSigned,
    client: Tls,
}

impl Certificate {
    pub(crate) fn new() -> Result<Self> {
        let pem = self_signed(&["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let client = Tls::trusting(&pem.certificate_pem)?;
        Ok(Self { pem, client })
    }

    pub(crate) fn client(&self) -> Tls {
        self.client.clone()
    }

    /// Writes the files that descriptions may refer to.
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
