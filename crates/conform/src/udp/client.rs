//! A client of a UDP tracker: a socket that asks, waits, and takes its leave.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::packet::{ANNOUNCE, connect, long, read_scraped, scrape, word};
use super::words;
use crate::case::{Checked, Unmet, ensure};
use crate::context::Context;
use crate::peer::{Announce, Announced, Counts, STOPPED};
use crate::rules;
use crate::trace::Direction;

/// Most requests on the way at a time: few enough for any socket buffer.
pub(crate) const ON_THE_WAY_MAX: usize = 64;

/// Most datagrams that one wait looks at. A tracker that floods its clients does not hold up the suite.
const DATAGRAMS_MAX: u32 = 10_000;

/// A datagram of the tracker.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A socket that talks to one tracker. It hears answers from any address, because one case judges where they come
/// from and the others need not fail for it, too. On drop its peers leave their swarms.
pub(crate) struct Client<'c> {
    context: &'c Context<'c>,
    socket: UdpSocket,
    tracker: SocketAddr,
    peer_bytes: usize,
    connection_id: Cell<Option<u64>>,
    joined: RefCell<BTreeSet<([u8; 20], u16)>>,
}

impl<'c> Client<'c> {
    /// A client at the usual local address.
    pub(crate) fn new(context: &'c Context<'c>) -> Checked<Self> {
        let tracker = context.target.address;
        let usual = context.target.sources.first().copied();
        Self::open(context, usual.unwrap_or_else(|| unspecified(tracker)), tracker)
    }

    /// A client at the local address number `index`; there may be no such address.
    pub(crate) fn at_source(context: &'c Context<'c>, index: usize) -> Checked<Self> {
        Self::open(context, context.source(index)?, context.target.address)
    }

    /// A client that asks the same tracker over the other family.
    pub(crate) fn of_other_family(context: &'c Context<'c>) -> Checked<Self> {
        let missing = || Unmet::NotSupported("the tracker is known by one family only".to_owned());
        let tracker = context.target.other_family.ok_or_else(missing)?;
        Self::open(context, unspecified(tracker), tracker)
    }

    /// A client that asks another address than that of the tracker.
    pub(crate) fn towards(context: &'c Context<'c>, tracker: SocketAddr) -> Checked<Self> {
        Self::open(context, unspecified(tracker), tracker)
    }

