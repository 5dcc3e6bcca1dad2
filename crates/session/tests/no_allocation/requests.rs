//! Requests with and without TLS.

use std::fs;
use std::io::{Read, Write};

use rustls::ClientConnection;
use shoal_base::transport::stream::{Next, StreamService};
use shoal_testkit::client::tls::Tls;

use super::{open, service};

const PROXY_HEADER: &[u8] = b"PROXY TCP4 203.0.113.9 192.0.2.1 50000 6969\r\n";

/// Calls `ask` for a while, and then counts the allocations of further calls.
fn count(mut ask: impl FnMut(u32)) -> u64 {
    (0..20_000).for_each(&mut ask);
    let before = shoal_testkit::allocator::allocations();
    (0..5000).for_each(&mut ask);
    shoal_testkit::allocator::allocations() - before
}

fn put_announce(peer: u32, fields: &str, out: &mut Vec<u8>) {
    let (torrent, port) = (peer % 50, 1024 + peer % 500);
    let target = "/announce?compact=1&peer_id=-TE0001-abcdefghijkl&uploaded=0&downloaded=0&left=1";
    write!(out, "GET {target}&info_hash={torrent:020}&port={port} HTTP/1.1\r\nHost: x\r\n{fields}\r\n")
        .unwrap();
}

#[test]
fn announces_on_a_kept_connection() {
    let mut service = service(None, None);
    let mut sessions = [
        (open(&mut service, 0, [192, 0, 2, 1], 0), ""),
        (open(&mut service, 0, [10, 0, 0, 1], 0), "X-Forwarded-For: 6.6.6.6, 203.0.113.9\r\n"),
    ];
    let (mut input, mut output) = (Vec::with_capacity(4096), Vec::with_capacity(128 * 1024));
    let mut longest_bytes = 0;
    let allocations = count(|peer| {
        for (session, fields) in &mut sessions {
            input.clear();
            output.clear();
            // Three in a row.
            (0..3).for_each(|further| put_announce(peer + further, fields, &mut input));
            assert_eq!(service.receive(session, &mut input, &mut output), Next::Idle);
            assert!(output.starts_with(b"HTTP/1.1 200 OK\r\n"));
            longest_bytes = longest_bytes.max(output.len());
        }
    });
    assert_eq!(allocations, 0);
    assert!(longest_bytes > 600, "peers are handed out: {longest_bytes}");
}

#[test]
fn a_connection_for_each_announce() {
    let mut service = service(None, None);
    let (mut input, mut output) = (Vec::with_capacity(4096), Vec::with_capacity(128 * 1024));
    let allocations = count(|peer| {
        for (listener, ip) in [(0, [192, 0, 2, 1]), (1, [10, 0, 0, 1])] {
            input.clear();
            output.clear();
            if listener == 1 {
                input.extend_from_slice(PROXY_HEADER);
            }
            put_announce(peer, "Connection: close\r\n", &mut input);
            let mut session = open(&mut service, listener, ip, 0);
            assert_eq!(service.receive(&mut session, &mut input, &mut output), Next::Close);
            assert!(output.starts_with(b"HTTP/1.1 200 OK\r\n"));
            service.close(session);
        }
    });
    assert_eq!(allocations, 0);
}

/// Returns a server for `localhost`, and a client that trusts it.
fn tls() -> (shoal_session::tls::Server, ClientConnection) {
    let certificate = shoal_session::tls::self_signed(&["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (chain, key) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
    fs::write(&chain, &certificate.certificate_pem).unwrap();
    fs::write(&key, &certificate.key_pem).unwrap();
    let server =
        shoal_session::tls::Server::load(&[shoal_session::tls::CertificateFiles { chain, key: Some(key) }])
            .unwrap();
    (server, Tls::trusting(&certificate.certificate_pem).unwrap().begin("localhost").unwrap())
}

#[test]
fn announces_inside_of_tls_cost_what_rustls_allocates_for_two_records() {
    let (server, mut client) = tls();
    let mut service = service(None, Some(server));
    let mut session = open(&mut service, 2, [192, 0, 2, 1], 0);
    let (mut input, mut output) = (Vec::with_capacity(64 * 1024), Vec::with_capacity(128 * 1024));
    let (mut request, mut reply) = (Vec::new(), vec![0; 64 * 1024]);
    let mut allocations = 0;
    for round in 0..5000 {
        request.clear();
        put_announce(round, "", &mut request);
        client.writer().write_all(&request).unwrap();
        // The handshake takes two flights, and the first announce waits for it.
        while client.wants_write() {
            input.clear();
            output.clear();
            while client.wants_write() {
                client.write_tls(&mut input).unwrap();
            }
            let before = shoal_testkit::allocator::allocations();
            service.receive(&mut session, &mut input, &mut output);
            if round >= 4000 {
                allocations += shoal_testkit::allocator::allocations() - before;
            }
            let mut rest = output.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        let reply_bytes = client.reader().read(&mut reply).unwrap();
        assert!(reply[..reply_bytes].starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    assert!(allocations <= 2 * 1000, "{allocations}");
}
