//! The tables of each view, from the statistics and their rates.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use clap::ValueEnum;

use super::numbers::{UNKNOWN, bytes, count, duration, percent, rate, sum, time, words};
use super::table::{BAD, Cell, Column, FAINT, GOOD, Section, row};
use shoal_control::stats::{
    Connections, CountMap, Datagrams, Processing, Stats, SwarmTotals, TopSwarm, Traffic,
};

/// A certificate is marked when it has less time left.
const CERTIFICATE_WARNING_S: u64 = 14 * 86_400;

/// A worker is marked if it is silent for longer, or if its load is higher.
const WORKER_SILENCE_MS: u64 = 2000;
const BUSY: f64 = 0.85;

/// Memory, the store and connections are marked from this part of a ceiling.
const FULL: f64 = 0.95;

const NAME_NOW_COUNT: &[Column] = &[("", 0), ("now", 0), ("count", 0)];
const NAME_COUNT: &[Column] = &[("", 0), ("", 0)];

/// A page of figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Requests, refusals, swarms, memory, connections, workers, times
    #[default]
    Overview,
    /// The software of clients
    Clients,
    /// The largest swarms
    Torrents,
    /// Lists, their sources, and certificates
    Lists,
}

impl View {
    pub(super) const ALL: [Self; 4] = [Self::Overview, Self::Clients, Self::Torrents, Self::Lists];

    /// Returns its name, a short one for narrow screens, and the possible orders of its rows.
    pub(super) const fn names(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Overview => {
                ("Overview", "Over", &["refusals by count", "refusals by rate", "refusals by name"])
            }
            Self::Clients => ("Clients", "Clients", &["by share", "by name"]),
            Self::Torrents => {
                ("Torrents", "Torr", &["by peers", "by seeders", "by leechers", "by completed"])
            }
            Self::Lists => ("Lists and certificates", "Lists", &[]),
        }
    }
}

pub(super) fn requests(stats: &Stats) -> u64 {
    sum(stats.traffic.iter().map(requests_of))
}

fn requests_of(traffic: &Traffic) -> u64 {
    sum(traffic.requests.values().copied())
}

/// Returns warnings for the operator.
pub(super) fn warnings(stats: &Stats) -> Vec<String> {
    let mut found = Vec::new();
    for (number, worker) in stats.workers.iter().enumerate() {
        if worker.heartbeat_age_ms > WORKER_SILENCE_MS {
            let age = duration(worker.heartbeat_age_ms / 1000);
            found.push(format!("worker {number} has not responded for {age}"));
        }
    }
    for part in &stats.paused {
        let (protocol, family) = (words(&part.protocol), words(&part.family));
        found.push(format!("{protocol} {family} is paused: {}", part.reason));
    }
    for certificate in &stats.certificates {
        match certificate.not_after_unix_s.map(|end| end.checked_sub(stats.now_unix_s)) {
            Some(None) => found.push(format!("the certificate {} has expired", certificate.file)),
            Some(Some(left)) if left < CERTIFICATE_WARNING_S => {
                found.push(format!("the certificate {} expires in {}", certificate.file, duration(left)));
            }
            _ => {}
        }
    }
    for source in &stats.list_sources {
        if let Some(fault) = &source.fault {
            found.push(format!("access.{}, {}: {fault}", source.list, source.source));
        }
    }
    let store = sum(stats.memory.uses.iter().filter(|one| one.kind == "store").map(|one| one.bytes));
    if store as f64 > FULL * stats.memory.store_max as f64 {
        found
            .push("the store is nearly full: new peers are refused, or others make room for them".to_owned());
    }
    found
}

/// Statistics, with earlier ones of the same run of the tracker if there are any. Rates are the difference of the two,
/// divided by the time between them.
pub(super) struct Figures<'s> {
    stats: &'s Stats,
    before: Option<(&'s Stats, f64)>,
}

