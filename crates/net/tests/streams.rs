//! The duties of [`StreamIo`] towards its peers, over real sockets. Its limits are in `stream_limits.rs`, and its
//! shutdown in `stream_end.rs`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::stream::{Client, LIMITS, Script, StreamServer, addrs, is_ready, listen, listen_shared, until};
use common::{Kind, PATIENCE, bind_one, connect};
use shoal_net::stream::{Direction, EndReason, INPUT_BYTES_MAX, ListenAddress, StreamIo, StreamListeners};
use shoal_net::{DatagramIo, Echo, TaskRun, Waker};

const LOOPBACK: &[&str] = &["127.0.0.1:0"];
const BOTH: &[&str] = &["127.0.0.1:0", "[::1]:0"];

fn start() -> StreamServer {
    StreamServer::start(LOOPBACK, LIMITS)
}

#[test]
fn every_next() {
    let server = start();
    let mut client = server.connect();
    for round in 0..100 {
        client.ask(&format!("echo {round}\n"), &format!("{round}\n"));
    }
    client.send_text("busy\n");
    server.await_polls();
    client.ask("echo later\n", "later\n");
    client.ask("more 1 10\n", "mmmmmmmmmm");
    client.send_text("close the end\n");
    client.expect_end("the end\n");

    let mut client = server.connect();
    client.send_text("quit\n");
    client.expect_end("");

    let mut client = server.connect();
    client.send_text("linger for a while\n");
    client.expect_end("for a while\n");
    drop(client);

    server.await_connections(0);
    let (opened, closed) = (&server.account.opened, &server.account.closed);
    assert_eq!((opened.load(Ordering::Relaxed), closed.load(Ordering::Relaxed)), (3, 3));
    let counters = &server.counters;
    assert_eq!(
        (counters.accepted.read(), counters.closed.read(), counters.ended.of(EndReason::Failed).read()),
        (3, 3, 0)
    );
    assert_eq!(
        counters.bytes.of(Direction::In).read(),
        server.account.received_bytes.load(Ordering::Relaxed) as u64
    );
    let sent_bytes = 10 * "0\n".len() + 90 * "10\n".len() + "later\n".len() + 10;
    assert_eq!(
        counters.bytes.of(Direction::Out).read(),
        (sent_bytes + "the end\n".len() + "for a while\n".len()) as u64
    );
}

