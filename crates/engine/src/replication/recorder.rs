//! The ring into which a responder puts the deltas of its announces.
//!
//! A responder never waits: a delta that does not fit is lost and counted. The peer's next announce in a later
//! period, or a comparison with other nodes, replaces it.
//!
//! A worker has two rings, which are read one after the other. So announces of one peer over both protocols within
//! some milliseconds may change places.

use core::net::IpAddr;
use std::sync::Arc;

use shoal_base::metrics::Counter;
use shoal_base::{Action, Delta, InfoHash, PeerChange, PeerId, Presence};
use shoal_relay::Source;

/// The number of waiting deltas: 30 milliseconds at a million announces a second.
pub const DELTAS_MAX: usize = 1 << 15;

/// The memory of a ring in bytes.
pub const RING_BYTES: usize = DELTAS_MAX * size_of::<Delta>();

/// The number of waiting deltas of WebTorrent peers.
pub const PRESENCES_MAX: usize = 1 << 13;

/// The memory of a ring of WebTorrent deltas in bytes.
pub const PRESENCE_RING_BYTES: usize = PRESENCES_MAX * size_of::<Presence>();

const _: () = assert!(size_of::<Delta>() <= 44, "a ring of each responder has 32,768 of them");

/// The sending end of a ring, at which a responder records deltas.
#[derive(Debug)]
pub struct Recorder<T = Delta> {
    ring: rtrb::Producer<T>,
    lost: Arc<Counter>,
}

/// The receiving end of a ring, from which another thread takes the deltas.
#[derive(Debug)]
pub struct RecordedDeltas<T = Delta> {
    ring: rtrb::Consumer<T>,
    lost: Arc<Counter>,
}

/// The changes that workers record for other nodes.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Changes of the peers that have addresses.
    pub addresses: Vec<RecordedDeltas>,
    /// Changes of the peers of WebTorrent.
    pub presences: Vec<RecordedDeltas<Presence>>,
    /// The announces of users.
    pub credits: Vec<crate::credit::RecordedCredits>,
}

/// Returns the two ends of a ring.
pub fn ring() -> (Recorder, RecordedDeltas) {
    ring_of(DELTAS_MAX)
}

/// Returns the two ends of a ring for WebTorrent peers.
pub fn presence_ring() -> (Recorder<Presence>, RecordedDeltas<Presence>) {
    ring_of(PRESENCES_MAX)
}

fn ring_of<T>(deltas_max: usize) -> (Recorder<T>, RecordedDeltas<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(deltas_max);
    let lost = Arc::<Counter>::default();
    let recorder = Recorder { ring: producer, lost: Arc::clone(&lost) };
    (recorder, RecordedDeltas { ring: consumer, lost })
}

impl Recorder {
    /// Records an announce of the peer at a canonical address, if other nodes need to know its effect.
    #[inline]
    pub(crate) fn record(
        &mut self,
        change: PeerChange,
        action: Action,
        info_hash: &InfoHash,
        (ip, port): (IpAddr, u16),
    ) {
        if let Some(action) = told_action(change, action) {
            self.push(Delta { info_hash: *info_hash, action, ip, port });
        }
    }
}

impl Recorder<Presence> {
    /// Records an announce or the end of a WebTorrent peer, if other nodes need to know its effect.
    pub(crate) fn record_presence(
        &mut self,
        change: PeerChange,
        action: Action,
        info_hash: InfoHash,
        (peer_id, source): (PeerId, Source),
    ) {
        if let Some(action) = told_action(change, action) {
            self.push(Presence { info_hash, action, peer_id, source: source.to_bytes() });
        }
    }
}

impl<T> Recorder<T> {
    #[inline]
    fn push(&mut self, delta: T) {
        if self.ring.push(delta).is_err() {
            self.lost.increment();
        }
    }
}

/// Returns the action that leads to the same state of the peer at other nodes, or `None` if they need not know it. A
/// download that was not counted here must not be counted there.
#[inline]
pub(crate) const fn told_action(change: PeerChange, action: Action) -> Option<Action> {
    match change {
        PeerChange::Nothing | PeerChange::Unchanged => None,
        PeerChange::Renewed | PeerChange::Joined => match action {
            Action::Leech => Some(Action::Leech),
            Action::Seed | Action::Complete => Some(Action::Seed),
            Action::Stop => None,
        },
        PeerChange::Completed => Some(Action::Complete),
        PeerChange::Left => Some(Action::Stop),
    }
}

impl<T> RecordedDeltas<T> {
    /// Takes the next delta, if there is one.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        self.ring.pop().ok()
    }

    /// Takes up to `max` deltas in their order, and calls `visit` with each. Returns their number. This costs less
    /// than single takes.
    pub fn drain(&mut self, max: usize, visit: impl FnMut(T)) -> usize {
        let waiting = self.ring.slots().min(max);
        let Ok(chunk) = self.ring.read_chunk(waiting) else { return 0 };
        chunk.into_iter().for_each(visit);
        waiting
    }

    /// Returns the count of deltas that were lost because the ring was full, for an exporter.
    pub const fn lost_counter(&self) -> &Arc<Counter> {
        &self.lost
    }

    /// Returns the number of deltas that were lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: (IpAddr, u16) = (IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)), 6881);

    fn record(recorder: &mut Recorder, change: PeerChange, action: Action) {
        recorder.record(change, action, &InfoHash([1; 20]), PEER);
    }

    #[test]
    fn a_full_ring_loses_deltas_and_counts_them() {
        let (mut recorder, mut recorded) = ring();
        for _ in 0..DELTAS_MAX + 3 {
            record(&mut recorder, PeerChange::Joined, Action::Leech);
        }
        assert_eq!(recorded.lost(), 3);
        assert!(recorded.take().is_some());
        assert_eq!(recorded.drain(10, |_| {}), 10);
        let mut count = 0;
        assert_eq!(recorded.drain(usize::MAX, |_| count += 1), DELTAS_MAX - 11);
        assert_eq!((count, recorded.take()), (DELTAS_MAX - 11, None));
        record(&mut recorder, PeerChange::Left, Action::Stop);
        assert_eq!((recorded.take().map(|delta| delta.action), recorded.lost()), (Some(Action::Stop), 3));
    }

    #[test]
    fn other_nodes_are_told_the_state_that_follows() {
        let told = |change, action| {
            let (mut recorder, mut recorded) = ring();
            record(&mut recorder, change, action);
            recorded.take().map(|delta| {
                assert_eq!((delta.info_hash, (delta.ip, delta.port)), (InfoHash([1; 20]), PEER));
                delta.action
            })
        };
        for action in [Action::Leech, Action::Seed, Action::Complete, Action::Stop] {
            assert_eq!(told(PeerChange::Nothing, action), None);
            assert_eq!(told(PeerChange::Unchanged, action), None);
        }
        for change in [PeerChange::Renewed, PeerChange::Joined] {
            assert_eq!(told(change, Action::Leech), Some(Action::Leech));
            assert_eq!(told(change, Action::Seed), Some(Action::Seed));
            assert_eq!(told(change, Action::Complete), Some(Action::Seed), "no download was counted");
        }
        assert_eq!(told(PeerChange::Completed, Action::Complete), Some(Action::Complete));
        assert_eq!(told(PeerChange::Left, Action::Stop), Some(Action::Stop));
    }
}
