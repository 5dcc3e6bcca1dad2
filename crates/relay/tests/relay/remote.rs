//! Peers that are connected to other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, InfoHash, PeerId};
use shoal_relay::{
    Address, Announce, AnswerMatch, Dispatcher, Mailboxes, MessageKind, OfferTarget, PEER_BYTES,
    REMOTE_WORKER, ReceivedOffer, Rejection, RemoteAnnounce, Settings, Swarms,
};

const TORRENT: InfoHash = InfoHash([7; 20]);

fn swarms() -> Swarms {
    Swarms::new(&Settings::new(1000, 600, [1, 9]))
}

fn peer_id(peer: u8) -> PeerId {
    PeerId([peer; 20])
}

fn local(peer: u8) -> Address {
    Address { worker: 0, handle: Handle { index: peer.into(), generation: 0 } }
}

fn node(index: u32) -> Handle {
    Handle { index, generation: 1 }
}

fn announce(
    swarms: &Swarms,
    peer: u8,
    action: Action,
    offers: usize,
    seed: u64,
) -> Result<Vec<OfferTarget>, Rejection> {
    let offers: Vec<_> = (0..offers).map(|offer| swarms.offer_key(&offer.to_le_bytes())).collect();
    let announce = Announce {
        address: local(peer),
        source: swarms.source(Ipv4Addr::from(u32::from(peer)).into()),
        peer_id: peer_id(peer),
        action,
        may_join: true,
        is_exempt: false,
        offers: &offers,
    };
    let mut targets = Vec::new();
    let rng = &mut fastrand::Rng::with_seed(seed);
    swarms.announce(&swarms.swarm_key(&TORRENT), &announce, 100, rng, &mut targets)?;
    Ok(targets)
}

fn announce_remote(
    swarms: &Swarms,
    node: Handle,
    peer: u8,
    action: Action,
) -> Result<Option<Address>, Rejection> {
    let source = swarms.source(Ipv4Addr::from(u32::from(peer)).into());
    let announce = RemoteAnnounce { node, source, peer_id: peer_id(peer), action };
    swarms.announce_remote(&swarms.swarm_key(&TORRENT), &announce, 100)
}

#[test]
fn counts_and_totals_include_them_as_a_model_says() {
    let swarms = swarms();
    let key = swarms.swarm_key(&TORRENT);
    let mut rng = fastrand::Rng::with_seed(5);
    // The role of each peer, by its id and its node (0 is this one).
    let mut model: BTreeMap<(u8, u32), bool> = BTreeMap::new();
    for _ in 0..20_000 {
        let (peer, at, seeds) = (rng.u8(..60), rng.u32(..4), rng.bool());
        let action = match (rng.u32(..3), seeds) {
            (0, _) => Action::Stop,
            (_, true) => Action::Seed,
            (_, false) => Action::Leech,
        };
        if at == 0 {
            announce(&swarms, peer, action, 3, 1).unwrap();
        } else {
            let joins = action != Action::Stop && !model.contains_key(&(peer, at));
            let older = model.contains_key(&(peer, 0)).then(|| local(peer)).filter(|_| joins);
            assert_eq!(announce_remote(&swarms, node(at), peer, action), Ok(older));
        }
        match action {
            Action::Stop => _ = model.remove(&(peer, at)),
            _ => _ = model.insert((peer, at), seeds),
        }
        let offer = swarms.offer_key(&rng.u32(..).to_le_bytes());
        let (from, to) = ((rng.u8(..60), rng.u32(1..4)), rng.u8(..60));
        let received = swarms.receive_offer(&key, node(from.1), (&peer_id(from.0), &peer_id(to)), offer, 100);
        let expected = match (model.contains_key(&(to, 0)), model.contains_key(&from)) {
            (false, _) => ReceivedOffer::Refused,
            (true, false) => ReceivedOffer::UnknownOfferer,
            (true, true) => ReceivedOffer::For(local(to)),
        };
        assert_eq!(received, expected);
        if rng.u32(..200) == 0 {
            let lost = rng.u32(1..4);
            swarms.forget_node(node(lost));
            model.retain(|(_, node), _| *node != lost);
        }
        let seeders = model.values().filter(|seeds| **seeds).count();
        let leechers = model.len() - seeders;
        let counts = swarms.scrape(&key);
        assert_eq!((counts.seeders as usize, counts.leechers as usize), (seeders, leechers));
        let totals = swarms.totals();
        assert_eq!((totals.seeders, totals.leechers), (seeders as u64, leechers as u64));
        assert!(totals.bytes >= model.len() as u64 * PEER_BYTES);
        let (checked, at) = (rng.u8(..60), rng.u32(..4));
        let address = if at == 0 { local(checked) } else { Address::of_node(node(at)) };
        assert_eq!(swarms.has_peer(&key, &peer_id(checked), address), model.contains_key(&(checked, at)));
    }
    (1..4).for_each(|lost| swarms.forget_node(node(lost)));
    (0..60).for_each(|peer| _ = announce(&swarms, peer, Action::Stop, 0, 1));
    assert_eq!((swarms.scrape(&key), swarms.totals().bytes), (Counts::default(), 0));
}