impl<'s> Figures<'s> {
    pub(super) fn new(stats: &'s Stats, before: Option<&'s Stats>) -> Self {
        let with_time = |before: &'s Stats| {
            let is_same_run = before.started_unix_s == stats.started_unix_s;
            let elapsed_ms = stats.monotonic_ms.checked_sub(before.monotonic_ms);
            let elapsed_ms = elapsed_ms.filter(|ms| is_same_run && *ms > 0)?;
            Some((before, elapsed_ms as f64 / 1000.0))
        };
        Self { stats, before: before.and_then(with_time) }
    }

    /// Returns the rate per second of the count that `read` returns.
    pub(super) fn rate(&self, read: impl Fn(&Stats) -> u64) -> Option<f64> {
        let (before, elapsed_s) = self.before?;
        Some(read(self.stats).saturating_sub(read(before)) as f64 / elapsed_s)
    }

    /// Returns the rate as text.
    pub(super) fn now(&self, read: impl Fn(&Stats) -> u64) -> String {
        self.rate(read).map_or_else(|| UNKNOWN.to_owned(), rate)
    }

    /// Returns a row of a count: the name, the rate and the count.
    fn counted(&self, name: &str, read: impl Fn(&Stats) -> u64) -> Vec<Cell> {
        row![name, self.now(&read), count(read(self.stats))]
    }

    /// Returns the tables of a view, with the rows in the order of this number.
    pub(super) fn sections(&self, view: View, order: usize) -> Vec<Section> {
        let stats = self.stats;
        match view {
            View::Overview => self.overview(order),
            View::Clients => vec![clients(stats, order)],
            View::Torrents => vec![torrents(stats, order)],
            View::Lists => vec![lists(stats), list_sources(stats), certificates(stats), reloads(stats)],
        }
    }

    fn overview(&self, order: usize) -> Vec<Section> {
        let stats = self.stats;
        let mut sections = vec![
            self.traffic(),
            swarms(stats),
            self.workers(),
            memory(stats),
            self.processing(),
            self.refusals(order),
            self.datagrams(),
            self.connections(),
        ];
        if stats.relays.offers > 0 || stats.relays.answers > 0 || !stats.relays.drops.is_empty() {
            sections.push(self.relays());
        }
        if stats.bans > 0 || !stats.bans_earned.is_empty() {
            let earned = stats.bans_earned.iter().map(|(cause, number)| row![words(cause), count(*number)]);
            let rows = earned.chain([row!["banned now", count(stats.bans)]]);
            sections.push(Section::new("Bans that sources have earned", NAME_COUNT, "", rows));
        }
        if !stats.unregistered.is_empty() {
            let rows = stats.unregistered.iter().map(|(limit, number)| row![words(limit), count(*number)]);
            sections.push(Section::new("Peers not registered, by limit", NAME_COUNT, "", rows));
        }
        sections
    }

    fn traffic(&self) -> Section {
        let columns = &[("", 0), ("now", 0), ("announces", 3), ("scrapes", 3), ("replies", 1), ("errors", 0)];
        let used = self.stats.traffic.iter().filter(|row| requests_of(row) > 0 || row.refused > 0);
        let rows = used.map(|row| {
            let of_row = |stats: &Stats| {
                let is_same = |other: &&Traffic| other.protocol == row.protocol && other.family == row.family;
                stats.traffic.iter().find(is_same).map_or(0, requests_of)
            };
            let kind = |kind: &str| row.requests.get(kind).copied().unwrap_or(0);
            let scrapes = kind("scrape").saturating_add(kind("full_scrape"));
            row![
                format!("{} {}", words(&row.protocol), words(&row.family)),
                self.now(of_row),
                count(kind("announce")),
                count(scrapes),
                count(row.ok),
                count(row.refused),
            ]
        });
        Section::new("Requests", columns, "No requests yet.", rows)
    }

    fn refusals(&self, order: usize) -> Section {
        let of_reason = |stats: &Stats, reason: &str| {
            let of_reason = stats.refusals.iter().filter(|refusals| refusals.reason == reason);
            sum(of_reason.map(|refusals| refusals.count))
        };
        let reasons: BTreeSet<_> = self.stats.refusals.iter().map(|refusals| &*refusals.reason).collect();
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        let rate_of = |reason: &str| self.rate(|stats| of_reason(stats, reason)).unwrap_or(0.0);
        match order {
            0 => reasons.sort_by_key(|reason| Reverse(of_reason(self.stats, reason))),
            1 => reasons.sort_by(|one, other| rate_of(other).total_cmp(&rate_of(one))),
            _ => {}
        }
        let rows =
            reasons.iter().map(|reason| self.counted(&words(reason), |stats| of_reason(stats, reason)));
        Section::new("Refusals by reason", NAME_NOW_COUNT, "No request was refused.", rows)
    }

    fn workers(&self) -> Section {
        let columns = &[("", 0), ("load", 0), ("interval", 2), ("lost", 1)];
        let rows = self.stats.workers.iter().enumerate().map(|(number, worker)| {
            let raise = format!("+{}", percent(worker.interval_raise));
            let load = Cell::bar(worker.busy, worker.busy > BUSY);
            row![format!("worker {number}"), load, raise, lost(worker.kernel_drops)]
        });
        let processors = self.before.map(|(before, elapsed_s)| {
            let part = percent((self.stats.cpu_s - before.cpu_s).max(0.0) / elapsed_s);
            row![Cell::styled("processor time", FAINT), Cell::styled(part, FAINT)]
        });
        Section::new("Load of workers", columns, "", rows.chain(processors))
    }

    fn processing(&self) -> Section {
        let columns = &[("", 0), ("50 % now", 0), ("99 % now", 0), ("50 % ever", 2), ("99 % ever", 1)];
        let quantile = |times: &Processing, part| match times.quantile(part) {
            None => UNKNOWN.to_owned(),
            Some(end) if end.is_finite() => format!("≤ {}", time(end)),
            Some(_) => times.bounds_s.last().map_or(UNKNOWN.to_owned(), |end| format!("> {}", time(*end))),
        };
        let used = self.stats.processing.iter().filter(|times| times.buckets.iter().any(|count| *count > 0));
        let rows = used.map(|times| {
            let now = self.before.map(|(before, _)| times_since(before, times));
            let of_now = |part| now.as_ref().map_or(UNKNOWN.to_owned(), |now| quantile(now, part));
            let (half, most) = (quantile(times, 0.5), quantile(times, 0.99));
            row![words(&times.protocol), of_now(0.5), of_now(0.99), half, most]
        });
        let none = "No samples yet.";
        Section::new("Time of requests in the tracker", columns, none, rows)
    }

    fn datagrams(&self) -> Section {
        let mut rows = Vec::new();
        for datagrams in &self.stats.datagrams {
            let of_family = |stats: &Stats, read: fn(&Datagrams) -> u64| {
                stats.datagrams.iter().find(|other| other.family == datagrams.family).map_or(0, read)
            };
            let name = words(&datagrams.family);
            rows.push(
                self.counted(&format!("{name} received"), |stats| of_family(stats, |all| all.received)),
            );
            rows.push(self.counted(&format!("{name} sent"), |stats| of_family(stats, |all| all.sent)));
            rows.extend(counts("no reply", &datagrams.drops));
            rows.extend(counts("not sent", &datagrams.reply_drops));
        }
        let drops = |stats: &Stats| sum(stats.workers.iter().map(|worker| worker.kernel_drops));
        rows.push(row!["lost by the kernel", self.now(drops), lost(drops(self.stats))]);
        Section::new("Datagrams", NAME_NOW_COUNT, "", rows)
    }

    fn connections(&self) -> Section {
        let connections = &self.stats.connections;
        let traffic = |name: &str, read: fn(&Connections) -> u64| {
            let per_s = self.rate(|stats| read(&stats.connections)).map(|per_s| bytes(per_s) + "/s");
            row![name, per_s.unwrap_or_else(|| UNKNOWN.to_owned()), bytes(read(connections) as f64)]
        };
        let is_full = connections.open as f64 > FULL * connections.max as f64;
        let open = format!("{} of {}", count(connections.open), count(connections.max));
        let mut rows = vec![
            row!["open", "", Cell::marked(open, is_full)],
            self.counted("accepted", |stats| stats.connections.accepted),
            traffic("received", |connections| connections.received_bytes),
            traffic("sent", |connections| connections.sent_bytes),
        ];
        for (name, of_label) in connections.by_label() {
            let name = match &*name {
                "tls_handshakes" => "TLS".to_owned(),
                "websocket_upgrades" => "WebSocket".to_owned(),
                name => words(name),
            };
            rows.extend(counts(&name, &of_label));
        }
        Section::new("Connections", NAME_NOW_COUNT, "", rows)
    }

    fn relays(&self) -> Section {
        let mut rows = vec![
            self.counted("offers", |stats| stats.relays.offers),
            self.counted("answers", |stats| stats.relays.answers),
        ];
        rows.extend(self.stats.relays.drops.keys().map(|reason| {
            let of_reason = |stats: &Stats| stats.relays.drops.get(reason).copied().unwrap_or(0);
            self.counted(&format!("dropped, {}", words(reason)), of_reason)
        }));
        Section::new("Relayed WebTorrent messages", NAME_NOW_COUNT, "", rows)
    }
}

