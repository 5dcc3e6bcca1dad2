//! What a worker has done, counted for the metrics.
//!
//! Each worker owns one [`Tally`] and is the only one to write its [`Counters`]; an exporter reads those of all workers
//! and adds them up. So counting is a plain load and store, without the bus lock of an atomic addition, and no two
//! workers share a cache line. The labels are enums with `ALL` and `name`, for the exporter to iterate.

use core::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::label::labels;
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
    /// What is asked.
    pub enum Kind {
        /// A connection id.
        Connect = "connect",
        /// To join, refresh or leave a swarm.
        Announce = "announce",
        /// To tell another peer what answers its offer (WebTorrent). Gets no reply.
        Answer = "answer",
        /// The counts of torrents.
        Scrape = "scrape",
        /// The counts of all torrents.
        FullScrape = "full_scrape",
        /// Something that the protocol does not know.
        Other = "other",
    }
}

labels! {
    /// Why a datagram gets no reply. Over HTTP every request has one.
    pub enum Drop {
        /// It is shorter than what it says it is.
        Truncated = "truncated",
        /// A connect request without the protocol id of BEP 15.
        WrongProtocolId = "wrong_protocol_id",
        /// The connection id is wrong, and the policy is silence or the error would be larger than the request.
        WrongConnectionId = "wrong_connection_id",
        /// Nothing can be sent to the source: port 0, or an unspecified, multicast or broadcast address.
        UnanswerableSource = "unanswerable_source",
    }
}

labels! {
    /// What goes through the tracker from one WebTorrent client to another.
    pub enum Relay {
        /// An offer to connect.
        Offer = "offer",
        /// The answer to one.
        Answer = "answer",
    }
}

labels! {
    /// Why something that a WebTorrent client was to hear is dropped.
    pub enum Loss {
        /// An answer that its receiver does not await from there, or no more.
        Unawaited = "unawaited",
        /// Its receiver has left the swarm, or gone.
        Gone = "gone",
        /// More is waiting for the worker of its receiver than may.
        MailboxFull = "mailbox_full",
        /// An offer or answer for a client that has as much of them in its queue as may be there.
        QueueFull = "queue_full",
        /// An offer of a client that has had as many bytes relayed as it may for now.
        RateLimited = "rate_limited",
        /// A reply to a client that leaves more of them unread than may wait, and is disconnected.
        ReplyQueueFull = "reply_queue_full",
    }
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As asked.
    Ok,
    /// By an error reply.
    Refused(Refusal),
}

/// The counts of one worker and one protocol.
#[derive(Debug, Default)]
// Two lines, since processors prefetch the neighbour of a line.
#[repr(align(128))]
pub struct Counters {
    requests: [[Counter; Kind::ALL.len()]; Family::ALL.len()],
    replies: [[[Counter; Outcome::COUNT]; Kind::ALL.len()]; Family::ALL.len()],
    drops: [[Counter; Drop::ALL.len()]; Family::ALL.len()],
    relays: [Counter; Relay::ALL.len()],
    losses: [Counter; Loss::ALL.len()],
}

/// The right to count: there is one for each [`Counters`].
#[derive(Debug, Default)]
pub struct Tally(Arc<Counters>);

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Family {
    /// The family of a canonical address.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl Outcome {
    const COUNT: usize = 1 + Refusal::ALL.len();

    /// Every outcome.
    pub fn all() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Ok).chain(Refusal::ALL.into_iter().map(Self::Refused))
    }

    /// The label by which metrics know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused(refusal) => refusal.name(),
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Ok => 0,
            Self::Refused(refusal) => 1 + refusal.index(),
        }
    }
}

impl Counters {
    /// Requests that could be read, whatever became of them.
    #[must_use]
    pub fn requests(&self, family: Family, kind: Kind) -> u64 {
        self.requests[family.index()][kind.index()].value()
    }

    /// Replies.
    #[must_use]
    pub fn replies(&self, family: Family, kind: Kind, outcome: Outcome) -> u64 {
        self.replies[family.index()][kind.index()][outcome.index()].value()
    }

    /// Datagrams without a reply.
    #[must_use]
    pub fn drops(&self, family: Family, reason: Drop) -> u64 {
        self.drops[family.index()][reason.index()].value()
    }

    /// Messages that were relayed, as far as they were handed to the connection or the worker of their receiver.
    #[must_use]
    pub fn relays(&self, relay: Relay) -> u64 {
        self.relays[relay.index()].value()
    }

    /// Messages to WebTorrent clients that were dropped. Some of them were counted as relayed before.
    #[must_use]
    pub fn losses(&self, reason: Loss) -> u64 {
        self.losses[reason.index()].value()
    }
}

impl Tally {
    /// The counts, for an exporter.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.0)
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

    pub(crate) fn relay(&mut self, relay: Relay) {
        self.0.relays[relay.index()].increment();
    }

    pub(crate) fn lose(&mut self, reason: Loss, count: u64) {
        self.0.losses[reason.index()].add(count);
    }
}

impl Counter {
    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Only to be called by the one owner of the tally, or increments get lost.
    fn increment(&self) {
        self.add(1);
    }

    /// As [`Self::increment`].
    fn add(&self, count: u64) {
        self.0.store(self.value().wrapping_add(count), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
