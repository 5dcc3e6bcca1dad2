//! Snapshots of one node that another one adopts.

use std::sync::Arc;

use proptest::prelude::*;
use shoal_base::{Counts, Event};
use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_engine::replication::{BLOCK_BYTES_MAX, Damaged, ReplicaExport};
use shoal_store::Adopted;

use crate::applying::{lists, refused};
use crate::node::{Announced, Node, TIMEOUT_S, address, assert_equal, hash, random_announce, settings};

fn blocks(node: &mut Node) -> Vec<Vec<u8>> {
    let (mut export, mut blocks) = (ReplicaExport::default(), Vec::new());
    loop {
        let mut block = Vec::new();
        let is_more = node.replica_now().export(&mut export, &mut block);
        assert!(block.len() <= BLOCK_BYTES_MAX);
        if !block.is_empty() {
            blocks.push(block);
        }
        if !is_more {
            return blocks;
        }
    }
}

fn adopt(node: &mut Node, blocks: &[Vec<u8>]) -> Adopted {
    let mut adopted = Adopted::default();
    for block in blocks {
        adopted += node.replica_now().adopt(block).unwrap();
    }
    adopted
}

fn leecher(number: u16) -> Announced {
    Announced { info_hash: hash(1), address: address(number, false), event: Event::Started, left: 1 }
}

fn busy(secret: u64, seed: u64) -> Node {
    let mut node = Node::new(secret);
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..rng.usize(1..3000) {
        random_announce(&mut node, &mut rng);
    }
    node
}

#[test]
fn a_new_node_has_the_swarms_of_the_one_that_it_asks() {
    for seed in 0..8 {
        let mut one = busy(1, seed);
        let mut other = Node::new(2);
        let adopted = adopt(&mut other, &blocks(&mut one));
        assert_equal(&one, &other);
        assert_eq!(other.replica.applier().counters().adopted.read(), adopted.added);
        assert!(other.take().is_empty(), "what is adopted is not recorded");
    }
}

#[test]
fn nodes_that_adopt_each_other_have_the_union() {
    for seed in 10..14 {
        let (mut one, mut other) = (busy(1, seed), busy(2, seed + 100));
        let (of_one, of_other) = (blocks(&mut one), blocks(&mut other));
        adopt(&mut one, &of_other);
        adopt(&mut other, &of_one);
        for torrent in 0..5 {
            let (peers, others) = (one.peers(torrent), other.peers(torrent));
            assert!(peers.keys().eq(others.keys()), "the same peers");
        }
    }
}

#[test]
fn a_large_store_comes_in_blocks_of_bounded_size() {
    let mut one = Node::new(1);
    let mut batch = Vec::new();
    for number in 0..=u16::MAX {
        batch.push(Announced { info_hash: hash(number % 300), ..leecher(number) });
        if batch.len() == 64 {
            one.announce_batch(&batch);
            batch.clear();
        }
    }
    let blocks = blocks(&mut one);
    assert!(blocks.len() >= 7, "65,536 peers of seven bytes: {}", blocks.len());
    assert!(blocks.iter().all(|block| block.len() <= 100_000));
    let mut other = Node::new(2);
    assert_eq!(adopt(&mut other, &blocks).added, 1 << 16);
    assert_eq!(other.store.totals()[0].swarms, 300);
}

#[test]
fn peers_that_may_not_be_handed_out_are_left_out_and_counted() {
    let mut one = Node::new(1);
    let mut denied_port = leecher(1);
    denied_port.address.set_port(80);
    let denied_network = Announced { address: "77.1.9.1:6881".parse().unwrap(), ..leecher(1) };
    let denied_torrent = Announced { info_hash: hash(9), ..leecher(1) };
    for announced in [leecher(1), denied_port, denied_network, denied_torrent] {
        one.announce_udp(announced);
    }
    let mut other = Node::new(2);
    other.replica.applier_mut().set_policy(Arc::new(lists()));
    assert_eq!(adopt(&mut other, &blocks(&mut one)).added, 1);
    assert_eq!(other.peers(1).keys().copied().collect::<Vec<_>>(), [address(1, false)]);
    assert_eq!(refused(&other), [("network_denied", 1), ("port_denied", 1), ("torrent_denied", 1)]);
}

