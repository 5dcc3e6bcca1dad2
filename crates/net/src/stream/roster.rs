//! Which connections there are, since when each waits for what, and which has to go first.
//!
//! The bookkeeping of connections, without any I/O. Each phase of a connection has one time limit, so the
//! connections of a phase stand in a queue in the order in which they entered it, and only its head can be overdue. Which
//! connection makes room is decided by [`Shares`]. Every step takes the same time however many connections there are.
//!
//! A phase can be entered again and again. So that this does not hold a connection open for ever, waits for the rest of a
//! request add up until the connection is idle, and so do waits for the peer to take its answers. A connection whose
//! time is used up in this way is overdue as soon as it enters the phase once more.

use std::net::IpAddr;
use std::sync::Arc;

use shoal_transport::stream::{ConnectionKind, Held, Quota, Remote};

use super::holders::{self, Holders};
use super::queue::{Chain, Links, Place, Queue};
use super::shares::{self, Members, Membership, Shares};
use super::slab::{Key, Slab};
use super::sources::{Network, Sources};
use super::{Budget, StreamCounters, StreamLimits};

/// Longest time for which what arrives after the last answer is thrown away before the socket is closed.
const LINGER_MS_MAX: u64 = 2_000;

/// The part of each wait that does not add up. A peer that is slower than that over every request, and never idle, runs
/// out of time; one that keeps requests or answers moving does not.
const FREE_WAIT_MS: u64 = 100;

/// What a connection waits for, as far as its limits of time and its place in the order of eviction depend on it. Earlier
/// phases can be spared before later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// A request, with nothing half done.
    Idle,
    /// The peer, to stop sending.
    Linger,
    /// Either side, to say something.
    Upgraded,
    /// The peer, to take what is sent.
    Send,
    /// The rest of a request or handshake.
    Request,
}

impl Phase {
    /// How many phases there are.
    pub(super) const COUNT: usize = 5;

    /// All phases, in the order in which their connections can be spared.
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Idle, Self::Linger, Self::Upgraded, Self::Send, Self::Request];
}

/// Why there is no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There are as many as there may be.
    Full,
    /// Its source has as many as it may have.
    Source,
    /// There is no memory for it.
    Memory,
}

/// Leave to enter, to be handed to [`Roster::insert`]. The connection is counted over all workers already.
#[derive(Debug)]
pub(super) struct Admission {
    /// The source, if it is limited.
    ip: Option<IpAddr>,
}

/// A connection that can make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    pub(super) key: Key,
    pub(super) phase: Phase,
    /// How greedy its source is, see [`Shares`].
    pub(super) greed: usize,
}

/// A connection that makes room in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveBack {
    /// It holds more than it has to.
    Holder(Key),
    /// Its source has many connections.
    Spare(Spare),
}

/// The connections of a worker, with a `T` for each.
#[derive(Debug)]
pub(super) struct Roster<T> {
    slab: Slab<Entry<T>>,
    queues: [Queue; Phase::COUNT],
    shares: Shares,
    limits: StreamLimits,
    sources: Arc<Sources>,
    counters: Arc<StreamCounters>,
    holders: Holders,
    budget: Arc<Budget>,
    /// Whether connections are closed rather than left idle.
    retired: bool,
}

#[derive(Debug)]
struct Entry<T> {
    thing: T,
    since_ms: u64,
    /// Within the queue of its phase.
    links: Links,
    membership: Membership,
    /// For how long the rest of requests was waited for since it was last idle, in milliseconds.
    waited_ms: u32,
    /// For how long its peer was taking answers since it was last idle, in milliseconds.
    sending_ms: u32,
    phase: Phase,
    kind: ConnectionKind,
}

impl<T> Chain for Slab<Entry<T>> {
    fn links(&mut self, place: Place) -> &mut Links {
        &mut self.at(place.index()).1.links
    }
}

impl<T> Members for Slab<Entry<T>> {
    fn membership(&mut self, place: Place) -> &mut Membership {
        &mut self.at(place.index()).1.membership
    }
}

impl<T> Entry<T> {
    /// Adds up how long the phase took that ends at `now_ms`, and forgets the sums where nothing is half done in the next.
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

