//! The memory ceiling, and the release of memory after a peak.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Rejection, Settings, Store};

const TIMEOUT_S: u32 = 1800;

fn store(memory_bytes_max: u64) -> Store {
    Store::new(&Settings::new(memory_bytes_max, TIMEOUT_S, [1, 2, 3, 4])).expect("address space")
}

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn peer(number: u32) -> PeerV4 {
    // Each peer has an address of its own, as clients have that fill a store without being greedy.
    let [a, b, c, d] = number.to_be_bytes();
    PeerV4([a, b, c, d, 11, 1])
}

fn announce(store: &Store, torrent: u32, number: u32, action: Action, now_s: u32) -> Result<(), Rejection> {
    let mut rng = fastrand::Rng::with_seed(u64::from(number));
    let announce = Announce { peer: peer(number), action, peers_wanted: 0 };
    store.v4.announce(&store.v4.locate(&info_hash(torrent)), &announce, now_s, &mut rng, &mut []).map(|_| ())
}

#[test]
fn at_the_ceiling_new_swarms_are_refused_and_everything_else_goes_on() {
    let store = store(24 << 20);
    let mut torrents = 0;
    while announce(&store, torrents, torrents, Action::Leech, 1000).is_ok() {
        torrents += 1;
        assert!(torrents < 1_000_000, "the ceiling holds");
    }
    assert!(torrents > 100_000, "24 MiB hold more than {torrents} swarms");
    let totals = store.v4.totals();
    assert!(totals.bytes <= 24 << 20, "{} bytes", totals.bytes);
    for torrent in (0..torrents).step_by(17) {
        announce(&store, torrent, torrent, Action::Complete, 1000).expect("a known peer is always served");
    }
    // Peers still find room in swarms that exist.
    announce(&store, 3, 4_000_000, Action::Leech, 1000)
        .expect("the last thirty-second part is reserved for known swarms");
    let place = store.v4.locate(&info_hash(3));
    assert_eq!(store.v4.scrape(&place).leechers, 2);
    // Once some peers have left, there is room again.
    for torrent in 0..torrents / 4 {
        announce(&store, torrent, torrent, Action::Stop, 1000).unwrap();
    }
    announce(&store, 7_000_000, 1, Action::Leech, 1000).expect("there is room again");
}

#[test]
fn a_full_store_loses_no_peer_whatever_is_done_to_it() {
    let store = store(20 << 20);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut stored = std::collections::BTreeMap::new();
    for _ in 0..1_500_000 {
        let (torrent, number) = (rng.u32(..3), rng.u32(..2_200_000));
        let action = [Action::Leech, Action::Seed, Action::Stop, Action::Seed][rng.usize(..4)];
        match (announce(&store, torrent, number, action, 1000), action) {
            (Ok(()), Action::Stop) => drop(stored.remove(&(torrent, number))),
            (Ok(()), action) => drop(stored.insert((torrent, number), action)),
            (Err(_), _) => assert!(store.v4.totals().bytes > 17 << 20),
        }
    }
    let seeders = stored.values().filter(|&&action| action == Action::Seed).count() as u64;
    let totals = store.v4.totals();
    assert_eq!((totals.seeders, totals.seeders + totals.leechers), (seeders, stored.len() as u64));
    for (torrent, number) in stored.into_keys() {
        announce(&store, torrent, number, Action::Stop, 1000).unwrap();
    }
    assert_eq!(store.v4.totals().seeders + store.v4.totals().leechers, 0);
}

#[test]
fn memory_comes_back_after_a_peak_in_one_swarm() {
    let store = store(1 << 30);
    for number in 0..400_000 {
        announce(&store, 1, number, Action::Leech, 1000).unwrap();
    }
    let peak = store.v4.totals().bytes;
    for number in 0..399_000 {
        announce(&store, 1, number, Action::Stop, 1000).unwrap();
    }
    let after = store.v4.totals().bytes;
    assert!(after < peak / 10, "{peak} bytes at the peak, {after} after");
}

