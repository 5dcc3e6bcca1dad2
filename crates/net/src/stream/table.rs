//! The table of connections: which exist, the phase of each and since when, and which is closed first.
//!
//! This module is the bookkeeping of connections, without any I/O. Each phase has one time limit. So the connections of
//! a phase form a queue in order of entry, and only its head can be overdue. [`Shares`] decides which connection makes
//! room. The cost of a step does not depend on the number of connections.
//!
//! A connection can enter a phase repeatedly. So that this does not keep it open forever, waits for the rest of
//! requests add up until the connection is idle, and so do waits for the peer to read replies, except for the first
//! tenth of a second of each. A connection without time left is overdue as soon as it enters the phase again: it enters
//! at the head of the queue.
//!
//! The phases are idle, lingering, open as a WebSocket, sending, and in a request. WebSockets have no time limit. A
//! silent one is pinged, and closed if it stays silent.

mod eviction;

use std::net::IpAddr;
use std::sync::Arc;

use shoal_base::metrics::labels;
use shoal_base::source::Network;
use shoal_base::transport::stream::{ConnectionKind, Handle, Held, Quota};

use super::memory::{self, MemoryAccounts};
use super::queue::{Chain, Links, NodeId, Queue};
use super::shares::{self, Class, Members, Membership, Shares};
use super::slab::Slab;
use super::sources::Sources;
use super::{Budget, EndReason, StreamCounters, StreamLimits};

pub(super) use eviction::{MemoryVictim, Victim};

/// How long input after the last reply is discarded before the socket closes.
const LINGER_MS_MAX: u64 = 2_000;

/// The part of each wait that does not add up. A peer that is slower at every request, and is never idle, runs out of
/// time. A peer that keeps requests or replies moving does not.
const FREE_WAIT_MS: u64 = 100;

labels! {
    /// The phase of a connection, which decides its time limit. Its place in the order of eviction is its class in `shares`.
    /// During the shutdown, connections of earlier phases are closed before those of later ones.
    pub enum Phase {
        /// It waits for a request; none is in progress.
        Idle = "idle",
        /// It waits for the peer to stop sending.
        Linger = "lingering",
        /// Either side may send at any time.
        Upgraded = "standing",
        /// It waits for the peer to read output.
        Send = "sending",
        /// It waits for the rest of a request or handshake.
        Request = "request",
    }
}

/// The permission to call [`ConnectionTable::insert`]. The connection is already counted over all workers.
#[derive(Debug)]
pub(super) struct Admission {
    quota: Quota,
}

/// The connections of a worker, with a `T` for each.
#[derive(Debug)]
pub(super) struct ConnectionTable<T> {
    slab: Slab<Entry<T>>,
    queues: [Queue; Phase::ALL.len()],
    shares: Shares,
    limits: StreamLimits,
    sources: Arc<Sources>,
    counters: Arc<StreamCounters>,
    accounts: MemoryAccounts,
    budget: Arc<Budget>,
    /// Whether connections are closed instead of becoming idle.
    shutting_down: bool,
}

#[derive(Debug)]
struct Entry<T> {
    connection: T,
    since_ms: u64,
    /// The links in the queue of its phase.
    links: Links,
    membership: Membership,
    /// How long it has waited for the rest of requests since it was last idle, in milliseconds.
    waited_ms: u32,
    /// How long its peer has been reading replies since it was last idle, in milliseconds.
    sending_ms: u32,
    phase: Phase,
    kind: ConnectionKind,
    /// Whether the service has declared it established.
    is_established: bool,
}

impl<T> Chain for Slab<Entry<T>> {
    fn links(&mut self, node: NodeId) -> &mut Links {
        &mut self.at(node.index()).1.links
    }
}

impl<T> Members for Slab<Entry<T>> {
    fn membership(&mut self, node: NodeId) -> &mut Membership {
        &mut self.at(node.index()).1.membership
    }
}