#[test]
fn peers_of_this_node_get_offers_first_and_the_rest_go_to_any_others() {
    let swarms = swarms();
    (1..=3).for_each(|peer| _ = announce(&swarms, peer, Action::Leech, 0, 1).unwrap());
    (10..40).for_each(|peer| {
        _ = announce_remote(&swarms, node(u32::from(peer) % 2), peer, Action::Leech).unwrap()
    });
    let (mut others, mut local_ones) = (BTreeMap::new(), 0);
    for seed in 0..2_000 {
        let targets = announce(&swarms, 50, Action::Leech, 5, seed).unwrap();
        assert_eq!(targets.len(), 5);
        let distinct: BTreeSet<_> = targets.iter().map(|target| target.peer_id).map(|id| id.0).collect();
        assert_eq!(distinct.len(), 5);
        let is_sorted = targets.is_sorted_by_key(|target| target.address.is_remote());
        assert!(is_sorted, "those of this node come first");
        for target in targets {
            if target.address.is_remote() {
                *others.entry(target.peer_id.0[0]).or_insert(0_u32) += 1;
            } else {
                local_ones += 1;
            }
        }
    }
    // Ten of 33 are drawn, so of the three of this node each is among them with 10/33.
    assert!((1_600..2_050).contains(&local_ones), "{local_ones}");
    assert_eq!(others.len(), 30);
    assert!(others.values().all(|count| (190..360).contains(count)), "{others:?}");
    // If there are few, all get one.
    let swarms = self::swarms();
    announce_remote(&swarms, node(1), 10, Action::Leech).unwrap();
    announce(&swarms, 1, Action::Leech, 0, 1).unwrap();
    let targets = announce(&swarms, 2, Action::Seed, 5, 1).unwrap();
    let ids: Vec<_> = targets.iter().map(|target| target.peer_id).collect();
    assert_eq!(ids, [peer_id(1), peer_id(10)]);
}

#[test]
fn an_answer_to_a_remote_peer_goes_to_its_node_and_one_from_there_is_matched() {
    let swarms = swarms();
    let key = swarms.swarm_key(&TORRENT);
    announce_remote(&swarms, node(3), 10, Action::Leech).unwrap();
    announce(&swarms, 1, Action::Leech, 1, 1).unwrap();
    let offer = swarms.offer_key(&0_usize.to_le_bytes());
    // The peer of this node answers an offer of the remote one, once.
    let answer = || swarms.match_answer(&key, &peer_id(10), (local(1), &peer_id(1)), offer, 100);
    assert_eq!(answer(), AnswerMatch::PeerGone, "it has not been received");
    let received = swarms.receive_offer(&key, node(3), (&peer_id(10), &peer_id(1)), offer, 100);
    assert_eq!(received, ReceivedOffer::For(local(1)));
    // Another node has a peer with the same id, which has made no such offer.
    announce_remote(&swarms, node(2), 10, Action::Leech).unwrap();
    assert_eq!(answer(), AnswerMatch::Offerer(Address::of_node(node(3))));
    assert_eq!(answer(), AnswerMatch::PeerGone);
    // The remote one answers the offer that was relayed to it, once, and no other node does.
    let answer = |from| {
        let answerer = (Address::of_node(node(from)), &peer_id(10));
        swarms.match_answer(&key, &peer_id(1), answerer, offer, 100)
    };
    assert_eq!(answer(2), AnswerMatch::NotPending);
    assert_eq!(answer(3), AnswerMatch::Offerer(local(1)));
    assert_eq!(answer(3), AnswerMatch::NotPending);
}

