//! Standing connections, and what is said on them unasked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::stream::{
    Account, BYE, Client, GONE, LIMITS, PING, Script, StreamServer, addrs, is_ready, listen, until,
};
use common::{Kind, bind_one};
use shoal_net::stream::{INPUT_BYTES_MAX, StreamCounters, StreamIo, StreamLimits};
use shoal_net::{DatagramIo, Echo, TaskRun};

const LOOPBACK: &[&str] = &["127.0.0.1:0"];

/// More than the kernel takes for a peer that does not read.
const HUGE: usize = 16_000_000;

/// What the kernel takes for a peer that does not read, on both sides, before the tracker holds it.
const KERNEL_BYTES_MAX: usize = 2_000_000;

/// A client whose connection stands, and which is the next one to be opened.
fn stand(server: &StreamServer) -> Client {
    let mut client = server.connect();
    client.ask("stand\necho ready\n", "ready\n");
    // What has been taken by the client need not have been taken note of.
    server.take_turns();
    client
}

fn start(limits: StreamLimits) -> StreamServer {
    StreamServer::start(LOOPBACK, limits)
}

/// A worker whose turns the test takes.
struct Worker {
    io: StreamIo<Script>,
    readiness: OwnedFd,
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
        let (readiness, service) = (io.readiness().unwrap(), Script::default());
        let account = Arc::clone(&service.account);
        Self { io, readiness, service, addr, counters, account }
    }

    /// Takes turns for as long as there is something to do.
    fn settle(&mut self) {
        let mut turns = 0;
        while self.io.turn(0, &mut self.service).unwrap() > 0 || is_ready(&self.readiness, Duration::ZERO) {
            turns += 1;
            assert!(turns < 1000, "it spins");
        }
    }

    fn await_connections(&mut self, count: usize) {
        until(|| {
            self.settle();
            self.io.connections() == count
        });
    }
}

#[test]
fn what_is_said_arrives_in_order() {
    let server = start(LIMITS);
    let mut client = stand(&server);
    for round in 0..100 {
        server.account.tell(0, &format!("first {round}\n"));
        server.account.tell(0, &format!("second {round}\n"));
        client.hear(format!("first {round}\nsecond {round}\n"));
        client.ask(&format!("echo {round}\n"), &format!("{round}\n"));
    }
    let mut other = stand(&server);
    client.say("tell 1 how are you?\ntell 0 talking to myself\necho asked\n");
    other.hear("how are you?\n");
    client.hear("asked\ntalking to myself\n");
}

#[test]
fn what_waits_at_one_moment_leaves_in_one_write() {
    let mut worker = Worker::open();
    let mut clients = [(); 3].map(|()| Client::connect(worker.addr));
    clients.iter_mut().for_each(|client| client.say("stand\n"));
    worker.await_connections(3);
    assert_eq!(worker.counters.writes.read(), 0);
    for round in 0..50 {
        (0..2).for_each(|number| worker.account.tell(number, &format!("{round}\n")));
    }
    assert!(worker.io.turn(0, &mut worker.service).unwrap() > 0, "the worker would wait");
    worker.settle();
    assert_eq!(worker.counters.writes.read(), 2);
    assert_eq!(worker.account.spoken.load(Ordering::Relaxed), 2);
    for client in &mut clients[..2] {
        (0..50).for_each(|round| client.hear(format!("{round}\n")));
    }
    // The same for what is said because of what is heard in one turn.
    let words: String = (0..50).map(|round| format!("tell 2 {round}\n")).collect();
    clients[..2].iter_mut().for_each(|client| client.say(&words));
    while worker.counters.received_bytes.read() < 3 * "stand\n".len() as u64 + 2 * words.len() as u64 {
        worker.settle();
    }
    worker.settle();
    let writes = worker.counters.writes.read() - 2;
    assert!((1..=2).contains(&writes), "{writes}");
}

#[test]
fn who_is_idle_or_leaves_is_not_spoken_to() {
    let server = start(LIMITS);
    let (mut idle, mut lingering) = (server.connect(), server.connect());
    idle.ask("echo hello\n", "hello\n");
    lingering.say("linger\n");
    lingering.hear_last("");
    let gone = stand(&server);
    drop(gone);
    server.await_connections(2);
    (0..3).for_each(|number| server.account.tell(number, "psst\n"));
    server.take_turns();
    assert_eq!(server.account.spoken.load(Ordering::Relaxed), 0);
    idle.ask("echo anybody?\n", "anybody?\n");
}

