//! Visits by non-members: they receive a sample of a swarm, and change nothing.

use std::collections::BTreeSet;

use shoal_base::{Action, Counts, InfoHash, PeerV4};
use shoal_store::{Announce, Announced, Settings, Store};

const HASH: InfoHash = InfoHash([0x77; 20]);

fn peer(number: u16) -> PeerV4 {
    let [high, low] = number.to_be_bytes();
    PeerV4([10, 0, high, low, 1, 1])
}

fn store() -> Store {
    let settings = Settings::new(1 << 28, 1800, [5, 1 << 60, 7 << 33, 9]);
    Store::new(&settings).unwrap()
}

/// Leechers numbered from 0, then seeders.
fn store_of(leechers: u16, seeders: u16) -> Store {
    let store = store();
    let place = store.v4.locate(&HASH);
    for number in 0..leechers + seeders {
        let action = if number < leechers { Action::Leech } else { Action::Seed };
        let announce = Announce { peer: peer(number), action, peers_wanted: 0 };
        store.v4.announce(&place, &announce, 0, &mut fastrand::Rng::with_seed(1), &mut []).unwrap();
    }
    store
}

fn visit(store: &Store, seeds: bool, wanted: usize, rng: &mut fastrand::Rng) -> (Counts, Vec<PeerV4>) {
    let mut out = [0xee; 300 * 6];
    // Located by the other family, as for a peer that announces there.
    let place = store.v6.locate(&HASH);
    let Announced { counts, peers, .. } = store.v4.visit(&place, seeds, wanted, rng, &mut out);
    (counts, out[..peers * 6].chunks_exact(6).map(|bytes| PeerV4(bytes.try_into().unwrap())).collect())
}

/// Sizes of swarms of every form: empty, a single peer, a block of a few, two tables.
const SIZES: [(u16, u16); 9] =
    [(0, 0), (1, 0), (0, 1), (1, 1), (7, 4), (60, 60), (0, 140), (150, 100), (900, 700)];

#[test]
fn a_non_member_receives_as_many_as_it_wants_and_a_seeder_leechers_only() {
    let mut rng = fastrand::Rng::with_seed(4);
    for (leechers, seeders) in SIZES {
        let store = store_of(leechers, seeders);
        for seeds in [false, true] {
            let allowed: BTreeSet<PeerV4> =
                (0..if seeds { leechers } else { leechers + seeders }).map(peer).collect();
            for wanted in [0, 1, 2, 3, 50, 300] {
                let (counts, peers) = visit(&store, seeds, wanted, &mut rng);
                let held = Counts { seeders: seeders.into(), leechers: leechers.into(), completed: 0 };
                assert_eq!(counts, held);
                assert_eq!(peers.len(), wanted.min(allowed.len()), "{leechers} {seeders} {seeds} {wanted}");
                let distinct: BTreeSet<PeerV4> = peers.iter().copied().collect();
                assert_eq!(distinct.len(), peers.len(), "no peer twice");
                assert!(distinct.is_subset(&allowed));
            }
        }
        let totals = store.v4.totals();
        assert_eq!((totals.leechers, totals.seeders), (leechers.into(), seeders.into()), "nothing changed");
    }
}

#[test]
fn no_more_than_the_room_holds() {
    let store = store_of(100, 0);
    let place = store.v4.locate(&HASH);
    let mut rng = fastrand::Rng::with_seed(4);
    for room_bytes in [0, 5, 6, 17, 18] {
        let mut out = vec![0; room_bytes];
        assert_eq!(store.v4.visit(&place, false, 50, &mut rng, &mut out).peers, room_bytes / 6);
    }
}
