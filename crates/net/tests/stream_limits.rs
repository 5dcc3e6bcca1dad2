//! The limits of stream back ends: how long a connection may take, and how many there may be, over every back end and by
//! a clock that is handed in.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use common::stream::{
    BYE, Client, FULL, LIMITS, Script, StreamKind, StreamServer, listen, listen_shared, until,
};
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
use shoal_net::stream::StreamLimits;

over_every_stream_back_end! {
    who_idles_too_long_is_closed,
    each_request_begins_a_new_time,
    a_request_that_never_ends_is_closed,
    more_of_a_request_does_not_prolong_it,
    who_never_reads_is_closed,
    who_never_reads_what_is_the_last_is_closed,
    a_reader_that_keeps_up_has_time,
    who_never_stops_sending_is_closed,
    the_oldest_idle_makes_room,
    nobody_idle_makes_no_room,
    a_source_has_so_many_and_no_more,
    a_source_that_has_too_many_drives_nobody_out,
    a_source_is_counted_over_all_workers,
    whose_source_is_not_limited_may_have_more,
}

const LOOPBACK: &[&str] = &["127.0.0.1:0"];

/// More than the kernel takes for a peer that does not read.
const HUGE: usize = 16_000_000;

const TIMES: StreamLimits =
    StreamLimits { idle_ms_max: 1000, request_ms_max: 300, send_ms_max: 500, ..LIMITS };

fn who_idles_too_long_is_closed(kind: StreamKind) {
    let server = StreamServer::start(kind, LOOPBACK, TIMES);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.ask("echo 1\n", "1\n");
    server.set_clock(400);
    second.ask("echo 2\n", "2\n");
    server.set_clock(1000);
    assert_eq!(server.connections(), 2);
    server.set_clock(1001);
    first.hear_last(BYE);
    server.set_clock(1400);
    assert_eq!(server.connections(), 1);
    server.set_clock(1401);
    second.hear_last(BYE);
    server.await_connections(0);
    assert_eq!(server.counters.timed_out_idle.read(), 2);
    // Last words count as well.
    assert_eq!(server.counters.sent_bytes.read(), (2 * "1\n".len() + 2 * BYE.len()) as u64);
}

fn each_request_begins_a_new_time(kind: StreamKind) {
    let server = StreamServer::start(kind, LOOPBACK, TIMES);
    let mut client = server.connect();
    for round in 0..10 {
        server.set_clock(round * 900);
        client.ask("echo again\n", "again\n");
    }
    // The same holds for one that is Busy after each answer.
    let mut client = server.connect();
    client.ask("echo\n", "");
    for round in 0..10 {
        server.set_clock(9000 + round * 250);
        client.ask("echo and\nbusy\n", "and\n");
    }
    assert_eq!(server.counters.timed_out_request.read(), 0);
    assert_eq!(server.counters.timed_out_idle.read(), 1);
}

fn a_request_that_never_ends_is_closed(kind: StreamKind) {
    let server = StreamServer::start(kind, LOOPBACK, TIMES);
    let (mut new, mut old) = (server.connect(), server.connect());
    old.ask("echo hello\n", "hello\n");
    server.set_clock(100);
    new.say("echo ");
    old.say("echo ");
    until(|| server.counters.received_bytes.read() == 21);
    server.set_clock(400);
    assert_eq!(server.connections(), 2);
    server.set_clock(401);
    new.hear_last(BYE);
    old.hear_last(BYE);
    assert_eq!(server.counters.timed_out_request.read(), 2);
}

fn more_of_a_request_does_not_prolong_it(kind: StreamKind) {
    let server = StreamServer::start(kind, LOOPBACK, TIMES);
    let mut client = server.connect();
    for step in 0..=3 {
        server.set_clock(step * 100);
        client.say("echo ");
        until(|| server.counters.received_bytes.read() == 5 * (step + 1));
    }
    server.set_clock(301);
    client.hear_last(BYE);
    assert_eq!(server.counters.timed_out_request.read(), 1);
}

