//! Snapshots that one node fetches from another.
//!
//! The receiver requests a part, which acknowledges the earlier ones; the sender sends some parts ahead. Each side
//! follows the pace of the other, and holds no more than these parts. Part 0 names the batches that the snapshot
//! contains. A request for the part after the last one acknowledges the whole snapshot.
//!
//! An export whose parts are all sent gives up its slot: it is only retained to repeat its last parts.
//!
//! A joining node fetches the peers of UDP and HTTP from the nearest node that misses nothing. The streams begin with
//! the batches that part 0 names, so nothing is missed in between and no download is counted twice. Each node gives its
//! own WebTorrent peers, since it alone knows its connections.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::protocol::api::{NodeId, Scope, Swarms};
use crate::protocol::message::{Message, encode};

/// Number of parts on their way at once.
const AHEAD_MAX: u32 = 8;

/// Number of parts that one call sends, to all nodes together.
const PARTS_AT_ONCE: usize = 4;

/// Maximum number of exports of all addresses that still have parts to send.
const ADDRESSES_MAX: usize = 2;

/// Maximum number of such exports of connected peers. They are small, and no other node has these peers.
const CONNECTED_MAX: usize = 4;

/// Maximum number of exports, including those whose last parts await an acknowledgement.
const EXPORTS_MAX: usize = 12;

/// Minimum time between two snapshots of the same scope for the same node, in milliseconds.
const EXPORT_MS_MIN: u64 = 2_000;

/// The pause in milliseconds for a node that has stalled: it gets no other snapshot of that scope.
const STALLED_PAUSE_MS: u64 = 10_000;

/// The time after which a request is repeated, in milliseconds.
const REPEAT_MS: u64 = 1_000;

/// The time without progress after which a fetch has failed and an export ends, in milliseconds.
const STALLED_MS: u64 = 5_000;

#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: NodeId,
    pub(crate) scope: Scope,
    snapshot: u32,
    next: u32,
    pub(crate) began_ms: u64,
    progress_ms: u64,
    asked_ms: Option<u64>,
}

/// How to treat a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The part is to be adopted. More follow.
    Next,
    /// The part is to be adopted, and is the last.
    Last,
    /// The part is not the next one.
    Ignored,
}

impl Fetch {
    pub(crate) const fn new(from: NodeId, scope: Scope, snapshot: u32, now_ms: u64) -> Self {
        Self { from, scope, snapshot, next: 0, began_ms: now_ms, progress_ms: now_ms, asked_ms: None }
    }

    pub(crate) fn request(&mut self, now_ms: u64) -> Option<Message<'static>> {
        if self.asked_ms.is_some_and(|asked_ms| now_ms < asked_ms + REPEAT_MS) {
            return None;
        }
        self.asked_ms = Some(now_ms);
        Some(self.acknowledgement())
    }

    /// Returns the request for the next part. After the last part, it only confirms that all have arrived.
    pub(crate) const fn acknowledgement(&self) -> Message<'static> {
        Message::Fetch { snapshot: self.snapshot, next: self.next, scope: self.scope }
    }

    pub(crate) fn arrive(
        &mut self,
        from: NodeId,
        snapshot: u32,
        part: u32,
        is_last: bool,
        now_ms: u64,
    ) -> Arrival {
        if (from, snapshot, part) != (self.from, self.snapshot, self.next) {
            return Arrival::Ignored;
        }
        self.next += 1;
        self.progress_ms = now_ms;
        self.asked_ms = None;
        if is_last { Arrival::Last } else { Arrival::Next }
    }

    /// Returns whether this is the snapshot that is fetched.
    pub(crate) fn is_from(&self, from: NodeId, snapshot: u32) -> bool {
        (from, snapshot) == (self.from, self.snapshot)
    }

    pub(crate) const fn is_stalled(&self, now_ms: u64) -> bool {
        now_ms >= self.progress_ms + STALLED_MS
    }
}

/// The snapshots that this node exports for others.
#[derive(Debug)]
pub(crate) struct Exports<E> {
    /// At most one for each node.
    running: Vec<Running<E>>,
    /// When the next export for each node may begin.
    not_before_ms: BTreeMap<(NodeId, Scope), u64>,
}

#[derive(Debug)]
struct Running<E> {
    to: NodeId,
    snapshot: u32,
    scope: Scope,
    export: E,
    /// The parts that were sent but not acknowledged.
    sent: VecDeque<Bytes>,
    /// The number of the first part in `sent`.
    acknowledged: u32,
    /// Whether the last part was sent.
    is_over: bool,
    /// When parts were last acknowledged.
    progress_ms: u64,
    /// When parts were sent again.
    repeated_ms: Option<u64>,
}

impl<E> Default for Exports<E> {
    fn default() -> Self {
        Self { running: Vec::new(), not_before_ms: BTreeMap::new() }
    }
}

