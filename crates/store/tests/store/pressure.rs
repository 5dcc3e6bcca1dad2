//! Refusal and early removal of peers when memory becomes short.

use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Family, Rejection, Settings, Store, Swarms};

const TIMEOUT_S: u32 = 2700;
const CEILINGS: [u64; 2] = [8 << 20, 64 << 20];

fn store(memory_bytes_max: u64) -> Store {
    let settings = Settings {
        peers_per_source_max: 64,
        ..Settings::new(memory_bytes_max, TIMEOUT_S, [5, 1 << 60, 7 << 33, 9])
    };
    Store::new(&settings).unwrap()
}

fn info_hash(kind: u8, number: u32) -> InfoHash {
    let mut bytes = [kind; 20];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn announce<P: Family>(
    swarms: &Swarms<P>,
    info_hash: &InfoHash,
    peer: P,
    action: Action,
    now_s: u32,
) -> Result<(), Rejection> {
    let announce = Announce { peer, action, peers_wanted: 0 };
    let mut rng = fastrand::Rng::with_seed(1);
    swarms.announce(&swarms.locate(info_hash), &announce, now_s, &mut rng, &mut []).map(|_| ())
}

/// Returns a peer with an address of its own.
fn honest(number: u32) -> PeerV4 {
    let [a, b, c, d] = number.to_be_bytes();
    PeerV4([a, b, c, d, 0x1a, 0xe1])
}

/// Returns a peer of a /32 of its own.
fn honest_v6(number: u32) -> PeerV6 {
    let [_, b, c, d] = number.to_be_bytes();
    PeerV6([0x20, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x1a, 0xe1])
}

/// Returns a peer of the address with this last byte, at the port that `number` determines.
fn greedy_at(address: u8, number: u32) -> PeerV4 {
    let [.., high, low] = number.to_be_bytes();
    PeerV4([66, 6, 6, address, high, low | 1])
}

fn greedy_v4(number: u32) -> PeerV4 {
    greedy_at(6, number)
}

/// Returns a peer of one /48, in which each has a /64 of its own as long as there are any.
fn greedy_v6(number: u32) -> PeerV6 {
    let [a, b, c, d] = number.to_be_bytes();
    PeerV6([0x2a, 6, 6, 6, 6, 6, c, d, 0, 0, 0, 0, 0, 0, a, b, 0x1a, 0xe1])
}

/// Returns a peer of one /24, whose addresses take turns.
fn block_v4(number: u32) -> PeerV4 {
    let [.., high, low, address] = number.to_be_bytes();
    PeerV4([66, 6, 6, address, high, low | 1])
}

/// Returns a peer of one /32, whose 1,300 /48 take turns.
fn allocation_v6(number: u32) -> PeerV6 {
    let ([.., a, b], [.., c, d]) = ((number % 1300).to_be_bytes(), (number / 1300).to_be_bytes());
    PeerV6([0x2a, 6, 6, 6, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 1, 0x1a, 0xe1])
}

/// Announces torrents of one source, one peer each, until many were refused. Returns the number stored.
fn fill<P: Family>(swarms: &Swarms<P>, kind: u8, peer: impl Fn(u32) -> P, now_s: u32) -> u32 {
    let (mut stored, mut refused) = (0, 0);
    for number in 0.. {
        match announce(swarms, &info_hash(kind, number), peer(number), Action::Leech, now_s) {
            Ok(()) => stored += 1,
            Err(Rejection::OverShare) => refused += 1,
            Err(other) => panic!("one source has filled the store with {stored} torrents: {other:?}"),
        }
        if refused > 20_000 {
            break;
        }
    }
    stored
}

/// Advances time by `seconds`, with the sweeps that a worker would run.
fn pass(store: &Store, now_s: &mut u32, seconds: u32) {
    for _ in 0..seconds.div_ceil(4) {
        *now_s += 4;
        while store.v4.expire(*now_s, 512).behind {}
        while store.v6.expire(*now_s, 512).behind {}
    }
}

fn bytes(store: &Store) -> u64 {
    store.v4.totals().bytes + store.v6.totals().bytes
}

#[test]
fn one_address_cannot_make_a_new_torrent_of_others_be_refused() {
    for ceiling in CEILINGS {
        let store = store(ceiling);
        let stored = fill(&store.v4, 1, greedy_v4, 1000);
        assert!(bytes(&store) < ceiling * 5 / 8, "{} of {ceiling} bytes by {stored} torrents", bytes(&store));
        let torrents = u32::try_from(ceiling / 1000).unwrap();
        for number in 0..torrents {
            announce(&store.v4, &info_hash(2, number), honest(number), Action::Leech, 1000).unwrap();
        }
        // Known torrents continue as well, including those of the greedy source.
        for number in 0..torrents {
            announce(&store.v4, &info_hash(2, number), honest(number), Action::Seed, 1000).unwrap();
            announce(&store.v4, &info_hash(2, number), honest(number + 1), Action::Leech, 1000).unwrap();
        }
        announce(&store.v4, &info_hash(1, 0), greedy_v4(0), Action::Seed, 1000).unwrap();
    }
}

#[test]
fn one_site_cannot_make_a_new_torrent_of_others_be_refused() {
    for ceiling in CEILINGS {
        let store = store(ceiling);
        let stored = fill(&store.v6, 1, greedy_v6, 1000);
        assert!(bytes(&store) < ceiling * 5 / 8, "{} of {ceiling} bytes by {stored} torrents", bytes(&store));
        for number in 0..u32::try_from(ceiling / 1000).unwrap() {
            announce(&store.v4, &info_hash(2, number), honest(number), Action::Leech, 1000).unwrap();
        }
    }
}

#[test]
fn one_block_or_one_allocation_leaves_room_for_new_torrents_of_others() {
    for ceiling in CEILINGS {
        for is_v6 in [false, true] {
            let store = store(ceiling);
            let (stored, bytes_max) = if is_v6 {
                (fill(&store.v6, 1, allocation_v6, 1000), ceiling * 3 / 4)
            } else {
                (fill(&store.v4, 1, block_v4, 1000), ceiling * 2 / 3)
            };
            let used = bytes(&store);
            assert!(
                (ceiling * 2 / 5..bytes_max).contains(&used),
                "{used} of {ceiling} bytes by {stored} torrents"
            );
            for number in 0..u32::try_from(ceiling / 1000).unwrap() {
                announce(&store.v4, &info_hash(2, number), honest(number), Action::Leech, 1000).unwrap();
                announce(&store.v6, &info_hash(2, number), honest_v6(number), Action::Leech, 1000).unwrap();
            }
        }
    }
}

#[test]
fn an_address_and_a_site_together_leave_room_in_each_swarm_and_for_new_ones() {
    for ceiling in CEILINGS {
        let store = store(ceiling);
        fill(&store.v4, 1, greedy_v4, 1000);
        fill(&store.v6, 1, greedy_v6, 1000);
        fill(&store.v4, 3, |number| greedy_at(7, number), 1000);
        for number in 0..u32::try_from(ceiling / 1000).unwrap() {
            announce(&store.v4, &info_hash(2, number), honest(number), Action::Leech, 1000).unwrap();
        }
    }
}

#[test]
fn others_can_use_all_of_the_store_since_the_greedy_are_forgotten() {
    for ceiling in CEILINGS {
        let store = store(ceiling);
        let mut now_s = 1000;
        let greedy = fill(&store.v4, 1, greedy_v4, now_s);
        let (mut honest_stored, mut refused) = (0, 0);
        // As many as fit under the ceiling without the greedy source, over an hour; they are announced again every half
        // hour.
        let torrents = u32::try_from(ceiling / 60).unwrap();
        for minute in 0..60 {
            pass(&store, &mut now_s, 60);
            for number in (0..torrents).filter(|number| number % 30 == minute % 30) {
                match announce(&store.v4, &info_hash(2, number), honest(number), Action::Leech, now_s) {
                    Ok(()) => honest_stored += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        assert_eq!((honest_stored, refused), (2 * torrents, 0));
        assert!(store.v4.totals().evicted > u64::from(greedy) / 2, "{:?}", store.v4.totals());
    }
}

#[test]
fn a_greedy_source_that_announces_again_and_again_does_not_get_further() {
    let ceiling = CEILINGS[0];
    let (store, mut now_s) = (store(ceiling), 1000);
    for _ in 0..6 {
        fill(&store.v4, 1, greedy_v4, now_s);
        pass(&store, &mut now_s, TIMEOUT_S / 3);
        assert!(bytes(&store) < ceiling * 5 / 8, "{} bytes", bytes(&store));
    }
    pass(&store, &mut now_s, TIMEOUT_S * 2);
    assert_eq!(store.v4.totals().swarms, 0);
    // Its count falls with its peers: it starts again as before.
    assert!(fill(&store.v4, 1, greedy_v4, now_s) > 10_000);
}

#[test]
fn hundreds_of_addresses_leave_room() {
    let ceiling = CEILINGS[0];
    let (store, mut now_s) = (store(ceiling), 1000);
    for address in 0..=255 {
        pass(&store, &mut now_s, 3);
        for number in 0..20_000 {
            let stored = announce(
                &store.v4,
                &info_hash(address, number),
                greedy_at(address, number),
                Action::Leech,
                now_s,
            );
            assert_ne!(stored, Err(Rejection::Full));
            if stored.is_err() {
                break;
            }
        }
    }
    for number in 0..2000 {
        announce(&store.v4, &info_hash(2, 1 << 31 | number), honest(number), Action::Leech, now_s).unwrap();
    }
}