fn who_never_reads_is_closed(kind: StreamKind) {
    never_reads(kind, &format!("big {HUGE}\n"));
    never_reads(kind, "more 1000 1000000\n");
}

fn who_never_reads_what_is_the_last_is_closed(kind: StreamKind) {
    never_reads(kind, &format!("big {HUGE}\nclose\n"));
    never_reads(kind, &format!("big {HUGE}\nlinger\n"));
}

fn never_reads(kind: StreamKind, words: &str) {
    let server = StreamServer::start(kind, LOOPBACK, TIMES);
    let mut deaf = server.connect();
    deaf.say(words);
    until(|| server.counters.received_bytes.read() == words.len() as u64);
    server.set_clock(500);
    assert_eq!(server.connections(), 1);
    server.set_clock(501);
    server.set_clock(502 + TIMES.send_ms_max);
    server.await_connections(0);
    assert_eq!(server.counters.timed_out_send.read(), 1);
    // What it did not take is thrown away: it does not hear the end of it.
    let mut heard = Vec::new();
    assert!(deaf.0.read_to_end(&mut heard).is_err(), "{} bytes", heard.len());
    server.connect().ask("echo next\n", "next\n");
}

/// Each piece has its own time.
fn a_reader_that_keeps_up_has_time(kind: StreamKind) {
    let limits = StreamLimits { send_ms_max: 500, ..LIMITS };
    let server = StreamServer::start(kind, LOOPBACK, limits);
    let mut client = server.connect();
    client.say("more 40 1000000\n");
    for step in 0..40 {
        client.hear(vec![b'm'; 1_000_000]);
        server.set_clock(step * 100);
    }
    client.ask("echo end\n", "end\n");
    assert_eq!(server.counters.timed_out_send.read(), 0);
}

fn who_never_stops_sending_is_closed(kind: StreamKind) {
    let server = StreamServer::start(kind, LOOPBACK, TIMES);
    let mut client = server.connect();
    client.say("linger end\n");
    client.hear_last("end\n");
    client.say("and another thing");
    assert_eq!(server.connections(), 1);
    server.set_clock(10_000);
    server.await_connections(0);
    assert_eq!(server.counters.timed_out_request.read(), 0);
}

fn the_oldest_idle_makes_room(kind: StreamKind) {
    let limits = StreamLimits { connections_max: 3, ..LIMITS };
    let server = StreamServer::start(kind, LOOPBACK, limits);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("echo hello\n", "hello\n");
    }
    // The first is not the oldest any more.
    clients[0].ask("echo still here\n", "still here\n");
    let mut fourth = server.connect();
    fourth.ask("echo made it\n", "made it\n");
    clients[1].hear_last(BYE);
    clients[0].ask("echo still here\n", "still here\n");
    clients[2].ask("echo still here\n", "still here\n");
    assert_eq!((server.connections(), server.counters.evicted.read()), (3, 1));
    for _ in 0..50 {
        server.connect().ask("echo made it\n", "made it\n");
    }
    assert!(server.connections() <= 3);
    assert_eq!(server.counters.refused_full.read(), 0);
}

fn nobody_idle_makes_no_room(kind: StreamKind) {
    let limits = StreamLimits { connections_max: 2, ..LIMITS };
    let server = StreamServer::start(kind, LOOPBACK, limits);
    let (mut asking, mut deaf) = (server.connect(), server.connect());
    asking.say("echo ");
    deaf.say(&format!("big {HUGE}\n"));
    server.await_connections(2);
    let mut third = server.connect();
    third.say("echo hello\n");
    third.hear_last(FULL);
    assert_eq!((server.counters.refused_full.read(), server.counters.evicted.read()), (1, 0));
    asking.ask("on\n", "on\n");
    // Now it idles.
    server.connect().ask("echo made it\n", "made it\n");
    asking.hear_last(BYE);
    let counters = &server.counters;
    until(|| counters.accepted.read() == 4 && counters.closed.read() == 3);
}

