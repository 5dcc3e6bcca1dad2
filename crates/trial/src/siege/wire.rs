//! A pair of virtual interfaces between the tracker and a namespace of clients, for attacks on the XDP data path, which loopback does
//! not have.
//!
//! Attackers put whole frames on it, with any source. The tracker has routes to all networks, so that whatever it would send to them does
//! arrive, and is counted. One attacker is a neighbour with a MAC address of its own, which does not see what is sent to others.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use shoal_testkit::network::{Side, between_two, packet_socket};
use shoal_xdp::frame::{Head, parse};
use shoal_xdp::program::{Link, Mode, Program, Sizes};

use crate::measure::count;
use crate::siege::namespace;

/// The interface of the tracker.
pub(crate) const INTERFACE: &str = "server";

// These networks are for benchmarks (RFC 2544, RFC 5180).
/// The addresses of the tracker.
pub(crate) const TRACKER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(crate) const TRACKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

/// The addresses of honest clients.
pub(crate) const HONEST: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2))];

/// The networks of attackers.
const HOSTILE_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
const HOSTILE_V6: [u16; 4] = [0x2001, 2, 0, 0xbad];
pub(crate) const HOSTILE_NETWORKS: [&str; 2] = ["198.19.0.0/16", "2001:2:0:bad::/64"];

const TRACKER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The MAC address of a neighbour that no address belongs to.
pub(crate) const FORGER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

/// The largest packet, for attacks with datagrams that are too long for the data path.
const MTU: usize = 3400;

/// Memory for replies that wait to be counted.
const REPLIES_BYTES_MAX: usize = 8 << 20;

/// Both ends of the pair, with the namespace of the clients.
pub(crate) struct Wire<'s> {
    client: &'s Side,
    /// A veth passes on what the program of the tracker sends only if the other end has a program as well. This one has no endpoints,
    /// so it passes everything on.
    _program: Link,
}

/// Whole frames of an attacker. Counts them, and the frames to attackers that come back.
pub(crate) struct Frames {
    socket: File,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// The bytes of the longest of these.
    pub(crate) longest_received: usize,
}

/// Runs `act` in a namespace with a pair to another one.
pub(crate) fn with_wire<T: Send>(act: impl FnOnce(&Wire<'_>) -> Result<T> + Send) -> Result<T> {
    let mut result = None;
    between_two(|server, client| {
        result = Some(server.run(|| {
            namespace::prepare()?;
            act(&Wire::connect(server, client)?)
        }));
    });
    result.context("the attack was not run")?
}

impl<'s> Wire<'s> {
    fn connect(server: &Side, client: &'s Side) -> Result<Self> {
        for (side, mac, offloads) in [(server, TRACKER_MAC, "gro on"), (client, CLIENT_MAC, "gro on tx off")]
        {
            let device = side.device;
            side.command(&format!("ip link set {device} address {} mtu {MTU}", text(mac)));
            side.command(&format!("ethtool -K {device} {offloads}"));
        }
        let [honest_v4, honest_v6] = HONEST;
        let addresses =
            [(server, IpAddr::V4(TRACKER_V4), IpAddr::V6(TRACKER_V6)), (client, honest_v4, honest_v6)];
        for (side, v4, v6) in addresses {
            let device = side.device;
            side.command(&format!("ip addr add {v4}/16 dev {device}"));
            side.command(&format!("ip addr add {v6}/64 dev {device} nodad"));
            side.command(&format!("ip link set {device} up"));
        }
        for (side, neighbours, mac) in
            [(server, HONEST, CLIENT_MAC), (client, [TRACKER_V4.into(), TRACKER_V6.into()], TRACKER_MAC)]
        {
            let (device, mac) = (side.device, text(mac));
            for neighbour in neighbours {
                side.command(&format!(
                    "ip neigh replace {neighbour} lladdr {mac} nud permanent dev {device}"
                ));
            }
        }
        // The honest client is the router of all other networks as well.
        for way in HONEST {
            server.command(&format!("ip route add default via {way} dev {INTERFACE}"));
        }
        let sizes = Sizes { queues: 1, networks_max: 1, sources_max: 1, endpoints_max: 1 };
        let index = client.index;
        let attach = || -> Result<Link> { Ok(Program::load(&sizes)?.0.attach(index, Mode::Native)?) };
        let program = client.run(attach);
        Ok(Self {
            client,
            _program: program.context("cannot attach a program to the interface of the clients")?,
        })
    }

    /// Runs `act` on the side of the clients. Threads that it starts stay there.
    pub(crate) fn on_client_side<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.client.run(act)
    }

    /// Opens the interface of the clients for an attacker.
    pub(crate) fn frames(&self) -> Result<Frames> {
        let socket = self.client.run(|| packet_socket(self.client.index));
        Frames::new(socket).context("cannot open a packet socket")
    }
}

impl Frames {
    fn new(socket: OwnedFd) -> Result<Self> {
        set_socket_recv_buffer_size_force(&socket, REPLIES_BYTES_MAX)?;
        rustix::io::ioctl_fionbio(socket.as_fd(), true)?;
        Ok(Self {
            socket: socket.into(),
            sent: 0,
            sent_bytes: 0,
            received: 0,
            received_bytes: 0,
            longest_received: 0,
        })
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        if self.socket.write(frame).is_ok() {
            self.sent += 1;
            self.sent_bytes += count(frame.len());
        }
    }

