//! A rustls client, and its data exchange with a session.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, Error, IoState, RootCertStore, SupportedProtocolVersion, version,
};
use shoal_session::tls::{Failure, Session};

pub(crate) const TLS_1_3: &SupportedProtocolVersion = &version::TLS13;
pub(crate) const TLS_1_2: &SupportedProtocolVersion = &version::TLS12;
pub(crate) const BOTH: [&SupportedProtocolVersion; 2] = [TLS_1_3, TLS_1_2];

/// Returns a configuration with one version that trusts these certificates.
pub(crate) fn trusting(
    roots: &[&CertificateDer<'static>],
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    with_provider(default_provider(), roots, version)
}

pub(crate) fn with_provider(
    provider: CryptoProvider,
    roots: &[&CertificateDer<'static>],
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add((*root).clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

/// A client that verifies the server.
pub(crate) struct Client(pub(crate) ClientConnection);

impl Client {
    pub(crate) fn new(config: &Arc<ClientConfig>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        Self(ClientConnection::new(Arc::clone(config), name).unwrap())
    }

    /// Returns the output of the client.
    pub(crate) fn sent(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Queues plaintext.
    pub(crate) fn write(&mut self, plaintext: &[u8]) {
        self.0.set_buffer_limit(None);
        self.0.writer().write_all(plaintext).unwrap();
    }

    /// Reads the output of a session and returns the plaintext.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<(Vec<u8>, IoState), Error> {
        let mut plaintext = Vec::new();
        loop {
            self.0.read_tls(&mut bytes).unwrap();
            let state = self.0.process_new_packets()?;
            let start = plaintext.len();
            plaintext.resize(start + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plaintext[start..]).unwrap();
            if bytes.is_empty() || state.peer_has_closed() {
                return Ok((plaintext, state));
            }
        }
    }
}

/// Passes data in both directions until the client has no more output. Returns the plaintext of the session.
pub(crate) fn transfer(session: &mut Session, client: &mut Client) -> Vec<u8> {
    let mut plaintext = Vec::new();
    loop {
        let mut sent = client.sent();
        if sent.is_empty() {
            return plaintext;
        }
        let mut output = Vec::new();
        session.open(&mut sent, &mut plaintext, &mut output).unwrap();
        if !output.is_empty() {
            client.read(&output).unwrap();
        }
    }
}

/// Passes bytes to a session and returns the outcome, the plaintext and the output.
pub(crate) fn open(session: &mut Session, bytes: &[u8]) -> (Result<(), Failure>, Vec<u8>, Vec<u8>) {
    let (mut plaintext, mut output) = (Vec::new(), Vec::new());
    let outcome = session.open(&mut bytes.to_vec(), &mut plaintext, &mut output);
    (outcome, plaintext, output)
}

pub(crate) fn sealed(session: &mut Session, plaintext: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    session.seal(plaintext, &mut output);
    output
}

pub(crate) fn closed(session: &mut Session) -> Vec<u8> {
    let mut output = Vec::new();
    session.close(&mut output);
    output
}
