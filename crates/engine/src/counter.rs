//! The counters of a worker, for the metrics.
//!
//! Each worker owns one [`Tally`], and is the only writer of its [`Counters`]. An exporter reads the counters of all
//! workers and adds them up. So counting is a plain load and store, without the bus lock of an atomic addition, and
//! no two workers share a cache line. The labels are enums with `ALL` and `name`, over which the exporter can
//! iterate.

use core::net::IpAddr;
use std::sync::Arc;

use shoal_base::metrics::{Counter, Label as _, labels};

use crate::refusal::Refusal;

labels! {
    /// The address family of a client. A v4-mapped v6 address counts as v4.
    pub enum Family {
        /// IPv4.
        V4 = "v4",
        /// IPv6.
        V6 = "v6",
    }
}

labels! {
    /// The kind of a request.
    pub enum Kind {
        /// A request for a connection id.
        Connect = "connect",
        /// A request to join, refresh or leave a swarm.
        Announce = "announce",
        /// An answer to the offer of another peer (WebTorrent). It gets no reply.
        Answer = "answer",
        /// A request for the counts of some torrents.
        Scrape = "scrape",
        /// A request for the counts of all torrents.
        FullScrape = "full_scrape",
        /// A request for the published deny list (HTTP).
        Blocklist = "blocklist",
        /// A request for the public statistics or the home page (HTTP).
        Statistics = "statistics",
        /// A request that the protocol does not define.
        Other = "other",
    }
}

labels! {
    /// Why a datagram gets no reply. Over HTTP and WebSockets, only a ban or a rule can be the reason. A rule counts as an outcome.
    pub enum Drop {
        /// The datagram is shorter than its action requires.
        Truncated = "truncated",
        /// The datagram is a connect request without the protocol id of BEP 15.
        WrongProtocolId = "wrong_protocol_id",
        /// The connection id is wrong, and either the policy is silence or the error would be larger than the
        /// request.
        WrongConnectionId = "wrong_connection_id",
        /// The source asks more often than the operator allows, and either the policy is silence or the request asks
        /// for a connection id.
        RateLimited = "rate_limited",
        /// A rule of the operator drops the request.
        Rule = "rule",
        /// No reply can be sent to the source: it has port 0, or an unspecified, multicast or broadcast address.
        UnanswerableSource = "unanswerable_source",
        /// The source has earned a ban. Over TCP, its connection is closed.
        Banned = "banned",
    }
}

labels! {
    /// Why an announce is answered without registering its peer.
    pub enum Unregistered {
        /// The address has as many peers in the torrent as the operator allows.
        PeersPerAddress = "peers_per_address",
        /// The address has as large a share of the torrent as the operator allows.
        SwarmShare = "swarm_share",
        /// The source has as many peers as the operator allows.
        PeersPerSource = "peers_per_source",
        /// The source takes part in as many torrents as the operator allows.
        TorrentsPerSource = "torrents_per_source",
    }
}

labels! {
    /// A message that the tracker relays from one WebTorrent client to another.
    pub enum Relay {
        /// An offer to connect.
        Offer = "offer",
        /// The answer to an offer.
        Answer = "answer",
    }
}

labels! {
    /// Why a message to a WebTorrent client is dropped.
    pub enum Loss {
        /// The receiver of the answer does not, or no longer, await one from this sender.
        Unawaited = "unawaited",
        /// The receiver has left the swarm or disconnected.
        Gone = "gone",
        /// The mailbox of the receiver's worker is full.
        MailboxFull = "mailbox_full",
        /// The receiver's queue holds as many bytes of offers and answers as it may.
        QueueFull = "queue_full",
        /// The sender of the offer has used up its relay allowance for now.
        RateLimited = "rate_limited",
        /// The receiver leaves more replies unread than may be queued, and is disconnected.
        ReplyQueueFull = "reply_queue_full",
    }
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The reply has the requested result.
    Ok,
    /// The reply is an error.
    Refused(Refusal),
}

/// The counts of one worker and one protocol.
#[derive(Debug)]
// Two cache lines, because processors also prefetch the adjacent line.
#[repr(align(128))]
pub struct Counters {
    requests: [[Counter; Kind::ALL.len()]; Family::ALL.len()],
    replies: [[[Counter; Outcome::COUNT]; Kind::ALL.len()]; Family::ALL.len()],
    drops: [[Counter; Drop::ALL.len()]; Family::ALL.len()],
    unregistered: [[Counter; Unregistered::ALL.len()]; Family::ALL.len()],
    relays: [Counter; Relay::ALL.len()],
    losses: [Counter; Loss::ALL.len()],
}

/// The exclusive right to write one [`Counters`].
#[derive(Debug, Default)]
pub struct Tally(Arc<Counters>);

impl Family {
    /// Returns the family of a canonical address.
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl Outcome {
    const COUNT: usize = 1 + Refusal::ALL.len();

    /// Returns every outcome.
    pub fn all() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Ok).chain(Refusal::ALL.into_iter().map(Self::Refused))
    }

    /// Returns the label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused(refusal) => refusal.name(),
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Ok => 0,
            Self::Refused(refusal) => 1 + refusal.index(),
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        use core::array::from_fn;
        Self {
            requests: from_fn(|_| from_fn(|_| Counter::default())),
            replies: from_fn(|_| from_fn(|_| from_fn(|_| Counter::default()))),
            drops: from_fn(|_| from_fn(|_| Counter::default())),
            unregistered: from_fn(|_| from_fn(|_| Counter::default())),
            relays: from_fn(|_| Counter::default()),
            losses: from_fn(|_| Counter::default()),
        }
    }
}