#[test]
fn messages_to_other_nodes_go_to_a_mailbox_of_their_own() {
    let mailboxes = Mailboxes::with_remote(2, 1 << 20);
    let [mut first, mut second, mut remote] =
        [0, 1, REMOTE_WORKER].map(|worker| Dispatcher::new(worker, mailboxes.clone()));
    let to = Address::of_node(node(3));
    for dispatcher in [&mut first, &mut second] {
        dispatcher.write(to, MessageKind::Offer(1), |out| out.extend_from_slice(b"offer")).unwrap();
    }
    assert_eq!(first.dispatch().collect::<Vec<_>>(), [2], "the thread after the workers is woken");
    assert_eq!(second.dispatch().count(), 0);
    remote.collect();
    assert_eq!(remote.next_to_flush(), Some(node(3)));
    assert_eq!(remote.drain(node(3), <[u8]>::to_vec), Some(b"offeroffer".to_vec()));
    // And back.
    let to = Address { worker: 1, handle: Handle { index: 5, generation: 0 } };
    remote.write(to, MessageKind::Answer, |out| out.extend_from_slice(b"answer")).unwrap();
    assert_eq!(remote.dispatch().collect::<Vec<_>>(), [1]);
    second.collect();
    assert_eq!(second.drain(to.handle, <[u8]>::to_vec), Some(b"answer".to_vec()));
    // Without other nodes there is no such mailbox.
    let mut alone = Dispatcher::new(0, Mailboxes::new(2));
    assert!(alone.write(Address::of_node(node(1)), MessageKind::Answer, |_| {}).is_err());
}

#[test]
fn the_peers_that_are_connected_to_this_node_are_listed() {
    let swarms = swarms();
    (1..=200).for_each(|peer| {
        _ = announce(&swarms, peer, if peer % 3 == 0 { Action::Seed } else { Action::Leech }, 0, 1)
    });
    // Of a peer id that another node has too, and of one that two connections of this node have, one is listed.
    (200..=220).for_each(|peer| _ = announce_remote(&swarms, node(1), peer, Action::Leech).unwrap());
    let again = Announce {
        address: local(250),
        source: swarms.source(Ipv4Addr::from(9).into()),
        peer_id: peer_id(9),
        action: Action::Leech,
        may_join: true,
        is_exempt: false,
        offers: &[],
    };
    let rng = &mut fastrand::Rng::with_seed(1);
    swarms.announce(&swarms.swarm_key(&TORRENT), &again, 100, rng, &mut Vec::new()).unwrap();
    let mut presences = Vec::new();
    (0..Swarms::SHARDS).for_each(|shard| swarms.connected(shard, &mut presences));
    let mut listed: Vec<_> =
        presences.iter().map(|presence| (presence.peer_id.0[0], presence.action)).collect();
    listed.sort_by_key(|(peer, _)| *peer);
    let role = |peer| if peer % 3 == 0 { Action::Seed } else { Action::Leech };
    assert_eq!(listed, (1..=200).map(|peer| (peer, role(peer))).collect::<Vec<_>>());
    assert!(presences.iter().all(|presence| presence.info_hash == TORRENT));
}
