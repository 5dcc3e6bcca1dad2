//! Who is connected, since when each waits for what, and whose turn it is to go.
//!
//! The bookkeeping that every back end needs, without any I/O. Each phase of a connection has one time limit, so the
//! connections of a phase stand in a queue in the order in which they entered it, and only its head can be overdue:
//! every step here takes the same time however many there are.

use std::sync::Arc;

use shoal_wire::stream::{Held, Origin};

use super::holders::{self, Holders};
use super::slab::{Key, Slab};
use super::sources::{Source, Sources};
use super::{Budget, StreamCounters, StreamLimits};

/// Longest time for which what arrives after the last answer is thrown away before the socket is closed.
const LINGER_MS_MAX: u64 = 2_000;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request, with nothing half done.
    Idle,
    /// The rest of a request or handshake.
    Request,
    /// Either side, to say something.
    Standing,
    /// The peer, to take what is sent.
    Send,
    /// The peer, to stop sending.
    Linger,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Idle, Self::Request, Self::Standing, Self::Send, Self::Linger];
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

/// Leave to enter, to be handed to [`Roster::insert`].
#[derive(Debug)]
pub(super) struct Admission {
    source: Option<Source>,
}

/// The connections of a worker, with a `T` for each that the back end needs.
#[derive(Debug)]
pub(super) struct Roster<T> {
    slab: Slab<Entry<T>>,
    queues: [Queue; Phase::ALL.len()],
    limits: StreamLimits,
    sources: Arc<Sources>,
    counters: Arc<StreamCounters>,
    holders: Holders,
    budget: Arc<Budget>,
    /// Nobody is to idle any more.
    retired: bool,
}

#[derive(Debug)]
struct Entry<T> {
    thing: T,
    source: Option<Source>,
    phase: Phase,
    since_ms: u64,
    before: Option<u32>,
    after: Option<u32>,
}

/// The connections of a phase by their places, the one that has waited longest first.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    first: Option<u32>,
    last: Option<u32>,
}

impl<T> Roster<T> {
    /// Bytes that every connection takes, whatever it says.
    const CONNECTION_BYTES: usize = Slab::<Entry<T>>::PLACE_BYTES + holders::ACCOUNT_BYTES;

    pub(super) fn new(
        limits: StreamLimits,
        sources: Arc<Sources>,
        counters: Arc<StreamCounters>,
        budget: Arc<Budget>,
    ) -> Self {
        let queues = [Queue::default(); Phase::ALL.len()];
        let holders = Holders::new();
        Self { slab: Slab::new(), queues, limits, sources, counters, holders, budget, retired: false }
    }

