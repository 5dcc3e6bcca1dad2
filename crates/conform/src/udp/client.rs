//! A client of a UDP tracker: a socket that sends requests, waits for replies, and leaves its swarms at the end.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::describe;
use super::packet::{ANNOUNCE, ERROR, connect, read_scraped, scrape, u32_at, u64_at};
use crate::case::{Checked, Unmet, ensure};
use crate::context::Context;
use crate::peer::{Announce, Announced, Counts, STOPPED};
use crate::rules;
use crate::rules::operator::{Reaction, Refusal};
use crate::trace::Direction;

/// The number of requests in flight, few enough for any socket buffer.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// The number of datagrams that one wait reads, so that a tracker that floods its clients does not block the suite.
const DATAGRAMS_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A socket for one tracker. It takes replies from any address, since one case checks that. Its peers leave on drop.
pub(crate) struct Client<'c> {
    context: &'c Context<'c>,
    socket: UdpSocket,
    tracker: SocketAddr,
    peer_bytes: usize,
    connection_id: Cell<Option<u64>>,
    joined: RefCell<BTreeSet<([u8; 20], u16)>>,
}

impl<'c> Client<'c> {
    pub(crate) fn new(context: &'c Context<'c>) -> Checked<Self> {
        let tracker = context.target.address;
        let source = context.target.sources.first().copied();
        Self::open(context, source.unwrap_or_else(|| unspecified(tracker)), tracker)
    }

    /// Creates a client at this local address, which may not exist.
    pub(crate) fn at(context: &'c Context<'c>, source: IpAddr) -> Checked<Self> {
        Self::open(context, source, context.target.address)
    }

    /// Creates a client that sends to `tracker` rather than to the address of the target.
    pub(crate) fn at_address(context: &'c Context<'c>, tracker: SocketAddr) -> Checked<Self> {
        Self::open(context, unspecified(tracker), tracker)
    }

    fn open(context: &'c Context<'c>, source: IpAddr, tracker: SocketAddr) -> Checked<Self> {
        let cannot = |error: io::Error| {
            Unmet::NotSupported(format!("cannot send to {tracker} from the local address {source}: {error}"))
        };
        let socket = UdpSocket::bind((source, 0)).map_err(cannot)?;
        Ok(Self {
            context,
            socket,
            tracker,
            peer_bytes: if tracker.is_ipv4() { 6 } else { 18 },
            connection_id: Cell::new(None),
            joined: RefCell::default(),
        })
    }

    pub(crate) fn send(&self, packet: &[u8]) -> Checked {
        self.context.trace.borrow_mut().add(Direction::Sent, describe::request(packet), packet);
        self.track(packet);
        match self.socket.send_to(packet, self.tracker) {
            Ok(_) => Ok(()),
            Err(error) => ensure(
                false,
                "a tracker that accepts datagrams",
                format!("the kernel cannot send to {}: {error}", self.tracker),
            ),
        }
    }