    fn open(context: &'c Context<'c>, source: IpAddr, tracker: SocketAddr) -> Checked<Self> {
        let cannot = |error: io::Error| {
            Unmet::NotSupported(format!("cannot ask {tracker} from the local address {source}: {error}"))
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

    /// Sends a datagram.
    pub(crate) fn send(&self, packet: &[u8]) -> Checked {
        self.context.trace.borrow_mut().add(Direction::Sent, words::request(packet), packet);
        self.remember(packet);
        match self.socket.send_to(packet, self.tracker) {
            Ok(_) => Ok(()),
            Err(error) => ensure(
                false,
                "a tracker that takes datagrams",
                format!("the kernel cannot send to {}: {error}", self.tracker),
            ),
        }
    }

    /// The next datagram, or none within `patience`.
    pub(crate) fn receive(&self, patience: Duration) -> Checked<Option<Datagram>> {
        let mut buffer = [0; 65_536];
        // A wait of zero would be one without end.
        let patience = self.context.deadline.bound(patience)?.max(Duration::from_millis(1));
        let received = self.socket.set_read_timeout(Some(patience));
        match received.and_then(|()| self.socket.recv_from(&mut buffer)) {
            Ok((bytes, from)) => {
                let bytes = buffer[..bytes].to_vec();
                let mut told = words::reply(&bytes, self.peer_bytes);
                if from != self.tracker {
                    told = format!("{told}, from {from}");
                }
                self.context.trace.borrow_mut().add(Direction::Seen, told, &bytes);
                Ok(Some(Datagram { from, bytes }))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(patience),
            Err(error) => Err(Unmet::NotSupported(format!("the local socket fails: {error}"))),
        }
    }

    /// Sends a request and returns the next datagram, whatever it is.
    pub(crate) fn ask_anything(&self, packet: &[u8]) -> Checked<Datagram> {
        for _ in 0..self.context.tries {
            self.send(packet)?;
            if let Some(datagram) = self.receive(self.context.target.timing.reply)? {
                return Ok(datagram);
            }
        }
        Err(self.silence(packet))
    }

    /// Asks, and sees whether whatever comes carries the transaction id of the request.
    pub(crate) fn ensure_echoed(&self, packet: &[u8]) -> Checked {
        let reply = self.ask_anything(packet)?.bytes;
        let wanted = word(packet, 12);
        ensure(
            word(&reply, 4) == wanted,
            format!("transaction id {:#x} in the reply", wanted.unwrap_or_default()),
            words::reply(&reply, self.context.peer_bytes()),
        )
    }

    /// Sends a request and returns the reply with its transaction id.
    pub(crate) fn ask(&self, packet: &[u8]) -> Checked<Vec<u8>> {
        for _ in 0..self.context.tries {
            self.send(packet)?;
            if let Some(reply) = self.receive_reply_to(packet, self.context.target.timing.reply)? {
                return Ok(reply);
            }
        }
        Err(self.silence(packet))
    }

    /// The reply with the transaction id of this request, or none within `patience` of the latest datagram.
    fn receive_reply_to(&self, packet: &[u8], patience: Duration) -> Checked<Option<Vec<u8>>> {
        for _ in 0..DATAGRAMS_MAX {
            let Some(datagram) = self.receive(patience)? else { return Ok(None) };
            if datagram.bytes.get(4..8) == packet.get(12..16) {
                return Ok(Some(datagram.bytes));
            }
        }
        Ok(None)
    }

    fn silence(&self, packet: &[u8]) -> Unmet {
        self.context.silences.set(self.context.silences.get() + 1);
        let tries = self.context.tries;
        let reply_s = self.context.target.timing.reply.as_secs_f32();
        Unmet::Fail {
            expected: format!("a reply to: {}", words::request(packet)),
            seen: format!(
                "no reply with this transaction id, after {tries} requests and {reply_s} s for each"
            ),
        }
    }

    /// Sends datagrams that may well get no answer, and returns what comes back. A connect request behind them shows
    /// that the tracker still lives and, since few trackers reorder, that it is done with them.
    pub(crate) fn ask_in_vain(&self, packets: &[Vec<u8>]) -> Checked<Vec<Datagram>> {
        let mut seen = Vec::new();
        for some in packets.chunks(ON_THE_WAY_MAX) {
            some.iter().try_for_each(|packet| self.send(packet))?;
            let barrier = connect(self.context.random());
            let mut is_through = false;
            'tries: for _ in 0..self.context.tries {
                self.send(&barrier)?;
                let mut patience = self.context.target.timing.reply;
                for _ in 0..DATAGRAMS_MAX {
                    let Some(datagram) = self.receive(patience)? else { break };
                    if datagram.bytes.get(4..8) != barrier.get(12..16) {
                        seen.push(datagram);
                        continue;
                    }
                    is_through = true;
                    patience = self.context.target.timing.quiet;
                }
                if is_through {
                    break 'tries;
                }
            }
            ensure(
                is_through,
                "a tracker that answers the next connect request",
                "no answer to any request since: the tracker hangs or has ended",
            )?;
        }
        Ok(seen)
    }

    /// Its connection id, which it asks for once.
    pub(crate) fn connection_id(&self) -> Checked<u64> {
        if let Some(id) = self.connection_id.get() {
            return Ok(id);
        }
        let reply = self.ask(&connect(self.context.random()))?;
        // Whether the action is right is the business of one case, not of all.
        let Some(id) = long(&reply, 8) else {
            return Err(Unmet::Fail {
                expected: "a connect reply of at least 16 bytes".to_owned(),
                seen: words::reply(&reply, self.peer_bytes),
            });
        };
        self.connection_id.set(Some(id));
        Ok(id)
    }

    /// The packet of an announce of this client.
    pub(crate) fn announce_packet(&self, announce: &Announce) -> Checked<Vec<u8>> {
        Ok(announce.packet(self.connection_id()?, self.context.random()))
    }

    /// Announces with these bytes behind the announce.
    pub(crate) fn announce_with(&self, announce: &Announce, tail: &[u8]) -> Checked<Announced> {
        let packet = [&self.announce_packet(announce)?[..], tail].concat();
        let reply = self.ask(&packet)?;
        self.read_announced(&reply)
    }

    /// Sends many requests, some at a time without waiting for the answers. Returns these in the order of the
    /// requests. What gets lost on the way is asked for again.
    pub(crate) fn ask_all(&self, packets: &[Vec<u8>]) -> Checked<Vec<Vec<u8>>> {
        let mut replies = Vec::with_capacity(packets.len());
        for some in packets.chunks(ON_THE_WAY_MAX) {
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
                replies.push(answered.remove(transaction_id(packet)).ok_or_else(|| self.silence(packet))?);
            }
        }
        Ok(replies)
    }

    /// Reads the answer to an announce.
    pub(crate) fn read_announced(&self, reply: &[u8]) -> Checked<Announced> {
        Announced::read(reply, self.peer_bytes).ok_or_else(|| Unmet::Fail {
            expected: format!("an announce reply of 20 + {} · n bytes", self.peer_bytes),
            seen: words::reply(reply, self.peer_bytes),
        })
    }

    /// Notes who joins and who leaves.
    fn remember(&self, packet: &[u8]) {
        let (Some(ANNOUNCE), Some(event)) = (word(packet, 8), word(packet, 80)) else { return };
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
        for some in packets.chunks(ON_THE_WAY_MAX) {
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
        let reply = self.ask(&self.announce_packet(announce)?)?;
        self.read_announced(&reply)
    }

    fn announce_in_vain(&self, announce: &Announce) -> Checked {
        self.ask_in_vain(&[self.announce_packet(announce)?]).map(drop)
    }

    // Without waiting for each answer.
    fn announce_all(&self, announces: &[Announce]) -> Checked<Vec<Announced>> {
        let id = self.connection_id()?;
        let packets: Vec<Vec<u8>> =
            announces.iter().map(|announce| announce.packet(id, self.context.random())).collect();
        let replies = self.ask_all(&packets)?;
        replies.iter().map(|reply| self.read_announced(reply)).collect()
    }

    fn scrape(&self, info_hashes: &[[u8; 20]]) -> Checked<Vec<Counts>> {
        let reply = self.ask(&scrape(self.connection_id()?, self.context.random(), info_hashes))?;
        read_scraped(&reply).filter(|counts| counts.len() == info_hashes.len()).ok_or_else(|| Unmet::Fail {
            expected: format!("a scrape reply of 8 + 12 · {} bytes", info_hashes.len()),
            seen: words::reply(&reply, self.peer_bytes),
        })
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.context.trace.borrow_mut().pause(true);
        // A tracker that has gone needs no farewell.
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
