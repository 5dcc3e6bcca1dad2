//! Descriptors: none is leaked, and a worker without free descriptors neither spins nor stops. The test has its own
//! process, because it counts and limits the descriptors of the process, and is a single test for the same reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use common::stream::{BYE, Client, LIMITS, Script, addrs, is_ready, listen};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shoal_net::stream::{EndReason, Readiness, StreamCounters, StreamIo, StreamListeners};

/// A worker whose poll rounds the test runs.
struct Worker {
    io: StreamIo<Script>,
    readiness: Readiness,
    service: Script,
    now_ms: u64,
    addr: SocketAddr,
    counters: Arc<StreamCounters>,
}

impl Worker {
    fn open() -> Self {
        Self::over(listen(&["127.0.0.1:0"]))
    }

    fn over(listeners: StreamListeners) -> Self {
        let (addr, counters) = (addrs(&listeners)[0], listeners.counters());
        let io = StreamIo::open(listeners, LIMITS).unwrap();
        let (readiness, service) = (io.readiness(), Script::default());
        Self { io, readiness, service, now_ms: 0, addr, counters }
    }

    /// Runs poll rounds for as long as there is something to do.
    fn poll_until_idle(&mut self) {
        let mut polls = 0;
        // One more, as a worker runs it after its wait has timed out.
        let mut should_continue = true;
        while should_continue {
            should_continue = is_ready(&self.readiness, Duration::from_millis(5));
            self.io.poll(self.now_ms, &mut self.service).unwrap();
            polls += 1;
            assert!(polls < 1000, "it spins");
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_are_closed_and_a_worker_survives_without_free_ones() {
    two_thousand_connections_leave_nothing_behind();
    a_shutdown_in_the_middle_leaves_nothing_behind();
    without_descriptors_and_idle_connections_the_oldest_makes_room();
    without_descriptors_an_idle_connection_makes_room();
}

fn two_thousand_connections_leave_nothing_behind() {
    let mut worker = Worker::open();
    let before = descriptors();
    for round in 0..20 {
        let mut clients: Vec<_> = (0..100).map(|_| Client::connect(worker.addr)).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.send_text(["close x\n", "echo x\n", "ech", "linger x\n", "big 3000000\n"][index % 5]);
        }
        while worker.counters.accepted.read() < 100 * (round + 1) {
            worker.poll_until_idle();
        }
        for (index, client) in clients.into_iter().enumerate() {
            if index % 3 == 0 {
                client.reset();
            }
        }
        while worker.io.connections() > 0 {
            worker.poll_until_idle();
        }
    }
    worker.poll_until_idle();
    assert_eq!(worker.counters.closed.read(), 2000);
    assert_eq!(descriptors(), before);
}

fn a_shutdown_in_the_middle_leaves_nothing_behind() {
    let before = descriptors();
    let mut worker = Worker::open();
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(worker.addr)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client
            .send_text(["big 9000000\nclose\n", "echo x\n", "ech", "linger x\n", "big 9000000\n"][index % 5]);
    }
    while worker.io.connections() < clients.len() {
        worker.poll_until_idle();
    }
    // New connections, half of which only the kernel knows yet, and replies that are not received.
    clients.iter_mut().skip(1).step_by(5).for_each(|client| client.send_text("close x\n"));
    clients.extend((0..50).map(|_| Client::connect(worker.addr)));
    clients.iter_mut().skip(50).for_each(|client| client.send_text("echo x\n"));
    drop(worker);
    drop(clients);
    assert_eq!(descriptors(), before);
}

/// While it lives, only this many descriptors are free in addition to those that are open.
struct Want {
    limit: Rlimit,
    /// They take the free numbers below the highest in use.
    _fillers: Vec<File>,
}

impl Want {
    fn but_for(count: u64) -> Self {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let numbers = open.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
        let highest = numbers.max().unwrap();
        let mut fillers = vec![File::open("/dev/null").unwrap()];
        while fillers.last().unwrap().as_raw_fd() < highest {
            fillers.push(File::open("/dev/null").unwrap());
        }
        let last = u64::try_from(fillers.last().unwrap().as_raw_fd()).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(last + 1 + count), ..limit }).unwrap();
        Self { limit, _fillers: fillers }
    }
}

impl Drop for Want {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.limit).unwrap();
    }
}

/// The descriptors of a worker itself: its epoll set, and its readiness.
const OF_WORKER: u64 = 2;

fn without_descriptors_and_idle_connections_the_oldest_makes_room() {
    const CLIENTS: usize = 10;
    let listeners = listen(&["127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(addrs(&listeners)[0])).collect();
    let want = Want::but_for(OF_WORKER + 4);
    let mut worker = Worker::over(listeners);
    clients.iter_mut().for_each(|client| client.send_text("ech"));
    while worker.counters.accepted.read() < CLIENTS as u64 {
        worker.poll_until_idle();
        worker.now_ms += 100;
    }
    let evicted = usize::try_from(worker.counters.ended.of(EndReason::Evicted).read()).unwrap();
    assert_eq!(worker.io.connections() + evicted, CLIENTS);
    assert!(worker.counters.accept_failed.read() < 50, "it tries again and again");
    assert!((1..=7).contains(&evicted), "{evicted}");
    drop(want);
    for (index, client) in clients.iter_mut().enumerate() {
        if index < evicted {
            client.expect_end(BYE);
        } else {
            client.send_text("o made it\n");
            worker.poll_until_idle();
            client.expect("made it\n");
        }
    }
}

fn without_descriptors_an_idle_connection_makes_room() {
    let listeners = listen(&["127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(addrs(&listeners)[0])).collect();
    let _want = Want::but_for(OF_WORKER + 4);
    let mut worker = Worker::over(listeners);
    for (count, client) in (1..).zip(&mut clients) {
        client.send_text("echo made it\n");
        while worker.counters.accepted.read() < count {
            worker.poll_until_idle();
        }
        worker.poll_until_idle();
        client.expect("made it\n");
    }
    let evicted = worker.counters.ended.of(EndReason::Evicted).read();
    assert!((14..20).contains(&evicted), "{:?}", worker.counters);
    clients[0].expect_end(BYE);
    clients[19].send_text("echo still here\n");
    worker.poll_until_idle();
    clients[19].expect("still here\n");
}
