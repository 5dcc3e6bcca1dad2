//! The duties of a back end, each over real loopback sockets, and each over every back end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Kind, PATIENCE, Server, ask, bind, bind_one, connect, connect_from, receive, settings};
use shoal_base::transport::datagram::{BATCH_MAX, DatagramService, Exchange, REPLY_BYTES_MAX};
use shoal_net::{
    DatagramIo, Echo, InheritedSockets, POLL_BATCHES_MAX, REQUEST_BYTES_MAX, Sockets, TaskRun, Unread,
    UringIo, UringSettings,
};

over_every_back_end! {
    both_families_at_once,
    ten_thousand_datagrams_and_none_lost,
    replies_leave_from_the_v4_address_asked,
    replies_leave_from_the_v6_address_asked,
    requests_of_every_length,
    a_request_without_reply,
    a_source_that_closed_its_port_affects_no_other,
    a_flood_over_v4_leaves_v6_its_turn,
    a_flood_over_v6_leaves_v4_its_turn,
    a_poll_under_flood_ends,
    a_wake_ends_a_poll,
    a_wake_before_the_poll_counts,
    an_idle_poll_times_out,
    datagrams_collect_until_a_wake,
    a_wake_while_datagrams_collect_ends_the_next_poll,
    a_time_to_collect_ends,
    drain_serves_what_is_queued,
    drain_under_flood_ends,
    an_address_is_free_again_at_once,
    an_address_is_free_again_under_flood,
    workers_share_a_port,
    many_sockets,
    a_change_of_addresses_loses_nothing,
}

const BOTH: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// Answers with the length of the request, so that even an empty one has a reply.
struct Measure;

impl DatagramService for Measure {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        assert!((1..=BATCH_MAX).contains(&batch.len()));
        for exchange in batch {
            let length = u32::try_from(exchange.request.len()).unwrap().to_be_bytes();
            exchange.reply[..4].copy_from_slice(&length);
            exchange.reply_len = 4;
        }
    }
}

/// Answers nothing, and records what it received.
#[derive(Default)]
struct Listen {
    sources: Vec<SocketAddr>,
}

impl DatagramService for Listen {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.sources.extend(batch.iter().map(|exchange| exchange.source));
    }
}

fn a_change_of_addresses_loses_nothing(kind: Kind) {
    let before = bind_one(&BOTH);
    let staying = before.local_addrs().next().unwrap();
    let mut io = kind.open(before.clone());
    let client = connect(staying);
    client.send(b"taken").unwrap();
    io.poll(PATIENCE, &mut Echo::default()).unwrap();
    client.send(b"waits").unwrap();
    io.pause(&mut Echo::default()).unwrap();
    let wanted = [settings("127.0.0.2:0".parse().unwrap()), settings(staying)];
    let mut given = InheritedSockets::default();
    for socket in Sockets::bind_for_others(&wanted[0], NonZeroUsize::MIN).unwrap() {
        given.add("new".to_owned(), socket).unwrap();
    }
    let after = Sockets::change(&[before], &wanted, &given).unwrap().remove(0);
    let addrs: Vec<_> = after.local_addrs().collect();
    assert_eq!((addrs[0].ip().to_string(), addrs[1]), ("127.0.0.2".to_owned(), staying));
    assert_eq!(after.own_descriptors().count(), 2);
    drop(io);
    let _server = Server::run(after, move |sockets| kind.open(sockets), Echo::default());
    assert_eq!((receive(&client), receive(&client)), (b"taken".to_vec(), b"waits".to_vec()));
    assert_eq!(ask(&client, b"again"), b"again");
    let new = connect_from("127.0.0.2:0", addrs[0]);
    assert_eq!(ask(&new, b"hello"), b"hello");
}

fn both_families_at_once(kind: Kind) {
    let server = Server::start(kind, &BOTH, Echo::default());
    let clients: Vec<_> = server.addrs.iter().map(|addr| connect(*addr)).collect();
    for round in 0..100_u32 {
        for client in &clients {
            client.send(&round.to_be_bytes()).unwrap();
        }
        for client in &clients {
            assert_eq!(receive(client), round.to_be_bytes());
        }
    }
    for family in [&server.counters.v4, &server.counters.v6] {
        assert_eq!(family.received.read(), 100);
    }
}