#[test]
fn speech_within_half_a_request_does_not_prolong_it() {
    let limits = StreamLimits { request_ms_max: 300, ..LIMITS };
    let server = start(limits);
    let (mut client, mut other) = (stand(&server), stand(&server));
    for client in [&mut client, &mut other] {
        client.say("ech");
    }
    until(|| server.counters.received_bytes.read() == 2 * "stand\necho ready\nech".len() as u64);
    for step in 1..=3 {
        server.set_clock(step * 100);
        server.account.tell(0, "news\n");
        client.hear("news\n");
    }
    other.ask("o in time\n", "in time\n");
    server.set_clock(301);
    client.hear_last(BYE);
    assert_eq!(server.counters.timed_out_request.read(), 1);
    other.ask("echo still here\n", "still here\n");
}

/// What is said on it meanwhile neither gives nor takes time.
#[test]
fn who_is_always_within_a_message_has_time_for_each() {
    let limits = StreamLimits { request_ms_max: 300, ..LIMITS };
    let server = start(limits);
    let (mut steady, mut slow) = (stand(&server), stand(&server));
    let say = |client: &mut Client, words: &str| {
        let before = server.counters.received_bytes.read();
        client.say(words);
        until(|| server.counters.received_bytes.read() == before + words.len() as u64);
        // It may be counted before it is looked at.
        server.take_turns();
    };
    say(&mut steady, "stan");
    say(&mut slow, "stan");
    for now_ms in [200, 300] {
        server.set_clock(now_ms);
        // Nothing is answered to a message that has come whole, and the next one has begun.
        say(&mut steady, "d\nstan");
        server.account.tell(0, "news\n");
        steady.hear("news\n");
        // A piece of the same message is none.
        say(&mut slow, ["d", " "][usize::from(now_ms == 300)]);
    }
    server.set_clock(301);
    slow.hear_last(BYE);
    server.account.tell(0, "more of them\n");
    steady.hear("more of them\n");
    server.set_clock(600);
    assert_eq!(server.connections(), 1);
    server.set_clock(601);
    steady.hear_last(BYE);
    assert_eq!(server.counters.timed_out_request.read(), 2);
}

#[test]
fn speech_comes_behind_an_answer() {
    let server = start(LIMITS);
    let mut client = stand(&server);
    for words in [format!("big {HUGE}\n"), format!("more 16 {}\n", HUGE / 16)] {
        let before = server.counters.received_bytes.read();
        client.say(&words);
        until(|| server.counters.received_bytes.read() > before);
        server.take_turns();
        server.account.tell(0, "news\n");
        server.take_turns();
        server.account.tell(0, "more of them\n");
        let mut heard = vec![0; HUGE + "news\nmore of them\n".len()];
        client.0.read_exact(&mut heard).unwrap();
        // Between the pieces of an answer there may be news, but within none.
        let news: Vec<u8> = heard.into_iter().filter(|byte| *byte != b'b' && *byte != b'm').collect();
        assert_eq!(String::from_utf8_lossy(&news), "news\nore of the\n");
        client.ask("echo next\n", "next\n");
    }
}

/// One that reads late, but before too much waits: it misses nothing, and is heard again.
#[test]
fn speech_behind_speech_arrives_whole() {
    const TEXTS: usize = 1600;
    let server = start(LIMITS);
    let mut client = stand(&server);
    let text = |number: usize| format!("{number:09}").repeat(HUGE / TEXTS / 9);
    for number in 0..TEXTS {
        server.account.tell(0, &text(number));
        if number % 100 == 0 {
            server.take_turns();
        }
        if number == TEXTS / 2 {
            client.say("echo and you?\n");
        }
    }
    let mut heard = vec![0; TEXTS * text(0).len()];
    // What was asked in the middle may be answered behind any of the texts.
    heard.resize(heard.len() + "and you?\n".len(), 0);
    client.0.read_exact(&mut heard).unwrap();
    let heard = String::from_utf8(heard).unwrap();
    assert_eq!(heard.matches("and you?\n").count(), 1);
    let texts: String = (0..TEXTS).map(text).collect();
    assert!(heard.replace("and you?\n", "") == texts);
    client.ask("echo still here\n", "still here\n");
    assert_eq!(server.connections(), 1);
}