/// Returns the processing times of a protocol since earlier statistics.
fn times_since(before: &Stats, after: &Processing) -> Processing {
    let is_same = |before: &&Processing| {
        before.protocol == after.protocol && before.buckets.len() == after.buckets.len()
    };
    let mut difference = after.clone();
    if let Some(before) = before.processing.iter().find(is_same) {
        for (bucket, before) in difference.buckets.iter_mut().zip(&before.buckets) {
            *bucket = bucket.saturating_sub(*before);
        }
    }
    difference
}

/// Returns a row for each count, without a rate.
fn counts(prefix: &str, counts: &CountMap) -> impl Iterator<Item = Vec<Cell>> {
    counts.iter().map(move |(name, number)| row![format!("{prefix}, {}", words(name)), "", count(*number)])
}

/// Returns a count as a cell, marked unless it is zero.
fn lost(number: u64) -> Cell {
    Cell::marked(count(number), number > 0)
}

fn swarms(stats: &Stats) -> Section {
    let columns =
        &[("", 0), ("swarms", 0), ("seeders", 0), ("leechers", 0), ("completed", 1), ("expired", 2)];
    let counts_of = |totals: &SwarmTotals| {
        [totals.swarms, totals.seeders, totals.leechers, totals.completed, totals.expired]
    };
    let row = |name: String, counts: [u64; 5]| {
        [Cell::from(name)].into_iter().chain(counts.map(|number| Cell::from(count(number)))).collect()
    };
    let families = stats.swarms.iter().map(|totals| row(words(&totals.family), counts_of(totals)));
    let all = std::array::from_fn(|place| sum(stats.swarms.iter().map(|totals| counts_of(totals)[place])));
    Section::new("Swarms", columns, "", families.chain([row("all".to_owned(), all)]))
}