    /// Whether it has no time left for its phase. A WebSocket may stand for ever anyway.
    fn is_out_of_time(&self, limits: &StreamLimits) -> bool {
        self.kind == ConnectionKind::Http
            && match self.phase {
                Phase::Request => u64::from(self.waited_ms) >= limits.request_ms_max,
                Phase::Send => u64::from(self.sending_ms) >= limits.answer_ms_max,
                Phase::Idle | Phase::Linger | Phase::Upgraded => false,
            }
    }
}

impl<T> Roster<T> {
    /// Bytes that every connection takes, whatever it says.
    const CONNECTION_BYTES: usize =
        Slab::<Entry<T>>::PLACE_BYTES + holders::ACCOUNT_BYTES + shares::SOURCE_BYTES;

    pub(super) fn new(
        limits: StreamLimits,
        sources: Arc<Sources>,
        counters: Arc<StreamCounters>,
        budget: Arc<Budget>,
    ) -> Self {
        let (slab, queues) = (Slab::new(), [Queue::default(); Phase::COUNT]);
        let (shares, holders) = (Shares::default(), Holders::new());
        Self { slab, queues, shares, limits, sources, counters, holders, budget, retired: false }
    }

    pub(super) fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Replaces the limits, also for the connections that exist. None is closed because there are too many.
    pub(super) const fn set_limits(&mut self, limits: StreamLimits) {
        self.limits = limits;
    }

    /// From now on no connection is to be idle.
    pub(super) const fn retire(&mut self) {
        self.retired = true;
    }

    pub(super) const fn is_retired(&self) -> bool {
        self.retired
    }

    pub(super) const fn len(&self) -> usize {
        self.slab.len()
    }

    /// Asks for room for a connection from `remote`, which counts towards its source if `limited`. The limit of the source
    /// comes first, so that no other connection makes room for one that has too many anyway.
    pub(super) fn admit(&self, remote: &Remote, limited: bool) -> Result<Admission, Refused> {
        let ip = limited_ip(remote, limited);
        if ip.is_some_and(|ip| !self.sources.enter(ip, ConnectionKind::Http, self.limits.per_source)) {
            return Err(Refused::Source);
        }
        if self.len() < self.limits.connections_max {
            return Ok(Admission { ip });
        }
        networks(ip).for_each(|network| self.sources.leave(network, ConnectionKind::Http));
        Err(Refused::Full)
    }

    /// An admitted connection does not enter.
    pub(super) fn withdraw(&self, admission: &Admission) {
        networks(admission.ip).for_each(|network| self.sources.leave(network, ConnectionKind::Http));
    }

    /// The connection that makes room for one from `remote`, if one does: the first to go, unless the source of `remote` is
    /// as greedy as that of the first to go. Such a source can only replace a connection of its own with nothing half done.
    pub(super) fn spare_for(&mut self, remote: &Remote, limited: bool) -> Option<Spare> {
        let ip = limited_ip(remote, limited);
        let greed = self.shares.greed(networks(ip));
        match self.first_to_go() {
            Some(spare) if spare.greed > greed => Some(spare),
            _ => {
                let network = networks(ip).next()?;
                [Phase::Idle, Phase::Linger].into_iter().find_map(|phase| {
                    let place = self.shares.first_of(network, phase)?;
                    Some(Spare { key: self.slab.at(place.index()).0, phase, greed })
                })
            }
        }
    }

    /// The connection that is the first to go: that of the greediest source which can be spared first, or where all sources
    /// are equal the one of all.
    pub(super) fn first_to_go(&mut self) -> Option<Spare> {
        let Some((place, greed)) = self.shares.first_to_go() else {
            let (key, phase) = self.any()?;
            return Some(Spare { key, phase, greed: 1 });
        };
        let (key, entry) = self.slab.at(place.index());
        Some(Spare { key, phase: entry.phase, greed })
    }

    /// Takes an admitted connection in, which has to come with its first request.
    pub(super) fn insert(&mut self, admission: Admission, thing: T, now_ms: u64) -> Key {
        let phase = Phase::Request;
        let entry = Entry {
            thing,
            since_ms: now_ms,
            links: Links::default(),
            membership: Membership::default(),
            waited_ms: 0,
            sending_ms: 0,
            phase,
            kind: ConnectionKind::Http,
        };
        let key = self.slab.insert(entry);
        let place = Place::new(key.index);
        self.queues[phase as usize].push(place, &mut self.slab);
        self.shares.join(&mut self.slab, place, networks(admission.ip), phase);
        self.holders.open(key.index, admission.ip);
        self.note_held(key, Held::default());
        key
    }

