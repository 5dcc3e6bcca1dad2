//! The limits of one source in a swarm: on its entries, and on its places in a reply.

use std::collections::BTreeSet;

use shoal_base::{Action, Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Family, Rejection, Settings, Store, Swarms};
use zerocopy::{FromBytes, Immutable, KnownLayout};

const SWARM: InfoHash = InfoHash([7; 20]);
const PEERS_PER_SOURCE_MAX: u32 = 64;

fn store(peers_per_source_max: u32) -> Store {
    let settings =
        Settings { peers_per_source_max, ..Settings::new(1 << 28, 1800, [5, 1 << 60, 7 << 33, 9]) };
    Store::new(&settings).unwrap()
}

/// A family with honest peers, each of a source of its own, and greedy peers, all of one source.
trait Peers: Family + FromBytes + Immutable + KnownLayout + Copy + Ord {
    fn honest(number: u16) -> Self;
    fn greedy(number: u16) -> Self;
    fn is_greedy(&self) -> bool;
    fn swarms(store: &Store) -> &Swarms<Self>;
}

impl Peers for PeerV4 {
    fn honest(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self([20, 1, high, low, 0x1a, 0xe1])
    }

    fn greedy(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self([66, 6, 6, 6, high, low])
    }

    fn is_greedy(&self) -> bool {
        self.0[0] == 66
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v4
    }
}

impl Peers for PeerV6 {
    fn honest(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self([0x20, 1, 0x0d, 0xb8, high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x1a, 0xe1])
    }

    /// Returns a peer of one /48, spread over its /64 networks, addresses and ports.
    fn greedy(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self([0x2a, 6, 6, 6, 6, 6, high, low, 0, 0, 0, high, 0, 0, low, 7, low, high])
    }

    fn is_greedy(&self) -> bool {
        self.0[0] == 0x2a
    }

    fn swarms(store: &Store) -> &Swarms<Self> {
        &store.v6
    }
}

/// Announces. Returns the counts and the peers of the reply.
fn announce<P: Peers>(
    store: &Store,
    peer: P,
    action: Action,
    wanted: usize,
    rng: &mut fastrand::Rng,
) -> (Counts, Vec<P>) {
    let swarms = P::swarms(store);
    let mut out = vec![0; wanted * size_of::<P>()];
    let announce = Announce { peer, action, peers_wanted: wanted };
    let place = swarms.locate(&SWARM);
    let announced = match swarms.announce(&place, &announce, 1000, rng, &mut out) {
        Err(Rejection::Excess(_)) => swarms.visit(&place, action != Action::Leech, wanted, rng, &mut out),
        announced => announced.unwrap(),
    };
    let given = <[P]>::ref_from_bytes(&out[..announced.peers * size_of::<P>()]).unwrap().to_vec();
    let distinct: BTreeSet<&P> = given.iter().collect();
    assert_eq!(distinct.len(), given.len(), "no peer twice");
    assert!(!given.contains(&peer));
    (announced.counts, given)
}

/// Returns the share of the greedy source among the places of replies, in parts of 10,000.
fn greedy_share<P: Peers>(replies: impl Iterator<Item = Vec<P>>) -> usize {
    let (mut greedy, mut places) = (0, 0);
    for reply in replies {
        greedy += reply.iter().filter(|peer| peer.is_greedy()).count();
        places += reply.len();
    }
    greedy * 10_000 / places
}

fn one_source_has_few_places<P: Peers>(greedy_first: bool, greedy: u16, honest: u16) {
    let (store, mut rng) = (store(PEERS_PER_SOURCE_MAX), fastrand::Rng::with_seed(8));
    let join = |greedy_ones: bool, rng: &mut fastrand::Rng| {
        let count = if greedy_ones { greedy } else { honest };
        for number in 0..count {
            let peer = if greedy_ones { P::greedy(number) } else { P::honest(number) };
            announce(&store, peer, Action::Leech, 0, rng);
        }
    };
    join(greedy_first, &mut rng);
    join(!greedy_first, &mut rng);
    for wanted in [10, 30, 50, 200] {
        for action in [Action::Leech, Action::Seed] {
            let replies = (0..300).map(|_| {
                let (_, given) = announce(&store, P::honest(30_000), action, wanted, &mut rng);
                announce(&store, P::honest(30_000), Action::Stop, 0, &mut rng);
                given
            });
            let share = greedy_share(replies.collect::<Vec<_>>().into_iter());
            assert!(share <= 500, "{share} of 10,000 at {wanted}, {greedy} greedy, first: {greedy_first}");
        }
        let place = P::swarms(&store).locate(&SWARM);
        let visits = (0..300).map(|_| {
            let mut out = vec![0; wanted * size_of::<P>()];
            let visited = P::swarms(&store).visit(&place, false, wanted, &mut rng, &mut out);
            <[P]>::ref_from_bytes(&out[..visited.peers * size_of::<P>()]).unwrap().to_vec()
        });
        let share = greedy_share(visits.collect::<Vec<_>>().into_iter());
        assert!(share <= 500, "{share} of 10,000 for non-members at {wanted}, {greedy} greedy");
    }
    let counts = P::swarms(&store).scrape(&P::swarms(&store).locate(&SWARM));
    assert!(counts.seeders + counts.leechers <= u32::from(honest) + PEERS_PER_SOURCE_MAX * 3 / 2);
}

