//! The metrics of the operator's lists, and of bans.

use core::fmt;
use std::sync::Arc;

use shoal_base::metrics::Gauge;
use shoal_engine::watch::Cause;

use super::page::{Page, Unit};
use shoal_runtime::lists::{ListCounter, ListCounters, SourceCounter};

pub(super) fn encode(lists: &ListCounters, page: &mut Page<'_>) -> fmt::Result {
    let by_list = |figure: fn(&ListCounter) -> &Gauge| {
        [("allow", &lists.allow), ("deny", &lists.deny)]
            .map(|(name, list)| ([("list", name)], figure(list).read()))
    };
    page.gauges("shoal_list_torrents", "Torrents of a list.", None, by_list(|list| &list.torrents))?;
    page.gauges("shoal_list_memory", "Memory of a list.", Some(Unit::Bytes), by_list(|list| &list.bytes))?;
    let [allowed, denied, geoip] = lists.faulty_networks.each_ref().map(Gauge::read);
    let of_networks = [
        ([("list", "networks_allow")], allowed),
        ([("list", "networks_deny")], denied),
        ([("list", "geoip")], geoip),
    ];
    page.gauges(
        "shoal_list_sources_faulty",
        "Sources of a list that could not be read as a whole when they were read last.",
        None,
        by_list(|list| &list.faulty_sources).into_iter().chain(of_networks),
    )?;
    page.gauges(
        "shoal_list_applied_timestamp",
        "When the lists last changed or were read again, since 1970.",
        Some(Unit::Seconds),
        by_list(|list| &list.applied_unix_s),
    )?;
    let rules = lists.rules();
    page.counters(
        "shoal_rule_hits",
        "Requests to which a rule has applied, by the text of the rule without the words for clients.",
        rules.iter().enumerate().map(|(number, rule)| {
            ([("number", (number + 1).to_string()), ("rule", rule.rule.clone())], rule.hits.read())
        }),
    )?;
    let sources = lists.sources();
    let by_source = |read: fn(&SourceCounter) -> u64| {
        let sample = |(number, source): (usize, &Arc<SourceCounter>)| {
            // URLs that differ only in their secrets look the same.
            let is_same =
                |other: &&Arc<SourceCounter>| other.list == source.list && other.source == source.source;
            let earlier = sources[..number].iter().filter(is_same).count();
            let suffix = if earlier > 0 { format!(" #{}", earlier + 1) } else { String::new() };
            (
                [("list", source.list.to_owned()), ("source", format!("{}{suffix}", source.source))],
                read(source),
            )
        };
        sources.iter().enumerate().map(sample).collect::<Vec<_>>()
    };
    page.counters(
        "shoal_list_source_failures",
        "How often a source of a list could not be read as a whole.",
        by_source(|source| source.failures.read()),
    )?;
    page.gauges(
        "shoal_list_source_refused",
        "1 if the last version of a source of a list could not be read or was refused, so that the one before applies.",
        None,
        by_source(|source| source.is_refused.read()),
    )?;
    page.gauges(
        "shoal_list_source_lines_faulty",
        "Faulty lines of the version of a source of a list that was read last. The others apply, unless it was refused.",
        None,
        by_source(|source| source.faulty_lines.read()),
    )?;
    page.gauges(
        "shoal_list_source_age",
        "Time since a source of a list was last known to be read as it is now, or since it was configured.",
        Some(Unit::Seconds),
        by_source(SourceCounter::age_s),
    )?;
    page.counters(
        "shoal_bans_earned",
        "Sources that were banned by what they did, by cause.",
        Cause::ALL.map(|cause| ([("cause", cause.name())], lists.bans.earned[cause as usize].read())),
    )?;
    page.gauge("shoal_bans", "Sources with a ban that they have earned.", None, lists.bans.active.read())
}