/// What it has not taken does not grow, however much there is for it; it hears all of it in the end.
#[test]
fn a_slow_reader_is_told_later_and_disturbs_nobody() {
    let server = start(LIMITS);
    let (mut slow, mut steady) = (stand(&server), stand(&server));
    let text = "x".repeat(9_999) + "\n";
    let mut texts = 0;
    let mut tell = |texts: &mut usize| {
        server.account.tell(0, &text);
        server.account.tell(1, &text);
        *texts += 1;
        steady.hear(&text);
        steady.ask("echo me too\n", "me too\n");
    };
    while server.account.backlog_bytes.load(Ordering::Relaxed) == 0 {
        assert!(texts * text.len() < KERNEL_BYTES_MAX, "the kernel takes everything");
        tell(&mut texts);
    }
    (0..100).for_each(|_| tell(&mut texts));
    assert!(server.account.backlog_bytes_max.load(Ordering::Relaxed) <= 2 * text.len());
    (0..texts).for_each(|_| slow.hear(&text));
    slow.ask("echo and me\n", "and me\n");
    assert_eq!((server.account.backlog_bytes.load(Ordering::Relaxed), server.connections()), (0, 2));
}

/// What others have for it does not keep it from being heard; but no more is heard than can be answered.
#[test]
fn one_that_has_not_taken_what_it_was_told_is_heard_within_bounds() {
    let server = start(LIMITS);
    let mut client = stand(&server);
    server.account.tell(0, &"x".repeat(HUGE));
    server.take_turns();
    let before = server.account.heard_bytes.load(Ordering::Relaxed);
    let heard = || server.account.heard_bytes.load(Ordering::Relaxed) - before;
    client.say("echo hello\n");
    until(|| heard() > 0);
    let flooded = client.flood(b"echo hello\n");
    assert!(flooded > 2 * INPUT_BYTES_MAX && heard() <= 2 * INPUT_BYTES_MAX, "{} of {flooded}", heard());
    let mut told = vec![0; HUGE + "hello\n".len()];
    client.0.read_exact(&mut told).unwrap();
    assert_eq!(&told[HUGE..], b"hello\n");
}

