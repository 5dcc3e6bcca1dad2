//! A store is filled and drawn from, tells how much memory that takes, and forgets the peers that stop announcing.

use std::net::Ipv4Addr;

use fastrand::Rng;
use shoal_base::{Action, InfoHash, PeerV4};
use shoal_store::{Announce, Rejection, Settings, Store};

const TORRENTS: u32 = 50_000;
const PEER_TIMEOUT_S: u32 = 2400;

/// Announces a leecher, and returns some other peers of its torrent.
fn announce(
    store: &Store,
    torrent: u32,
    peer: PeerV4,
    now_s: u32,
    rng: &mut Rng,
) -> Result<Vec<PeerV4>, Rejection> {
    let mut info_hash = [0; 20];
    info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
    // A tracker locates the torrents of a whole batch first and prefetches their lines.
    let place = store.v4.locate(&InfoHash(info_hash));
    // Peers are written in the form in which UDP replies and compact HTTP replies carry them.
    let mut found = [0; 50 * size_of::<PeerV4>()];
    let announce = Announce { peer, action: Action::Leech, peers_wanted: 50 };
    let announced = store.v4.announce(&place, &announce, now_s, rng, &mut found)?;
    let (found, _rest) = found.as_chunks();
    Ok(found[..announced.peers].iter().copied().map(PeerV4).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // At most 256 MiB. A tracker draws the key at random, so that no client can aim at one place of a table.
    let store = Store::new(&Settings::new(256 << 20, PEER_TIMEOUT_S, [1, 2, 3, 4]))?;
    let mut rng = Rng::with_seed(5);
    let rejected = |rejection| format!("the peer was not stored: {rejection:?}");

    // Many small torrents, and a large one. The time is an argument: the store has no clock.
    for number in 0..TORRENTS {
        let peer = PeerV4::new(Ipv4Addr::from_bits(0x0a00_0000 + number), 6881);
        announce(&store, number, peer, 0, &mut rng).map_err(rejected)?;
        announce(&store, 0, peer, 0, &mut rng).map_err(rejected)?;
    }
    let newcomer = PeerV4::new(Ipv4Addr::new(192, 0, 2, 1), 6881);
    let peers = announce(&store, 0, newcomer, 1, &mut rng).map_err(rejected)?;
    println!("the newcomer gets {} peers, among them {:?}", peers.len(), peers[0]);
    assert!(peers.len() == 50 && !peers.contains(&newcomer));

    let [v4, _v6] = store.totals();
    let stored = v4.seeders + v4.leechers;
    println!("{stored} peers of {} torrents take {} bytes each", v4.swarms, v4.bytes / stored);
    assert_eq!(stored, u64::from(TORRENTS) * 2);

    // Expiry goes on a little with each call, and never holds a lock for long.
    for now_s in (0..2 * PEER_TIMEOUT_S).step_by(30) {
        store.expire_in(store.shards(), now_s, 10_000);
    }
    let [v4, _v6] = store.totals();
    println!("after the timeout, {} torrents are left; {} peers have expired", v4.swarms, v4.expired);
    assert_eq!((v4.swarms, v4.expired), (0, stored));
    Ok(())
}
