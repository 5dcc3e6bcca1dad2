//! The tables of each view, from the statistics and their rates.

mod overview;

use clap::ValueEnum;

pub(super) use self::overview::requests;
use super::numbers::{UNKNOWN, bytes, count, duration, percent, sum, words};
use super::rates::Rates;
use super::table::{Cell, Column, Section, Tone};
use shoal_control::stats::{Stats, TopSwarm};

/// The time before the end of a certificate from which it is marked.
const CERTIFICATE_WARNING_S: u64 = 14 * 86_400;

/// The silence of a worker from which it is marked.
const WORKER_SILENCE_MS: u64 = 2000;

/// The part of its ceiling from which the store is marked.
const STORE_FULL: f64 = 0.95;

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

    /// Returns its name, and a short one for narrow screens.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Overview => ("Overview", "Over"),
            Self::Clients => ("Clients", "Clients"),
            Self::Torrents => ("Torrents", "Torr"),
            Self::Lists => ("Lists and certificates", "Lists"),
        }
    }

    /// Returns the orders into which its rows can be brought.
    pub(super) const fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Overview => &["refusals by count", "refusals by rate", "refusals by name"],
            Self::Clients => &["by share", "by name"],
            Self::Torrents => &["by peers", "by seeders", "by leechers", "by completed"],
            Self::Lists => &[],
        }
    }

    /// Returns its tables, with the rows in the order of this number.
    pub(super) fn sections(self, stats: &Stats, rates: Option<&Rates<'_>>, order: usize) -> Vec<Section> {
        match self {
            Self::Overview => overview::sections(stats, rates, order),
            Self::Clients => vec![clients(stats, order)],
            Self::Torrents => vec![torrents(stats, order)],
            Self::Lists => vec![lists(stats), list_sources(stats), certificates(stats), reloads(stats)],
        }
    }
}

