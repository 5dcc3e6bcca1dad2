//! Announces that become deltas.

use shoal_base::transport::datagram::BATCH_MAX;
use shoal_base::{Action, Delta, Event, InfoHash};
use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_engine::replication::DELTAS_MAX;

use crate::node::{Announced, Node, TIMEOUT_S, address, hash, settings};

/// The ways to announce.
const PROTOCOLS: [fn(&mut Node, Announced); 2] = [Node::announce_udp, Node::announce_http];

fn leecher(is_v6: bool) -> Announced {
    Announced { info_hash: hash(1), address: address(1, is_v6), event: Event::Started, left: 1 }
}

/// Announces as the steps say, and returns the actions that are recorded after each.
fn actions(
    node: &mut Node,
    announce: fn(&mut Node, Announced),
    announced: Announced,
) -> Vec<(InfoHash, Action)> {
    announce(node, announced);
    let deltas = node.take();
    for delta in &deltas {
        let Delta { ip, port, .. } = *delta;
        assert_eq!((ip, port), (announced.address.ip(), announced.address.port()));
    }
    deltas.into_iter().map(|delta| (delta.info_hash, delta.action)).collect()
}

#[test]
fn changes_over_both_protocols_and_families_are_recorded_once() {
    for (announce, is_v6) in PROTOCOLS.into_iter().flat_map(|announce| [(announce, false), (announce, true)])
    {
        let mut node = Node::new(1);
        let start = leecher(is_v6);
        let update = Announced { event: Event::Update, ..start };
        let seed = Announced { left: 0, ..update };
        let complete = Announced { event: Event::Completed, ..seed };
        let stop = Announced { event: Event::Stopped, ..start };
        let steps = [
            (stop, None),
            (start, Some(Action::Leech)),
            (start, None),
            (update, None),
            (complete, Some(Action::Complete)),
            (complete, None),
            (seed, None),
            (update, Some(Action::Leech)),
            (complete, Some(Action::Seed)),
            (stop, Some(Action::Stop)),
            (stop, None),
        ];
        for (number, (announced, expected)) in steps.into_iter().enumerate() {
            let expected: Vec<_> = expected.into_iter().map(|action| (hash(1), action)).collect();
            assert_eq!(actions(&mut node, announce, announced), expected, "step {number}");
        }
        assert_eq!(node.lost(), 0);
    }
}

#[test]
fn a_peer_that_announces_often_is_recorded_a_few_times_in_a_timeout() {
    for announce in PROTOCOLS {
        let mut node = Node::new(1);
        let mut count = 0;
        for _ in 0..2 * TIMEOUT_S / 60 {
            count += actions(&mut node, announce, leecher(false)).len();
            node.pass(60);
        }
        assert!((8..=9).contains(&count), "{count} in two timeouts, with the first");
    }
}

#[test]
fn a_peer_that_announces_once_an_interval_is_recorded_every_time() {
    for announce in PROTOCOLS {
        let mut node = Node::new(1);
        for _ in 0..5 {
            assert_eq!(actions(&mut node, announce, leecher(false)), [(hash(1), Action::Leech)]);
            node.pass(1200);
        }
    }
}

#[test]
fn peers_of_private_networks_are_recorded_as_others() {
    for (announce, private) in PROTOCOLS
        .into_iter()
        .flat_map(|announce| [(announce, PrivateAddresses::Apart), (announce, PrivateAddresses::Serve)])
    {
        let mut config = Config::default();
        config.address.private = Auto::Set(private);
        let mut node = Node::with(&settings(1), config);
        let announced = Announced { address: "10.1.2.3:6881".parse().unwrap(), ..leecher(false) };
        assert_eq!(actions(&mut node, announce, announced), [(hash(1), Action::Leech)]);
        assert_eq!(actions(&mut node, announce, announced), []);
        let stop = Announced { event: Event::Stopped, ..announced };
        assert_eq!(actions(&mut node, announce, stop), [(hash(1), Action::Stop)]);
    }
}

#[test]
fn peers_that_enter_no_swarm_are_not_recorded() {
    for announce in PROTOCOLS {
        let mut node = Node::new(1);
        let mut announced = leecher(false);
        announced.address.set_port(0);
        assert_eq!(actions(&mut node, announce, announced), []);
    }
}

#[test]
fn peers_beyond_a_limit_are_recorded_only_if_their_network_is_exempt() {
    for (announce, exempt) in PROTOCOLS.into_iter().flat_map(|announce| [(announce, false), (announce, true)])
    {
        let mut config = Config::default();
        if exempt {
            config.limits.exempt = vec!["77.1.0.0/16".parse().unwrap()];
        }
        let settings = shoal_store::Settings { peers_per_source_max: 2, ..settings(1) };
        let mut node = Node::with(&settings, config);
        let mut count = 0;
        for port in 1..=4 {
            let mut announced = leecher(false);
            announced.address.set_port(port);
            count += actions(&mut node, announce, announced).len();
        }
        assert_eq!(count, if exempt { 4 } else { 2 });
    }
}

#[test]
fn a_batch_is_recorded_in_the_order_of_each_swarm() {
    let mut node = Node::new(1);
    let announces: Vec<Announced> = (0..64)
        .map(|number: u16| Announced {
            event: if number % 8 < 4 { Event::Started } else { Event::Stopped },
            ..Announced { info_hash: hash(number % 4), ..leecher(false) }
        })
        .collect();
    assert_eq!(announces.len(), BATCH_MAX);
    node.announce_batch(&announces);
    let deltas = node.take();
    assert_eq!(deltas.len(), 64);
    for number in 0..4 {
        let of_swarm = deltas.iter().filter(|delta| delta.info_hash == hash(number));
        let actions: Vec<Action> = of_swarm.map(|delta| delta.action).collect();
        assert_eq!(actions, [Action::Leech, Action::Stop].repeat(8));
    }
}

#[test]
fn a_ring_that_is_not_read_loses_deltas_and_the_announces_are_answered() {
    let mut node = Node::new(1);
    let mut batch = Vec::new();
    for number in 0..=u16::MAX {
        batch.push(Announced { address: address(number, false), ..leecher(false) });
        if batch.len() == BATCH_MAX {
            node.announce_batch(&batch);
            batch.clear();
        }
    }
    assert_eq!(node.take().len(), DELTAS_MAX);
    assert_eq!(node.lost(), (1 << 16) - DELTAS_MAX as u64);
}
