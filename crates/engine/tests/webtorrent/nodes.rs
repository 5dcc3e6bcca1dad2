//! Clients of different nodes of a cluster.

use std::net::IpAddr;
use std::sync::Arc;

use shoal_config::Config;
use shoal_engine::replication::RecordedDeltas;
use shoal_engine::webtorrent::{ForwardedMessage, Nodes, RefusedRemotePeer};
use shoal_relay::{Mailboxes, Settings, Swarms};
use shoal_types::Presence;

use crate::harness::{
    Client, HASH, Tracker, answer, answer_heard, failure, hash, leecher, offer_heard, offers, relay_settings,
    reply, seeder, v4,
};

/// Some nodes, with two workers each.
struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    tracker: Tracker,
    clients: Nodes,
    recorded: Vec<RecordedDeltas<Presence>>,
}

impl Cluster {
    fn new(nodes: u64) -> Self {
        let node = |number: u64| {
            let swarms = Arc::new(Swarms::new(&Settings { hash_key: [number, 7], ..relay_settings() }));
            let mailboxes = Mailboxes::with_remote(2, 1 << 20);
            let mut config = Config::default();
            config.webtorrent.interval_jitter_s = 0;
            let mut tracker = Tracker::with(2, &config, Arc::clone(&swarms), &mailboxes);
            let recorded = tracker.record();
            Node { tracker, clients: Nodes::new(swarms, mailboxes), recorded }
        };
        Self { nodes: (0..nodes).map(node).collect() }
    }

    /// Passes everything on that nodes have for each other, twice: an answer to what arrives is passed on as well.
    fn exchange(&mut self) {
        for _ in 0..3 {
            for from in 0..self.nodes.len() {
                self.exchange_of(from);
            }
        }
    }

    fn exchange_of(&mut self, from: usize) {
        let Node { tracker, clients, recorded } = &mut self.nodes[from];
        let now_s = tracker.now.monotonic_s;
        (0..2).for_each(|worker| _ = tracker.turn(worker));
        let mut presences = Vec::new();
        recorded
            .iter_mut()
            .for_each(|recorded| _ = recorded.drain(1000, |presence| presences.push(presence)));
        let mut messages = Vec::new();
        clients.exchange(now_s, |to, bytes| messages.push((to, bytes.to_vec())), |_| {});
        let id = from as u64;
        for (to, bytes) in messages {
            let other = &mut self.nodes[usize::try_from(to).unwrap()];
            other.clients.deliver(id, &bytes, now_s);
        }
        for (to, other) in self.nodes.iter_mut().enumerate().filter(|(to, _)| *to != from) {
            assert_ne!(to, from);
            other.clients.apply(id, &presences, |info_hash| info_hash.0[0] != b'f', now_s);
        }
        // The workers receive what was delivered.
        for Node { tracker, clients, .. } in &mut self.nodes {
            clients.exchange(now_s, |_, _| panic!("it was sent before"), |_| {});
            (0..2).for_each(|worker| _ = tracker.turn(worker));
        }
    }

    fn connect(&mut self, node: usize, worker: u16, ip: IpAddr) -> Client {
        self.nodes[node].tracker.connect_to(worker, ip)
    }

    fn say(&mut self, node: usize, client: &mut Client, message: &str) {
        self.nodes[node].tracker.say(client, message);
        self.exchange();
    }

    fn received(&mut self, node: usize, client: &Client) -> Vec<String> {
        self.nodes[node].tracker.received(client)
    }

    fn pass(&mut self, seconds: u32) {
        self.nodes.iter_mut().for_each(|node| node.tracker.pass(seconds));
        self.exchange();
    }
}

