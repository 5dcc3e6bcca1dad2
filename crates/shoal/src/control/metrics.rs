//! The metrics for Prometheus, generated for each request from the counters of the workers.
//!
//! Nothing is counted here. Every series exists from the start, at 0, so that its first increase is seen as one.

mod cluster;
mod data_path;
mod page;
pub(super) mod plain;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use shoal_engine::counter::{Counters, Drop, Family, Kind, Loss, Outcome, Relay, Unregistered};
use shoal_engine::policy::Protocol;
use shoal_engine::tokens::TokenMemory;
use shoal_net::FamilyCounters;
use shoal_net::stream::{Budget, StreamCounters};
use shoal_relay::Swarms;
use shoal_session::SessionCounters;
use shoal_store::SharedStore;
use shoal_tls::Certificate;
use shoal_types::Totals;

use self::page::{Page, Unit};
use super::counters::ControlCounters;
use crate::access::{ListControl, ListCounter, ListCounters, SourceCounter};
use crate::access_log::{RecordCounters, RecordOutcome};
use crate::cluster::Observed;
use crate::heartbeat::Heartbeat;
use crate::insight::Insight;
use crate::memory::Division;
use crate::processing::ProcessingCounters;
use crate::published::Published;
use crate::reload::{Live, ReloadCounters};
use crate::state::{Requester, SnapshotCounters};
use crate::token_keys::KeyCounters;
use crate::xdp::DataPathStats;
use crate::{clock, process, version};

/// Maximum number of kinds of software, and one for all others.
const CLIENTS_MAX: usize = 30;

/// The content type of the page: the text format of OpenMetrics 1.0.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that the metrics are read from.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) workers: Vec<WorkerSources>,
    pub(crate) store: SharedStore,
    /// The swarms of WebTorrent, if it is served.
    pub(crate) swarms: Option<Arc<Swarms>>,
    pub(crate) memory: Division,
    pub(crate) backend: String,
    pub(crate) started_unix_s: u64,
    /// The certificates of the listeners for clients, if TLS is served, and that of the control listener, if it has one.
    pub(crate) tls: Vec<shoal_tls::Server>,
    pub(crate) reloads: Arc<ReloadCounters>,
    pub(crate) lists: Arc<ListCounters>,
    pub(crate) token_keys: Arc<KeyCounters>,
    pub(crate) access_log: Arc<RecordCounters>,
    pub(crate) control: Arc<ControlCounters>,
    pub(crate) snapshots: Arc<SnapshotCounters>,
    /// Asks for snapshots, if there is a place for them.
    pub(crate) snapshot_requester: Option<Requester>,
    pub(crate) live: Arc<Published<Live>>,
    pub(crate) list_control: ListControl,
    pub(crate) insight: Arc<Insight>,
    /// The node of a cluster, if the tracker is part of one.
    pub(crate) cluster: Option<Arc<Observed>>,
    /// The XDP data path, if there is one.
    pub(crate) data_path: Option<Arc<DataPathStats>>,
}

/// The counters and the heartbeat of one worker.
#[derive(Debug)]
pub(crate) struct WorkerSources {
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) udp: Arc<Counters>,
    pub(crate) http: Arc<Counters>,
    pub(crate) webtorrent: Arc<Counters>,
    pub(crate) sessions: Arc<SessionCounters>,
    pub(crate) processing: Arc<ProcessingCounters>,
    pub(crate) io: Arc<shoal_net::Counters>,
    pub(crate) streams: Arc<StreamCounters>,
    pub(crate) budget: Arc<Budget>,
}

impl WorkerSources {
    /// Returns the counters of a protocol.
    pub(crate) fn counters(&self, protocol: Protocol) -> &Counters {
        match protocol {
            Protocol::Udp => &self.udp,
            Protocol::Http => &self.http,
            Protocol::WebTorrent => &self.webtorrent,
        }
    }
}

