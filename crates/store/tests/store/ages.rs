//! Swarms keep their ages while they are moved between lines and segments, and lose them with their last peer.

use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Ages, Announce, Family, Settings, Store, SwarmPart, SwarmSet, Swarms};

const TIMEOUT_S: u32 = 600;

const SETTINGS: Settings = Settings::new(1 << 28, TIMEOUT_S, [5, 6, 7, 8]);

fn info_hash(number: u32) -> InfoHash {
    let mut bytes = [0x5a; 20];
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn announce<P: Family>(swarms: &Swarms<P>, number: u32, peer: P, action: Action, now_s: u32) {
    let announce = Announce { peer, action, peers_wanted: 0 };
    let place = swarms.locate(&info_hash(number));
    swarms.announce(&place, &announce, now_s, &mut fastrand::Rng::with_seed(1), &mut []).unwrap();
}

/// Lets swarms come over hours, so that segments are split, and go, so that they are merged, and checks all ages.
fn check<P: Family>(swarms: &Swarms<P>, peers: [P; 2]) {
    const TORRENTS: u32 = 3000;
    const STEP_S: u32 = 100;
    let created_s = |number: u32| 1000 + number / 30 * STEP_S;
    let mut now_s = 1000;
    let check = |first: u32, last: u32, now_s: u32| {
        for number in (first..last).filter(|number| number % 7 == 0) {
            let age_s = now_s - created_s(number);
            let shown_s = swarms.age_s(&swarms.locate(&info_hash(number)), now_s).unwrap();
            assert!(shown_s.abs_diff(age_s) <= 150.max(age_s / 11), "{age_s} s are shown as {shown_s} s");
        }
    };
    for number in 0..TORRENTS {
        now_s = created_s(number);
        announce(swarms, number, peers[0], Action::Leech, now_s);
        if number % 30 == 29 {
            // All peers stay, some move from one form of a swarm to another and back.
            for earlier in 0..number {
                let action = if number % 60 == 29 { Action::Seed } else { Action::Stop };
                announce(swarms, earlier, peers[0], Action::Leech, now_s);
                announce(swarms, earlier, peers[1], action, now_s);
            }
            while swarms.expire(now_s, 1000).behind {}
            check(0, number, now_s);
        }
    }
    // Half of the swarms are removed.
    (0..TORRENTS / 2).for_each(|number| assert!(swarms.remove(&info_hash(number))));
    for _ in 0..TIMEOUT_S / STEP_S {
        now_s += STEP_S;
        (TORRENTS / 2..TORRENTS).for_each(|number| announce(swarms, number, peers[0], Action::Leech, now_s));
        while swarms.expire(now_s, 1000).behind {}
    }
    check(TORRENTS / 2, TORRENTS, now_s);
    assert_eq!(swarms.age_s(&swarms.locate(&info_hash(0)), now_s), None);
    // A swarm that comes back is new.
    announce(swarms, 0, peers[0], Action::Leech, now_s);
    assert!(swarms.age_s(&swarms.locate(&info_hash(0)), now_s).unwrap() <= 150);
}

#[test]
fn swarms_that_are_moved_keep_their_ages() {
    let store = Store::with_shards(&SETTINGS, 1).unwrap();
    check(&store.v4, [PeerV4([1; 6]), PeerV4([2; 6])]);
    check(&store.v6, [PeerV6([1; 18]), PeerV6([2; 18])]);
}

#[test]
fn ages_are_those_of_the_swarms_of_a_torrent() {
    let store = Store::new(&SETTINGS).unwrap();
    let id = info_hash(1);
    let part = SwarmPart { id, completed: 0, age_s: 864_000, seeders: 0, peers: &[1; 6], ages: &[0] };
    store.restore(SwarmSet::V4, &[part], &Ages::new(TIMEOUT_S, TIMEOUT_S, 0), 5000);
    let [v4, v6] = store.ages_s(&id, 5000);
    assert!(v4.unwrap().abs_diff(864_000) < 864_000 / 12, "{v4:?}");
    assert_eq!(v6, None);
}
