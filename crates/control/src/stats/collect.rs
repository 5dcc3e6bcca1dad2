//! The collection of the statistics from the counters of the workers. Only the look-ups of the largest swarms
//! take locks of the store, each for a moment (see `insight`).

use serde_json::{Value, json};
use shoal_base::metrics::{Metric, sums};
use shoal_base::{Counts, Totals};
use shoal_engine::counter::{Counters, Family, Kind, Loss, Outcome, Relay};
use shoal_engine::policy::Protocol;
use shoal_engine::watch::Cause;
use shoal_net::SocketProbe;
use shoal_net::stream::Direction;

use super::{
    Certificate, Client, Connections, CountMap, Datagrams, List, ListSource, Memory, MemoryUse, Processing,
    Refusals, Relays, Stats, SwarmTotals, TopSwarm, Traffic, Worker,
};
use crate::metrics::{memory_kinds, thousandths};
use crate::{Sources, WorkerSources};
use crate::{last_day, pause, process};
use shoal_engine::processing::ProcessingCounters;
use shoal_runtime::clock;
use shoal_runtime::lists::ListCounters;

/// Maximum numbers of kinds of software, without `other`, and of large swarms.
const CLIENTS_MAX: usize = 12;
const TOP_SWARMS_MAX: usize = 10;

/// Returns the statistics at this moment.
pub fn collect(sources: &Sources) -> Stats {
    let now_ms = clock::monotonic_ms();
    let live = sources.live.latest();
    let endpoints = &live.endpoints;
    let workers = sources.workers.iter().zip(&endpoints.probes);
    let traffic = all_traffic(sources);
    // Not below, where the lock would last until the last field.
    let last_day = sources.last_day.lock().stats(&last_day::counts(&traffic));
    Stats {
        version: sources.build.release.to_owned(),
        commit: sources.build.commit.to_owned(),
        build: sources.build.profile.to_owned(),
        io: sources.backend.clone(),
        now_unix_s: clock::unix_s(),
        started_unix_s: sources.started_unix_s,
        monotonic_ms: now_ms,
        last_day,
        traffic,
        paused: pause::paused(&live.policy),
        refusals: flows().flat_map(|(protocol, family)| refusals(sources, protocol, family)).collect(),
        unregistered: occurred(flows().flat_map(|(protocol, family)| sources.unregistered(protocol, family))),
        datagrams: Family::ALL.map(|family| datagrams(sources, family)).into(),
        swarms: swarms(sources),
        memory: memory(sources),
        connections: connections(sources),
        relays: relays(sources),
        workers: workers.map(|(worker, sockets)| of_worker(worker, sockets, now_ms)).collect(),
        cpu_s: process::usage().cpu_s,
        processing: Protocol::ALL.map(|protocol| processing(sources, protocol)).into(),
        clients: clients(sources),
        top_swarms: top_swarms(sources),
        certificates: certificates(sources),
        lists: lists(&sources.lists),
        list_sources: list_sources(&sources.lists),
        bans: sources.lists.bans.active.read(),
        bans_earned: bans_earned(&sources.lists),
        reloads: sources.reloads().map(|(outcome, count)| (outcome.to_owned(), count)).into(),
        cluster: sources.cluster.as_deref().map(|node| node.stats()),
    }
}

fn bans_earned(lists: &ListCounters) -> CountMap {
    occurred(Cause::ALL.map(|cause| (cause.name(), lists.bans.earned[cause as usize].read())))
}

/// Returns every protocol with every family.
fn flows() -> impl Iterator<Item = (Protocol, Family)> {
    Protocol::ALL.into_iter().flat_map(|protocol| Family::ALL.map(|family| (protocol, family)))
}

/// Returns the counts that are not zero. Those of the same name are added up.
fn occurred(counts: impl IntoIterator<Item = (&'static str, u64)>) -> CountMap {
    let mut occurred = CountMap::new();
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        *occurred.entry(name.to_owned()).or_default() += count;
    }
    occurred
}

/// Returns the requests and replies of every protocol and family.
pub(crate) fn all_traffic(sources: &Sources) -> Vec<Traffic> {
    flows().map(|(protocol, family)| traffic(sources, protocol, family)).collect()
}