impl<T> Entry<T> {
    /// Adds up the time of the phase that ends at `now_ms`, and resets the sums if nothing is in progress in the next.
    fn end_phase(&mut self, next: Phase, now_ms: u64) {
        let waited_ms = now_ms.saturating_sub(self.since_ms).saturating_sub(FREE_WAIT_MS);
        let waited_ms = u32::try_from(waited_ms).unwrap_or(u32::MAX);
        match self.phase {
            Phase::Request => self.waited_ms = self.waited_ms.saturating_add(waited_ms),
            Phase::Send => self.sending_ms = self.sending_ms.saturating_add(waited_ms),
            Phase::Idle | Phase::Linger | Phase::Upgraded => {}
        }
        if matches!(next, Phase::Idle | Phase::Upgraded) {
            (self.waited_ms, self.sending_ms) = (0, 0);
        }
    }

    const fn class(&self) -> Class {
        match (self.phase, self.kind) {
            (Phase::Linger, _) => Class::Linger,
            _ if self.is_established => Class::Announced,
            (Phase::Idle, _) => Class::Idle,
            (Phase::Upgraded, _) | (_, ConnectionKind::WebSocket) => Class::Unannounced,
            (Phase::Send, _) => Class::Send,
            (Phase::Request, _) => Class::Request,
        }
    }

    /// Returns whether it has no time left for its phase. A WebSocket may always stay open.
    fn is_out_of_time(&self, limits: &StreamLimits) -> bool {
        self.kind == ConnectionKind::Http
            && match self.phase {
                Phase::Request => u64::from(self.waited_ms) >= limits.request_ms_max,
                Phase::Send => u64::from(self.sending_ms) >= limits.answer_ms_max,
                Phase::Idle | Phase::Linger | Phase::Upgraded => false,
            }
    }
}

impl<T> ConnectionTable<T> {
    const CONNECTION_BYTES: usize =
        Slab::<Entry<T>>::SLOT_BYTES + memory::ACCOUNT_BYTES + shares::SOURCE_BYTES;

    pub(super) fn new(
        limits: StreamLimits,
        sources: Arc<Sources>,
        counters: Arc<StreamCounters>,
        budget: Arc<Budget>,
    ) -> Self {
        let (slab, queues) = (Slab::new(), [Queue::default(); Phase::ALL.len()]);
        let (shares, accounts) = (Shares::default(), MemoryAccounts::new());
        Self { slab, queues, shares, limits, sources, counters, accounts, budget, shutting_down: false }
    }

    pub(super) fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Replaces the limits, also for existing connections. Closes none for being too many.
    pub(super) const fn set_limits(&mut self, limits: StreamLimits) {
        self.limits = limits;
    }

    pub(super) const fn begin_shutdown(&mut self) {
        self.shutting_down = true;
    }

    pub(super) const fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    pub(super) const fn len(&self) -> usize {
        self.slab.len()
    }

    /// Reserves capacity for a connection that counts towards this quota. The limit of the source is checked first, so that
    /// no connection is evicted in favour of one whose source has too many anyway.
    pub(super) fn admit(&self, quota: Quota) -> Result<Admission, EndReason> {
        if quota.ip.is_some_and(|ip| !self.sources.enter(ip, quota.kind, self.limits.per_source)) {
            return Err(EndReason::RefusedSource);
        }
        let admission = Admission { quota };
        if self.len() < self.limits.connections_max {
            return Ok(admission);
        }
        self.cancel(&admission);
        Err(EndReason::RefusedShare)
    }

    /// Cancels an unused admission.
    pub(super) fn cancel(&self, &Admission { quota: Quota { ip, kind } }: &Admission) {
        networks(ip).for_each(|network| self.sources.leave(network, kind));
    }

    /// Inserts an admitted connection, which waits for its first request.
    pub(super) fn insert(&mut self, admission: Admission, connection: T, now_ms: u64) -> Handle {
        let phase = Phase::Request;
        let entry = Entry {
            connection,
            since_ms: now_ms,
            links: Links::default(),
            membership: Membership::default(),
            waited_ms: 0,
            sending_ms: 0,
            phase,
            kind: admission.quota.kind,
            is_established: false,
        };
        let class = entry.class();
        let handle = self.slab.insert(entry);
        let node = NodeId::new(handle.index);
        self.queues[phase as usize].push(node, &mut self.slab);
        self.shares.join(&mut self.slab, node, networks(admission.quota.ip), class);
        self.accounts.open(handle.index, admission.quota.ip);
        self.update_held(handle, Held::default());
        handle
    }