/// How to treat a request for a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A new export has begun with this part.
    Begun(Bytes),
    /// Parts follow.
    Continued,
    /// These parts were sent before, and must be sent again.
    Repeated(Vec<Bytes>),
    /// These parts were just sent again.
    Ignored,
    /// There are too many exports, or this one is over.
    Refused,
}

impl<E> Exports<E> {
    /// Handles a request. `begin` starts a new export, and also returns its part 0.
    pub(crate) fn request(
        &mut self,
        to: NodeId,
        (snapshot, next, scope): (u32, u32, Scope),
        now_ms: u64,
        begin: impl FnOnce() -> (E, Bytes),
    ) -> Request {
        let is_asked = |running: &Running<E>| running.to == to && running.snapshot == snapshot;
        if let Some(position) = self.running.iter().position(is_asked) {
            let running = &mut self.running[position];
            let request = running.acknowledge(next, now_ms);
            if running.is_over && running.sent.is_empty() {
                self.running.remove(position);
            }
            return request;
        }
        let not_before_ms = self.not_before_ms.get(&(to, scope));
        let is_soon = not_before_ms.is_some_and(|&not_before_ms| now_ms < not_before_ms);
        if next > 0 || is_soon || !self.has_slot(to, scope) {
            return Request::Refused;
        }
        self.not_before_ms.insert((to, scope), now_ms + EXPORT_MS_MIN);
        self.running.retain(|running| running.to != to);
        let (export, first) = begin();
        let sent = VecDeque::from([first.clone()]);
        self.running.push(Running {
            to,
            snapshot,
            scope,
            export,
            sent,
            acknowledged: 0,
            is_over: false,
            progress_ms: now_ms,
            repeated_ms: None,
        });
        Request::Begun(first)
    }

    /// Returns whether an export may begin for a node. It ends the node's previous one.
    fn has_slot(&self, to: NodeId, scope: Scope) -> bool {
        let others = || self.running.iter().filter(|running| running.to != to);
        let max = match scope {
            Scope::Addresses => ADDRESSES_MAX,
            Scope::Connected => CONNECTED_MAX,
        };
        let unfinished = others().filter(|running| running.scope == scope && !running.is_over).count();
        unfinished < max && others().count() < EXPORTS_MAX
    }

    /// Exports some parts, and calls `send` with each part and its receiver.
    pub(crate) fn step<S: Swarms<Export = E>>(
        &mut self,
        id: NodeId,
        now_ms: u64,
        swarms: &mut S,
        mut send: impl FnMut(NodeId, Bytes),
    ) {
        self.not_before_ms.retain(|_, not_before_ms| now_ms < *not_before_ms);
        let is_stalled = |running: &mut Running<E>| now_ms >= running.progress_ms + STALLED_MS;
        for stalled in self.running.extract_if(.., is_stalled).filter(|stalled| !stalled.is_over) {
            // A node that only repeats its requests must not hold up others.
            self.not_before_ms.insert((stalled.to, stalled.scope), now_ms + STALLED_PAUSE_MS);
        }
        for _ in 0..PARTS_AT_ONCE {
            let has_room = |running: &Running<E>| !running.is_over && running.sent.len() < AHEAD_MAX as usize;
            let Some(position) = self.running.iter().position(has_room) else { return };
            let running = &mut self.running[position];
            let part = running.export_part(id, swarms);
            send(running.to, part);
            // The other exports come first the next time.
            self.running.rotate_left(1);
        }
    }
}

impl<E> Running<E> {
    fn acknowledge(&mut self, next: u32, now_ms: u64) -> Request {
        let Some(count) = next.checked_sub(self.acknowledged) else { return Request::Refused };
        if count as usize > self.sent.len() {
            return Request::Refused;
        }
        self.sent.drain(..count as usize);
        self.acknowledged = next;
        if count > 0 {
            self.progress_ms = now_ms;
        }
        if count > 0 || self.sent.is_empty() {
            return Request::Continued;
        }
        // A request is small, and its reply is large.
        let is_soon = self.repeated_ms.is_some_and(|repeated_ms| now_ms < repeated_ms + REPEAT_MS / 2);
        if is_soon {
            Request::Ignored
        } else {
            self.repeated_ms = Some(now_ms);
            Request::Repeated(self.sent.iter().cloned().collect())
        }
    }

    fn export_part<S: Swarms<Export = E>>(&mut self, id: NodeId, swarms: &mut S) -> Bytes {
        let mut block = Vec::new();
        self.is_over = !swarms.export(&mut self.export, &mut block);
        let part = self.acknowledged + u32::try_from(self.sent.len()).expect("few parts are on their way");
        let message = Message::Part { snapshot: self.snapshot, part, is_last: self.is_over, block: &block };
        let message = encode(id, &message);
        self.sent.push_back(message.clone());
        message
    }
}
