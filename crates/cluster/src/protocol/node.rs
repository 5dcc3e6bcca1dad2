//! One node: everything that it receives, remembers and sends. [`batches`] has the batches of other nodes,
//! [`snapshots`] the snapshots.

mod batches;
mod snapshots;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use shoal_base::{Delta, Presence};

use crate::protocol::allowance::Allowance;
use crate::protocol::api::{Counters, NodeId, NodeState, Outgoing, Settings, Status, Swarms};
use crate::protocol::delta::Deltas;
use crate::protocol::message::{Decoded, FRAME_BYTES, Hello, Malformed, Message, decode, encode};
use crate::protocol::outbox::{Batch, Outbox};
use crate::protocol::remote::Remote;
use crate::protocol::resync::{self, Exports, Fetch};
use crate::protocol::subject::{NAME_BYTES_MAX, SHARDS, Subject, Subjects};

/// Maximum number of known nodes.
const NODES_MAX: usize = 128;

/// Maximum number of messages that wait to be sent.
const OUTGOING_MAX: usize = 4096;

/// Maximum size of all batches that wait for earlier ones, in bytes.
pub const WAITING_BYTES_MAX: usize = 16 << 20;

/// Maximum size of an accepted message in bytes: a part of a snapshot.
pub const MESSAGE_BYTES_MAX: usize = 512 * 1024;

/// The interval of hellos in milliseconds.
const HELLO_MS: u64 = 1_000;

/// Minimum time between two hellos that answer new nodes, in milliseconds.
const ANSWER_MS: u64 = 100;

/// How long a joining node waits for the hellos of others, in milliseconds.
const JOIN_MS: u64 = 1_500;

/// The time after which a node without a bus serves alone, in milliseconds.
const ALONE_MS: u64 = 5_000;

/// A node of a cluster, without I/O. One thread owns it.
#[derive(Debug)]
pub struct Node<E> {
    id: NodeId,
    name: String,
    subjects: Subjects,
    started_ms: u64,
    /// Since when the bus is connected.
    connected_ms: Option<u64>,
    /// Whether the node has collected the swarms of the others, or there was no other.
    has_joined: bool,
    /// Whether it has collected them except for the peers that are connected to the others.
    has_swarms: bool,
    outbox: Outbox,
    remotes: BTreeMap<NodeId, Remote>,
    /// An upper bound for the size of all batches that wait for earlier ones, from the last call of `run`.
    waiting_bytes: usize,
    outgoing: VecDeque<Outgoing>,
    fetch: Option<Fetch>,
    /// The number of the next snapshot, and when it may begin.
    next_snapshot: u32,
    resync_after_ms: u64,
    /// Failed snapshots since the last success.
    failures: u32,
    resends: Allowance,
    exports: Exports<E>,
    hello_ms: Option<u64>,
    /// Whether a node has appeared that does not know this one.
    owes_hello: bool,
    deltas: Deltas,
    counters: Counters,
}

impl<E> Node<E> {
    /// Maximum size of a message for clients of another node, in bytes.
    pub const RELAY_BYTES_MAX: usize = MESSAGE_BYTES_MAX - FRAME_BYTES;

