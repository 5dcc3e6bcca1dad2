//! The back end over AF_XDP, on a pair of virtual interfaces: the server in one network namespace, its clients in another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod isolation;
mod peer;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, Server, ask, settings};
use isolation::{configure, in_namespace};
use peer::Peer;
use shoal_net::{AnyIo, Backend, Counters, DatagramIo, Echo, Sockets, XdpDrop, XdpIo, XdpQueue};
use shoal_testkit::allocator::{CountingAllocator, allocations};
use shoal_xdp::frame::Head;
use shoal_xdp::interface::{Interface, Segment, Vlan, segments};
use shoal_xdp::program::{Link, Maps, Mode, Program, Sizes};
use shoal_xdp::route::permit_lookups;
use shoal_xdp::socket::{Failure, SocketSettings, XdpSocket, ZeroCopy};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const V4: &str = "192.0.2.1:6969";
const V6: &str = "[2001:db8::1]:6969";
const VLAN: &str = "198.51.100.1:6969";
const ADDRESSES: [&str; 3] = [V4, V6, VLAN];

/// An eBPF program at the interface `here`, and its maps.
struct DataPath {
    maps: Maps,
    _program: Program,
    _link: Link,
}

/// Runs a test in a namespace with the interface `here`, whose peer `there` is in the namespace of the clients.
fn with_peer(test: impl FnOnce(&Peer) + Send) {
    in_namespace(|| {
        let peer = Peer::new();
        configure(
            "ip link add here numtxqueues 1 numrxqueues 1 type veth peer name there numtxqueues 1 numrxqueues 1",
        )?;
        configure(&format!("ip link set there netns {}", peer.thread_id))?;
        configure("ip link set here up")?;
        for address in ["192.0.2.1/24", "2001:db8::1/64", "198.51.100.1/24"] {
            configure(&format!("ip addr add {address} dev here{}", nodad(address)))?;
        }
        let server_mac = mac_of("here");
        peer.run(move || {
            configure("ip link set there up").unwrap();
            for address in ["192.0.2.9/24", "2001:db8::9/64", "198.51.100.9/24"] {
                configure(&format!("ip addr add {address} dev there{}", nodad(address))).unwrap();
            }
            add_neighbours("there", ["192.0.2.1", "2001:db8::1", "198.51.100.1"], server_mac);
        });
        add_neighbours("here", ["192.0.2.9", "2001:db8::9", "198.51.100.9"], peer.run(|| mac_of("there")));
        test(&peer);
        Some(())
    });
}

/// Tells the kernel the MAC address behind an interface, as it finds it out itself before its first reply. A frame before that is its own.
fn add_neighbours(interface: &str, addresses: [&str; 3], mac: [u8; 6]) {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    for address in addresses {
        configure(&format!("ip neigh add {address} lladdr {mac} nud permanent dev {interface}")).unwrap();
    }
}

fn nodad(address: &str) -> &'static str {
    if address.contains(':') { " nodad" } else { "" }
}

/// Loads the program, which hands datagrams for the addresses to the socket of queue 0.
fn attach(interface: &str, addresses: &[&str]) -> DataPath {
    let sizes = Sizes { queues: 1, networks_max: 1, sources_max: 1, endpoints_max: 16 };
    let (program, mut maps) = Program::load(&sizes).unwrap();
    let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    maps.set_endpoints(&addresses).unwrap();
    permit_lookups().unwrap();
    maps.set_segments(&segments(index(interface)).unwrap()).unwrap();
    let link = program.attach(index(interface), Mode::Native).unwrap();
    DataPath { maps, _program: program, _link: link }
}

impl DataPath {
    fn put_in_vlan_7(&mut self, interface: &str) {
        let vlan = Some(Vlan { protocol: 0x8100, number: 7 });
        let segment = Segment { vlan, interface_index: index(interface), mac: mac_of(interface) };
        self.maps.set_segments(&[segment]).unwrap();
    }

