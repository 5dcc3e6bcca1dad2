//! Random torrents and peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Family, Settings, Store, Swarms};

/// A family whose peers can be made from random numbers.
pub(crate) trait Random: Family {
    const NAME: &'static str;
    fn random(rng: &mut fastrand::Rng) -> Self;
    fn from_compact(bytes: &[u8]) -> Self;
    fn swarms(store: &Store) -> &Swarms<Self>;
}

impl Random for PeerV4 {
    const NAME: &'static str = "v4";

    fn random(rng: &mut fastrand::Rng) -> Self {
        let mut bytes = [0; 6];
        rng.fill(&mut bytes);
        Self(bytes)
    }

    fn from_compact(bytes: &[u8]) -> Self {
        Self(bytes.try_into().expect("as many bytes as a peer has"))
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v4
    }
}

impl Random for PeerV6 {
    const NAME: &'static str = "v6";

    fn random(rng: &mut fastrand::Rng) -> Self {
        let mut bytes = [0; 18];
        rng.fill(&mut bytes);
        Self(bytes)
    }

    fn from_compact(bytes: &[u8]) -> Self {
        Self(bytes.try_into().expect("as many bytes as a peer has"))
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v6
    }
}

/// Number of shards of a tracker with one or two workers.
pub(crate) const SHARDS: usize = 8;

/// Creates a store as large as the machine allows, as a tracker with one or two workers would.
pub(crate) fn store() -> Store {
    let settings = Settings {
        peers_per_source_max: 64,
        ..Settings::new(
            16 << 30,
            2700,
            [0x9e37, 0x79b9, 0x7f4a, 0x7c15].map(|key: u64| key.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        )
    };
    Store::with_shards(&settings, SHARDS).expect("address space for 16 GiB")
}

pub(crate) fn info_hash(rng: &mut fastrand::Rng) -> InfoHash {
    let mut bytes = [0; 20];
    rng.fill(&mut bytes);
    InfoHash(bytes)
}

/// Announces without asking for peers.
pub(crate) fn put<P: Random>(
    swarms: &Swarms<P>,
    info_hash: &InfoHash,
    peer: P,
    action: Action,
    rng: &mut fastrand::Rng,
) {
    let announce = Announce { peer, action, peers_wanted: 0 };
    let stored = swarms.announce(&swarms.locate(info_hash), &announce, 1000, rng, &mut []);
    assert!(stored.is_ok(), "the store has room");
}

/// Announces a batch as a worker does: first locates and prefetches all, then applies all.
pub(crate) fn put_batch<P: Random>(
    swarms: &Swarms<P>,
    batch: &[(InfoHash, P, Action)],
    rng: &mut fastrand::Rng,
) {
    let mut places = Vec::with_capacity(batch.len());
    places.extend(batch.iter().map(|(info_hash, ..)| swarms.locate(info_hash)));
    places.iter_mut().for_each(|place| swarms.lock(place.shard()).prefetch_swarm(place));
    places.iter_mut().for_each(|place| swarms.lock(place.shard()).prefetch_entry(place));
    places.iter_mut().for_each(|place| _ = swarms.lock(place.shard()).prefetch_found(place));
    let announce = |(_, peer, action): &(InfoHash, P, Action)| Announce {
        peer: *peer,
        action: *action,
        peers_wanted: 0,
    };
    for (place, entry) in places.iter().zip(batch) {
        swarms.lock(place.shard()).prefetch_peers(place, &announce(entry), false, rng.clone());
    }
    for (place, entry) in places.iter().zip(batch) {
        let announce = announce(entry);
        let stored = swarms.announce(place, &announce, 1000, rng, &mut []);
        assert!(stored.is_ok(), "the store has room");
    }
}

/// Runs `work` on a store while another thread keeps memory ready for it, as in the tracker.
pub(crate) fn with_memory_thread<T>(store: &Store, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.make_ready();
                store.trim();
                thread::sleep(Duration::from_millis(2));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Returns the CPU time of this thread so far, which excludes other work of the machine.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let [seconds, nanoseconds] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}
