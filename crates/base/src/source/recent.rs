//! Recent events in a fixed amount of memory. A hash identifies each event and its source.
//!
//! The table consists of sets of four slots. An event that arrives at a full set replaces the oldest one. So events may
//! be forgotten early, but they are not confused with one another (except with a probability of 2⁻¹⁴). To make one
//! event forgotten, an attacker must cause about as many other events as there are slots.
//!
//! Completed downloads are such events: a peer that leaves and returns has not downloaded again. If a torrent's count
//! is lost, because its last peer left, the torrent begins a new *life*, in which no peer has been counted. So the
//! count and the memory of the counted peers are forgotten together.

use crate::source::networks::spread;

/// Number of slots of a table: 8 KiB.
const SLOTS: usize = 2048;

/// Number of slots in a set, any of which an event may take.
const WAYS: usize = 4;

/// Number of time steps in a window.
const STEPS: u32 = 16;

/// Layout of a slot: 16 bits of the hash, 4 bits of count, 12 bits of time. An empty slot is 0, since no count is 0.
const MARK_SHIFT: u32 = 16;
const COUNT_SHIFT: u32 = 12;
const COUNT_MASK: u32 = 0xf;
const TIME_MASK: u32 = 0xfff;

/// A completed download, as keyed hashes.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// The hash of the torrent.
    pub torrent: u64,
    /// The current number of downloads of the torrent.
    pub completed: u32,
    /// The hash of the torrent and the peer.
    pub of_peer: u64,
    /// The hash of the torrent and the source of the peer, if the downloads of a source are limited.
    pub of_source: Option<u64>,
}

/// Maximum number of downloads of one torrent that count for one source within the window. Several clients behind one
/// address may download the same torrent.
const DOWNLOADS_PER_SOURCE_MAX: u32 = 8;

/// Recent events. Only one thread uses it at a time.
#[derive(Clone, Debug)]
pub struct Recent {
    slots: Box<[[u32; WAYS]]>,
    step_s: u32,
}

impl Recent {
    /// Maximum number of times that one event is admitted in a window.
    const TIMES_MAX: u32 = COUNT_MASK;

    /// Creates an empty record that remembers events for about `window_s`.
    pub fn new(window_s: u32) -> Self {
        Self { slots: vec![[0; WAYS]; SLOTS / WAYS].into(), step_s: window_s.div_ceil(STEPS).max(1) }
    }

    /// Returns the whole record, for [`set_words`](Self::set_words) in another process.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().flatten().copied()
    }

    /// Replaces the record by another one with the same window.
    pub fn set_words(&mut self, words: impl IntoIterator<Item = u32>) {
        self.slots.iter_mut().flatten().zip(words).for_each(|(slot, word)| *slot = word);
    }

    /// Returns whether a completed download counts: once for each peer, and a few times for each source. If so, it is
    /// recorded. A torrent has at most 15 lives within the window; peers of the last one stay known in the next.
    pub fn counts_download(&mut self, download: &Download, now_s: u32) -> bool {
        let &Download { torrent, completed, of_peer, of_source } = download;
        if completed == 0 {
            self.admit(torrent, Self::TIMES_MAX, now_s);
        }
        // This keeps the life known as long as its peers.
        let life = spread(self.times(torrent, now_s).into());
        if self.times(of_peer ^ life, now_s) > 0 {
            return false;
        }
        // The source comes first: a refused source must not use entries of others.
        of_source.is_none_or(|of_source| self.admit(of_source ^ life, DOWNLOADS_PER_SOURCE_MAX, now_s))
            && self.admit(of_peer ^ life, 1, now_s)
    }

    /// Returns how often an event was admitted within the window, or 1 if it was only refused. If it is known, its time
    /// is renewed.
    fn times(&mut self, hash: u64, now_s: u32) -> u32 {
        let now = self.time(now_s);
        let (set, mark) = self.set(hash);
        let known = set.iter_mut().find(|slot| is_of(**slot, mark, now));
        known.map_or(0, |slot| {
            *slot = (*slot & !TIME_MASK) | now;
            (*slot >> COUNT_SHIFT) & COUNT_MASK
        })
    }

    /// Returns whether an event is admitted, and records it. It may be admitted `times_max` times, at most
    /// [`TIMES_MAX`](Self::TIMES_MAX). A refusal renews the event's time, so the event must be absent for a window
    /// before it is admitted again.
    fn admit(&mut self, hash: u64, times_max: u32, now_s: u32) -> bool {
        let now = self.time(now_s);
        let (set, mark) = self.set(hash);
        let known = set.iter().position(|&slot| is_of(slot, mark, now));
        let times = known.map_or(0, |way| (set[way] >> COUNT_SHIFT) & COUNT_MASK);
        let is_admitted = times < times_max.min(Self::TIMES_MAX);
        let times = (times + u32::from(is_admitted)).max(1);
        let oldest = (0..WAYS).max_by_key(|&way| if set[way] == 0 { u32::MAX } else { age(set[way], now) });
        let way = known.or(oldest).unwrap_or(0);
        set[way] = (mark << MARK_SHIFT) | (times << COUNT_SHIFT) | now;
        is_admitted
    }

    /// Returns the current time in steps, reduced to the bits of a slot.
    fn time(&self, now_s: u32) -> u32 {
        (now_s / self.step_s) & TIME_MASK
    }

    /// Returns the set for an event, and the mark that distinguishes it from other events there.
    fn set(&mut self, hash: u64) -> (&mut [u32; WAYS], u32) {
        let sets = self.slots.len() as u64;
        let set = usize::try_from((hash & 0xffff_ffff) % sets).unwrap_or(0);
        (&mut self.slots[set], u32::try_from(hash >> 48).unwrap_or(0))
    }
}