/// A client from an address of choice.
fn connect_from(local: [u8; 4], server: SocketAddr) -> Client {
    let client = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
    bind(&client, &SocketAddr::new(IpAddr::V4(Ipv4Addr::from(local)), 0)).unwrap();
    connect(&client, &server).unwrap();
    Client::of(TcpStream::from(client))
}

fn start_limited(kind: StreamKind, workers: usize, is_limited: bool) -> Vec<StreamServer> {
    let limits = StreamLimits { connections_per_source_max: 2, ..LIMITS };
    let start = |listeners| {
        let service = Script { is_limited, ..Script::default() };
        StreamServer::run(listeners, service, move |listeners| kind.open(listeners, limits).unwrap())
    };
    listen_shared(LOOPBACK, workers).into_iter().map(start).collect()
}

fn a_source_has_so_many_and_no_more(kind: StreamKind) {
    let server = start_limited(kind, 1, true).remove(0);
    let mut one = server.connect();
    one.ask("echo hello\n", "hello\n");
    server.connect().ask("echo hello\n", "hello\n");
    server.await_connections(1);
    let mut two = server.connect();
    two.ask("echo hello\n", "hello\n");
    let mut three = server.connect();
    three.say("echo hello\n");
    three.hear_last(FULL);
    connect_from([127, 0, 0, 2], server.addrs[0]).ask("echo hello\n", "hello\n");
    drop(one);
    until(|| server.counters.accepted.read() - server.counters.closed.read() == 1);
    server.connect().ask("echo hello\n", "hello\n");
    assert_eq!((server.counters.refused_source.read(), server.counters.evicted.read()), (1, 0));
    // What was said to whom there was no room for counts as well.
    let said = (5 * "hello\n".len() + FULL.len()) as u64;
    until(|| server.counters.sent_bytes.read() == said);
}

fn a_source_that_has_too_many_drives_nobody_out(kind: StreamKind) {
    let limits = StreamLimits { connections_max: 2, connections_per_source_max: 1, ..LIMITS };
    let service = Script { is_limited: true, ..Script::default() };
    let server =
        StreamServer::run(listen(LOOPBACK), service, move |listeners| kind.open(listeners, limits).unwrap());
    let mut oldest = connect_from([127, 0, 0, 2], server.addrs[0]);
    oldest.ask("echo hello\n", "hello\n");
    let mut greedy = server.connect();
    greedy.ask("echo hello\n", "hello\n");
    for _ in 0..3 {
        let mut one_more = server.connect();
        one_more.say("echo hello\n");
        one_more.hear_last(FULL);
    }
    oldest.ask("echo still here\n", "still here\n");
    assert_eq!((server.counters.refused_source.read(), server.counters.evicted.read()), (3, 0));
    // For others the oldest makes room, as ever.
    connect_from([127, 0, 0, 3], server.addrs[0]).ask("echo hello\n", "hello\n");
    greedy.hear_last(BYE);
}

fn a_source_is_counted_over_all_workers(kind: StreamKind) {
    let servers = start_limited(kind, 2, true);
    let mut clients: Vec<_> = (0..50).map(|_| servers[0].connect()).collect();
    clients.iter_mut().for_each(|client| client.say("echo hello\n"));
    let answers = clients.iter_mut().map(|client| {
        let mut answer = [0; FULL.len()];
        client.0.read_exact(&mut answer).unwrap();
        answer
    });
    assert_eq!(answers.filter(|answer| answer != FULL).count(), 2);
    let refused: u64 = servers.iter().map(|server| server.counters.refused_source.read()).sum();
    assert_eq!(refused, 48);
}

fn whose_source_is_not_limited_may_have_more(kind: StreamKind) {
    let server = start_limited(kind, 1, false).remove(0);
    let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("echo hello\n", "hello\n"));
    assert_eq!(server.connections(), 10);
}
