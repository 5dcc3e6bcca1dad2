//! HTTPS, with a rustls client that has no socket either.

use std::fs;
use std::io::{Read, Write};

use rustls::ClientConnection;
use shoal_base::transport::stream::{Next, StreamService};
use shoal_session::tls::{CertificateFiles, SelfSigned};
use shoal_session::{Session, SessionSettings};
use shoal_testkit::client::tls::Tls;
use shoal_wire::proxy::encode_v2;

use crate::harness::{INPUT_BYTES_MAX, Received, SECURE, SECURE_PROXIED, Tracker, announce, request};
use crate::response;

/// Returns a certificate for `localhost`.
pub(crate) struct Certificate(SelfSigned);

pub(crate) fn certificate() -> Certificate {
    Certificate(shoal_session::tls::self_signed(&["localhost".to_owned()]).unwrap())
}

impl Certificate {
    pub(crate) fn server(&self) -> shoal_session::tls::Server {
        let directory = tempfile::tempdir().unwrap();
        let (chain, key) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
        fs::write(&chain, &self.0.certificate_pem).unwrap();
        fs::write(&key, &self.0.key_pem).unwrap();
        shoal_session::tls::Server::load(&[CertificateFiles { chain, key: Some(key) }]).unwrap()
    }

    fn client(&self) -> ClientConnection {
        Tls::trusting(&self.0.certificate_pem).unwrap().begin("localhost").unwrap()
    }
}

/// A client and its connection.
pub(crate) struct Pair {
    pub(crate) tracker: Tracker,
    pub(crate) session: Session,
    pub(crate) client: ClientConnection,
    /// The input that the connection waits for.
    pub(crate) next: Next,
    /// The bytes that the client has received.
    pub(crate) incoming: Vec<u8>,
    /// Whether the client has received the end of the stream.
    pub(crate) has_ended: bool,
}

impl Pair {
    fn new(decide: impl FnOnce(&mut SessionSettings), listener: usize, ip: &str) -> Self {
        let certificate = certificate();
        let mut tracker =
            Tracker::with(decide, |config| config.http.full_scrape = true, Some(certificate.server()));
        let session = tracker.open(listener, ip);
        let client = certificate.client();
        Self { tracker, session, client, next: Next::Busy, incoming: Vec::new(), has_ended: false }
    }

    pub(crate) fn secure() -> Self {
        let mut pair = Self::new(|_| {}, SECURE, "192.0.2.1");
        pair.run(usize::MAX);
        assert!(!pair.client.is_handshaking());
        pair
    }

    /// Exchanges bytes in pieces of at most this size, until neither side has more to send.
    pub(crate) fn run(&mut self, piece_bytes: usize) {
        loop {
            let mut wire = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut wire).unwrap();
            }
            if wire.is_empty() {
                return;
            }
            for piece in wire.chunks(piece_bytes) {
                self.receive(piece);
            }
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut input = bytes.to_vec();
        loop {
            let mut output = Vec::new();
            self.next = self.tracker.service.receive(&mut self.session, &mut input, &mut output);
            self.deliver(&output);
            input.clear();
            if self.next != Next::More {
                return;
            }
        }
    }

    pub(crate) fn deliver(&mut self, mut output: &[u8]) {
        while !output.is_empty() {
            self.client.read_tls(&mut output).unwrap();
            let state = self.client.process_new_packets().unwrap();
            let mut plaintext = vec![0; state.plaintext_bytes_to_read()];
            self.client.reader().read_exact(&mut plaintext).unwrap();
            self.incoming.append(&mut plaintext);
            self.has_ended |= state.peer_has_closed();
        }
    }

    fn ask(&mut self, request: &[u8]) -> Vec<response::Response> {
        self.ask_in_pieces(request, usize::MAX)
    }

    fn ask_in_pieces(&mut self, request: &[u8], piece_bytes: usize) -> Vec<response::Response> {
        self.incoming.clear();
        self.client.writer().write_all(request).unwrap();
        self.run(piece_bytes);
        Received { output: self.incoming.clone(), next: self.next }.responses()
    }
}

#[test]
fn requests_are_answered_inside_of_tls() {
    let mut pair = Pair::secure();
    assert_eq!(pair.next, Next::Busy, "the first request is part of the same wait as the handshake");
    for _ in 0..3 {
        let responses = pair.ask(&[announce(""), announce("")].concat());
        assert_eq!(responses.len(), 2);
        assert!(responses.iter().all(|response| response.status == 200 && !response.is_failure()));
        assert_eq!(pair.next, Next::Idle);
        assert_eq!(pair.session.buffered_bytes(), 0);
    }
    assert!(pair.tracker.has("192.0.2.1"));
}

#[test]
fn part_of_a_record_is_part_of_a_request() {
    let mut pair = Pair::secure();
    pair.client.writer().write_all(&announce("")).unwrap();
    let mut wire = Vec::new();
    pair.client.write_tls(&mut wire).unwrap();
    pair.receive(&wire[..10]);
    assert_eq!(pair.next, Next::Busy);
    pair.receive(&wire[10..]);
    assert_eq!(pair.next, Next::Idle);
    assert!(pair.incoming.starts_with(b"HTTP/1.1 200 OK"));
}

