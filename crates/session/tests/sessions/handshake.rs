//! Handshakes: versions, keys, ciphers, application protocols, and pieces of every size.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::{AlertDescription, CipherSuite, ClientConfig, Error};
use shoal_session::tls::{Failure, Server, Session};

use crate::identity::{Folder, Identity, Kind};
use crate::peer::{BOTH, Client, TLS_1_2, TLS_1_3, closed, open, sealed, transfer, trusting, with_provider};

const NAME: &str = "tracker.example";

/// Creates a server with one certificate of a kind, and returns that certificate.
fn server(kind: Kind) -> (Server, Identity) {
    let folder = Folder::new();
    let identity = Identity::new(kind, &[NAME]);
    let server = Server::load(&[folder.files("one", &identity)]).unwrap();
    (server, identity)
}

/// Runs a handshake, a request, a reply and a close.
fn exchange(server: &Server, config: ClientConfig) -> Client {
    let mut session = Session::new(server);
    let mut client = Client::new(&Arc::new(config), NAME);
    assert!(session.is_handshaking());
    assert_eq!(transfer(&mut session, &mut client), b"");
    assert!(!session.is_handshaking() && !session.is_resumed() && !session.is_closed());
    client.write(b"GET /announce");
    assert_eq!(transfer(&mut session, &mut client), b"GET /announce");
    let (received, _) = client.read(&sealed(&mut session, b"d8:intervali1800e")).unwrap();
    assert_eq!(received, b"d8:intervali1800e");
    let (_, state) = client.read(&closed(&mut session)).unwrap();
    assert!(state.peer_has_closed() && session.is_closed());
    client
}

#[test]
fn every_kind_of_key_serves_every_version() {
    for kind in Kind::ALL {
        let (server, identity) = server(kind);
        for version in BOTH {
            let client = exchange(&server, trusting(&[&identity.der], version));
            assert_eq!(client.0.protocol_version(), Some(version.version), "{kind:?}");
        }
    }
}

/// Returns the provider of a client that offers these ciphers in this order.
fn offering(suites: &[rustls::SupportedCipherSuite]) -> CryptoProvider {
    CryptoProvider { cipher_suites: suites.to_vec(), ..default_provider() }
}

