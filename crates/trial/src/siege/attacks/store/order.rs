//! Attacks that use the order of a table.

use std::collections::HashSet;
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use shoal_base::Event;
use shoal_wire::http::bencode::{self, Value};

use super::learning::{learn, random_ports};
use crate::measure::as_f64;
use crate::siege::address::{honest_v4, hostile_v4};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, get_and_close};
use crate::siege::udp::{Announce, Flow, UdpClient, announce_all, leecher, random_hash};

/// A workload of neighbouring keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// The peers join one after another.
    Join,
    /// The peers announce again.
    Reannounce,
    /// Some of the peers leave and return.
    LeaveAndReturn,
}

/// The ports of one slot of a source, in a store that accepts 64 peers of an address in one swarm: there are 16 slots, and
/// the lowest bits of the port select one.
const PORTS_OF_A_SLOT: [u16; 8] = [16, 32, 48, 64, 80, 96, 112, 128];

/// Announces ports that are neighbours in the order of another swarm, and as many random ones for comparison.
pub(super) fn neighbours(context: &Context<'_>, source: IpAddr, workload: Workload) -> Result<()> {
    let mut client = context.udp(source)?;
    let (ports, count) = context.pick((12_000, 3_000), (64_000, 16_000));
    let learned = learn(context, &mut client, ports, count);
    let random = random_ports(ports, learned.len());
    let ordinary_ns = cost(context, &mut client, [0x51; 20], &random, workload);
    let attack_ns = cost(context, &mut client, [0x52; 20], &learned, workload);
    check_ratio(context, ordinary_ns, attack_ns);
    Ok(())
}

/// Checks the ratio of the cost of an announce to that with random keys. Both are processor time, not latency; in short
/// mode both are so short that other programs influence them.
fn check_ratio(context: &Context<'_>, ordinary_ns: f64, attack_ns: f64) {
    let ratio = attack_ns / ordinary_ns.max(1.0);
    context.check(
        "CPU of an announce",
        ratio <= context.pick(8.0, 3.0),
        format!("{:.1} µs, {:.1} µs for random keys", attack_ns / 1000.0, ordinary_ns / 1000.0),
    );
}

/// Returns the tracker's processor time for each announce of these ports, in nanoseconds.
fn cost(
    context: &Context<'_>,
    client: &mut UdpClient,
    hash: [u8; 20],
    ports: &[u16],
    workload: Workload,
) -> f64 {
    let join = || ports.iter().map(move |&port| leecher(hash, port));
    if workload != Workload::Join {
        context.spend_flow(announce_all(client, join(), || context.is_over(), |_| {}));
    }
    // A table shrinks and grows in steps of about a sixth.
    let some = &ports[..ports.len() / 5];
    let event = |event: Event| some.iter().map(move |&port| Announce { event, ..leecher(hash, port) });
    let before_ns = context.tracker.cpu_ns();
    let mut flow = Flow::default();
    let rounds = if workload == Workload::Join { 1 } else { context.pick(2, 8) };
    for _ in 0..rounds {
        match workload {
            Workload::Join | Workload::Reannounce => {
                flow.add(announce_all(client, join(), || context.is_over(), |_| {}))
            }
            Workload::LeaveAndReturn => {
                flow.add(announce_all(client, event(Event::Stopped), || context.is_over(), |_| {}));
                flow.add(announce_all(client, event(Event::Started), || context.is_over(), |_| {}));
            }
        }
    }
    context.spend_flow(flow);
    as_f64(context.tracker.cpu_ns().saturating_sub(before_ns)) / as_f64(flow.sent.max(1))
}