    /// Opens the socket of queue 0, and gives it to the program.
    fn queue(&mut self, frames: u32) -> XdpQueue {
        self.queue_with(&small(frames))
    }

    fn queue_with(&mut self, settings: &SocketSettings) -> XdpQueue {
        let socket = XdpSocket::open(index("here"), 0, settings).unwrap();
        self.maps.set_socket(0, Some(socket.as_fd())).unwrap();
        XdpQueue::new(socket, self.maps.backlog(0))
    }

    /// Does so with a socket that no back end serves.
    fn use_socket_of_peer(&mut self, socket: &XdpSocket) {
        self.maps.set_socket(0, Some(socket.as_fd())).unwrap();
        self.maps.backlog(0).unwrap().set_frames_max(socket.receiving_max().into());
    }
}

fn small(frames: u32) -> SocketSettings {
    SocketSettings { frames, zero_copy: ZeroCopy::Off, busy_poll: false }
}

fn index(interface: &str) -> u32 {
    Interface::find(interface).unwrap().index
}

fn mac_of(interface: &str) -> [u8; 6] {
    Interface::find(interface).unwrap().mac
}

fn bind(addresses: &[&str]) -> Sockets {
    let settings: Vec<_> = addresses.iter().map(|address| settings(address.parse().unwrap())).collect();
    Sockets::bind(&settings, NonZeroUsize::MIN).unwrap().remove(0)
}

fn server(addresses: &[&str], queue: XdpQueue) -> Server {
    Server::run(bind(addresses), move |sockets| XdpIo::open(sockets, vec![queue]).unwrap(), Echo::default())
}

/// Waits until a counter has reached a number.
fn await_count(counters: &Arc<Counters>, expected: u64, count: impl Fn(&Counters) -> u64) {
    let reached = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        count(counters) == expected
    });
    assert!(reached, "{expected} was expected: {counters:?}");
}

#[test]
fn datagrams_are_answered_by_their_frames() {
    assert_frames_are_answered(small(64));
}

#[test]
fn a_card_can_be_polled_by_the_worker() {
    assert_frames_are_answered(SocketSettings { busy_poll: true, ..small(64) });
}

fn assert_frames_are_answered(settings: SocketSettings) {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let server = server(&[V4, V6], path.queue_with(&settings));
        for (local, address) in [("192.0.2.9:0", V4), ("[2001:db8::9]:0", V6)] {
            let client = peer.connect(local, address);
            for payload in [&b"x"[..], b"a request", &[7; 1452]] {
                assert_eq!(ask(&client, payload), payload, "{address}");
            }
        }
        let counters = Arc::clone(&server.counters);
        await_count(&counters, 6, |counters| counters.xdp.frames.read());
        assert_eq!((counters.v4.sent.read(), counters.v6.sent.read()), (3, 3));
        drop(server);
    });
}

/// Neither side has a VLAN interface, which not every kernel knows: the interface itself stands for it. The peer sends a frame as it
/// is, and receives one by a socket like that of the server.
#[test]
fn a_vlan_tag_comes_back() {
    const TAG: [u8; 4] = [0x81, 0, 0x20, 7];
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        path.put_in_vlan_7("here");
        let server = server(&[V4], path.queue(64));
        let server_mac = mac_of("here");
        let reply = peer.run(move || {
            let mut path = attach("there", &["198.51.100.9:5000"]);
            path.put_in_vlan_7("there");
            let mut queue = XdpSocket::open(index("there"), 0, &small(64)).unwrap();
            path.use_socket_of_peer(&queue);
            let head = Head {
                destination_mac: server_mac,
                source_mac: mac_of("there"),
                tag: Some(TAG),
                source: "198.51.100.9:5000".parse().unwrap(),
                destination: VLAN.parse().unwrap(),
            };
            let mut frame = vec![0; head.bytes() + 6];
            frame[head.bytes()..].copy_from_slice(b"tagged");
            head.write(&mut frame, head.bytes(), 6).unwrap();
            peer::send_frame(index("there"), &frame);
            let arrived = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                queue.receive().unwrap() == 1
            });
            assert!(arrived, "no reply");
            queue.frames().next().unwrap().received.to_vec()
        });
        assert_eq!((&reply[..6], &reply[12..16]), (&peer.run(|| mac_of("there"))[..], &TAG[..]));
        assert!(reply.ends_with(b"tagged"));
        await_count(&server.counters, 1, |counters| counters.xdp.frames.read());
    });
}

