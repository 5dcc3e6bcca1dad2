//! A store that continues in the memory of another one is that store, in every reply and for the rest of its life.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use shoal_base::source::{HoldingLimits, Holdings};
use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Announced, Family, ImageError, MemoryFile, Rejection, Settings, Store, Swarms};

const TIMEOUT_S: u32 = 1800;
const SHARDS: usize = 4;

fn settings() -> Settings {
    let limits = HoldingLimits { peers_max: 1 << 20, torrents_max: 1 << 20 };
    Settings {
        memory_bytes_max: 1 << 28,
        peer_timeout_s: TIMEOUT_S,
        peers_per_source_max: 64,
        swarm_share_max: 0,
        holdings: Holdings::new(limits, [5, 6]).map(Arc::new),
        hash_key: [1, 2, 3, 4],
    }
}

/// Returns a store over a new file, or over that of an `earlier` one.
fn in_file(settings: &Settings, earlier: Option<&Store>) -> Store {
    let file = match earlier {
        Some(store) => store.freeze(|file, _| copy_of(file)).unwrap(),
        None => MemoryFile::create().unwrap(),
    };
    let store = Store::in_file(settings, SHARDS, file).unwrap();
    store.retain_completed(1000, 24);
    store
}

fn copy_of(file: &MemoryFile) -> MemoryFile {
    OwnedFd::from(std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap())).into()
}

/// Lets a new store continue with the memory and the image of this one.
fn resumed(store: Store, settings: &Settings) -> Result<Store, ImageError> {
    let mut next = in_file(settings, Some(&store));
    let image = store.freeze(|_, image| image.to_vec()).unwrap();
    next.resume(&image)?;
    assert_eq!(next.retained(), store.retained());
    // It must not return its pages to the file.
    std::mem::forget(store);
    Ok(next)
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

/// Random announces: many small swarms, and few large ones.
struct Traffic {
    rng: fastrand::Rng,
    now_s: u32,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), now_s: 1_000_000 }
    }

    /// Applies some announces to all stores, and demands equal replies.
    fn apply(&mut self, announces: u32, stores: &[&Store]) {
        for number in 0..announces {
            let torrent = if self.rng.bool() { self.rng.u32(..20) } else { self.rng.u32(..4000) };
            let action = match self.rng.u32(..10) {
                0 => Action::Stop,
                1 | 2 => Action::Complete,
                3..6 => Action::Seed,
                _ => Action::Leech,
            };
            let (peer, seed, v6) = (self.rng.u32(..20_000), self.rng.u64(..), self.rng.u32(..4) == 0);
            let [_, high, middle, low] = peer.to_be_bytes();
            let mut six = [0x20; 18];
            six[2..6].copy_from_slice(&peer.to_be_bytes());
            let replies: Vec<_> = stores
                .iter()
                .map(|store| {
                    let (hash, now_s) = (info_hash(torrent), self.now_s);
                    if v6 {
                        let announce = Announce { peer: PeerV6(six), action, peers_wanted: 30 };
                        reply(store, &hash, &announce, now_s, seed)
                    } else {
                        let peer = PeerV4([10, high, middle, low, 0x1a, 0xe1]);
                        reply(store, &hash, &Announce { peer, action, peers_wanted: 30 }, now_s, seed)
                    }
                })
                .collect();
            assert!(replies.windows(2).all(|pair| pair[0] == pair[1]), "announce {number}");
            if number % 64 == 0 {
                self.now_s += self.rng.u32(..4);
                for store in stores {
                    store.expire_in(SHARDS, self.now_s, 4096);
                }
            }
        }
    }
}

type Reply = (Result<Announced, Rejection>, Vec<u8>);

/// A family, with its swarms in a store.
trait InStore: Family {
    fn swarms(store: &Store) -> &Swarms<Self>;
}

impl InStore for PeerV4 {
    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v4
    }
}

impl InStore for PeerV6 {
    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v6
    }
}