    /// Returns the next datagram, or `None` if none arrives within `timeout`.
    pub(crate) fn receive(&self, timeout: Duration) -> Checked<Option<Datagram>> {
        let mut buffer = [0; 65_536];
        let limit = self.context.deadline.bound(timeout)?;
        // A timeout of zero would mean no timeout.
        let received = self.socket.set_read_timeout(Some(limit.max(Duration::from_millis(1))));
        match received.and_then(|()| self.socket.recv_from(&mut buffer)) {
            Ok((bytes, from)) => {
                let bytes = buffer[..bytes].to_vec();
                let mut text = describe::reply(&bytes, self.peer_bytes);
                if from != self.tracker {
                    text = format!("{text}, from {from}");
                }
                self.context.trace.borrow_mut().add(Direction::Seen, text, &bytes);
                Ok(Some(Datagram { from, bytes }))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // A wait that the deadline cut short says nothing about the time that a reply takes.
                if limit < timeout { Err(self.context.deadline.passed()) } else { Ok(None) }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(timeout),
            Err(error) => Err(Unmet::NotSupported(format!("the local socket fails: {error}"))),
        }
    }

    pub(crate) fn request_any(&self, packet: &[u8]) -> Checked<Datagram> {
        for _ in 0..self.context.tries {
            self.send(packet)?;
            if let Some(datagram) = self.receive(self.context.target.timing.reply)? {
                return Ok(datagram);
            }
        }
        Err(self.no_reply(packet))
    }

    /// Sends a request and checks that the next datagram carries its transaction id.
    pub(crate) fn ensure_echoed(&self, packet: &[u8]) -> Checked {
        let reply = self.request_any(packet)?.bytes;
        let wanted = u32_at(packet, 12);
        ensure(
            u32_at(&reply, 4) == wanted,
            format!("transaction id {:#x} in the reply", wanted.unwrap_or_default()),
            describe::reply(&reply, self.context.peer_bytes()),
        )
    }

    pub(crate) fn request(&self, packet: &[u8]) -> Checked<Vec<u8>> {
        for _ in 0..self.context.tries {
            self.send(packet)?;
            if let Some(reply) = self.receive_reply_to(packet, self.context.target.timing.reply)? {
                return Ok(reply);
            }
        }
        Err(self.no_reply(packet))
    }

    /// Returns the reply with the transaction id of this request, or `None` if no datagram arrives within `timeout`.
    fn receive_reply_to(&self, packet: &[u8], timeout: Duration) -> Checked<Option<Vec<u8>>> {
        for _ in 0..DATAGRAMS_MAX {
            let Some(datagram) = self.receive(timeout)? else { return Ok(None) };
            if datagram.bytes.get(4..8) == packet.get(12..16) {
                return Ok(Some(datagram.bytes));
            }
        }
        Ok(None)
    }

    fn no_reply(&self, packet: &[u8]) -> Unmet {
        self.context.unanswered.set(self.context.unanswered.get() + 1);
        let tries = self.context.tries;
        let reply_s = self.context.target.timing.reply.as_secs_f32();
        Unmet::Fail {
            expected: format!("a reply to: {}", describe::request(packet)),
            seen: format!(
                "no reply with this transaction id after {tries} requests with a timeout of {reply_s} s each"
            ),
        }
    }

    /// Sends datagrams that may get no reply, and returns what comes back. A connect request after them shows that the
    /// tracker is still alive and, since few trackers reorder, that it has processed them.
    pub(crate) fn send_and_collect(&self, packets: &[Vec<u8>]) -> Checked<Vec<Datagram>> {
        let mut seen = Vec::new();
        for some in packets.chunks(IN_FLIGHT_MAX) {
            some.iter().try_for_each(|packet| self.send(packet))?;
            let barrier = connect(self.context.random());
            let mut has_passed = false;
            'tries: for _ in 0..self.context.tries {
                self.send(&barrier)?;
                let mut timeout = self.context.target.timing.reply;
                for _ in 0..DATAGRAMS_MAX {
                    let Some(datagram) = self.receive(timeout)? else { break };
                    if datagram.bytes.get(4..8) != barrier.get(12..16) {
                        seen.push(datagram);
                        continue;
                    }
                    has_passed = true;
                    timeout = self.context.target.timing.quiet;
                }
                if has_passed {
                    break 'tries;
                }
            }
            ensure(
                has_passed,
                "a tracker that answers the next connect request",
                "no reply to any request since: the tracker hangs or has ended",
            )?;
        }
        Ok(seen)
    }

    /// Returns the connection id, which is requested once.
    pub(crate) fn connection_id(&self) -> Checked<u64> {
        if let Some(id) = self.connection_id.get() {
            return Ok(id);
        }
        let reply = self.request(&connect(self.context.random()))?;
        // One case checks the action; the others need not.
        let Some(id) = u64_at(&reply, 8) else {
            return Err(Unmet::Fail {
                expected: "a connect reply of at least 16 bytes".to_owned(),
                seen: describe::reply(&reply, self.peer_bytes),
            });
        };
        self.connection_id.set(Some(id));
        Ok(id)
    }

    pub(crate) fn announce_packet(&self, announce: &Announce) -> Checked<Vec<u8>> {
        Ok(announce.packet(self.connection_id()?, self.context.random()))
    }

    /// Announces with these bytes after the announce.
    pub(crate) fn announce_with(&self, announce: &Announce, tail: &[u8]) -> Checked<Announced> {
        let packet = [&self.announce_packet(announce)?[..], tail].concat();
        let reply = self.request(&packet)?;
        self.read_announced(&reply)
    }

    /// Sends requests, several at a time, until each has a reply. Returns the replies in the order of the requests.
    pub(crate) fn request_all(&self, packets: &[Vec<u8>]) -> Checked<Vec<Vec<u8>>> {
        let mut replies = Vec::with_capacity(packets.len());
        for some in packets.chunks(IN_FLIGHT_MAX) {
            let mut answered = BTreeMap::new();
            for _ in 0..self.context.tries {
                let missing = some.iter().filter(|packet| !answered.contains_key(transaction_id(packet)));
                missing.cloned().collect::<Vec<_>>().iter().try_for_each(|packet| self.send(packet))?;
                for _ in 0..DATAGRAMS_MAX {
                    if answered.len() == some.len() {
                        break;
                    }
                    let Some(datagram) = self.receive(self.context.target.timing.reply)? else { break };
                    let id = datagram.bytes.get(4..8).unwrap_or_default();
                    if let Some(packet) = some.iter().find(|packet| transaction_id(packet) == id) {
                        answered.insert(transaction_id(packet), datagram.bytes);
                    }
                }
            }
            for packet in some {
                replies.push(answered.remove(transaction_id(packet)).ok_or_else(|| self.no_reply(packet))?);
            }
        }
        Ok(replies)
    }