#[test]
fn frames_are_conserved() {
    const DATAGRAMS: u64 = 100_000;
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let server = server(&[V4], path.queue(256));
        let counters = Arc::clone(&server.counters);
        let client = peer.connect("192.0.2.9:0", V4);
        // As fast as it goes: what finds no room in the rings goes through the ordinary socket.
        for _ in 0..DATAGRAMS {
            client.send(&[7; 98]).unwrap();
        }
        let all = |counters: &Counters| counters.v4.received.read() + drops();
        await_count(&counters, DATAGRAMS, all);
        await_count(&counters, 256, |counters| counters.xdp.frames_free.read());
        let xdp = &counters.xdp;
        assert!(xdp.frames.read() > DATAGRAMS / 10, "{counters:?}");
        assert_eq!(
            (xdp.drops.of(XdpDrop::KernelOther).read(), xdp.drops.of(XdpDrop::KernelRingFull).read()),
            (0, 0)
        );
        assert_eq!(
            (
                xdp.drops.of(XdpDrop::BadDescriptor).read(),
                xdp.drops.of(XdpDrop::Malformed).read(),
                xdp.drops.of(XdpDrop::BadChecksum).read()
            ),
            (0, 0, 0)
        );
        assert_eq!(xdp.frames_total.read(), 256);
    });
}

/// Returns how many datagrams the kernel has dropped on the way: at the interfaces, and at the ordinary socket.
fn drops() -> u64 {
    let column = |text: &str, line: &str, name: &str| -> u64 {
        let mut lines = text.lines().filter(|candidate| candidate.starts_with(line));
        let names: Vec<_> = lines.next().unwrap().split_whitespace().map(str::to_owned).collect();
        let place = names.iter().position(|candidate| candidate == name).unwrap();
        lines.next().unwrap().split_whitespace().nth(place).unwrap().parse().unwrap()
    };
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    column(&snmp, "Udp:", "RcvbufErrors")
}

#[test]
fn a_ring_that_is_not_drained_loses_nothing() {
    // The replies fit the receive buffer of the client.
    const DATAGRAMS: usize = 150;
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let queue = path.queue(64);
        let sockets = bind(&[V4]);
        let counters = sockets.counters();
        let mut io = XdpIo::open(sockets, vec![queue]).unwrap();
        let client = peer.connect("192.0.2.9:0", V4);
        for number in 0..DATAGRAMS {
            client.send(&number.to_be_bytes()).unwrap();
        }
        // Those that the rings have no room for wait in the ordinary socket.
        io.drain(&mut Echo::default(), || true).unwrap();
        let mut replies: Vec<usize> = (0..DATAGRAMS)
            .map(|_| usize::from_be_bytes(common::receive(&client).try_into().unwrap()))
            .collect();
        replies.sort_unstable();
        assert_eq!(replies, (0..DATAGRAMS).collect::<Vec<_>>());
        let by_frames = counters.xdp.frames.read();
        assert!((32..DATAGRAMS as u64).contains(&by_frames), "{by_frames}");
        // And then frames are used again.
        client.send(b"more").unwrap();
        io.drain(&mut Echo::default(), || true).unwrap();
        assert_eq!(common::receive(&client), b"more");
        assert_eq!(counters.xdp.frames.read(), by_frames + 1);
    });
}

