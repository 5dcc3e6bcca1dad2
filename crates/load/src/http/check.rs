//! Checks replies.

use std::net::{IpAddr, SocketAddr};

use shoal_base::PeerV6;
use shoal_wire::http::received::{Received, ReceivedAnnounce, ReceivedScrape};

use super::reply::Reply;
use crate::connection::Pending;
use crate::driver::Run;
use crate::tally::{Kind, excerpt};

pub(super) struct Checker<'c> {
    pub(super) run: &'c mut Run,
    /// The source address of the connection.
    pub(super) own: IpAddr,
    pub(super) now_ns: u64,
}

impl Checker<'_> {
    /// Checks the reply to a request. The details of a request are the announced port.
    pub(super) fn check(&mut self, request: &Pending<u16>, reply: &Reply<'_>) {
        if self.run.is_late(request.kind, request.peer, request.due_ns, self.now_ns) {
            return;
        }
        if reply.status == 200 {
            // A dictionary ends with a letter. aquatic_http adds an end of line to it, which clients accept.
            let body = reply.body.trim_ascii_end();
            match request.kind {
                Kind::Scrape => match ReceivedScrape::decode(body) {
                    // Torrents that the tracker does not know may be left out (BEP 48).
                    Ok(Received::Reply(scrape)) if scrape.files().count() > usize::from(request.hashes) => {
                        self.run.tally.wrong.count += 1;
                    }
                    Ok(Received::Reply(_)) => self.run.note_good(request.kind, request.due_ns, self.now_ns),
                    Ok(Received::Failure { reason, .. }) => self.run.tally.note_error(reason),
                    Err(error) => self.note_malformed(&error.to_string()),
                },
                Kind::Announce | Kind::Connect => self.check_announce(request, body),
            }
        } else {
            self.run.tally.wrong.status += 1;
            // RFC 6585, section 4, and RFC 9110, section 15.6.4.
            if matches!(reply.status, 429 | 503) {
                self.run.tally.refusals.count(format!("status {}", reply.status).as_bytes());
            }
            let body = excerpt(reply.body);
            self.run.tally.note_fault(|| format!("status {}: {body}", reply.status));
        }
    }

    fn check_announce(&mut self, request: &Pending<u16>, body: &[u8]) {
        let announce = match ReceivedAnnounce::decode(body) {
            Ok(Received::Reply(announce)) => announce,
            Ok(Received::Failure { reason, .. }) => return self.run.tally.note_error(reason),
            Err(error) => return self.note_malformed(&error.to_string()),
        };
        let own = SocketAddr::new(self.own, request.details);
        let is_own_v6 =
            |peer: &PeerV6| matches!(own, SocketAddr::V6(own) if *peer == PeerV6::new(*own.ip(), own.port()));
        let count = announce.peers.count() + announce.peers_v6.len();
        let has_own =
            announce.peers.addresses().any(|peer| peer == own) || announce.peers_v6.iter().any(is_own_v6);
        let swarm = announce.complete.zip(announce.incomplete);
        let swarm = swarm.map(|(complete, incomplete)| u64::from(complete) + u64::from(incomplete));
        if let Some(swarm) = swarm {
            self.run.note_swarm(request.peer, swarm);
        }
        let Run { tally, rules, .. } = &mut *self.run;
        if !rules.allows(count) {
            tally.wrong.count += 1;
        } else if swarm.is_some_and(|swarm| swarm < count as u64) {
            tally.wrong.implausible += 1;
        } else if has_own && rules.own_address_is_wrong {
            tally.wrong.own_address += 1;
        } else {
            tally.own_address_tolerated += u64::from(has_own);
            tally.peers += count as u64;
            tally.announce_reply_bytes += body.len() as u64;
            self.run.note_good(request.kind, request.due_ns, self.now_ns);
        }
    }

    pub(super) fn note_malformed(&mut self, error: &str) {
        self.run.tally.wrong.malformed += 1;
        self.run.tally.note_fault(|| error.to_owned());
    }
}