/// Returns the number of steps since a slot was written.
fn age(slot: u32, now: u32) -> u32 {
    now.wrapping_sub(slot) & TIME_MASK
}

/// Returns whether a slot holds the event with this mark, within the window.
fn is_of(slot: u32, mark: u32, now: u32) -> bool {
    slot != 0 && slot >> MARK_SHIFT == mark && age(slot, now) <= STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_S: u32 = 1600;

    #[test]
    fn an_event_is_admitted_as_often_as_allowed() {
        let mut recent = Recent::new(WINDOW_S);
        for now_s in 0..100 {
            assert_eq!(recent.admit(7 << 48 | 1, 1, now_s), now_s == 0);
            assert_eq!(recent.admit(8 << 48 | 1, 3, now_s), now_s < 3);
        }
        assert!(recent.admit(9 << 48 | 1, 1, 100), "another event of the same set");
    }

    #[test]
    fn known_events_are_reported() {
        let mut recent = Recent::new(WINDOW_S);
        assert_eq!(recent.times(5, 0), 0);
        assert_eq!(recent.times(5, 0), 0, "a query is not an event");
        assert!(recent.admit(5, 1, 0));
        assert_eq!(recent.times(5, WINDOW_S - 200), 1);
        assert_eq!(recent.times(5, 2 * WINDOW_S - 400), 1, "a query of a known event refreshes it");
        assert_eq!(recent.times(5, 4 * WINDOW_S), 0);
    }

    fn download(peer: u64, source: u64, completed: u32) -> Download {
        let (torrent, of_source) = (3 << 48 | 9, Some(spread(source << 9 | 1)));
        Download { torrent, completed, of_peer: spread(peer), of_source }
    }

    #[test]
    fn a_peer_is_counted_once_in_each_life_of_its_torrent() {
        let mut recent = Recent::new(WINDOW_S);
        for life in 0..10 {
            for completed in 0..5 {
                let peer = 100 + u64::from(completed);
                assert!(recent.counts_download(&download(peer, peer, completed), life), "{life} {peer}");
                assert!(!recent.counts_download(&download(peer, peer, completed + 1), life));
            }
        }
        // A count that was kept continues its life.
        assert!(!recent.counts_download(&download(100, 100, 5), WINDOW_S - 200));
        assert!(recent.counts_download(&download(100, 100, 5), 4 * WINDOW_S));
    }

    #[test]
    fn a_few_downloads_of_a_source_are_counted_in_each_life() {
        let mut recent = Recent::new(WINDOW_S);
        for _ in 0..2 {
            let mut completed = 0;
            for peer in 0..100 {
                completed += u32::from(recent.counts_download(&download(peer, 1, completed), 0));
            }
            assert_eq!(completed, DOWNLOADS_PER_SOURCE_MAX);
        }
    }

    #[test]
    fn a_refused_event_must_be_absent_for_a_window() {
        let mut recent = Recent::new(WINDOW_S);
        assert!(recent.admit(5, 1, 0));
        assert!(!recent.admit(5, 1, WINDOW_S - 200));
        assert!(!recent.admit(5, 1, 2 * WINDOW_S - 400));
        assert!(recent.admit(5, 1, 4 * WINDOW_S));
    }

    #[test]
    fn a_full_set_forgets_its_oldest_event() {
        let mut recent = Recent::new(WINDOW_S);
        for event in 0..4_u64 {
            assert!(recent.admit(event << 48, 1, 200 * u32::try_from(event).unwrap()));
        }
        assert!(recent.admit(9 << 48, 1, 800));
        assert!(!recent.admit(1 << 48, 1, 800));
        assert!(recent.admit(0, 1, 800), "the first has made room");
    }

    #[test]
    fn many_events_are_distinguished() {
        let mut recent = Recent::new(WINDOW_S);
        let mut rng = fastrand::Rng::with_seed(2);
        let admitted = (0..1000).filter(|_| recent.admit(rng.u64(..), 1, 50)).count();
        assert!(admitted >= 998, "{admitted} of 1000");
    }

    #[test]
    fn a_limit_of_zero_admits_nothing() {
        assert!(!Recent::new(WINDOW_S).admit(1, 0, 0));
        assert!(!Recent::new(0).admit(1, 0, u32::MAX));
    }
}