    /// Creates a node that knows no other.
    pub fn new(settings: &Settings, now_ms: u64) -> Self {
        let mut name: String = settings.name.chars().filter(|character| !character.is_control()).collect();
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        Self {
            id: settings.id,
            name,
            subjects: Subjects::new(&settings.cluster),
            started_ms: now_ms,
            connected_ms: None,
            has_joined: false,
            has_swarms: false,
            outbox: Outbox::new(settings.id, settings.retained_bytes_max),
            remotes: BTreeMap::new(),
            waiting_bytes: 0,
            outgoing: VecDeque::new(),
            fetch: None,
            next_snapshot: 0,
            resync_after_ms: 0,
            failures: 0,
            resends: Allowance::new(batches::RESENT_BYTES_PER_S, now_ms),
            exports: Exports::default(),
            hello_ms: None,
            owes_hello: false,
            deltas: Deltas::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the subjects to subscribe to.
    pub fn subscriptions(&self) -> Vec<String> {
        self.subjects.subscriptions(self.id)
    }

    /// Returns whether clients can be sent here: the node has collected the swarms of the others, or there is no other.
    pub const fn is_ready(&self) -> bool {
        self.has_joined
    }

    /// Records that the bus is connected or away. Messages that wait while it is away are dropped, and resent on
    /// request.
    pub fn set_connected(&mut self, is_connected: bool, now_ms: u64) {
        if !is_connected {
            self.connected_ms = None;
            self.outgoing.clear();
            self.counters.failed_resyncs += u64::from(self.fetch.take().is_some());
        } else if self.connected_ms.is_none() {
            self.connected_ms = Some(now_ms);
            self.hello_ms = None;
        }
    }

    /// Records a change of this node.
    pub fn record(&mut self, delta: &Delta, now_ms: u64) {
        self.counters.deltas_out += 1;
        if let Some(batch) = self.outbox.push(delta, now_ms) {
            self.publish(batch);
        }
    }

    /// Records a change of a peer of WebTorrent that is connected to this node.
    pub fn record_presence(&mut self, presence: &Presence, now_ms: u64) {
        self.counters.deltas_out += 1;
        if let Some(batch) = self.outbox.push_presence(presence, now_ms) {
            self.publish(batch);
        }
    }

    /// Sends a message for clients of another node, at most [`RELAY_BYTES_MAX`](Self::RELAY_BYTES_MAX) long. A lost
    /// message is not resent.
    pub fn send_to(&mut self, node: NodeId, content: &[u8]) {
        if self.connected_ms.is_some() {
            self.counters.relayed_out += 1;
            self.send(Subject::Node(node), &Message::Relay { content });
        }
    }

    /// Handles a message from the bus.
    pub fn receive<S: Swarms<Export = E>>(
        &mut self,
        subject: &str,
        message: &Bytes,
        now_ms: u64,
        swarms: &mut S,
    ) {
        self.counters.bytes_in += message.len() as u64;
        let subject = self.subjects.parse(subject);
        let decoded = if message.len() > MESSAGE_BYTES_MAX { Err(Malformed) } else { decode(message) };
        let (Some(subject), Ok(decoded)) = (subject, decoded) else {
            self.counters.malformed += 1;
            return;
        };
        match decoded {
            Decoded::OtherVersion { from } => {
                self.counters.other_version += 1;
                if let Some(remote) = self.remote(from, now_ms) {
                    remote.receive_other_version(now_ms);
                }
            }
            Decoded::Message { from, .. } if from == self.id => self.counters.forged += 1,
            Decoded::Message { from, message: content } => {
                let Some(remote) = self.remote(from, now_ms) else {
                    self.counters.refused += 1;
                    return;
                };
                remote.note_message(now_ms);
                if self.handle(subject, from, &content, message, now_ms, swarms).is_err() {
                    self.counters.malformed += 1;
                }
            }
        }
    }

    /// Does the due work. To be called at least every 10 ms.
    pub fn run<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        while let Some(batch) = self.outbox.due(now_ms) {
            self.publish(batch);
        }
        self.forget_lost(now_ms, swarms);
        if self.connected_ms.is_none() {
            // The other nodes are asked when they appear.
            if !self.has_joined && now_ms >= self.started_ms + ALONE_MS {
                self.join_alone(now_ms, swarms);
            }
            return;
        }
        self.say_hello(now_ms);
        self.close_gaps(now_ms, swarms);
        self.waiting_bytes = self.remotes.values().map(Remote::waiting_bytes).sum();
        self.resync(now_ms, swarms);
        let (id, subjects) = (self.id, &self.subjects);
        let (outgoing, counters) = (&mut self.outgoing, &mut self.counters);
        self.exports.step(id, now_ms, swarms, |to, payload| {
            push(outgoing, counters, subjects.text(Subject::Node(to)), payload);
        });
    }

    /// Returns the next message for the bus.
    pub fn next_message(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// Returns the bytes of all messages that the node holds: those retained for others, those that wait for earlier
    /// ones, and those not taken yet.
    pub fn held_bytes(&self) -> [usize; 3] {
        let waiting = self.remotes.values().map(Remote::waiting_bytes).sum();
        let outgoing = self.outgoing.iter().map(|message| message.payload.len()).sum();
        [self.outbox.retained_bytes(), waiting, outgoing]
    }

    /// Tells the others that this node ends. The caller must then send its last messages.
    pub fn leave(&mut self) {
        while let Some(batch) = self.outbox.due(u64::MAX) {
            self.publish(batch);
        }
        if self.connected_ms.is_some() {
            self.send(Subject::Hello, &Message::Goodbye);
        }
    }

    /// Returns the state of this node and its knowledge of the others.
    pub fn status(&self, now_ms: u64) -> Status {
        let state = match (
            self.connected_ms.is_some(),
            self.has_joined,
            self.fetch.is_some() || !self.is_whole(now_ms),
        ) {
            (false, ..) => NodeState::Alone,
            (true, false, _) => NodeState::Joining,
            (true, true, true) => NodeState::Resyncing,
            (true, true, false) => NodeState::Ready,
        };
        let mut nodes: Vec<_> = self
            .remotes
            .iter()
            .filter(|(_, remote)| remote.is_known())
            .map(|(&id, remote)| remote.status(id, now_ms))
            .collect();
        nodes.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        Status {
            name: self.name.clone(),
            id: self.id.to_string(),
            state,
            is_ready: self.is_ready(),
            nodes,
            counters: self.counters,
        }
    }

    /// Returns whether this node misses nothing that it knows of.
    fn is_whole(&self, now_ms: u64) -> bool {
        let has_source = self.remotes.values().any(|remote| remote.gives_addresses(now_ms));
        // Without a node that was met, only announces bring the missing peers of the others.
        let is_replaced = |remote: &Remote| has_source || remote.is_met();
        let misses = |remote: &Remote| {
            remote.diverged_ms().is_some() && is_replaced(remote) || remote.misses_connected(now_ms)
        };
        self.has_joined && !self.remotes.values().any(misses)
    }

    /// Returns whether others may rely on it. A node that has just come back does not know yet what it has missed.
    fn is_known_whole(&self, now_ms: u64) -> bool {
        let is_settled = self.connected_ms.is_some_and(|connected_ms| now_ms >= connected_ms + 2 * JOIN_MS);
        self.is_whole(now_ms) && is_settled && !self.remotes.values().any(Remote::has_gap)
    }

    /// Returns a node. A new one becomes known if there is room, and replaces the one that was silent for longest.
    fn remote(&mut self, id: NodeId, now_ms: u64) -> Option<&mut Remote> {
        if !self.remotes.contains_key(&id) && self.remotes.len() >= NODES_MAX {
            let lost = self.remotes.iter().find(|(_, remote)| remote.is_lost());
            let lost = lost.map(|(&id, _)| id)?;
            self.remotes.remove(&lost);
        }
        // A joining node learns from a snapshot where the streams continue. Later, every batch of another node is
        // expected.
        let is_new = self.has_swarms;
        Some(self.remotes.entry(id).or_insert_with(|| {
            let mut remote = Remote::new(is_new, now_ms);
            if is_new {
                remote.begin([1; SHARDS]);
            }
            remote
        }))
    }

    fn handle<S: Swarms<Export = E>>(
        &mut self,
        subject: Subject,
        from: NodeId,
        content: &Message<'_>,
        message: &Bytes,
        now_ms: u64,
        swarms: &mut S,
    ) -> Result<(), Malformed> {
        match (subject, content) {
            (Subject::Delta { shard }, Message::Batch { shard: named, .. }) if shard != *named => {
                Err(Malformed)
            }
            (Subject::Delta { .. } | Subject::Node(_), batch @ Message::Batch { .. }) => {
                self.take_batch(from, batch, message, now_ms, swarms)
            }
            (Subject::Hello, Message::Hello(hello)) => {
                self.take_hello(from, hello, now_ms);
                Ok(())
            }
            (Subject::Hello, Message::Goodbye) => {
                self.remotes.entry(from).and_modify(Remote::leave);
                Ok(())
            }
            (Subject::Node(_), &Message::Resend { shard, first, last }) => {
                self.resend(from, shard, first, last, now_ms);
                Ok(())
            }
            (Subject::Node(_), &Message::Gone { shard, first }) => {
                let Some(remote) = self.remotes.get_mut(&from) else { return Ok(()) };
                let lost = remote.skip_to(shard, first, now_ms);
                self.counters.lost = self.counters.lost.saturating_add(lost);
                self.apply_waiting(from, shard, now_ms, swarms);
                Ok(())
            }
            (Subject::Node(_), &Message::Fetch { snapshot, next, scope }) => {
                self.export(from, (snapshot, next, scope), now_ms, swarms);
                Ok(())
            }
            (Subject::Node(_), part @ Message::Part { .. }) => self.take_part(from, part, now_ms, swarms),
            (Subject::Node(_), &Message::Heads { snapshot, nodes }) => {
                let Some(fetch) = &mut self.fetch else { return Ok(()) };
                let arrival = fetch.arrive(from, snapshot, 0, false, now_ms);
                if arrival == resync::Arrival::Next && !self.has_swarms {
                    self.begin_streams(nodes, now_ms, swarms);
                }
                Ok(())
            }
            (Subject::Node(_), &Message::Refused { snapshot }) => {
                if self.fetch.take_if(|fetch| fetch.is_from(from, snapshot)).is_some() {
                    self.counters.refused_resyncs += 1;
                    self.remotes.entry(from).and_modify(|remote| remote.note_refusal(now_ms));
                }
                Ok(())
            }
            (Subject::Node(_), &Message::Relay { content }) => {
                self.counters.relayed_in += 1;
                swarms.deliver(from, content);
                Ok(())
            }
            (Subject::Node(_), &Message::Ping { at_ms }) => {
                self.send(Subject::Node(from), &Message::Pong { at_ms });
                Ok(())
            }
            (Subject::Node(_), &Message::Pong { at_ms }) => {
                self.remotes.entry(from).and_modify(|remote| remote.pong(at_ms, now_ms));
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    fn take_hello(&mut self, from: NodeId, hello: &Hello<'_>, now_ms: u64) {
        let Some(remote) = self.remotes.get_mut(&from) else { return };
        self.owes_hello |= remote.greet(hello, now_ms);
        for (stream, &head) in remote.streams.iter_mut().zip(&hello.streams) {
            self.counters.diverged += u64::from(stream.tell(head, now_ms));
        }
    }

    /// Forgets the peers of lost nodes, and finally the nodes.
    fn forget_lost<S: Swarms<Export = E>>(&mut self, now_ms: u64, swarms: &mut S) {
        for (&id, remote) in &mut self.remotes {
            if remote.is_newly_lost(now_ms) {
                swarms.forget(id);
            }
        }
        self.remotes.retain(|_, remote| !remote.is_forgotten(now_ms));
    }

    /// Sends the state of this node, if it is due, and measures the delay to the others.
    fn say_hello(&mut self, now_ms: u64) {
        let interval_ms = if self.owes_hello { ANSWER_MS } else { HELLO_MS };
        if self.hello_ms.is_some_and(|hello_ms| now_ms < hello_ms + interval_ms) {
            return;
        }
        (self.hello_ms, self.owes_hello) = (Some(now_ms), false);
        let name = self.name.clone();
        let hello = Hello {
            is_ready: self.has_joined,
            is_whole: self.is_known_whole(now_ms),
            sent_ms: now_ms,
            uptime_ms: now_ms - self.started_ms,
            name: &name,
            streams: self.outbox.heads(),
        };
        self.send(Subject::Hello, &Message::Hello(Box::new(hello)));
        let due: Vec<_> = self
            .remotes
            .iter_mut()
            .filter_map(|(&id, remote)| remote.ping_is_due(now_ms).then_some(id))
            .collect();
        for id in due {
            self.send(Subject::Node(id), &Message::Ping { at_ms: now_ms });
        }
        self.remotes.values_mut().for_each(|remote| remote.rate.advance(now_ms));
    }

    fn publish(&mut self, Batch { shard, message }: Batch) {
        self.counters.batches_out += 1;
        // Without a bus, the others will ask for the batch.
        if self.connected_ms.is_some() {
            self.push(Subject::Delta { shard }, message);
        }
    }

    fn send(&mut self, subject: Subject, message: &Message<'_>) {
        let payload = encode(self.id, message);
        self.push(subject, payload);
    }

    fn push(&mut self, subject: Subject, payload: Bytes) {
        push(&mut self.outgoing, &mut self.counters, self.subjects.text(subject), payload);
    }
}

/// Queues a message, unless too many wait.
fn push(outgoing: &mut VecDeque<Outgoing>, counters: &mut Counters, subject: String, payload: Bytes) {
    if outgoing.len() >= OUTGOING_MAX {
        counters.unsent += 1;
        return;
    }
    counters.bytes_out += payload.len() as u64;
    outgoing.push_back(Outgoing { subject, payload });
}

const _: () = assert!(SHARDS == 16, "the subject of a shard is its first hexadecimal digit");