#[test]
fn what_the_kernel_drops_is_counted() {
    const DATAGRAMS: u64 = 150;
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let socket = XdpSocket::open(index("here"), 0, &small(64)).unwrap();
        path.use_socket_of_peer(&socket);
        // The program hands over more than there is room for.
        path.maps.backlog(0).unwrap().set_frames_max(u64::MAX);
        let sockets = bind(&[V4]);
        let counters = sockets.counters();
        let mut io = XdpIo::open(sockets, vec![XdpQueue::new(socket, None)]).unwrap();
        let client = peer.connect("192.0.2.9:0", V4);
        for _ in 0..DATAGRAMS {
            client.send(b"datagram").unwrap();
        }
        io.drain(&mut Echo::default(), || true).unwrap();
        // A wait without frames makes it ask the kernel.
        assert_eq!(io.poll(Duration::from_millis(1), &mut Echo::default()).unwrap(), 0);
        let xdp = &counters.xdp;
        let dropped =
            xdp.drops.of(XdpDrop::KernelOther).read() + xdp.drops.of(XdpDrop::KernelRingFull).read();
        assert!(dropped > 0, "{counters:?}");
        assert_eq!(xdp.frames.read() + dropped, DATAGRAMS, "{counters:?}");
        assert_eq!(xdp.frames_free.read(), 64);
    });
}

#[test]
fn wrong_checksums_are_not_answered() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let server = server(&[V4], path.queue(64));
        let client = peer.connect("192.0.2.9:0", V4);
        let source = client.local_addr().unwrap();
        let server_mac = mac_of("here");
        peer.run(move || {
            let head = Head {
                destination_mac: server_mac,
                source_mac: mac_of("there"),
                tag: None,
                source,
                destination: V4.parse().unwrap(),
            };
            let mut frame = vec![7; head.bytes() + 30];
            head.write(&mut frame, head.bytes(), 30).unwrap();
            frame[head.bytes()] ^= 1;
            peer::send_frame(index("there"), &frame);
        });
        await_count(&server.counters, 1, |counters| counters.xdp.frames.read());
        assert_eq!(ask(&client, b"right"), b"right");
        await_count(&server.counters, 1, |counters| counters.xdp.drops.of(XdpDrop::BadChecksum).read());
        assert_eq!(server.counters.v4.received.read(), 1);
        await_count(&server.counters, 64, |counters| counters.xdp.frames_free.read());
    });
}

#[test]
fn an_interface_that_was_down_serves_again() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let server = server(&[V4], path.queue(1024));
        let backlog = path.maps.backlog(0).unwrap();
        let frames_max = backlog.frames_max();
        let client = peer.connect("192.0.2.9:0", V4);
        assert_eq!(ask(&client, b"before"), b"before");
        configure("ip link set here down").unwrap();
        for _ in 0..200 {
            let _ = client.send(b"into the void");
        }
        configure("ip link set here up").unwrap();
        assert_answered_again(&client);
        // Sockets answer until the kernel knows the way back to the client.
        let before = server.counters.xdp.frames.read();
        let is_back = (0..1000).any(|_| {
            assert_eq!(ask(&client, b"after"), b"after");
            std::thread::sleep(Duration::from_millis(5));
            server.counters.xdp.frames.read() > before
        });
        assert!(is_back, "{:?}", server.counters);
        assert_eq!(server.counters.xdp.lost.read(), 0);
        assert_eq!(backlog.frames_max(), frames_max);
    });
}

