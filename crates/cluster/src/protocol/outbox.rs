//! The deltas of this node: collected in batches, numbered, and retained for resends.
//!
//! A batch has up to 16 KiB or 50 ms of changes of one of 16 shards of torrents.

use std::collections::VecDeque;

use bytes::Bytes;
use shoal_base::{Delta, InfoHash, Presence};

use crate::protocol::api::NodeId;
use crate::protocol::delta::{DELTA_BYTES_MAX, encode_delta, encode_presence};
use crate::protocol::message::{BATCH_HEAD_BYTES, Message, StreamHead, checksum_of, encode};
use crate::protocol::subject::{SHARDS, shard_of};

/// Maximum size of a batch in bytes.
pub const BATCH_BYTES_MAX: usize = 16 * 1024;

/// Maximum time for which a delta waits for others, in milliseconds.
const BATCH_MS_MAX: u64 = 50;

#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) shard: usize,
    pub(crate) message: Bytes,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    id: NodeId,
    shards: [Shard; SHARDS],
    /// The shards of the retained batches, oldest first.
    order: VecDeque<usize>,
    retained_bytes: usize,
    retained_bytes_max: usize,
}

#[derive(Debug)]
struct Shard {
    deltas: Vec<u8>,
    torrent: Option<InfoHash>,
    since_ms: u64,
    head: StreamHead,
    /// The last batches, without a gap.
    retained: VecDeque<Bytes>,
}

impl Outbox {
    pub(crate) fn new(id: NodeId, retained_bytes_max: usize) -> Self {
        let shard = |_| Shard {
            deltas: Vec::new(),
            torrent: None,
            since_ms: 0,
            head: StreamHead::FIRST,
            retained: VecDeque::new(),
        };
        Self {
            id,
            shards: core::array::from_fn(shard),
            order: VecDeque::new(),
            retained_bytes: 0,
            retained_bytes_max,
        }
    }

    pub(crate) const fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Adds a delta. Returns the batch if it is complete now.
    pub(crate) fn push(&mut self, delta: &Delta, now_ms: u64) -> Option<Batch> {
        self.append(&delta.info_hash, now_ms, |before, out| encode_delta(delta, before, out))
    }

    /// Adds the delta of a WebTorrent peer. Returns the batch if it is complete now.
    pub(crate) fn push_presence(&mut self, presence: &Presence, now_ms: u64) -> Option<Batch> {
        self.append(&presence.info_hash, now_ms, |before, out| encode_presence(presence, before, out))
    }

    /// Adds a delta that `encode` appends.
    fn append(
        &mut self,
        info_hash: &InfoHash,
        now_ms: u64,
        encode: impl FnOnce(Option<&InfoHash>, &mut Vec<u8>),
    ) -> Option<Batch> {
        let index = shard_of(info_hash);
        let shard = &mut self.shards[index];
        if shard.deltas.is_empty() {
            shard.since_ms = now_ms;
        }
        encode(shard.torrent.as_ref(), &mut shard.deltas);
        shard.torrent = Some(*info_hash);
        let is_full = BATCH_HEAD_BYTES + shard.deltas.len() + DELTA_BYTES_MAX > BATCH_BYTES_MAX;
        is_full.then(|| self.complete(index, now_ms))
    }

