//! Many UDP requests at once, and the addresses of peers.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use shoal_base::Event;
pub(crate) use shoal_testkit::client::udp::{Announce, Client as UdpClient, scrape_packet};
use shoal_wire::udp::Reply;

use crate::siege::address::{hostile_v4, hostile_v6};

/// The number of times that a request is sent, since BEP 15 requires clients to repeat unanswered requests.
const TRIES_MAX: u32 = 3;

/// The maximum number of requests in flight on a socket.
const WINDOW: usize = 64;

/// The maximum wait for a reply of a window, after which replies count as lost.
const WINDOW_WAIT: Duration = Duration::from_millis(300);

/// Counts of many requests and their replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// Requests that were sent.
    pub(crate) sent: u64,
    /// Bytes that were sent.
    pub(crate) sent_bytes: u64,
    /// Replies that came.
    pub(crate) answered: u64,
    /// Those of them that were errors.
    pub(crate) errors: u64,
}

/// Opens a socket and requests a connection id (BEP 15).
pub(crate) fn open(source: IpAddr, target: SocketAddr, timeout: Duration) -> Result<UdpClient> {
    let client = UdpClient::bind(source, target, timeout, TRIES_MAX)?;
    client.connect()?;
    Ok(client)
}

/// Returns the announce of a leecher that wants no peers.
pub(crate) fn leecher(info_hash: [u8; 20], port: u16) -> Announce {
    Announce { event: Event::Started, numwant: 0, ..Announce::leecher(info_hash, port) }
}

/// Encodes a connect request.
pub(crate) fn connect_packet() -> Vec<u8> {
    shoal_testkit::client::udp::connect_packet(3)
}

/// Sends announces, a window at a time, until they end or `is_over`. Passes the peers of each reply to `on_peers`.
pub(crate) fn announce_all(
    client: &UdpClient,
    announces: impl IntoIterator<Item = Announce>,
    is_over: impl Fn() -> bool,
    mut on_peers: impl FnMut(&[SocketAddr]),
) -> Flow {
    let packets = announces.into_iter().map(|announce| announce.packet(client.connection_id(), 1));
    send_all(client, packets, is_over, |reply| {
        if let Some(announced) = client.announced(reply) {
            on_peers(&announced.peers);
        }
    })
}

/// Sends datagrams, a window at a time, and waits for as many replies. Passes each reply to `on_reply`.
pub(crate) fn send_all(
    client: &UdpClient,
    packets: impl IntoIterator<Item = Vec<u8>>,
    is_over: impl Fn() -> bool,
    mut on_reply: impl FnMut(Reply<'_>),
) -> Flow {
    let (mut flow, mut buffer) = (Flow::default(), [0; 2048]);
    let mut packets = packets.into_iter().peekable();
    let _ = client.socket.set_read_timeout(Some(WINDOW_WAIT));
    while packets.peek().is_some() && !is_over() {
        let mut in_flight = 0;
        for packet in packets.by_ref().take(WINDOW) {
            if client.socket.send(&packet).is_ok() {
                in_flight += 1;
                flow.sent += 1;
                flow.sent_bytes += packet.len() as u64;
            }
        }
        for _ in 0..in_flight {
            let Ok(length) = client.socket.recv(&mut buffer) else { break };
            let Ok(reply) = Reply::decode(&buffer[..length]) else { continue };
            flow.answered += 1;
            flow.errors += u64::from(matches!(reply, Reply::Error { .. }));
            on_reply(reply);
        }
    }
    flow
}

impl Flow {
    /// Adds another flow.
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.answered += other.answered;
        self.errors += other.errors;
    }
}

/// Checks that a reply contains the peer at `ip` and `port`.
pub(crate) fn ensure_contains(peers: &[SocketAddr], ip: IpAddr, port: u16) -> Result<()> {
    ensure!(peers.contains(&SocketAddr::new(ip, port)), "the other peer of the swarm is not in the reply");
    Ok(())
}

/// Returns a random info hash.
pub(crate) fn random_hash() -> [u8; 20] {
    let mut hash = [0; 20];
    fastrand::fill(&mut hash);
    hash
}

/// Returns whether a peer has one of the attacker's addresses, by its /16 or /48.
pub(crate) fn is_hostile(peer: &SocketAddr) -> bool {
    match (peer.ip(), hostile_v4(0), hostile_v6(0)) {
        (IpAddr::V4(ip), IpAddr::V4(hostile), _) => ip.octets()[..2] == hostile.octets()[..2],
        (IpAddr::V6(ip), _, IpAddr::V6(hostile)) => ip.octets()[..6] == hostile.octets()[..6],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_hostile;
    use crate::siege::address::{honest_v4, honest_v6, hostile_v4, hostile_v6};

    #[test]
    fn hostile_and_honest_addresses_are_distinguished() {
        for number in [0, 1, 255, 256, 1000] {
            assert!([hostile_v4(number), hostile_v6(number)].iter().all(|ip| is_hostile(&(*ip, 1).into())));
            assert!(![honest_v4(number), honest_v6(number)].iter().any(|ip| is_hostile(&(*ip, 1).into())));
        }
    }
}