fn ten_thousand_datagrams_and_none_lost(kind: Kind) {
    const COUNT: u32 = 10_000;
    const WINDOW: u32 = 100;
    let server = Server::start(kind, &BOTH, Echo::default());
    for addr in &server.addrs {
        let client = connect(*addr);
        let mut seen = vec![false; COUNT as usize];
        for number in 0..COUNT + WINDOW {
            if number < COUNT {
                client.send(&number.to_be_bytes()).unwrap();
            }
            if number >= WINDOW {
                let reply = u32::from_be_bytes(receive(&client).try_into().unwrap());
                let again = std::mem::replace(&mut seen[reply as usize], true);
                assert!(!again, "a second reply to request {reply}");
            }
        }
        assert!(seen.iter().all(|seen| *seen));
    }
    let counters = &server.counters;
    assert_eq!(counters.v4.received.read() + counters.v6.received.read(), 2 * u64::from(COUNT));
    assert!(counters.batches.read() <= 2 * u64::from(COUNT));
}

/// A connected client receives only from the address that it sent to.
fn replies_leave_from_the_v4_address_asked(kind: Kind) {
    let server = Server::start(kind, &["0.0.0.0:0"], Echo::default());
    let port = server.addrs[0].port();
    for ip in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]] {
        let client = connect_from("127.0.0.9:0", SocketAddr::from((ip, port)));
        assert_eq!(ask(&client, &ip), ip);
    }
}

/// The loopback has only one IPv6 address; `namespace.rs` tries others.
fn replies_leave_from_the_v6_address_asked(kind: Kind) {
    let server = Server::start(kind, &["[::]:0"], Echo::default());
    let client = connect(format!("[::1]:{}", server.addrs[0].port()).parse().unwrap());
    assert_eq!(ask(&client, b"hello"), b"hello");
}

fn requests_of_every_length(kind: Kind) {
    const LONGEST_OF_UDP: usize = 65_507;
    let server = Server::start(kind, &BOTH, Measure);
    let served = [0, 1, 16, 98, REPLY_BYTES_MAX, REQUEST_BYTES_MAX - 1, REQUEST_BYTES_MAX];
    let dropped = [REQUEST_BYTES_MAX + 1, 9000, LONGEST_OF_UDP];
    for addr in &server.addrs {
        let client = connect(*addr);
        for (length, too_long) in served.into_iter().zip(dropped.into_iter().cycle()) {
            client.send(&vec![7; too_long]).unwrap();
            assert_eq!(ask(&client, &vec![7; length]), u32::try_from(length).unwrap().to_be_bytes());
        }
    }
    for family in [&server.counters.v4, &server.counters.v6] {
        assert_eq!(family.unread.of(Unread::Oversized).read(), served.len() as u64);
        assert_eq!(family.received.read(), served.len() as u64);
    }
}

fn a_request_without_reply(kind: Kind) {
    let sockets = bind_one(&BOTH);
    let (addrs, counters): (Vec<_>, _) = (sockets.local_addrs().collect(), sockets.counters());
    let mut io = kind.open(sockets);
    let mut service = Listen::default();
    let clients: Vec<_> = addrs.iter().map(|addr| connect(*addr)).collect();
    for client in &clients {
        client.send(b"hello").unwrap();
    }
    while service.sources.len() < clients.len() {
        assert_ne!(io.poll(PATIENCE, &mut service).unwrap(), 0);
    }
    service.sources.sort();
    let sources: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
    assert_eq!(service.sources, sources);
    assert_eq!((counters.v4.sent.read(), counters.v6.sent.read()), (0, 0));
}

fn a_source_that_closed_its_port_affects_no_other(kind: Kind) {
    let server = Server::start(kind, &BOTH, Echo::default());
    for addr in &server.addrs {
        let client = connect(*addr);
        for _ in 0..50 {
            let gone = connect(*addr);
            gone.send(b"farewell").unwrap();
            drop(gone);
            assert_eq!(ask(&client, b"still there?"), b"still there?");
        }
    }
}

fn a_flood_over_v4_leaves_v6_its_turn(kind: Kind) {
    let server = Server::start(kind, &BOTH, Echo::default());
    other_is_served_under_flood(server.addrs[0], server.addrs[1]);
}

fn a_flood_over_v6_leaves_v4_its_turn(kind: Kind) {
    let server = Server::start(kind, &BOTH, Echo::default());
    other_is_served_under_flood(server.addrs[1], server.addrs[0]);
}

fn other_is_served_under_flood(flooded: SocketAddr, other: SocketAddr) {
    let _flood = Flood::start(flooded);
    let client = connect(other);
    client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    for round in 0..200_u32 {
        assert_eq!(ask(&client, &round.to_be_bytes()), round.to_be_bytes());
    }
}

