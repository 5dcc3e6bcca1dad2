//! The snapshots of a node: those that it fetches to join or to heal, and those that it gives to others.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{JOIN_MS, NODES_MAX, Node};
use crate::protocol::api::{NodeId, Scope, Swarms};
use crate::protocol::message::{Heads, Malformed, Message, encode};
use crate::protocol::outbox::Outbox;
use crate::protocol::remote::{Remote, SourceKind};
use crate::protocol::resync::{self, Fetch, Request};
use crate::protocol::subject::{SHARDS, Subject};

/// The number of failed snapshots after which a joining node does without.
const JOIN_FAILURES_MAX: u32 = 5;

/// How long all nodes may refuse their snapshots before a joining node does without, in milliseconds.
const JOIN_REFUSED_MS_MAX: u64 = 60_000;

/// Minimum time between two snapshots, in milliseconds. Each costs a walk over all swarms.
const RESYNC_MS_MIN: u64 = 10_000;

impl<E> Node<E> {
    /// Takes a part of a snapshot with a block, and adopts it if it is the next one.
    pub(super) fn take_part<S: Swarms<Export = E>>(
        &mut self,
        from: NodeId,
        message: &Message<'_>,
        now_ms: u64,
        swarms: &mut S,
    ) -> Result<(), Malformed> {
        let &Message::Part { snapshot, part, is_last, block } = message else { return Err(Malformed) };
        let Some(fetch) = self.fetch.as_mut().filter(|_| part > 0) else { return Ok(()) };
        let arrival = fetch.arrive(from, snapshot, part, is_last, now_ms);
        if arrival == resync::Arrival::Ignored {
            return Ok(());
        }
        if part == 1 && fetch.scope == Scope::Connected {
            // The other peers have disconnected.
            swarms.forget(from);
        }
        if swarms.adopt(from, block).is_err() {
            // Without this block, the snapshot does not replace the missing data.
            self.fail_fetch(now_ms);
            return Err(Malformed);
        }
        if arrival == resync::Arrival::Last {
            // The other node need not retain the last parts.
            let acknowledgement = fetch.acknowledgement();
            self.send(Subject::Node(from), &acknowledgement);
            self.complete_fetch(now_ms);
            self.begin_all(now_ms, swarms);
        }
        Ok(())
    }

    /// Begins or continues an export for another node.
    pub(super) fn export<S: Swarms<Export = E>>(
        &mut self,
        to: NodeId,
        (snapshot, next, scope): (u32, u32, Scope),
        now_ms: u64,
        swarms: &mut S,
    ) {
        let is_possible = match scope {
            // A joining node does not have everything.
            Scope::Addresses => self.has_joined,
            Scope::Connected => true,
        };
        let (id, outbox, remotes) = (self.id, &self.outbox, &self.remotes);
        let begin = || (swarms.begin_export(scope), heads(id, outbox, remotes, to, snapshot));
        let request = if is_possible {
            self.exports.request(to, (snapshot, next, scope), now_ms, begin)
        } else {
            Request::Refused
        };
        match request {
            Request::Begun(first) => {
                self.counters.exports += 1;
                self.push(Subject::Node(to), first);
            }
            Request::Continued => {}
            Request::Ignored => self.counters.refused += 1,
            Request::Repeated(parts) => {
                parts.into_iter().for_each(|part| self.push(Subject::Node(to), part));
            }
            Request::Refused => {
                self.counters.refused += 1;
                self.send(Subject::Node(to), &Message::Refused { snapshot });
            }
        }
    }

    /// Begins the streams of nodes after the batches that a snapshot contains.
    pub(super) fn begin_streams<S: Swarms<Export = E>>(
        &mut self,
        heads: Heads<'_>,
        now_ms: u64,
        swarms: &mut S,
    ) {
        for (id, next) in heads.nodes().take(NODES_MAX) {
            if id == self.id || self.remotes.len() >= NODES_MAX && !self.remotes.contains_key(&id) {
                continue;
            }
            self.begin(id, next, now_ms, swarms);
        }
    }