#[test]
fn memory_comes_back_after_all_peers_expire() {
    let store = store(1 << 30);
    for number in 0..800_000 {
        announce(&store, number, number, Action::Seed, 1000).unwrap();
        announce(&store, number % 300, number, Action::Leech, 1000).unwrap();
    }
    let peak = store.v4.totals().bytes;
    let mut now_s = 1000;
    while store.v4.totals().swarms > 0 {
        now_s += 5;
        assert!(now_s < 1000 + 2 * TIMEOUT_S, "all peers expire in time");
        while store.v4.expire(now_s, 256).behind {}
    }
    // The tables settle when a sweep is finished.
    for _ in 0..TIMEOUT_S / 5 {
        now_s += 5;
        while store.v4.expire(now_s, 256).behind {}
    }
    let after = store.v4.totals().bytes;
    assert!(after < peak / 8, "{peak} bytes at the peak, {after} after");
    assert_eq!(store.v4.totals().expired, 1_600_000 - 300);
}

#[test]
fn both_families_share_one_ceiling() {
    let store = store(16 << 20);
    let mut torrents = 0;
    while announce(&store, torrents, torrents, Action::Seed, 0).is_ok() {
        torrents += 1;
    }
    let announce = Announce { peer: PeerV6([1; 18]), action: Action::Seed, peers_wanted: 0 };
    let mut rng = fastrand::Rng::with_seed(1);
    let place = store.v6.locate(&info_hash(1));
    assert_eq!(store.v6.announce(&place, &announce, 0, &mut rng, &mut []), Err(Rejection::Full));
}

/// Lets all peers expire and the tables settle.
fn expire_all(store: &Store, mut now_s: u32) -> u32 {
    for _ in 0..4 * TIMEOUT_S / 5 {
        now_s += 5;
        while store.v4.expire(now_s, 512).behind {}
    }
    now_s
}

#[test]
fn a_full_store_in_which_all_peers_complete_serves_them_and_recovers() {
    // Leechers that become seeders need more memory for a while, which must not use up the memory that shrinking needs.
    let store = store(48 << 20);
    let mut swarms = 0;
    'filling: loop {
        for number in 0..250 {
            if announce(&store, swarms, number, Action::Leech, 1000).is_err() {
                break 'filling;
            }
        }
        swarms += 1;
    }
    for swarm in 0..swarms {
        for number in 0..112 {
            announce(&store, swarm, number, Action::Complete, 1000).expect("a known peer is never refused");
        }
    }
    let now_s = expire_all(&store, 1000);
    let totals = store.v4.totals();
    assert_eq!((totals.swarms, totals.seeders, totals.leechers), (0, 0, 0));
    for number in 0..1000 {
        announce(&store, 1_000_000 + number, 1, Action::Leech, now_s).expect("there is room again");
    }
}

#[test]
fn a_full_store_whose_swarms_lose_most_of_their_peers_has_room_again() {
    let store = store(48 << 20);
    let mut swarms = 0;
    while (0..200).all(|number| announce(&store, swarms, number, Action::Leech, 1000).is_ok()) {
        swarms += 1;
    }
    for swarm in 0..swarms {
        for number in 60..200 {
            announce(&store, swarm, number, Action::Stop, 1000).unwrap();
        }
    }
    announce(&store, 1_000_000, 1, Action::Leech, 1000).expect("there is room again");
}

#[test]
fn memory_of_small_swarms_comes_back_when_most_of_them_are_gone() {
    let store = store(1 << 30);
    for swarm in 0..60_000 {
        for number in 0..20 {
            announce(&store, swarm, number, Action::Leech, 1000).unwrap();
        }
    }
    let peak = store.v4.totals().bytes;
    for swarm in (0..60_000).filter(|swarm| swarm % 10 != 0) {
        for number in 0..20 {
            announce(&store, swarm, number, Action::Stop, 1000).unwrap();
        }
    }
    // A sweep moves the remaining swarms into fewer pages.
    for now_s in (1000..1000 + TIMEOUT_S / 2).step_by(5) {
        while store.v4.expire(now_s, 512).behind {}
    }
    let after = store.v4.totals().bytes;
    assert_eq!(store.v4.totals().swarms, 6000);
    assert!(after < peak * 4 / 10, "{peak} bytes at the peak, {after} after");
}
