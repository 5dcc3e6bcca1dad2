//! The peers and torrents that each source holds in all swarms, over all protocols together, and how many it may hold.
//!
//! These are counts of stored peers, not of recent announces: a peer is added when it joins a swarm and subtracted when
//! it leaves, stops announcing or is removed. Each of the two limits has a [`Sketch`] of a fixed size. A source has a
//! limit on its IPv4 address or its IPv6 /64, and a wider one on its /48. Still wider networks have none, see
//! [`Width`].
//!
//! A count in a sketch is never too low. Other sources add to it about the number of all entries divided by the number
//! of counters of a row. Each source may hold this average in addition to its limit, so that many other sources that
//! each hold little do not make a limit stricter. The error of a limit thus favours the source: with 20 million peers,
//! it may hold some twenty above the limit. The error is against it only if each of its four counters belongs to a
//! source that holds as much as its whole limit. Among a thousand such sources, the probability of that is 10⁻¹².
//!
//! Two threads may each admit the last peer of the same source, so it may exceed its limit by the number of threads.
//!
//! Estimates that decay were the alternative. They need a window of the timeout, forget peers that a source keeps, and
//! count a client twice if it leaves and returns.
//!
//! The store and the relay share one pair of sketches. The store searches a swarm for other peers of a source to find
//! out whether a torrent is new to it. The relay does not search: each of its peers counts as a torrent.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::source::networks::{Networks, Source, SourceHasher};
use crate::source::sketch::Sketch;
use crate::source::width::Width;

/// Largest and smallest number of counters of a row, as powers of two.
const COUNTERS_BITS_MAX: u32 = 20;
const COUNTERS_BITS_MIN: u32 = 15;

/// How much one source may hold. Zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldingLimits {
    /// Maximum number of peers in all swarms.
    pub peers_max: u32,
    /// Maximum number of swarms in which it has peers.
    pub torrents_max: u32,
}

/// The limit of a source that a new peer would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Excess {
    /// The number of its peers in the swarm.
    PeersInSwarm,
    /// Its share of the peers of the swarm.
    ShareOfSwarm,
    /// The number of its peers in all swarms.
    Peers,
    /// The number of its torrents.
    Torrents,
}

/// The peers and torrents of all sources. Shared between threads: all methods take `&self`.
#[derive(Debug)]
pub struct Holdings {
    hasher: SourceHasher,
    peers: Option<Held>,
    torrents: Option<Held>,
}

/// One of the two counts, and its limit.
#[derive(Debug)]
struct Held {
    max: u64,
    sketch: Sketch,
    /// The sum of all counts.
    total: AtomicU64,
}

impl HoldingLimits {
    /// Returns the memory of the counts in a process that may take `memory_bytes_max`, whatever the number of sources: at most
    /// 16 MiB for each limit, and 512 KiB or a 32nd of the process if that is less. With smaller counts, a source may exceed
    /// its limit by more.
    pub const fn bytes(self, memory_bytes_max: u64) -> usize {
        let limits = (self.peers_max > 0) as usize + (self.torrents_max > 0) as usize;
        limits * Sketch::bytes(counters_bits(memory_bytes_max))
    }
}

/// Returns the number of counters of a row in a process that may take so much memory, as a power of two.
const fn counters_bits(memory_bytes_max: u64) -> u32 {
    const PART: u64 = 32;
    let mut bits = COUNTERS_BITS_MAX;
    while bits > COUNTERS_BITS_MIN && Sketch::bytes(bits) as u64 > memory_bytes_max / PART {
        bits -= 1;
    }
    bits
}

impl Holdings {
    /// Creates counts of zero, under a secret. Returns `None` if nothing is limited.
    pub fn new(limits: HoldingLimits, secret: [u64; 2]) -> Option<Self> {
        Self::within(limits, u64::MAX, secret)
    }

    /// Does the same in a process that may take `memory_bytes_max`.
    pub fn within(limits: HoldingLimits, memory_bytes_max: u64, secret: [u64; 2]) -> Option<Self> {
        let bits = counters_bits(memory_bytes_max);
        let held = |max: u32| {
            (max > 0).then(|| Held {
                max: max.into(),
                sketch: Sketch::with_counters(bits),
                total: AtomicU64::new(0),
            })
        };
        let HoldingLimits { peers_max, torrents_max } = limits;
        let (peers, torrents) = (held(peers_max), held(torrents_max));
        let is_limited = peers.is_some() || torrents.is_some();
        is_limited.then(|| Self { hasher: SourceHasher::new(secret), peers, torrents })
    }