    /// Records a connection's memory beyond what every connection takes.
    pub(super) fn update_held(&mut self, handle: Handle, held: Held) {
        if self.slab.get_mut(handle).is_some() {
            self.accounts.note(handle.index, Held { fixed: held.fixed + Self::CONNECTION_BYTES, ..held });
            self.budget.note(self.accounts.bytes());
        }
    }

    /// Returns whether connections hold more memory than they may.
    pub(super) fn is_over_budget(&self) -> bool {
        self.accounts.bytes() > self.budget.held_bytes_max()
    }

    /// Returns whether one more connection would exceed the memory.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.accounts.bytes() + Self::CONNECTION_BYTES > self.budget.held_bytes_max()
    }

    pub(super) fn trim(&mut self) {
        self.slab.trim();
        self.shares.trim();
        self.accounts.trim(self.slab.slots());
    }

    /// Returns the handle that the next inserted connection will have.
    pub(super) fn next_handle(&mut self) -> Handle {
        self.slab.next_handle()
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.slab.get_mut(handle).map(|entry| &mut entry.connection)
    }

    pub(super) fn phase(&mut self, handle: Handle) -> Option<Phase> {
        self.slab.get_mut(handle).map(|entry| entry.phase)
    }

    /// Moves a connection to a phase, which may be its present one, and restarts the time of the phase. The time is
    /// over at once if the connection has none left.
    pub(super) fn enter(&mut self, handle: Handle, phase: Phase, now_ms: u64) {
        let Some(entry) = self.slab.get_mut(handle) else { return };
        let (before, class_before) = (entry.phase, entry.class());
        entry.end_phase(phase, now_ms);
        (entry.phase, entry.since_ms) = (phase, now_ms);
        let class = entry.class();
        let is_out_of_time = entry.is_out_of_time(&self.limits);
        let node = NodeId::new(handle.index);
        self.queues[before as usize].remove(node, &mut self.slab);
        if is_out_of_time {
            self.queues[phase as usize].push_first(node, &mut self.slab);
        } else {
            self.queues[phase as usize].push(node, &mut self.slab);
        }
        self.shares.shift(&mut self.slab, node, class_before, class);
    }

    /// Records that a connection is established. It remains so to its end.
    pub(super) fn set_established(&mut self, handle: Handle) {
        let Some(entry) = self.slab.get_mut(handle) else { return };
        if !entry.is_established {
            let before = entry.class();
            entry.is_established = true;
            let after = entry.class();
            self.shares.shift(&mut self.slab, NodeId::new(handle.index), before, after);
        }
    }

    /// Makes the connection count towards `quota` from now on, even if that is exhausted.
    pub(super) fn set_quota(&mut self, handle: Handle, quota: Quota) {
        self.leave_sources(handle);
        let Some(entry) = self.slab.get_mut(handle) else { return };
        entry.kind = quota.kind;
        let class = entry.class();
        networks(quota.ip).for_each(|network| self.sources.add(network, quota.kind));
        self.accounts.transfer(handle.index, quota.ip);
        self.shares.join(&mut self.slab, NodeId::new(handle.index), networks(quota.ip), class);
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<T> {
        let phase = self.phase(handle)?;
        self.queues[phase as usize].remove(NodeId::new(handle.index), &mut self.slab);
        self.leave_sources(handle);
        self.accounts.close(handle.index);
        self.budget.note(self.accounts.bytes());
        self.counters.closed.increment();
        self.slab.remove(handle).map(|entry| entry.connection)
    }

    /// Makes the connection count towards no source.
    fn leave_sources(&mut self, handle: Handle) {
        let Some(entry) = self.slab.get_mut(handle) else { return };
        let (class, kind) = (entry.class(), entry.kind);
        let Self { slab, shares, sources, .. } = self;
        shares.leave(slab, NodeId::new(handle.index), class, |network| sources.leave(network, kind));
    }

    /// Returns all connections in a phase.
    pub(super) fn handles_in(&mut self, phase: Phase) -> Vec<Handle> {
        let mut handles = Vec::new();
        let mut next = self.queues[phase as usize].first();
        while let Some(node) = next {
            handles.push(self.slab.at(node.index()).0);
            next = Queue::after(node, &mut self.slab);
        }
        handles
    }

    /// Returns a connection with nothing in progress: the longest idle one, otherwise the upgraded one whose peer has
    /// been silent longest.
    pub(super) fn first_at_rest(&mut self) -> Option<Handle> {
        self.first(Phase::Idle).or_else(|| self.first(Phase::Upgraded))
    }

    /// Returns the first connection in the order of the shutdown, and its phase.
    pub(super) fn first_to_close(&mut self) -> Option<(Handle, Phase)> {
        Phase::ALL.into_iter().find_map(|phase| Some((self.first(phase)?, phase)))
    }

    /// Returns an overdue connection, and its phase. Counts it if it will be closed.
    pub(super) fn overdue(&mut self, now_ms: u64) -> Option<(Handle, Phase)> {
        for phase in Phase::ALL {
            let Some(first) = self.queues[phase as usize].first() else { continue };
            let limit_ms = self.limit_ms(phase);
            let (handle, entry) = self.slab.at(first.index());
            if now_ms.saturating_sub(entry.since_ms) > limit_ms || entry.is_out_of_time(&self.limits) {
                match phase {
                    Phase::Idle => self.counters.ended.of(EndReason::Idle).increment(),
                    Phase::Request => self.counters.ended.of(EndReason::SlowRequest).increment(),
                    // The caller decides whether it is closed.
                    Phase::Send | Phase::Upgraded | Phase::Linger => {}
                }
                return Some((handle, phase));
            }
        }
        None
    }

    const fn limit_ms(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Idle => self.limits.idle_ms_max,
            Phase::Request => self.limits.request_ms_max,
            Phase::Upgraded => self.limits.silent_ms_max,
            Phase::Send => self.limits.send_ms_max,
            Phase::Linger => LINGER_MS_MAX,
        }
    }

    fn first(&mut self, phase: Phase) -> Option<Handle> {
        let first = self.queues[phase as usize].first()?;
        Some(self.slab.at(first.index()).0)
    }
}