fn traffic(sources: &Sources, protocol: Protocol, family: Family) -> Traffic {
    let sum = |read: &dyn Fn(&Counters, Kind) -> u64| -> u64 {
        Kind::ALL.iter().map(|kind| sources.sum(protocol, |counters| read(counters, *kind))).sum()
    };
    let requests = Kind::ALL.map(|kind| {
        (kind.name().to_owned(), sources.sum(protocol, |counters| counters.requests(family, kind)))
    });
    let refused = Outcome::all().filter(|outcome| *outcome != Outcome::Ok);
    Traffic {
        protocol: protocol.name().to_owned(),
        family: family.name().to_owned(),
        requests: requests.into(),
        ok: sum(&|counters, kind| counters.replies(family, kind, Outcome::Ok)),
        refused: refused.map(|outcome| sum(&|counters, kind| counters.replies(family, kind, outcome))).sum(),
    }
}

fn refusals(sources: &Sources, protocol: Protocol, family: Family) -> Vec<Refusals> {
    let outcomes = Outcome::all().filter(|outcome| *outcome != Outcome::Ok);
    let refusals = outcomes.map(|outcome| {
        let of_kind =
            |kind| sources.sum(protocol, |counters: &Counters| counters.replies(family, kind, outcome));
        Refusals {
            protocol: protocol.name().to_owned(),
            family: family.name().to_owned(),
            reason: outcome.name().to_owned(),
            count: Kind::ALL.map(of_kind).iter().sum(),
        }
    });
    refusals.filter(|refusals| refusals.count > 0).collect()
}

fn datagrams(sources: &Sources, family: Family) -> Datagrams {
    let io = |read: fn(&shoal_net::FamilyCounters) -> u64| sources.sum_io(family, read);
    Datagrams {
        family: family.name().to_owned(),
        received: io(|io| io.received.read()),
        sent: io(|io| io.sent.read()),
        drops: occurred(sources.drops(family)),
        reply_drops: occurred(sources.reply_drops(family)),
    }
}

fn swarms(sources: &Sources) -> Vec<SwarmTotals> {
    let [v4, v6] = sources.store.totals();
    let webtorrent = sources.swarms.as_ref().map(|swarms| swarms.totals());
    let families = [(Family::V4.name(), Some(v4)), (Family::V6.name(), Some(v6))];
    let families = families.into_iter().chain([(Protocol::WebTorrent.name(), webtorrent)]);
    families.filter_map(|(family, totals)| Some(swarm_totals(family, &totals?))).collect()
}

fn swarm_totals(family: &str, totals: &Totals) -> SwarmTotals {
    let Totals { swarms, seeders, leechers, completed, bytes, expired, evicted } = *totals;
    let family = family.to_owned();
    SwarmTotals { family, swarms, seeders, leechers, completed, expired, evicted, memory_bytes: bytes }
}

fn memory(sources: &Sources) -> Memory {
    let [v4, v6] = sources.store.totals();
    let store = v4.plus(v6);
    let peers = store.seeders + store.leechers;
    #[expect(clippy::cast_precision_loss, reason = "it is shown with few digits")]
    let per_peer = (peers > 0).then(|| store.bytes as f64 / peers as f64);
    let uses = memory_kinds(sources).map(|(kind, bytes)| MemoryUse { kind: kind.to_owned(), bytes });
    Memory { max: sources.memory.max, uses: uses.into(), store_max: sources.memory.store, per_peer }
}

/// Returns a metric as the field of the statistics with its name, a number or the counts by label that are not zero.
fn field(Metric { name, label, series, .. }: Metric) -> (String, Value) {
    let name = name.trim_start_matches("shoal_").trim_start_matches("connections_").to_owned();
    let count = series.iter().map(|(_, count)| count).sum::<u64>();
    (name, label.map_or_else(|| json!(count), |_| json!(occurred(series))))
}

