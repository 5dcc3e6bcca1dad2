//! Credit: which announces of users are passed to the program that credits them.
//!
//! This module decides that for every protocol: served announces whose token names a user. A responder passes them
//! through a ring of fixed size ([`CreditRecorder`]) and never waits: with a full ring, the announce is lost and
//! counted. Without a recorder, nothing here is called.
//!
//! The fields of an announce are read from the request again, so that other announces need not carry them. The user
//! is read from the token at each announce, in a microsecond. The cache of tokens holds only their tags: a subject of
//! 64 bytes for each would triple its memory for trackers that credit no user.

use std::sync::Arc;

use shoal_base::metrics::Counter;
use shoal_base::{Credit, CreditProtocol, Transfer};

use crate::Now;
use crate::policy::{Policy, Protocol, Request};

/// The number of announces that wait to be taken.
pub const CREDITS_MAX: usize = 4096;

/// The memory of a ring in bytes.
pub const RING_BYTES: usize = CREDITS_MAX * size_of::<RecordedCredit>();

const _: () = assert!(size_of::<RecordedCredit>() <= 176, "a ring of each responder has 4096 of them");

/// An announce, and when it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCredit {
    /// The time in milliseconds, on the monotonic clock.
    pub monotonic_ms: u64,
    /// The announce.
    pub credit: Credit,
}

/// The announces that a responder could not record.
#[derive(Debug, Default)]
pub struct CreditCounters {
    /// Announces that were lost because the ring was full.
    pub lost: Counter,
    /// Announces whose token names no user, or not as [`Subject`](shoal_base::Subject) demands.
    pub without_subject: Counter,
    /// Announces of leaving clients with an invalid token. They are served, since a leaving client needs no token.
    pub invalid_token: Counter,
}

/// The sending end of a ring, at which a responder records announces.
#[derive(Debug)]
pub struct CreditRecorder {
    ring: rtrb::Producer<RecordedCredit>,
    counters: Arc<CreditCounters>,
}

/// The receiving end of a ring, from which another thread takes the announces.
#[derive(Debug)]
pub struct RecordedCredits {
    ring: rtrb::Consumer<RecordedCredit>,
    counters: Arc<CreditCounters>,
}

/// Returns the two ends of a ring.
pub fn ring() -> (CreditRecorder, RecordedCredits) {
    let (producer, consumer) = rtrb::RingBuffer::new(CREDITS_MAX);
    let counters = Arc::<CreditCounters>::default();
    let recorder = CreditRecorder { ring: producer, counters: Arc::clone(&counters) };
    (recorder, RecordedCredits { ring: consumer, counters })
}

impl CreditRecorder {
    /// Records an admitted and served announce, if its token names a user.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&mut self, policy: &Policy, request: &Request<'_>, transfer: Transfer, now: Now) {
        let Some(tokens) = policy.tokens() else { return };
        let subject = match tokens.subject(request, now) {
            None => return,
            Some(Ok(Some(subject))) => subject,
            Some(Ok(None)) => return self.counters.without_subject.increment(),
            Some(Err(_)) => return self.counters.invalid_token.increment(),
        };
        let credit = Credit {
            subject,
            info_hash: *request.info_hash,
            peer_id: request.peer_id.copied(),
            event: request.event,
            protocol: match request.protocol {
                Protocol::Udp => CreditProtocol::Udp,
                Protocol::Http => CreditProtocol::Http,
                Protocol::WebTorrent => CreditProtocol::WebTorrent,
            },
            transfer,
        };
        if self.ring.push(RecordedCredit { monotonic_ms: now.monotonic_ms, credit }).is_err() {
            self.counters.lost.increment();
        }
    }
}

impl RecordedCredits {
    /// Takes up to `max` announces in their order, and calls `visit` with each. Returns their number.
    pub fn drain(&mut self, max: usize, visit: impl FnMut(RecordedCredit)) -> usize {
        let waiting = self.ring.slots().min(max);
        let Ok(chunk) = self.ring.read_chunk(waiting) else { return 0 };
        chunk.into_iter().for_each(visit);
        waiting
    }

    /// Returns the counts of announces that could not be recorded, for an exporter.
    pub const fn counters(&self) -> &Arc<CreditCounters> {
        &self.counters
    }
}
