//! One swarm over several nodes: real trackers, real NATS servers, and clients of every protocol.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::json;
use shoal_base::Event;
use shoal_testkit::nats::{Cluster, Options, Server};

use crate::cluster::{start, wait_for_nodes};
use crate::http::Way;
use crate::kit::browser::{Browser, announce, answer, name};
use crate::kit::client::{Announce, COMPLETED, Client, STOPPED};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web;

pub(crate) const TORRENT: [u8; 20] = [0x5c; 20];

/// Three nodes at three servers.
pub(crate) struct Nodes {
    pub(crate) nats: Cluster,
    pub(crate) trackers: Vec<Tracker>,
}

impl Nodes {
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let nats = Cluster::start(&Options::default()).expect("the servers start");
        let names = ["one", "three", "two"];
        let trackers: Vec<_> = names
            .iter()
            .zip(&nats.servers)
            .map(|(name, server)| start(name, &server.url(), settings))
            .collect();
        for (tracker, name) in trackers.iter().zip(names) {
            let others: Vec<&str> = names.into_iter().filter(|other| *other != name).collect();
            wait_for_nodes(tracker, &others, "ready");
        }
        Self { nats, trackers }
    }
}

/// The ports of the peers that a node hands out over UDP to a peer that does not stay.
pub(crate) fn ports(tracker: &Tracker) -> BTreeSet<u16> {
    let visitor = Announce { event: STOPPED, ..Announce::leecher(TORRENT, 9) };
    let client = Client::new(tracker.udp[0]);
    let handed = client.announce(&Announce { event: Event::Update, ..visitor });
    client.announce(&visitor);
    handed.peers.iter().map(SocketAddr::port).filter(|port| *port != 9).collect()
}

pub(crate) fn wait_for_ports(tracker: &Tracker, expected: &[u16]) {
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    eventually("the node hands out these peers", || (ports(tracker) == expected).then_some(()));
}

#[test]
fn a_peer_that_announces_at_one_node_is_handed_out_by_all() {
    let nodes = Nodes::start(&[]);
    let [one, two, three] = &nodes.trackers[..] else { panic!("three nodes") };
    Client::new(one.udp[0]).announce(&Announce::leecher(TORRENT, 1001));
    let mut web = Way::PLAIN.connect(two);
    web.get(&web::announce(TORRENT, 1002, "&left=5"));
    for tracker in [one, two, three] {
        wait_for_ports(tracker, &[1001, 1002]);
    }
    // It completes at another node than it has begun at, and its download is counted once everywhere.
    for completed_at in [three, one] {
        let completed = Announce { event: COMPLETED, ..Announce::seeder(TORRENT, 1001) };
        Client::new(completed_at.udp[0]).announce(&completed);
        for tracker in &nodes.trackers {
            eventually("the node counts it", || {
                let [counts] = Client::new(tracker.udp[0]).scrape(&[TORRENT])[..] else {
                    panic!("one torrent")
                };
                ((counts.seeders, counts.completed) == (1, 1)).then_some(())
            });
        }
    }
    // Changes at one node stay in their order.
    Client::new(one.udp[0]).announce(&Announce { event: STOPPED, ..Announce::leecher(TORRENT, 1001) });
    for tracker in &nodes.trackers {
        wait_for_ports(tracker, &[1002]);
    }
}

#[test]
fn a_node_that_joins_has_the_peers_of_before_when_it_is_ready() {
    let nats = Server::start(&Options::default()).expect("the server starts");
    // All peers have one address.
    let settings = [("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")];
    let one = start("one", &nats.url(), &settings);
    wait_for_nodes(&one, &[], "ready");
    let client = Client::new(one.udp[0]);
    client.announce_all((1..=500).map(|port| Announce::seeder(TORRENT, 1000 + port)));
    let mut browser = Browser::open(Way::PLAIN, &one);
    browser.ask(&announce('t', 'a', 0));
    let two = start("two", &nats.url(), &settings);
    eventually("it has joined", || {
        let page = two.page("/health/ready");
        assert!(page.status == 200 || page.body.contains(r#""joining":true"#), "{}", page.body);
        (page.status == 200).then_some(())
    });
    let [counts] = Client::new(two.udp[0]).scrape(&[TORRENT])[..] else { panic!("one torrent") };
    assert_eq!(counts.seeders, 500);
    let mut other = Browser::open(Way::PLAIN, &two);
    assert_eq!(other.ask(&announce('t', 'b', 0))["incomplete"], 2);
}

#[test]
fn browsers_at_different_nodes_exchange_offers_and_answers() {
    let nodes = Nodes::start(&[]);
    let [one, two, three] = &nodes.trackers[..] else { panic!("three nodes") };
    let [mut offerer, mut answerer] = [one, two].map(|tracker| Browser::open(Way::PLAIN, tracker));
    answerer.ask(&announce('t', 'b', 0));
    eventually("the presence arrives", || {
        (offerer.ask(&announce('t', 'a', 0))["incomplete"] == 2).then_some(())
    });
    offerer.ask(&announce('t', 'a', 1));
    let offer = answerer.receive();
    assert_eq!(offer["peer_id"], name('a'), "{offer}");
    answerer.send_json(&answer('b', &offer));
    let answer = offerer.receive();
    assert_eq!((&answer["peer_id"], answer["answer"].is_object()), (&json!(name('b')), true), "{answer}");
    // A connection that ends is gone everywhere.
    answerer.leave();
    let mut observer = Browser::open(Way::PLAIN, three);
    eventually("the node has forgotten it", || {
        let counts = observer.ask(&json!({"action": "scrape", "info_hash": name('t')}));
        (counts["files"][name('t')]["incomplete"] == 1).then_some(())
    });
}

#[test]
fn a_node_that_is_killed_takes_its_browsers_along_and_the_others_serve_on() {
    let mut nodes = Nodes::start(&[]);
    let mut lost = Browser::open(Way::PLAIN, &nodes.trackers[2]);
    lost.ask(&announce('t', 'a', 0));
    Client::new(nodes.trackers[2].udp[0]).announce(&Announce::seeder(TORRENT, 1001));
    for tracker in &nodes.trackers[..2] {
        wait_for_ports(tracker, &[1001]);
    }
    nodes.trackers.truncate(2);
    for tracker in &nodes.trackers {
        let mut browser = Browser::open(Way::PLAIN, tracker);
        eventually("the node has forgotten the browser of the other one", || {
            (browser.ask(&announce('u', 'c', 0)).is_object()
                && browser.ask(&json!({"action": "scrape", "info_hash": name('t')}))["files"][name('t')]["incomplete"]
                    == 0)
                .then_some(())
        });
        // Peers that have announced there are live all the same.
        wait_for_ports(tracker, &[1001]);
    }
}
