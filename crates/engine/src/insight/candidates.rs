//! The torrents that may have the largest swarms.
//!
//! Large swarms announce often, so they are soon among the samples, and each sample carries the swarm's number of
//! peers. The torrents with the most peers stay in a table of a fixed size. Its figures are old, so a caller that
//! needs the largest swarms looks up the current counts of all candidates. Walking over the store would be exact, but
//! would read every torrent to find a few.
//!
//! There are 1,024 candidates. Looking up their counts takes about a millisecond, with one lock per look-up, and the
//! result is retained for a second. At the largest distance between samples, one interval misses a swarm of 2,000
//! peers with a probability of e⁻³¹, and a swarm of 64 peers with 1/e. So the largest swarms of a busy tracker are
//! certain, while some swarms of a few dozen peers are missed. The next look-up, at most ten seconds later, drops a
//! candidate that has become small. A hostile client takes a place only with more peers than the candidate that it
//! displaces.

use std::collections::BTreeMap;

use shoal_base::InfoHash;

use crate::insight::sample::Sample;

const CANDIDATES_MAX: usize = 1024;

/// The torrents of the largest swarms among the samples.
#[derive(Debug, Default)]
pub struct Candidates {
    /// The last known number of peers of each.
    peers: BTreeMap<InfoHash, u32>,
    /// A torrent with no more peers than this cannot enter a full table.
    least: u32,
}

impl Candidates {
    /// Evaluates a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.set(sample.info_hash, sample.peers);
    }

    /// Returns all candidates, in no particular order.
    pub fn info_hashes(&self) -> impl Iterator<Item = &InfoHash> {
        self.peers.keys()
    }

    /// Sets the current number of peers of a candidate. To be called from time to time for all of them: otherwise a
    /// swarm that has become small would keep its place.
    pub fn update(&mut self, info_hash: &InfoHash, peers: u32) {
        if peers == 0 {
            self.peers.remove(info_hash);
        } else if let Some(known) = self.peers.get_mut(info_hash) {
            *known = peers;
        }
        // The next torrent that needs a place computes it again.
        self.least = 0;
    }

    fn set(&mut self, info_hash: InfoHash, peers: u32) {
        if let Some(known) = self.peers.get_mut(&info_hash) {
            *known = peers;
            return;
        }
        if self.peers.len() >= CANDIDATES_MAX {
            if peers <= self.least {
                return;
            }
            // A walk over a thousand entries takes some microseconds of the control plane for each sample at worst. A
            // newcomer replaces only a swarm with fewer peers, so hostile clients pay with peers.
            let Some((least, known)) = self.peers.iter().min_by_key(|(_, peers)| **peers) else { return };
            let (least, known) = (*least, *known);
            self.least = known;
            if peers <= known {
                return;
            }
            self.peers.remove(&least);
        }
        self.peers.insert(info_hash, peers);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shoal_base::PeerId;

    use super::*;

    fn info_hash(number: u32) -> InfoHash {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    fn sample(torrent: u32, peers: u32) -> Sample {
        Sample { info_hash: info_hash(torrent), peer_id: PeerId([0; 20]), peers, weight: 1 }
    }

    fn largest(candidates: &Candidates, count: usize) -> Vec<InfoHash> {
        let mut all: Vec<_> = candidates.peers.iter().collect();
        all.sort_unstable_by_key(|(_, peers)| core::cmp::Reverse(**peers));
        all.into_iter().take(count).map(|(info_hash, _)| *info_hash).collect()
    }

    #[test]
    fn a_flood_of_small_swarms_displaces_no_large_one() {
        let mut candidates = Candidates::default();
        (0..1000).for_each(|torrent| candidates.add(&sample(torrent, 100 + torrent)));
        (1000..500_000).for_each(|torrent| candidates.add(&sample(torrent, 1)));
        assert_eq!(candidates.peers.len(), CANDIDATES_MAX);
        let known = (0..1000).filter(|torrent| candidates.peers.contains_key(&info_hash(*torrent))).count();
        assert_eq!(known, 1000);
    }

    #[test]
    fn swarms_that_have_become_small_make_room() {
        let mut candidates = Candidates::default();
        (0..2000).for_each(|torrent| candidates.add(&sample(torrent, 1000)));
        let all: Vec<_> = candidates.info_hashes().copied().collect();
        for (number, info_hash) in (0..).zip(&all) {
            candidates.update(info_hash, number % 2);
        }
        assert_eq!(candidates.peers.len(), CANDIDATES_MAX / 2);
        (10_000..11_000).for_each(|torrent| candidates.add(&sample(torrent, 5)));
        assert_eq!(candidates.peers.len(), CANDIDATES_MAX);
        assert_eq!(candidates.peers.values().filter(|peers| **peers == 5).count(), 1000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        /// Every peer announces once, in any order, and one announce in 64 is a sample, on average. The ten largest of
        /// 30,000 swarms are candidates, and the largest ones among them.
        #[test]
        fn the_largest_swarms_are_found(seed: u64) {
            const TORRENTS: u32 = 30_000;
            let mut rng = fastrand::Rng::with_seed(seed);
            let size = |torrent: u32| 20_000 / (torrent + 1) + 1;
            let mut announces: Vec<u32> =
                (0..TORRENTS).flat_map(|torrent| (0..size(torrent)).map(move |_| torrent)).collect();
            rng.shuffle(&mut announces);
            let mut candidates = Candidates::default();
            let mut left = 0;
            for torrent in announces {
                if left == 0 {
                    candidates.add(&sample(torrent, size(torrent)));
                    left = rng.u32(1..=127);
                }
                left -= 1;
            }
            // A swarm of 2,000 peers is missed with a probability of e^-31.
            prop_assert_eq!(largest(&candidates, 10), (0..10).map(info_hash).collect::<Vec<_>>());
        }
    }
}
