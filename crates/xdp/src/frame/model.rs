//! The verdict of the eBPF program about a frame, for tests.
//!
//! The model reads frames by [`parse`] and builds replies by [`Head`]. It is slow and plain. Its caller supplies
//! connection ids and the state of token buckets.
//!
//! The program cannot be tested in Rust. So a test gives the program and this model the same tens of thousands of
//! frames (`BPF_PROG_TEST_RUN`): verdict, counter and every byte must agree. The back end reads frames by the same
//! `frame`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::{
    Checksum, Datagram, ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6, ETHERNET_TAG, Head, IPV4_BYTES,
    IPV6_BYTES, PROTOCOL_UDP, REDIRECTED_BYTES_MAX, Rejection, UDP_BYTES, be16, ethernet, parse,
};
use crate::interface::{Segment, Vlan};
use crate::program::{Counted, Network, NetworkRule};

/// The id of all connect requests (BEP 15).
const MAGIC: u64 = 0x417_2710_1980;

/// Length of the header of a request, and of the reply to a connect request.
const REQUEST_BYTES: usize = 16;

/// The shortest frame of Ethernet, without the checksum at its end.
pub(super) const FRAME_BYTES_MIN: usize = 60;

/// The longest payload of a request that the program answers.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1472;

/// The fate of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel gets the frame unchanged. The frame is counted if it was for the tracker.
    Pass(Option<Counted>),
    /// The frame is dropped.
    Drop(Counted),
    /// This frame is sent as the reply.
    Transmit(Counted, Vec<u8>),
    /// The socket of its queue gets the frame unchanged.
    Redirect,
}

/// The endpoints, networks and settings of the program.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The endpoints of the tracker.
    pub endpoints: BTreeSet<SocketAddr>,
    /// The rules for networks.
    pub networks: Vec<Network>,
    /// The rule for addresses in none of the networks.
    pub otherwise: NetworkRule,
    /// The segments of the frames of the interface.
    pub segments: Vec<Segment>,
    /// Whether it may answer connect requests: it has a key and knows the current slot.
    pub answers: bool,
    /// Whether the queue has a socket with room.
    pub has_socket: bool,
}

/// Connection ids, limits and routes, which the model does not know.
pub trait Source {
    /// Returns how the kernel would send a packet from one address to another: the index of the interface, and the next
    /// MAC address if the kernel knows it.
    fn next_hop(&mut self, from: IpAddr, to: IpAddr) -> Option<(u32, [u8; 6])>;

    /// Returns the connection id for an address.
    fn connection_id(&mut self, ip: IpAddr) -> u64;

    /// Returns whether a connect request may be answered, or another request passed to the socket. Takes a token if
    /// there is a limit.
    fn admits(&mut self, ip: IpAddr, is_connect: bool, request: &[u8]) -> bool;
}

impl Model {
    /// Returns what the program does with a frame.
    pub fn verdict(&self, frame: &[u8], source: &mut impl Source) -> Verdict {
        let datagram = match parse(frame) {
            Ok(datagram) if self.endpoints.contains(&datagram.destination) => datagram,
            Ok(_) => return Verdict::Pass(None),
            Err(rejection) => return Verdict::Pass(self.counted(frame, rejection)),
        };
        let ip = datagram.source.ip();
        let Some(segment) = self.segments.iter().find(|segment| segment.vlan == vlan(frame, &datagram))
        else {
            return Verdict::Pass(Some(Counted::OtherVlan));
        };
        if frame[..6] != segment.mac || self.endpoints.iter().any(|endpoint| endpoint.ip() == ip) {
            // The kernel does not deliver them either.
            return Verdict::Pass(Some(Counted::Malformed));
        }
        if datagram.source.port() == 0 || is_nowhere(ip) {
            return Verdict::Drop(Counted::Unanswerable);
        }
        let rule = self.rule(ip);
        if rule.denied {
            return Verdict::Drop(Counted::Denied);
        }
        let next_hop = source.next_hop(datagram.destination.ip(), ip);
        if next_hop.is_none_or(|(index, mac)| index != segment.interface_index || frame[6..12] != mac) {
            return Verdict::Pass(Some(Counted::NoRouteBack));
        }
        let hand_over = || self.hand_over(frame);
        let request = &frame[datagram.payload.clone()];
        let Some((head, _)) = request.split_first_chunk::<REQUEST_BYTES>() else { return hand_over() };
        let [a, b, c, d, e, f, g, h, actions @ .., t0, t1, t2, t3] = *head;
        let id = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        match u32::from_be_bytes(actions) {
            0 if id == MAGIC => {}
            action @ (1 | 2) if !rule.exempt && !source.admits(ip, false, request) => {
                return Verdict::Drop(Counted::limited(action, ip.is_ipv6()));
            }
            _ => return hand_over(),
        }
        if !self.answers || datagram.has_options() || request.len() > PAYLOAD_BYTES_MAX {
            return hand_over();
        }
        if datagram.checksum(frame) == Checksum::Wrong {
            return Verdict::Pass(Some(Counted::BadChecksum));
        }
        if !rule.exempt && !source.admits(ip, true, request) {
            return Verdict::Drop(Counted::limited(0, ip.is_ipv6()));
        }
        let counted = if ip.is_ipv4() { Counted::ConnectsV4 } else { Counted::ConnectsV6 };
        let reply = reply(frame, &datagram, [t0, t1, t2, t3], source.connection_id(ip));
        reply.map_or(Verdict::Pass(None), |reply| Verdict::Transmit(counted, reply))
    }

