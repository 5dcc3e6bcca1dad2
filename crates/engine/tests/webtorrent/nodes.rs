//! Clients of different nodes of a cluster.

use std::net::IpAddr;
use std::sync::Arc;

use shoal_base::Presence;
use shoal_config::Config;
use shoal_engine::replication::RecordedDeltas;
use shoal_engine::webtorrent::{ForwardedMessage, Nodes, RefusedRemotePeer};
use shoal_relay::{Mailboxes, Settings, Swarms};

use crate::harness::{
    Client, HASH, Tracker, answer, answer_heard, hash, leecher, offer_heard, offers, relay_settings, reply,
    seeder, v4,
};

/// Some nodes, with two workers each.
struct Cluster {
    nodes: Vec<Node>,
    /// Whether they tell each other of their peers.
    is_telling: bool,
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
            config.announce.interval_jitter_s = 0;
            let mut tracker = Tracker::with(2, &config, Arc::clone(&swarms), &mailboxes);
            let recorded = tracker.take_recorded();
            Node { tracker, clients: Nodes::new(swarms, mailboxes), recorded }
        };
        Self { nodes: (0..nodes).map(node).collect(), is_telling: true }
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
        clients.exchange(|to, bytes| messages.push((to, bytes.to_vec())), |_| {});
        let id = from as u64;
        for (to, bytes) in messages {
            let other = &mut self.nodes[usize::try_from(to).unwrap()];
            other.clients.deliver(id, &bytes, now_s);
        }
        for (to, other) in self.nodes.iter_mut().enumerate().filter(|(to, _)| *to != from && self.is_telling)
        {
            assert_ne!(to, from);
            other.clients.apply(id, &presences, |info_hash| info_hash.0[0] != b'f', now_s);
        }
        // The workers receive what was delivered.
        for Node { tracker, clients, .. } in &mut self.nodes {
            clients.exchange(|_, _| panic!("it was sent before"), |_| {});
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
    // They are dropped at the node of their sender.
    assert_eq!(cluster.nodes[0].clients.counters().messages.of(ForwardedMessage::Unwanted).read(), 0);
    // All nodes count both peers.
    for node in &cluster.nodes {
        let counts = node.tracker.swarms.scrape(&node.tracker.swarms.swarm_key(&hash(HASH)));
        assert_eq!((counts.seeders, counts.leechers), (1, 1));
    }
}

/// The batch that tells of a peer leaves some milliseconds after an offer of it.
#[test]
fn an_answer_finds_its_way_before_the_peer_is_told_of() {
    let mut cluster = Cluster::new(2);
    let (mut one, mut other) = (cluster.connect(0, 0, v4(1)), cluster.connect(1, 1, v4(2)));
    cluster.say(1, &mut other, &leecher(2, ""));
    cluster.is_telling = false;
    cluster.say(0, &mut one, &seeder(1, &format!(r#","offers":{}"#, offers("x", 1))));
    assert_eq!(cluster.received(1, &other), [reply(0, 1), offer_heard(1, "x-0")]);
    cluster.say(1, &mut other, &answer(2, 1, "x-0"));
    assert_eq!(cluster.received(0, &one), [reply(1, 1), answer_heard(2, "x-0")]);
    // The offer has told of it, but not of its role.
    let swarms = &cluster.nodes[1].tracker.swarms;
    let counts = swarms.scrape(&swarms.swarm_key(&hash(HASH)));
    assert_eq!(counts.seeders + counts.leechers, 2);
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
fn one_peer_id_at_two_nodes_is_two_peers_and_the_older_one_is_pinged() {
    let mut cluster = Cluster::new(2);
    let (mut one, mut other) = (cluster.connect(0, 0, v4(1)), cluster.connect(1, 0, v4(1)));
    let mut third = cluster.connect(0, 1, v4(3));
    cluster.say(0, &mut third, &leecher(3, ""));
    cluster.say(0, &mut one, &leecher(1, &format!(r#","offers":{}"#, offers("x", 1))));
    cluster.say(1, &mut other, &leecher(1, &format!(r#","offers":{}"#, offers("y", 5))));
    assert_eq!(cluster.received(1, &other), [reply(0, 3)]);
    cluster.received(0, &one);
    assert!(cluster.nodes[0].tracker.is_pinged(&one) && !cluster.nodes[1].tracker.is_pinged(&other));
    assert_eq!(cluster.received(0, &third), [reply(0, 1), offer_heard(1, "x-0"), offer_heard(1, "y-0")]);
    for offer_id in ["y-0", "x-0", "y-0", "x-0"] {
        cluster.say(0, &mut third, &answer(3, 1, offer_id));
    }
    assert_eq!(cluster.received(0, &one), [answer_heard(3, "x-0")]);
    assert_eq!(cluster.received(1, &other), [answer_heard(3, "y-0")]);
}

#[test]
fn other_nodes_know_one_peer_of_each_id_at_a_node() {
    let mut cluster = Cluster::new(2);
    let [mut one, mut other] = [1, 2].map(|n| cluster.connect(0, 0, v4(n)));
    let mut far = cluster.connect(1, 0, v4(3));
    cluster.say(0, &mut one, &leecher(1, ""));
    cluster.say(0, &mut other, &leecher(1, ""));
    cluster.say(1, &mut far, &leecher(3, ""));
    assert_eq!(cluster.received(1, &far), [reply(0, 2)]);
    // The second one leaves: nothing changes for the other node.
    cluster.say(0, &mut other, &leecher(1, r#","event":"stopped""#));
    cluster.say(0, &mut other, &leecher(1, ""));
    cluster.say(1, &mut far, &leecher(3, &format!(r#","offers":{}"#, offers("x", 2))));
    assert_eq!(cluster.received(1, &far), [reply(0, 2)]);
    assert_eq!(cluster.received(0, &one).last(), Some(&offer_heard(3, "x-0")));
    // The first one leaves. The second one takes its place with its next announce.
    cluster.nodes[0].tracker.leave(one);
    cluster.exchange();
    cluster.say(1, &mut far, &leecher(3, ""));
    assert_eq!(cluster.received(1, &far), [reply(0, 1)]);
    cluster.say(0, &mut other, &leecher(1, ""));
    cluster.say(1, &mut far, &leecher(3, &format!(r#","offers":{}"#, offers("y", 2))));
    assert_eq!(cluster.received(1, &far), [reply(0, 2)]);
    assert_eq!(cluster.received(0, &other).last(), Some(&offer_heard(3, "y-0")));
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
