//! Upgraded connections, and output that no input has caused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::stream::{
    Account, BYE, Client, GONE, LIMITS, PING, Script, StreamServer, addrs, is_ready, listen, until,
};
use common::{Kind, bind_one};
use shoal_net::stream::{
    Direction, EndReason, INPUT_BYTES_MAX, Readiness, StreamCounters, StreamIo, StreamLimits,
};
use shoal_net::{DatagramIo, Echo, TaskRun};

const LOOPBACK: &[&str] = &["127.0.0.1:0"];

/// More than the kernel buffers for a peer that does not read.
const HUGE: usize = 16_000_000;

/// The amount that the kernel buffers on both sides for a peer that does not read, before the tracker has to.
const KERNEL_BYTES_MAX: usize = 2_000_000;

/// Connects a client and upgrades its connection, which is the next one to be opened.
fn upgrade(server: &StreamServer) -> Client {
    let mut client = server.connect();
    client.ask("upgrade\necho ready\n", "ready\n");
    // The worker need not have processed what the client has received.
    server.await_polls();
    client
}

fn start(limits: StreamLimits) -> StreamServer {
    StreamServer::start(LOOPBACK, limits)
}

/// A worker whose poll rounds the test runs.
struct Worker {
    io: StreamIo<Script>,
    readiness: Readiness,
    service: Script,
    addr: SocketAddr,
    counters: Arc<StreamCounters>,
    account: Arc<Account>,
}

impl Worker {
    fn open() -> Self {
        let listeners = listen(LOOPBACK);
        let (addr, counters) = (addrs(&listeners)[0], listeners.counters());
        let io = StreamIo::open(listeners, LIMITS).unwrap();
        let (readiness, service) = (io.readiness(), Script::default());
        let account = Arc::clone(&service.account);
        Self { io, readiness, service, addr, counters, account }
    }

    /// Runs poll rounds for as long as there is something to do.
    fn poll_until_idle(&mut self) {
        let mut polls = 0;
        while self.io.poll(0, &mut self.service).unwrap() > 0 || is_ready(&self.readiness, Duration::ZERO) {
            polls += 1;
            assert!(polls < 1000, "it spins");
        }
    }

    fn await_connections(&mut self, count: usize) {
        until(|| {
            self.poll_until_idle();
            self.io.connections() == count
        });
    }
}

#[test]
fn writes_arrive_in_order() {
    let server = start(LIMITS);
    let mut client = upgrade(&server);
    for round in 0..100 {
        server.account.queue(0, &format!("first {round}\n"));
        server.account.queue(0, &format!("second {round}\n"));
        client.expect(format!("first {round}\nsecond {round}\n"));
        client.ask(&format!("echo {round}\n"), &format!("{round}\n"));
    }
    let mut other = upgrade(&server);
    client.send_text("queue 1 how are you?\nqueue 0 talking to myself\necho asked\n");
    other.expect("how are you?\n");
    client.expect("asked\ntalking to myself\n");
}

#[test]
fn all_queued_output_leaves_in_one_write() {
    let mut worker = Worker::open();
    let mut clients = [(); 3].map(|()| Client::connect(worker.addr));
    clients.iter_mut().for_each(|client| client.send_text("upgrade\n"));
    worker.await_connections(3);
    assert_eq!(worker.counters.writes.read(), 0);
    for round in 0..50 {
        (0..2).for_each(|number| worker.account.queue(number, &format!("{round}\n")));
    }
    assert!(worker.io.poll(0, &mut worker.service).unwrap() > 0, "the worker would wait");
    worker.poll_until_idle();
    assert_eq!(worker.counters.writes.read(), 2);
    assert_eq!(worker.account.writes.load(Ordering::Relaxed), 2);
    for client in &mut clients[..2] {
        (0..50).for_each(|round| client.expect(format!("{round}\n")));
    }
    // The same for output that several inputs of one poll round cause.
    let text: String = (0..50).map(|round| format!("queue 2 {round}\n")).collect();
    clients[..2].iter_mut().for_each(|client| client.send_text(&text));
    while worker.counters.bytes.of(Direction::In).read()
        < 3 * "upgrade\n".len() as u64 + 2 * text.len() as u64
    {
        worker.poll_until_idle();
    }
    worker.poll_until_idle();
    let writes = worker.counters.writes.read() - 2;
    assert!((1..=2).contains(&writes), "{writes}");
}

#[test]
fn idle_and_closing_connections_are_not_written_to() {
    let server = start(LIMITS);
    let (mut idle, mut lingering) = (server.connect(), server.connect());
    idle.ask("echo hello\n", "hello\n");
    lingering.send_text("linger\n");
    lingering.expect_end("");
    let gone = upgrade(&server);
    drop(gone);
    server.await_connections(2);
    (0..3).for_each(|number| server.account.queue(number, "psst\n"));
    server.await_polls();
    assert_eq!(server.account.writes.load(Ordering::Relaxed), 0);
    idle.ask("echo anybody?\n", "anybody?\n");
}