    fn hand_over(&self, frame: &[u8]) -> Verdict {
        if frame.len() > REDIRECTED_BYTES_MAX {
            Verdict::Pass(Some(Counted::TooLong))
        } else if self.has_socket {
            Verdict::Redirect
        } else {
            Verdict::Pass(Some(Counted::NoSocket))
        }
    }

    /// Returns the rule of the network with the longest matching prefix.
    fn rule(&self, ip: IpAddr) -> NetworkRule {
        let matching = self.networks.iter().filter(|network| contains(network, ip));
        matching.max_by_key(|network| network.bits).map_or(self.otherwise, |network| network.rule)
    }

    /// Returns the counter for a rejected frame, if the frame is for the tracker.
    fn counted(&self, frame: &[u8], rejection: Rejection) -> Option<Counted> {
        let (ip, port) = destination(frame)?;
        let is_ours = match port {
            Some(port) => self.endpoints.contains(&SocketAddr::new(ip, port)),
            None => self.endpoints.iter().any(|endpoint| endpoint.ip() == ip),
        };
        let counted = match rejection {
            Rejection::NotUdp => return None,
            Rejection::Fragment => Counted::Fragments,
            Rejection::ExtensionHeaders => Counted::ExtensionHeaders,
            Rejection::BadHeaderChecksum => Counted::BadChecksum,
            Rejection::Truncated | Rejection::BadLength | Rejection::GroupAddress | Rejection::Loopback => {
                Counted::Malformed
            }
        };
        is_ours.then_some(counted)
    }
}

/// Returns the destination of a frame if the headers are long enough. Fragments have no ports.
fn destination(frame: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let (kind, offset) = ethernet(frame).ok()?;
    let ip = frame.get(offset..)?;
    let (address, header_bytes, has_ports): (IpAddr, _, _) = match kind {
        ETHERNET_IPV4 => {
            let header: &[u8; IPV4_BYTES] = ip.first_chunk()?;
            let address = [header[16], header[17], header[18], header[19]];
            (address.into(), usize::from(header[0] & 0xf) * 4, be16(header, 6)? & 0x3fff == 0)
        }
        ETHERNET_IPV6 => {
            let header: &[u8; IPV6_BYTES] = ip.first_chunk()?;
            let address: &[u8; 16] = header[24..].first_chunk()?;
            ((*address).into(), IPV6_BYTES, header[6] == PROTOCOL_UDP)
        }
        _ => return None,
    };
    let udp = ip.get(header_bytes..header_bytes + UDP_BYTES).filter(|_| has_ports);
    Some((address, udp.and_then(|udp| be16(udp, 2))))
}

/// Returns the VLAN of a frame. An IEEE 802.1Q tag with number 0 only has a priority.
fn vlan(frame: &[u8], datagram: &Datagram) -> Option<Vlan> {
    let tag = &frame[ETHERNET_BYTES - 2..datagram.ip_offset - 2];
    let (protocol, number) = be16(tag, 0).zip(be16(tag, 2).map(|control| control & 0xfff))?;
    (protocol != ETHERNET_TAG || number != 0).then_some(Vlan { protocol, number })
}

/// Returns whether no reply can reach an address.
fn is_nowhere(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast() || ip.to_ipv4_mapped().is_some(),
    }
}

fn contains(network: &Network, ip: IpAddr) -> bool {
    let differs = match (network.ip, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => u128::from(u32::from(network) ^ u32::from(ip)) << 96,
        (IpAddr::V6(network), IpAddr::V6(ip)) => u128::from(network) ^ u128::from(ip),
        _ => return false,
    };
    differs.leading_zeros() >= network.bits.into()
}

fn reply(frame: &[u8], datagram: &Datagram, transaction: [u8; 4], id: u64) -> Option<Vec<u8>> {
    let head = Head::of_reply(frame, datagram)?;
    let mut out = vec![0; head.bytes()];
    out.extend([0; 4]);
    out.extend(transaction);
    out.extend(id.to_be_bytes());
    head.write(&mut out, head.bytes(), REQUEST_BYTES).ok()?;
    // Padding stays.
    out.extend(frame.get(out.len()..FRAME_BYTES_MIN.min(frame.len())).unwrap_or_default());
    Some(out)
}
