//! The batches of other nodes: in order, or resent on request.

use bytes::Bytes;

use super::{Node, WAITING_BYTES_MAX};
use crate::protocol::api::{NodeId, Swarms};
use crate::protocol::delta::{Deltas, decode_deltas};
use crate::protocol::message::{Decoded, Malformed, Message, checksum_of, decode};
use crate::protocol::stream::{Arrival, WAITING_BYTES_EACH};
use crate::protocol::subject::{Subject, shard_of};

/// Resent bytes a second, for all nodes together.
pub(super) const RESENT_BYTES_PER_S: u64 = 32 << 20;

impl<E> Node<E> {
    /// Takes a batch, and applies it if it is the next one of its stream.
    pub(super) fn take_batch<S: Swarms<Export = E>>(
        &mut self,
        from: NodeId,
        batch: &Message<'_>,
        message: &Bytes,
        now_ms: u64,
        swarms: &mut S,
    ) -> Result<(), Malformed> {
        let &Message::Batch { shard, sequence, .. } = batch else { return Err(Malformed) };
        let waiting_bytes = self.waiting_bytes;
        let Some(remote) = self.remotes.get_mut(&from) else { return Ok(()) };
        let bytes = message.len() + WAITING_BYTES_EACH;
        let has_room = || waiting_bytes + bytes <= WAITING_BYTES_MAX;
        match remote.streams[shard].arrive(sequence, message, has_room) {
            Arrival::Next => {
                self.apply(from, batch, checksum_of(message), now_ms, swarms)?;
                self.apply_waiting(from, shard, now_ms, swarms);
            }
            Arrival::Early => {
                self.waiting_bytes += bytes;
                self.counters.reordered += 1;
            }
            Arrival::Duplicate => self.counters.duplicates += 1,
            Arrival::Refused => self.counters.refused += 1,
        }
        Ok(())
    }

    /// Applies the batches that no longer have to wait.
    pub(super) fn apply_waiting<S: Swarms<Export = E>>(
        &mut self,
        from: NodeId,
        shard: usize,
        now_ms: u64,
        swarms: &mut S,
    ) {
        loop {
            let Some(remote) = self.remotes.get_mut(&from) else { return };
            let Some(message) = remote.streams[shard].pop() else { return };
            // The batch was well-formed before it had to wait.
            let Ok(Decoded::Message { message: batch, .. }) = decode(&message) else { continue };
            if self.apply(from, &batch, checksum_of(&message), now_ms, swarms).is_err() {
                self.counters.malformed += 1;
            }
        }
    }

    /// Applies the next batch of a stream. Skips one whose deltas make no sense.
    fn apply<S: Swarms<Export = E>>(
        &mut self,
        from: NodeId,
        batch: &Message<'_>,
        checksum: u32,
        now_ms: u64,
        swarms: &mut S,
    ) -> Result<(), Malformed> {
        let &Message::Batch { shard, sent_ms, deltas, .. } = batch else { return Err(Malformed) };
        let Some(remote) = self.remotes.get_mut(&from) else { return Ok(()) };
        remote.streams[shard].advance(checksum, now_ms);
        decode_deltas(deltas, &mut self.deltas)?;
        if self.deltas.torrents().any(|info_hash| shard_of(info_hash) != shard) {
            return Err(Malformed);
        }
        let age_ms = remote.count_batch(shard, sent_ms, self.deltas.len(), now_ms);
        self.counters.batches_in += 1;
        self.counters.deltas_in += self.deltas.len() as u64;
        let Deltas { addresses, presences } = &self.deltas;
        swarms.apply(addresses, age_ms);
        if !presences.is_empty() {
            swarms.apply_presences(from, presences);
        }
        Ok(())
    }

    /// Resends the retained ones of these batches.
    pub(super) fn resend(&mut self, to: NodeId, shard: usize, first: u64, last: u64, now_ms: u64) {
        let available = self.outbox.first_retained(shard);
        if first < available {
            self.send(Subject::Node(to), &Message::Gone { shard, first: available });
        }
        let first = first.max(available);
        let last = last.min(self.outbox.heads()[shard].next - 1);
        let Some(wanted) = (last + 1).checked_sub(first) else { return };
        let Some(remote) = self.remotes.get_mut(&to) else { return };
        let allowed = remote.allow_resends(wanted, now_ms);
        self.counters.refused += u64::from(allowed < wanted);
        for sequence in first..first + allowed {
            if let Some(message) = self.outbox.retained(shard, sequence) {
                let bytes = message.len() as u64;
                if self.resends.available(now_ms) < bytes {
                    self.counters.refused += 1;
                    return;
                }
                self.resends.take(bytes);
                self.counters.resent += 1;
                self.push(Subject::Node(to), message);
            }
        }
    }

    /// Requests missing batches, and gives up those that do not come.
    pub(super) fn close_gaps<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        let mut requests = Vec::new();
        let mut skipped = Vec::new();
        for (&id, remote) in &mut self.remotes {
            // Before the node's hello, the age of a resent batch is unknown.
            let is_met = remote.is_alive(now_ms) && remote.is_met();
            for (shard, stream) in remote.streams.iter_mut().enumerate() {
                // No other node has the batches of a lost node.
                if is_met && let Some((first, last)) = stream.request(now_ms) {
                    requests.push((id, shard, first, last));
                }
            }
            for (shard, lost) in remote.give_up(now_ms).into_iter().enumerate().filter(|(_, lost)| *lost > 0)
            {
                self.counters.lost = self.counters.lost.saturating_add(lost);
                skipped.push((id, shard));
            }
        }
        for (id, shard, first, last) in requests {
            self.counters.requested += last + 1 - first;
            self.send(Subject::Node(id), &Message::Resend { shard, first, last });
        }
        for (id, shard) in skipped {
            self.apply_waiting(id, shard, now_ms, swarms);
        }
    }
}