fn memory(stats: &Stats) -> Section {
    let memory = &stats.memory;
    let name = |kind: &str| match kind {
        "store" => "swarms".to_owned(),
        "webtorrent_swarms" => "WebTorrent".to_owned(),
        kind => words(kind),
    };
    let row = |name: String, used: u64| {
        let part = used as f64 / memory.max as f64;
        row![name, Cell::bar(part, part > FULL), bytes(used as f64)]
    };
    let faint = |name: &str, text: String| row![Cell::styled(name, FAINT), "", Cell::styled(text, FAINT)];
    let uses = memory.uses.iter().map(|one| row(name(&one.kind), one.bytes));
    let all = row("all".to_owned(), sum(memory.uses.iter().map(|one| one.bytes)));
    let rest = [all, faint("ceiling", bytes(memory.max as f64))];
    let per_peer = memory.per_peer.map(|per_peer| faint("a peer", format!("{per_peer:.1} B")));
    let columns = &[("", 0), ("", 1), ("", 0)];
    Section::new("Memory", columns, "", uses.chain(rest).chain(per_peer))
}

fn clients(stats: &Stats, order: usize) -> Section {
    let mut clients: Vec<_> = stats.clients.iter().collect();
    match order {
        0 => clients.sort_by(|one, other| other.share.total_cmp(&one.share)),
        _ => clients.sort_by_key(|client| client.software.to_lowercase()),
    }
    // "other" is no software.
    clients.sort_by_key(|client| client.software == "other");
    let rows = clients.into_iter().map(|client| {
        let versions = client.versions.iter().map(|(version, part)| format!("{version} {}", percent(*part)));
        let versions = versions.collect::<Vec<_>>().join(", ");
        row![&client.software, Cell::bar(client.share, false), Cell::words(versions)]
    });
    let columns = &[("software", 0), ("share", 0), ("versions", 1)];
    let none = "No announces yet.";
    Section::new("Software of clients, by announces of the last hour", columns, none, rows)
}