#[test]
fn output_within_a_request_does_not_extend_its_time() {
    let limits = StreamLimits { request_ms_max: 300, ..LIMITS };
    let server = start(limits);
    let (mut client, mut other) = (upgrade(&server), upgrade(&server));
    for client in [&mut client, &mut other] {
        client.send_text("ech");
    }
    until(|| server.counters.bytes.of(Direction::In).read() == 2 * "upgrade\necho ready\nech".len() as u64);
    for step in 1..=3 {
        server.set_clock(step * 100);
        server.account.queue(0, "news\n");
        client.expect("news\n");
    }
    other.ask("o in time\n", "in time\n");
    server.set_clock(301);
    client.expect_end(BYE);
    assert_eq!(server.counters.ended.of(EndReason::SlowRequest).read(), 1);
    other.ask("echo still here\n", "still here\n");
}

/// Output in the middle of a message neither adds nor takes time.
#[test]
fn a_client_always_within_a_message_has_time_for_each() {
    let limits = StreamLimits { request_ms_max: 300, ..LIMITS };
    let server = start(limits);
    let (mut steady, mut slow) = (upgrade(&server), upgrade(&server));
    let send_text = |client: &mut Client, text: &str| {
        let before = server.counters.bytes.of(Direction::In).read();
        client.send_text(text);
        until(|| server.counters.bytes.of(Direction::In).read() == before + text.len() as u64);
        // The input may be counted before it is processed.
        server.await_polls();
    };
    send_text(&mut steady, "upgrad");
    send_text(&mut slow, "upgrad");
    for now_ms in [200, 300] {
        server.set_clock(now_ms);
        // A complete message has no reply, and the next one has begun.
        send_text(&mut steady, "e\nupgrad");
        server.account.queue(0, "news\n");
        steady.expect("news\n");
        // A piece of the same message is not a new one.
        send_text(&mut slow, ["e", " "][usize::from(now_ms == 300)]);
    }
    server.set_clock(301);
    slow.expect_end(BYE);
    server.account.queue(0, "more of them\n");
    steady.expect("more of them\n");
    server.set_clock(600);
    assert_eq!(server.connections(), 1);
    server.set_clock(601);
    steady.expect_end(BYE);
    assert_eq!(server.counters.ended.of(EndReason::SlowRequest).read(), 2);
}

#[test]
fn queued_output_comes_behind_a_reply() {
    let server = start(LIMITS);
    let mut client = upgrade(&server);
    for text in [format!("big {HUGE}\n"), format!("more 16 {}\n", HUGE / 16)] {
        let before = server.counters.bytes.of(Direction::In).read();
        client.send_text(&text);
        until(|| server.counters.bytes.of(Direction::In).read() > before);
        server.await_polls();
        server.account.queue(0, "news\n");
        server.await_polls();
        server.account.queue(0, "more of them\n");
        let mut received = vec![0; HUGE + "news\nmore of them\n".len()];
        client.0.read_exact(&mut received).unwrap();
        // Other output may come between the pieces of a reply, but not within one.
        let news: Vec<u8> = received.into_iter().filter(|byte| *byte != b'b' && *byte != b'm').collect();
        assert_eq!(String::from_utf8_lossy(&news), "news\nore of the\n");
        client.ask("echo next\n", "next\n");
    }
}

/// A client that reads late, but before too much waits, misses nothing and is served again.
#[test]
fn queued_output_behind_unsent_output_arrives_whole() {
    const TEXTS: usize = 1600;
    let server = start(LIMITS);
    let mut client = upgrade(&server);
    let text = |number: usize| format!("{number:09}").repeat(HUGE / TEXTS / 9);
    for number in 0..TEXTS {
        server.account.queue(0, &text(number));
        if number % 100 == 0 {
            server.await_polls();
        }
        if number == TEXTS / 2 {
            client.send_text("echo and you?\n");
        }
    }
    let mut received = vec![0; TEXTS * text(0).len()];
    // The reply to the request in the middle may come behind any of the texts.
    received.resize(received.len() + "and you?\n".len(), 0);
    client.0.read_exact(&mut received).unwrap();
    let received = String::from_utf8(received).unwrap();
    assert_eq!(received.matches("and you?\n").count(), 1);
    let texts: String = (0..TEXTS).map(text).collect();
    assert!(received.replace("and you?\n", "") == texts);
    client.ask("echo still here\n", "still here\n");
    assert_eq!(server.connections(), 1);
}

