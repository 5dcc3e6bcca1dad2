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
fn each_request_begins_a_new_time() {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let mut client = server.connect();
    for round in 0..10 {
        server.set_clock(round * 900);
        client.ask("echo again\n", "again\n");
    }
    assert_eq!(server.counters.ended.of(EndReason::Idle).read(), 0);
}

#[test]
fn waits_between_requests_add_up() {
    let server = StreamServer::start(LOOPBACK, TIMES);
    let mut client = server.connect();
    let mut now_ms = 0;
    let mut ask_after = |client: &mut Client, wait_ms| {
        now_ms += wait_ms;
        server.set_clock(now_ms);
        client.ask("echo and\nbusy\n", "and\n");
    };
    // It is never idle, but each wait is short.
    for _ in 0..20 {
        ask_after(&mut client, 100);
    }
    // When the sum of the waits reaches the limit, no further request is awaited.
    ask_after(&mut client, 250);
    ask_after(&mut client, 250);
    client.expect_end(BYE);
    assert_eq!(server.counters.ended.of(EndReason::SlowRequest).read(), 1);
    // An idle phase resets the time.
    let mut client = server.connect();
    for _ in 0..5 {
        ask_after(&mut client, 250);
        client.ask("echo all\n", "all\n");
    }
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

/// Each piece is read long before its own time is up.
#[test]
fn the_time_for_replies_adds_up() {
    let limits = StreamLimits { send_ms_max: 100_000, answer_ms_max: 2000, ..LIMITS };
    let server = StreamServer::start(LOOPBACK, limits);
    let mut slow = server.connect();
    slow.send_text("more 1000 1000000\n");
    let mut piece = vec![0; 1_000_000];
    let mut pieces = 0;
    while slow.0.read_exact(&mut piece).is_ok() {
        pieces += 1;
        server.set_clock(pieces * 400);
    }
    assert!((6..100).contains(&pieces), "{pieces}");
    assert_eq!(server.counters.ended.of(EndReason::SlowReader).read(), 1);
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
fn the_oldest_idle_makes_room() {
    let limits = StreamLimits { connections_max: 3, ..LIMITS };
    let server = StreamServer::start(LOOPBACK, limits);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("echo hello\n", "hello\n");
    }
    // The first is no longer the oldest.
    clients[0].ask("echo still here\n", "still here\n");
    let mut fourth = server.connect();
    fourth.ask("echo made it\n", "made it\n");
    clients[1].expect_end(BYE);
    clients[0].ask("echo still here\n", "still here\n");
    clients[2].ask("echo still here\n", "still here\n");
    assert_eq!((server.connections(), server.counters.ended.of(EndReason::Evicted).read()), (3, 1));
    for _ in 0..50 {
        server.connect().ask("echo made it\n", "made it\n");
    }
    assert!(server.connections() <= 3);
    assert_eq!(server.counters.ended.of(EndReason::RefusedShare).read(), 0);
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

fn start_full(connections_max: usize) -> StreamServer {
    let limits = StreamLimits { connections_max, ..LIMITS };
    let service = Script { is_limited: true, ..Script::default() };
    StreamServer::run(listen(LOOPBACK), service, limits)
}

#[test]
fn the_greediest_source_makes_room() {
    let server = start_full(12);
    let mut honest = connect_from([127, 0, 0, 2], server.addrs[0]);
    honest.ask("upgrade\necho hello\n", "hello\n");
    let mut idle = connect_from([127, 0, 0, 3], server.addrs[0]);
    idle.ask("echo hello\n", "hello\n");
    // Some are within a request, some do not read.
    let mut greedy: Vec<_> = (0..10)
        .map(|number| {
            let mut client = connect_from([127, 0, 0, 4], server.addrs[0]);
            client.send_text(if number % 2 == 0 { "echo " } else { "big 16000000\n" });
            client
        })
        .collect();
    server.await_connections(12);
    for number in 0..7 {
        connect_from([127, 0, 0, 5 + number], server.addrs[0]).ask("echo made it\nbusy\n", "made it\n");
    }
    honest.ask("echo still here\n", "still here\n");
    idle.ask("echo still here\n", "still here\n");
    // Of the greedy source, the connections within a request were evicted first, the oldest before others.
    greedy[0].expect_end(BYE);
    greedy[9].0.read_exact(&mut [0; 16]).unwrap();
    let counters = &server.counters;
    assert_eq!(counters.ended.of(EndReason::RefusedShare).read(), 0);
    assert_eq!(counters.ended.of(EndReason::Evicted).read(), counters.evicted_greedy.read());
}

#[test]
fn a_source_that_is_as_greedy_as_any_is_refused() {
    let server = start_full(4);
    let connect = |last| connect_from([127, 0, 0, last], server.addrs[0]);
    let mut clients: Vec<_> = [2, 2, 3, 3].into_iter().map(connect).collect();
    for client in &mut clients {
        client.ask("upgrade\necho hello\n", "hello\n");
    }
    for last in [2, 3] {
        let mut one_more = connect(last);
        one_more.send_text("echo hello\n");
        one_more.expect_end(FULL);
    }
    assert_eq!(
        (
            server.counters.ended.of(EndReason::RefusedShare).read(),
            server.counters.ended.of(EndReason::Evicted).read()
        ),
        (2, 0)
    );
    // It can replace an idle connection of its own.
    let mut idle = connect(4);
    idle.ask("echo hello\n", "hello\n");
    clients[0].expect_end(BYE);
    let mut again = connect(3);
    again.send_text("echo hello\n");
    again.expect_end(FULL);
    connect(4).ask("echo hello\n", "hello\n");
    clients[2].expect_end(BYE);
    idle.ask("echo still here\n", "still here\n");
}

#[test]
fn a_connection_counts_towards_its_quota() {
    let server = start_limited(1, true).remove(0);
    let exchange = |text: &str, expected: &[u8]| {
        let mut client = server.connect();
        client.send_text(text);
        client.expect(expected);
        client
    };
    // As many as a source may have, and none of them counts towards it any more.
    let mut named: Vec<_> = (0..5).map(|_| exchange("quota 192.0.2.1\necho named\n", b"named\n")).collect();
    named.push(exchange("release\necho released\n", b"released\n"));
    let sockets: Vec<_> = (0..5).map(|_| exchange("quota-websocket 127.0.0.1\necho up\n", b"up\n")).collect();
    let _own: Vec<_> = (0..2).map(|_| exchange("echo own\n", b"own\n")).collect();
    exchange("echo own\n", FULL);
    drop((named, sockets));
    server.await_connections(2);
    exchange("echo own\n", FULL);
}

/// Connects a client from a given address.
fn connect_from(local: [u8; 4], server: SocketAddr) -> Client {
    let client = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
    bind(&client, &SocketAddr::new(IpAddr::V4(Ipv4Addr::from(local)), 0)).unwrap();
    connect(&client, &server).unwrap();
    Client::of(TcpStream::from(client))
}

fn start_limited(workers: usize, is_limited: bool) -> Vec<StreamServer> {
    let per_source = SourceLimits { http_max: 2, websockets_max: 2 };
    let limits = StreamLimits { per_source, ..LIMITS };
    let start = |listeners| {
        let service = Script { is_limited, ..Script::default() };
        StreamServer::run(listeners, service, limits)
    };
    listen_shared(LOOPBACK, workers).into_iter().map(start).collect()
}

#[test]
fn a_source_has_a_maximum() {
    let server = start_limited(1, true).remove(0);
    let mut one = server.connect();
    one.ask("echo hello\n", "hello\n");
    server.connect().ask("echo hello\n", "hello\n");
    server.await_connections(1);
    let mut two = server.connect();
    two.ask("echo hello\n", "hello\n");
    let mut three = server.connect();
    three.send_text("echo hello\n");
    three.expect_end(FULL);
    connect_from([127, 0, 0, 2], server.addrs[0]).ask("echo hello\n", "hello\n");
    drop(one);
    until(|| server.counters.accepted.read() - server.counters.closed.read() == 1);
    server.connect().ask("echo hello\n", "hello\n");
    assert_eq!(
        (
            server.counters.ended.of(EndReason::RefusedSource).read(),
            server.counters.ended.of(EndReason::Evicted).read()
        ),
        (1, 0)
    );
    // Messages to refused clients count as well.
    let sent_bytes = (5 * "hello\n".len() + FULL.len()) as u64;
    until(|| server.counters.bytes.of(Direction::Out).read() == sent_bytes);
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
    let servers = start_limited(2, true);
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

#[test]
fn a_source_without_limit_may_have_more() {
    let server = start_limited(1, false).remove(0);
    let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("echo hello\n", "hello\n"));
    assert_eq!(server.connections(), 10);
}
