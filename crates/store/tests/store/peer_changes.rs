//! The change of a peer that its announce reports, in every form of a swarm.

use std::collections::BTreeMap;

use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, PeerChange, Settings, Store};

const TIMEOUT_S: u32 = 2700;

/// A period in seconds: 16 of 64 ticks.
const PERIOD_S: u32 = 16 * TIMEOUT_S.div_ceil(64);

/// Sizes of swarms of each form, with the announcer: a single peer, small ones, and large ones.
const SIZES: [u16; 6] = [1, 2, 5, 60, 300, 3000];

const BEGIN_S: u32 = 100_000;

fn store() -> Store {
    let settings = Settings::new(1 << 30, TIMEOUT_S, [1, 2, 3, 4]);
    Store::new(&settings).unwrap()
}

fn peer_v4(number: u16) -> PeerV4 {
    let [high, low] = number.to_be_bytes();
    PeerV4::new([192, 0, high, low].into(), 6881)
}

fn peer_v6(number: u16) -> PeerV6 {
    PeerV6::new([0x2001, 0xdb8, number, 7, 0, 0, 0, 1].into(), 6881)
}

/// A swarm of each family with this many peers, in which peer 0 announces.
struct Swarm {
    store: Store,
    rng: fastrand::Rng,
}

impl Swarm {
    fn new(size: u16) -> Self {
        let mut swarm = Self { store: store(), rng: fastrand::Rng::with_seed(1) };
        for number in 1..size {
            swarm.announce(number, Action::Leech, BEGIN_S);
        }
        swarm
    }

    /// Announces in the swarms of both families, whose reports must be equal unless they are about periods.
    fn announce_both(&mut self, number: u16, action: Action, now_s: u32) -> [PeerChange; 2] {
        let place = self.store.v4.locate(&InfoHash([7; 20]));
        let v4 = Announce { peer: peer_v4(number), action, peers_wanted: 0 };
        let v6 = Announce { peer: peer_v6(number), action, peers_wanted: 0 };
        let v4 = self.store.v4.announce(&place, &v4, now_s, &mut self.rng, &mut []).unwrap();
        let v6 = self.store.v6.announce(&place, &v6, now_s, &mut self.rng, &mut []).unwrap();
        [v4.change, v6.change]
    }

    #[track_caller]
    fn announce(&mut self, number: u16, action: Action, now_s: u32) -> PeerChange {
        let [v4, v6] = self.announce_both(number, action, now_s);
        assert_eq!(v4, v6);
        v4
    }
}

#[test]
fn a_peer_joins_changes_its_role_completes_and_leaves() {
    for size in SIZES {
        let mut swarm = Swarm::new(size);
        let mut announce = |action| swarm.announce(0, action, BEGIN_S);
        assert_eq!(announce(Action::Stop), PeerChange::Nothing);
        assert_eq!(announce(Action::Leech), PeerChange::Joined);
        assert_eq!(announce(Action::Leech), PeerChange::Unchanged);
        assert_eq!(announce(Action::Seed), PeerChange::Joined);
        assert_eq!(announce(Action::Seed), PeerChange::Unchanged);
        assert_eq!(announce(Action::Complete), PeerChange::Completed);
        assert_eq!(announce(Action::Complete), PeerChange::Unchanged);
        assert_eq!(announce(Action::Seed), PeerChange::Unchanged);
        assert_eq!(announce(Action::Leech), PeerChange::Joined);
        assert_eq!(announce(Action::Complete), PeerChange::Joined, "its download was counted before");
        assert_eq!(announce(Action::Stop), PeerChange::Left);
        assert_eq!(announce(Action::Stop), PeerChange::Nothing);
        // The store remembers that for as long as it keeps the count, which it loses with the last peer.
        let again = if size > 1 { PeerChange::Joined } else { PeerChange::Completed };
        assert_eq!(announce(Action::Complete), again, "{size}");
        assert_eq!(announce(Action::Stop), PeerChange::Left);
    }
}

