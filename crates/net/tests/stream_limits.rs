//! The limits of connections: their time and their number, with a clock that the test sets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use common::stream::{BYE, Client, FULL, LIMITS, Script, StreamServer, listen, listen_shared, until};
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
use shoal_net::stream::{Direction, EndReason, Phase, SourceLimits, StreamLimits};

const LOOPBACK: &[&str] = &["127.0.0.1:0"];

/// More than the kernel buffers for a peer that does not read.
const HUGE: usize = 16_000_000;

const TIMES: StreamLimits =
    StreamLimits { idle_ms_max: 1000, request_ms_max: 300, send_ms_max: 500, ..LIMITS };

#[test]
fn a_connection_that_is_idle_too_long_is_closed() {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.ask("echo 1\n", "1\n");
    server.set_clock(400);
    second.ask("echo 2\n", "2\n");
    server.set_clock(1000);
    assert_eq!(server.connections(), 2);
    server.set_clock(1001);
    first.expect_end(BYE);
    server.set_clock(1400);
    assert_eq!(server.connections(), 1);
    server.set_clock(1401);
    second.expect_end(BYE);
    server.await_connections(0);
    assert_eq!(server.counters.ended.of(EndReason::Idle).read(), 2);
    // Last messages count as well.
    assert_eq!(server.counters.bytes.of(Direction::Out).read(), (2 * "1\n".len() + 2 * BYE.len()) as u64);
}

#[test]
fn a_request_that_never_ends_is_closed() {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let (mut new, mut old) = (server.connect(), server.connect());
    old.ask("echo hello\n", "hello\n");
    server.set_clock(100);
    new.send_text("echo ");
    old.send_text("echo ");
    until(|| server.counters.bytes.of(Direction::In).read() == 21);
    server.set_clock(400);
    assert_eq!(server.connections(), 2);
    server.set_clock(401);
    new.expect_end(BYE);
    old.expect_end(BYE);
    assert_eq!(server.counters.ended.of(EndReason::SlowRequest).read(), 2);
}

#[test]
fn more_of_a_request_does_not_extend_its_time() {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let mut client = server.connect();
    for step in 0..=3 {
        server.set_clock(step * 100);
        client.send_text("echo ");
        until(|| server.counters.bytes.of(Direction::In).read() == 5 * (step + 1));
    }
    server.set_clock(301);
    client.expect_end(BYE);
    assert_eq!(server.counters.ended.of(EndReason::SlowRequest).read(), 1);
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    never_reads(&format!("big {HUGE}\n"));
    never_reads("more 1000 1000000\n");
}

#[test]
fn a_client_that_never_reads_the_last_reply_is_disconnected() {
    never_reads(&format!("big {HUGE}\nclose\n"));
    never_reads(&format!("big {HUGE}\nlinger\n"));
}

fn never_reads(text: &str) {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let mut slow = server.connect();
    slow.send_text(text);
    until(|| server.counters.bytes.of(Direction::In).read() == text.len() as u64);
    server.set_clock(500);
    assert_eq!(server.connections(), 1);
    server.set_clock(501);
    server.set_clock(502 + TIMES.send_ms_max);
    server.await_connections(0);
    assert_eq!(server.counters.ended.of(EndReason::SlowReader).read(), 1);
    // Output that it has not read is discarded, so it never receives the end.
    let mut received = Vec::new();
    assert!(slow.0.read_to_end(&mut received).is_err(), "{} bytes", received.len());
    server.connect().ask("echo next\n", "next\n");
}

/// Each piece has its own time.
#[test]
fn a_reader_that_keeps_up_has_time() {
    let limits = StreamLimits { send_ms_max: 500, ..LIMITS };
    let server = StreamServer::start(LOOPBACK, limits);
    let mut client = server.connect();
    client.send_text("more 40 1000000\n");
    for step in 0..40 {
        client.expect(vec![b'm'; 1_000_000]);
        server.set_clock(step * 100);
    }
    client.ask("echo end\n", "end\n");
    assert_eq!(server.counters.ended.of(EndReason::SlowReader).read(), 0);
}

#[test]
fn a_client_that_never_stops_sending_is_disconnected() {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let mut client = server.connect();
    client.send_text("linger end\n");
    client.expect_end("end\n");
    client.send_text("and another thing");
    assert_eq!(server.connections(), 1);
    server.set_clock(10_000);
    server.await_connections(0);
    assert_eq!(server.counters.ended.of(EndReason::SlowRequest).read(), 0);
}