#[test]
fn part_of_a_record_behind_a_request_is_part_of_the_next() {
    let mut pair = Pair::secure();
    let mut wire = Vec::new();
    for _ in 0..2 {
        pair.client.writer().write_all(&announce("")).unwrap();
        pair.client.write_tls(&mut wire).unwrap();
    }
    let cut = wire.len() - 1;
    pair.receive(&wire[..cut]);
    assert_eq!(pair.next, Next::BusyNew);
    pair.receive(&wire[cut..]);
    assert_eq!(pair.next, Next::Idle);
}

#[test]
fn a_record_that_asks_nothing_is_part_of_no_request() {
    let mut pair = Pair::secure();
    let mut wire = Vec::new();
    pair.client.refresh_traffic_keys().unwrap();
    pair.client.write_tls(&mut wire).unwrap();
    pair.receive(&wire);
    assert_eq!(pair.next, Next::Idle);
}

#[test]
fn the_last_answer_is_followed_by_the_end() {
    let mut pair = Pair::secure();
    assert_eq!(pair.ask(&announce("Connection: close\r\n")).len(), 1);
    assert!(pair.has_ended);
    assert_eq!(pair.next, Next::Close);

    let mut pair = Pair::secure();
    assert_eq!(pair.ask(b"nonsense\r\n\r\n")[0].status, 400);
    assert!(pair.has_ended);
    assert_eq!(pair.next, Next::Linger);
}

#[test]
fn a_client_that_ends_is_answered_and_let_go() {
    let mut pair = Pair::secure();
    pair.client.writer().write_all(&announce("")).unwrap();
    pair.client.send_close_notify();
    pair.run(usize::MAX);
    assert!(pair.incoming.starts_with(b"HTTP/1.1 200 OK"));
    assert!(pair.has_ended);
    assert_eq!(pair.next, Next::Close);

    let mut pair = Pair::secure();
    pair.client.writer().write_all(&announce("")[..20]).unwrap();
    pair.client.send_close_notify();
    pair.run(usize::MAX);
    assert_eq!((pair.next, pair.incoming.len()), (Next::Close, 0));
}

#[test]
fn many_answers_are_sealed_in_turns() {
    let mut pair = Pair::secure();
    let one = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";
    pair.client.set_buffer_limit(None);
    let responses = pair.ask_in_pieces(&one.repeat(3000), INPUT_BYTES_MAX);
    assert_eq!(responses.len(), 3000);
    assert_eq!(pair.next, Next::Idle);
}

#[test]
fn a_full_scrape_comes_through() {
    let mut pair = Pair::secure();
    pair.ask(&announce(""));
    let responses = pair.ask(&request("GET", "/scrape", "HTTP/1.1", "Accept-Encoding: gzip\r\n"));
    assert_eq!((responses[0].status, responses[0].field("content-encoding")), (200, Some("gzip")));
    assert_eq!(pair.next, Next::Idle);
}

#[test]
fn expiry_is_said_inside_of_tls() {
    let mut pair = Pair::secure();
    let mut last_message = Vec::new();
    pair.tracker.service.expire(&mut pair.session, &mut last_message);
    pair.deliver(&last_message);
    assert!(pair.has_ended && pair.incoming.is_empty());

    let mut pair = Pair::secure();
    pair.ask(&announce("")[..20]);
    last_message.clear();
    pair.tracker.service.expire(&mut pair.session, &mut last_message);
    pair.deliver(&last_message);
    assert!(pair.has_ended && pair.incoming.starts_with(b"HTTP/1.1 408 "));

    let mut handshaking = Pair::new(|_| {}, SECURE, "192.0.2.1");
    let mut wire = Vec::new();
    handshaking.client.write_tls(&mut wire).unwrap();
    handshaking.receive(&wire[..20]);
    assert_eq!(handshaking.next, Next::Busy);
    last_message.clear();
    handshaking.tracker.service.expire(&mut handshaking.session, &mut last_message);
    assert_eq!(last_message, b"");
}

#[test]
fn the_proxy_protocol_comes_before_the_handshake() {
    let trust =
        |settings: &mut SessionSettings| settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
    let mut header = Vec::new();
    encode_v2("203.0.113.9:5000".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), &mut header);
    let mut pair = Pair::new(trust, SECURE_PROXIED, "10.0.0.1");
    // The header and the first flight arrive in one piece.
    pair.client.write_tls(&mut header).unwrap();
    pair.receive(&header);
    pair.run(usize::MAX);
    assert_eq!(pair.ask(&announce(""))[0].status, 200);
    assert!(pair.tracker.has("203.0.113.9") && !pair.tracker.has("10.0.0.1"));
}

#[test]
fn plain_http_on_a_tls_port_gets_an_error() {
    let certificate = certificate();
    let mut tracker = Tracker::with(|_| {}, |_| {}, Some(certificate.server()));
    let received = tracker.ask_from(SECURE, "192.0.2.1", &announce(""));
    assert_eq!((received.statuses(), received.next), (vec![400], Next::Linger));

    let received = tracker.ask_from(SECURE, "192.0.2.1", &[b'x'; 100]);
    assert_eq!(received.next, Next::Linger);
    assert_eq!(received.output.first(), Some(&21), "an alert");
}

#[test]
fn without_certificates_a_listener_for_tls_closes() {
    let received = Tracker::new().ask_from(SECURE, "192.0.2.1", &announce(""));
    assert_eq!((received.output.len(), received.next), (0, Next::Close));
}