fn torrents(stats: &Stats, order: usize) -> Section {
    let columns = &[("info hash", 0), ("peers", 0), ("seeders", 1), ("leechers", 1), ("completed", 2)];
    let numbers = |swarm: &TopSwarm| {
        let [seeders, leechers, completed] = [swarm.seeders, swarm.leechers, swarm.completed].map(u64::from);
        [seeders + leechers, seeders, leechers, completed]
    };
    let mut swarms: Vec<_> = stats.top_swarms.iter().collect();
    swarms.sort_by_key(|swarm| Reverse(numbers(swarm)[order.min(3)]));
    let rows = swarms.into_iter().map(|swarm| {
        let numbers = numbers(swarm).map(|number| Cell::from(count(number)));
        [Cell::from(&swarm.info_hash)].into_iter().chain(numbers).collect()
    });
    let none = "No announces yet.";
    Section::new("Largest swarms", columns, none, rows)
}

fn lists(stats: &Stats) -> Section {
    let columns = &[("", 0), ("torrents", 0), ("memory", 2), ("read", 0), ("faulty sources", 1)];
    let rows = stats.lists.iter().map(|list| {
        let read = match list.applied_unix_s {
            0 => "never".to_owned(),
            at => duration(stats.now_unix_s.saturating_sub(at)) + " ago",
        };
        let memory = bytes(list.memory_bytes as f64);
        row![words(&list.name), count(list.torrents), memory, read, lost(list.faulty_sources)]
    });
    Section::new("Lists of torrents", columns, "No lists.", rows)
}

fn list_sources(stats: &Stats) -> Section {
    let rows = stats.list_sources.iter().map(|source| {
        let key = Cell::words(&source.list);
        row![&source.source, duration(source.age_s), lost(source.failures), key]
    });
    let columns = &[("source", 0), ("age", 0), ("failures", 0), ("key", 1)];
    Section::new("Sources of the lists", columns, "No list has a source.", rows)
}

fn certificates(stats: &Stats) -> Section {
    let rows = stats.certificates.iter().map(|certificate| {
        let left = certificate.not_after_unix_s.map(|end| end.checked_sub(stats.now_unix_s));
        let expires = match left {
            None => Cell::from(UNKNOWN),
            Some(None) => Cell::styled("expired", BAD),
            Some(Some(left)) => {
                let style = if left < CERTIFICATE_WARNING_S { BAD } else { GOOD };
                Cell::styled(format!("in {}", duration(left)), style)
            }
        };
        row![certificate.names.join(", "), expires, Cell::words(&certificate.file)]
    });
    let columns = &[("names", 0), ("expires", 0), ("file", 1)];
    Section::new("Certificates", columns, "No certificates: TLS is not served.", rows)
}

fn reloads(stats: &Stats) -> Section {
    let rows = stats.reloads.iter().map(|(outcome, number)| {
        row![words(outcome), Cell::marked(count(*number), outcome == "failed" && *number > 0)]
    });
    Section::new("Reloads", NAME_COUNT, "None.", rows)
}