#[test]
fn each_phase_makes_room() {
    let limits = StreamLimits { connections_max: 4, ..LIMITS };
    let server = StreamServer::start(LOOPBACK, limits);
    let mut asking = server.connect();
    asking.ask("echo first\necho ", "first\n");
    let mut slow = server.connect();
    let text = format!("big {HUGE}\n");
    slow.send_text(&text);
    let mut upgraded = server.connect();
    upgraded.ask("upgrade\necho upgraded\n", "upgraded\n");
    let mut lingering = server.connect();
    lingering.send_text("linger end\n");
    lingering.expect("end\n");
    server.await_connections(4);
    let mut newcomers = Vec::new();
    let mut come = || {
        let mut newcomer = server.connect();
        newcomer.ask("establish\necho made it\nbusy\n", "made it\n");
        newcomers.push(newcomer);
    };
    come();
    lingering.expect_end("");
    come();
    asking.expect_end(BYE);
    come();
    upgraded.expect_end(BYE);
    come();
    assert!(slow.0.read_to_end(&mut Vec::new()).is_err(), "what it did not take is thrown away");
    let counters = &server.counters;
    assert_eq!(Phase::ALL.map(|phase| counters.evicted.of(phase).read()), [0, 1, 1, 1, 1]);
    assert_eq!(counters.evicted_greedy.read(), 0);
    let ended = [EndReason::Evicted, EndReason::RefusedShare];
    assert_eq!(ended.map(|reason| counters.ended.of(reason).read()), [4, 0]);
}

/// Connects a client from a given address.
fn connect_from(local: [u8; 4], server: SocketAddr) -> Client {
    let client = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
    bind(&client, &SocketAddr::new(IpAddr::V4(Ipv4Addr::from(local)), 0)).unwrap();
    connect(&client, &server).unwrap();
    Client::of(TcpStream::from(client))
}

#[test]
fn a_source_that_has_too_many_evicts_no_other() {
    let per_source = SourceLimits { http_max: 1, websockets_max: 1 };
    let limits = StreamLimits { connections_max: 2, per_source, ..LIMITS };
    let service = Script { is_limited: true, ..Script::default() };
    let server = StreamServer::run(listen(LOOPBACK), service, limits);
    let mut oldest = connect_from([127, 0, 0, 2], server.addrs[0]);
    oldest.ask("echo hello\n", "hello\n");
    let mut greedy = server.connect();
    greedy.ask("echo hello\n", "hello\n");
    for _ in 0..3 {
        let mut one_more = server.connect();
        one_more.send_text("echo hello\n");
        one_more.expect_end(FULL);
    }
    oldest.ask("echo still here\n", "still here\n");
    assert_eq!(
        (
            server.counters.ended.of(EndReason::RefusedSource).read(),
            server.counters.ended.of(EndReason::Evicted).read()
        ),
        (3, 0)
    );
    // For other sources the oldest makes room, as usual.
    connect_from([127, 0, 0, 3], server.addrs[0]).ask("echo hello\n", "hello\n");
    greedy.expect_end(BYE);
}

#[test]
fn a_source_is_counted_over_all_workers() {
    let per_source = SourceLimits { http_max: 2, websockets_max: 2 };
    let limits = StreamLimits { per_source, ..LIMITS };
    let start =
        |listeners| StreamServer::run(listeners, Script { is_limited: true, ..Script::default() }, limits);
    let servers: Vec<_> = listen_shared(LOOPBACK, 2).into_iter().map(start).collect();
    let mut clients: Vec<_> = (0..50).map(|_| servers[0].connect()).collect();
    clients.iter_mut().for_each(|client| client.send_text("echo hello\n"));
    let answers = clients.iter_mut().map(|client| {
        let mut answer = [0; FULL.len()];
        client.0.read_exact(&mut answer).unwrap();
        answer
    });
    assert_eq!(answers.filter(|answer| answer != FULL).count(), 2);
    let refused: u64 =
        servers.iter().map(|server| server.counters.ended.of(EndReason::RefusedSource).read()).sum();
    assert_eq!(refused, 48);
}
