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
    /// Returns the connection ids that have come to the forger since the last call, and the addresses that they are for. Drops all other
    /// frames.
    pub(crate) fn take_stolen_ids(&mut self) -> Vec<(SocketAddr, u64)> {
        let (mut ids, mut frame) = (Vec::new(), [0; MTU + 64]);
        while let Ok(length) = self.socket.read(&mut frame) {
            let frame = &frame[..length];
            if !frame.starts_with(&FORGER_MAC) {
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

/// Returns whether the destination of a frame is in a network of attackers. Errors of ICMP do not count: the kernel limits them.
fn is_to_attacker(frame: &[u8]) -> bool {
    let Some((ethernet, packet)) = frame.split_at_checked(14) else { return false };
    match (&ethernet[12..], packet) {
        ([0x08, 0x00], [_, _, _, _, _, _, _, _, _, 17, ..]) => {
            packet.get(16..18) == Some(&HOSTILE_V4.octets()[..2])
        }
        ([0x86, 0xdd], [_, _, _, _, _, _, 17, ..]) => packet.get(24..32) == Some(&prefix_v6()[..]),
        _ => false,
    }
}

fn prefix_v6() -> [u8; 8] {
    let mut prefix = [0; 8];
    for (bytes, word) in prefix.chunks_exact_mut(2).zip(HOSTILE_V6) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    prefix
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

    /// Returns the frame, with right lengths and checksums.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let udp_bytes = length16(8 + self.payload.len());
        let (source, destination) = self.addresses();
        let mut udp = Vec::with_capacity(8 + self.payload.len());
        for word in [self.source_port, self.port, udp_bytes, 0] {
            udp.extend_from_slice(&word.to_be_bytes());
        }
        udp.extend_from_slice(&self.payload);
        let pseudo = [&source[..], &destination, &[0, 17], &udp_bytes.to_be_bytes()].concat();
        let sum = checksum([&pseudo, &udp]);
        udp[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
        let mut frame = [&TRACKER_MAC[..], &CLIENT_MAC].concat();
        if self.is_v6 {
            let (next, extensions) = self.extensions.clone().unwrap_or((17, Vec::new()));
            let bytes = length16(extensions.len() + udp.len());
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&bytes.to_be_bytes());
            frame.extend_from_slice(&[next, 64]);
            frame.extend([&source[..], &destination, &extensions].concat());
        } else {
            let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0].to_vec();
            ip[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
            ip.extend([&source[..], &destination].concat());
            let sum = checksum([&ip, &[]]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&[0x08, 0x00]);
            frame.extend(ip);
        }
        frame.extend(udp);
        frame
    }

    fn addresses(&self) -> (Vec<u8>, Vec<u8>) {
        if self.is_v6 {
            let source = [&prefix_v6()[..], &[0; 6], &self.source.to_be_bytes()].concat();
            (source, TRACKER_V6.octets().to_vec())
        } else {
            let source = [&HOSTILE_V4.octets()[..2], &self.source.to_be_bytes()].concat();
            (source, TRACKER_V4.octets().to_vec())
        }
    }
}

/// Writes the right checksum into the IPv4 header of a frame, after a change.
pub(crate) fn repair_ipv4(frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let sum = checksum([header, &[]]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the checksum of the Internet (RFC 1071) of two parts, the first of which has an even length.
fn checksum([first, second]: [&[u8]; 2]) -> u16 {
    let words = first.chunks(2).chain(second.chunks(2));
    let mut sum: u32 =
        words.map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !length16(sum as usize)
}

fn length16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // RFC 1071, section 3: the sum is ddf2.
        assert_eq!(checksum([&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(checksum([&[0x12, 0x34], &[0x56]]), !(0x1234 + 0x5600));
    }

    #[test]
    fn frames_have_right_lengths_and_checksums() {
        for is_v6 in [false, true] {
            let datagram = Datagram { is_v6, ..Datagram::random(6969, vec![7; 33]) };
            let frame = datagram.frame();
            let head_bytes = if is_v6 { 40 } else { 20 };
            assert_eq!(frame.len(), 14 + head_bytes + 8 + 33);
            let (head, udp) = frame[14..].split_at(head_bytes);
            let addresses = if is_v6 { &head[8..40] } else { &head[12..20] };
            assert_eq!(checksum([&[addresses, &[0, 17, 0, 41]].concat(), udp]), 0);
            if !is_v6 {
                assert_eq!(checksum([head, &[]]), 0);
            }
        }
    }

    #[test]
    fn only_datagrams_to_attackers_count() {
        let mut reply = Datagram { is_v6: false, ..Datagram::random(1, vec![0; 16]) }.frame();
        assert!(!is_to_attacker(&reply));
        reply[30..32].copy_from_slice(&[198, 19]);
        assert!(is_to_attacker(&reply));
        reply[23] = 1;
        assert!(!is_to_attacker(&reply) && !is_to_attacker(&reply[..20]) && !is_to_attacker(&[]));
    }
}