    /// Returns a batch that has waited long enough.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Batch> {
        let is_due =
            |shard: &Shard| !shard.deltas.is_empty() && now_ms >= shard.since_ms.saturating_add(BATCH_MS_MAX);
        let index = self.shards.iter().position(is_due)?;
        Some(self.complete(index, now_ms))
    }

    pub(crate) fn heads(&self) -> [StreamHead; SHARDS] {
        core::array::from_fn(|shard| self.shards[shard].head)
    }

    pub(crate) fn retained(&self, shard: usize, sequence: u64) -> Option<Bytes> {
        let index = sequence.checked_sub(self.first_retained(shard))?;
        self.shards[shard].retained.get(usize::try_from(index).ok()?).cloned()
    }

    /// Returns the sequence number of a shard's first retained batch, or the next number if none is retained.
    pub(crate) fn first_retained(&self, shard: usize) -> u64 {
        let Shard { head, retained, .. } = &self.shards[shard];
        head.next - retained.len() as u64
    }

    fn complete(&mut self, index: usize, now_ms: u64) -> Batch {
        let shard = &mut self.shards[index];
        let batch = Message::Batch {
            shard: index,
            sequence: shard.head.next,
            sent_ms: now_ms,
            deltas: &shard.deltas,
        };
        let message = encode(self.id, &batch);
        shard.deltas.clear();
        shard.torrent = None;
        shard.head = shard.head.after(checksum_of(&message));
        shard.retained.push_back(message.clone());
        self.retained_bytes += message.len();
        self.order.push_back(index);
        while self.retained_bytes > self.retained_bytes_max {
            let oldest = self.order.pop_front().map(|shard| self.shards[shard].retained.pop_front());
            let Some(oldest) = oldest.flatten() else { break };
            self.retained_bytes -= oldest.len();
        }
        Batch { shard: index, message }
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::Action;

    use super::*;
    use crate::protocol::delta::{Deltas, decode_deltas};
    use crate::protocol::message::{Decoded, decode};

    fn delta(number: u32) -> Delta {
        let mut info_hash = [0x5a; 20];
        info_hash[16..].copy_from_slice(&number.to_be_bytes());
        Delta { info_hash: InfoHash(info_hash), action: Action::Leech, ip: [10, 0, 0, 1].into(), port: 6881 }
    }

    fn read(batch: &Batch) -> (u64, Vec<Delta>) {
        let Ok(Decoded::Message { message: Message::Batch { sequence, deltas, .. }, .. }) =
            decode(&batch.message)
        else {
            panic!("{batch:?}")
        };
        let mut read = Deltas::default();
        decode_deltas(deltas, &mut read).unwrap();
        (sequence, read.addresses)
    }

    #[test]
    fn a_batch_leaves_when_it_is_full_or_50_ms_old() {
        let mut outbox = Outbox::new(NodeId(1), 1 << 20);
        let (count, full) =
            (1..).find_map(|count| outbox.push(&delta(count), 10).map(|full| (count, full))).unwrap();
        assert!((BATCH_BYTES_MAX - 2 * DELTA_BYTES_MAX..=BATCH_BYTES_MAX).contains(&full.message.len()));
        let (sequence, deltas) = read(&full);
        assert_eq!((sequence, deltas.len()), (1, usize::try_from(count).unwrap()));
        let bytes_each = full.message.len() as f64 / deltas.len() as f64;
        assert!(bytes_each < 27.1, "{bytes_each}");
        assert!(outbox.push(&delta(1), 100).is_none());
        assert!(outbox.due(149).is_none());
        assert_eq!(read(&outbox.due(150).unwrap()), (2, vec![delta(1)]));
        assert!(outbox.due(1000).is_none());
    }

    #[test]
    fn the_last_batches_are_retained() {
        let mut outbox = Outbox::new(NodeId(1), 10 * 64);
        for number in 0..100 {
            assert!(outbox.push(&delta(number), u64::from(number) * 100).is_none());
            assert!(outbox.due(u64::from(number) * 100 + 50).is_some());
        }
        let first = outbox.first_retained(5);
        assert_eq!(first, 101 - 640 / 58);
        assert!(outbox.retained(5, first - 1).is_none());
        assert!(outbox.retained(5, 0).is_none() && outbox.retained(5, 101).is_none());
        for sequence in first..=100 {
            let message = outbox.retained(5, sequence).unwrap();
            assert_eq!(read(&Batch { shard: 5, message }).0, sequence);
        }
        assert_eq!((outbox.first_retained(4), outbox.heads()[5].next), (1, 101));
    }
}
