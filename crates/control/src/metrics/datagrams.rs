//! The metrics of datagrams: received, sent and dropped ones.

use core::fmt;

use shoal_engine::counter::{Drop, Family};
use shoal_engine::policy::Protocol;
use shoal_net::FamilyCounters;

use super::Sources;
use super::page::{Page, Unit};

pub(super) fn encode_drops(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let labels_of = |protocol: Protocol, family: Family, reason| {
        [("protocol", protocol.name()), ("family", family.name()), ("reason", reason)]
    };
    let labels = |family, reason| labels_of(Protocol::Udp, family, reason);
    let drops = Family::ALL
        .into_iter()
        .flat_map(|family| sources.drops(family).map(move |(reason, count)| (labels(family, reason), count)));
    let over_tcp = [Protocol::Http, Protocol::WebTorrent].into_iter().flat_map(|protocol| {
        Family::ALL.map(|family| {
            let count = sources.sum(protocol, |counters| counters.drops(family, Drop::Banned));
            (labels_of(protocol, family, Drop::Banned.name()), count)
        })
    });
    page.counters(
        "shoal_drops",
        "Received datagrams that got no reply, by reason. Over TCP, connections, requests and messages of banned sources.",
        drops.chain(over_tcp),
    )?;
    let send_drops = Family::ALL.into_iter().flat_map(|family| {
        sources.reply_drops(family).map(|(reason, count)| (labels(family, reason), count))
    });
    page.counters("shoal_reply_drops", "Replies that the kernel did not send, by reason.", send_drops)
}

pub(super) fn encode(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let by_family = |read: fn(&FamilyCounters) -> u64| {
        Family::ALL.map(|family| ([("family", family.name())], sources.sum_io(family, read)))
    };
    page.counters(
        "shoal_udp_datagrams_received",
        "Datagrams that the workers received.",
        by_family(|io| io.received.read()),
    )?;
    page.counters(
        "shoal_udp_datagrams_sent",
        "Replies that the kernel accepted for sending.",
        by_family(|io| io.sent.read()),
    )?;
    let endpoints = &sources.live.latest().endpoints;
    let memories: Vec<_> = sources
        .numbered()
        .zip(&endpoints.probes)
        .flat_map(|((number, _), sockets)| sockets.iter().map(move |socket| (number.clone(), socket)))
        .filter_map(|(number, socket)| {
            let memory = socket.read().ok().flatten()?;
            Some(([("worker", number), ("address", socket.local_addr().to_string())], memory))
        })
        .collect();
    page.counters(
        "shoal_udp_receive_buffer_drops",
        "Datagrams that the kernel dropped because the receive buffer of the socket was full.",
        memories.iter().map(|(labels, memory)| (labels.clone(), u64::from(memory.receive_drops))),
    )?;
    page.gauges(
        "shoal_udp_receive_queue",
        "Memory of the datagrams that wait in the receive buffer of the socket.",
        Some(Unit::Bytes),
        memories.iter().map(|(labels, memory)| (labels.clone(), u64::from(memory.receive_queue_bytes))),
    )
}