    /// Notes what a connection holds by now, beside what every connection takes.
    pub(super) fn note_held(&mut self, key: Key, held: Held) {
        if self.slab.get_mut(key).is_some() {
            self.holders.note(key.index, Held { fixed: held.fixed + Self::CONNECTION_BYTES, ..held });
            self.budget.note(self.holders.bytes());
        }
    }

    /// Whether connections hold more than they may.
    pub(super) fn is_over_budget(&self) -> bool {
        self.holders.bytes() > self.budget.held_bytes_max()
    }

    /// Whether one more connection would be too much.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.holders.bytes() + Self::CONNECTION_BYTES > self.budget.held_bytes_max()
    }

    /// Which connection makes room in memory: of the source that holds most, by what depends on its peers and by how many
    /// connections it has.
    pub(super) fn first_to_give_back(&mut self) -> Option<GiveBack> {
        let spare = self.first_to_go();
        let Some(holder) = self.holders.largest() else { return spare.map(GiveBack::Spare) };
        let fixed_bytes = self.holders.fixed_bytes() / self.len().max(1);
        let of_holder =
            self.shares.greed(networks(holder.ip)).saturating_mul(fixed_bytes) + holder.source_bytes;
        match spare {
            Some(spare) if spare.greed > 1 && spare.greed.saturating_mul(fixed_bytes) > of_holder => {
                Some(GiveBack::Spare(spare))
            }
            _ => Some(GiveBack::Holder(self.slab.at(holder.place).0)),
        }
    }

    /// Gives back the memory of places that are not used.
    pub(super) fn trim(&mut self) {
        self.slab.trim();
        self.shares.trim();
        self.holders.trim(self.slab.places());
    }

    /// The key that the next connection to be taken in will have.
    pub(super) fn next_key(&mut self) -> Key {
        self.slab.next_key()
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slab.get_mut(key).map(|entry| &mut entry.thing)
    }

    pub(super) fn phase(&mut self, key: Key) -> Option<Phase> {
        self.slab.get_mut(key).map(|entry| entry.phase)
    }

    /// The connection enters a phase, also if it is in it already: the time of the phase begins anew, or is over at once
    /// where the connection has none left.
    pub(super) fn enter(&mut self, key: Key, phase: Phase, now_ms: u64) {
        let Some(entry) = self.slab.get_mut(key) else { return };
        let before = entry.phase;
        entry.end_phase(phase, now_ms);
        (entry.phase, entry.since_ms) = (phase, now_ms);
        let is_out_of_time = entry.is_out_of_time(&self.limits);
        let place = Place::new(key.index);
        self.queues[before as usize].remove(place, &mut self.slab);
        if is_out_of_time {
            self.queues[phase as usize].push_first(place, &mut self.slab);
        } else {
            self.queues[phase as usize].push(place, &mut self.slab);
        }
        self.shares.shift(&mut self.slab, place, before, phase);
    }

    /// From now on the connection counts towards `quota`, however many connections that has.
    pub(super) fn set_quota(&mut self, key: Key, quota: Quota) {
        self.leave_sources(key);
        let Some(entry) = self.slab.get_mut(key) else { return };
        entry.kind = quota.kind;
        let phase = entry.phase;
        networks(quota.ip).for_each(|network| self.sources.add(network, quota.kind));
        self.holders.transfer(key.index, quota.ip);
        self.shares.join(&mut self.slab, Place::new(key.index), networks(quota.ip), phase);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let phase = self.phase(key)?;
        self.queues[phase as usize].remove(Place::new(key.index), &mut self.slab);
        self.leave_sources(key);
        self.holders.close(key.index);
        self.budget.note(self.holders.bytes());
        self.counters.closed.add(1);
        self.slab.remove(key).map(|entry| entry.thing)
    }

    /// The connection counts towards no source any more.
    fn leave_sources(&mut self, key: Key) {
        let Some(&mut Entry { phase, kind, .. }) = self.slab.get_mut(key) else { return };
        let Self { slab, shares, sources, .. } = self;
        shares.leave(slab, Place::new(key.index), phase, |network| sources.leave(network, kind));
    }

    /// A connection with nothing half done: the one that has been idle longest, or else the standing one whose peer has
    /// been silent longest.
    pub(super) fn at_rest(&mut self) -> Option<Key> {
        self.first(Phase::Idle).or_else(|| self.first(Phase::Upgraded))
    }

    /// Of all connections the one that can be spared first, and its phase.
    pub(super) fn any(&mut self) -> Option<(Key, Phase)> {
        Phase::ALL.into_iter().find_map(|phase| Some((self.first(phase)?, phase)))
    }

    /// A connection whose time is up, and in which phase that befell it. Counts it if it has to go.
    pub(super) fn overdue(&mut self, now_ms: u64) -> Option<(Key, Phase)> {
        for phase in Phase::ALL {
            let Some(first) = self.queues[phase as usize].first() else { continue };
            let limit_ms = self.limit_ms(phase);
            let (key, entry) = self.slab.at(first.index());
            if now_ms.saturating_sub(entry.since_ms) > limit_ms || entry.is_out_of_time(&self.limits) {
                match phase {
                    Phase::Idle => self.counters.timed_out_idle.add(1),
                    Phase::Request => self.counters.timed_out_request.add(1),
                    // Whether it is to go is decided elsewhere.
                    Phase::Send | Phase::Upgraded | Phase::Linger => {}
                }
                return Some((key, phase));
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

    fn first(&mut self, phase: Phase) -> Option<Key> {
        let first = self.queues[phase as usize].first()?;
        Some(self.slab.at(first.index()).0)
    }
}

/// The address whose networks a connection from `remote` counts towards.
fn limited_ip(remote: &Remote, limited: bool) -> Option<IpAddr> {
    remote.peer.filter(|_| limited).map(|peer| peer.ip())
}

/// The networks of a source; none where it is not limited.
fn networks(ip: Option<IpAddr>) -> impl Iterator<Item = Network> {
    ip.into_iter().flat_map(Network::all)
}

#[cfg(test)]
mod tests {
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

    fn roster() -> Roster<&'static str> {
        Roster::new(LIMITS, Arc::default(), Arc::default(), Arc::default())
    }

    fn remote(peer: &str) -> Remote {
        Remote { listener: 0, peer: Some(peer.parse().unwrap()) }
    }

    fn enter(roster: &mut Roster<&'static str>, name: &'static str, peer: &str, now_ms: u64) -> Key {
        let admission = roster.admit(&remote(peer), true).unwrap();
        roster.insert(admission, name, now_ms)
    }

    fn first_to_go(roster: &mut Roster<&'static str>) -> Option<Key> {
        roster.first_to_go().map(|spare| spare.key)
    }

    #[test]
    fn among_equals_the_oldest_idle_is_the_first_to_go() {
        let mut roster = roster();
        let a = enter(&mut roster, "a", "192.0.2.1:1", 0);
        let b = enter(&mut roster, "b", "192.0.2.2:1", 0);
        let c = enter(&mut roster, "c", "192.0.2.3:1", 0);
        for (key, now_ms) in [(a, 1), (b, 2), (c, 3), (a, 4)] {
            roster.enter(key, Phase::Idle, now_ms);
        }
        for (key, name) in [(b, "b"), (c, "c"), (a, "a")] {
            assert_eq!(first_to_go(&mut roster), Some(key));
            assert_eq!(roster.remove(key), Some(name));
        }
        assert_eq!(first_to_go(&mut roster), None);
    }

    #[test]
    fn the_greediest_source_goes_first_whatever_it_waits_for() {
        let mut roster = roster();
        let a = enter(&mut roster, "a", "192.0.2.1:1", 0);
        let b = enter(&mut roster, "b", "192.0.2.1:2", 1);
        let idle = enter(&mut roster, "idle", "192.0.2.2:1", 0);
        roster.enter(idle, Phase::Idle, 0);
        assert_eq!(roster.first_to_go(), Some(Spare { key: a, phase: Phase::Request, greed: 2 }));
        roster.enter(b, Phase::Send, 2);
        assert_eq!(first_to_go(&mut roster), Some(b));
        roster.remove(b);
        assert_eq!(first_to_go(&mut roster), Some(idle));
    }

    #[test]
    fn a_source_that_has_as_many_as_any_replaces_only_what_is_at_rest_of_its_own() {
        let mut roster = roster();
        let a = enter(&mut roster, "a", "192.0.2.1:1", 0);
        let b = enter(&mut roster, "b", "192.0.2.2:1", 0);
        let c = enter(&mut roster, "c", "192.0.2.2:2", 0);
        let spare_for = |roster: &mut Roster<_>, peer, limited| {
            roster.spare_for(&remote(peer), limited).map(|spare: Spare| spare.key)
        };
        assert_eq!(spare_for(&mut roster, "192.0.2.3:1", true), Some(b));
        assert_eq!(spare_for(&mut roster, "192.0.2.1:2", true), Some(b));
        assert_eq!(spare_for(&mut roster, "192.0.2.2:3", true), None);
        // One that is not limited has no connections of its own.
        assert_eq!(spare_for(&mut roster, "192.0.2.2:3", false), Some(b));
        roster.enter(c, Phase::Idle, 1);
        assert_eq!(spare_for(&mut roster, "192.0.2.2:3", true), Some(c));
        roster.remove(c);
        assert_eq!(spare_for(&mut roster, "192.0.2.1:2", true), None);
        roster.enter(a, Phase::Linger, 2);
        assert_eq!(spare_for(&mut roster, "192.0.2.1:2", true), Some(a));
        assert_eq!(spare_for(&mut roster, "192.0.2.2:3", true), None);
    }

    #[test]
    fn a_source_of_many_connections_makes_room_in_memory_before_one_that_holds_little_more() {
        let limits = StreamLimits {
            connections_max: 300,
            per_source: SourceLimits { http_max: 200, websockets_max: 200 },
            ..LIMITS
        };
        let mut roster = Roster::new(limits, Arc::default(), Arc::default(), Arc::default());
        let idle: Vec<Key> = (0..100)
            .map(|port| {
                let key = enter(&mut roster, "idle", &format!("192.0.2.1:{}", 1000 + port), 0);
                roster.note_held(key, Held { fixed: 10_000, variable: 0 });
                roster.enter(key, Phase::Idle, 0);
                key
            })
            .collect();
        let busy = enter(&mut roster, "busy", "192.0.2.2:1", 0);
        roster.note_held(busy, Held { fixed: 10_000, variable: 100_000 });
        let Some(GiveBack::Spare(spare)) = roster.first_to_give_back() else { panic!("the busy one goes") };
        assert_eq!((spare.key, spare.greed), (idle[0], 100));
        // Of a source that is the greediest anyway the one that holds most goes.
        roster.note_held(idle[7], Held { fixed: 10_000, variable: 200_000 });
        assert_eq!(roster.first_to_give_back(), Some(GiveBack::Holder(idle[7])));
        roster.note_held(busy, Held { fixed: 10_000, variable: 2_000_000 });
        assert_eq!(roster.first_to_give_back(), Some(GiveBack::Holder(busy)));
    }

    #[test]
    fn a_connection_counts_towards_its_quota() {
        let mut roster = roster();
        let keys = [1, 2, 3].map(|port| {
            let admission = roster.admit(&remote(&format!("192.0.2.1:{port}")), false).unwrap();
            roster.insert(admission, "proxied", 0)
        });
        let ip = Some([198, 51, 100, 7].into());
        keys[..2].iter().for_each(|key| roster.set_quota(*key, Quota { ip, kind: ConnectionKind::Http }));
        assert_eq!(roster.first_to_go().unwrap().greed, 2);
        assert_eq!(roster.admit(&remote("198.51.100.7:1"), true).unwrap_err(), Refused::Source);
        roster.set_quota(keys[0], Quota { ip, kind: ConnectionKind::WebSocket });
        assert_eq!(roster.admit(&remote("198.51.100.7:1"), true).unwrap_err(), Refused::Full);
        for key in keys {
            roster.remove(key);
        }
        enter(&mut roster, "1", "198.51.100.7:1", 0);
        enter(&mut roster, "2", "198.51.100.7:2", 0);
        assert_eq!(roster.admit(&remote("198.51.100.7:3"), true).unwrap_err(), Refused::Source);
    }

    #[test]
    fn waits_for_requests_add_up_until_it_is_idle() {
        let mut roster = roster();
        let key = enter(&mut roster, "a", "192.0.2.1:1", 0);
        let mut now_ms = 0;
        // Within the limit of each, and of all.
        for wait_ms in [90, 99, 100, 100, 100] {
            now_ms += wait_ms;
            roster.enter(key, Phase::Request, now_ms);
        }
        assert_eq!(roster.overdue(now_ms + 100), None);
        roster.enter(key, Phase::Idle, now_ms + 150);
        roster.enter(key, Phase::Request, 1000);
        roster.enter(key, Phase::Send, 1199);
        assert_eq!(roster.overdue(1199), None);
        roster.enter(key, Phase::Request, 1200);
        assert_eq!(roster.overdue(1200), None);
        // One more millisecond beyond what is free, and its time is used up.
        roster.enter(key, Phase::Request, 1301);
        assert_eq!(roster.overdue(1301), Some((key, Phase::Request)));
        roster.set_quota(key, Quota { ip: None, kind: ConnectionKind::WebSocket });
        roster.enter(key, Phase::Request, 1302);
        assert_eq!(roster.overdue(1302), None);
    }

    #[test]
    fn the_time_of_answers_adds_up_until_it_is_idle() {
        let limits = StreamLimits { send_ms_max: 600, ..LIMITS };
        let mut roster = Roster::new(limits, Arc::default(), Arc::default(), Arc::default());
        let key = enter(&mut roster, "a", "192.0.2.1:1", 0);
        for now_ms in [0, 600, 1199] {
            roster.enter(key, Phase::Send, now_ms);
            assert_eq!(roster.overdue(now_ms), None);
        }
        roster.enter(key, Phase::Send, 1300);
        assert_eq!(roster.overdue(1300), Some((key, Phase::Send)));
        roster.enter(key, Phase::Idle, 1400);
        roster.enter(key, Phase::Send, 1500);
        assert_eq!(roster.overdue(2000), None);
    }

    #[test]
    fn each_phase_has_its_own_time() {
        let mut roster = roster();
        let idle = enter(&mut roster, "idle", "192.0.2.1:1", 0);
        let asking = enter(&mut roster, "asking", "192.0.2.2:1", 0);
        let deaf = enter(&mut roster, "deaf", "192.0.2.3:1", 0);
        roster.enter(idle, Phase::Idle, 0);
        roster.enter(deaf, Phase::Send, 50);
        assert_eq!(roster.overdue(60), None);
        assert_eq!(roster.overdue(61), Some((deaf, Phase::Send)));
        roster.remove(deaf);
        assert_eq!(roster.overdue(100), None);
        assert_eq!(roster.overdue(101), Some((asking, Phase::Request)));
        roster.remove(asking);
        assert_eq!(roster.overdue(1000), None);
        assert_eq!(roster.overdue(1001), Some((idle, Phase::Idle)));
        roster.enter(idle, Phase::Upgraded, 2000);
        assert_eq!(roster.overdue(62_000), None);
        assert_eq!(roster.overdue(62_001), Some((idle, Phase::Upgraded)));
    }

    #[test]
    fn room_is_limited_in_all_and_for_each_source() {
        let mut roster = roster();
        let first = enter(&mut roster, "1", "192.0.2.1:1", 0);
        enter(&mut roster, "2", "192.0.2.1:2", 0);
        assert_eq!(roster.admit(&remote("192.0.2.1:3"), true).unwrap_err(), Refused::Source);
        // A proxy is not limited.
        assert!(roster.admit(&remote("192.0.2.1:3"), false).is_ok());
        enter(&mut roster, "3", "192.0.2.2:1", 0);
        assert_eq!(roster.admit(&remote("192.0.2.3:1"), true).unwrap_err(), Refused::Full);
        // One that was refused is not counted.
        assert_eq!(roster.admit(&remote("192.0.2.3:1"), true).unwrap_err(), Refused::Full);
        assert_eq!(roster.admit(&remote("192.0.2.3:1"), true).unwrap_err(), Refused::Full);
        assert_eq!(roster.admit(&remote("192.0.2.1:3"), true).unwrap_err(), Refused::Source);
        assert_eq!(roster.remove(first), Some("1"));
        assert_eq!(roster.remove(first), None);
        enter(&mut roster, "4", "192.0.2.1:3", 0);
        assert_eq!(roster.len(), 3);
    }
}