/// Reads the order of torrents from the full scrape, and announces only torrents from some ranges of it.
pub(super) fn table_of_swarms(context: &Context<'_>) -> Result<()> {
    // Several addresses avoid the limit of one source.
    let mut clients = Vec::new();
    for number in 1..=8 {
        clients.push(context.udp(hostile_v4(number))?);
    }
    let count: u32 = context.pick(48_000, 400_000);
    let torrents: Vec<[u8; 20]> = (0..count).map(|_| random_hash()).collect();
    announce_torrents(context, &mut clients, &torrents, Event::Started);
    let order = full_scrape(context, &torrents)?;
    announce_torrents(context, &mut clients, &torrents, Event::Stopped);
    // A quarter of each thirty-second part, so that each table of the store is concerned: they are listed one after
    // another.
    let parts = order.chunks((order.len() / 32).max(1));
    let chosen: Vec<[u8; 20]> = parts.flat_map(|part| &part[..part.len() / 4]).copied().collect();
    let random: Vec<[u8; 20]> = (0..chosen.len()).map(|_| random_hash()).collect();
    let ordinary_ns = torrents_cost(context, &mut clients, &random);
    announce_torrents(context, &mut clients, &random, Event::Stopped);
    let attack_ns = torrents_cost(context, &mut clients, &chosen);
    check_ratio(context, ordinary_ns, attack_ns);
    Ok(())
}

/// Finds torrents of one segment of a table of swarms, whose keys begin with more equal bits after each round, and lets
/// them leave and return, so that the segment is split and merged again and again.
pub(super) fn split_and_merge(context: &Context<'_>) -> Result<()> {
    let mut clients = Vec::new();
    for number in 1..=8 {
        clients.push(context.udp(hostile_v4(number))?);
    }
    let mut crowd = Vec::new();
    for _ in 0..context.pick(2, 5) {
        let fresh = (0..context.pick(16_000, 100_000)).map(|_| random_hash());
        let torrents: Vec<[u8; 20]> = crowd.iter().copied().chain(fresh).collect();
        announce_torrents(context, &mut clients, &torrents, Event::Started);
        let order = full_scrape(context, &torrents)?;
        announce_torrents(context, &mut clients, &torrents, Event::Stopped);
        let crowded: HashSet<[u8; 20]> = crowd.iter().copied().collect();
        // The torrents of a segment are listed in the order of their info hashes, so a descent begins the next one.
        let segments = order.chunk_by(|one, next| one < next);
        let of_crowd = |segment: &&[[u8; 20]]| segment.iter().filter(|hash| crowded.contains(*hash)).count();
        let best = segments.max_by_key(|segment| (of_crowd(segment), segment.len())).unwrap_or_default();
        crowd = best.to_vec();
    }
    ensure!(crowd.len() >= 64, "only {} torrents share a segment", crowd.len());
    let random: Vec<[u8; 20]> = (0..crowd.len()).map(|_| random_hash()).collect();
    let mut cost = |torrents: &[[u8; 20]]| {
        let before_ns = context.tracker.cpu_ns();
        let mut flow = Flow::default();
        for _ in 0..context.pick(20, 200) {
            flow.add(announce_torrents(context, &mut clients, torrents, Event::Started));
            flow.add(announce_torrents(context, &mut clients, torrents, Event::Stopped));
        }
        as_f64(context.tracker.cpu_ns().saturating_sub(before_ns)) / as_f64(flow.sent.max(1))
    };
    let (ordinary_ns, attack_ns) = (cost(&random), cost(&crowd));
    check_ratio(context, ordinary_ns, attack_ns);
    Ok(())
}

