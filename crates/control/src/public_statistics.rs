//! The public statistics and the home page: texts for everyone, at the addresses of the tracker's own HTTP listeners.
//!
//! A task renders them every five seconds and publishes all texts at once, and workers copy them into responses. So a
//! request never collects anything, and all requests of an interval see the same numbers. They never contain addresses.
//! A request costs no more than a refused one, so statistics need no slots as full scrapes do.

pub mod home;
mod opentracker;
mod page;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use shoal_config::{Config, StatisticsConfig};
use shoal_session::{Document, Statistics, StatisticsPath};
use tokio::time::MissedTickBehavior;

use crate::Sources;
use crate::insight::{TOP_MAX, Torrent};
use crate::last_day::{DayStats, DayTraffic};
use crate::stats::{self, Stats, SwarmTotals, Traffic};
use shoal_runtime::clock;
use shoal_runtime::published::Published;

/// The time between two renderings.
const INTERVAL: Duration = Duration::from_secs(5);

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// The numbers of the tracker at one moment.
#[derive(Debug, Default)]
struct Figures {
    stats: Stats,
    /// The largest torrents, the largest first; more than the statistics have.
    top: Vec<Torrent>,
}

/// Renders the statistics that the configuration publishes, and those that it publishes after a reload, forever. Marks the
/// counts of the last day as well, which other readers use.
pub async fn publish(sources: Arc<Sources>, published: Arc<Published<Statistics>>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        sources.last_day.lock().mark(clock::unix_s(), || sources.day_counts());
        let live = sources.live.latest();
        let config = live.policy.config();
        let own_home = live.home.as_deref();
        let statistics = if is_published(config) {
            let (stats, top) = (stats::collect(&sources), sources.insight.top(TOP_MAX));
            render(config, own_home, &Figures { stats, top })
        } else {
            Statistics::default()
        };
        if *published.latest() != statistics {
            published.replace(|_| statistics);
        }
    }
}

fn is_published(config: &Config) -> bool {
    config.home.page || config.statistics != StatisticsConfig::default()
}

/// Returns the texts that the operator publishes, with the operator's own home page if there is one.
fn render(config: &Config, own_home: Option<&str>, figures: &Figures) -> Statistics {
    let document = |path, mode, content_type, body| Arc::new(Document { path, mode, content_type, body });
    let mut documents = Vec::new();
    if config.home.page {
        let body = own_home.map_or_else(|| home::render(&config.home, figures), str::to_owned);
        documents.push(document(StatisticsPath::Home, None, HTML, body));
    }
    let config = &config.statistics;
    if config.page {
        documents.push(document(StatisticsPath::Page, None, HTML, page::render(figures)));
    }
    if config.json || config.bittorrent_tracker {
        let value = if config.json { shoal_shape(figures) } else { bittorrent_tracker_shape(figures) };
        documents.push(document(StatisticsPath::Json, None, JSON, format!("{value}\n")));
    }
    for &mode in &config.opentracker {
        if let Some((content_type, body)) = opentracker::render(mode, figures) {
            documents.push(document(StatisticsPath::Page, Some(mode.name()), content_type, body));
        }
    }
    Statistics { documents }
}

/// Returns the statistics in the shape that `docs/public-statistics.md` describes.
fn shoal_shape(figures: &Figures) -> Value {
    let by_family = |read: &dyn Fn(&SwarmTotals) -> Value| -> Value {
        figures
            .stats
            .swarms
            .iter()
            .map(|totals| (totals.family.clone(), read(totals)))
            .collect::<Map<_, _>>()
            .into()
    };
    let mut requests = Map::new();
    for traffic in &figures.stats.traffic {
        let protocol = requests.entry(&traffic.protocol).or_insert_with(|| Value::Object(Map::new()));
        protocol[&traffic.family] =
            json!({ "requests": traffic.requests, "ok": traffic.ok, "refused": traffic.refused });
    }
    json!({
        "time": figures.stats.now_unix_s,
        "uptime_s": uptime_s(figures),
        "torrents": by_family(&|totals| totals.swarms.into()),
        "peers": by_family(&|totals| json!({ "seeders": totals.seeders, "leechers": totals.leechers })),
        "traffic": requests,
        "last_24h": last_24h(&figures.stats.last_day),
    })
}

/// Returns the requests of the last 24 hours by protocol and family.
fn last_24h(day: &DayStats) -> Value {
    let mut shown = json!({ "since": day.since_unix_s });
    for DayTraffic { protocol, family, announces, scrapes, ok, refused } in &day.traffic {
        shown[protocol][family] =
            json!({ "announces": announces, "scrapes": scrapes, "ok": ok, "refused": refused });
    }
    shown
}

/// Returns the statistics in the shape of bittorrent-tracker. Shoal keeps no torrents without peers, so all of them are
/// active, and a peer is either a seeder or a leecher of one torrent.
fn bittorrent_tracker_shape(figures: &Figures) -> Value {
    let seeders = sum(figures, |totals| totals.seeders);
    let leechers = sum(figures, |totals| totals.leechers);
    let torrents = sum(figures, |totals| totals.swarms);
    let of_family = |family: &str| {
        let totals = figures.stats.swarms.iter().find(|totals| totals.family == family);
        totals.map_or(0, |totals| totals.seeders + totals.leechers)
    };
    json!({
        "torrents": torrents,
        "activeTorrents": torrents,
        "peersAll": seeders + leechers,
        "peersSeederOnly": seeders,
        "peersLeecherOnly": leechers,
        "peersSeederAndLeecher": 0,
        "peersIPv4": of_family("v4"),
        "peersIPv6": of_family("v6"),
        "clients": {},
    })
}

fn uptime_s(figures: &Figures) -> u64 {
    figures.stats.now_unix_s.saturating_sub(figures.stats.started_unix_s)
}

/// Returns the sum of a count over both families and WebTorrent.
fn sum(figures: &Figures, count: impl Fn(&SwarmTotals) -> u64) -> u64 {
    figures.stats.swarms.iter().map(count).sum()
}

/// Returns the number of requests of a kind over some protocols.
fn requests(figures: &Figures, is_counted: impl Fn(&Traffic) -> bool, kind: &str) -> u64 {
    let counted = figures.stats.traffic.iter().filter(|traffic| is_counted(traffic));
    counted.map(|traffic| traffic.requests.get(kind).copied().unwrap_or(0)).sum()
}