    /// Returns all counts, for [`set_words`](Self::set_words) in another process.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.held().flat_map(|held| held.sketch.words())
    }

    /// Replaces all counts by those of another instance with the same secret and the same kinds of limits.
    pub fn set_words(&self, words: impl IntoIterator<Item = u32>) {
        let mut words = words.into_iter();
        for held in self.held() {
            held.sketch.set_words(&mut words);
            held.total.store(held.sketch.total(), Ordering::Relaxed);
        }
    }

    fn held(&self) -> impl Iterator<Item = &Held> {
        self.peers.iter().chain(&self.torrents)
    }

    /// Returns the hasher of the sources that the other methods take.
    pub const fn hasher(&self) -> &SourceHasher {
        &self.hasher
    }

    /// Returns whether torrents are counted.
    pub const fn counts_torrents(&self) -> bool {
        self.torrents.is_some()
    }

    /// Returns the numbers of peers and torrents that are counted for the address or /64 of a source; zero if not
    /// limited.
    pub fn count(&self, source: Source) -> (u32, u32) {
        let count =
            |held: &Option<Held>| held.as_ref().map_or(0, |held| held.sketch.count(source.network_hash()));
        (count(&self.peers), count(&self.torrents))
    }

    /// Decides whether a source may have one more peer. The networks in `new` have no peer in the swarm yet, so the
    /// torrent is new to them. The error is the limit that it would exceed.
    pub fn admit(&self, source: Source, new: Networks) -> Result<(), Excess> {
        if self.peers.as_ref().is_some_and(|peers| peers.is_full(source, Networks::ALL)) {
            return Err(Excess::Peers);
        }
        if self.torrents.as_ref().is_some_and(|torrents| torrents.is_full(source, new)) {
            return Err(Excess::Torrents);
        }
        Ok(())
    }

    /// Counts a peer that was added.
    pub fn add_peer(&self, source: Source) {
        if let Some(peers) = &self.peers {
            peers.add(source, Networks::ALL);
        }
    }

    /// Stops counting a peer that was removed.
    pub fn remove_peer(&self, source: Source) {
        if let Some(peers) = &self.peers {
            peers.remove(source, Networks::ALL);
        }
    }

    /// Counts a torrent for the networks of the source to which it is new.
    pub fn add_torrent(&self, source: Source, new: Networks) {
        if let Some(torrents) = &self.torrents {
            torrents.add(source, new);
        }
    }

    /// Stops counting a torrent for the networks of the source that no longer have a peer in it.
    pub fn remove_torrent(&self, source: Source, gone: Networks) {
        if let Some(torrents) = &self.torrents {
            torrents.remove(source, gone);
        }
    }
}

impl Held {
    fn is_full(&self, source: Source, networks: Networks) -> bool {
        let others = self.total.load(Ordering::Relaxed) / self.sketch.width() as u64;
        let mut hashes = hashes(source, networks);
        hashes.any(|(hash, shares)| u64::from(self.sketch.count(hash)) >= self.max * shares + others)
    }

