//! Learns which peers are neighbours in a table, since replies are runs of neighbours.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

use crate::siege::context::Context;
use crate::siege::udp::{Announce, UdpClient, announce_all, leecher};

/// The swarm whose order is learned.
const LEARNED_FROM: [u8; 20] = [0x50; 20];

/// The minimum number of times that two ports were adjacent in replies.
const ADJACENT_MIN: u32 = 2;

/// The number of peers in all replies for each port, enough to see most neighbours several times.
const PEERS_PER_PORT: usize = 10;

/// Announces `ports` ports in one swarm and returns `count` of them that are neighbours in its order. If replies do not
/// reveal enough, the rest is random.
pub(super) fn learn(context: &Context<'_>, client: &mut UdpClient, ports: u16, count: usize) -> Vec<u16> {
    let all = (1..=ports).map(|port| leecher(LEARNED_FROM, port));
    context.spend_flow(announce_all(client, all, || context.is_over(), |_| {}));
    let mut pairs = HashMap::new();
    // A reply over IPv6 contains a third of the peers.
    let num_want = if client.is_v6() { 67 } else { 200 };
    let requests = (0..usize::from(ports) * PEERS_PER_PORT / num_want)
        .map(|_| Announce { numwant: 200, ..leecher(LEARNED_FROM, fastrand::u16(1..=ports)) });
    let on_peers = |peers: &[SocketAddr]| count_pairs(&mut pairs, peers);
    context.spend_flow(announce_all(client, requests, || context.is_over(), on_peers));
    let mut found = cluster(&pairs, count);
    let known: HashSet<u16> = found.iter().copied().collect();
    let rest = random_ports(ports, usize::from(ports)).into_iter().filter(|port| !known.contains(port));
    let missing = count.saturating_sub(found.len());
    found.extend(rest.take(missing));
    found
}

/// Returns `count` different ports in a random order.
pub(super) fn random_ports(ports: u16, count: usize) -> Vec<u16> {
    let mut all: Vec<u16> = (1..=ports).collect();
    fastrand::shuffle(&mut all);
    all.truncate(count);
    all
}

/// Counts the adjacent ports in a reply.
fn count_pairs(pairs: &mut HashMap<[u16; 2], u32>, peers: &[SocketAddr]) {
    for pair in peers.windows(2) {
        let [one, other] = [pair[0].port(), pair[1].port()];
        *pairs.entry([one.min(other), one.max(other)]).or_default() += 1;
    }
}

/// Walks from neighbour to neighbour, breadth first, from the most frequent pair.
fn cluster(pairs: &HashMap<[u16; 2], u32>, count: usize) -> Vec<u16> {
    let mut neighbours: HashMap<u16, Vec<u16>> = HashMap::new();
    for (&[one, other], _) in pairs.iter().filter(|(_, times)| **times >= ADJACENT_MIN) {
        neighbours.entry(one).or_default().push(other);
        neighbours.entry(other).or_default().push(one);
    }
    let Some((&[start, _], _)) = pairs.iter().max_by_key(|(_, times)| **times) else {
        return Vec::new();
    };
    let (mut found, mut known) = (Vec::new(), HashSet::from([start]));
    let mut waiting = VecDeque::from([start]);
    while let Some(port) = waiting.pop_front() {
        found.push(port);
        if found.len() == count {
            break;
        }
        let others = neighbours.get(&port).into_iter().flatten();
        waiting.extend(others.copied().filter(|&other| known.insert(other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_neighbours_reveal_a_range_of_the_order() {
        fastrand::seed(1);
        let order = random_ports(4000, 4000);
        let mut pairs = HashMap::new();
        for _ in 0..1000 {
            let mut reply = Vec::new();
            for _ in 0..10 {
                let start = fastrand::usize(..order.len() - 20);
                reply.extend(
                    order[start..start + 20].iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))),
                );
            }
            count_pairs(&mut pairs, &reply);
        }
        let found = cluster(&pairs, 200);
        assert_eq!(found.len(), 200);
        // Apart from a few errors, the ports lie within a tenth of the order.
        let position = |port: &u16| order.iter().position(|other| other == port).unwrap();
        let mut positions: Vec<usize> = found.iter().map(position).collect();
        positions.sort_unstable();
        let narrowest = positions.windows(100).map(|window| window[99] - window[0]).min().unwrap();
        assert!(narrowest < 400, "{narrowest}");
    }
}