#[test]
fn one_source_has_few_places_in_replies_whatever_it_announces() {
    for greedy_first in [true, false] {
        for greedy in [3, 20, 64, 500, 65_000] {
            one_source_has_few_places::<PeerV4>(greedy_first, greedy, 50);
            one_source_has_few_places::<PeerV6>(greedy_first, greedy, 50);
        }
        // The same holds in a large swarm of either family.
        one_source_has_few_places::<PeerV4>(greedy_first, 65_000, 200);
        one_source_has_few_places::<PeerV6>(greedy_first, 65_000, 200);
    }
}

fn limit_holds<P: Peers>(honest: u16) {
    let (store, mut rng) = (store(PEERS_PER_SOURCE_MAX), fastrand::Rng::with_seed(5));
    for number in 0..honest {
        announce(&store, P::honest(number), Action::Leech, 0, &mut rng);
    }
    for number in 0..5000 {
        let (counts, given) = announce(&store, P::greedy(number), Action::Leech, 5, &mut rng);
        assert!(counts.leechers <= u32::from(honest) + PEERS_PER_SOURCE_MAX * 3 / 2);
        assert_eq!(given.len(), 5, "all are answered, those that are not stored too");
    }
    let counts = P::swarms(&store).scrape(&P::swarms(&store).locate(&SWARM));
    let stored = counts.leechers - u32::from(honest);
    assert!(stored >= PEERS_PER_SOURCE_MAX, "{stored}");
    // Stored peers continue as before, and one that leaves makes room for another.
    for number in 0..5000 {
        announce(&store, P::greedy(number), Action::Stop, 0, &mut rng);
    }
    let (counts, _) = announce(&store, P::greedy(9), Action::Leech, 0, &mut rng);
    assert_eq!(counts.leechers, u32::from(honest) + 1);
}

#[test]
fn a_swarm_limits_the_peers_of_one_source() {
    for honest in [6, 30, 120, 300, 3000] {
        limit_holds::<PeerV4>(honest);
        limit_holds::<PeerV6>(honest);
    }
}

#[test]
fn without_a_limit_all_are_taken_in() {
    let (store, mut rng) = (store(0), fastrand::Rng::with_seed(5));
    for number in 0..5000 {
        announce(&store, PeerV4::greedy(number), Action::Leech, 5, &mut rng);
        announce(&store, PeerV6::greedy(number), Action::Leech, 5, &mut rng);
    }
    assert_eq!((store.v4.totals().leechers, store.v6.totals().leechers), (5000, 5000));
}

#[test]
fn a_home_network_behind_one_address_gets_all_that_it_wants() {
    let (store, mut rng) = (store(PEERS_PER_SOURCE_MAX), fastrand::Rng::with_seed(5));
    for number in 0..40 {
        announce(&store, PeerV4::greedy(number), Action::Leech, 0, &mut rng);
    }
    (0..10).for_each(|number| drop(announce(&store, PeerV4::honest(number), Action::Leech, 0, &mut rng)));
    let (_, given) = announce(&store, PeerV4::greedy(0), Action::Leech, 200, &mut rng);
    assert_eq!(given.len(), 49);
    assert!((0..10).all(|number| given.contains(&PeerV4::honest(number))));
}

#[test]
fn places_are_shared_evenly_by_sources_with_few_peers() {
    let (store, mut rng) = (store(PEERS_PER_SOURCE_MAX), fastrand::Rng::with_seed(6));
    for number in 0..64 {
        announce(&store, PeerV4::greedy(number), Action::Leech, 0, &mut rng);
        announce(&store, PeerV4::honest(number), Action::Leech, 0, &mut rng);
    }
    let mut seen = [0_u32; 64];
    for _ in 0..20_000 {
        let (_, given) = announce(&store, PeerV4::greedy(0), Action::Leech, 10, &mut rng);
        for peer in given.iter().filter(|peer| !peer.is_greedy()) {
            seen[usize::from(peer.0[3])] += 1;
        }
    }
    let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
    // Each is expected some 3,000 times, with a deviation of about 50.
    assert!(most - least < 500, "{least} to {most}");
}

#[test]
fn a_peer_that_leaves_and_completes_again_is_counted_once() {
    let (store, mut rng) = (store(PEERS_PER_SOURCE_MAX), fastrand::Rng::with_seed(6));
    announce(&store, PeerV4::honest(0), Action::Seed, 0, &mut rng);
    for _ in 0..100 {
        for action in [Action::Leech, Action::Complete, Action::Stop] {
            announce(&store, PeerV4::honest(1), action, 0, &mut rng);
        }
    }
    assert_eq!(store.v4.scrape(&store.v4.locate(&SWARM)).completed, 1);
    // Changing the port each time does not help either.
    for number in 0..2000 {
        for action in [Action::Complete, Action::Stop] {
            announce(&store, PeerV4::greedy(number), action, 0, &mut rng);
        }
    }
    assert_eq!(store.v4.scrape(&store.v4.locate(&SWARM)).completed, 1 + 8);
    for number in 100..200 {
        announce(&store, PeerV4::honest(number), Action::Complete, 0, &mut rng);
    }
    assert_eq!(store.v4.scrape(&store.v4.locate(&SWARM)).completed, 1 + 8 + 100);
    assert_eq!(store.v4.totals().completed, 1 + 8 + 100);
}