/// Returns the networks of a source; none if it is not limited.
fn networks(ip: Option<IpAddr>) -> impl Iterator<Item = Network> {
    ip.into_iter().flat_map(Network::all)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::stream::SourceLimits;

    const LIMITS: StreamLimits = StreamLimits {
        connections_max: 3,
        per_source: SourceLimits { http_max: 2, websockets_max: 3 },
        idle_ms_max: 1000,
        request_ms_max: 100,
        send_ms_max: 10,
        answer_ms_max: 1000,
        silent_ms_max: 60_000,
    };

    fn table() -> ConnectionTable<&'static str> {
        ConnectionTable::new(LIMITS, Arc::default(), Arc::default(), Arc::default())
    }

    fn quota(peer: &str, limited: bool) -> Quota {
        let peer: SocketAddr = peer.parse().unwrap();
        Quota { ip: limited.then(|| peer.ip()), kind: ConnectionKind::Http }
    }

    fn enter(
        table: &mut ConnectionTable<&'static str>,
        name: &'static str,
        peer: &str,
        now_ms: u64,
    ) -> Handle {
        let admission = table.admit(quota(peer, true)).unwrap();
        table.insert(admission, name, now_ms)
    }

    fn victim(table: &mut ConnectionTable<&'static str>) -> Option<Handle> {
        table.victim().map(|victim| victim.handle)
    }

    #[test]
    fn among_equals_the_oldest_idle_is_the_first_to_go() {
        let mut table = table();
        let a = enter(&mut table, "a", "192.0.2.1:1", 0);
        let b = enter(&mut table, "b", "192.0.2.2:1", 0);
        let c = enter(&mut table, "c", "192.0.2.3:1", 0);
        for (handle, now_ms) in [(a, 1), (b, 2), (c, 3), (a, 4)] {
            table.enter(handle, Phase::Idle, now_ms);
        }
        for (handle, name) in [(b, "b"), (c, "c"), (a, "a")] {
            assert_eq!(victim(&mut table), Some(handle));
            assert_eq!(table.remove(handle), Some(name));
        }
        assert_eq!(victim(&mut table), None);
    }

    #[test]
    fn the_greediest_source_goes_first_whatever_it_waits_for() {
        let mut table = table();
        let a = enter(&mut table, "a", "192.0.2.1:1", 0);
        let b = enter(&mut table, "b", "192.0.2.1:2", 1);
        let idle = enter(&mut table, "idle", "192.0.2.2:1", 0);
        table.enter(idle, Phase::Idle, 0);
        assert_eq!(
            table.victim(),
            Some(Victim { handle: a, phase: Phase::Request, usage: 2, is_over_share: true })
        );
        table.enter(a, Phase::Send, 2);
        assert_eq!(victim(&mut table), Some(b));
        table.remove(b);
        assert_eq!(victim(&mut table), Some(idle));
    }

    #[test]
    fn a_source_that_has_as_many_as_any_replaces_only_what_is_at_rest_of_its_own() {
        let mut table = table();
        let a = enter(&mut table, "a", "192.0.2.1:1", 0);
        let b = enter(&mut table, "b", "192.0.2.2:1", 0);
        let c = enter(&mut table, "c", "192.0.2.2:2", 0);
        let victim_for = |table: &mut ConnectionTable<_>, peer, limited| {
            table.victim_for(quota(peer, limited).ip).map(|victim: Victim| victim.handle)
        };
        assert_eq!(victim_for(&mut table, "192.0.2.3:1", true), Some(b));
        assert_eq!(victim_for(&mut table, "192.0.2.1:2", true), Some(b), "a and b have waited as long");
        assert_eq!(victim_for(&mut table, "192.0.2.2:3", true), None);
        // A connection without limits has no source that could replace its own.
        assert_eq!(victim_for(&mut table, "192.0.2.2:3", false), Some(b));
        table.enter(c, Phase::Idle, 1);
        assert_eq!(victim_for(&mut table, "192.0.2.2:3", true), Some(c));
        table.remove(c);
        assert_eq!(victim_for(&mut table, "192.0.2.1:2", true), None);
        table.enter(a, Phase::Linger, 2);
        assert_eq!(victim_for(&mut table, "192.0.2.1:2", true), Some(a));
        assert_eq!(victim_for(&mut table, "192.0.2.2:3", true), None);
    }

    /// Returns a full table of one announced WebSocket, one that has not announced, and a half request, of equal
    /// sources.
    fn full_table() -> (ConnectionTable<&'static str>, [Handle; 3]) {
        let mut table = table();
        let announced = enter(&mut table, "announced", "192.0.2.1:1", 0);
        let silent = enter(&mut table, "silent", "198.51.100.1:1", 0);
        for handle in [announced, silent] {
            table.set_quota(handle, Quota { ip: None, kind: ConnectionKind::WebSocket });
            table.enter(handle, Phase::Upgraded, 1);
        }
        table.set_established(announced);
        let half = enter(&mut table, "half", "203.0.113.1:1", 2);
        (table, [announced, silent, half])
    }

    #[test]
    fn half_requests_go_first_then_websockets_that_never_announced() {
        let (mut table, [announced, silent, half]) = full_table();
        // The order does not depend on what they are doing.
        table.enter(announced, Phase::Request, 3);
        table.enter(silent, Phase::Send, 3);
        for handle in [half, silent, announced] {
            assert_eq!(victim(&mut table), Some(handle));
            table.remove(handle);
        }
        assert_eq!(victim(&mut table), None);
    }

    #[test]
    fn more_of_a_request_does_not_defend_a_connection() {
        let mut table = table();
        let busy = enter(&mut table, "busy", "192.0.2.1:1", 0);
        enter(&mut table, "half", "198.51.100.1:1", 1);
        // A complete request, and half of the next one.
        table.enter(busy, Phase::Request, 2);
        assert_eq!(victim(&mut table), Some(busy));
        table.enter(busy, Phase::Linger, 3);
        assert_eq!(victim(&mut table), Some(busy));
    }

    #[test]
    fn a_client_of_a_greedy_provider_replaces_a_half_request_there() {
        let limits = StreamLimits { connections_max: 128, ..LIMITS };
        let mut table = ConnectionTable::new(limits, Arc::default(), Arc::default(), Arc::default());
        let mut of_provider =
            (0..128).map(|number| enter(&mut table, "half", &format!("192.0.2.{number}:1"), 0));
        let first = of_provider.next();
        assert_eq!(of_provider.count(), 127);
        let handle = |victim: Option<Victim>| victim.map(|victim| (victim.handle, victim.usage));
        let of = |ip: &str| Some(ip.parse().unwrap());
        assert_eq!(handle(table.victim_for(of("198.51.100.1"))), first.map(|first| (first, 2)));
        assert_eq!(handle(table.victim_for(of("192.0.2.200"))), first.map(|first| (first, 2)));
        table.set_established(first.unwrap());
        assert_ne!(handle(table.victim_for(of("192.0.2.200"))), first.map(|first| (first, 2)));
    }

    #[test]
    fn a_source_of_many_connections_makes_room_in_memory_before_one_that_holds_little_more() {
        let limits = StreamLimits {
            connections_max: 300,
            per_source: SourceLimits { http_max: 200, websockets_max: 200 },
            ..LIMITS
        };
        let mut table = ConnectionTable::new(limits, Arc::default(), Arc::default(), Arc::default());
        let idle: Vec<Handle> = (0..100)
            .map(|port| {
                let handle = enter(&mut table, "idle", &format!("192.0.2.1:{}", 1000 + port), 0);
                table.update_held(handle, Held { fixed: 10_000, variable: 0 });
                table.enter(handle, Phase::Idle, 0);
                handle
            })
            .collect();
        let busy = enter(&mut table, "busy", "192.0.2.2:1", 0);
        table.update_held(busy, Held { fixed: 10_000, variable: 100_000 });
        let Some(MemoryVictim::Connection(victim)) = table.memory_victim() else {
            panic!("the busy one goes")
        };
        assert_eq!((victim.handle, victim.usage), (idle[0], 100));
        // The source is the highest anyway. Of its connections, the one that holds most is closed.
        table.update_held(idle[7], Held { fixed: 10_000, variable: 200_000 });
        assert_eq!(table.memory_victim(), Some(MemoryVictim::Account(idle[7])));
        table.update_held(busy, Held { fixed: 10_000, variable: 2_000_000 });
        assert_eq!(table.memory_victim(), Some(MemoryVictim::Account(busy)));
    }

    #[test]
    fn a_connection_counts_towards_its_quota() {
        let mut table = table();
        let handles = [1, 2, 3].map(|port| {
            let admission = table.admit(quota(&format!("192.0.2.1:{port}"), false)).unwrap();
            table.insert(admission, "proxied", 0)
        });
        let ip = Some([198, 51, 100, 7].into());
        handles[..2]
            .iter()
            .for_each(|handle| table.set_quota(*handle, Quota { ip, kind: ConnectionKind::Http }));
        assert_eq!(table.victim().unwrap().usage, 2);
        assert_eq!(table.admit(quota("198.51.100.7:1", true)).unwrap_err(), EndReason::RefusedSource);
        table.set_quota(handles[0], Quota { ip, kind: ConnectionKind::WebSocket });
        assert_eq!(table.admit(quota("198.51.100.7:1", true)).unwrap_err(), EndReason::RefusedShare);
        for handle in handles {
            table.remove(handle);
        }
        enter(&mut table, "1", "198.51.100.7:1", 0);
        enter(&mut table, "2", "198.51.100.7:2", 0);
        assert_eq!(table.admit(quota("198.51.100.7:3", true)).unwrap_err(), EndReason::RefusedSource);
    }

    #[test]
    fn waits_for_requests_add_up_until_it_is_idle() {
        let mut table = table();
        let handle = enter(&mut table, "a", "192.0.2.1:1", 0);
        let mut now_ms = 0;
        // Within the limit of each wait, and of the sum.
        for wait_ms in [90, 99, 100, 100, 100] {
            now_ms += wait_ms;
            table.enter(handle, Phase::Request, now_ms);
        }
        assert_eq!(table.overdue(now_ms + 100), None);
        table.enter(handle, Phase::Idle, now_ms + 150);
        table.enter(handle, Phase::Request, 1000);
        table.enter(handle, Phase::Send, 1199);
        assert_eq!(table.overdue(1199), None);
        table.enter(handle, Phase::Request, 1200);
        assert_eq!(table.overdue(1200), None);
        // One more millisecond beyond the free part uses up its time.
        table.enter(handle, Phase::Request, 1301);
        assert_eq!(table.overdue(1301), Some((handle, Phase::Request)));
        table.set_quota(handle, Quota { ip: None, kind: ConnectionKind::WebSocket });
        table.enter(handle, Phase::Request, 1302);
        assert_eq!(table.overdue(1302), None);
    }

    #[test]
    fn the_time_of_answers_adds_up_until_it_is_idle() {
        let limits = StreamLimits { send_ms_max: 600, ..LIMITS };
        let mut table = ConnectionTable::new(limits, Arc::default(), Arc::default(), Arc::default());
        let handle = enter(&mut table, "a", "192.0.2.1:1", 0);
        for now_ms in [0, 600, 1199] {
            table.enter(handle, Phase::Send, now_ms);
            assert_eq!(table.overdue(now_ms), None);
        }
        table.enter(handle, Phase::Send, 1300);
        assert_eq!(table.overdue(1300), Some((handle, Phase::Send)));
        table.enter(handle, Phase::Idle, 1400);
        table.enter(handle, Phase::Send, 1500);
        assert_eq!(table.overdue(2000), None);
    }

    #[test]
    fn each_phase_has_its_own_time() {
        let mut table = table();
        let idle = enter(&mut table, "idle", "192.0.2.1:1", 0);
        let asking = enter(&mut table, "asking", "192.0.2.2:1", 0);
        let slow = enter(&mut table, "slow", "192.0.2.3:1", 0);
        table.enter(idle, Phase::Idle, 0);
        table.enter(slow, Phase::Send, 50);
        assert_eq!(table.overdue(60), None);
        assert_eq!(table.overdue(61), Some((slow, Phase::Send)));
        table.remove(slow);
        assert_eq!(table.overdue(100), None);
        assert_eq!(table.overdue(101), Some((asking, Phase::Request)));
        table.remove(asking);
        assert_eq!(table.overdue(1000), None);
        assert_eq!(table.overdue(1001), Some((idle, Phase::Idle)));
        table.enter(idle, Phase::Upgraded, 2000);
        assert_eq!(table.overdue(62_000), None);
        assert_eq!(table.overdue(62_001), Some((idle, Phase::Upgraded)));
    }

    #[test]
    fn room_is_limited_in_all_and_for_each_source() {
        let mut table = table();
        let first = enter(&mut table, "1", "192.0.2.1:1", 0);
        enter(&mut table, "2", "192.0.2.1:2", 0);
        assert_eq!(table.admit(quota("192.0.2.1:3", true)).unwrap_err(), EndReason::RefusedSource);
        // A proxy is not limited.
        assert!(table.admit(quota("192.0.2.1:3", false)).is_ok());
        enter(&mut table, "3", "192.0.2.2:1", 0);
        assert_eq!(table.admit(quota("192.0.2.3:1", true)).unwrap_err(), EndReason::RefusedShare);
        // A refused connection is not counted.
        assert_eq!(table.admit(quota("192.0.2.3:1", true)).unwrap_err(), EndReason::RefusedShare);
        assert_eq!(table.admit(quota("192.0.2.3:1", true)).unwrap_err(), EndReason::RefusedShare);
        assert_eq!(table.admit(quota("192.0.2.1:3", true)).unwrap_err(), EndReason::RefusedSource);
        assert_eq!(table.remove(first), Some("1"));
        assert_eq!(table.remove(first), None);
        enter(&mut table, "4", "192.0.2.1:3", 0);
        assert_eq!(table.len(), 3);
    }
}
