//! Attacks on the tables of swarms and peers.

mod displacing;
mod filling;
mod holding;
mod learning;
mod order;
mod poisoning;

use std::net::IpAddr;
use std::thread;

use anyhow::Result;
use shoal_base::Event;

use crate::siege::address::{hostile_site_v6, hostile_v4, hostile_v6};
use crate::siege::attack::{Attack, Layer, Limits};
use crate::siege::context::Context;
use crate::siege::udp::{Announce, announce_all, leecher};

/// No limit on the entries of one address in a swarm, to attack the tables themselves.
const NO_ENTRY_LIMIT: &[(&str, &str)] = &[("announce.peers_per_address_max", "0"), NO_RATE, NO_HOLDINGS];

/// One address may ask and hold as much as it likes, to attack what protects others even so.
const NO_RATE: (&str, &str) = ("limits.udp_requests_per_s", "0");
const NO_HOLDINGS: (&str, &str) = ("limits.peers_per_source_max", "0");

/// A full scrape, which reveals the order of the table of swarms.
const FULL_SCRAPE: &[(&str, &str)] = &[("http.full_scrape", "true"), NO_RATE, NO_HOLDINGS];

/// A memory limit that one address can exhaust.
const LITTLE_MEMORY: &[(&str, &str)] = &[("store.memory_max", "8MiB"), NO_RATE, NO_HOLDINGS];

/// More workers than processors, so that a worker may lose its processor while it holds a lock.
const MANY_WORKERS: &[(&str, &str)] = &[("workers.count", "8")];

/// Peers that expire after seconds.
const SHORT_TIMEOUT: &[(&str, &str)] = &[
    ("announce.interval_s", "2"),
    ("announce.interval_jitter_s", "0"),
    ("announce.min_interval_s", "1"),
    ("announce.peer_timeout_s", "4"),
    ("announce.peers_per_address_max", "0"),
];

