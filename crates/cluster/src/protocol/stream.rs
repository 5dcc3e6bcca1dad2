//! The batches of one shard of another node, in their order.
//!
//! A batch that comes too early waits for the batches before it, which are requested again. A missing batch is given up
//! after three seconds: the stream continues after it, and a snapshot has to replace it.
//!
//! A hello each second names the end of each stream with a digest of all batches, which exposes a lost last batch, or a
//! forged one.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::message::StreamHead;

/// Maximum number of batches that wait for an earlier one.
const WAITING_MAX: usize = 256;

/// Memory of a waiting batch in addition to its bytes: its place in the map, and the allocator's overhead.
pub(crate) const WAITING_BYTES_EACH: usize = 128;

/// Maximum number of batches that are requested at once.
const REQUESTED_MAX: u64 = 256;

/// Maximum distance of a batch from the next one. It is not worth closing a larger gap by resends.
const DISTANCE_MAX: u64 = 1 << 16;

/// The time after which an announced batch is missed, in milliseconds.
const LATE_MS: u64 = 200;

/// The time after which a request is repeated, in milliseconds.
const REQUEST_MS: u64 = 500;

/// The time after which a gap that does not shrink is given up, in milliseconds.
const GIVE_UP_MS: u64 = 3_000;

#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The end of the applied batches. The digest is unknown in a stream that was joined in the middle.
    next: Option<u64>,
    digest: Option<u64>,
    /// The batches that came too early.
    waiting: BTreeMap<u64, Bytes>,
    /// The end of the stream as its node has told it, and when.
    told: Option<(StreamHead, u64)>,
    /// When its node last named no batch that was missing here.
    untold_ms: Option<u64>,
    gap: Option<Gap>,
    /// Since when a snapshot is needed to replace losses.
    diverged_ms: Option<u64>,
}

/// The batches that are missing before an arrived one, or that their node claims to have sent.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// When the gap appeared, or last shrank.
    since_ms: u64,
    /// When it was requested.
    requested_ms: Option<u64>,
}

/// How to treat a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The batch is to be applied now. [`Stream::pop`] then returns the batches that have waited for it.
    Next,
    /// The batch waits for earlier ones.
    Early,
    /// The batch was applied before, or waits already.
    Duplicate,
    /// The batch has no room to wait.
    Refused,
}

impl Stream {
    /// Begins at this sequence number, unless the stream has begun. Drops earlier batches that have waited.
    pub(crate) fn begin(&mut self, next: u64) {
        if self.next.is_none() {
            self.next = Some(next);
            self.digest = (next == StreamHead::FIRST.next).then_some(StreamHead::FIRST.digest);
            self.waiting = self.waiting.split_off(&next);
        }
    }

    /// Returns the sequence number of the next batch: the first one if the stream has not begun.
    pub(crate) fn next(&self) -> u64 {
        self.next.unwrap_or(StreamHead::FIRST.next)
    }

    /// Takes an arrived batch. Before the stream has begun, all batches wait. If `has_room` returns false, the batch is
    /// refused and comes again.
    pub(crate) fn arrive(
        &mut self,
        sequence: u64,
        message: &Bytes,
        has_room: impl FnOnce() -> bool,
    ) -> Arrival {
        // Before the beginning, everything waits.
        if self.next == Some(sequence) {
            return Arrival::Next;
        }
        let next = self.next();
        if sequence < next || self.waiting.contains_key(&sequence) {
            return Arrival::Duplicate;
        }
        if self.waiting.len() >= WAITING_MAX
            || self.next.is_some_and(|next| sequence - next > DISTANCE_MAX)
            || !has_room()
        {
            // The batch counts as told, so that it is requested in its turn.
            return Arrival::Refused;
        }
        // A copy, since the message may be a part of a larger buffer.
        self.waiting.insert(sequence, Bytes::copy_from_slice(message));
        Arrival::Early
    }

    /// Records that the next batch was applied, which has this checksum.
    pub(crate) fn advance(&mut self, checksum: u32, now_ms: u64) {
        let Some(next) = self.next else { return };
        let head = StreamHead { next, digest: self.digest.unwrap_or_default() }.after(checksum);
        self.next = Some(head.next);
        self.digest = self.digest.map(|_| head.digest);
        if let Some(gap) = &mut self.gap {
            gap.since_ms = now_ms;
        }
    }