    /// Joins without the swarms of others, since there is no node to ask.
    pub(super) fn join_alone<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        (self.has_swarms, self.has_joined) = (true, true);
        self.begin_all(now_ms, swarms);
    }

    /// Begins all unbegun streams with their first batches: no snapshot has named them.
    pub(super) fn begin_all<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        let ids: Vec<_> = self.remotes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.begin(id, [1; SHARDS], now_ms, swarms));
    }

    /// Begins the unbegun streams of a node. A node that is away may come back.
    fn begin<S: Swarms<Export = E>>(&mut self, id: NodeId, next: [u64; SHARDS], now_ms: u64, swarms: &mut S) {
        self.remotes.entry(id).or_insert_with(|| Remote::absent(now_ms)).begin(next);
        (0..SHARDS).for_each(|shard| self.apply_waiting(id, shard, now_ms, swarms));
    }

    /// Joins without the swarms of others, since they do not give them. The missing peers come with their next
    /// announces, and the node keeps trying.
    fn join_without_swarms<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        self.join_alone(now_ms, swarms);
        for remote in self.remotes.values_mut().filter(|remote| remote.is_alive(now_ms) && remote.is_ready) {
            remote.streams.iter_mut().for_each(|stream| stream.diverge(now_ms));
        }
    }

    /// Fetches a snapshot if this node joins, or has missed something.
    pub(super) fn resync<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        if self.fetch.as_ref().is_some_and(|fetch| fetch.is_stalled(now_ms)) {
            self.fail_fetch(now_ms);
            if !self.has_joined && self.failures >= JOIN_FAILURES_MAX {
                self.join_without_swarms(now_ms, swarms);
            }
        }
        let is_early = self.connected_ms.is_none_or(|connected_ms| now_ms < connected_ms + JOIN_MS);
        if self.fetch.is_none() && !is_early {
            self.join_if_complete(now_ms);
            if !self.is_whole(now_ms) && now_ms >= self.resync_after_ms {
                self.begin_fetch(now_ms, swarms);
            }
        }
        if let Some(fetch) = &mut self.fetch
            && let Some(request) = fetch.request(now_ms)
        {
            let from = fetch.from;
            self.send(Subject::Node(from), &request);
        }
    }

    /// Records that this node has joined, if it waits for no other.
    fn join_if_complete(&mut self, now_ms: u64) {
        let waits_for = |remote: &Remote| remote.misses_connected(now_ms) && !remote.is_unavailable(now_ms);
        self.has_joined |= self.has_swarms && !self.remotes.values().any(waits_for);
    }

    /// Begins to fetch the next snapshot. Joins if there is none.
    fn begin_fetch<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        let Some((from, scope)) = self.source(now_ms) else {
            if !self.has_joined {
                self.join_alone(now_ms, swarms);
            }
            return;
        };
        let Some(remote) = self.remotes.get(&from) else { return };
        if !self.has_swarms && remote.refused_for_ms(now_ms) >= JOIN_REFUSED_MS_MAX {
            self.join_without_swarms(now_ms, swarms);
        } else if remote.may_be_asked(now_ms) {
            self.fetch = Some(Fetch::new(from, scope, self.next_snapshot, now_ms));
            self.next_snapshot = self.next_snapshot.wrapping_add(1);
        }
    }

    /// Returns the node to fetch the next snapshot from. A joining node begins with all peers of UDP and HTTP, from the
    /// nearest node that misses nothing, or else from the nearest. Then come nodes with missing batches, once they are
    /// ready, and the connected peers of each node. Nodes whose snapshots have failed always come last, see
    /// [`Remote::rank`].
    fn source(&self, now_ms: u64) -> Option<(NodeId, Scope)> {
        let is_elsewhere =
            |remote: &Remote| remote.diverged_ms().is_some() && !remote.gives_addresses(now_ms);
        // Others may have what a lost node has sent.
        let misses_others = !self.has_swarms || self.remotes.values().any(is_elsewhere);
        let candidates = self.remotes.iter().flat_map(|(&id, remote)| {
            let is_ready = remote.gives_addresses(now_ms) && remote.is_ready;
            let is_diverged = self.has_swarms && is_ready && remote.diverged_ms().is_some();
            let is_missing = self.has_swarms && remote.misses_connected(now_ms);
            let diverged = is_diverged.then_some((SourceKind::Diverged, Scope::Addresses));
            let connected = is_missing.then_some((SourceKind::Connected, Scope::Connected));
            let nearest = (misses_others && is_ready).then_some((SourceKind::Nearest, Scope::Addresses));
            let kinds = [diverged, connected, nearest].into_iter().flatten();
            kinds.map(move |(kind, scope)| (remote.rank(kind, now_ms), id, scope))
        });
        let first = candidates.min_by(|(one, ..), (other, ..)| one.cmp(other));
        first.map(|(_, id, scope)| (id, scope))
    }

    /// Ends a completely received snapshot.
    pub(super) fn complete_fetch(&mut self, now_ms: u64) {
        let Some(Fetch { from, scope, began_ms, .. }) = self.fetch.take() else { return };
        self.counters.resyncs += 1;
        self.failures = 0;
        self.remotes.entry(from).and_modify(Remote::note_snapshot);
        let is_of_addresses = scope == Scope::Addresses;
        let is_first = is_of_addresses && !core::mem::replace(&mut self.has_swarms, true);
        let is_whole = self.remotes.get(&from).is_some_and(|remote| remote.is_whole);
        let is_of_connected = scope == Scope::Connected;
        for (&id, remote) in &mut self.remotes {
            // A node that misses nothing knows everything that all others sent before. No other node knows better what
            // a lost one has sent.
            let is_healed = is_of_addresses && (is_whole || id == from || !remote.gives_addresses(now_ms));
            remote.heal(is_healed, is_of_connected && id == from, began_ms);
            if is_first && !is_healed {
                remote.streams.iter_mut().for_each(|stream| stream.diverge(now_ms));
            }
        }
        let misses_connected = self.remotes.values().any(|remote| remote.misses_connected(now_ms));
        self.join_if_complete(now_ms);
        // Snapshots follow at once for the connected peers of each node, and for other nodes with missing batches.
        let missed_before =
            |remote: &Remote| remote.diverged_ms().is_some_and(|diverged_ms| diverged_ms < began_ms);
        let misses_others = self.remotes.values().any(missed_before);
        self.resync_after_ms =
            if misses_connected || misses_others { now_ms } else { now_ms + RESYNC_MS_MIN };
    }

    /// Ends an incomplete snapshot: its node does not continue, or sends damaged parts.
    pub(super) fn fail_fetch(&mut self, now_ms: u64) {
        if let Some(Fetch { from, .. }) = self.fetch.take() {
            self.counters.failed_resyncs += 1;
            self.failures += 1;
            self.remotes.entry(from).and_modify(|remote| remote.note_failure(now_ms));
        }
    }
}

/// Returns the message that names the batches of each node in a snapshot that begins now.
fn heads(
    id: NodeId,
    outbox: &Outbox,
    remotes: &BTreeMap<NodeId, Remote>,
    to: NodeId,
    snapshot: u32,
) -> Bytes {
    let own = Heads::encode_node(id, outbox.heads().map(|head| head.next));
    let others = remotes.iter().filter(|(id, _)| **id != to);
    let others = others.map(|(&id, remote)| Heads::encode_node(id, remote.next()));
    let nodes: Vec<_> = core::iter::once(own).chain(others).collect();
    encode(id, &Message::Heads { snapshot, nodes: Heads::new(&nodes) })
}