    pub(super) fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Keeps the connections for ever.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.slab, Slab::new()));
        self.queues = Default::default();
    }

    /// From now on nobody is to idle.
    pub(super) const fn retire(&mut self) {
        self.retired = true;
    }

    pub(super) const fn is_retired(&self) -> bool {
        self.retired
    }

    pub(super) const fn len(&self) -> usize {
        self.slab.len()
    }

    /// Asks for room for a connection from `origin`, which counts towards its source if `limited`. The source is looked
    /// at first, so that nobody has to make room for one that has too many anyway.
    pub(super) fn admit(&self, origin: &Origin, limited: bool) -> Result<Admission, Refused> {
        let source = origin.peer.filter(|_| limited).map(|peer| Source::of(peer.ip()));
        if source.is_some_and(|source| !self.sources.enter(source, self.limits.connections_per_source_max)) {
            return Err(Refused::Source);
        }
        if self.len() < self.limits.connections_max {
            return Ok(Admission { source });
        }
        if let Some(source) = source {
            self.sources.leave(source);
        }
        Err(Refused::Full)
    }

    /// Takes an admitted connection in, which has to come with its first request.
    pub(super) fn insert(&mut self, admission: Admission, thing: T, now_ms: u64) -> Key {
        let Admission { source } = admission;
        let phase = Phase::Request;
        let entry = Entry { thing, source, phase, since_ms: now_ms, before: None, after: None };
        let key = self.slab.insert(entry);
        self.push(key.index, phase);
        self.holders.open(key.index, source);
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

    /// The connection that holds most of what depends on its peer.
    pub(super) fn largest_holder(&mut self) -> Option<Key> {
        let place = self.holders.largest()?;
        Some(self.slab.at(place).0)
    }

    /// Gives back the memory of places that are not used.
    pub(super) fn trim(&mut self) {
        self.slab.trim();
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

    /// The connection enters a phase, also if it is in it already: its time begins anew.
    pub(super) fn enter(&mut self, key: Key, phase: Phase, now_ms: u64) {
        if self.slab.get_mut(key).is_none() {
            return;
        }
        self.unlink(key.index);
        let (_, entry) = self.slab.at(key.index);
        (entry.phase, entry.since_ms) = (phase, now_ms);
        self.push(key.index, phase);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.slab.get_mut(key)?;
        self.unlink(key.index);
        let entry = self.slab.remove(key)?;
        self.holders.close(key.index);
        self.budget.note(self.holders.bytes());
        if let Some(source) = entry.source {
            self.sources.leave(source);
        }
        self.counters.closed.add(1);
        Some(entry.thing)
    }

    pub(super) const fn limits(&self) -> &StreamLimits {
        &self.limits
    }

    /// The connection that can be spared first: that which has idled longest, or else the standing one whose peer has been
    /// silent longest.
    pub(super) fn most_expendable(&mut self) -> Option<Key> {
        self.first(Phase::Idle).or_else(|| self.first(Phase::Standing))
    }

    /// Any connection, and its phase.
    pub(super) fn any(&mut self) -> Option<(Key, Phase)> {
        Phase::ALL.into_iter().find_map(|phase| Some((self.first(phase)?, phase)))
    }

    /// A connection whose time is up, and in which phase that befell it. Counts it if it has to go.
    pub(super) fn overdue(&mut self, now_ms: u64) -> Option<(Key, Phase)> {
        for phase in Phase::ALL {
            let Some(first) = self.queues[phase as usize].first else { continue };
            let limit_ms = self.limit_ms(phase);
            let (key, entry) = self.slab.at(first);
            if now_ms.saturating_sub(entry.since_ms) > limit_ms {
                match phase {
                    Phase::Idle => self.counters.timed_out_idle.add(1),
                    Phase::Request => self.counters.timed_out_request.add(1),
                    Phase::Send => self.counters.timed_out_send.add(1),
                    // Whether it is to go is for the service to say.
                    Phase::Standing | Phase::Linger => {}
                }
                return Some((key, phase));
            }
        }
        None
    }

    fn limit_ms(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Idle => self.limits.idle_ms_max,
            Phase::Request => self.limits.request_ms_max,
            Phase::Standing => self.limits.silent_ms_max,
            Phase::Send => self.limits.send_ms_max,
            Phase::Linger => LINGER_MS_MAX,
        }
    }

    fn first(&mut self, phase: Phase) -> Option<Key> {
        let first = self.queues[phase as usize].first?;
        Some(self.slab.at(first).0)
    }

    /// Puts a place at the end of a queue.
    fn push(&mut self, index: u32, phase: Phase) {
        let last = self.queues[phase as usize].last.replace(index);
        match last {
            Some(last) => self.slab.at(last).1.after = Some(index),
            None => self.queues[phase as usize].first = Some(index),
        }
        let (_, entry) = self.slab.at(index);
        (entry.before, entry.after) = (last, None);
    }

    /// Takes a place out of its queue.
    fn unlink(&mut self, index: u32) {
        let (_, &mut Entry { phase, before, after, .. }) = self.slab.at(index);
        match before {
            Some(before) => self.slab.at(before).1.after = after,
            None => self.queues[phase as usize].first = after,
        }
        match after {
            Some(after) => self.slab.at(after).1.before = before,
            None => self.queues[phase as usize].last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StreamLimits = StreamLimits {
        connections_max: 3,
        connections_per_source_max: 2,
        idle_ms_max: 1000,
        request_ms_max: 100,
        send_ms_max: 10,
        silent_ms_max: 60_000,
        unsent_bytes_max: 128 * 1024,
    };

    fn roster() -> Roster<&'static str> {
        Roster::new(LIMITS, Arc::default(), Arc::default(), Arc::default())
    }

    fn origin(peer: &str) -> Origin {
        Origin { listener: 0, peer: Some(peer.parse().unwrap()) }
    }

    fn enter(roster: &mut Roster<&'static str>, name: &'static str, peer: &str, now_ms: u64) -> Key {
        let admission = roster.admit(&origin(peer), true).unwrap();
        roster.insert(admission, name, now_ms)
    }

    #[test]
    fn the_oldest_idle_is_first() {
        let mut roster = roster();
        let a = enter(&mut roster, "a", "192.0.2.1:1", 0);
        let b = enter(&mut roster, "b", "192.0.2.2:1", 0);
        let c = enter(&mut roster, "c", "192.0.2.3:1", 0);
        assert_eq!(roster.most_expendable(), None);
        for (key, now_ms) in [(a, 1), (b, 2), (c, 3), (a, 4)] {
            roster.enter(key, Phase::Idle, now_ms);
        }
        for (key, name) in [(b, "b"), (c, "c"), (a, "a")] {
            assert_eq!(roster.most_expendable(), Some(key));
            assert_eq!(roster.remove(key), Some(name));
        }
        assert_eq!(roster.most_expendable(), None);
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
        roster.enter(idle, Phase::Standing, 2000);
        assert_eq!(roster.overdue(62_000), None);
        assert_eq!(roster.overdue(62_001), Some((idle, Phase::Standing)));
    }

    #[test]
    fn who_idles_goes_before_who_stands() {
        let mut roster = roster();
        let a = enter(&mut roster, "a", "192.0.2.1:1", 0);
        let b = enter(&mut roster, "b", "192.0.2.2:1", 0);
        let c = enter(&mut roster, "c", "192.0.2.3:1", 0);
        for (key, phase) in [(a, Phase::Standing), (b, Phase::Standing), (c, Phase::Idle)] {
            roster.enter(key, phase, 1);
        }
        // It was heard again.
        roster.enter(a, Phase::Standing, 2);
        for (key, name) in [(c, "c"), (b, "b"), (a, "a")] {
            assert_eq!(roster.most_expendable(), Some(key));
            assert_eq!(roster.remove(key), Some(name));
        }
    }

    #[test]
    fn room_is_limited_in_all_and_for_each_source() {
        let mut roster = roster();
        let first = enter(&mut roster, "1", "192.0.2.1:1", 0);
        enter(&mut roster, "2", "192.0.2.1:2", 0);
        assert_eq!(roster.admit(&origin("192.0.2.1:3"), true).unwrap_err(), Refused::Source);
        // A proxy is not limited.
        assert!(roster.admit(&origin("192.0.2.1:3"), false).is_ok());
        enter(&mut roster, "3", "192.0.2.2:1", 0);
        assert_eq!(roster.admit(&origin("192.0.2.3:1"), true).unwrap_err(), Refused::Full);
        // Whoever was refused is not counted.
        assert_eq!(roster.admit(&origin("192.0.2.3:1"), true).unwrap_err(), Refused::Full);
        assert_eq!(roster.admit(&origin("192.0.2.3:1"), true).unwrap_err(), Refused::Full);
        assert_eq!(roster.admit(&origin("192.0.2.1:3"), true).unwrap_err(), Refused::Source);
        assert_eq!(roster.remove(first), Some("1"));
        assert_eq!(roster.remove(first), None);
        enter(&mut roster, "4", "192.0.2.1:3", 0);
        assert_eq!(roster.len(), 3);
    }
}
