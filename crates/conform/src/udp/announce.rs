//! The reply to an announce (BEP 15, "Announce").

use std::collections::BTreeSet;

use super::client::Client;
use super::describe;
use super::packet::u32_at;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, Announced};
use crate::rules::Client as _;

/// Shorter intervals burden the tracker, and longer ones leave its swarms stale.
const INTERVAL_S_MIN: u32 = 60;
const INTERVAL_S_MAX: u32 = 86_400;

/// The UDP payload of an IP packet of 1500 bytes, which every path carries.
const PAYLOAD_BYTES_MAX_V4: usize = 1472;
const PAYLOAD_BYTES_MAX_V6: usize = 1452;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-announce-layout",
        "BEP 15, \"Announce\" and \"IPv6\"",
        "An announce reply has 20 bytes followed by the peers, 6 bytes each over IPv4 and 18 over IPv6.",
        layout,
    ),
    Case::must(
        "udp-announce-echoes-transaction-id",
        "BEP 15, \"Announce\"",
        "An announce reply carries the transaction id of its request, whatever that is.",
        echoes_transaction_id,
    ),
    Case::should(
        "udp-announce-interval-is-sane",
        "BEP 15, \"Announce\"",
        "The interval lies between a minute and a day.",
        interval_is_sane,
    ),
    Case::should(
        "udp-announce-interval-is-jittered",
        "practice: a restart must not synchronise the announces of all clients",
        "Intervals differ from reply to reply.",
        interval_is_jittered,
    ),
    Case::should(
        "udp-reply-fits-the-mtu",
        "practice: fragments get lost, and firewalls drop them",
        "No reply is larger than an IP packet of 1500 bytes can carry, however many peers are wanted.",
        fits_the_mtu,
    ),
    Case::must(
        "udp-pipelined-requests-are-all-answered",
        "BEP 15, \"Examples\"",
        "Requests of all kinds that are sent without waiting are all answered.",
        pipelined_requests_are_all_answered,
    )
    .with_info_hashes(4),
];

fn layout(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let reply = client.request(&client.announce_packet(&Announce::leecher(hash, 1004).wanting(10))?)?;
    let read = Announced::read(&reply, context.peer_bytes());
    let is_right = read.is_some_and(|read| {
        let ports = read.ports();
        !ports.is_empty() && ports.iter().all(|port| (1001..=1004).contains(port))
    });
    ensure(
        is_right,
        format!("20 + {} · n bytes, with the peers at ports 1001 to 1003", context.peer_bytes()),
        describe::reply(&reply, context.peer_bytes()),
    )
}

fn echoes_transaction_id(context: &Context<'_>) -> Checked {
    for transaction_id in [0, 1, u32::MAX, context.random()] {
        let client = Client::new(context)?;
        let packet = Announce::leecher(context.hash(0), 1001).packet(client.connection_id()?, transaction_id);
        client.ensure_echoed(&packet)?;
    }
    Ok(())
}

fn interval_is_sane(context: &Context<'_>) -> Checked {
    let interval_s = Client::new(context)?.announce(&Announce::leecher(context.hash(0), 1001))?.interval_s;
    ensure(
        (INTERVAL_S_MIN..=INTERVAL_S_MAX).contains(&interval_s),
        format!("{INTERVAL_S_MIN} to {INTERVAL_S_MAX} seconds"),
        format!("{interval_s} seconds"),
    )
}

fn interval_is_jittered(context: &Context<'_>) -> Checked {
    let announces = [Announce::leecher(context.hash(0), 1001); 40];
    let replies = Client::new(context)?.announce_all(&announces)?;
    let intervals: BTreeSet<u32> = replies.iter().map(|reply| reply.interval_s).collect();
    ensure(intervals.len() > 1, "intervals that differ", format!("40 times {intervals:?} seconds"))
}

/// The swarm is larger than one datagram can hold, in either family.
fn fits_the_mtu(context: &Context<'_>) -> Checked {
    let (peers, payload_bytes_max) = if context.target.address.is_ipv4() {
        (1001..=1300, PAYLOAD_BYTES_MAX_V4)
    } else {
        (1001..=1100, PAYLOAD_BYTES_MAX_V6)
    };
    let hash = context.hash(0);
    let client = Client::new(context)?;
    let announces: Vec<Announce> = peers.map(|port| Announce::leecher(hash, port).wanting(0)).collect();
    client.announce_all(&announces)?;
    for numwant in [200, 1000, i32::MAX] {
        let packet = client.announce_packet(&Announce::leecher(hash, 1001).wanting(numwant))?;
        let bytes = client.request(&packet)?.len();
        ensure(
            bytes <= payload_bytes_max,
            format!("at most {payload_bytes_max} bytes for numwant {numwant}"),
            format!("{bytes} bytes"),
        )?;
    }
    Ok(())
}

fn pipelined_requests_are_all_answered(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let id = client.connection_id()?;
    let packets: Vec<Vec<u8>> = (0_u16..256)
        .map(|number| match number % 4 {
            0 => super::packet::connect(context.random()),
            1 => super::packet::scrape(id, context.random(), &context.hashes(4)),
            _ => Announce::leecher(context.hash(usize::from(number / 64)), 1000 + number)
                .packet(id, context.random()),
        })
        .collect();
    let replies = client.request_all(&packets)?;
    for (packet, reply) in packets.iter().zip(&replies) {
        ensure(
            u32_at(packet, 8) == u32_at(reply, 0),
            format!("a reply of the same action to: {}", describe::request(packet)),
            describe::reply(reply, context.peer_bytes()),
        )?;
    }
    Ok(())
}