fn a_poll_under_flood_ends(kind: Kind) {
    let sockets = bind_one(&BOTH);
    let addrs: Vec<_> = sockets.local_addrs().collect();
    let mut io = kind.open(sockets);
    let _floods: Vec<_> = addrs.iter().map(|addr| Flood::start(*addr)).collect();
    for _ in 0..100 {
        let taken = io.poll(PATIENCE, &mut Echo::default()).unwrap();
        assert!(taken <= POLL_BATCHES_MAX * BATCH_MAX * addrs.len(), "{taken} datagrams in one turn");
    }
}

fn a_wake_ends_a_poll(kind: Kind) {
    let sockets = bind_one(&BOTH);
    let waker = sockets.waker();
    let mut io = kind.open(sockets);
    for _ in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                waker.wake();
            });
            // Without the wake it would wait forever.
            assert_eq!(io.poll(Duration::MAX, &mut Echo::default()).unwrap(), 0);
        });
    }
}

fn a_wake_before_the_poll_counts(kind: Kind) {
    let sockets = bind_one(&BOTH);
    let waker = sockets.waker();
    let mut io = kind.open(sockets);
    for _ in 0..10 {
        waker.wake();
        waker.clone().wake();
        assert_eq!(io.poll(Duration::MAX, &mut Echo::default()).unwrap(), 0);
    }
}

fn an_idle_poll_times_out(kind: Kind) {
    let mut io = kind.open(bind_one(&BOTH));
    for timeout in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(20)] {
        assert_eq!(io.poll(timeout, &mut Echo::default()).unwrap(), 0);
    }
}

fn datagrams_collect_until_a_wake(kind: Kind) {
    const COUNT: usize = 10;
    let sockets = bind_one(&BOTH);
    let (addrs, counters): (Vec<_>, _) = (sockets.local_addrs().collect(), sockets.counters());
    let waker = sockets.waker();
    let mut io = kind.open(sockets);
    // The receives of a ring begin with its first round.
    io.poll(Duration::ZERO, &mut Listen::default()).unwrap();
    let has_woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let clients: Vec<_> = addrs.iter().map(|addr| connect(*addr)).collect();
            for _ in 0..COUNT {
                clients.iter().for_each(|client| assert_eq!(client.send(b"collected").unwrap(), 9));
            }
            std::thread::sleep(Duration::from_millis(20));
            has_woken.store(true, Ordering::Release);
            waker.wake();
        });
        // Without the wake it would wait forever.
        io.coalesce(Duration::MAX).unwrap();
        assert!(has_woken.load(Ordering::Acquire), "a datagram has ended the wait");
    });
    // The wake ends the next wait as well.
    let mut served = io.poll(Duration::MAX, &mut Listen::default()).unwrap();
    while served < addrs.len() * COUNT {
        served += io.poll(PATIENCE, &mut Listen::default()).unwrap();
    }
    assert!(counters.batches.read() < COUNT as u64, "{} batches", counters.batches.read());
}

fn a_wake_while_datagrams_collect_ends_the_next_poll(kind: Kind) {
    let sockets = bind_one(&BOTH);
    let waker = sockets.waker();
    let mut io = kind.open(sockets);
    for _ in 0..10 {
        waker.wake();
        io.coalesce(Duration::MAX).unwrap();
        assert_eq!(io.poll(Duration::MAX, &mut Echo::default()).unwrap(), 0);
    }
}

fn a_time_to_collect_ends(kind: Kind) {
    let mut io = kind.open(bind_one(&BOTH));
    for time in [Duration::ZERO, Duration::from_micros(50), Duration::from_millis(20)] {
        io.coalesce(time).unwrap();
    }
}

fn drain_serves_what_is_queued(kind: Kind) {
    const COUNT: usize = 500;
    let sockets = bind_one(&BOTH);
    let (addrs, counters): (Vec<_>, _) = (sockets.local_addrs().collect(), sockets.counters());
    let mut io = kind.open(sockets);
    let clients: Vec<_> = addrs.iter().map(|addr| connect(*addr)).collect();
    for client in &clients {
        for _ in 0..COUNT {
            client.send(b"before the end").unwrap();
        }
    }
    io.drain(&mut Measure, || true).unwrap();
    for family in [&counters.v4, &counters.v6] {
        assert_eq!(family.received.read(), COUNT as u64);
    }
    drop(io);
    for family in [&counters.v4, &counters.v6] {
        assert_eq!(family.sent.read(), COUNT as u64);
    }
}

fn drain_under_flood_ends(kind: Kind) {
    let sockets = bind_one(&BOTH[..1]);
    let (addr, counters) = (sockets.local_addrs().next().unwrap(), sockets.counters());
    let mut io = kind.open(sockets);
    let _flood = Flood::start(addr);
    let mut polls = 0;
    let few_turns = || {
        polls += 1;
        polls < 64
    };
    io.drain(&mut Echo::default(), few_turns).unwrap();
    let served_max = 64 * POLL_BATCHES_MAX * BATCH_MAX;
    assert!(counters.v4.received.read() <= served_max as u64);
}

