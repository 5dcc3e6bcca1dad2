//! Sessions hold as much memory as they report. This is a separate binary, because it replaces the allocator.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};
use shoal_config::Config;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::processing::Stopwatch;
use shoal_engine::{Now, http, webtorrent};
use shoal_session::{ListenerProtocols, Service, Session, SessionSettings};
use shoal_store::Store;
use shoal_testkit::allocator::{CountingAllocator, held_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

/// Number of connections of a test.
const SESSIONS: u32 = 50;

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: tracker\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn service() -> Service {
    let settings = SessionSettings {
        listeners: vec![ListenerProtocols { tls: false, proxy_protocol: false }],
        ..SessionSettings::default()
    };
    let store = shoal_store::Settings::new(64 << 20, 2700, [1, 2, 3, 4]);
    let store = Arc::new(Store::new(&store).unwrap());
    let mut config = Config::default();
    config.http.full_scrape = true;
    let policy = Arc::new(Policy::new(config).with_private_host(true));
    let requests = http::Responder::new(
        Context::new(Protocol::Http, Arc::clone(&policy), Tally::default(), fastrand::Rng::with_seed(1)),
        store,
    );
    let swarms =
        shoal_relay::Settings { memory_bytes_max: 64 << 20, ..shoal_relay::Settings::new(1000, 600, [1, 2]) };
    let messages = webtorrent::Responder::new(
        Context::new(Protocol::WebTorrent, policy, Tally::default(), fastrand::Rng::with_seed(1)),
        Arc::new(shoal_relay::Swarms::new(&swarms)),
        shoal_relay::Dispatcher::new(0, shoal_relay::Mailboxes::new(1)),
    );
    let mut service = Service::new(
        Arc::new(settings),
        requests,
        Some(messages),
        None,
        Stopwatch::new(Arc::default(), fastrand::Rng::with_seed(1), || 0),
    );
    service.begin_round(NOW);
    service
}

fn open(service: &mut Service, index: u32) -> Session {
    let peer = Some(SocketAddr::from(([192, 0, 2, 1], 40000)));
    service.open(&Remote { listener: 0, peer }, Handle { index, generation: 0 })
}

/// Returns how much memory sessions report, and how much was allocated for them, after each has received these
/// inputs.
fn reported_and_counted(inputs: impl Fn(u32) -> Vec<Vec<u8>>) -> (usize, usize) {
    let mut service = service();
    let mut sessions = Vec::with_capacity(SESSIONS as usize);
    let mut output = Vec::with_capacity(1 << 20);
    // The first session is not counted: it makes the service allocate its shared buffers.
    let mut before = 0;
    for index in 0..=SESSIONS {
        let mut session = open(&mut service, index);
        for mut input in inputs(index) {
            output.clear();
            assert_ne!(service.receive(&mut session, &mut input, &mut output), Next::Close);
        }
        if index == 0 {
            std::mem::forget(session);
            before = held_bytes();
        } else {
            sessions.push(session);
        }
    }
    let counted = usize::try_from(held_bytes() - before).unwrap();
    let held = sessions.iter().map(Session::held);
    (held.map(|held| held.fixed + held.variable).sum(), counted)
}

fn assert_near((incoming, counted): (usize, usize)) {
    println!("reported {incoming}, counted {counted}");
    assert!(
        counted > 0 && incoming.abs_diff(counted) * 10 <= counted,
        "reported {incoming}, counted {counted}"
    );
}

/// Returns the beginning of a masked text frame of this size, in pieces.
fn half_message(bytes: u32, pieces: usize) -> Vec<Vec<u8>> {
    let mut head = vec![0x81, 0xff, 0, 0, 0, 0];
    head.extend_from_slice(&bytes.to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    let mut inputs = vec![UPGRADE.to_vec(), head];
    inputs.resize(pieces, vec![b' '; 10_000]);
    inputs
}

#[test]
fn half_messages_are_accounted_for() {
    for pieces in [3, 5, 12, 25] {
        assert_near(reported_and_counted(|_| half_message(256 << 10, pieces)));
    }
}

#[test]
fn half_fragmented_messages_are_accounted_for() {
    // None of the text fragments is the last: FIN is not set.
    let fragment = |opcode: u8| {
        let mut frame = vec![opcode, 0xfe, 0x10, 0, 0, 0, 0, 0];
        frame.resize(8 + 0x1000, b' ');
        frame
    };
    assert_near(reported_and_counted(|index| {
        let mut inputs = vec![UPGRADE.to_vec(), fragment(1)];
        inputs.resize(10 + index as usize % 30, fragment(0));
        inputs
    }));
}

#[test]
fn half_requests_are_accounted_for() {
    assert_near(reported_and_counted(|_| vec![[b"GET /announce?".as_slice(), &[b'x'; 3000]].concat()]));
}

#[test]
fn the_compressor_of_a_full_scrape_is_accounted_for() {
    let mut service = service();
    let mut output = Vec::with_capacity(1 << 20);
    let mut session = open(&mut service, 0);
    // A store of some thousand torrents does not fit into one piece.
    for torrent in 0..20_000_u32 {
        let hash: String =
            (0..20).map(|byte| format!("%{:02x}", (torrent >> (byte % 4 * 8)) & 0xff)).collect();
        let mut request = format!(
            "GET /announce?info_hash={hash}&peer_id=aaaaaaaaaaaaaaaaaaaa&port=1&left=0 HTTP/1.1\r\nHost: t\r\n\r\n"
        )
        .into_bytes();
        output.clear();
        service.receive(&mut session, &mut request, &mut output);
    }
    let scrape = |service: &mut Service, session: &mut Session, output: &mut Vec<u8>| {
        let mut request = b"GET /scrape HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\n\r\n".to_vec();
        output.clear();
        service.receive(session, &mut request, output)
    };
    // The first full scrape runs to its end, so that the service has its shared buffers.
    let mut next = scrape(&mut service, &mut session, &mut output);
    while next == Next::More {
        output.clear();
        next = service.receive(&mut session, &mut [], &mut output);
    }
    assert_eq!(session.held().variable, 0);
    let before = held_bytes();
    assert_eq!(scrape(&mut service, &mut session, &mut output), Next::More);
    let held = session.held();
    assert_near((held.fixed + held.variable, usize::try_from(held_bytes() - before).unwrap()));
}
