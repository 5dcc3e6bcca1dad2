//! The metrics of the workers: their load, and samples of their work.

use core::fmt;
use core::time::Duration;

use shoal_engine::policy::Protocol;

use super::Sources;
use super::page::{Page, Unit};
use super::thousandths;
use shoal_engine::processing::ProcessingCounters;
use shoal_runtime::clock;

/// Maximum number of kinds of software, plus one for all others.
const CLIENTS_MAX: usize = 30;

pub(super) fn encode(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let now_ms = clock::monotonic_ms();
    let ages = sources.numbered().map(|(number, worker)| {
        let age = Duration::from_millis(now_ms.saturating_sub(worker.heartbeat.beat_ms.read()));
        ([("worker", number)], age.as_secs_f64())
    });
    page.gauges(
        "shoal_worker_heartbeat_age",
        "Time since the worker's last poll round.",
        Some(Unit::Seconds),
        ages,
    )?;
    let paces = sources
        .numbered()
        .map(|(number, worker)| ([("worker", number)], thousandths(worker.heartbeat.pace.read())));
    page.gauges(
        "shoal_interval_raise",
        "How far the worker raises intervals under load, from the usual interval (0) to the longest (1).",
        Some(Unit::Other("ratio".to_owned())),
        paces,
    )?;
    let overloads =
        sources.numbered().map(|(number, worker)| ([("worker", number)], worker.heartbeat.overload.read()));
    page.gauges(
        "shoal_overload_stage",
        "How overloaded the worker is: 0 not at all, 1 intervals are longer, 2 scrapes of all torrents are refused, 3 all scrapes are.",
        None,
        overloads,
    )?;
    let by_worker = |read: fn(&shoal_net::Counters) -> u64| -> Vec<_> {
        sources.numbered().map(|(number, worker)| ([("worker", number)], read(&worker.io))).collect()
    };
    page.counters(
        "shoal_worker_batches",
        "Batches of datagrams; the number of datagrams per batch shows how well batching works.",
        by_worker(|io| io.batches.read()),
    )?;
    page.counters(
        "shoal_worker_receive_pool_exhausted",
        "Number of times that all receive buffers of io_uring were in use at once.",
        by_worker(|io| io.pool_exhausted.read()),
    )
}

/// Appends the metrics of connections, with and without TLS.
pub(super) fn encode_connections(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    page.sums(sources.workers.iter().map(|worker| &*worker.streams))?;
    page.gauge(
        "shoal_connections",
        "Open connections, with and without TLS.",
        None,
        sources.open_connections(),
    )?;
    page.gauge(
        "shoal_connections_max",
        "Maximum number of connections of all workers together; each worker has an equal share.",
        None,
        sources.live.latest().endpoints.connections_max,
    )
}

/// Appends the measured times and batches, and the software of clients.
pub(super) fn encode_insight(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    const NS_PER_S: f64 = 1e9;
    let workers = || sources.workers.iter().map(|worker| &*worker.processing);
    let times = Protocol::ALL.map(|protocol| {
        ([("protocol", protocol.name())], ProcessingCounters::sum_times(workers(), protocol))
    });
    page.histograms(
        "shoal_processing",
        "Time from the receipt of a batch of datagrams, or of an input of a connection, until the replies have been \
         handed to the kernel; of samples.",
        Some(Unit::Seconds),
        NS_PER_S,
        times,
    )?;
    page.histograms(
        "shoal_batch_datagrams",
        "Datagrams in a batch; of samples.",
        None,
        1.0,
        [([("protocol", Protocol::Udp.name())], ProcessingCounters::sum_batch_sizes(workers()))],
    )?;
    let clients = sources.insight.clients(CLIENTS_MAX);
    page.gauges(
        "shoal_clients",
        "Share of the announces of the last hour or so, by the software that the peer ids name, from 0 to 1.",
        None,
        clients.into_iter().map(|client| ([("software", client.software)], client.share)),
    )
}