fn an_address_is_free_again_at_once(kind: Kind) {
    let mut port = 0;
    for _ in 0..20 {
        let sockets = bind_one(&[&format!("127.0.0.1:{port}")]);
        let addr = sockets.local_addrs().next().unwrap();
        port = addr.port();
        let mut io = kind.open(sockets);
        connect(addr).send(b"never answered").unwrap();
        io.poll(PATIENCE, &mut Echo::default()).unwrap();
    }
}

fn an_address_is_free_again_under_flood(kind: Kind) {
    let mut addr = "127.0.0.1:0".to_owned();
    let mut flood = None;
    for _ in 0..20 {
        let sockets = bind_one(&[&addr]);
        let bound = sockets.local_addrs().next().unwrap();
        addr = bound.to_string();
        let mut io = kind.open(sockets);
        flood.get_or_insert_with(|| Flood::start(bound));
        assert!(io.poll(PATIENCE, &mut Echo::default()).unwrap() > 0);
    }
}

fn workers_share_a_port(kind: Kind) {
    let workers = bind(&BOTH, 2).unwrap();
    let start = |sockets| Server::run(sockets, move |sockets| kind.open(sockets), Echo::default());
    let servers: Vec<_> = workers.into_iter().map(start).collect();
    assert_eq!(servers[0].addrs, servers[1].addrs);
    for addr in &servers[0].addrs {
        for _ in 0..100 {
            assert_eq!(ask(&connect(*addr), b"who?"), b"who?");
        }
    }
    for server in &servers {
        for family in [&server.counters.v4, &server.counters.v6] {
            assert!((10..=90).contains(&family.received.read()), "{family:?}");
        }
    }
}

fn many_sockets(kind: Kind) {
    let server = Server::start(kind, &["127.0.0.1:0"; shoal_net::SOCKETS_MAX], Echo::default());
    let clients: Vec<_> = server.addrs.iter().map(|addr| connect(*addr)).collect();
    for client in &clients {
        client.send(&client.local_addr().unwrap().port().to_be_bytes()).unwrap();
    }
    for client in &clients {
        assert_eq!(receive(client), client.local_addr().unwrap().port().to_be_bytes());
    }
}

/// Only io_uring has receive buffers that can be exhausted.
#[test]
fn uring_recovers_from_exhausted_receive_buffers() {
    const COUNT: usize = 2000;
    if !Kind::Uring(TaskRun::Deferred).works() {
        return;
    }
    for task_run in [TaskRun::Deferred, TaskRun::Cooperative] {
        let settings = UringSettings { receive_buffers: 4, send_slots: 2, task_run };
        let sockets = bind_one(&BOTH);
        let (addrs, counters): (Vec<_>, _) = (sockets.local_addrs().collect(), sockets.counters());
        let mut io = UringIo::open(sockets, &settings).unwrap();
        let clients: Vec<_> = addrs.iter().map(|addr| connect(*addr)).collect();
        for _ in 0..COUNT {
            for client in &clients {
                client.send(b"one of many").unwrap();
            }
        }
        // A drain is bounded, and poll rounds are small here.
        while io.poll(Duration::from_millis(100), &mut Echo::default()).unwrap() > 0 {}
        assert!(counters.pool_exhausted.read() > 0);
        for family in [&counters.v4, &counters.v6] {
            assert_eq!(family.received.read(), COUNT as u64);
            assert_eq!(family.sent.read(), COUNT as u64);
        }
        assert_eq!(connect_and_ask(addrs[0], &mut io), b"after all");
    }
}

fn connect_and_ask(addr: SocketAddr, io: &mut UringIo) -> Vec<u8> {
    let client = connect(addr);
    client.send(b"after all").unwrap();
    io.poll(PATIENCE, &mut Echo::default()).unwrap();
    receive(&client)
}

/// Sends as fast as it can, and never reads a reply.
struct Flood {
    stop: Arc<AtomicBool>,
}

impl Flood {
    fn start(target: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked_to_stop, client): (_, UdpSocket) = (Arc::clone(&stop), connect(target));
        std::thread::spawn(move || {
            while !asked_to_stop.load(Ordering::Relaxed) {
                // This fails once the server is gone, shortly before the end of the test.
                let _ = client.send(&[0; 98]);
            }
        });
        // The flood must be at its full rate before anything is measured.
        std::thread::sleep(Duration::from_millis(50));
        Self { stop }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
