//! The TLS of all clients.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, StreamOwned, WantsVerifier,
};

use super::{Stream, tcp};

/// Creates TLS sessions.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

/// A connection over TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

impl Tls {
    /// Creates a client that accepts any certificate and resumes no session, so that each connection costs the tracker a full
    /// handshake.
    ///
    /// # Errors
    /// Returns an error if the library supports no version of TLS.
    pub fn new() -> Result<Self> {
        let verifier = AnyCertificate(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config) })
    }

    /// Creates a client that accepts only this certificate, in PEM, and resumes sessions.
    ///
    /// # Errors
    /// Returns an error if it is no certificate.
    pub fn trusting(certificate_pem: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate_pem.as_bytes())?)?;
        let config = builder()?.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }

    /// Returns a client that resumes sessions with the tickets of earlier ones.
    #[must_use]
    pub fn resuming(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(256);
        Self { config: Arc::new(config) }
    }

    /// Starts a session with a server of this name.
    ///
    /// # Errors
    /// Returns an error if the name is invalid.
    pub fn begin(&self, name: &str) -> Result<ClientConnection> {
        let name = ServerName::try_from(name.to_owned())?;
        ClientConnection::new(Arc::clone(&self.config), name).context("cannot start a TLS session")
    }

    /// Encodes a client hello.
    ///
    /// # Errors
    /// Returns an error if no session can be started.
    pub fn hello(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.begin("localhost")?.write_tls(&mut bytes)?;
        Ok(bytes)
    }

    /// Puts a session with `localhost` on a connection. The handshake takes place with the first write or read.
    ///
    /// # Errors
    /// Returns an error if no session can be started.
    pub fn wrap(&self, stream: TcpStream) -> Result<TlsStream> {
        Ok(StreamOwned::new(self.begin("localhost")?, stream))
    }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    builder.with_safe_default_protocol_versions().context("no version of TLS")
}

/// Puts a session on a connection if there is a client for it.
///
/// # Errors
/// Returns an error if no session can be started.
pub fn over(stream: TcpStream, tls: Option<&Tls>) -> Result<Box<dyn Stream>> {
    Ok(match tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.wrap(stream)?),
    })
}

/// Opens a connection, over TLS if there is a client for it.
///
/// # Errors
/// Returns an error if there is no connection in time.
pub fn open(
    source: impl Into<Option<IpAddr>>,
    target: SocketAddr,
    tls: Option<&Tls>,
    timeout: Duration,
) -> Result<Box<dyn Stream>> {
    over(tcp(source, target, timeout).context("cannot connect")?, tls)
}

/// Accepts any certificate, because trackers under test have self-signed ones. Verifies no signature: it costs the client
/// about as much as signing costs the tracker.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