#[test]
fn one_that_joins_as_a_seeder_downloads_nothing() {
    for size in SIZES {
        let mut swarm = Swarm::new(size);
        let mut announce = |action| swarm.announce(0, action, BEGIN_S);
        assert_eq!(announce(Action::Seed), PeerChange::Joined);
        assert_eq!(announce(Action::Complete), PeerChange::Unchanged);
        assert_eq!(announce(Action::Leech), PeerChange::Joined);
        assert_eq!(announce(Action::Complete), PeerChange::Joined);
        assert_eq!(announce(Action::Stop), PeerChange::Left);
        assert_eq!(announce(Action::Leech), PeerChange::Joined);
        assert_eq!(announce(Action::Complete), PeerChange::Completed, "it has returned without it");
    }
}

#[test]
fn a_new_peer_may_complete_at_once() {
    for size in SIZES {
        assert_eq!(Swarm::new(size).announce(0, Action::Complete, BEGIN_S), PeerChange::Completed);
    }
}

#[test]
fn a_peer_is_renewed_once_in_each_period() {
    for (size, action) in SIZES.into_iter().flat_map(|size| [(size, Action::Leech), (size, Action::Seed)]) {
        for number in [0, 1_u16] {
            let mut swarm = Swarm::new(size);
            let mut renewed_s = [Vec::new(), Vec::new()];
            swarm.announce(number, action, BEGIN_S);
            for now_s in (BEGIN_S..BEGIN_S + 10 * PERIOD_S).step_by(20) {
                for (change, renewed_s) in
                    swarm.announce_both(number, action, now_s).into_iter().zip(&mut renewed_s)
                {
                    match change {
                        PeerChange::Renewed => renewed_s.push(now_s),
                        change => assert_eq!(change, PeerChange::Unchanged),
                    }
                }
            }
            for renewed_s in renewed_s {
                assert!((9..=10).contains(&renewed_s.len()), "{size}: {renewed_s:?}");
                assert!(renewed_s.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(PERIOD_S) <= 20));
            }
        }
    }
}

#[test]
fn a_peer_that_announces_once_a_period_is_always_renewed() {
    let mut swarm = Swarm::new(1);
    swarm.announce(0, Action::Leech, BEGIN_S);
    let mut now_s = BEGIN_S;
    for interval_s in [PERIOD_S, PERIOD_S + 1, TIMEOUT_S / 2, TIMEOUT_S - 1, TIMEOUT_S, 900, 1800] {
        now_s += interval_s;
        assert_eq!(swarm.announce(0, Action::Leech, now_s), PeerChange::Renewed, "after {interval_s} s");
        assert_eq!(swarm.announce(0, Action::Complete, now_s), PeerChange::Completed);
        assert_eq!(swarm.announce(0, Action::Leech, now_s), PeerChange::Joined);
        assert_eq!(swarm.announce(0, Action::Stop, now_s), PeerChange::Left);
        swarm = Swarm::new(1);
        swarm.announce(0, Action::Leech, now_s);
    }
}

#[test]
fn periods_begin_at_many_moments() {
    let mut swarm = Swarm::new(1000);
    let mut begun = BTreeMap::<u32, u32>::new();
    for now_s in (BEGIN_S..BEGIN_S + 2 * PERIOD_S).step_by(43) {
        for number in 1..1000 {
            let changes = swarm.announce_both(number, Action::Leech, now_s);
            *begun.entry(now_s).or_default() +=
                changes.into_iter().map(|change| u32::from(change == PeerChange::Renewed)).sum::<u32>();
        }
    }
    let (total, most) = (begun.values().sum::<u32>(), begun.values().max().copied().unwrap());
    assert!((3500..=4100).contains(&total), "two of each peer: {total}");
    assert!(most < total / 16, "{most} of {total} at one moment");
}