fn reply<P: InStore>(store: &Store, hash: &InfoHash, announce: &Announce<P>, now_s: u32, seed: u64) -> Reply {
    let (swarms, mut out) = (P::swarms(store), vec![0; 1000]);
    let mut rng = fastrand::Rng::with_seed(seed);
    let announced = swarms.announce(&swarms.locate(hash), announce, now_s, &mut rng, &mut out);
    (announced, out)
}

#[test]
fn a_resumed_store_replies_as_one_that_was_never_interrupted() {
    let mut traffic = Traffic::new(3);
    let uninterrupted = Store::with_shards(&settings(), SHARDS).unwrap();
    uninterrupted.retain_completed(1000, 24);
    let mut store = in_file(&settings(), None);
    for _ in 0..4 {
        traffic.apply(60_000, &[&uninterrupted, &store]);
        store = resumed(store, &settings()).unwrap();
        assert_eq!(store.totals(), uninterrupted.totals());
        store.make_ready();
        while store.trim() {}
    }
    traffic.apply(60_000, &[&uninterrupted, &store]);
}

#[test]
fn a_store_with_other_settings_is_not_resumed() {
    let store = in_file(&settings(), None);
    Traffic::new(4).apply(5_000, &[&store]);
    let refusal = |other: &Settings, shards: usize| {
        let file = store.freeze(|file, _| copy_of(file)).unwrap();
        let mut next = Store::in_file(other, shards, file).unwrap();
        store.freeze(|_, image| next.resume(image).unwrap_err().to_string()).unwrap()
    };
    let other_key = Settings { hash_key: [1, 2, 3, 5], ..settings() };
    assert_eq!(refusal(&other_key, SHARDS), "the secret of the store differs");
    let other_timeout = Settings { peer_timeout_s: TIMEOUT_S + 1, ..settings() };
    assert_eq!(refusal(&other_timeout, SHARDS), "announce.peer_timeout_s differs");
    let other_limit = Settings { peers_per_source_max: 8, ..settings() };
    assert_eq!(refusal(&other_limit, SHARDS), "announce.peers_per_address_max differs");
    let unlimited = Settings { holdings: None, ..settings() };
    assert_eq!(refusal(&unlimited, SHARDS), "the section limits, or memory.max, differs");
    assert!(refusal(&settings(), 2 * SHARDS).starts_with("the number of shards"));
    let less_memory = Settings { memory_bytes_max: 1 << 16, ..settings() };
    assert!(refusal(&less_memory, SHARDS).contains("memory.max"));
}

#[test]
fn a_damaged_image_is_refused() {
    let store = in_file(&settings(), None);
    Traffic::new(5).apply(5_000, &[&store]);
    let image = store.freeze(|_, image| image.to_vec()).unwrap();
    let mut rng = fastrand::Rng::with_seed(6);
    for _ in 0..20 {
        let mut damaged = image.clone();
        if rng.bool() {
            damaged.truncate(rng.usize(..image.len()));
        } else {
            damaged[rng.usize(..image.len())] ^= 1 << rng.u8(..8);
        }
        let mut next = in_file(&settings(), Some(&store));
        assert!(matches!(next.resume(&damaged), Err(ImageError::Damaged)));
        std::mem::forget(next);
    }
}

#[test]
fn private_memory_has_no_image() {
    let store = Store::with_shards(&settings(), SHARDS).unwrap();
    assert!(store.freeze(|_, _| ()).is_none());
}

/// An image is only read by a program with the same layout. A change of the encoding that leaves the version as it is would
/// make a new program misread the memory of an old one.
#[test]
fn the_layout_of_this_version_is_known() {
    let store = in_file(&settings(), None);
    Traffic::new(7).apply(20_000, &[&store]);
    let checksum = store.freeze(|_, image| image[..4].to_vec()).unwrap();
    assert_eq!(
        u32::from_le_bytes(checksum.try_into().unwrap()),
        768_734_022,
        "if the layout of the store or of its image has changed, increment `LAYOUT` in image.rs and update this number"
    );
}
