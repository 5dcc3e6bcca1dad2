//! Judges replies: a [`Service`] for the back end of a client, which answers nothing.

use std::net::{IpAddr, SocketAddr};

use shoal_net::Service;
use shoal_types::{PeerV4, PeerV6};
use shoal_wire::datagram::Exchange;
use shoal_wire::udp::{ConnectionId, Peers, Reply, TransactionId};

use super::ask::note_unheard;
use super::flight::{Asked, Flight, Landed};
use crate::clock::Clock;
use crate::progress::Live;
use crate::rules::{Rules, words};
use crate::tally::{Kind, Tally};

/// What a socket has been told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) ip: IpAddr,
    pub(super) connection_id: Option<ConnectionId>,
    /// When that came.
    pub(super) connected_ns: u64,
}

/// Takes what one turn of the back end brings.
pub(super) struct Judge<'j> {
    pub(super) rules: Rules,
    pub(super) clock: Clock,
    /// When the batch was there.
    pub(super) now_ns: u64,
    pub(super) flight: &'j mut Flight,
    pub(super) lines: &'j mut [Line],
    pub(super) tally: &'j mut Tally,
    /// See [`super::worker::Worker`].
    pub(super) unheard: &'j mut Option<Vec<u32>>,
    pub(super) live: &'j Live,
}

impl Service for Judge<'_> {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.now_ns = self.clock.now_ns();
        for exchange in batch {
            self.take(exchange.request);
        }
    }
}

impl Judge<'_> {
    fn take(&mut self, reply: &[u8]) {
        let Some(id) = reply.get(4..8) else {
            self.tally.wrong.malformed += 1;
            return;
        };
        let id = u32::from_be_bytes(id.try_into().expect("four bytes"));
        match self.flight.land(TransactionId(id)) {
            Landed::Known(asked) if self.now_ns.saturating_sub(asked.due_ns) > self.rules.timeout_ns => {
                // Nobody had given it up yet.
                self.tally.lost += 1;
                self.tally.late += 1;
                note_unheard(self.unheard, &asked);
            }
            Landed::Known(asked) => self.judge(&asked, reply),
            Landed::GivenUp => self.tally.late += 1,
            Landed::Unknown => self.tally.wrong.transaction_id += 1,
        }
    }

    fn judge(&mut self, asked: &Asked, reply: &[u8]) {
        let wrong = &mut self.tally.wrong;
        match (Reply::decode(reply), asked.kind) {
            (Err(_), _) => wrong.malformed += 1,
            (Ok(Reply::Error { message, .. }), _) => {
                self.tally.errors += 1;
                self.tally.first_error.get_or_insert_with(|| words(message));
            }
            (Ok(Reply::Connect { connection_id, .. }), Kind::Connect) => {
                let line = &mut self.lines[usize::from(asked.socket)];
                (line.connection_id, line.connected_ns) = (Some(connection_id), self.now_ns);
                self.count(asked);
            }
            (Ok(Reply::Announce { peers, .. }), Kind::Announce) => {
                self.judge_peers(asked, peers, reply.len());
            }
            (Ok(Reply::Scrape { entries, .. }), Kind::Scrape) => {
                if entries.len() == usize::from(asked.hashes) {
                    self.count(asked);
                } else {
                    wrong.count += 1;
                }
            }
            (Ok(_), _) => wrong.action += 1,
        }
    }

    fn judge_peers(&mut self, asked: &Asked, peers: Peers<'_>, reply_bytes: usize) {
        let own = SocketAddr::new(self.lines[usize::from(asked.socket)].ip, asked.port);
        let wrong = &mut self.tally.wrong;
        let Some((count, has_own)) = look(peers, own) else {
            wrong.malformed += 1;
            return;
        };
        if !self.rules.allows(count) {
            wrong.count += 1;
            return;
        }
        if has_own && self.rules.own_address_is_wrong {
            wrong.own_address += 1;
            return;
        }
        self.tally.own_address_tolerated += u64::from(has_own);
        self.tally.peers += count as u64;
        self.tally.announce_reply_bytes += reply_bytes as u64;
        self.count(asked);
    }

    /// A good reply.
    fn count(&mut self, asked: &Asked) {
        let latency_ns = self.now_ns.saturating_sub(asked.due_ns);
        self.tally.responses.count(asked.kind);
        self.tally.record_latency(latency_ns);
        self.live.record(latency_ns);
    }
}

/// How many peers there are, and whether `own` is one. `None` if the last one is cut off.
fn look(peers: Peers<'_>, own: SocketAddr) -> Option<(usize, bool)> {
    match own {
        SocketAddr::V4(own) => {
            let (peers, own) = (peers.of_family::<PeerV4>()?, PeerV4::new(*own.ip(), own.port()));
            Some((peers.len(), peers.contains(&own)))
        }
        SocketAddr::V6(own) => {
            let (peers, own) = (peers.of_family::<PeerV6>()?, PeerV6::new(*own.ip(), own.port()));
            Some((peers.len(), peers.contains(&own)))
        }
    }
}
