//! Credit: which announces of users are told to the program that credits them.
//!
//! This module owns that decision for every protocol: an announce that was served, with a token that names its user. A
//! responder hands it over through a ring of fixed size ([`CreditRecorder`]) and never waits: if the ring is full, the announce
//! is lost and counted. Without a recorder, nothing here is called.
//!
//! The fields of an announce are read from the request again, so that others need not carry them. The user is read from
//! the token at each announce, in a microsecond. The cache of tokens knows tokens by their tags only. A subject of 64
//! bytes for each would triple its memory for trackers that credit no user.

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
    /// The time in milliseconds, on the clock that never goes back.
    pub monotonic_ms: u64,
    /// The announce.
    pub credit: Credit,
}

/// The announces that a responder could not record.
#[derive(Debug, Default)]
pub struct CreditCounters {
    /// Those that were lost because the ring was full.
    pub lost: Counter,
    /// Those with a token that names no user, or not as [`Subject`](shoal_base::Subject) demands.
    pub without_subject: Counter,
    /// Those of clients that leave, with a token that is not valid. They are served, as such clients need none.
    pub invalid_token: Counter,
}

/// The end of a ring at which a responder records announces.
#[derive(Debug)]
pub struct CreditRecorder {
    ring: rtrb::Producer<RecordedCredit>,
    counters: Arc<CreditCounters>,
}

/// The end of a ring from which another thread takes the announces.
#[derive(Debug)]
pub struct RecordedCredits {
    ring: rtrb::Consumer<RecordedCredit>,
    counters: Arc<CreditCounters>,
}

/// Returns the two ends of a ring.
#[must_use]
pub fn ring() -> (CreditRecorder, RecordedCredits) {
    let (producer, consumer) = rtrb::RingBuffer::new(CREDITS_MAX);
    let counters = Arc::<CreditCounters>::default();
    let recorder = CreditRecorder { ring: producer, counters: Arc::clone(&counters) };
    (recorder, RecordedCredits { ring: consumer, counters })
}

impl CreditRecorder {
    /// Records an announce that `policy` has admitted and that was served, if its token names a user.
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
    /// Calls `visit` with up to `max` announces in their order, and takes them. Returns their number.
    pub fn drain(&mut self, max: usize, visit: impl FnMut(RecordedCredit)) -> usize {
        let waiting = self.ring.slots().min(max);
        let Ok(chunk) = self.ring.read_chunk(waiting) else { return 0 };
        chunk.into_iter().for_each(visit);
        waiting
    }

    /// Returns the counts of announces that could not be recorded, for an exporter.
    #[must_use]
    pub const fn counters(&self) -> &Arc<CreditCounters> {
        &self.counters
    }
}