/// One that was told something unasked has several times as long as one that was answered.
#[test]
fn who_does_not_catch_up_in_time_is_closed() {
    let limits = StreamLimits { send_ms_max: 500, ..LIMITS };
    let server = start(limits);
    let (mut slow, mut asking) = (stand(&server), stand(&server));
    server.account.tell(0, &"x".repeat(HUGE));
    asking.say(&format!("big {HUGE}\n"));
    until(|| {
        server.counters.sent_bytes.read() > 0 && server.account.heard_bytes.load(Ordering::Relaxed) > 40
    });
    server.take_turns();
    server.set_clock(500);
    assert_eq!(server.connections(), 2);
    server.set_clock(501);
    server.await_connections(1);
    assert!(asking.0.read_to_end(&mut Vec::new()).is_err());
    for round in 2..6 {
        server.set_clock(round * 501);
        server.account.tell(0, "news\n");
        assert_eq!(server.connections(), 1);
    }
    server.set_clock(6 * 501);
    server.await_connections(0);
    assert_eq!(server.counters.timed_out_send.read(), 2);
    assert!(slow.0.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn speech_may_end_a_connection() {
    let server = start(LIMITS);
    for (number, last) in ["/close", "/linger", "/close", "/linger"].into_iter().enumerate() {
        let mut client = stand(&server);
        let text = if number < 2 { "farewell\n".to_owned() } else { "x".repeat(HUGE) };
        server.account.tell(number, &text);
        server.account.tell(number, last);
        client.hear_last(text);
    }
    server.await_connections(0);
    let counters = &server.counters;
    assert_eq!((counters.closed.read(), counters.failed.read()), (4, 0));
}

#[test]
fn silence_is_tended() {
    let limits = StreamLimits { silent_ms_max: 1000, ..LIMITS };
    let server = start(limits);
    let (mut gone, mut alive) = (stand(&server), stand(&server));
    server.set_clock(1000);
    assert_eq!(server.counters.writes.read(), 2);
    // Who has been heard has the whole time again.
    for (now_ms, answer) in
        [(1001, "ping\nhere\n"), (1900, "here\n"), (2002, "here\n"), (3003, "ping\nhere\n")]
    {
        server.set_clock(now_ms);
        alive.ask("echo here\n", answer);
    }
    gone.hear_last([PING, GONE].concat());
    assert_eq!((server.connections(), server.counters.timed_out_silent.read()), (1, 1));
}

#[test]
fn being_told_is_no_sign_of_life() {
    let limits = StreamLimits { silent_ms_max: 1000, ..LIMITS };
    let server = start(limits);
    let mut client = stand(&server);
    for now_ms in [300, 900, 1000] {
        server.set_clock(now_ms);
        server.account.tell(0, "news\n");
        client.hear("news\n");
    }
    server.set_clock(1001);
    client.hear(PING);
    server.set_clock(2001);
    server.account.tell(0, "news\n");
    client.hear("news\n");
    server.set_clock(2002);
    client.hear_last(GONE);
}

#[test]
fn who_stands_makes_room_last() {
    let limits = StreamLimits { connections_max: 3, ..LIMITS };
    let server = start(limits);
    let (mut first, mut second, mut idle) = (stand(&server), stand(&server), server.connect());
    idle.ask("echo hello\n", "hello\n");
    // The first has been heard since, and the second only told.
    first.ask("echo hello\n", "hello\n");
    server.account.tell(1, "news\n");
    second.hear("news\n");
    let mut third = stand(&server);
    idle.hear_last(BYE);
    let mut fourth = stand(&server);
    second.hear_last(BYE);
    for client in [&mut first, &mut third, &mut fourth] {
        client.ask("echo still here\n", "still here\n");
    }
    assert_eq!((server.connections(), server.counters.evicted.read()), (3, 2));
}

#[test]
fn standing_connections_are_dismissed_at_the_end() {
    let server = start(LIMITS);
    let (mut standing, mut asking) = (stand(&server), stand(&server));
    asking.say("echo some");
    until(|| server.counters.received_bytes.read() == 2 * "stand\necho ready\n".len() as u64 + 9);
    server.retire();
    standing.hear_last(BYE);
    asking.say("thing\n");
    asking.hear_last([b"something\n", BYE].concat());
    server.await_connections(0);

    let mut worker = Worker::open();
    let mut client = Client::connect(worker.addr);
    client.say("stand\n");
    worker.await_connections(1);
    worker.io.retire(0, &mut worker.service).unwrap();
    while worker.io.finish(&mut worker.service) > 0 {}
    client.hear_last(BYE);
}

/// As when the post of another worker has come.
#[test]
fn a_wake_is_enough_for_speech() {
    for datagram_kind in [Kind::Mmsg, Kind::Uring(TaskRun::Deferred)] {
        if !datagram_kind.works() {
            continue;
        }
        let (listeners, mut sockets) = (listen(LOOPBACK), bind_one(LOOPBACK));
        let (addr, waker) = (addrs(&listeners)[0], sockets.waker());
        let (mut service, counters) = (Script::default(), listeners.counters());
        let account = Arc::clone(&service.account);
        let worker = std::thread::spawn(move || {
            let mut streams = StreamIo::open(listeners, LIMITS).unwrap();
            sockets.watch(streams.readiness().unwrap());
            let mut datagrams = datagram_kind.open(sockets);
            while counters.closed.read() == 0 {
                datagrams.turn(Duration::MAX, &mut Echo::default()).unwrap();
                while streams.turn(0, &mut service).unwrap() > 0 {}
            }
        });
        let mut client = Client::connect(addr);
        client.ask("stand\necho ready\n", "ready\n");
        for _ in 0..20 {
            account.tell(0, "news\n");
            waker.wake();
            client.hear("news\n");
        }
        drop(client);
        worker.join().unwrap();
    }
}

#[test]
fn a_thousand_stand() {
    const COUNT: usize = 1000;
    let mut worker = Worker::open();
    let mut clients: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut client = Client::connect(worker.addr);
            client.say("stand\n");
            worker.settle();
            client
        })
        .collect();
    worker.await_connections(COUNT);
    for round in 0..3 {
        let text = format!("round {round}\n").repeat(100);
        (0..COUNT).for_each(|number| worker.account.tell(number, &text));
        worker.settle();
        clients.iter_mut().for_each(|client| client.hear(&text));
    }
    assert_eq!(worker.account.spoken.load(Ordering::Relaxed), 3 * COUNT);
    assert_eq!(worker.counters.writes.read(), 3 * COUNT as u64);
    drop(clients);
    worker.await_connections(0);
}

/// Several threads of clients, all of whom tell each other numbers, so that speech meets requests at every stage.
#[test]
fn everybody_tells_everybody() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 300;
    let server = start(LIMITS);
    let clients: Vec<_> = (0..CLIENTS).map(|_| stand(&server)).collect();
    std::thread::scope(|scope| {
        for (own, client) in clients.into_iter().enumerate() {
            let mut talking = client.0.try_clone().unwrap();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for number in 0..CLIENTS {
                        let words = format!("tell {number} {own} {round} {}\n", "x".repeat(round));
                        // Cut anywhere.
                        let (head, tail) = words.split_at(round % words.len());
                        talking.write_all(head.as_bytes()).unwrap();
                        talking.write_all(tail.as_bytes()).unwrap();
                    }
                }
            });
            scope.spawn(move || hear_everybody(&client, CLIENTS, ROUNDS));
        }
    });
    server.await_connections(0);
    assert_eq!(server.counters.failed.read(), 0);
}

/// Hears the numbers of all, each in their order.
fn hear_everybody(client: &Client, clients: usize, rounds: usize) {
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
