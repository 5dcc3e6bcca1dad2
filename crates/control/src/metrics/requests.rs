//! The metrics of requests of all protocols: their replies, their tokens, and their records in the access log.

use core::fmt;

use shoal_engine::counter::{Family, Kind, Outcome};
use shoal_engine::policy::Protocol;
use shoal_engine::suspension::Part;
use shoal_engine::tokens::TokenMemory;

use super::Sources;
use super::page::{Page, Unit};
use shoal_runtime::counters::{RecordCounters, RecordOutcome};

pub(super) fn encode(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let kinds = || {
        let families =
            Protocol::ALL.into_iter().flat_map(|protocol| Family::ALL.map(|family| (protocol, family)));
        families.flat_map(|(protocol, family)| Kind::ALL.map(|kind| (protocol, family, kind)))
    };
    let requests = kinds().map(|(protocol, family, kind)| {
        let labels = [("protocol", protocol.name()), ("family", family.name()), ("kind", kind.name())];
        (labels, sources.sum(protocol, |counters| counters.requests(family, kind)))
    });
    page.counters("shoal_requests", "Well-formed requests, whatever their outcome.", requests)?;
    let replies = kinds().flat_map(|(protocol, family, kind)| {
        Outcome::all().map(move |outcome| {
            let labels = [
                ("protocol", protocol.name()),
                ("family", family.name()),
                ("kind", kind.name()),
                ("outcome", outcome.name()),
            ];
            (labels, sources.sum(protocol, |counters| counters.replies(family, kind, outcome)))
        })
    });
    page.counters("shoal_replies", "Replies by outcome: ok, or the reason for an error.", replies)?;
    let live = sources.live.latest();
    let paused = Part::all().map(|part| {
        let is_paused = live.policy.suspension().is_some_and(|suspension| suspension.pause(part).is_some());
        ([("protocol", part.protocol.name()), ("family", part.family.name())], u64::from(is_paused))
    });
    page.gauges(
        "shoal_paused",
        "1 if the operator has paused the protocol for this address family.",
        None,
        paused,
    )
}

/// Appends the metrics of tokens. `shoal_replies` counts the requests that are refused for lack of a valid one.
pub(super) fn encode_tokens(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let (keys, live) = (&sources.token_keys, sources.live.latest());
    page.gauge("shoal_token_keys", "Public keys by which tokens are verified.", None, keys.keys.read())?;
    let help = "1 if the keys of tokens could not be read the last time, and are those from before.";
    page.gauge("shoal_token_keys_faulty", help, None, keys.is_faulty.read())?;
    let memory = live.policy.tokens().map(|tokens| tokens.memory());
    let count = |read: fn(&TokenMemory) -> u64| memory.map_or(0, |memory| read(memory));
    let signatures =
        [("good", count(TokenMemory::good_signatures)), ("bad", count(TokenMemory::bad_signatures))];
    page.counters(
        "shoal_token_signatures",
        "Signatures of tokens that were verified, by outcome. Tokens in the cache need none.",
        signatures.map(|(outcome, count)| ([("outcome", outcome)], count)),
    )?;
    let bytes = count(|memory| memory.bytes() as u64);
    page.gauge("shoal_token_cache", "Memory of the cache of tokens.", Some(Unit::Bytes), bytes)
}

pub(super) fn encode_access_log(records: &RecordCounters, page: &mut Page<'_>) -> fmt::Result {
    let records = RecordOutcome::ALL.map(|outcome| ([("outcome", outcome.name())], records.read(outcome)));
    page.counters(
        "shoal_access_log_records",
        "Records of the access log: written, or lost because its target was too slow or failed.",
        records,
    )
}
