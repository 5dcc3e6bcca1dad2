//! Everything that is exported returns: into a store with other keys, another number of shards, and another timeout.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{OwnPart, export};
use shoal_base::source::{HoldingLimits, Holdings};
use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Ages, Announce, PrivateNetwork, Restored, Settings, Store, SwarmSet};

const TIMEOUT_S: u32 = 1800;
const START_S: u32 = 1_000_000;

fn settings(hash_key: [u64; 4]) -> Settings {
    Settings { peers_per_source_max: 64, ..Settings::new(1 << 28, TIMEOUT_S, hash_key) }
}

fn store(hash_key: [u64; 4], shards: usize) -> Store {
    Store::with_shards(&settings(hash_key), shards).unwrap()
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn peer_v4(number: u32) -> PeerV4 {
    let [_, high, middle, low] = number.to_be_bytes();
    PeerV4([10, high, middle, low, 0x1a, 0xe1])
}

fn peer_v6(number: u32) -> PeerV6 {
    let mut bytes = [0x20; 18];
    bytes[2..6].copy_from_slice(&number.to_be_bytes());
    PeerV6(bytes)
}

fn announce(store: &Store, torrent: u32, peer: u32, v6: bool, action: Action, now_s: u32) {
    let (place, rng) = (store.v4.locate(&info_hash(torrent)), &mut fastrand::Rng::with_seed(peer.into()));
    if v6 {
        let announce = Announce { peer: peer_v6(peer), action, peers_wanted: 0 };
        store.v6.announce(&place, &announce, now_s, rng, &mut []).unwrap();
    } else {
        let announce = Announce { peer: peer_v4(peer), action, peers_wanted: 0 };
        store.v4.announce(&place, &announce, now_s, rng, &mut []).unwrap();
    }
}

fn restore(store: &Store, parts: &[OwnPart], ages: &Ages, now_s: u32) -> Restored {
    let mut restored = Restored::default();
    for set in SwarmSet::ALL {
        let parts: Vec<_> = parts.iter().filter(|part| part.set == set).map(OwnPart::part).collect();
        store.reserve(set, parts.len() as u64);
        restored += store.restore(set, &parts, ages, now_s);
    }
    restored
}

/// The counts and the peers of each torrent, with their roles and ages.
type Content = BTreeMap<u32, ([Counts; 2], BTreeMap<SocketAddr, (bool, u32)>)>;

fn content(store: &Store, torrents: u32, now_s: u32) -> Content {
    let torrent = |number| {
        let peers = store.peers(&info_hash(number), 100_000, now_s);
        let peers = peers.into_iter().map(|peer| (peer.address, (peer.seeds, peer.age_s))).collect();
        (number, (store.counts(&info_hash(number)), peers))
    };
    (0..torrents).map(torrent).collect()
}

const TORRENTS: u32 = 3000;

/// Fills a store with swarms of all forms, peers of both roles and all ages, and completed downloads.
fn fill(store: &Store) {
    let mut rng = fastrand::Rng::with_seed(3);
    for torrent in 0..TORRENTS {
        let peers = match torrent {
            7 | 8 => 5000,
            _ if torrent % 50 == 0 => rng.u32(100..400),
            _ => rng.u32(0..5),
        };
        for peer in 0..peers {
            let now_s = START_S + rng.u32(0..TIMEOUT_S);
            let v6 = (torrent + peer) % 4 == 0;
            announce(store, torrent, peer, v6, Action::Leech, now_s);
            if peer % 3 == 0 {
                let action = if peer % 2 == 0 { Action::Complete } else { Action::Seed };
                announce(store, torrent, peer, v6, action, now_s);
            }
        }
    }
}

#[test]
fn everything_returns_to_a_store_with_other_keys_and_shards() {
    let from = store([1, 2, 3, 4], 8);
    fill(&from);
    let end_s = START_S + TIMEOUT_S;
    let parts = export(&from, end_s);
    // The clock of the other process has another origin, and some time has passed.
    let (now_s, elapsed_s) = (500, 90);
    for shards in [1, 8, 64] {
        let to = store([5, 6, 7, 8], shards);
        let restored = restore(&to, &parts, &Ages::new(TIMEOUT_S, TIMEOUT_S, elapsed_s), now_s);
        assert_eq!(restored.refused, 0);
        assert_eq!(u64::try_from(parts.iter().map(|part| part.ages.len()).sum::<usize>()).unwrap(), {
            restored.peers + restored.overdue
        });
        let (before, after) = (content(&from, TORRENTS, end_s), content(&to, TORRENTS, now_s));
        for (torrent, (counts, peers)) in &before {
            let (restored_counts, restored_peers) = &after[torrent];
            let alive = peers.iter().filter(|(_, (_, age_s))| age_s + elapsed_s <= TIMEOUT_S);
            let alive: BTreeMap<_, _> = alive.collect();
            assert_eq!(restored_peers.len(), alive.len(), "{torrent}");
            for (address, (seeds, age_s)) in alive {
                let (restored_seeds, restored_age_s) = restored_peers[address];
                assert_eq!(restored_seeds, *seeds, "{torrent}, {address}");
                let older_s = restored_age_s.abs_diff(age_s + elapsed_s);
                assert!(older_s <= TIMEOUT_S / 64 + 1, "{torrent}, {address}: {older_s} s off");
            }
            for (counts, restored_counts) in counts.iter().zip(restored_counts) {
                if restored_counts.seeders + restored_counts.leechers > 0 {
                    assert_eq!(restored_counts.completed, counts.completed, "{torrent}");
                }
            }
        }
        let totals = to.totals();
        let peers: usize = after.values().map(|(_, peers)| peers.len()).sum();
        assert_eq!(
            totals[0].seeders + totals[0].leechers + totals[1].seeders + totals[1].leechers,
            peers as u64
        );
    }
}

#[test]
fn a_shorter_timeout_drops_those_that_are_too_old() {
    let from = store([1, 2, 3, 4], 8);
    announce(&from, 1, 1, false, Action::Leech, START_S);
    announce(&from, 1, 2, false, Action::Seed, START_S + 600);
    let parts = export(&from, START_S + 700);
    let to = Store::with_shards(&Settings { peer_timeout_s: 300, ..settings([5; 4]) }, 8).unwrap();
    let restored = restore(&to, &parts, &Ages::new(TIMEOUT_S, 300, 100), 2000);
    assert_eq!(restored, Restored { peers: 1, overdue: 1, ..Restored::default() });
    let peers = to.peers(&info_hash(1), 10, 2000);
    assert_eq!(peers.len(), 1);
    assert!(peers[0].seeds && peers[0].age_s.abs_diff(200) <= 29 + 5, "{peers:?}");
}

#[test]
fn restored_peers_expire_when_they_would_have() {
    let from = store([1, 2, 3, 4], 8);
    announce(&from, 1, 1, false, Action::Leech, START_S);
    announce(&from, 1, 2, false, Action::Leech, START_S + 1000);
    let parts = export(&from, START_S + 1000);
    let (to, mut now_s) = (store([5; 4], 8), 50_000);
    restore(&to, &parts, &Ages::new(TIMEOUT_S, TIMEOUT_S, 0), now_s);
    let mut counts = Vec::new();
    for _ in 0..2 * TIMEOUT_S {
        now_s += 1;
        to.expire_in(8, now_s, 1000);
        counts.push(to.counts(&info_hash(1))[0].leechers);
    }
    assert_eq!(counts[700], 2);
    assert_eq!(counts[1500], 1);
    assert_eq!(counts.last(), Some(&0));
}

#[test]
fn a_swarm_keeps_its_age() {
    let from = store([1, 2, 3, 4], 8);
    announce(&from, 1, 1, false, Action::Leech, START_S);
    let parts = export(&from, START_S + 1700);
    assert!(parts[0].age_s.abs_diff(1700) <= 225, "{}", parts[0].age_s);
    let to = store([5; 4], 8);
    restore(&to, &parts, &Ages::new(TIMEOUT_S, TIMEOUT_S, 80), 100);
    let [Some(age_s), None] = to.ages_s(&info_hash(1), 100) else { panic!("it is a swarm of IPv4") };
    assert!(age_s.abs_diff(1780) <= 450, "{age_s}");
}

#[test]
fn a_counted_download_is_not_counted_again() {
    let from = store([1, 2, 3, 4], 8);
    for _ in 0..3 {
        announce(&from, 1, 1, false, Action::Complete, START_S);
    }
    for peer in 1000..1300 {
        announce(&from, 2, peer, false, Action::Complete, START_S);
    }
    let to = store([5; 4], 8);
    restore(&to, &export(&from, START_S), &Ages::new(TIMEOUT_S, TIMEOUT_S, 0), START_S);
    announce(&to, 1, 1, false, Action::Complete, START_S + 1);
    assert_eq!(to.counts(&info_hash(1))[0], Counts { seeders: 1, leechers: 0, completed: 1 });
    assert_eq!(to.counts(&info_hash(2))[0].completed, 300, "more than a line of the table can hold");
    announce(&to, 2, 1, false, Action::Complete, START_S + 1);
    assert_eq!(to.counts(&info_hash(2))[0].completed, 301);
}

#[test]
fn the_torrents_and_peers_of_sources_are_counted_as_before() {
    let limits = HoldingLimits { peers_max: 1000, torrents_max: 1000 };
    let of = |hash_key| {
        let holdings = Arc::new(Holdings::new(limits, [3, 4]).unwrap());
        let settings = Settings { holdings: Some(Arc::clone(&holdings)), ..settings(hash_key) };
        (Store::with_shards(&settings, 8).unwrap(), holdings)
    };
    let (from, from_holdings) = of([1; 4]);
    for torrent in 0..40 {
        for peer in 0..torrent % 7 {
            announce(&from, torrent, peer * 0x0100_0000, false, Action::Leech, START_S);
            announce(&from, torrent, peer, true, Action::Seed, START_S);
        }
    }
    let (to, to_holdings) = of([2; 4]);
    let restored = restore(&to, &export(&from, START_S), &Ages::new(TIMEOUT_S, TIMEOUT_S, 0), START_S);
    assert_eq!(restored.refused, 0);
    for peer in 0..7 {
        for address in [
            std::net::IpAddr::from(*peer_v4(peer).addr().ip()),
            std::net::IpAddr::from(*peer_v6(peer).addr().ip()),
        ] {
            let count = |holdings: &Holdings| holdings.count(holdings.hasher().source(address));
            assert_eq!(count(&to_holdings), count(&from_holdings), "{address}");
        }
    }
}

#[test]
fn private_networks_return_if_the_keys_are_the_same() {
    let (from, to) = (store([1, 2, 3, 4], 8), store([1, 2, 3, 4], 32));
    let rng = &mut fastrand::Rng::with_seed(1);
    let announce = Announce { peer: peer_v4(1), action: Action::Leech, peers_wanted: 0 };
    for number in 0..100 {
        from.v4.announce(&from.v4.locate(&info_hash(number)), &announce, START_S, rng, &mut []).unwrap();
        let place = from.private.locate(&info_hash(number), PrivateNetwork::Ten);
        from.private.v4.announce(&place, &announce, START_S, rng, &mut []).unwrap();
    }
    restore(&to, &export(&from, START_S), &Ages::new(TIMEOUT_S, TIMEOUT_S, 0), START_S);
    for number in 0..100 {
        assert_eq!(to.v4.scrape(&to.v4.locate(&info_hash(number))).leechers, 1);
        let place = to.private.locate(&info_hash(number), PrivateNetwork::Ten);
        assert_eq!(to.private.v4.scrape(&place).leechers, 1);
        let place = to.private.locate(&info_hash(number), PrivateNetwork::Shared);
        assert_eq!(to.private.v4.scrape(&place).leechers, 0);
    }
}

#[test]
fn a_store_that_is_too_small_takes_as_much_as_it_may() {
    let from = store([1, 2, 3, 4], 8);
    for torrent in 0..200_000 {
        announce(&from, torrent, torrent, false, Action::Leech, START_S);
    }
    let settings = Settings { memory_bytes_max: 4 << 20, ..settings([1; 4]) };
    let to = Store::with_shards(&settings, 8).unwrap();
    let restored = restore(&to, &export(&from, START_S), &Ages::new(TIMEOUT_S, TIMEOUT_S, 0), START_S);
    assert!(restored.refused > 0 && restored.peers > 50_000, "{restored:?}");
    assert_eq!(restored.refused + restored.peers, 200_000);
    assert_eq!(to.totals()[0].leechers, restored.peers);
    assert!(to.totals()[0].bytes <= 4 << 20);
}

/// Torrents and peers that stay are exported once, while others come and go so that tables split and merge.
#[test]
fn an_export_amid_changes_has_every_peer_that_stays() {
    const STAYING: u32 = 20_000;
    const LARGE: u32 = 1_000_000;
    let store = store([1, 2, 3, 4], 4);
    (0..STAYING).for_each(|torrent| announce(&store, torrent, torrent, false, Action::Leech, START_S));
    (0..STAYING).for_each(|peer| announce(&store, LARGE, peer, false, Action::Seed, START_S));
    let ended = AtomicBool::new(false);
    let parts = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                let action = if round % 2 == 0 { Action::Leech } else { Action::Stop };
                for number in 0..STAYING {
                    announce(&store, 2 * LARGE + number, number, false, action, START_S);
                    announce(&store, LARGE, STAYING + number, false, action, START_S);
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        let parts: Vec<_> = (0..20).map(|_| export(&store, START_S)).collect();
        ended.store(true, Ordering::Relaxed);
        parts
    });
    for parts in parts {
        let large: Vec<_> = parts.iter().filter(|part| part.id == info_hash(LARGE)).collect();
        let mut seeders: Vec<_> =
            large.iter().flat_map(|part| part.peers.chunks(6).take(part.seeders)).collect();
        let count = seeders.len();
        seeders.sort_unstable();
        seeders.dedup();
        assert_eq!((seeders.len(), count), (STAYING as usize, STAYING as usize));
        let mut staying: Vec<_> =
            parts.iter().map(|part| part.id).filter(|id| *id < info_hash(STAYING)).collect();
        staying.sort_unstable();
        assert_eq!(staying, (0..STAYING).map(info_hash).collect::<Vec<_>>());
    }
}
