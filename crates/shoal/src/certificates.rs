//! The certificates of the TLS listeners: read at the start, and again whenever the operator says so.

use std::path::PathBuf;

use shoal_config::Config;
use shoal_tls::{CertificateFiles, Server};

use crate::failure::Failure;

/// The files, as the operator named them, and what was made of them.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Vec<CertificateFiles>,
    server: Server,
}

impl Certificates {
    /// Reads the certificates, if any listener needs them.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn load(config: &Config) -> Result<Option<Self>, Failure> {
        if config.tls.listen.is_empty() {
            return Ok(None);
        }
        let files = files(config);
        let server = Server::load(&files).map_err(|error| Failure::Configuration(error.to_string()))?;
        tracing::info!(certificates = files.len(), "TLS");
        Ok(Some(Self { files, server }))
    }

    /// What workers accept connections with.
    pub(crate) fn server(&self) -> Server {
        self.server.clone()
    }

    /// Reads the files again. Whatever is wrong with them, connections go on, and new ones get the old certificates.
    pub(crate) fn reload(&self) {
        match self.server.reload(&self.files) {
            Ok(()) => tracing::info!(certificates = self.files.len(), "the certificates were read again"),
            Err(error) => tracing::error!(%error, "the certificates stay as they were"),
        }
    }
}

fn files(config: &Config) -> Vec<CertificateFiles> {
    let keys = config.tls.keys.iter().map(|key| Some(key.clone())).chain(std::iter::repeat(None));
    let file = |(chain, key): (&PathBuf, Option<PathBuf>)| CertificateFiles { chain: chain.clone(), key };
    config.tls.certificates.iter().zip(keys).map(file).collect()
}