const fn store(
    name: &'static str,
    tries: &'static str,
    promise: &'static str,
    settings: &'static [(&'static str, &'static str)],
    run: fn(&Context<'_>) -> Result<()>,
) -> Attack {
    Attack { settings, limits: Limits::SWARMS_STAY, ..Layer::Store.attack(name, tries, promise, run) }
}

/// The promise about the cost of keys that are chosen by their order.
const AS_CHEAP: &str = "an announce costs at most 3 times as much as with random keys";

/// The promise about poisoned samples.
const FIVE_PER_CENT: &str =
    "at most 5 % of the peers in replies are hostile, in a swarm with 50 honest peers";

pub(super) const ATTACKS: &[Attack] = &[
    store(
        "learned-neighbours-v4",
        "one address learns the order of its ports in one swarm and announces neighbours in another",
        AS_CHEAP,
        NO_ENTRY_LIMIT,
        |context| order::neighbours(context, hostile_v4(1), order::Workload::Join),
    ),
    store("learned-neighbours-v6", "the same over IPv6", AS_CHEAP, NO_ENTRY_LIMIT, |context| {
        order::neighbours(context, hostile_v6(1), order::Workload::Join)
    }),
    store(
        "renewal-in-a-run",
        "peers of one long run announce again in a swarm of a fixed size",
        AS_CHEAP,
        NO_ENTRY_LIMIT,
        |context| order::neighbours(context, hostile_v4(1), order::Workload::Reannounce),
    ),
    store(
        "growth-and-shrinking-v4",
        "peers of one long run leave and come back, so that the table shrinks and grows",
        AS_CHEAP,
        NO_ENTRY_LIMIT,
        |context| order::neighbours(context, hostile_v4(1), order::Workload::LeaveAndReturn),
    ),
    store("growth-and-shrinking-v6", "the same over IPv6", AS_CHEAP, NO_ENTRY_LIMIT, |context| {
        order::neighbours(context, hostile_v6(1), order::Workload::LeaveAndReturn)
    }),
    store(
        "table-of-swarms",
        "the full scrape reveals the order of torrents; only neighbours are announced again",
        AS_CHEAP,
        FULL_SCRAPE,
        order::table_of_swarms,
    ),
    store(
        "split-and-merge",
        "full scrapes reveal torrents of one segment; these leave and return, so that it is split and merged",
        AS_CHEAP,
        FULL_SCRAPE,
        order::split_and_merge,
    ),
    store(
        "crowded-slots",
        "160 addresses have eight peers in the same two lines each, which leave and return",
        AS_CHEAP,
        &[],
        order::crowded_slots,
    ),
    store(
        "filling-one-address",
        "one address announces new torrents until the store is full",
        "new torrents of other sources are always accepted",
        LITTLE_MEMORY,
        |context| filling::fill(context, &[hostile_v4(1)]),
    ),
    store(
        "filling-one-prefix",
        "one IPv6 /48 announces new torrents from 256 /64 networks until the store is full",
        "new torrents of other sources are always accepted",
        LITTLE_MEMORY,
        |context| filling::fill(context, &(0..256).map(hostile_v6).collect::<Vec<_>>()),
    ),
    store(
        "filling-one-allocation",
        "one IPv6 /32 announces new torrents from 1,300 /48 networks until the store is full",
        "new torrents of other sources are always accepted",
        LITTLE_MEMORY,
        |context| filling::fill(context, &(0..1300).map(hostile_site_v6).collect::<Vec<_>>()),
    ),
    store(
        "filling-known-torrents",
        "one address fills the store with peers of a few torrents",
        "new torrents of other sources are always accepted",
        LITTLE_MEMORY,
        filling::fill_known,
    ),
    store(
        "displacing-counts",
        "one address completes ten times as many torrents as there is room for retained counts",
        "a popular torrent keeps its count, and the number of counts its limit",
        displacing::SETTINGS,
        displacing::by_one_address,
    ),
    store(
        "holding-one-address",
        "one address announces forty times as many torrents as a source may have",
        "none beyond the limit is stored, and other sources notice nothing",
        holding::SETTINGS,
        holding::one_address,
    ),
    store(
        "holding-many-sources",
        "10,000 sources announce a few torrents each, where what a source holds is limited",
        "new torrents of other sources are always accepted",
        holding::SETTINGS,
        holding::many_sources,
    ),
    store(
        "poisoning-one-address",
        "all ports of one address join a swarm of 50 honest peers",
        FIVE_PER_CENT,
        &[],
        |context| poisoning::v4(context, poisoning::Order::HonestFirst),
    ),
    store(
        "poisoning-one-address-first",
        "all ports of one address join a swarm before its 50 honest peers do",
        FIVE_PER_CENT,
        &[],
        |context| poisoning::v4(context, poisoning::Order::HostileFirst),
    ),
    store(
        "poisoning-one-prefix",
        "one IPv6 /48 joins a swarm of 50 honest peers from thousands of addresses",
        FIVE_PER_CENT,
        &[],
        |context| poisoning::v6(context, poisoning::Order::HonestFirst),
    ),
    store(
        "poisoning-one-prefix-first",
        "the same before the honest peers do",
        FIVE_PER_CENT,
        &[],
        |context| poisoning::v6(context, poisoning::Order::HostileFirst),
    ),
    store(
        "completed-and-stopped",
        "one peer completes and leaves again and again",
        "its download is counted once or twice, not each time",
        &[],
        completed_and_stopped,
    ),
    store(
        "expiry-storm",
        "hundreds of thousands of peers expire at once",
        "honest clients are answered as usual while the peers are removed",
        SHORT_TIMEOUT,
        expiry_storm,
    ),
    store(
        "hot-swarm",
        "hundreds of addresses announce in one swarm without a pause",
        "honest clients of other swarms are answered",
        &[],
        hot_swarm,
    ),
    Attack {
        limits: Limits { p99_ms_max: 500, ..Limits::SWARMS_STAY },
        ..store(
            "hot-shard",
            "hundreds of addresses fill the batches of eight workers with announces in one swarm",
            "honest clients, of which some use that shard as well, are answered in half a second",
            MANY_WORKERS,
            hot_shard,
        )
    },
];

/// Completes and stops one peer in a loop, while another peer keeps the swarm alive.
fn completed_and_stopped(context: &Context<'_>) -> Result<()> {
    let hash = [7; 20];
    let member = context.udp(hostile_v4(2))?;
    member.announce(&leecher(hash, 5000))?;
    let attacker = context.udp(hostile_v4(1))?;
    let events = [Event::Started, Event::Completed, Event::Stopped];
    let count = context.pick(300, 30_000);
    let peers = (0..count).flat_map(|_| events).map(|event| Announce { event, ..leecher(hash, 5001) });
    context.spend_flow(announce_all(&attacker, peers, || context.is_over(), |_| {}));
    let completed = member.scrape(&[hash])?[0].completed;
    context.check(
        "downloads counted",
        completed <= 2,
        format!("{completed} after {count} rounds of one peer"),
    );
    Ok(())
}

/// Announces many peers with random ports in many swarms, and waits until they expire.
fn expiry_storm(context: &Context<'_>) -> Result<()> {
    let sources: Vec<IpAddr> = (1..=16).map(hostile_v4).collect();
    let count: u32 = context.pick(2_500, 62_500);
    for source in sources {
        let client = context.udp(source)?;
        let peers = (0..count).map(|index| {
            let mut hash = [9; 20];
            hash[..4].copy_from_slice(&(index / 8).to_be_bytes());
            leecher(hash, fastrand::u16(1024..))
        });
        context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
    }
    // The timeout, and the quarter of it within which an expired peer is removed.
    context.sleep_ms(6_000);
    Ok(())
}

fn hot_swarm(context: &Context<'_>) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..context.pick(64, 512) {
        clients.push(context.udp(hostile_v4(number))?);
    }
    while !context.is_window_over() {
        for client in &mut clients {
            let peers = (0..64).map(|_| Announce { numwant: 200, ..leecher([8; 20], fastrand::u16(1024..)) });
            context.spend_flow(announce_all(client, peers, || context.is_window_over(), |_| {}));
        }
    }
    Ok(())
}

/// Announces in one swarm from several threads at once, each with many sockets, since a worker serves some of the sockets.
fn hot_shard(context: &Context<'_>) -> Result<()> {
    let clients = (0..context.pick(64, 512)).map(|number| context.udp(hostile_v4(number)));
    let mut clients = clients.collect::<Result<Vec<_>>>()?;
    let of_thread = clients.len() / 4;
    thread::scope(|scope| {
        for clients in clients.chunks_mut(of_thread) {
            scope.spawn(move || {
                while !context.is_window_over() {
                    for client in clients.iter_mut() {
                        let peer = || Announce { numwant: 200, ..leecher([8; 20], fastrand::u16(1024..)) };
                        let peers = (0..64).map(|_| peer());
                        context.spend_flow(announce_all(client, peers, || context.is_window_over(), |_| {}));
                    }
                }
            });
        }
    });
    Ok(())
}
