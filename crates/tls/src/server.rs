//! What all TLS connections of a listener have in common: versions, ciphers, certificates, tickets.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer, cipher_suite};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedCipherSuite, version};

use crate::Certificate;
use crate::certificates::Selector;
use crate::files::{self, CertificateError, CertificateFiles};

/// The ciphers in the order in which we choose. With AES-128 and SHA-256 a handshake is cheapest by far, and nothing
/// in sight breaks them; without our order OpenSSL's clients would have it done with SHA-384. rustls knows either our
/// order or the client's, so a client without instructions for AES gets ChaCha20 only if it offers nothing else.
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

/// What we speak inside TLS (RFC 7301). A client that offers something, but neither of these, could not be understood
/// and is refused as the RFC wants it, with the alert no_application_protocol; one that offers nothing is welcome.
const APPLICATION_PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

/// What sessions are made from. Clones share everything, certificates and keys of tickets included.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
    selector: Arc<Selector>,
}

impl Server {
    /// A server with these certificates. The first is for clients that name no host, or one that none of them is for.
    ///
    /// # Errors
    /// When a certificate cannot be used; the message names the file and says what to do.
    pub fn load(files: &[CertificateFiles]) -> Result<Self, CertificateError> {
        let provider = Arc::new(CryptoProvider {
            cipher_suites: CIPHER_SUITES.to_vec(),
            ..aws_lc_rs::default_provider()
        });
        let selector = Arc::new(Selector::new(files::load(files, &provider)?));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .expect("there are ciphers for both versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&selector) as _);
        config.ignore_client_order = true;
        config.alpn_protocols = APPLICATION_PROTOCOLS.iter().map(|name| name.to_vec()).collect();
        // Tickets carry the state of a session to the client, so that none is kept here, whichever worker it comes
        // back to. Their keys change every six hours, and a ticket is good for twelve.
        config.ticketer = Ticketer::new().map_err(CertificateError::NoRandomness)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // A client of a tracker has one connection at a time and gets a new ticket with each, so a second one would
        // be made, and sent, for nothing.
        config.send_tls13_tickets = 1;
        // Early data can be replayed by anybody, and a replayed announce is an announce.
        config.max_early_data_size = 0;
        Ok(Self { config: Arc::new(config), selector })
    }

    /// Exchanges the certificates, for all clones and for every handshake from now on. Open sessions stay, and so do
    /// tickets.
    ///
    /// # Errors
    /// As [`Self::load`]. The old certificates stay then.
    pub fn reload(&self, files: &[CertificateFiles]) -> Result<(), CertificateError> {
        let certificates = files::load(files, self.config.crypto_provider())?;
        self.selector.replace(certificates);
        Ok(())
    }

    /// The certificates in use, in the order of the configuration.
    #[must_use]
    pub fn certificates(&self) -> Vec<Certificate> {
        self.selector.summary()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for Server {
    /// Without what is inside rustls, which would be long and say little.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("certificates", &self.certificates()).finish_non_exhaustive()
    }
}
