//! Peers that continue in another process.

use std::net::Ipv4Addr;
use std::sync::Arc;

use shoal_base::source::{HoldingLimits, Holdings};
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, InfoHash, PeerId};
use shoal_relay::{
    Address, Announce, AnswerMatch, ConnectedPeer, Membership, OfferKey, Rejection, Settings, Swarms,
};

const TORRENT: InfoHash = InfoHash([7; 20]);

fn swarms(key: u64, peers_max: u64) -> Swarms {
    let limits = HoldingLimits { peers_max: 1, torrents_max: 0 };
    Swarms::new(&Settings {
        peers_max,
        memory_bytes_max: u64::MAX,
        relay_rate_max: 0,
        swarm_share_max: 0,
        holdings: Holdings::new(limits, [3, 4]).map(Arc::new),
        peer_lifetime_s: 600,
        hash_key: [key, 9],
    })
}

fn peer_id(peer: u8) -> PeerId {
    PeerId([peer; 20])
}

fn address(index: u32) -> Address {
    Address { worker: 1, handle: Handle { index, generation: 3 } }
}

fn announce(swarms: &Swarms, peer: u8, action: Action, now_s: u32) -> Result<Counts, Rejection> {
    announce_from(swarms, peer, address(peer.into()), (action, now_s), &[])
}

/// Announces a peer with offers from a connection of choice.
fn announce_from(
    swarms: &Swarms,
    peer: u8,
    address: Address,
    (action, now_s): (Action, u32),
    offers: &[OfferKey],
) -> Result<Counts, Rejection> {
    let announce = Announce {
        address,
        source: swarms.source(Ipv4Addr::from(u32::from(peer)).into()),
        peer_id: peer_id(peer),
        action,
        may_join: true,
        is_exempt: false,
        offers,
    };
    let rng = &mut fastrand::Rng::with_seed(1);
    let announced = swarms.announce(&swarms.swarm_key(&TORRENT), &announce, now_s, rng, &mut Vec::new());
    announced.map(|announced| announced.counts)
}

fn resume(swarms: &Swarms, peer: u8, index: u32, membership: &Membership) -> Result<(), Rejection> {
    let source = swarms.source(Ipv4Addr::from(u32::from(peer)).into());
    let key = swarms.swarm_key(&TORRENT);
    swarms.resume(&key, &peer_id(peer), (address(index), source), membership, 150)
}

#[test]
fn a_peer_continues_with_its_role_its_age_and_the_counts_of_its_swarm() {
    let (old, new) = (swarms(1, 100), swarms(2, 100));
    announce(&old, 1, Action::Leech, 90).unwrap();
    announce(&old, 1, Action::Complete, 100).unwrap();
    announce(&old, 2, Action::Leech, 120).unwrap();
    let key = old.swarm_key(&TORRENT);
    for peer in [1, 2] {
        let at = address(peer.into());
        let membership = old.membership(&key, &peer_id(peer), at, 150).unwrap();
        assert!(old.leave(&key, &peer_id(peer), at).was_present);
        resume(&new, peer, 40 + u32::from(peer), &membership).unwrap();
    }
    assert_eq!(old.membership(&key, &peer_id(1), address(1), 150), None);
    let key = new.swarm_key(&TORRENT);
    assert_eq!(new.scrape(&key), Counts { seeders: 1, leechers: 1, completed: 1 });
    assert_eq!((new.totals().seeders, new.totals().leechers), (1, 1));
    assert_eq!(new.age_s(&key, 150), Some(60));
    let mut peers = new.peers(&key, 10, 150);
    peers.sort_by_key(|peer| peer.age_s);
    let connected = |peer, seeds, age_s| ConnectedPeer { peer_id: peer_id(peer), seeds, age_s };
    assert_eq!(peers, [connected(2, false, 30), connected(1, true, 50)]);
    // Its download is not counted again.
    assert!(new.has_peer(&key, &peer_id(1), address(41)));
    let membership = new.membership(&key, &peer_id(1), address(41), 150).unwrap();
    assert!(membership.is_download_decided);
    assert!(new.leave(&key, &peer_id(1), address(41)).was_present);
}

#[test]
fn a_peer_whose_id_another_connection_has_by_now_continues_beside_it() {
    let (old, new) = (swarms(1, 100), swarms(1, 100));
    let key = new.swarm_key(&TORRENT);
    for swarms in [&old, &new] {
        announce(swarms, 2, Action::Leech, 100).unwrap();
    }
    announce(&new, 1, Action::Leech, 100).unwrap();
    let offer = old.offer_key(b"an offer");
    announce_from(&old, 1, address(5), (Action::Leech, 100), &[offer]).unwrap();
    let membership = old.membership(&key, &peer_id(1), address(5), 150).unwrap();
    resume(&new, 1, 7, &membership).unwrap();
    assert_eq!(new.scrape(&key).leechers, 3);
    let answerer = (address(2), &peer_id(2));
    let matched = new.match_answer(&key, &peer_id(1), answerer, offer, 150);
    assert_eq!(matched, AnswerMatch::Offerer(address(7)), "the offer moves with its peer");
}

#[test]
fn the_limit_of_a_source_counts_it_and_the_limit_of_all_refuses_it() {
    let swarms = swarms(1, 2);
    announce(&swarms, 1, Action::Leech, 100).unwrap();
    let membership = Membership {
        seeds: false,
        age_s: 0,
        is_download_decided: false,
        swarm_completed: 0,
        swarm_age_s: 0,
        pending_offers: Vec::new(),
    };
    resume(&swarms, 2, 2, &membership).unwrap();
    let key = swarms.swarm_key(&TORRENT);
    let full = resume(&swarms, 3, 3, &membership);
    assert!(matches!(full, Err(Rejection::Full | Rejection::OverShare)), "{full:?}");
    swarms.leave(&key, &peer_id(1), address(1));
    swarms.leave(&key, &peer_id(2), address(2));
    assert_eq!(swarms.totals().leechers, 0);
}

#[test]
fn offers_that_are_pending_move_with_their_peer_for_as_long_as_they_were() {
    let old = swarms(1, 100);
    let key = old.swarm_key(&TORRENT);
    announce(&old, 2, Action::Leech, 100).unwrap();
    let offer = old.offer_key(b"an offer");
    let source = old.source(Ipv4Addr::from(1).into());
    announce_from(&old, 1, address(1), (Action::Leech, 100), &[offer]).unwrap();
    let membership = old.membership(&key, &peer_id(1), address(1), 150).unwrap();
    assert_eq!(membership.pending_offers.len(), 1);
    assert_eq!(membership.pending_offers[0].left_s, 70);
    let answer = |receiver, now_s| {
        let swarms = swarms(1, 100);
        swarms.resume(&key, &peer_id(1), (address(9), source), &membership, 1000).unwrap();
        swarms.match_answer(&key, &peer_id(1), (receiver, &peer_id(2)), offer, now_s)
    };
    assert_eq!(answer(address(2), 1070), AnswerMatch::Offerer(address(9)));
    assert_eq!(answer(address(2), 1071), AnswerMatch::NotPending);
    assert_eq!(answer(address(3), 1000), AnswerMatch::NotPending);
    // An expired one does not move.
    assert_eq!(old.membership(&key, &peer_id(1), address(1), 221).unwrap().pending_offers, []);
}
