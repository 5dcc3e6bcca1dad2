//! What becomes of descriptors: none is left behind, and a worker that has no more of them neither spins nor stops. A
//! process of its own, because it counts and limits those of the process; and one test, because they share it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use common::stream::{BYE, Client, LIMITS, Script, addrs, is_ready, listen};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shoal_net::stream::{StreamCounters, StreamIo, StreamListeners};

/// A worker whose turns the test takes.
struct Worker {
    io: StreamIo<Script>,
    readiness: OwnedFd,
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
        let (readiness, service) = (io.readiness().unwrap(), Script::default());
        Self { io, readiness, service, now_ms: 0, addr, counters }
    }

    /// Takes turns for as long as there is something to do.
    fn settle(&mut self) {
        let mut turns = 0;
        // One more, as a worker takes it whose wait has timed out.
        let mut goes_on = true;
        while goes_on {
            goes_on = is_ready(&self.readiness, Duration::from_millis(5));
            self.io.turn(self.now_ms, &mut self.service).unwrap();
            turns += 1;
            assert!(turns < 1000, "it spins");
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_are_given_back_and_their_want_is_survived() {
    two_thousand_connections_leave_nothing_behind();
    an_end_amid_everything_leaves_nothing_behind();
    without_descriptors_and_without_idlers_the_oldest_makes_room();
    without_descriptors_an_idler_makes_room();
}

fn two_thousand_connections_leave_nothing_behind() {
    let mut worker = Worker::open();
    let before = descriptors();
    for round in 0..20 {
        let mut clients: Vec<_> = (0..100).map(|_| Client::connect(worker.addr)).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.say(["close x\n", "echo x\n", "ech", "linger x\n", "big 3000000\n"][index % 5]);
        }
        while worker.counters.accepted.read() < 100 * (round + 1) {
            worker.settle();
        }
        for (index, client) in clients.into_iter().enumerate() {
            if index % 3 == 0 {
                client.reset();
            }
        }
        while worker.io.connections() > 0 {
            worker.settle();
        }
    }
    worker.settle();
    assert_eq!(worker.counters.closed.read(), 2000);
    assert_eq!(descriptors(), before);
}

fn an_end_amid_everything_leaves_nothing_behind() {
    let before = descriptors();
    let mut worker = Worker::open();
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(worker.addr)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.say(["big 9000000\nclose\n", "echo x\n", "ech", "linger x\n", "big 9000000\n"][index % 5]);
    }
    while worker.io.connections() < clients.len() {
        worker.settle();
    }
    // New ones, half of them seen by the kernel only, and answers that are not taken note of.
    clients.iter_mut().skip(1).step_by(5).for_each(|client| client.say("close x\n"));
    clients.extend((0..50).map(|_| Client::connect(worker.addr)));
    clients.iter_mut().skip(50).for_each(|client| client.say("echo x\n"));
    drop(worker);
    drop(clients);
    assert_eq!(descriptors(), before);
}

/// While it lives, there is room for so many descriptors beside those that are open.
struct Want {
    limit: Rlimit,
    /// Take the numbers that are free below the highest in use.
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

/// What a worker itself takes: the descriptor of its epoll set, and that of its readiness.
const OF_WORKER: u64 = 2;

fn without_descriptors_and_without_idlers_the_oldest_makes_room() {
    const CLIENTS: usize = 10;
    let listeners = listen(&["127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(addrs(&listeners)[0])).collect();
    let want = Want::but_for(OF_WORKER + 4);
    let mut worker = Worker::over(listeners);
    clients.iter_mut().for_each(|client| client.say("ech"));
    while worker.counters.accepted.read() < CLIENTS as u64 {
        worker.settle();
        worker.now_ms += 100;
    }
    let evicted = usize::try_from(worker.counters.evicted.read()).unwrap();
    assert_eq!(worker.io.connections() + evicted, CLIENTS);
    assert!(worker.counters.accept_failed.read() < 50, "it tries again and again");
    assert!((1..=7).contains(&evicted), "{evicted}");
    drop(want);
    for (index, client) in clients.iter_mut().enumerate() {
        if index < evicted {
            client.hear_last(BYE);
        } else {
            client.say("o made it\n");
            worker.settle();
            client.hear("made it\n");
        }
    }
}

fn without_descriptors_an_idler_makes_room() {
    let listeners = listen(&["127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(addrs(&listeners)[0])).collect();
    let _want = Want::but_for(OF_WORKER + 4);
    let mut worker = Worker::over(listeners);
    for (count, client) in (1..).zip(&mut clients) {
        client.say("echo made it\n");
        while worker.counters.accepted.read() < count {
            worker.settle();
        }
        worker.settle();
        client.hear("made it\n");
    }
    let evicted = worker.counters.evicted.read();
    assert!((14..20).contains(&evicted), "{:?}", worker.counters);
    clients[0].hear_last(BYE);
    clients[19].say("echo still here\n");
    worker.settle();
    clients[19].hear("still here\n");
}