#[test]
fn few_frames_try_a_way_on_which_none_arrives() {
    with_peer(|peer| {
        configure("ip link set lo up").unwrap();
        let mut path = attach("here", &ADDRESSES);
        // The kernel passes no frame of an interface to a socket of another one, and does not count it there.
        let socket = XdpSocket::open(index("lo"), 0, &small(1024)).unwrap();
        path.maps.set_socket(0, Some(socket.as_fd())).unwrap();
        let backlog = path.maps.backlog(0).unwrap();
        let server = server(&[V4], XdpQueue::new(socket, path.maps.backlog(0)));
        let frames_max = backlog.frames_max();
        let client = peer.connect("192.0.2.9:0", V4);
        // Each is lost, or answered by the ordinary socket.
        let mut sent = 0;
        let mut send = |datagrams: u64| {
            (0..datagrams).for_each(|_| assert_eq!(client.send(b"datagram").unwrap(), 8));
            sent += datagrams;
            sent
        };
        while backlog.frames_max() == frames_max {
            assert!(send(10) < 10_000, "{frames_max} frames may still be on their way");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(backlog.redirected() >= frames_max, "{}", backlog.redirected());
        let before = backlog.redirected();
        let sent = send(500);
        await_count(&server.counters, sent, |counters| counters.v4.received.read() + backlog.redirected());
        assert!(backlog.redirected() < before + 200, "{} after {before}", backlog.redirected());
    });
}

/// A virtual interface takes a moment until it carries frames. Replies to earlier attempts are passed over.
fn assert_answered_again(client: &std::net::UdpSocket) {
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let answered = (0..50).any(|_| client.send(b"again").is_ok() && client.recv(&mut [0; 16]).is_ok());
    assert!(answered);
    while client.recv(&mut [0; 16]).is_ok() {}
    client.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn the_ordinary_sockets_go_on_when_an_interface_vanishes() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let queue = path.queue(64);
        let loss = queue.loss();
        let server = server(&[V4, "127.0.0.1:0"], queue);
        let client = peer.connect("192.0.2.9:0", V4);
        assert_eq!(ask(&client, b"by a frame"), b"by a frame");
        assert!(loss.reason().is_none());
        configure("ip link del here").unwrap();
        let local = common::connect(server.addrs[1]);
        let is_lost = (0..1000).any(|_| {
            assert_eq!(ask(&local, b"by a socket"), b"by a socket");
            server.counters.xdp.lost.read() == 1
        });
        assert!(is_lost);
        assert!(matches!(loss.reason(), Some(Failure::InterfaceGone)));
    });
}

#[test]
fn both_are_served_while_the_other_is_saturated() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let server = server(&[V4, "127.0.0.1:0"], path.queue(256));
        let (stop, flood) =
            (Arc::new(std::sync::atomic::AtomicBool::new(false)), peer.connect("192.0.2.9:0", V4));
        let local = common::connect(server.addrs[1]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = flood.send(&[7; 98]);
                }
            });
            // The flood takes a moment to begin.
            let is_flooded = (0..100_000).any(|number| {
                assert_eq!(ask(&local, b"by a socket"), b"by a socket");
                number >= 20 && server.counters.xdp.frames.read() > 1000
            });
            assert!(is_flooded);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

#[test]
fn both_collect_and_are_served_after_the_wait() {
    const ROUNDS: u64 = 20;
    with_peer(|peer| {
        // The other family goes through the ordinary socket.
        let mut path = attach("here", &[V4]);
        let sockets = bind(&[V4, V6]);
        let (waker, counters) = (sockets.waker(), sockets.counters());
        let mut io = XdpIo::open(sockets, vec![path.queue(64)]).unwrap();
        let clients = [peer.connect("192.0.2.9:0", V4), peer.connect("[2001:db8::9]:0", V6)];
        let mut at_once = 0;
        for sent in 1..=ROUNDS {
            for client in &clients {
                client.send(b"collected").unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
            waker.wake();
            // Without the wake it would wait forever.
            io.coalesce(Duration::MAX).unwrap();
            io.poll(PATIENCE, &mut Echo::default()).unwrap();
            let is_at_once = [&counters.v4, &counters.v6].iter().all(|family| family.received.read() == sent);
            at_once += u64::from(is_at_once);
        }
        // On a busy machine, some datagrams arrive later.
        assert!(at_once > ROUNDS / 2, "{at_once} of {ROUNDS} rounds served both: {counters:?}");
        assert!(counters.xdp.frames.read() > 0, "{counters:?}");
    });
}

#[test]
fn a_worker_is_woken() {
    with_peer(|_peer| {
        let mut path = attach("here", &ADDRESSES);
        let queue = path.queue(64);
        let sockets = bind(&[V4]);
        let waker = sockets.waker();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let mut io = XdpIo::open(sockets, vec![queue]).unwrap();
                io.poll(Duration::from_secs(3600), &mut Echo::default()).unwrap()
            });
            waker.wake();
            assert_eq!(waiting.join().unwrap(), 0);
        });
    });
}

