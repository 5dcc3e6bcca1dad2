//! The configuration that all TLS connections of a listener share: versions, ciphers, certificates, tickets.
//!
//! Workers share certificates and the keys of tickets, since a client may return to any of them. Each worker has its
//! own rustls configuration (`Server::for_worker`). Handshakes share the lock of the certificates, which they only
//! read, and the counts of references to them. A resumption brings a new ticket: most clients use a ticket once, so
//! without a new one every second connection would be a full handshake, which with RSA costs many times as much.
//! Sealing a ticket takes some 1.4 of the 100 µs of a resumed handshake.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::crypto::{CryptoProvider, GetRandomFailed};
use rustls::server::NoServerSessionStorage;
use rustls::time_provider::DefaultTimeProvider;
use rustls::{ServerConfig, SupportedCipherSuite, version};

use crate::challenges::{Challenges, VALIDATION_PROTOCOL};
use crate::tls::Certificate;
use crate::tls::certificates::Selector;
use crate::tls::files::{self, CertificateError, CertificateFiles};
use crate::tls::ticket::{Adoption, TicketKeys};

/// The ciphers in order of preference. A handshake with AES-128 and SHA-256 is by far the cheapest, and no attack on
/// them is in sight; OpenSSL clients would prefer SHA-384. rustls follows either the server's order or the client's,
/// so a client without AES instructions gets ChaCha20 only if it offers nothing else.
const CIPHER_SUITES: [SupportedCipherSuite; 9] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
];

/// The application protocols (RFC 7301). A client that offers only others is refused with the alert
/// no_application_protocol, as the RFC requires. A client that offers none is accepted.
const APPLICATION_PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

/// The configuration of sessions. Clones share everything, including certificates and ticket keys.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
    selector: Arc<Selector>,
    tickets: Arc<TicketKeys>,
}

impl Server {
    /// Creates a server with these certificates. The first is for clients that send no name, or an unknown one. Fails
    /// if a certificate cannot be used. The message names the file and the remedy.
    pub fn load(files: &[CertificateFiles]) -> Result<Self, CertificateError> {
        if files.is_empty() {
            return Err(CertificateError::NoneGiven);
        }
        Self::load_with(files, None)
    }

    /// Creates a server like [`Self::load`] that also answers `challenges`. There may be no certificate yet, and
    /// handshakes then fail.
    pub fn load_for_acme(
        files: &[CertificateFiles],
        challenges: Arc<Challenges>,
    ) -> Result<Self, CertificateError> {
        Self::load_with(files, Some(challenges))
    }

    fn load_with(
        files: &[CertificateFiles],
        challenges: Option<Arc<Challenges>>,
    ) -> Result<Self, CertificateError> {
        let selector = Arc::new(Selector::new(files::load(files, &provider())?, challenges));
        let tickets = TicketKeys::new(Arc::new(DefaultTimeProvider));
        let tickets = tickets.map_err(|_| CertificateError::NoRandomness(GetRandomFailed.into()))?;
        let config = Arc::new(config(&selector, &tickets));
        Ok(Self { config, selector, tickets })
    }

    /// Returns the server of a worker, with its own handle for tickets. All workers share certificates and ticket keys.
    pub fn for_worker(&self) -> Self {
        let config = Arc::new(config(&self.selector, &self.tickets));
        Self { config, ..self.clone() }
    }

    /// Replaces the certificates of all clones for all later handshakes. Open sessions and tickets stay valid. Fails as
    /// [`Self::load`] does, and then keeps the old certificates.
    pub fn reload(&self, files: &[CertificateFiles]) -> Result<(), CertificateError> {
        if files.is_empty() && self.selector.challenges().is_none() {
            return Err(CertificateError::NoneGiven);
        }
        let certificates = files::load(files, self.config.crypto_provider())?;
        self.selector.replace(certificates);
        Ok(())
    }

    /// Returns how often the keys of tickets have changed. They change every six hours while there are connections.
    pub fn ticket_keys_version(&self) -> u64 {
        self.tickets.version()
    }

    /// Returns the secret keys of tickets in a special form, so that the server of a later process can resume the
    /// sessions of this one.
    pub fn export_ticket_keys(&self) -> Vec<u8> {
        self.tickets.export()
    }

    /// Replaces the keys of tickets by exported ones, for all clones. Returns false, without a change, if these are
    /// malformed.
    pub fn import_ticket_keys(&self, exported: &[u8]) -> bool {
        self.tickets.import(exported)
    }

    /// Lets all clones use another server's exported keys of tickets, unless this one has changed the same keys since.
    pub fn adopt_ticket_keys(&self, exported: &[u8]) -> Adoption {
        self.tickets.adopt(exported)
    }

    /// Returns the answers to challenges, if certificates are issued to this server.
    pub fn challenges(&self) -> Option<&Arc<Challenges>> {
        self.selector.challenges()
    }

    /// Returns the certificates in use, in the order of the configuration.
    pub fn certificates(&self) -> Vec<Certificate> {
        self.selector.summary()
    }

    /// Returns the configuration of rustls, for connections that do their own I/O.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Returns the configuration of rustls, with its own handle for tickets.
fn config(selector: &Arc<Selector>, tickets: &Arc<TicketKeys>) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("there are ciphers for both versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(selector) as _);
    config.ignore_client_order = true;
    let for_validation = selector.challenges().map(|_| VALIDATION_PROTOCOL);
    let protocols = APPLICATION_PROTOCOLS.into_iter().chain(for_validation);
    config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
    // Tickets keep the state of a session at the client, so that the server stores none and any worker can resume it.
    config.ticketer = tickets.handle();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A client of a tracker has one connection at a time and gets a new ticket with each, so a second ticket would be
    // wasted. Most clients use a ticket only once (RFC 8446, C.4), so a resumption brings a new one, unless the client
    // asks for none (RFC 9149).
    config.send_tls13_tickets = 1;
    config.max_tls13_tickets = 1;
    // Any attacker can replay early data, and a replayed announce takes effect.
    config.max_early_data_size = 0;
    config
}

fn provider() -> CryptoProvider {
    CryptoProvider { cipher_suites: CIPHER_SUITES.to_vec(), ..aws_lc_rs::default_provider() }
}

impl fmt::Debug for Server {
    /// Omits the internals of rustls.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("certificates", &self.certificates()).finish_non_exhaustive()
    }
}
