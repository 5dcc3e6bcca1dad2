//! Two network namespaces, joined by a pair of virtual interfaces, for the duration of a test. They need root.
#![allow(unsafe_code, reason = "a packet socket is bound by a pointer")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

pub mod vlan;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, ipproto, socket};

use crate::namespace::Namespace;

/// A namespace, with one end of the pair.
#[derive(Debug)]
pub struct Side {
    /// The name of the interface.
    pub device: &'static str,
    /// The index of the interface.
    pub index: u32,
    namespace: Namespace,
}

impl Side {
    fn new(device: &'static str) -> Self {
        Self { device, index: 0, namespace: Namespace::new().unwrap() }
    }

    /// Runs a job on a thread in the namespace. The sockets that it opens belong to the namespace.
    #[track_caller]
    pub fn run<R: Send>(&self, job: impl FnOnce() -> R + Send) -> R {
        self.namespace.run(job)
    }

    /// Runs a command in the namespace.
    #[track_caller]
    pub fn command(&self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        self.namespace.run_program(words[0], &words[1..]).unwrap();
    }
}

/// Returns the index of an interface in the namespace of this thread.
pub(crate) fn index_of(device: &str) -> u32 {
    name_to_index(UdpSocket::bind("127.0.0.1:0").unwrap(), device).unwrap()
}

/// Moves this thread into a new namespace, all of whose routes lead by the interface `server` to a gateway with this MAC address. Returns
/// the index of the interface.
pub fn enter_behind(gateway_mac: &str) -> u32 {
    let namespace = Namespace::new().unwrap();
    let lines = format!(
        "link set lo up\n\
         link add server type veth peer name client\n\
         link set server up\n\
         link set client up\n\
         addr add 100.64.0.1/24 dev server\n\
         addr add fd00::1/64 dev server nodad\n\
         neigh add 100.64.0.2 lladdr {gateway_mac} dev server\n\
         neigh add fd00::2 lladdr {gateway_mac} dev server\n\
         route add default via 100.64.0.2\n\
         route add default via fd00::2\n"
    );
    namespace.ip(&lines).unwrap();
    namespace.enter().unwrap();
    index_of("server")
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
        side.index = side.run(|| index_of(side.device));
    }
    test(&server, &client);
}

/// Joins two namespaces by a new pair of interfaces. `queues` are the numbers of queues of the server's end, as `ip link add` takes
/// them, or "".
#[track_caller]
pub fn join(server: &Side, client: &Side, queues: &str) {
    let pid = client.namespace.pid();
    let words = if queues.is_empty() { String::new() } else { format!("{queues} ") };
    server.command(&format!("ip link add server {words}type veth peer name client netns {pid}"));
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