#[test]
fn a_socket_is_handed_over() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let queue = path.queue(64);
        let parts = queue.socket().parts().unwrap();
        let sockets = bind(&[V4]);
        let (counters, again) = (sockets.counters(), sockets.clone());
        let mut io = XdpIo::open(sockets, vec![queue]).unwrap();
        let client = peer.connect("192.0.2.9:0", V4);
        for round in 0..200_u32 {
            client.send(&round.to_be_bytes()).unwrap();
            io.poll(PATIENCE, &mut Echo::default()).unwrap();
            assert_eq!(common::receive(&client), round.to_be_bytes());
        }
        io.pause(&mut Echo::default()).unwrap();
        // Frames that arrive meanwhile wait in the ring.
        client.send(b"between").unwrap();
        let socket = XdpSocket::from_parts(parts, false).unwrap();
        assert!(socket.is_consistent());
        assert_eq!((socket.owned().free, socket.owned().total()), (32, 64));
        let queue = XdpQueue::new(socket, path.maps.backlog(0));
        let mut other = XdpIo::open(again, vec![queue]).unwrap();
        drop(io);
        other.poll(PATIENCE, &mut Echo::default()).unwrap();
        assert_eq!(common::receive(&client), b"between");
        for round in 0..200_u32 {
            client.send(&round.to_be_bytes()).unwrap();
            other.poll(PATIENCE, &mut Echo::default()).unwrap();
            assert_eq!(common::receive(&client), round.to_be_bytes());
        }
        other.poll(Duration::ZERO, &mut Echo::default()).unwrap();
        assert_eq!(counters.xdp.frames.read(), 401);
        assert_eq!(counters.xdp.frames_free.read(), 64);
    });
}

#[test]
fn a_worker_changes_its_ordinary_sockets() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let client = peer.connect("192.0.2.9:0", V4);
        let prepared = Backend::Mmsg.prepare(bind(&[V4])).unwrap();
        let mut io = prepared.with_xdp(vec![path.queue(64)]).open().unwrap();
        for payload in [b"one", b"two"] {
            client.send(payload).unwrap();
            io.poll(PATIENCE, &mut Echo::default()).unwrap();
            assert_eq!(common::receive(&client), payload);
            io.pause(&mut Echo::default()).unwrap();
            let mut queues = io.take_xdp();
            assert_eq!(queues[0].socket().owned().transmitting, 0);
            queues[0].recover();
            assert!(queues[0].socket().is_consistent());
            let prepared = Backend::Mmsg.prepare(bind(&["127.0.0.1:0"])).unwrap();
            io = prepared.with_xdp(queues).open().unwrap();
        }
        assert!(matches!(io, AnyIo::Xdp(_)));
    });
}

#[test]
fn polls_allocate_nothing() {
    with_peer(|peer| {
        let mut path = attach("here", &ADDRESSES);
        let queue = path.queue(64);
        let sockets = bind(&[V4]);
        let counters = sockets.counters();
        let mut io = XdpIo::open(sockets, vec![queue]).unwrap();
        let client = peer.connect("192.0.2.9:0", V4);
        let before = allocations();
        for _ in 0..50 {
            // More than the rings hold, and less than a client's receive buffer holds of replies.
            for _ in 0..100 {
                client.send(&[7; 98]).unwrap();
            }
            io.poll(PATIENCE, &mut Echo::default()).unwrap();
            io.drain(&mut Echo::default(), || true).unwrap();
            for _ in 0..100 {
                client.recv(&mut [0; 98]).unwrap();
            }
        }
        io.poll(Duration::from_millis(1), &mut Echo::default()).unwrap();
        io.pause(&mut Echo::default()).unwrap();
        assert_eq!(allocations() - before, 0);
        assert_eq!(counters.v4.received.read(), 5000);
    });
}