#[test]
fn input_in_single_bytes() {
    let server = start();
    let mut client = server.connect();
    for _ in 0..3 {
        for byte in "echo slowly\n".chars() {
            client.send_text(&byte.to_string());
            server.await_polls();
        }
        client.expect("slowly\n");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    const COUNT: usize = 20_000;
    let server = start();
    let mut client = server.connect();
    let mut asking = Client::of(client.0.try_clone().unwrap());
    let asker = std::thread::spawn(move || {
        let lines: String = (0..COUNT).map(|number| format!("echo {number}\n")).collect();
        asking.send_text(&lines);
    });
    for number in 0..COUNT {
        client.expect(format!("{number}\n"));
    }
    asker.join().unwrap();
}

#[test]
fn answers_in_pieces() {
    let server = start();
    let mut client = server.connect();
    // Many small pieces, large ones, and ones without content, with other requests right behind.
    for (pieces, bytes) in [(100, 10), (30, 100_000), (50, 0), (1, 1)] {
        client.send_text(&format!("more {pieces} {bytes}\necho done\n"));
        client.expect(vec![b'm'; pieces * bytes]);
        client.expect("done\n");
    }
    client.send_text("more 20 1000\nclose end\n");
    client.expect(vec![b'm'; 20 * 1000]);
    client.expect_end("end\n");
    let mut client = server.connect();
    client.send_text("more 9 0\nquit\n");
    client.expect_end("");
}

#[test]
fn a_large_answer_to_a_slow_reader() {
    const BYTES: usize = 16_000_000;
    let server = start();
    for end in ["echo end\n", "close end\n", "linger end\n"] {
        let mut slow = server.connect();
        slow.send_text(&format!("big {BYTES}\n{end}"));
        let mut left = BYTES;
        while left > 0 {
            let chunk = left.min(1_000_000);
            slow.expect(vec![b'b'; chunk]);
            left -= chunk;
            // Others are served meanwhile.
            server.connect().ask("echo quick\n", "quick\n");
        }
        slow.expect("end\n");
    }
}

#[test]
fn input_of_a_client_that_does_not_read_is_not_read() {
    const BYTES: usize = 16_000_000;
    let server = start();
    let mut slow = server.connect();
    slow.send_text(&format!("big {BYTES}\n"));
    let line = b"echo again\n";
    until(|| server.counters.bytes.of(Direction::In).read() > 0);
    server.await_polls();
    let written = slow.flood(line);
    let received = server.account.received_bytes.load(Ordering::Relaxed);
    assert!(received <= INPUT_BYTES_MAX, "{received} bytes of {written} were taken");
    assert!(written > 2 * INPUT_BYTES_MAX, "{written}");

    slow.expect(vec![b'b'; BYTES]);
    for _ in 0..written / line.len() {
        slow.expect("again\n");
    }
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let server = start();
    for (text, answer) in [("echo last\n", b"last\n".to_vec()), ("big 3000000\n", vec![b'b'; 3_000_000])] {
        let mut client = server.connect();
        client.send_text(text);
        client.0.shutdown(Shutdown::Write).unwrap();
        client.expect_end(answer);
    }
    // A client that sends nothing complete gets no reply.
    let mut client = server.connect();
    client.send_text("ech");
    client.0.shutdown(Shutdown::Write).unwrap();
    client.expect_end("");
    server.await_connections(0);
    assert_eq!(server.counters.ended.of(EndReason::Failed).read(), 0);
}

#[test]
fn the_answer_before_the_end_is_no_reset() {
    let server = start();
    let mut client = server.connect();
    client.send_text("linger no more, please\n");
    for _ in 0..20 {
        client.0.write_all(&[b'x'; 10_000]).unwrap();
    }
    client.expect_end("no more, please\n");
    // The input is not read, and costs no other client its connection.
    client.0.write_all(&[b'x'; 10_000]).unwrap();
    assert_eq!(server.connections(), 1);
    drop(client);
    server.await_connections(0);
    assert!(server.account.received_bytes.load(Ordering::Relaxed) <= INPUT_BYTES_MAX);
}

#[test]
fn a_client_that_keeps_sending_after_the_end_is_disconnected() {
    let server = start();
    let mut client = server.connect();
    client.send_text("linger no more, please\n");
    client.expect_end("no more, please\n");
    while client.0.write_all(&[b'x'; 10_000]).is_ok() {}
    server.await_connections(0);
}

#[test]
fn resets_disturb_nobody() {
    let server = start();
    let mut steady = server.connect();
    for round in 0..50 {
        for text in ["echo x\n", "ech", "big 16000000\n", "more 1000 100000\n", "linger x\n", "close x\n"] {
            let mut client = server.connect();
            client.send_text(text);
            if round % 2 == 0 && text != "ech" {
                client.0.read_exact(&mut [0; 1]).unwrap();
            }
            client.reset();
        }
        steady.ask("echo still here\n", "still here\n");
    }
    // A connection that was reset before it was accepted may show as a failed accept.
    until(|| server.counters.accepted.read() + server.counters.accept_failed.read() == 301);
    server.await_connections(1);
}

#[test]
fn both_families() {
    let server = StreamServer::start(BOTH, LIMITS);
    for (index, addr) in server.addrs.iter().enumerate() {
        let mut client = Client::connect(*addr);
        client.ask("echo hello\n", "hello\n");
        let remote = server.account.remotes.lock().unwrap()[index];
        assert_eq!((remote.listener, remote.peer), (index, Some(client.0.local_addr().unwrap())));
    }
}

/// Returns listeners of workers on a Unix socket in its own directory.
fn listen_unix(name: &str, workers: usize) -> (std::path::PathBuf, Vec<StreamListeners>) {
    let directory = std::env::temp_dir().join(format!("shoal-net-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    let address = ListenAddress::Unix(path.clone());
    let listeners = StreamListeners::bind(&[address], NonZeroUsize::new(workers).unwrap()).unwrap();
    (path, listeners)
}

fn run(listeners: StreamListeners) -> StreamServer {
    StreamServer::run(listeners, Script::default(), LIMITS)
}

fn ask_unix(path: &std::path::Path) {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"echo over unix\nclose\n").unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    assert_eq!(received, "over unix\n");
}

#[test]
fn unix_sockets() {
    let (path, mut listeners) = listen_unix("one", 1);
    let server = run(listeners.remove(0));
    ask_unix(&path);
    assert_eq!(server.account.remotes.lock().unwrap()[0].peer, None);
    drop(server);
    assert!(!path.exists());
    std::fs::remove_dir(path.parent().unwrap()).unwrap();
}

#[test]
fn workers_share_a_unix_socket() {
    let (path, listeners) = listen_unix("two", 2);
    let servers: Vec<_> = listeners.into_iter().map(run).collect();
    for _ in 0..100 {
        ask_unix(&path);
    }
    let accepted: u64 = servers.iter().map(|server| server.counters.accepted.read()).sum();
    assert_eq!(accepted, 100);
    drop(servers);
    std::fs::remove_dir(path.parent().unwrap()).unwrap();
}

/// The record of a worker: how often its wait has ended, and how many connections it has accepted.
#[derive(Default)]
struct Waits {
    polls: AtomicUsize,
    accepted: AtomicUsize,
}

#[test]
fn a_connection_over_a_unix_socket_wakes_one_worker() {
    const WORKERS: usize = 4;
    const CONNECTIONS: usize = 40;
    let (path, listeners) = listen_unix("wakes", WORKERS);
    let waits = Arc::new([(); WORKERS].map(|()| Waits::default()));
    let stops = Arc::new(AtomicBool::new(false));
    let (mut wakers, mut workers) = (Vec::new(), Vec::new());
    for (worker, listeners) in listeners.into_iter().enumerate() {
        let sockets = bind_one(LOOPBACK);
        wakers.push(sockets.waker());
        let (waits, stops) = (Arc::clone(&waits), Arc::clone(&stops));
        workers.push(std::thread::spawn(move || {
            let counters = listeners.counters();
            let mut streams = StreamIo::open(listeners, LIMITS).unwrap();
            let (mut datagrams, mut service) = (Kind::Mmsg.open(sockets), Script::default());
            datagrams.watch(Some(streams.readiness())).unwrap();
            while !stops.load(Ordering::Acquire) {
                datagrams.poll(Duration::MAX, &mut Echo::default()).unwrap();
                while streams.poll(0, &mut service).unwrap() > 0 {}
                waits[worker].polls.fetch_add(1, Ordering::AcqRel);
                let accepted = usize::try_from(counters.accepted.read()).unwrap();
                waits[worker].accepted.store(accepted, Ordering::Release);
            }
        }));
    }
    let sum = |of: fn(&Waits) -> &AtomicUsize| {
        waits.iter().map(|waits| of(waits).load(Ordering::Acquire)).sum::<usize>()
    };
    // All workers wait before the first connection.
    std::thread::sleep(Duration::from_millis(200));
    let mut clients = Vec::new();
    for number in 1..=CONNECTIONS {
        clients.push(UnixStream::connect(&path).unwrap());
        until(|| sum(|waits| &waits.accepted) == number);
        std::thread::sleep(Duration::from_millis(2));
    }
    // If all workers were woken, there would be a wait for each worker and connection.
    let polls = sum(|waits| &waits.polls);
    assert!((CONNECTIONS..2 * CONNECTIONS).contains(&polls), "{polls} waits have ended");
    let shares: Vec<_> = waits.iter().map(|waits| waits.accepted.load(Ordering::Acquire)).collect();
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    stops.store(true, Ordering::Release);
    wakers.iter().for_each(Waker::wake);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    std::fs::remove_dir(path.parent().unwrap()).unwrap();
}

#[test]
fn workers_share_a_port() {
    let servers: Vec<_> = listen_shared(BOTH, 2).into_iter().map(run).collect();
    assert_eq!(servers[0].addrs, servers[1].addrs);
    for addr in &servers[0].addrs {
        for _ in 0..100 {
            Client::connect(*addr).ask("echo who?\n", "who?\n");
        }
    }
    for server in &servers {
        assert!((20..=180).contains(&server.counters.accepted.read()), "{:?}", server.counters);
    }
}

#[test]
fn readiness_tells_of_work_and_of_nothing_else() {
    let listeners = listen(LOOPBACK);
    let addr = addrs(&listeners)[0];
    let mut io = StreamIo::open(listeners, LIMITS).unwrap();
    let (readiness, mut service) = (io.readiness(), Script::default());
    let mut settle = |io: &mut StreamIo<Script>| {
        let mut polls = 0;
        while is_ready(&readiness, Duration::from_millis(50)) {
            io.poll(0, &mut service).unwrap();
            polls += 1;
            assert!(polls < 100, "it is ready for nothing");
        }
        polls
    };
    assert_eq!(settle(&mut io), 0);
    let mut client = Client::connect(addr);
    for _ in 0..10 {
        client.send_text("echo hello\n");
        assert!(settle(&mut io) > 0);
        client.expect("hello\n");
    }
    client.send_text("ech");
    assert!(settle(&mut io) > 0);
    client.send_text("o 1\nmore 50 1000\n");
    assert!(settle(&mut io) > 0);
    client.expect("1\n");
    client.expect([b'm'; 50_000]);
    drop(client);
    assert!(settle(&mut io) > 0);
    assert_eq!(io.connections(), 0);
}

#[test]
fn a_connection_wakes_whoever_waits_for_datagrams() {
    for datagram_kind in [Kind::Mmsg, Kind::Uring(TaskRun::Deferred), Kind::Uring(TaskRun::Cooperative)] {
        if !datagram_kind.works() {
            continue;
        }
        let (listeners, sockets) = (listen(LOOPBACK), bind_one(LOOPBACK));
        let (tcp, udp) = (addrs(&listeners)[0], sockets.local_addrs().next().unwrap());
        let waker = sockets.waker();
        let worker = std::thread::spawn(move || {
            let mut streams = StreamIo::open(listeners, LIMITS).unwrap();
            let (mut datagrams, mut service) = (datagram_kind.open(sockets), Script::default());
            datagrams.watch(Some(streams.readiness())).unwrap();
            let mut served = 0;
            while served < 20 {
                // Without the watch it would wait forever.
                served += datagrams.poll(Duration::MAX, &mut Echo::default()).unwrap();
                while streams.poll(0, &mut service).unwrap() > 0 {}
            }
        });
        let (mut client, neighbour) = (Client::connect(tcp), connect(udp));
        for _ in 0..20 {
            client.ask("echo hello\n", "hello\n");
            client.ask("more 30 1000\necho hello\n", &("m".repeat(30_000) + "hello\n"));
            Client::connect(tcp).ask("close hello\n", "hello\n");
            assert_eq!(common::ask(&neighbour, b"hello"), b"hello");
        }
        waker.wake();
        worker.join().unwrap();
    }
}

#[test]
fn a_connection_does_not_wait_until_datagrams_have_collected() {
    for datagram_kind in [Kind::Mmsg, Kind::Uring(TaskRun::Deferred), Kind::Uring(TaskRun::Cooperative)] {
        if !datagram_kind.works() {
            continue;
        }
        let (listeners, sockets) = (listen(LOOPBACK), bind_one(LOOPBACK));
        let tcp = addrs(&listeners)[0];
        let mut streams = StreamIo::open(listeners, LIMITS).unwrap();
        let (mut datagrams, mut service) = (datagram_kind.open(sockets), Script::default());
        datagrams.watch(Some(streams.readiness())).unwrap();
        let client = std::thread::spawn(move || Client::connect(tcp).ask("close hello\n", "hello\n"));
        // Without the watch it would wait forever.
        datagrams.coalesce(Duration::MAX).unwrap();
        while !client.is_finished() {
            streams.poll(0, &mut service).unwrap();
        }
        client.join().unwrap();
    }
}

/// Every kind of exchange and of end, from several threads at once.
#[test]
fn clients_of_all_kinds_at_once() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 150;
    let server = start();
    std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    one_of_all_kinds(server.connect(), seed * ROUNDS + round);
                }
            });
        }
    });
    server.await_connections(0);
    let account = &server.account;
    assert_eq!(account.opened.load(Ordering::Relaxed), account.closed.load(Ordering::Relaxed));
}

fn one_of_all_kinds(mut client: Client, number: u64) {
    let text = format!("{number}\n");
    match number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 {
        0 => client.reset(),
        1 => {
            client.send_text("big 5000000\n");
            client.reset();
        }
        2 => {
            client.send_text(&format!("big 500000\nclose {text}"));
            client.expect([b'b'; 500_000]);
            client.expect_end(text);
        }
        3 => {
            client.send_text(&format!("linger {text}and more"));
            client.expect_end(text);
        }
        4 => {
            client.send_text(&format!("more 10 10000\nclose {text}"));
            client.expect([b'm'; 100_000]);
            client.expect_end(text);
        }
        5..=8 => {
            client.send_text(&format!("close {text}"));
            client.expect_end(text);
        }
        _ => (0..10).for_each(|_| client.ask(&format!("echo {text}"), &text)),
    }
}