    fn add(&self, source: Source, networks: Networks) {
        for (hash, _) in hashes(source, networks) {
            self.sketch.add(hash);
            self.total.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remove(&self, source: Source, networks: Networks) {
        for (hash, _) in hashes(source, networks) {
            self.sketch.remove(hash);
            self.total.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Returns the hashes of these networks of a source, each with its multiple of the limit.
fn hashes(source: Source, networks: Networks) -> impl Iterator<Item = (u64, u64)> {
    let address = networks.address.then(|| (source.network_hash(), 1));
    let site = if networks.site { source.site_hash() } else { None };
    address.into_iter().chain(site.map(|hash| (hash, Width::Site.shares().into())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn holdings(peers_max: u32, torrents_max: u32) -> Holdings {
        Holdings::new(HoldingLimits { peers_max, torrents_max }, [1, 2]).unwrap()
    }

    fn source(holdings: &Holdings, ip: &str) -> Source {
        holdings.hasher().source(ip.parse().unwrap())
    }

    /// Returns how many peers these addresses get, up to 1000, each in a torrent of its own.
    fn admitted(holdings: &Holdings, ip: impl Fn(u32) -> String) -> u32 {
        let mut admitted = 0;
        for number in 0..1000 {
            let source = source(holdings, &ip(number));
            if holdings.admit(source, Networks::ALL).is_ok() {
                holdings.add_peer(source);
                holdings.add_torrent(source, Networks::ALL);
                admitted += 1;
            }
        }
        admitted
    }

    #[test]
    fn nothing_is_counted_without_limits() {
        assert!(Holdings::new(HoldingLimits::default(), [1, 2]).is_none());
        assert_eq!(HoldingLimits::default().bytes(u64::MAX), 0);
        let both = HoldingLimits { peers_max: 1, torrents_max: 1 };
        assert_eq!([u64::MAX, 512 << 20, 64 << 20, 0].map(|max| both.bytes(max) >> 20), [32, 32, 4, 1]);
    }

    #[test]
    fn a_source_is_an_address_or_a_network() {
        for (peers_max, torrents_max) in [(10, 0), (0, 10)] {
            let holdings = holdings(peers_max, torrents_max);
            assert_eq!(admitted(&holdings, |_| "192.0.2.1".to_owned()), 10);
            assert_eq!(admitted(&holdings, |number| format!("198.51.100.{}", number % 250)), 1000);
            assert_eq!(admitted(&holdings, |number| format!("2001:db8::{number:x}")), 10, "a /64");
            assert_eq!(admitted(&holdings, |number| format!("2001:db8:1:{number:x}::")), 80, "a /48");
        }
    }

    #[test]
    fn another_peer_of_a_torrent_is_no_other_torrent() {
        let holdings = holdings(0, 2);
        let source = source(&holdings, "192.0.2.1");
        (0..2).for_each(|_| holdings.add_torrent(source, Networks::ALL));
        assert_eq!(holdings.admit(source, Networks::ALL), Err(Excess::Torrents));
        assert_eq!(holdings.admit(source, Networks::default()), Ok(()));
        holdings.remove_torrent(source, Networks::ALL);
        assert_eq!(holdings.admit(source, Networks::ALL), Ok(()));
    }

    #[test]
    fn a_flood_of_sources_makes_no_limit_stricter() {
        let (holdings, mut rng) = (holdings(20, 0), fastrand::Rng::with_seed(1));
        // Eleven million sources with a peer each, and some that hold all they may.
        for _ in 0..11_000_000 {
            holdings.add_peer(Source::of_hash(rng.u32(..)));
        }
        for _ in 0..1000 {
            let greedy = Source::of_hash(rng.u32(..));
            (0..20).for_each(|_| holdings.add_peer(greedy));
        }
        let mut harmed = 0;
        for _ in 0..20_000 {
            let honest = Source::of_hash(rng.u32(..));
            for _ in 0..10 {
                harmed += u32::from(holdings.admit(honest, Networks::ALL).is_err());
                holdings.add_peer(honest);
            }
            (0..10).for_each(|_| holdings.remove_peer(honest));
        }
        assert_eq!(harmed, 0);
        // The error is in favour of a source, and no more than the average of a counter.
        let one = Source::of_hash(7);
        let mut held = 0;
        while holdings.admit(one, Networks::ALL).is_ok() {
            holdings.add_peer(one);
            held += 1;
        }
        assert!((20..=20 + 11).contains(&held), "{held}");
    }

    #[test]
    fn counts_follow_any_changes() {
        let (holdings, mut rng) = (holdings(50, 50), fastrand::Rng::with_seed(2));
        let mut naive: BTreeMap<u32, u32> = BTreeMap::new();
        for _ in 0..200_000 {
            let number = rng.u32(..200);
            let (source, held) = (Source::of_hash(number << 8), naive.entry(number).or_default());
            if rng.bool() {
                let admitted = holdings.admit(source, Networks::ALL);
                assert_eq!(admitted.is_ok(), *held < 50, "few enough sources that none shares all counters");
                if admitted.is_ok() {
                    holdings.add_peer(source);
                    holdings.add_torrent(source, Networks::ALL);
                    *held += 1;
                }
            } else if *held > 0 {
                holdings.remove_peer(source);
                holdings.remove_torrent(source, Networks::ALL);
                *held -= 1;
            }
        }
        for (number, held) in naive {
            let source = Source::of_hash(number << 8);
            (0..held).for_each(|_| holdings.remove_peer(source));
        }
        assert_eq!(holdings.peers.as_ref().unwrap().total.load(Ordering::Relaxed), 0);
    }
}