#[test]
fn aes_128_is_chosen_although_the_client_prefers_aes_256() {
    let (server, identity) = server(Kind::P256);
    let provider = offering(&[
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ]);
    let chosen = |version| {
        let client = exchange(&server, with_provider(provider.clone(), &[&identity.der], version));
        client.0.negotiated_cipher_suite().unwrap().suite()
    };
    assert_eq!(chosen(TLS_1_3), CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert_eq!(chosen(TLS_1_2), CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
}

#[test]
fn a_client_that_has_only_one_cipher_is_served() {
    for (kind, version, suite) in [
        (Kind::P256, TLS_1_3, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
        (Kind::P256, TLS_1_3, cipher_suite::TLS13_AES_256_GCM_SHA384),
        (Kind::P256, TLS_1_2, cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
        (Kind::Rsa, TLS_1_2, cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ] {
        let (server, identity) = server(kind);
        let client = exchange(&server, with_provider(offering(&[suite]), &[&identity.der], version));
        assert_eq!(client.0.negotiated_cipher_suite(), Some(suite));
    }
}

#[test]
fn a_client_of_another_cipher_is_refused_with_an_alert() {
    let (server, _) = server(Kind::Rsa);
    let ecdsa_only = offering(&[cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);
    let mut client = Client::new(&Arc::new(with_provider(ecdsa_only, &[], TLS_1_2)), NAME);
    let (outcome, _, alert) = open(&mut Session::new(&server), &client.sent());
    assert!(matches!(outcome, Err(Failure::Protocol(Error::PeerIncompatible(_)))), "{outcome:?}");
    let refusal = client.read(&alert).unwrap_err();
    assert_eq!(refusal, Error::AlertReceived(AlertDescription::HandshakeFailure));
}

/// Returns the configuration of a client that offers these application protocols.
fn with_protocols(identity: &Identity, protocols: &[&str]) -> ClientConfig {
    let mut config = trusting(&[&identity.der], TLS_1_3);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

#[test]
fn http_1_is_agreed_upon() {
    let (server, identity) = server(Kind::P256);
    for (offer, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"http/1.1"[..])),
        (&["http/1.0", "http/1.1"], Some(b"http/1.1")),
        (&["http/1.0"], Some(b"http/1.0")),
        (&[], None),
    ] {
        let client = exchange(&server, with_protocols(&identity, offer));
        assert_eq!(client.0.alpn_protocol(), agreed, "of {offer:?}");
    }
}

#[test]
fn a_client_of_another_protocol_gets_an_alert() {
    let (server, identity) = server(Kind::P256);
    let mut client = Client::new(&Arc::new(with_protocols(&identity, &["h2"])), NAME);
    let (outcome, _, alert) = open(&mut Session::new(&server), &client.sent());
    assert!(matches!(outcome, Err(Failure::Protocol(Error::NoApplicationProtocol))), "{outcome:?}");
    let refusal = client.read(&alert).unwrap_err();
    assert_eq!(refusal, Error::AlertReceived(AlertDescription::NoApplicationProtocol));
}

/// Passes bytes to a session in pieces and its output to the client.
fn open_in_pieces<'b>(
    session: &mut Session,
    client: &mut Client,
    pieces: impl Iterator<Item = &'b [u8]>,
) -> Vec<u8> {
    let mut received = Vec::new();
    for piece in pieces {
        let (outcome, plaintext, output) = open(session, piece);
        outcome.unwrap();
        received.extend(plaintext);
        if !output.is_empty() {
            client.read(&output).unwrap();
        }
    }
    received
}

#[test]
fn a_session_byte_by_byte() {
    let (server, identity) = server(Kind::P256);
    for version in BOTH {
        // Also with messages in several records.
        for max_fragment_size in [None, Some(64)] {
            let mut config = trusting(&[&identity.der], version);
            config.max_fragment_size = max_fragment_size;
            let mut session = Session::new(&server);
            let mut client = Client::new(&Arc::new(config), NAME);
            while client.0.is_handshaking() {
                let sent = client.sent();
                assert!(!sent.is_empty(), "stuck");
                open_in_pieces(&mut session, &mut client, sent.chunks(1));
            }
            client.write(&[b'x'; 300]);
            let sent = client.sent();
            assert_eq!(open_in_pieces(&mut session, &mut client, sent.chunks(1)), [b'x'; 300]);
            assert!(!session.is_handshaking());
        }
    }
}

#[test]
fn a_first_flight_cut_anywhere() {
    let (server, identity) = server(Kind::P256);
    let config = Arc::new(trusting(&[&identity.der], TLS_1_3));
    let length = Client::new(&config, NAME).sent().len();
    for cut in 1..length {
        let mut session = Session::new(&server);
        let mut client = Client::new(&config, NAME);
        let sent = client.sent();
        let (head, tail) = sent.split_at(cut);
        open_in_pieces(&mut session, &mut client, [head, tail].into_iter());
        assert!(!client.0.is_handshaking(), "cut at {cut} of {length}");
    }
}

#[test]
fn the_first_request_may_come_with_the_end_of_the_handshake() {
    let (server, identity) = server(Kind::P256);
    for version in BOTH {
        let mut session = Session::new(&server);
        let mut client = Client::new(&Arc::new(trusting(&[&identity.der], version)), NAME);
        client.write(b"hello");
        assert_eq!(transfer(&mut session, &mut client), b"hello");
    }
}

#[test]
fn nothing_is_written_before_the_handshake_is_done() {
    let (server, identity) = server(Kind::P256);
    let mut session = Session::new(&server);
    assert_eq!(sealed(&mut session, b"early"), b"");
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_3)), NAME);
    let (_, _, flight) = open(&mut session, &client.sent());
    assert!(!flight.is_empty() && session.is_handshaking());
    // rustls itself would already seal here, although the client is not verified yet.
    assert_eq!(sealed(&mut session, b"early"), b"");
    client.read(&flight).unwrap();
    assert_eq!(transfer(&mut session, &mut client), b"");
    assert!(!session.is_handshaking());
}

#[test]
fn a_session_closed_in_the_middle_of_the_handshake_is_silent() {
    let (server, identity) = server(Kind::P256);
    let mut session = Session::new(&server);
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_3)), NAME);
    open(&mut session, &client.sent()).0.unwrap();
    assert_eq!(closed(&mut session), b"");
    assert!(session.is_closed() && session.is_handshaking());
}
