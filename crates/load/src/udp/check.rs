//! Checks replies. A [`Checker`] is the [`DatagramService`] of a client's back end: it takes replies and sends nothing.

use std::net::{IpAddr, SocketAddr};

use shoal_base::transport::datagram::{DatagramService, Exchange};
use shoal_base::{PeerV4, PeerV6};
use shoal_wire::udp::{ConnectionId, Peers, Reply, TransactionId};

use super::in_flight::{InFlight, Lookup, Pending};
use crate::driver::Run;
use crate::tally::Kind;

#[derive(Clone, Copy, Debug)]
pub(super) struct ClientSocket {
    pub(super) ip: IpAddr,
    pub(super) connection_id: Option<ConnectionId>,
    pub(super) connected_ns: u64,
}

pub(super) struct Checker<'c> {
    pub(super) run: &'c mut Run,
    pub(super) in_flight: &'c mut InFlight,
    pub(super) sockets: &'c mut [ClientSocket],
    pub(super) now_ns: u64,
}

impl DatagramService for Checker<'_> {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        // The time is read after the wait and before the replies are checked.
        self.now_ns = self.run.now_ns();
        self.run.note_alive(self.now_ns);
        for exchange in batch {
            self.take(exchange.request);
        }
    }
}

impl Checker<'_> {
    fn take(&mut self, reply: &[u8]) {
        let Some(id) = reply.get(4..8) else {
            self.run.tally.wrong.malformed += 1;
            return;
        };
        let id = u32::from_be_bytes(id.try_into().expect("four bytes"));
        match self.in_flight.take(TransactionId(id)) {
            Lookup::Found(request) => {
                let Pending { kind, peer, due_ns, .. } = request;
                if !self.run.is_late(kind, peer, due_ns, self.now_ns) {
                    self.check(&request, reply);
                }
            }
            Lookup::GivenUp => self.run.tally.late += 1,
            Lookup::Unknown => self.run.tally.wrong.transaction_id += 1,
        }
    }

    fn check(&mut self, request: &Pending, reply: &[u8]) {
        let wrong = &mut self.run.tally.wrong;
        match (Reply::decode(reply), request.kind) {
            (Err(_), _) => wrong.malformed += 1,
            (Ok(Reply::Error { message, .. }), _) => self.run.tally.note_error(message),
            (Ok(Reply::Connect { connection_id, .. }), Kind::Connect) => {
                let socket = &mut self.sockets[usize::from(request.socket)];
                (socket.connection_id, socket.connected_ns) = (Some(connection_id), self.now_ns);
                self.count(request);
            }
            (Ok(Reply::Announce { leechers, seeders, peers, .. }), Kind::Announce) => {
                self.run.note_swarm(request.peer, u64::from(leechers) + u64::from(seeders));
                self.check_peers(request, peers, reply.len());
            }
            (Ok(Reply::Scrape { entries, .. }), Kind::Scrape) => {
                if entries.len() == usize::from(request.hashes) {
                    self.count(request);
                } else {
                    wrong.count += 1;
                }
            }
            (Ok(_), _) => wrong.action += 1,
        }
    }

    fn check_peers(&mut self, request: &Pending, peers: Peers<'_>, reply_bytes: usize) {
        let own = SocketAddr::new(self.sockets[usize::from(request.socket)].ip, request.port);
        let Run { tally, rules, .. } = &mut *self.run;
        // A list whose last peer is incomplete cannot be counted.
        let counted = match own {
            SocketAddr::V4(own) => peers.of_family::<PeerV4>().map(|peers| {
                let own = PeerV4::new(*own.ip(), own.port());
                (peers.len(), peers.contains(&own))
            }),
            SocketAddr::V6(own) => peers.of_family::<PeerV6>().map(|peers| {
                let own = PeerV6::new(*own.ip(), own.port());
                (peers.len(), peers.contains(&own))
            }),
        };
        let Some((count, has_own)) = counted else {
            tally.wrong.malformed += 1;
            return;
        };
        if !rules.allows(count) {
            tally.wrong.count += 1;
        } else if has_own && rules.own_address_is_wrong {
            tally.wrong.own_address += 1;
        } else {
            tally.own_address_tolerated += u64::from(has_own);
            tally.peers += count as u64;
            tally.announce_reply_bytes += reply_bytes as u64;
            self.count(request);
        }
    }

    fn count(&mut self, request: &Pending) {
        self.run.note_good(request.kind, request.due_ns, self.now_ns);
    }
}