    /// Counts the frames to attackers that have come since the last call.
    pub(crate) fn drain(&mut self) {
        let mut frame = [0; MTU + 64];
        loop {
            match self.socket.read(&mut frame) {
                Ok(length) if is_to_attacker(&frame[..length]) => {
                    self.received += 1;
                    self.received_bytes += count(length);
                    self.longest_received = self.longest_received.max(length);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

impl Frames {
    /// Returns the connection ids that have come to this MAC address since the last call, and the addresses that they are for. Drops
    /// all other frames.
    pub(crate) fn take_ids(&mut self, mac: [u8; 6]) -> Vec<(SocketAddr, u64)> {
        let (mut ids, mut frame) = (Vec::new(), [0; MTU + 64]);
        while let Ok(length) = self.socket.read(&mut frame) {
            let frame = &frame[..length];
            if !frame.starts_with(&mac) {
                continue;
            }
            if let Ok(datagram) = parse(frame)
                && let [0, 0, 0, 0, _, _, _, _, id @ ..] = &frame[datagram.payload.clone()]
                && let Ok(id) = id.try_into()
            {
                ids.push((datagram.destination, u64::from_be_bytes(id)));
            }
        }
        ids
    }
}

/// Returns a frame to the tracker with any source, MAC address and VLAN tags.
pub(crate) fn forged(
    source: SocketAddr,
    source_mac: [u8; 6],
    tags: &[[u8; 4]],
    port: u16,
    payload: &[u8],
) -> Result<Vec<u8>> {
    let tracker = if source.is_ipv4() { TRACKER_V4.into() } else { TRACKER_V6.into() };
    let destination = SocketAddr::new(tracker, port);
    let head = Head { destination_mac: TRACKER_MAC, source_mac, tag: None, source, destination };
    let mut frame = [&vec![0; head.bytes()], payload].concat();
    head.write(&mut frame, head.bytes(), payload.len())?;
    frame.splice(12..12, tags.as_flattened().iter().copied());
    Ok(frame)
}

/// Returns whether the destination of a datagram is in a network of attackers. Errors of ICMP do not count: the kernel limits them.
fn is_to_attacker(frame: &[u8]) -> bool {
    parse(frame).is_ok_and(|datagram| match datagram.destination.ip() {
        IpAddr::V4(ip) => ip.octets()[..2] == HOSTILE_V4.octets()[..2],
        IpAddr::V6(ip) => ip.segments()[..4] == HOSTILE_V6,
    })
}

/// A datagram to the tracker, in the parts that attacks change.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) is_v6: bool,
    /// The lower bits of the source address.
    pub(crate) source: u16,
    pub(crate) source_port: u16,
    pub(crate) port: u16,
    pub(crate) payload: Vec<u8>,
    /// Extension headers between IPv6 and UDP: the number of the first one, and their bytes.
    pub(crate) extensions: Option<(u8, Vec<u8>)>,
}

impl Datagram {
    /// Returns one from a random port of a random attacker.
    pub(crate) fn random(port: u16, payload: Vec<u8>) -> Self {
        Self {
            is_v6: fastrand::u8(..4) == 0,
            source: fastrand::u16(1..),
            source_port: fastrand::u16(1024..),
            port,
            payload,
            extensions: None,
        }
    }

    /// Returns the frame, with right lengths and checksums, or none if the payload is too long.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let ip = if self.is_v6 {
            let [a, b, c, d] = HOSTILE_V6;
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, self.source).into()
        } else {
            let ([a, b, ..], [c, d]) = (HOSTILE_V4.octets(), self.source.to_be_bytes());
            Ipv4Addr::new(a, b, c, d).into()
        };
        let source = SocketAddr::new(ip, self.source_port);
        let mut frame = forged(source, CLIENT_MAC, &[], self.port, &self.payload).unwrap_or_default();
        if let (Some((next, extensions)), true) = (&self.extensions, self.is_v6) {
            let bytes = u16::try_from(frame.len() - 54 + extensions.len()).unwrap_or(u16::MAX);
            frame[18..20].copy_from_slice(&bytes.to_be_bytes());
            frame[20] = *next;
            frame.splice(54..54, extensions.iter().copied());
        }
        frame
    }
}

/// Writes the right checksum (RFC 1071) into the IPv4 header of a frame, after a change.
pub(crate) fn repair_ipv4(frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(u16::MAX);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagrams_to_attackers_count() {
        let mut reply = Datagram { is_v6: false, ..Datagram::random(1, vec![0; 16]) }.frame();
        assert!(!is_to_attacker(&reply));
        reply[30..32].copy_from_slice(&[198, 19]);
        repair_ipv4(&mut reply);
        assert!(is_to_attacker(&reply));
        reply[23] = 1;
        repair_ipv4(&mut reply);
        assert!(!is_to_attacker(&reply) && !is_to_attacker(&reply[..20]) && !is_to_attacker(&[]));
    }

    #[test]
    fn extensions_are_part_of_the_length() {
        let datagram = Datagram { is_v6: true, ..Datagram::random(1, vec![0; 16]) };
        let plain = datagram.frame();
        let frame = Datagram { extensions: Some((60, vec![17, 0, 0, 0, 0, 0, 0, 0])), ..datagram }.frame();
        assert_eq!((frame[18..21].to_vec(), frame.len()), (vec![0, 32, 60], plain.len() + 8));
        assert_eq!((&frame[..18], &frame[62..]), (&plain[..18], &plain[54..]));
    }
}
