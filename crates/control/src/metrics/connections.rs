//! The metrics of connections, with and without TLS.

use core::fmt;

use shoal_net::stream::StreamCounters;

use super::Sources;
use super::page::Page;

pub(super) fn encode(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let sum = |read: fn(&StreamCounters) -> u64| sources.sum_streams(read);
    let (accepted, closed) = (sum(|io| io.accepted.read()), sum(|io| io.closed.read()));
    page.counter(
        "shoal_connections_accepted",
        "Accepted connections, including those that were then refused.",
        accepted,
    )?;
    page.gauge(
        "shoal_connections",
        "Open connections, with and without TLS.",
        None,
        accepted.saturating_sub(closed),
    )?;
    page.gauge(
        "shoal_connections_max",
        "Maximum number of connections of all workers together; each worker has an equal share.",
        None,
        sources.live.latest().endpoints.connections_max,
    )?;
    encode_ended(sources, page)?;
    page.counter(
        "shoal_accepts_failed",
        "Failed accepts, mostly for lack of file descriptors.",
        sum(|io| io.accept_failed.read()),
    )?;
    page.counters(
        "shoal_connection_bytes",
        "Bytes sent and received on connections, including TLS overhead.",
        [
            ([("direction", "in")], sum(|io| io.received_bytes.read())),
            ([("direction", "out")], sum(|io| io.sent_bytes.read())),
        ],
    )
}

/// Appends the metrics of connections that did not end with a regular close by the client, or never began.
fn encode_ended(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let sum = |read: fn(&StreamCounters) -> u64| sources.sum_streams(read);
    page.counters(
        "shoal_connections_ended",
        "Connections that did not end with a regular close by the client, by reason.",
        ended(sources).map(|(reason, count)| ([("reason", reason)], count)),
    )?;
    let evicted = [
        ("idle", sum(|io| io.evicted.idle.read())),
        ("lingering", sum(|io| io.evicted.lingering.read())),
        ("standing", sum(|io| io.evicted.upgraded.read())),
        ("sending", sum(|io| io.evicted.sending.read())),
        ("request", sum(|io| io.evicted.request.read())),
    ];
    page.counters(
        "shoal_connections_evicted",
        "Connections closed to make room for others, by the phase that they were in.",
        evicted.map(|(phase, count)| ([("phase", phase)], count)),
    )?;
    page.counter(
        "shoal_connections_evicted_greedy",
        "Connections closed to make room for others because their source had more connections than others.",
        sum(|io| io.evicted.greedy.read()),
    )?;
    page.counter(
        "shoal_connections_refused_named",
        "WebSocket upgrades, and clients named by the PROXY protocol, refused because their source has too many.",
        sum(|io| io.refused_named.read()),
    )
}

/// Returns the number of connections that did not end with a regular close by the client, by reason.
pub(crate) fn ended(sources: &Sources) -> [(&'static str, u64); 11] {
    let sum = |read: fn(&StreamCounters) -> u64| sources.sum_streams(read);
    [
        ("refused_share", sum(|io| io.refused_share.read())),
        ("refused_source", sum(|io| io.refused_source.read())),
        ("refused_rate", sum(|io| io.refused_rate.read())),
        ("refused_memory", sum(|io| io.refused_memory.read())),
        ("evicted_memory", sum(|io| io.evicted_memory.read())),
        ("evicted", sum(|io| io.evicted.read())),
        ("idle", sum(|io| io.timed_out_idle.read())),
        ("slow_request", sum(|io| io.timed_out_request.read())),
        ("slow_reader", sum(|io| io.timed_out_send.read())),
        ("silent", sum(|io| io.timed_out_silent.read())),
        ("failed", sum(|io| io.failed.read())),
    ]
}
