//! The back end over AF_XDP, on a pair of virtual interfaces: the server in one network namespace, its clients in another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod isolation;
mod peer;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, Server, ask, settings};
use isolation::{configure, in_namespace};
use peer::Peer;
use shoal_net::{Counters, DatagramIo, Echo, Sockets, XdpIo, XdpQueue};
use shoal_xdp::program::{Link, Maps, Mode, Program, Sizes};
use shoal_xdp::socket::{SocketSettings, XdpSocket, ZeroCopy};

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
        for address in ["192.0.2.1/24", "2001:db8::1/64"] {
            configure(&format!("ip addr add {address} dev here{}", nodad(address)))?;
        }
        peer.run(|| {
            configure("ip link set there up").unwrap();
            for address in ["192.0.2.9/24", "2001:db8::9/64"] {
                configure(&format!("ip addr add {address} dev there{}", nodad(address))).unwrap();
            }
        });
        test(&peer);
        Some(())
    });
}

fn nodad(address: &str) -> &'static str {
    if address.contains(':') { " nodad" } else { "" }
}

/// Loads the program, which hands datagrams for the addresses to the socket of queue 0.
fn attach() -> DataPath {
    let sizes = Sizes { queues: 1, networks_max: 1, sources_max: 1, endpoints_max: 16 };
    let (program, mut maps) = Program::load(&sizes).unwrap();
    let addresses: Vec<SocketAddr> = ADDRESSES.iter().map(|address| address.parse().unwrap()).collect();
    maps.set_endpoints(&addresses).unwrap();
    let link = program.attach(index(), Mode::Native).unwrap();
    DataPath { maps, _program: program, _link: link }
}

impl DataPath {
    /// Opens the socket of queue 0, and gives it to the program.
    fn queue(&mut self, frames: u32) -> XdpQueue {
        let settings = SocketSettings { frames, zero_copy: ZeroCopy::Off, busy_poll: false };
        self.use_socket(XdpSocket::open(index(), 0, &settings).unwrap())
    }

    fn use_socket(&mut self, socket: XdpSocket) -> XdpQueue {
        self.maps.set_socket(0, Some(std::os::fd::AsFd::as_fd(&socket))).unwrap();
        XdpQueue::new(socket, self.maps.backlog(0))
    }
}

fn index() -> u32 {
    let listing = isolation::run("ip -o link show here").unwrap();
    listing.split(':').next().unwrap().parse().unwrap()
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
    with_peer(|peer| {
        let mut path = attach();
        let server = server(&[V4, V6], path.queue(64));
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