/// Lets peers leave and return of which eight share their lines, from each of many sources. A segment of such peers often
/// finds no place in fewer lines.
pub(super) fn crowded_slots(context: &Context<'_>) -> Result<()> {
    let mut clients = Vec::new();
    for number in 1..=160 {
        clients.push(context.udp(hostile_v4(number))?);
    }
    let mut cost = |hash: [u8; 20], ports: &dyn Fn() -> [u16; 8]| {
        let ports: Vec<[u16; 8]> = clients.iter().map(|_| ports()).collect();
        let announce = |client: &mut UdpClient, ports: &[u16; 8], event| {
            let peers = ports.map(|port| Announce { event, ..leecher(hash, port) });
            announce_all(client, peers, || context.is_over(), |_| {})
        };
        for (client, ports) in clients.iter_mut().zip(&ports) {
            announce(client, ports, Event::Started);
        }
        let before_ns = context.tracker.cpu_ns();
        let mut flow = Flow::default();
        for _ in 0..context.pick(5, 60) {
            for (client, ports) in clients.iter_mut().zip(&ports) {
                flow.add(announce(client, ports, Event::Stopped));
                flow.add(announce(client, ports, Event::Started));
            }
        }
        context.spend_flow(flow);
        as_f64(context.tracker.cpu_ns().saturating_sub(before_ns)) / as_f64(flow.sent.max(1))
    };
    let ordinary_ns = cost([0x53; 20], &|| [(); 8].map(|()| fastrand::u16(1..)));
    let attack_ns = cost([0x54; 20], &|| PORTS_OF_A_SLOT);
    check_ratio(context, ordinary_ns, attack_ns);
    Ok(())
}

/// Returns these torrents in the order of the full scrape.
fn full_scrape(context: &Context<'_>, torrents: &[[u8; 20]]) -> Result<Vec<[u8; 20]>> {
    // The attacker ignores honest torrents in the list.
    let own: HashSet<[u8; 20]> = torrents.iter().copied().collect();
    let source = honest_v4(9);
    let mut client = HttpClient::open(source, context.http(source), None, TIMEOUT * 5)?;
    let response = client.request(&get_and_close("/scrape"))?;
    ensure!(response.status == 200, "the full scrape has status {}", response.status);
    let listed = hashes(&response.body)?.into_iter();
    let order: Vec<[u8; 20]> = listed.filter(|hash| own.contains(hash)).collect();
    ensure!(order.len() * 2 >= torrents.len(), "the full scrape has only {} torrents", order.len());
    Ok(order)
}

/// Returns the tracker's processor time for each announce of these torrents, in nanoseconds.
fn torrents_cost(context: &Context<'_>, clients: &mut [UdpClient], torrents: &[[u8; 20]]) -> f64 {
    let before_ns = context.tracker.cpu_ns();
    let flow = announce_torrents(context, clients, torrents, Event::Started);
    as_f64(context.tracker.cpu_ns().saturating_sub(before_ns)) / as_f64(flow.sent.max(1))
}

fn announce_torrents(
    context: &Context<'_>,
    clients: &mut [UdpClient],
    torrents: &[[u8; 20]],
    event: Event,
) -> Flow {
    let part = torrents.len().div_ceil(clients.len()).max(1);
    let mut flow = Flow::default();
    for (client, torrents) in clients.iter_mut().zip(torrents.chunks(part)) {
        let peers = torrents.iter().map(|&hash| Announce { event, ..leecher(hash, 6000) });
        flow.add(announce_all(client, peers, || context.is_over(), |_| {}));
    }
    context.spend_flow(flow);
    flow
}

/// Returns each info hash of a full scrape (BEP 48).
fn hashes(body: &[u8]) -> Result<Vec<[u8; 20]>> {
    let scrape = bencode::decode(body)?.dictionary();
    let files = scrape.and_then(|scrape| scrape.get(b"files")).and_then(Value::dictionary);
    let hashes = files.context("no torrents in the full scrape")?.iter();
    hashes.map(|(hash, _)| hash.try_into().context("an info hash of another length")).collect()
}

#[cfg(test)]
mod tests {
    use super::hashes;

    #[test]
    fn hashes_of_a_full_scrape_are_in_order() {
        let entry = |byte: u8| {
            [b"20:".as_slice(), &[byte; 20], b"d8:completei0e10:downloadedi0e10:incompletei1ee"].concat()
        };
        let body = [b"d5:filesd".as_slice(), &entry(b'z'), &entry(b'2'), b"ee"].concat();
        assert_eq!(hashes(&body).unwrap(), [[b'z'; 20], [b'2'; 20]]);
    }
}