/// The unread output does not grow, however much there is for the client. It receives all of it in the end.
#[test]
fn a_slow_reader_is_written_to_later_and_affects_no_other() {
    let server = start(LIMITS);
    let (mut slow, mut steady) = (upgrade(&server), upgrade(&server));
    let text = "x".repeat(9_999) + "\n";
    let mut texts = 0;
    let mut queue_text = |texts: &mut usize| {
        server.account.queue(0, &text);
        server.account.queue(1, &text);
        *texts += 1;
        steady.expect(&text);
        steady.ask("echo me too\n", "me too\n");
    };
    while server.account.backlog_bytes.load(Ordering::Relaxed) == 0 {
        assert!(texts * text.len() < KERNEL_BYTES_MAX, "the kernel takes everything");
        queue_text(&mut texts);
    }
    (0..100).for_each(|_| queue_text(&mut texts));
    assert!(server.account.backlog_bytes_max.load(Ordering::Relaxed) <= 2 * text.len());
    (0..texts).for_each(|_| slow.expect(&text));
    slow.ask("echo and me\n", "and me\n");
    assert_eq!((server.account.backlog_bytes.load(Ordering::Relaxed), server.connections()), (0, 2));
}

/// Output from others does not keep its input from being read; but no more is read than can be answered.
#[test]
fn input_of_a_slow_reader_is_read_within_bounds() {
    let server = start(LIMITS);
    let mut client = upgrade(&server);
    server.account.queue(0, &"x".repeat(HUGE));
    server.await_polls();
    let before = server.account.received_bytes.load(Ordering::Relaxed);
    let received = || server.account.received_bytes.load(Ordering::Relaxed) - before;
    client.send_text("echo hello\n");
    until(|| received() > 0);
    let flooded = client.flood(b"echo hello\n");
    assert!(
        flooded > 2 * INPUT_BYTES_MAX && received() <= 2 * INPUT_BYTES_MAX,
        "{} of {flooded}",
        received()
    );
    let mut commands = vec![0; HUGE + "hello\n".len()];
    client.0.read_exact(&mut commands).unwrap();
    assert_eq!(&commands[HUGE..], b"hello\n");
}