    /// Removes the next batch if it waits.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.waiting.remove(&self.next?)
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.values().map(|message| message.len() + WAITING_BYTES_EACH).sum()
    }

    /// Records the end of the stream as its node has told it. Returns whether the digests differ.
    pub(crate) fn tell(&mut self, head: StreamHead, now_ms: u64) -> bool {
        let told_ms = match self.told {
            // The time of the first hello that named these batches.
            Some((told, told_ms)) if told.next == head.next => told_ms,
            _ => now_ms,
        };
        self.told = Some((head, told_ms));
        if self.next.is_some_and(|next| head.next <= next) {
            self.untold_ms = Some(now_ms);
        }
        if self.next != Some(head.next) {
            return false;
        }
        let differs = self.digest.replace(head.digest).is_some_and(|digest| digest != head.digest);
        if differs {
            self.diverge(now_ms);
        }
        differs
    }

    /// Returns the arrival of a hello that did not name the next batch, or the last applied one.
    pub(crate) const fn untold_ms(&self) -> Option<u64> {
        self.untold_ms
    }

    /// Returns the end of the current gap, and notes since when it exists.
    fn watch(&mut self, now_ms: u64) -> Option<u64> {
        let end = self.next.and_then(|next| self.gap_end(next, now_ms));
        match end {
            Some(_) => _ = self.gap.get_or_insert(Gap { since_ms: now_ms, requested_ms: None }),
            None => self.gap = None,
        }
        end
    }

    /// Returns the first and the last batch to request now.
    pub(crate) fn request(&mut self, now_ms: u64) -> Option<(u64, u64)> {
        let (end, next) = (self.watch(now_ms)?, self.next?);
        let gap = self.gap.as_mut()?;
        if gap.requested_ms.is_some_and(|requested_ms| now_ms < requested_ms + REQUEST_MS) {
            return None;
        }
        gap.requested_ms = Some(now_ms);
        Some((next, (end - 1).min(next + REQUESTED_MAX - 1)))
    }

    /// Skips a gap that does not shrink, that is too large, or whose node `is_lost`, so that no request would close it.
    /// Returns the number of lost batches.
    pub(crate) fn give_up(&mut self, is_lost: bool, now_ms: u64) -> u64 {
        let end = self.watch(now_ms);
        let (Some(end), Some(next), Some(gap)) = (end, self.next, self.gap) else { return 0 };
        if !is_lost && now_ms < gap.since_ms + GIVE_UP_MS && end - next <= DISTANCE_MAX {
            return 0;
        }
        self.skip_to(end, now_ms)
    }

    /// Continues at a batch, since earlier ones cannot be resent. Returns the number of lost batches.
    pub(crate) fn skip_to(&mut self, sequence: u64, now_ms: u64) -> u64 {
        let Some(next) = self.next.filter(|&next| next < sequence) else { return 0 };
        let held = self.waiting.range(..sequence).count() as u64;
        self.waiting = self.waiting.split_off(&sequence);
        (self.next, self.digest, self.gap) = (Some(sequence), None, None);
        self.diverge(now_ms);
        (sequence - next).saturating_sub(held)
    }

    pub(crate) fn diverge(&mut self, now_ms: u64) {
        self.diverged_ms = Some(now_ms);
    }

    /// Returns since when a snapshot is needed to replace losses.
    pub(crate) const fn diverged_ms(&self) -> Option<u64> {
        self.diverged_ms
    }

    /// Records that a snapshot has replaced the losses up to this time.
    pub(crate) fn heal(&mut self, until_ms: u64) {
        self.diverged_ms.take_if(|diverged_ms| *diverged_ms <= until_ms);
    }

    pub(crate) const fn has_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// Returns the known number of batches that were sent but not applied.
    pub(crate) fn behind(&self) -> u64 {
        let Some(next) = self.next else { return 0 };
        let last = self.waiting.last_key_value().map_or(next, |(last, _)| last + 1);
        let told = self.told.map_or(next, |(head, _)| head.next);
        last.max(told).saturating_sub(next)
    }

    /// Returns the first batch after the gap that begins at `next`, if there is a gap.
    fn gap_end(&self, next: u64, now_ms: u64) -> Option<u64> {
        if let Some((&first, _)) = self.waiting.first_key_value() {
            return Some(first);
        }
        let (head, told_ms) = self.told?;
        (head.next > next && now_ms >= told_ms + LATE_MS).then_some(head.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Bytes {
        Bytes::from_static(b"a batch")
    }

    /// Takes a batch, and applies it with all that have waited for it.
    fn take(stream: &mut Stream, sequence: u64, now_ms: u64) -> Arrival {
        let arrival = stream.arrive(sequence, &message(), || true);
        if arrival == Arrival::Next {
            stream.advance(1, now_ms);
            while stream.pop().is_some() {
                stream.advance(1, now_ms);
            }
        }
        arrival
    }

    #[test]
    fn batches_are_applied_once_and_in_order() {
        let mut stream = Stream::default();
        stream.begin(1);
        assert_eq!(take(&mut stream, 1, 0), Arrival::Next);
        assert_eq!(take(&mut stream, 1, 0), Arrival::Duplicate);
        assert_eq!(take(&mut stream, 4, 0), Arrival::Early);
        assert_eq!(take(&mut stream, 3, 0), Arrival::Early);
        assert_eq!(take(&mut stream, 3, 0), Arrival::Duplicate);
        assert_eq!(stream.behind(), 3);
        assert_eq!(take(&mut stream, 2, 0), Arrival::Next);
        assert_eq!((stream.next, stream.behind()), (Some(5), 0));
        let expected = (0..4).fold(StreamHead::FIRST, |head, _| head.after(1));
        assert!(!stream.tell(expected, 0));
        assert!(stream.tell(StreamHead { digest: 5, ..expected }, 0), "another digest");
        assert_eq!(stream.diverged_ms(), Some(0));
    }

    #[test]
    fn a_gap_is_requested_again_and_given_up_in_the_end() {
        let mut stream = Stream::default();
        stream.begin(1);
        assert_eq!(stream.request(0), None);
        take(&mut stream, 5, 0);
        assert_eq!(stream.request(10), Some((1, 4)));
        assert_eq!(stream.request(20), None);
        take(&mut stream, 1, 100);
        assert_eq!(stream.request(510), Some((2, 4)));
        assert_eq!(stream.give_up(false, 100 + GIVE_UP_MS - 1), 0);
        assert_eq!(stream.give_up(false, 100 + GIVE_UP_MS), 3);
        assert!(stream.pop().is_some());
        assert_eq!(stream.diverged_ms(), Some(3100));
        stream.heal(3099);
        assert!(stream.diverged_ms().is_some());
        stream.heal(3100);
        assert_eq!(stream.diverged_ms(), None);
    }

    #[test]
    fn the_gaps_of_a_lost_node_are_given_up_at_once() {
        let mut stream = Stream::default();
        stream.begin(2);
        for early in [3, 5, 7, 9] {
            take(&mut stream, early, 0);
        }
        for lost_before in [3, 5, 7, 9] {
            assert_eq!(stream.give_up(true, 10), 1);
            assert_eq!(stream.next, Some(lost_before));
            assert!(stream.pop().is_some());
            stream.advance(1, 10);
        }
        assert_eq!((stream.give_up(true, 10), stream.diverged_ms()), (0, Some(10)));
    }

    #[test]
    fn the_end_of_a_stream_is_missed_when_its_node_tells_of_it() {
        let mut stream = Stream::default();
        stream.begin(1);
        stream.tell(StreamHead { next: 300, digest: 1 }, 1000);
        assert_eq!((stream.request(1199), stream.behind()), (None, 299));
        // Another one that tells the same does not begin the time anew.
        stream.tell(StreamHead { next: 300, digest: 1 }, 1150);
        assert_eq!(stream.request(1200), Some((1, 256)));
    }

    #[test]
    fn a_stream_that_is_joined_in_the_middle_learns_its_digest() {
        let mut stream = Stream::default();
        for early in [76, 77] {
            assert_eq!(take(&mut stream, early, 0), Arrival::Early, "it has not begun");
        }
        assert_eq!((stream.next(), stream.pop()), (1, None));
        stream.begin(77);
        assert!(stream.pop().is_some());
        stream.advance(1, 0);
        assert!(!stream.tell(StreamHead { next: 78, digest: 5 }, 0));
        let head = StreamHead { next: 78, digest: 5 }.after(1);
        take(&mut stream, 78, 0);
        assert!(!stream.tell(head, 0));
        assert_eq!(stream.digest, Some(head.digest));
        assert!(stream.tell(StreamHead { digest: 6, ..head }, 0));
    }

    #[test]
    fn what_cannot_be_sent_again_is_skipped() {
        let mut stream = Stream::default();
        stream.begin(1);
        for early in [3, 9] {
            take(&mut stream, early, 0);
        }
        assert_eq!(stream.skip_to(8, 5), 6, "batch 3 was there");
        assert_eq!(stream.skip_to(8, 5), 0);
        assert_eq!(take(&mut stream, 8, 5), Arrival::Next);
        assert_eq!(stream.next, Some(10));
    }

    #[test]
    fn few_batches_wait() {
        let mut stream = Stream::default();
        stream.begin(1);
        for sequence in 2..1000 {
            stream.arrive(sequence, &message(), || true);
        }
        assert_eq!(stream.waiting.len(), WAITING_MAX);
        assert_eq!(stream.arrive(5000, &message(), || true), Arrival::Refused);
        let mut stream = Stream::default();
        stream.begin(1);
        assert_eq!(stream.arrive(3, &message(), || false), Arrival::Refused);
    }
}