/// Returns the text of all metrics.
pub(super) fn encode(sources: &Arc<Sources>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(Arc::clone(sources))));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Metrics(Arc<Sources>);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (sources, mut page) = (&*self.0, Page::new(encoder));
        encode_requests(sources, &mut page)?;
        encode_connections(sources, &mut page)?;
        let sessions = sources.workers.iter().map(|worker| &worker.sessions);
        page.sums::<SessionCounters>(sessions)?;
        encode_drops(sources, &mut page)?;
        encode_datagrams(sources, &mut page)?;
        data_path::encode(sources, &mut page)?;
        encode_workers(sources, &mut page)?;
        encode_store(sources, &mut page)?;
        encode_insight(sources, &mut page)?;
        encode_webtorrent(sources, &mut page)?;
        encode_memory(sources, &mut page)?;
        encode_certificates(sources, &mut page)?;
        encode_lists(&sources.lists, &mut page)?;
        encode_tokens(sources, &mut page)?;
        encode_access_log(&sources.access_log, &mut page)?;
        page.sums::<ControlCounters>([&sources.control].into_iter())?;
        sources.cluster.iter().try_for_each(|observed| cluster::encode(observed, &mut page))?;
        page.info(
            "shoal_build",
            "Version of the program, and its I/O back ends for datagrams and connections.",
            [
                ("version", version::RELEASE),
                ("commit", version::COMMIT),
                ("io", &*sources.backend),
                ("http_io", "epoll"),
            ],
        )?;
        encode_process(sources, &mut page)
    }
}

fn encode_requests(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
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
    page.counters("shoal_replies", "Replies by outcome: ok, or the reason for an error.", replies)
}