#[test]
fn private_networks_are_kept_apart_as_the_adopting_node_says() {
    let with = |secret, private| {
        let mut config = Config::default();
        config.address.private = Auto::Set(private);
        Node::with(&settings(secret), config)
    };
    let peers = ["10.1.2.3:1", "10.1.2.4:2", "192.168.0.1:3", "[fd00::1]:4", "77.1.2.3:5", "[2001:db8::1]:6"];
    let kinds = [PrivateAddresses::Serve, PrivateAddresses::Apart, PrivateAddresses::Refuse];
    for from in &kinds[..2] {
        for (to, public, total) in [(kinds[0], [4, 2], 6), (kinds[1], [1, 1], 6), (kinds[2], [1, 1], 2)] {
            let (mut one, mut other) = (with(1, *from), with(2, to));
            for peer in peers {
                one.announce_udp(Announced { address: peer.parse().unwrap(), ..leecher(1) });
            }
            let adopted = adopt(&mut other, &blocks(&mut one));
            assert_eq!(adopted.added, total);
            assert_eq!(other.store.counts(&hash(1)).map(|counts| counts.leechers), public);
            // They are the same swarms in which announces of this node find them.
            for peer in peers.into_iter().filter(|_| to != PrivateAddresses::Refuse) {
                let address = peer.parse().unwrap();
                other.announce_udp(Announced { address, event: Event::Stopped, ..leecher(1) });
            }
            let left: u64 = other.store.totals().iter().map(|totals| totals.leechers).sum();
            assert_eq!(left, if to == PrivateAddresses::Refuse { 2 } else { 0 });
        }
    }
}

#[test]
fn ages_are_those_of_the_other_node() {
    let mut one = Node::new(1);
    one.announce_udp(leecher(1));
    one.pass(1000);
    one.announce_udp(leecher(2));
    let blocks = blocks(&mut one);
    // The clock of another machine has another start.
    let mut other = Node::new(2);
    other.pass(77_777);
    adopt(&mut other, &blocks);
    let ages: Vec<u32> = other.peers(1).into_values().map(|(_, age_s)| age_s).collect();
    assert!((1000..1150).contains(&ages[0]) && ages[1] < 150, "{ages:?}");
    // A node whose timeout is shorter has no use for peers of that age.
    let mut config = Config::default();
    config.announce.peer_timeout_s = 900;
    let settings = shoal_store::Settings { peer_timeout_s: 900, ..settings(3) };
    let mut third = Node::with(&settings, config);
    assert_eq!((adopt(&mut third, &blocks).overdue, third.peers(1).len()), (1, 1));
    assert_eq!(one.store.counts(&hash(1))[0], Counts { leechers: 2, ..Counts::default() });
    one.pass(TIMEOUT_S);
    assert!(adopt(&mut Node::new(4), &self::blocks(&mut one)).added == 0, "overdue peers are not exported");
}

#[test]
fn a_damaged_block_is_refused() {
    let mut one = busy(1, 1);
    let block = blocks(&mut one).remove(0);
    let mut other = Node::new(2);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let mut damaged = block.clone();
        let index = rng.usize(..damaged.len());
        if rng.bool() {
            damaged[index] ^= 1 << rng.u8(..8);
        } else {
            damaged.truncate(index);
        }
        assert_eq!(other.replica_now().adopt(&damaged), Err(Damaged));
    }
    let too_long = [block.clone(), vec![0; BLOCK_BYTES_MAX]].concat();
    assert_eq!(other.replica_now().adopt(&too_long), Err(Damaged));
    assert_eq!(other.store.totals()[0].swarms, 0);
    assert!(other.replica_now().adopt(&block).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_content_is_harmless(content in prop::collection::vec(any::<u8>(), 0..300), family in 3..8_u8) {
        let mut block = b"SHR1".to_vec();
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&TIMEOUT_S.to_le_bytes());
        block.extend_from_slice(&[family, 0, 0, 0]);
        block.extend_from_slice(&content);
        let crc = crc32fast::hash(&block[8..]);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
        // Its result is of no interest; it must not panic.
        let _ = Node::new(1).replica_now().adopt(&block);
    }
}
