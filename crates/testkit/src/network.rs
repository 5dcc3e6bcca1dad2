//! Two network namespaces, joined by a pair of virtual interfaces, for the duration of a test. They need root.
#![allow(
    unsafe_code,
    reason = "unshare changes what the thread sees, and a packet socket is bound by a pointer"
)]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

pub mod vlan;

use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, ipproto, socket};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A namespace, with one end of the pair.
#[derive(Debug)]
pub struct Side {
    /// The name of the interface.
    pub device: &'static str,
    /// The index of the interface.
    pub index: u32,
    /// Holds the namespace.
    namespace: File,
}

impl Side {
    fn new(device: &'static str) -> Self {
        let unshared = || {
            // SAFETY: the flag changes the network of this thread only; descriptors stay shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("these tests need root");
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        let namespace = thread::scope(|scope| scope.spawn(unshared).join()).unwrap();
        Self { device, index: 0, namespace }
    }

    /// Returns the side of an interface in the namespace of another process, which holds it.
    pub fn of_process(id: &str, device: &'static str) -> Self {
        let namespace = File::open(format!("/proc/{id}/ns/net")).unwrap();
        let mut side = Self { device, index: 0, namespace };
        side.index = side.index_of(device);
        side
    }

    fn index_of(&self, device: &str) -> u32 {
        self.run(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            name_to_index(socket, device).unwrap()
        })
    }

    /// Runs a job on a thread in the namespace. The sockets that it opens belong to the namespace.
    #[track_caller]
    pub fn run<R: Send>(&self, job: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            job()
        };
        thread::scope(|scope| scope.spawn(inside).join()).expect("see above")
    }

    /// Runs a command in the namespace.
    #[track_caller]
    pub fn command(&self, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        let output = self.run(|| command.output()).unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }

    /// Returns a path of the namespace, for other processes.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }
}

/// Moves this thread into a new namespace, all of whose routes lead by the interface `server` to a gateway with this MAC address. Returns
/// the index of the interface.
pub fn enter_behind(gateway_mac: &str) -> u32 {
    // SAFETY: the flag changes the network of this thread only; descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("these tests need root");
    for line in [
        "link set lo up",
        "link add server type veth peer name client",
        "link set server up",
        "link set client up",
        "addr add 100.64.0.1/24 dev server",
        "addr add fd00::1/64 dev server nodad",
        &format!("neigh add 100.64.0.2 lladdr {gateway_mac} dev server"),
        &format!("neigh add fd00::2 lladdr {gateway_mac} dev server"),
        "route add default via 100.64.0.2",
        "route add default via fd00::2",
    ] {
        ip(line);
    }
    name_to_index(UdpSocket::bind("127.0.0.1:0").unwrap(), "server").unwrap()
}

/// Runs a command of `ip` in the namespace of this thread.
#[track_caller]
pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {line}: {output:?}");
}

/// Runs a test between two namespaces. The kernel removes them, and the interfaces, with their last descriptor.
pub fn between_two(test: impl FnOnce(&Side, &Side)) {
    let [mut server, mut client] = ["server", "client"].map(Side::new);
    join(&server, &client, "");
    for side in [&mut server, &mut client] {
        side.command("ip link set lo up");
        side.index = side.index_of(side.device);
    }
    test(&server, &client);
}

/// Joins two namespaces by a new pair of interfaces. `queues` are the numbers of queues of the server's end, as `ip link add` takes
/// them, or "".
#[track_caller]
pub fn join(server: &Side, client: &Side, queues: &str) {
    let path = client.path();
    let words = if queues.is_empty() { String::new() } else { format!("{queues} ") };
    server.command(&format!("ip link add server {words}type veth peer name client netns {path}"));
}

/// Returns a socket that sends and receives the whole frames of an interface of this namespace (`packet(7)`).
pub fn packet_socket(index: u32) -> OwnedFd {
    const ETH_P_ALL: u16 = 3;
    let socket = socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap();
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET.try_into().unwrap(),
        sll_protocol: ETH_P_ALL.to_be(),
        sll_ifindex: index.try_into().unwrap(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of_val(&address).try_into().unwrap();
    // SAFETY: the kernel reads the address, which is as long as `bytes` says, and keeps no pointer to it.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// Sends an echo request of ICMP, and waits for the reply.
pub fn ping(ip: IpAddr) {
    let (family, protocol, kind, reply_kind) = match ip {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129),
    };
    let socket = UdpSocket::from(socket(family, SocketType::RAW, Some(protocol)).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    rustix::net::connect(&socket, &SocketAddr::new(ip, 0)).unwrap();
    // The kernel writes the checksum of ICMPv6 itself.
    let sum = if ip.is_ipv4() { !(8_u16 << 8) } else { 0 };
    let [high, low] = sum.to_be_bytes();
    socket.send(&[kind, 0, high, low, 0, 0, 0, 0]).unwrap();
    let mut received = [0; 100];
    loop {
        socket.recv(&mut received).expect("an echo");
        let head_bytes = if ip.is_ipv4() { 20 } else { 0 };
        if received[head_bytes] == reply_kind {
            return;
        }
    }
}
