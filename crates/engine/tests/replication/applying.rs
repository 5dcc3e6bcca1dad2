//! Deltas of one node that another one applies.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_access::networks::{Network, NetworkTable};
use shoal_access::ports::{PortSet, Ports};
use shoal_access::torrents::{TableBuilder, TorrentLists};
use shoal_access::{Access, HashKey};
use shoal_base::{Action, Counts, Delta, Event};
use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_engine::policy::Policy;
use shoal_engine::replication::RefusedPeer;

use crate::node::{Announced, Node, TIMEOUT_S, address, assert_equal, hash, random_announce, settings};

fn delta(number: u16, action: Action) -> Delta {
    let address = address(number, false);
    Delta { info_hash: hash(1), action, ip: address.ip(), port: address.port() }
}

pub(crate) fn refused(node: &Node) -> Vec<(&'static str, u64)> {
    let refused = &node.replica.applier().counters().refused;
    let counts = RefusedPeer::ALL.map(|reason| (reason.name(), refused.of(reason).read()));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn applied(node: &Node) -> u64 {
    node.replica.applier().counters().applied.read()
}

/// A policy that denies torrent 9, the network 77.1.9.0/24 and the ports up to 1023.
pub(crate) fn lists() -> Policy {
    let key = HashKey::new([1, 2, 3, 4]);
    let mut denied = TableBuilder::default();
    denied.add(hash(9), None).expect("there is room");
    let torrents = TorrentLists::new(key, None, vec![Arc::new(denied.build(&key))]);
    let network = Network::new("77.1.9.0".parse().unwrap(), 24).unwrap();
    Policy::new(Config::default()).with_access(Access {
        torrents: Some(Arc::new(torrents)),
        networks: Some(Arc::new(NetworkTable::new(None, &[network]))),
        ports_deny: Some(Arc::new(PortSet::new(&[Ports(1..=1023)]))),
        ..Access::default()
    })
}

/// Lets nodes announce at random, while the deltas of each go to the other. Returns both in the end.
fn exchange(mut nodes: [Node; 2], seed: u64, both: bool) -> [Node; 2] {
    let (mut rng, mut deltas) = (fastrand::Rng::with_seed(seed), Vec::new());
    for _ in 0..rng.usize(100..3000) {
        let announcer = usize::from(both && rng.bool());
        random_announce(&mut nodes[announcer], &mut rng);
        deltas.extend(nodes[announcer].take());
        if rng.u8(..50) == 0 {
            nodes.iter_mut().for_each(|node| node.pass(37));
        }
        // One delta or several at a time, in the order of the announces.
        if both || rng.u8(..40) == 0 {
            nodes[1 - announcer].replica_now().apply(&deltas, 0);
            deltas.clear();
        }
    }
    nodes[1].replica_now().apply(&deltas, 0);
    assert!(nodes[1].take().is_empty(), "what is applied is not recorded again");
    nodes
}

#[test]
fn a_node_that_applies_all_deltas_of_another_has_equal_swarms() {
    for seed in 0..12 {
        let [one, other] = exchange([Node::new(1), Node::new(2)], seed, false);
        assert_equal(&one, &other);
        assert_eq!(refused(&other), []);
        assert!(applied(&other) > 0 && applied(&one) == 0);
    }
}

#[test]
fn a_message_with_more_deltas_of_a_shard_than_one_lock_serves_is_applied_in_order() {
    let ([mut one, mut other], mut deltas) = ([Node::new(1), Node::new(2)], Vec::new());
    let mut rng = fastrand::Rng::with_seed(13);
    for _ in 0..5000 {
        random_announce(&mut one, &mut rng);
        deltas.extend(one.take());
    }
    assert!(deltas.len() > 2000, "{} deltas", deltas.len());
    other.replica_now().apply(&deltas, 0);
    assert_equal(&one, &other);
    assert_eq!(applied(&other), deltas.len() as u64);
}

#[test]
fn nodes_that_apply_each_others_deltas_have_equal_swarms() {
    for seed in 100..112 {
        let [one, other] = exchange([Node::new(1), Node::new(2)], seed, true);
        assert_equal(&one, &other);
    }
}

#[test]
fn a_delta_that_comes_twice_changes_nothing() {
    let mut node = Node::new(1);
    let deltas =
        [Action::Leech, Action::Complete, Action::Complete, Action::Seed].map(|action| delta(1, action));
    for _ in 0..2 {
        node.replica_now().apply(&deltas, 0);
        assert_eq!(node.store.counts(&hash(1))[0], Counts { seeders: 1, leechers: 0, completed: 1 });
    }
    let stops = [delta(1, Action::Stop), delta(1, Action::Stop)];
    node.replica_now().apply(&stops, 0);
    assert_eq!(node.store.counts(&hash(1))[0], Counts::default());
    assert_eq!(applied(&node), 10);
}

#[test]
fn peers_that_may_not_be_handed_out_are_refused_and_counted() {
    let mut node = Node::new(1);
    node.replica.applier_mut().set_policy(Arc::new(lists()));
    let usual = delta(1, Action::Leech);
    let deltas = [
        usual,
        Delta { port: 0, ..usual },
        Delta { ip: "0.1.2.3".parse().unwrap(), ..usual },
        Delta { ip: "224.0.0.1".parse().unwrap(), ..usual },
        Delta { ip: "ff02::1".parse().unwrap(), ..usual },
        Delta { ip: "::ffff:0.0.0.0".parse().unwrap(), ..usual },
        Delta { ip: "::".parse().unwrap(), action: Action::Stop, ..usual },
        Delta { ip: "77.1.9.1".parse().unwrap(), ..usual },
        Delta { ip: "::ffff:77.1.9.1".parse().unwrap(), ..usual },
        Delta { port: 80, ..usual },
        Delta { info_hash: hash(9), ..usual },
        Delta { info_hash: hash(9), action: Action::Complete, ..usual },
        // Any peer may leave.
        Delta { info_hash: hash(9), action: Action::Stop, ..usual },
    ];
    node.replica_now().apply(&deltas, 0);
    let expected =
        [("unusable_address", 6), ("network_denied", 2), ("port_denied", 1), ("torrent_denied", 2)];
    assert_eq!(refused(&node), expected);
    assert_eq!(applied(&node), 2);
    let totals = node.store.totals();
    assert_eq!((totals[0].leechers, totals[0].seeders, totals[1].swarms), (1, 0, 0));
}

#[test]
fn a_new_policy_holds_for_the_next_deltas() {
    let mut node = Node::new(1);
    let denied = Delta { info_hash: hash(9), ..delta(1, Action::Leech) };
    for (policy, expected) in [(Policy::default(), 1), (lists(), 1), (Policy::default(), 2)] {
        node.replica.applier_mut().set_policy(Arc::new(policy));
        node.replica_now().apply(&[denied], 0);
        assert_eq!(applied(&node), expected);
    }
    assert_eq!(refused(&node), [("torrent_denied", 1)]);
}

#[test]
fn private_addresses_are_served_as_this_node_says() {
    let ten = Delta { ip: "10.1.2.3".parse().unwrap(), ..delta(1, Action::Leech) };
    let unique = Delta { ip: "fd00::1".parse().unwrap(), ..ten };
    for (private, public, total) in [
        (PrivateAddresses::Serve, [1, 1], 2),
        (PrivateAddresses::Apart, [0, 0], 2),
        (PrivateAddresses::Refuse, [0, 0], 0),
    ] {
        let mut config = Config::default();
        config.address.private = Auto::Set(private);
        let mut node = Node::with(&settings(1), config);
        node.replica_now().apply(&[ten, unique, ten], 0);
        assert_eq!(node.store.counts(&hash(1)).map(|counts| counts.leechers), public);
        let leechers = |node: &Node| node.store.totals().iter().map(|totals| totals.leechers).sum::<u64>();
        assert_eq!(leechers(&node), total);
        let expected = if total == 0 { vec![("private_address", 3)] } else { Vec::new() };
        assert_eq!(refused(&node), expected);
        let stops = [ten, unique].map(|delta| Delta { action: Action::Stop, ..delta });
        node.replica_now().apply(&stops, 0);
        assert_eq!(leechers(&node), 0);
    }
}

#[test]
fn limits_of_sources_do_not_refuse_peers_of_other_nodes() {
    let settings = shoal_store::Settings { peers_per_source_max: 2, ..settings(1) };
    let mut node = Node::with(&settings, Config::default());
    let deltas: Vec<Delta> = (1..=200).map(|port| Delta { port, ..delta(1, Action::Leech) }).collect();
    node.replica_now().apply(&deltas, 0);
    assert_eq!(node.store.counts(&hash(1))[0].leechers, 200);
    assert_eq!(refused(&node), []);
}

#[test]
fn peers_for_which_there_is_no_memory_are_refused_and_counted() {
    let settings = shoal_store::Settings { memory_bytes_max: 2 << 20, ..settings(1) };
    let mut node = Node::with(&settings, Config::default());
    let deltas: Vec<Delta> = (0..60_000_u32)
        .map(|number| {
            let mut info_hash = hash(1);
            info_hash.0[16..].copy_from_slice(&number.to_be_bytes());
            Delta { info_hash, ..delta(1, Action::Leech) }
        })
        .collect();
    node.replica_now().apply(&deltas, 0);
    let (applied, totals) = (applied(&node), node.store.totals()[0]);
    assert!(applied > 1000 && totals.bytes <= 2 << 20);
    assert_eq!(totals.leechers, applied);
    assert_eq!(refused(&node), [("memory", 60_000 - applied)]);
}

#[test]
fn late_deltas_yield_to_later_announces() {
    let mut node = Node::new(1);
    let peer = address(1, false);
    node.announce_udp(Announced { info_hash: hash(1), address: peer, event: Event::Started, left: 0 });
    for action in [Action::Leech, Action::Stop] {
        node.replica_now().apply(&[delta(1, action)], 120_000);
        assert_eq!(node.store.counts(&hash(1))[0].seeders, 1);
    }
    node.replica_now().apply(&[delta(2, Action::Leech), delta(3, Action::Seed)], 120_000);
    let ages: BTreeMap<_, _> = node.peers(1).into_iter().map(|(peer, (_, age_s))| (peer, age_s)).collect();
    assert!(ages[&address(2, false)].abs_diff(120) < 60 && ages[&peer] < 60, "{ages:?}");
    node.replica_now().apply(&[delta(4, Action::Leech)], u64::from(TIMEOUT_S) * 1000 + 1000);
    node.replica_now().apply(&[delta(4, Action::Leech)], u64::MAX);
    assert_eq!(node.store.counts(&hash(1))[0], Counts { seeders: 2, leechers: 1, completed: 0 });
    let counters = node.replica.applier().counters();
    assert_eq!((counters.superseded.read(), counters.applied.read()), (3, 3));
    node.pass(60);
    node.replica_now().apply(&[delta(1, Action::Leech)], 0);
    assert_eq!(node.store.counts(&hash(1))[0].leechers, 2, "a recent one wins");
}