#[test]
fn an_offer_and_its_answer_cross_between_nodes_once() {
    let mut cluster = Cluster::new(3);
    let (mut one, mut other) = (cluster.connect(0, 0, v4(1)), cluster.connect(1, 1, v4(2)));
    cluster.say(1, &mut other, &leecher(2, ""));
    cluster.say(0, &mut one, &seeder(1, &format!(r#","offers":{}"#, offers("x", 2))));
    assert_eq!(cluster.received(0, &one), [reply(1, 1)]);
    assert_eq!(cluster.received(1, &other), [reply(0, 1), offer_heard(1, "x-0")]);
    for _ in 0..2 {
        cluster.say(1, &mut other, &answer(2, 1, "x-0"));
    }
    // No client awaits an answer to an offer that was not relayed.
    cluster.say(1, &mut other, &answer(2, 1, "x-1"));
    assert_eq!(cluster.received(0, &one), [answer_heard(2, "x-0")]);
    assert_eq!(cluster.nodes[0].clients.counters().messages.of(ForwardedMessage::Unwanted).read(), 2);
    // All nodes count both peers.
    for node in &cluster.nodes {
        let counts = node.tracker.swarms.scrape(&node.tracker.swarms.swarm_key(&hash(HASH)));
        assert_eq!((counts.seeders, counts.leechers), (1, 1));
    }
}

#[test]
fn a_peer_that_leaves_or_whose_node_is_lost_is_gone_everywhere() {
    let mut cluster = Cluster::new(2);
    let (mut one, mut other) = (cluster.connect(0, 0, v4(1)), cluster.connect(1, 0, v4(2)));
    let mut third = cluster.connect(1, 1, v4(3));
    cluster.say(1, &mut other, &leecher(2, ""));
    cluster.say(1, &mut third, &leecher(3, ""));
    cluster.say(0, &mut one, &leecher(1, ""));
    assert_eq!(cluster.received(0, &one), [reply(0, 3)]);
    // It closes its connection.
    cluster.nodes[1].tracker.leave(other);
    cluster.exchange();
    cluster.say(0, &mut one, &leecher(1, ""));
    assert_eq!(cluster.received(0, &one), [reply(0, 2)]);
    cluster.say(1, &mut third, &leecher(3, r#","event":"stopped""#));
    cluster.say(0, &mut one, &leecher(1, ""));
    assert_eq!(cluster.received(0, &one), [reply(0, 1)]);
    cluster.say(1, &mut third, &leecher(3, ""));
    cluster.say(0, &mut one, &leecher(1, ""));
    assert_eq!(cluster.received(0, &one), [reply(0, 2)]);
    cluster.nodes[0].clients.forget(1);
    cluster.say(0, &mut one, &leecher(1, ""));
    assert_eq!(cluster.received(0, &one), [reply(0, 1)]);
}

#[test]
fn a_peer_id_of_a_live_connection_of_another_node_cannot_be_taken() {
    let mut cluster = Cluster::new(2);
    let (mut owner, mut thief) = (cluster.connect(0, 0, v4(1)), cluster.connect(1, 0, v4(2)));
    cluster.say(0, &mut owner, &leecher(1, ""));
    cluster.say(1, &mut thief, &leecher(1, ""));
    assert_eq!(cluster.received(1, &thief), [""; 0], "the claim waits");
    // The owner answers the ping.
    let tracker = &mut cluster.nodes[0].tracker;
    let [ping] = &tracker.pings(&owner)[..] else { panic!("it is pinged once") };
    tracker.pong(&owner, ping);
    for _ in 0..8 {
        cluster.pass(1);
    }
    let decided = cluster.nodes[1].tracker.decided(&mut thief);
    assert_eq!(decided, [failure("announce", Some(HASH), "another peer of this torrent has this peer_id")]);
}

#[test]
fn a_peer_id_of_a_dead_connection_of_another_node_is_given_away() {
    let mut cluster = Cluster::new(2);
    let (mut dead, mut new) = (cluster.connect(0, 0, v4(1)), cluster.connect(1, 0, v4(2)));
    cluster.say(0, &mut dead, &leecher(1, ""));
    cluster.say(1, &mut new, &leecher(1, ""));
    for _ in 0..8 {
        cluster.pass(1);
    }
    assert_eq!(cluster.nodes[1].tracker.decided(&mut new), [reply(0, 1)]);
    cluster.exchange();
    // Offers at the first node go to the new connection, too.
    let mut other = cluster.connect(0, 1, v4(3));
    cluster.say(0, &mut other, &leecher(3, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(cluster.received(1, &new), [offer_heard(3, "x-0")]);
}

#[test]
fn torrents_that_the_lists_forbid_are_left_out_and_garbage_is_counted() {
    let mut cluster = Cluster::new(2);
    let mut one = cluster.connect(0, 0, v4(1));
    let forbidden = crate::harness::announce("ffffffffffffffffffff", 1, r#""left":1"#);
    cluster.say(0, &mut one, &forbidden);
    assert_eq!(cluster.nodes[1].clients.counters().refused.of(RefusedRemotePeer::Torrent).read(), 1);
    assert_eq!(cluster.nodes[1].tracker.swarms.totals().leechers, 0);
    cluster.nodes[1].clients.deliver(0, b"garbage", 1000);
    assert_eq!(cluster.nodes[1].clients.counters().messages.of(ForwardedMessage::Malformed).read(), 1);
}