fn connections(sources: &Sources) -> Connections {
    let bytes = |direction| sources.sum_streams(|io| io.bytes.of(direction).read());
    let streams = sums(sources.workers.iter().map(|worker| &*worker.streams));
    let sessions = sums(sources.workers.iter().map(|worker| &*worker.sessions));
    let counted = streams.into_iter().chain(sessions).map(field).collect();
    Connections {
        open: sources.open_connections(),
        max: sources.live.latest().endpoints.connections_max,
        received_bytes: bytes(Direction::In),
        sent_bytes: bytes(Direction::Out),
        ..serde_json::from_value(Value::Object(counted)).expect("a field has the type of its counter")
    }
}

fn relays(sources: &Sources) -> Relays {
    let sum = |read: &dyn Fn(&Counters) -> u64| sources.sum(Protocol::WebTorrent, read);
    Relays {
        offers: sum(&|counters| counters.relays(Relay::Offer)),
        answers: sum(&|counters| counters.relays(Relay::Answer)),
        drops: occurred(Loss::ALL.map(|loss| (loss.name(), sum(&|counters| counters.losses(loss))))),
    }
}

fn of_worker(worker: &WorkerSources, sockets: &[SocketProbe], now_ms: u64) -> Worker {
    let sockets = sockets.iter().filter_map(|socket| socket.read().ok().flatten());
    let (kernel_drops, receive_queue_bytes) = sockets.fold((0, 0), |(drops, bytes), socket| {
        (drops + u64::from(socket.receive_drops), bytes + u64::from(socket.receive_queue_bytes))
    });
    Worker {
        busy: thousandths(worker.heartbeat.busy.read().min(1000)),
        interval_raise: thousandths(worker.heartbeat.pace.read()),
        heartbeat_age_ms: now_ms.saturating_sub(worker.heartbeat.beat_ms.read()),
        batches: worker.io.batches.read(),
        kernel_drops,
        receive_queue_bytes,
    }
}

#[expect(clippy::cast_precision_loss, reason = "the bounds are short, and the sum is one for a mean")]
fn processing(sources: &Sources, protocol: Protocol) -> Processing {
    const NS_PER_S: f64 = 1e9;
    let workers = sources.workers.iter().map(|worker| &*worker.processing);
    let times = ProcessingCounters::sum_times(workers, protocol);
    Processing {
        protocol: protocol.name().to_owned(),
        bounds_s: times.bounds.iter().map(|bound_ns| *bound_ns as f64 / NS_PER_S).collect(),
        buckets: times.buckets,
        sum_s: times.sum as f64 / NS_PER_S,
    }
}

fn clients(sources: &Sources) -> Vec<Client> {
    let clients = sources.insight.clients(CLIENTS_MAX).into_iter();
    let shown = clients.map(|client| Client {
        software: client.software.to_owned(),
        share: client.share,
        versions: client.versions,
    });
    shown.collect()
}

fn top_swarms(sources: &Sources) -> Vec<TopSwarm> {
    let torrents = sources.insight.top(TOP_SWARMS_MAX).into_iter();
    let shown = torrents.map(|torrent| {
        let Counts { seeders, leechers, completed } = torrent.total();
        TopSwarm { info_hash: format!("{:?}", torrent.info_hash), seeders, leechers, completed }
    });
    shown.collect()
}

fn certificates(sources: &Sources) -> Vec<Certificate> {
    let shown = sources.certificates().map(|certificate| Certificate {
        file: certificate.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        names: certificate.names,
        not_before_unix_s: certificate.not_before_unix_s,
        not_after_unix_s: certificate.not_after_unix_s,
    });
    shown.collect()
}

fn lists(lists: &ListCounters) -> Vec<List> {
    let shown = [("allow", &lists.allow), ("deny", &lists.deny)].map(|(name, list)| List {
        name: name.to_owned(),
        torrents: list.torrents.read(),
        memory_bytes: list.bytes.read(),
        faulty_sources: list.faulty_sources.read(),
        applied_unix_s: list.applied_unix_s.read(),
    });
    shown.into()
}

fn list_sources(lists: &ListCounters) -> Vec<ListSource> {
    let shown = lists.sources().into_iter().map(|source| ListSource {
        list: source.list.to_owned(),
        source: source.source.clone(),
        failures: source.failures.read(),
        faulty_lines: source.faulty_lines.read(),
        fault: source.fault(),
        age_s: source.age_s(),
    });
    shown.collect()
}