/// A connection with output that no input has caused has several times as long as one with a reply.
#[test]
fn a_slow_reader_that_does_not_catch_up_is_disconnected() {
    let limits = StreamLimits { send_ms_max: 500, ..LIMITS };
    let server = start(limits);
    let (mut slow, mut asking) = (upgrade(&server), upgrade(&server));
    server.account.queue(0, &"x".repeat(HUGE));
    asking.send_text(&format!("big {HUGE}\n"));
    until(|| {
        server.counters.bytes.of(Direction::Out).read() > 0
            && server.account.received_bytes.load(Ordering::Relaxed) > 40
    });
    server.await_polls();
    server.set_clock(500);
    assert_eq!(server.connections(), 2);
    server.set_clock(501);
    server.await_connections(1);
    assert!(asking.0.read_to_end(&mut Vec::new()).is_err());
    for round in 2..6 {
        server.set_clock(round * 501);
        server.account.queue(0, "news\n");
        assert_eq!(server.connections(), 1);
    }
    server.set_clock(6 * 501);
    server.await_connections(0);
    assert_eq!(server.counters.ended.of(EndReason::SlowReader).read(), 2);
    assert!(slow.0.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn a_write_may_end_a_connection() {
    let server = start(LIMITS);
    for (number, last) in ["/close", "/linger", "/close", "/linger"].into_iter().enumerate() {
        let mut client = upgrade(&server);
        let text = if number < 2 { "farewell\n".to_owned() } else { "x".repeat(HUGE) };
        server.account.queue(number, &text);
        server.account.queue(number, last);
        client.expect_end(text);
    }
    server.await_connections(0);
    let counters = &server.counters;
    assert_eq!((counters.closed.read(), counters.ended.of(EndReason::Failed).read()), (4, 0));
}

#[test]
fn silent_peers_are_pinged() {
    let limits = StreamLimits { silent_ms_max: 1000, ..LIMITS };
    let server = start(limits);
    let (mut gone, mut alive) = (upgrade(&server), upgrade(&server));
    server.set_clock(1000);
    assert_eq!(server.counters.writes.read(), 2);
    // A client that has sent something has the whole time again.
    for (now_ms, answer) in
        [(1001, "ping\nhere\n"), (1900, "here\n"), (2002, "here\n"), (3003, "ping\nhere\n")]
    {
        server.set_clock(now_ms);
        alive.ask("echo here\n", answer);
    }
    gone.expect_end([PING, GONE].concat());
    assert_eq!((server.connections(), server.counters.ended.of(EndReason::Silent).read()), (1, 1));
}

#[test]
fn output_is_no_sign_of_life() {
    let limits = StreamLimits { silent_ms_max: 1000, ..LIMITS };
    let server = start(limits);
    let mut client = upgrade(&server);
    for now_ms in [300, 900, 1000] {
        server.set_clock(now_ms);
        server.account.queue(0, "news\n");
        client.expect("news\n");
    }
    server.set_clock(1001);
    client.expect(PING);
    server.set_clock(2001);
    server.account.queue(0, "news\n");
    client.expect("news\n");
    server.set_clock(2002);
    client.expect_end(GONE);
}

#[test]
fn upgraded_connections_are_closed_at_the_shutdown() {
    let server = start(LIMITS);
    let (mut upgraded, mut asking) = (upgrade(&server), upgrade(&server));
    asking.send_text("echo some");
    until(|| server.counters.bytes.of(Direction::In).read() == 2 * "upgrade\necho ready\n".len() as u64 + 9);
    server.begin_shutdown();
    upgraded.expect_end(BYE);
    asking.send_text("thing\n");
    asking.expect_end([b"something\n", BYE].concat());
    server.await_connections(0);

    let mut worker = Worker::open();
    let mut client = Client::connect(worker.addr);
    client.send_text("upgrade\n");
    worker.await_connections(1);
    worker.io.begin_shutdown(0, &mut worker.service).unwrap();
    while worker.io.close_remaining(&mut worker.service) > 0 {}
    client.expect_end(BYE);
}

/// For example, when messages of another worker have arrived.
#[test]
fn a_wake_is_enough_for_output() {
    for datagram_kind in [Kind::Mmsg, Kind::Uring(TaskRun::Deferred)] {
        if !datagram_kind.works() {
            continue;
        }
        let (listeners, sockets) = (listen(LOOPBACK), bind_one(LOOPBACK));
        let (addr, waker) = (addrs(&listeners)[0], sockets.waker());
        let (mut service, counters) = (Script::default(), listeners.counters());
        let account = Arc::clone(&service.account);
        let worker = std::thread::spawn(move || {
            let mut streams = StreamIo::open(listeners, LIMITS).unwrap();
            let mut datagrams = datagram_kind.open(sockets);
            datagrams.watch(Some(streams.readiness())).unwrap();
            while counters.closed.read() == 0 {
                datagrams.poll(Duration::MAX, &mut Echo::default()).unwrap();
                while streams.poll(0, &mut service).unwrap() > 0 {}
            }
        });
        let mut client = Client::connect(addr);
        client.ask("upgrade\necho ready\n", "ready\n");
        for _ in 0..20 {
            account.queue(0, "news\n");
            waker.wake();
            client.expect("news\n");
        }
        drop(client);
        worker.join().unwrap();
    }
}

#[test]
fn a_thousand_upgraded_connections() {
    const COUNT: usize = 1000;
    let mut worker = Worker::open();
    let mut clients: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut client = Client::connect(worker.addr);
            client.send_text("upgrade\n");
            worker.poll_until_idle();
            client
        })
        .collect();
    worker.await_connections(COUNT);
    for round in 0..3 {
        let text = format!("round {round}\n").repeat(100);
        (0..COUNT).for_each(|number| worker.account.queue(number, &text));
        worker.poll_until_idle();
        clients.iter_mut().for_each(|client| client.expect(&text));
    }
    assert_eq!(worker.account.writes.load(Ordering::Relaxed), 3 * COUNT);
    assert_eq!(worker.counters.writes.read(), 3 * COUNT as u64);
    drop(clients);
    worker.await_connections(0);
}

/// Several threads of clients that all send each other numbers, so that writes meet requests at every stage.
#[test]
fn everybody_tells_everybody() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 300;
    let server = start(LIMITS);
    let clients: Vec<_> = (0..CLIENTS).map(|_| upgrade(&server)).collect();
    std::thread::scope(|scope| {
        for (own, client) in clients.into_iter().enumerate() {
            let mut talking = client.0.try_clone().unwrap();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for number in 0..CLIENTS {
                        let text = format!("queue {number} {own} {round} {}\n", "x".repeat(round));
                        // Cut anywhere.
                        let (head, tail) = text.split_at(round % text.len());
                        talking.write_all(head.as_bytes()).unwrap();
                        talking.write_all(tail.as_bytes()).unwrap();
                    }
                }
            });
            scope.spawn(move || expect_all(&client, CLIENTS, ROUNDS));
        }
    });
    server.await_connections(0);
    assert_eq!(server.counters.ended.of(EndReason::Failed).read(), 0);
}

/// Receives the numbers of all clients, each in order.
fn expect_all(client: &Client, clients: usize, rounds: usize) {
    let mut next_rounds = vec![0; clients];
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(&client.0));
    while next_rounds.iter().any(|next| *next < rounds) {
        let line = lines.next().unwrap().unwrap();
        let [who, round, tail] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        let next = &mut next_rounds[who.parse::<usize>().unwrap()];
        assert_eq!(round.parse::<usize>().unwrap(), *next);
        assert_eq!(tail.len(), *next);
        *next += 1;
    }
}