    pub(crate) fn read_announced(&self, reply: &[u8]) -> Checked<Announced> {
        Announced::read(reply, self.peer_bytes).ok_or_else(|| Unmet::Fail {
            expected: format!("an announce reply of 20 + {} · n bytes", self.peer_bytes),
            seen: describe::reply(reply, self.peer_bytes),
        })
    }

    fn track(&self, packet: &[u8]) {
        let (Some(ANNOUNCE), Some(event)) = (u32_at(packet, 8), u32_at(packet, 80)) else { return };
        let (Some(hash), Some(port)) = (packet.get(16..36), packet.get(96..98)) else { return };
        let Ok(hash) = <[u8; 20]>::try_from(hash) else { return };
        let peer = (hash, u16::from_be_bytes([port[0], port[1]]));
        if event == STOPPED {
            self.joined.borrow_mut().remove(&peer);
        } else {
            self.joined.borrow_mut().insert(peer);
        }
    }

    fn leave(&self) -> Checked {
        let joined = self.joined.take();
        if joined.is_empty() {
            return Ok(());
        }
        let id = self.connection_id()?;
        let stopped = |&(hash, port): &([u8; 20], u16)| {
            Announce::seeder(hash, port).with_event(STOPPED).wanting(0).packet(id, self.context.random())
        };
        let packets: Vec<Vec<u8>> = joined.iter().map(stopped).collect();
        for some in packets.chunks(IN_FLIGHT_MAX) {
            some.iter().try_for_each(|packet| self.send(packet))?;
            let barrier = connect(self.context.random());
            self.send(&barrier)?;
            self.receive_reply_to(&barrier, self.context.target.timing.reply)?;
        }
        Ok(())
    }
}

impl rules::Client for Client<'_> {
    fn announce(&self, announce: &Announce) -> Checked<Announced> {
        let reply = self.request(&self.announce_packet(announce)?)?;
        self.read_announced(&reply)
    }

    fn react(&self, announce: &Announce) -> Checked<Reaction> {
        let packet = self.announce_packet(announce)?;
        for _ in 0..self.context.tries {
            self.send(&packet)?;
            let Some(reply) = self.receive_reply_to(&packet, self.context.target.timing.reply)? else {
                continue;
            };
            if u32_at(&reply, 0) != Some(ERROR) {
                return self.read_announced(&reply).map(Reaction::Served);
            }
            let described = describe::reply(&reply, self.peer_bytes);
            let text = String::from_utf8(reply[8..].to_vec()).unwrap_or_default();
            return Ok(Reaction::Refused(Refusal { text, tells_when: false, described }));
        }
        Ok(Reaction::Silence)
    }

    fn try_announce(&self, announce: &Announce) -> Checked {
        self.send_and_collect(&[self.announce_packet(announce)?]).map(drop)
    }

    // Without waiting for each reply.
    fn announce_all(&self, announces: &[Announce]) -> Checked<Vec<Announced>> {
        let id = self.connection_id()?;
        let packets: Vec<Vec<u8>> =
            announces.iter().map(|announce| announce.packet(id, self.context.random())).collect();
        let replies = self.request_all(&packets)?;
        replies.iter().map(|reply| self.read_announced(reply)).collect()
    }

    fn scrape(&self, info_hashes: &[[u8; 20]]) -> Checked<Vec<Counts>> {
        let reply = self.request(&scrape(self.connection_id()?, self.context.random(), info_hashes))?;
        read_scraped(&reply).filter(|counts| counts.len() == info_hashes.len()).ok_or_else(|| Unmet::Fail {
            expected: format!("a scrape reply of 8 + 12 · {} bytes", info_hashes.len()),
            seen: describe::reply(&reply, self.peer_bytes),
        })
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.context.trace.borrow_mut().pause(true);
        // The tracker may have ended, so errors are ignored.
        let _ = self.leave();
        self.context.trace.borrow_mut().pause(false);
    }
}

fn transaction_id(packet: &[u8]) -> &[u8] {
    packet.get(12..16).unwrap_or_default()
}

fn unspecified(tracker: SocketAddr) -> IpAddr {
    if tracker.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
