//! TLS of the generator: the same for every tracker, and as cheap as possible.
//!
//! Owns the client's configuration and the tracker's session tickets. X25519 is the only key exchange, so that all
//! trackers do the same work. Certificates are accepted unless the plan names trusted ones: verifying a signature costs
//! as much as making it.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, NamedGroup, RootCertStore, SignatureScheme,
};
use serde::ser::{SerializeMap as _, Serializer};

use crate::OpenError;

/// The settings of TLS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The only version that the client offers.
    pub version: TlsVersion,
    /// Whether sessions are resumed with the tickets of the tracker, each of which is used once.
    pub resumption: bool,
    /// The trusted certificates, in PEM. Without them, any certificate is accepted and no signature is verified.
    pub trusted: Option<PathBuf>,
    /// The name that the certificate must be for.
    pub name: String,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Writes TLS or its absence into the JSON result.
pub(crate) fn serialize<S: Serializer>(tls: &Option<TlsSettings>, to: S) -> Result<S::Ok, S::Error> {
    let version = tls.as_ref().map(|tls| match tls.version {
        TlsVersion::Tls12 => "1.2",
        TlsVersion::Tls13 => "1.3",
    });
    let mut map = to.serialize_map(None)?;
    map.serialize_entry("tls", &version)?;
    map.serialize_entry("key_exchange", &version.map(|_| "X25519"))?;
    map.serialize_entry("resumption", &tls.as_ref().is_some_and(|tls| tls.resumption))?;
    map.serialize_entry("certificates_verified", &tls.as_ref().is_some_and(|tls| tls.trusted.is_some()))?;
    map.end()
}

#[derive(Clone, Debug)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Most tickets of TLS 1.3 in the store. Each is used once (RFC 8446, C.4).
const TICKETS_MAX: usize = 4096;

impl TlsClient {
    /// Returns a client with a ticket store of its own.
    pub(crate) fn new(settings: &TlsSettings) -> Result<Self, OpenError> {
        let host = &settings.name;
        let name = match host.parse::<IpAddr>() {
            Ok(ip) => ServerName::IpAddress(ip.into()),
            Err(_) => ServerName::try_from(host.clone())
                .map_err(|_| OpenError::Host(format!("{host:?} is no name that TLS could ask for")))?,
        };
        let refused = |error| OpenError::Host(format!("this TLS cannot be had: {error}"));
        let provider = Arc::new(CryptoProvider {
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            ..aws_lc_rs::default_provider()
        });
        let version = match settings.version {
            TlsVersion::Tls12 => &TLS12,
            TlsVersion::Tls13 => &TLS13,
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&[version]).map_err(refused)?;
        let mut config = match &settings.trusted {
            Some(file) => builder.with_root_certificates(trusted(file)?).with_no_client_auth(),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = match settings.resumption {
            true => Resumption::store(Arc::new(TicketStore::default())),
            false => Resumption::disabled(),
        };
        Ok(Self { config: Arc::new(config), name })
    }

    pub(crate) fn connect(&self) -> Result<Box<ClientConnection>, Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map(Box::new)
    }
}

fn trusted(file: &Path) -> Result<RootCertStore, OpenError> {
    let refused = |error: &dyn fmt::Display| {
        OpenError::Host(format!("{} cannot be used as certificates to trust: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| refused(&error))? {
        roots.add(certificate.map_err(|error| refused(&error))?).map_err(|error| refused(&error))?;
    }
    if roots.is_empty() {
        return Err(refused(&"it holds none in PEM"));
    }
    Ok(roots)
}

/// Accepts any certificate, and verifies no signature.
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

/// A store of session tickets of one tracker. The store of rustls holds eight, and a worker has more connections.
#[derive(Default)]
struct TicketStore(Mutex<Tickets>);

#[derive(Default)]
struct Tickets {
    tls12: Option<Tls12ClientSessionValue>,
    /// Oldest first.
    tls13: VecDeque<Tls13ClientSessionValue>,
}

impl TicketStore {
    fn lock(&self) -> MutexGuard<'_, Tickets> {
        // Tickets are valid even if a thread has panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TicketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketStore").finish_non_exhaustive()
    }
}

impl ClientSessionStore for TicketStore {
    fn set_kx_hint(&self, _name: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _name: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().tls12 = Some(session);
    }

    fn tls12_session(&self, _name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().tls12.clone()
    }

    fn remove_tls12_session(&self, _name: &ServerName<'static>) {
        self.lock().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let tickets = &mut self.lock().tls13;
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().tls13.pop_front()
    }
}