/// Appends the metrics of connections, with and without TLS.
fn encode_connections(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
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
    encode_ended_connections(sources, page)?;
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

/// Appends the metrics of connections that did not end with a regular close by the client, or were never begun.
fn encode_ended_connections(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let sum = |read: fn(&StreamCounters) -> u64| sources.sum_streams(read);
    page.counters(
        "shoal_connections_ended",
        "Connections that did not end with a regular close by the client, by reason.",
        ended_connections(sources).map(|(reason, count)| ([("reason", reason)], count)),
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

/// Returns the number of connections that ended otherwise than by a regular close of the client, by reason.
pub(crate) fn ended_connections(sources: &Sources) -> [(&'static str, u64); 11] {
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

fn encode_drops(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let labels = |family: Family, reason| {
        [("protocol", Protocol::Udp.name()), ("family", family.name()), ("reason", reason)]
    };
    let drops = Family::ALL.into_iter().flat_map(|family| {
        let unread = [
            ("oversized", sources.sum_io(family, |io| io.oversized.read())),
            ("receive_failed", sources.sum_io(family, |io| io.receive_failed.read())),
        ];
        Drop::ALL
            .map(|reason| {
                (labels(family, reason.name()), sources.sum(Protocol::Udp, |udp| udp.drops(family, reason)))
            })
            .into_iter()
            .chain(unread.map(|(reason, count)| (labels(family, reason), count)))
    });
    page.counters("shoal_drops", "Received datagrams that got no reply, by reason.", drops)?;
    let send_drops = Family::ALL.into_iter().flat_map(|family| {
        [
            (labels(family, "buffer_full"), sources.sum_io(family, |io| io.send_full.read())),
            (labels(family, "unreachable"), sources.sum_io(family, |io| io.send_unreachable.read())),
            (labels(family, "failed"), sources.sum_io(family, |io| io.send_failed.read())),
        ]
    });
    page.counters("shoal_reply_drops", "Replies that the kernel did not send, by reason.", send_drops)
}

fn encode_datagrams(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
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

fn encode_workers(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let now_ms = clock::monotonic_ms();
    let ages = sources.numbered().map(|(number, worker)| {
        let age = Duration::from_millis(now_ms.saturating_sub(worker.heartbeat.beat_ms()));
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
        .map(|(number, worker)| ([("worker", number)], f64::from(worker.heartbeat.pace()) / 1000.0));
    page.gauges(
        "shoal_interval_raise",
        "How far the worker raises intervals under load, from the usual interval (0) to the longest (1).",
        Some(Unit::Other("ratio".to_owned())),
        paces,
    )?;
    let overloads = sources
        .numbered()
        .map(|(number, worker)| ([("worker", number)], u64::from(worker.heartbeat.overload())));
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

/// Appends the measured times and batches, and the software of clients.
fn encode_insight(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
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
    let clients = sources.insight.clients(CLIENTS_MAX).unwrap_or_default();
    page.gauges(
        "shoal_clients",
        "Share of the announces of the last hour or so, by the software that the peer ids name, from 0 to 1.",
        None,
        clients.into_iter().map(|client| ([("software", client.software)], client.share)),
    )
}

fn encode_store(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
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
        let families = Family::ALL.into_iter().flat_map(|family| Unregistered::ALL.map(|why| (family, why)));
        families.map(move |(family, reason)| {
            let labels =
                [("protocol", protocol.name()), ("family", family.name()), ("reason", reason.name())];
            (labels, sources.sum(protocol, |counters| counters.unregistered(family, reason)))
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

/// Appends the metrics of WebTorrent: its swarms and the relayed messages.
fn encode_webtorrent(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
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

/// Appends the metrics of memory: the usage and the limit of each kind.
fn encode_memory(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let Division { max, fixed, store, swarms, connections, queues, .. } = sources.memory;
    page.gauges(
        "shoal_memory",
        "Memory by use. Other is the resident memory that is not accounted for: program, queues, allocator.",
        Some(Unit::Bytes),
        memory_kinds(sources).map(|(kind, bytes)| ([("kind", kind)], bytes)),
    )?;
    let parts = [
        ("store", store),
        ("webtorrent_swarms", swarms),
        ("connections", connections),
        ("queues", queues),
        ("program", fixed),
    ];
    page.gauges(
        "shoal_memory_part",
        "How the memory of the process is divided.",
        Some(Unit::Bytes),
        parts.map(|(kind, bytes)| ([("kind", kind)], bytes)),
    )?;
    page.gauge("shoal_memory_max", "Ceiling of the whole process.", Some(Unit::Bytes), max)
}

/// Returns the memory by use, in bytes. Other is the resident memory that is not accounted for.
pub(crate) fn memory_kinds(sources: &Sources) -> [(&'static str, u64); 4] {
    let store_bytes = sources.store.totals().iter().map(|totals| totals.bytes).sum::<u64>();
    let swarms_bytes = sources.swarms.as_ref().map_or(0, |swarms| swarms.totals().bytes);
    let held_bytes: u64 = sources.workers.iter().map(|worker| worker.budget.held_bytes() as u64).sum();
    let known = store_bytes + swarms_bytes + held_bytes;
    let other = process::resident_bytes().saturating_sub(known);
    [
        ("store", store_bytes),
        ("webtorrent_swarms", swarms_bytes),
        ("connections", held_bytes),
        ("other", other),
    ]
}

/// Appends when the certificates end. A file that several listeners use has one series.
fn encode_certificates(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let files: BTreeMap<_, _> =
        sources.certificates().map(|certificate| (certificate.file, certificate.not_after_unix_s)).collect();
    let ends = files.into_iter().filter_map(|(file, ends_unix_s)| {
        Some(([("file", file.to_string_lossy().into_owned())], ends_unix_s?))
    });
    page.gauges(
        "shoal_certificate_expiry_timestamp",
        "When the first certificate of a file in use ends, since 1970.",
        Some(Unit::Seconds),
        ends,
    )
}

/// Appends the metrics of the lists.
fn encode_lists(lists: &ListCounters, page: &mut Page<'_>) -> fmt::Result {
    let by_list = |read: fn(&ListCounter) -> u64| {
        [("allow", &lists.allow), ("deny", &lists.deny)].map(|(name, list)| ([("list", name)], read(list)))
    };
    page.gauges("shoal_list_torrents", "Torrents of a list.", None, by_list(ListCounter::torrents))?;
    page.gauges("shoal_list_memory", "Memory of a list.", Some(Unit::Bytes), by_list(ListCounter::bytes))?;
    let [allowed, denied] = lists.faulty_networks();
    let of_networks = [([("list", "networks_allow")], allowed), ([("list", "networks_deny")], denied)];
    page.gauges(
        "shoal_list_sources_faulty",
        "Sources of a list that could not be read as a whole when they were read last.",
        None,
        by_list(ListCounter::faulty_sources).into_iter().chain(of_networks),
    )?;
    page.gauges(
        "shoal_list_applied_timestamp",
        "When the lists last changed or were read again, since 1970.",
        Some(Unit::Seconds),
        by_list(ListCounter::applied_unix_s),
    )?;
    let sources = lists.sources();
    let by_source = |read: fn(&SourceCounter) -> u64| {
        let sample = |(number, source): (usize, &Arc<SourceCounter>)| {
            // URLs that differ in their secrets only look the same.
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
        by_source(SourceCounter::failures),
    )?;
    page.gauges(
        "shoal_list_source_age",
        "Time since a source of a list was last known to be read as it is now, or since it was configured.",
        Some(Unit::Seconds),
        by_source(SourceCounter::age_s),
    )
}

fn encode_access_log(records: &RecordCounters, page: &mut Page<'_>) -> fmt::Result {
    let records = RecordOutcome::ALL.map(|outcome| ([("outcome", outcome.name())], records.read(outcome)));
    page.counters(
        "shoal_access_log_records",
        "Records of the access log: written, or lost because its target was too slow or failed.",
        records,
    )
}

/// Appends the metrics of tokens. How many requests are refused for lack of a valid one is told by `shoal_replies`.
fn encode_tokens(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let (keys, live) = (&sources.token_keys, sources.live.latest());
    page.gauge("shoal_token_keys", "Public keys by which tokens are verified.", None, keys.keys())?;
    let help = "1 if the keys of tokens could not be read the last time, and are those from before.";
    page.gauge("shoal_token_keys_faulty", help, None, keys.faulty())?;
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

/// Appends the reloads, and the metrics of the process under the names that every Prometheus client uses.
fn encode_process(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let reloads = [("applied", &sources.reloads.applied), ("failed", &sources.reloads.failed)];
    page.counters(
        "shoal_reloads",
        "How often SIGHUP made the tracker read its configuration and certificates again, by outcome.",
        reloads.map(|(outcome, count)| ([("outcome", outcome)], count.load(Ordering::Relaxed))),
    )?;
    encode_snapshots(&sources.snapshots, page)?;
    let account = process::account();
    page.seconds_counter("process_cpu", "User and system processor time.", account.cpu_s)?;
    let gauges = [
        ("process_resident_memory", "Resident memory.", Some(Unit::Bytes), account.resident_bytes),
        ("process_virtual_memory", "Reserved address space.", Some(Unit::Bytes), account.virtual_bytes),
        ("process_start_time", "Start time, since 1970.", Some(Unit::Seconds), sources.started_unix_s),
        ("process_threads", "Threads.", None, account.threads),
        ("process_open_fds", "Open file descriptors.", None, account.descriptors),
        ("process_max_fds", "Maximum number of open file descriptors.", None, account.descriptors_max),
    ];
    gauges.into_iter().try_for_each(|(name, help, unit, value)| page.gauge(name, help, unit, value))
}

/// Appends the snapshots of the swarms.
fn encode_snapshots(snapshots: &SnapshotCounters, page: &mut Page<'_>) -> fmt::Result {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let outcomes = [("written", &snapshots.written), ("failed", &snapshots.failed)];
    page.counters(
        "shoal_snapshots",
        "Snapshots of the swarms, by outcome.",
        outcomes.map(|(outcome, count)| ([("outcome", outcome)], read(count))),
    )?;
    let gauges = [
        (
            "shoal_snapshot_time",
            "When the last snapshot was begun, since 1970; 0 if none was.",
            Unit::Seconds,
            &snapshots.last_unix_s,
        ),
        ("shoal_snapshot_size", "Size of the last snapshot.", Unit::Bytes, &snapshots.last_bytes),
    ];
    gauges
        .into_iter()
        .try_for_each(|(name, help, unit, value)| page.gauge(name, help, Some(unit), read(value)))
}

impl Sources {
    /// Returns a count of one protocol, summed over all workers and the programs of an XDP data path.
    pub(crate) fn sum(&self, protocol: Protocol, read: impl Fn(&Counters) -> u64) -> u64 {
        let workers = self.workers.iter().map(|worker| worker.counters(protocol));
        let data_path = self.data_path.iter().filter(|_| protocol == Protocol::Udp);
        workers.chain(data_path.map(|data_path| data_path.requests())).map(read).sum()
    }

    /// Returns a count of connections, summed over all workers.
    pub(crate) fn sum_streams(&self, read: impl Fn(&StreamCounters) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(&worker.streams)).sum()
    }

    /// Returns a count of the back ends for one family, summed over all workers.
    pub(crate) fn sum_io(&self, family: Family, read: impl Fn(&FamilyCounters) -> u64) -> u64 {
        let counters = |io: &shoal_net::Counters| match family {
            Family::V4 => read(&io.v4),
            Family::V6 => read(&io.v6),
        };
        self.workers.iter().map(|worker| counters(&worker.io)).sum()
    }

    /// Returns the certificates in use.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = Certificate> {
        self.tls.iter().flat_map(shoal_tls::Server::certificates)
    }

    /// Returns the workers with their numbers as label values.
    fn numbered(&self) -> impl Iterator<Item = (String, &WorkerSources)> {
        self.workers.iter().enumerate().map(|(number, worker)| (number.to_string(), worker))
    }
}
