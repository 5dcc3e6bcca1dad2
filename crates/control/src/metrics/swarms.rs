//! The metrics of swarms and peers.

use core::fmt;

use shoal_base::Totals;
use shoal_engine::counter::{Counters, Family, Loss, Relay};
use shoal_engine::policy::Protocol;

use super::Sources;
use super::page::{Page, Unit};

pub(super) fn encode_store(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let [v4, v6] = sources.store.totals();
    let totals = [(Family::V4, v4), (Family::V6, v6)];
    let by_family = |read: fn(&Totals) -> u64| {
        totals.each_ref().map(|(family, totals)| ([("family", family.name())], read(totals)))
    };
    let peers = totals.iter().flat_map(|(family, totals)| {
        [("seeder", totals.seeders), ("leecher", totals.leechers)]
            .map(|(role, count)| ([("family", family.name()), ("role", role)], count))
    });
    page.gauges("shoal_swarms", "Torrents with at least one peer.", None, by_family(|totals| totals.swarms))?;
    page.gauges("shoal_peers", "Peers of all swarms, by role.", None, peers)?;
    let retained = Family::ALL.into_iter().zip(sources.store.retained());
    page.gauges(
        "shoal_completed_retained",
        "Torrents without peers that keep their count of completed downloads.",
        None,
        retained.map(|(family, torrents)| ([("family", family.name())], torrents)),
    )?;
    page.counters(
        "shoal_peers_expired",
        "Peers removed because they stopped announcing without a stopped event.",
        by_family(|totals| totals.expired),
    )?;
    page.counters(
        "shoal_peers_evicted",
        "Peers removed early, because memory was short and their address or network held more than its share.",
        by_family(|totals| totals.evicted),
    )?;
    let unregistered = Protocol::ALL.into_iter().flat_map(|protocol| {
        Family::ALL.into_iter().flat_map(move |family| {
            sources.unregistered(protocol, family).map(|(reason, count)| {
                ([("protocol", protocol.name()), ("family", family.name()), ("reason", reason)], count)
            })
        })
    });
    page.counters(
        "shoal_peers_unregistered",
        "Announces answered without registering the peer, by the limit of its source that it would have exceeded.",
        unregistered,
    )?;
    page.gauges(
        "shoal_store_memory",
        "Memory of swarms and peers.",
        Some(Unit::Bytes),
        by_family(|totals| totals.bytes),
    )?;
    page.gauge(
        "shoal_store_memory_max",
        "Ceiling of that memory, both families together.",
        Some(Unit::Bytes),
        sources.memory.store,
    )
}

pub(super) fn encode_webtorrent(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let totals = sources.swarms.as_ref().map_or_else(Totals::default, |swarms| swarms.totals());
    page.gauge(
        "shoal_webtorrent_swarms",
        "WebTorrent torrents with at least one peer.",
        None,
        totals.swarms,
    )?;
    page.gauges(
        "shoal_webtorrent_peers",
        "WebTorrent peers, by role.",
        None,
        [([("role", "seeder")], totals.seeders), ([("role", "leecher")], totals.leechers)],
    )?;
    page.counter(
        "shoal_webtorrent_peers_expired",
        "WebTorrent peers removed because they stopped announcing although their connection was open.",
        totals.expired,
    )?;
    page.counter(
        "shoal_webtorrent_peers_evicted",
        "WebTorrent peers removed early because memory was short and their source had more than its share.",
        totals.evicted,
    )?;
    let sum = |read: &dyn Fn(&Counters) -> u64| sources.sum(Protocol::WebTorrent, read);
    let relayed = Relay::ALL.map(|relay| (relay.name(), sum(&|counters| counters.relays(relay))));
    let lost = Loss::ALL.map(|loss| (loss.name(), sum(&|counters| counters.losses(loss))));
    page.counters(
        "shoal_webtorrent_relays",
        "Relayed offers and answers, and dropped messages, by outcome.",
        relayed.into_iter().chain(lost).map(|(outcome, count)| ([("outcome", outcome)], count)),
    )
}