impl Counters {
    /// Returns the number of well-formed requests with any outcome.
    pub fn requests(&self, family: Family, kind: Kind) -> u64 {
        self.requests[family.index()][kind.index()].read()
    }

    /// Returns the number of replies.
    pub fn replies(&self, family: Family, kind: Kind, outcome: Outcome) -> u64 {
        self.replies[family.index()][kind.index()][outcome.index()].read()
    }

    /// Returns the number of datagrams without a reply.
    pub fn drops(&self, family: Family, reason: Drop) -> u64 {
        self.drops[family.index()][reason.index()].read()
    }

    /// Returns the number of announces that were answered without registering their peer.
    pub fn unregistered(&self, family: Family, reason: Unregistered) -> u64 {
        self.unregistered[family.index()][reason.index()].read()
    }

    /// Returns the number of messages that were handed to the connection or the worker of their receiver.
    pub fn relays(&self, relay: Relay) -> u64 {
        self.relays[relay.index()].read()
    }

    /// Returns the number of dropped messages to WebTorrent clients, some of which were counted as relayed before.
    pub fn losses(&self, reason: Loss) -> u64 {
        self.losses[reason.index()].read()
    }
}

impl Tally {
    /// Returns the counts, for an exporter.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.0)
    }

    /// Counts requests for connection ids that an XDP program has answered.
    pub fn add_connects(&mut self, family: Family, answered: u64) {
        let (family, kind) = (family.index(), Kind::Connect.index());
        self.0.requests[family][kind].add(answered);
        self.0.replies[family][kind][Outcome::Ok.index()].add(answered);
    }

    /// Counts requests that an XDP program has dropped because of a limit.
    pub fn add_limited(&mut self, family: Family, kind: Kind, requests: u64) {
        self.0.requests[family.index()][kind.index()].add(requests);
        self.0.drops[family.index()][Drop::RateLimited.index()].add(requests);
    }

    pub(crate) fn request(&mut self, family: Family, kind: Kind) {
        self.0.requests[family.index()][kind.index()].increment();
    }

    pub(crate) fn reply(&mut self, family: Family, kind: Kind, outcome: Outcome) {
        self.0.replies[family.index()][kind.index()][outcome.index()].increment();
    }

    pub(crate) fn drop(&mut self, family: Family, reason: Drop) {
        self.0.drops[family.index()][reason.index()].increment();
    }

    pub(crate) fn unregistered(&mut self, family: Family, reason: Unregistered) {
        self.0.unregistered[family.index()][reason.index()].increment();
    }

    pub(crate) fn relay(&mut self, relay: Relay) {
        self.0.relays[relay.index()].increment();
    }

    pub(crate) fn lose(&mut self, reason: Loss, count: u64) {
        self.0.losses[reason.index()].add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_that_a_program_answers_count_as_others() {
        let mut tally = Tally::default();
        tally.add_connects(Family::V6, 5);
        tally.add_limited(Family::V6, Kind::Connect, 2);
        tally.add_limited(Family::V6, Kind::Scrape, 1);
        let counters = tally.counters();
        assert_eq!(counters.requests(Family::V6, Kind::Connect), 7);
        assert_eq!(counters.replies(Family::V6, Kind::Connect, Outcome::Ok), 5);
        assert_eq!(counters.requests(Family::V6, Kind::Scrape), 1);
        assert_eq!(counters.drops(Family::V6, Drop::RateLimited), 3);
        assert_eq!(counters.requests(Family::V4, Kind::Connect), 0);
    }

    #[test]
    fn each_count_has_a_place_of_its_own() {
        let mut tally = Tally::default();
        let counters = tally.counters();
        for family in Family::ALL {
            for kind in Kind::ALL {
                tally.request(family, kind);
                assert_eq!(counters.requests(family, kind), 1);
                for outcome in Outcome::all() {
                    tally.reply(family, kind, outcome);
                    assert_eq!(counters.replies(family, kind, outcome), 1);
                }
            }
            for reason in Drop::ALL {
                tally.drop(family, reason);
                tally.drop(family, reason);
                assert_eq!(counters.drops(family, reason), 2);
            }
            for reason in Unregistered::ALL {
                tally.unregistered(family, reason);
                assert_eq!(counters.unregistered(family, reason), 1);
            }
        }
        for relay in Relay::ALL {
            tally.relay(relay);
            assert_eq!(counters.relays(relay), 1);
        }
        for reason in Loss::ALL {
            tally.lose(reason, 0);
            tally.lose(reason, 3);
            assert_eq!(counters.losses(reason), 3);
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Outcome::all().map(Outcome::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Outcome::COUNT);
    }

    #[test]
    fn workers_do_not_share_cache_lines() {
        assert_eq!(align_of::<Counters>(), 128);
    }
}