/// Returns what an operator should look at.
pub(super) fn warnings(stats: &Stats) -> Vec<String> {
    let mut found = Vec::new();
    for (number, worker) in stats.workers.iter().enumerate() {
        if worker.heartbeat_age_ms > WORKER_SILENCE_MS {
            let age = duration(worker.heartbeat_age_ms / 1000);
            found.push(format!("worker {number} has not responded for {age}"));
        }
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
    let store = stats.memory.uses.iter().filter(|one| one.kind == "store");
    let store = sum(store.map(|one| one.bytes));
    if store as f64 > STORE_FULL * stats.memory.store_max as f64 {
        found
            .push("the store is nearly full: new peers are refused, or others make room for them".to_owned());
    }
    found
}

fn clients(stats: &Stats, order: usize) -> Section {
    let mut clients: Vec<_> = stats.clients.iter().collect();
    match order {
        0 => clients.sort_by(|one, other| other.share.total_cmp(&one.share)),
        _ => clients.sort_by_key(|client| client.software.to_lowercase()),
    }
    // The rest is not a software.
    clients.sort_by_key(|client| client.software == "other");
    let rows = clients.into_iter().map(|client| {
        let versions = client.versions.iter().map(|(version, part)| format!("{version} {}", percent(*part)));
        let versions = versions.collect::<Vec<_>>().join(", ");
        vec![
            Cell::new(&client.software),
            Cell::part(client.share, Tone::Plain),
            Cell::toned(versions, Tone::Faint),
        ]
    });
    Section {
        title: "Software of clients, by announces of the last hour",
        columns: vec![
            Column::words("software", 0),
            Column::numbers("share", 0),
            Column::words("versions", 1),
        ],
        rows: rows.collect(),
        none: "No announces yet.",
    }
}

fn torrents(stats: &Stats, order: usize) -> Section {
    let key = |swarm: &&TopSwarm| match order {
        0 => u64::from(swarm.seeders) + u64::from(swarm.leechers),
        1 => swarm.seeders.into(),
        2 => swarm.leechers.into(),
        _ => swarm.completed.into(),
    };
    let mut swarms: Vec<_> = stats.top_swarms.iter().collect();
    swarms.sort_by_key(|swarm| core::cmp::Reverse(key(swarm)));
    let rows = swarms.into_iter().map(|swarm| {
        let numbers =
            [swarm.seeders, swarm.leechers, swarm.completed].map(|number| Cell::new(count(number.into())));
        let peers = count(u64::from(swarm.seeders) + u64::from(swarm.leechers));
        [Cell::new(&swarm.info_hash), Cell::new(peers)].into_iter().chain(numbers).collect()
    });
    Section {
        title: "Largest swarms",
        columns: vec![
            Column::words("info hash", 0),
            Column::numbers("peers", 0),
            Column::numbers("seeders", 1),
            Column::numbers("leechers", 1),
            Column::numbers("completed", 2),
        ],
        rows: rows.collect(),
        none: "No announces yet.",
    }
}

fn lists(stats: &Stats) -> Section {
    let rows = stats.lists.iter().map(|list| {
        let read = match list.applied_unix_s {
            0 => "never".to_owned(),
            at => duration(stats.now_unix_s.saturating_sub(at)) + " ago",
        };
        let faulty = Cell::toned(
            count(list.faulty_sources),
            if list.faulty_sources > 0 { Tone::Bad } else { Tone::Plain },
        );
        let memory = Cell::new(bytes(list.memory_bytes as f64));
        vec![Cell::new(words(&list.name)), Cell::new(count(list.torrents)), memory, Cell::new(read), faulty]
    });
    Section {
        title: "Lists of torrents",
        columns: vec![
            Column::words("", 0),
            Column::numbers("torrents", 0),
            Column::numbers("memory", 2),
            Column::numbers("read", 0),
            Column::numbers("faulty sources", 1),
        ],
        rows: rows.collect(),
        none: "No lists.",
    }
}

fn list_sources(stats: &Stats) -> Section {
    let rows = stats.list_sources.iter().map(|source| {
        let tone = if source.failures > 0 { Tone::Bad } else { Tone::Plain };
        vec![
            Cell::new(&source.source),
            Cell::new(duration(source.age_s)),
            Cell::toned(count(source.failures), tone),
            Cell::toned(&source.list, Tone::Faint),
        ]
    });
    Section {
        title: "Sources of the lists",
        columns: vec![
            Column::words("source", 0),
            Column::numbers("age", 0),
            Column::numbers("failures", 0),
            Column::words("key", 1),
        ],
        rows: rows.collect(),
        none: "No list has a source.",
    }
}

fn certificates(stats: &Stats) -> Section {
    let rows = stats.certificates.iter().map(|certificate| {
        let left = certificate.not_after_unix_s.map(|end| end.checked_sub(stats.now_unix_s));
        let expires = match left {
            None => Cell::new(UNKNOWN),
            Some(None) => Cell::toned("expired", Tone::Bad),
            Some(Some(left)) if left < CERTIFICATE_WARNING_S => {
                Cell::toned(format!("in {}", duration(left)), Tone::Bad)
            }
            Some(Some(left)) => Cell::toned(format!("in {}", duration(left)), Tone::Good),
        };
        let names = certificate.names.join(", ");
        vec![Cell::new(names), expires, Cell::toned(&certificate.file, Tone::Faint)]
    });
    Section {
        title: "Certificates",
        columns: vec![Column::words("names", 0), Column::numbers("expires", 0), Column::words("file", 1)],
        rows: rows.collect(),
        none: "No certificates: TLS is not served.",
    }
}

fn reloads(stats: &Stats) -> Section {
    let rows = stats.reloads.iter().map(|(outcome, number)| {
        let tone = if outcome == "failed" && *number > 0 { Tone::Bad } else { Tone::Plain };
        vec![Cell::new(words(outcome)), Cell::toned(count(*number), tone)]
    });
    Section {
        title: "Reloads",
        columns: vec![Column::words("", 0), Column::numbers("", 0)],
        rows: rows.collect(),
        none: "None.",
    }
}
