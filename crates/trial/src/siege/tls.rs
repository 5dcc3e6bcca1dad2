//! The TLS client of the siege, which accepts any certificate because the siege starts the tracker itself.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use shoal_testkit::certificate::AnyCertificate;

/// Creates TLS sessions with the tracker.
#[derive(Clone)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Creates a client for every TLS version that rustls supports.
    pub(crate) fn new() -> Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().context("no version of TLS")?;
        let verifier = Arc::new(AnyCertificate::without_signatures(provider));
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        // Without resumption, each connection costs the tracker a full handshake.
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config) })
    }

    /// Returns a client that resumes sessions with the tickets of earlier ones.
    pub(crate) fn resuming(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(256);
        Self { config: Arc::new(config) }
    }

    /// Starts a session.
    pub(crate) fn begin(&self) -> Result<ClientConnection> {
        let name = ServerName::try_from("localhost").context("a name")?;
        ClientConnection::new(Arc::clone(&self.config), name).context("cannot start a TLS session")
    }

    /// Encodes a client hello.
    pub(crate) fn hello(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.begin()?.write_tls(&mut bytes).context("cannot write a client hello")?;
        Ok(bytes)
    }
}
