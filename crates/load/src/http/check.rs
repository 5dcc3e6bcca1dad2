//! Judges replies.

use std::net::{IpAddr, SocketAddr};

use shoal_types::PeerV6;
use shoal_wire::http::received::{Received, ReceivedAnnounce, ReceivedScrape};

use super::reply::Reply;
use crate::progress::Live;
use crate::rules::{Rules, words};
use crate::tally::{Kind, Tally};

/// What was asked, as far as the reply is checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// When the request should have left.
    pub(super) due_ns: u64,
    /// When it was written.
    pub(super) asked_ns: u64,
    /// The peer that announces, or a peer of the torrent first scraped.
    pub(super) peer: u32,
    /// The port that was announced.
    pub(super) port: u16,
    /// Info hashes of a scrape.
    pub(super) hashes: u8,
    pub(super) kind: Kind,
}

/// Whoever judges.
pub(super) struct Judge<'j> {
    pub(super) rules: Rules,
    /// The address that was asked from.
    pub(super) own: IpAddr,
    /// When the reply was there.
    pub(super) now_ns: u64,
    pub(super) tally: &'j mut Tally,
    pub(super) live: &'j Live,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was answered, in whatever words.
    Heard,
    /// The reply came too late.
    Late,
}

impl Judge<'_> {
    pub(super) fn judge(&mut self, asked: &Asked, reply: &Reply<'_>) -> Verdict {
        if self.now_ns.saturating_sub(asked.due_ns) > self.rules.timeout_ns {
            self.tally.lost += 1;
            self.tally.late += 1;
            return Verdict::Late;
        }
        if reply.status == 200 {
            // A dictionary ends with a letter. aquatic_http adds an end of line to it, which clients do not mind.
            let body = reply.body.trim_ascii_end();
            match asked.kind {
                Kind::Scrape => self.judge_scrape(asked, body),
                Kind::Announce | Kind::Connect => self.judge_announce(asked, body),
            }
        } else {
            self.tally.wrong.status += 1;
            let body = words(reply.body);
            self.tally.note_fault(|| format!("status {}: {body}", reply.status));
        }
        Verdict::Heard
    }

    fn judge_announce(&mut self, asked: &Asked, body: &[u8]) {
        let announce = match ReceivedAnnounce::decode(body) {
            Ok(Received::Reply(announce)) => announce,
            Ok(Received::Failure { reason, .. }) => return self.refused(reason),
            Err(error) => return self.malformed(&error.to_string()),
        };
        let own = SocketAddr::new(self.own, asked.port);
        let count = announce.peers.count() + announce.peers_v6.len();
        let has_own = announce.peers.addresses().any(|peer| peer == own)
            || announce.peers_v6.iter().any(|peer| is_at(peer, own));
        let swarm = announce.complete.zip(announce.incomplete);
        let swarm = swarm.map(|(complete, incomplete)| u64::from(complete) + u64::from(incomplete));
        let wrong = &mut self.tally.wrong;
        if !self.rules.allows(count) {
            wrong.count += 1;
        } else if swarm.is_some_and(|swarm| swarm < count as u64) {
            wrong.implausible += 1;
        } else if has_own && self.rules.own_address_is_wrong {
            wrong.own_address += 1;
        } else {
            self.tally.own_address_tolerated += u64::from(has_own);
            self.tally.peers += count as u64;
            self.tally.announce_reply_bytes += body.len() as u64;
            self.count(asked);
        }
    }

    fn judge_scrape(&mut self, asked: &Asked, body: &[u8]) {
        match ReceivedScrape::decode(body) {
            // Torrents that the tracker does not know may be left out (BEP 48).
            Ok(Received::Reply(scrape)) if scrape.files().count() > usize::from(asked.hashes) => {
                self.tally.wrong.count += 1;
            }
            Ok(Received::Reply(_)) => self.count(asked),
            Ok(Received::Failure { reason, .. }) => self.refused(reason),
            Err(error) => self.malformed(&error.to_string()),
        }
    }

    fn refused(&mut self, reason: &[u8]) {
        self.tally.errors += 1;
        self.tally.first_error.get_or_insert_with(|| words(reason));
    }

    pub(super) fn malformed(&mut self, why: &str) {
        self.tally.wrong.malformed += 1;
        self.tally.note_fault(|| why.to_owned());
    }

    /// A good reply.
    fn count(&mut self, asked: &Asked) {
        let latency_ns = self.now_ns.saturating_sub(asked.due_ns);
        self.tally.responses.count(asked.kind);
        self.tally.record_latency(latency_ns);
        self.live.record(latency_ns);
    }
}

fn is_at(peer: &PeerV6, own: SocketAddr) -> bool {
    matches!(own, SocketAddr::V6(own) if *peer == PeerV6::new(*own.ip(), own.port()))
}
