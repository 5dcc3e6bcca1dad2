//! Several threads on one store, with slightly different clocks.

use std::thread;

use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Announce, Settings, Store};

#[test]
fn threads_that_announce_sample_and_expire_agree_in_the_end() {
    let settings = Settings::new(16 << 20, 60, [4, 3, 2, 1]);
    let store = Store::new(&settings).unwrap();
    thread::scope(|scope| {
        for seed in 0..4_u8 {
            let store = &store;
            scope.spawn(move || work(store, seed));
        }
    });
    // The clocks have reached slightly more than 1000 + 4000 / 20.
    let mut now_s = 1300;
    while store.v4.totals().swarms > 0 {
        now_s += 1;
        assert!(now_s < 1500, "all peers expire in time: {:?}", store.v4.totals());
        while store.v4.expire(now_s, 256).behind {}
    }
    let totals = store.v4.totals();
    assert_eq!((totals.swarms, totals.seeders, totals.leechers), (0, 0, 0));
}

fn work(store: &Store, seed: u8) {
    let mut rng = fastrand::Rng::with_seed(u64::from(seed));
    let mut out = [0; 50 * 6];
    for round in 0..4000_u32 {
        let now_s = 1000 + round / 20 + u32::from(seed % 2);
        for _ in 0..60 {
            let mut place = store.v4.locate(&InfoHash([rng.u8(..8); 20]));
            let peer = PeerV4([1, 2, rng.u8(..), rng.u8(..16), 5, 6]);
            let action = [Action::Leech, Action::Seed, Action::Complete, Action::Stop][rng.usize(..4)];
            store.v4.lock(place.shard()).prefetch_swarm(&mut place);
            let announce = Announce { peer, action, peers_wanted: 50 };
            store.v4.lock(place.shard()).prefetch_entry(&mut place);
            store.v4.lock(place.shard()).prefetch_found(&mut place);
            store.v4.lock(place.shard()).prefetch_peers(&place, &announce, false, rng.clone());
            if let Ok(announced) = store.v4.announce(&place, &announce, now_s, &mut rng, &mut out) {
                let handed_out = out[..announced.peers * 6].chunks_exact(6);
                assert!(
                    handed_out.clone().all(|bytes| bytes[..2] == [1, 2] && *bytes != peer.0),
                    "whole peers, others"
                );
            }
        }
        store.v4.expire(now_s, 100);
        store.make_ready();
    }
}
