//! The tables of the overview.

use std::collections::BTreeMap;

use crate::top::numbers::{UNKNOWN, bytes, count, percent, rate, sum, time, words};
use crate::top::rates::Rates;
use crate::top::table::{Cell, Column, Section, Tone};
use shoal_control::stats::{Connections, Processing, Stats, SwarmTotals, Traffic};

/// The load of a worker from which it is marked.
const BUSY: f64 = 0.85;

/// The part of its ceiling from which memory is marked.
const FULL: f64 = 0.95;

pub(super) fn sections(stats: &Stats, rates: Option<&Rates<'_>>, order: usize) -> Vec<Section> {
    let mut sections = vec![
        traffic(stats, rates),
        swarms(stats),
        workers(stats, rates),
        memory(stats),
        processing(stats, rates),
        refusals(stats, rates, order),
        datagrams(stats, rates),
        connections(&stats.connections, rates),
    ];
    if stats.relays.offers > 0 || stats.relays.answers > 0 || !stats.relays.drops.is_empty() {
        sections.push(relays(stats, rates));
    }
    if !stats.unregistered.is_empty() {
        sections.push(unregistered(stats));
    }
    sections
}

/// Returns the number of all requests.
pub(in crate::top) fn requests(stats: &Stats) -> u64 {
    sum(stats.traffic.iter().map(requests_of))
}

fn requests_of(traffic: &Traffic) -> u64 {
    sum(traffic.requests.values().copied())
}

/// Returns a rate as a cell.
fn now(rates: Option<&Rates<'_>>, read: impl Fn(&Stats) -> u64) -> Cell {
    Cell::new(rates.map_or_else(|| UNKNOWN.to_owned(), |rates| rate(rates.of(read))))
}

/// Returns a count as a cell that is marked if it is not zero.
fn lost(number: u64) -> Cell {
    Cell::toned(count(number), if number > 0 { Tone::Bad } else { Tone::Plain })
}

fn traffic(stats: &Stats, rates: Option<&Rates<'_>>) -> Section {
    let used = stats.traffic.iter().filter(|row| requests_of(row) > 0 || row.refused > 0);
    let rows = used.map(|row| {
        let of_row = |stats: &Stats, read: fn(&Traffic) -> u64| {
            let is_same = |other: &&Traffic| other.protocol == row.protocol && other.family == row.family;
            stats.traffic.iter().find(is_same).map_or(0, read)
        };
        let kind = |kind: &str| row.requests.get(kind).copied().unwrap_or(0);
        vec![
            Cell::new(format!("{} {}", words(&row.protocol), words(&row.family))),
            now(rates, |stats| of_row(stats, requests_of)),
            Cell::new(count(kind("announce"))),
            Cell::new(count(kind("scrape").saturating_add(kind("full_scrape")))),
            Cell::new(count(row.ok)),
            Cell::new(count(row.refused)),
        ]
    });
    Section {
        title: "Requests",
        columns: vec![
            Column::words("", 0),
            Column::numbers("now", 0),
            Column::numbers("announces", 3),
            Column::numbers("scrapes", 3),
            Column::numbers("replies", 1),
            Column::numbers("errors", 0),
        ],
        rows: rows.collect(),
        none: "No requests yet.",
    }
}

fn refusals(stats: &Stats, rates: Option<&Rates<'_>>, order: usize) -> Section {
    let mut by_reason = BTreeMap::<&str, u64>::new();
    for refusals in &stats.refusals {
        let number = by_reason.entry(&refusals.reason).or_default();
        *number = number.saturating_add(refusals.count);
    }
    let of_reason = |stats: &Stats, reason: &str| {
        let of_reason = stats.refusals.iter().filter(|refusals| refusals.reason == reason);
        sum(of_reason.map(|refusals| refusals.count))
    };
    let mut by_reason: Vec<_> = by_reason
        .into_iter()
        .map(|(reason, number)| {
            (reason, number, rates.map_or(0.0, |rates| rates.of(|stats| of_reason(stats, reason))))
        })
        .collect();
    match order {
        0 => by_reason.sort_by_key(|(_, number, _)| core::cmp::Reverse(*number)),
        1 => by_reason.sort_by(|(.., one), (.., other)| other.total_cmp(one)),
        _ => {}
    }
    let rows = by_reason.into_iter().map(|(reason, number, _)| {
        vec![Cell::new(words(reason)), now(rates, |stats| of_reason(stats, reason)), Cell::new(count(number))]
    });
    Section {
        title: "Refusals by reason",
        columns: vec![Column::words("", 0), Column::numbers("now", 0), Column::numbers("count", 0)],
        rows: rows.collect(),
        none: "No request was refused.",
    }
}

fn swarms(stats: &Stats) -> Section {
    let row = |name: String, totals: &SwarmTotals| {
        let counts = [totals.swarms, totals.seeders, totals.leechers, totals.completed, totals.expired];
        [Cell::new(name)].into_iter().chain(counts.map(|number| Cell::new(count(number)))).collect()
    };
    let all = |read: fn(&SwarmTotals) -> u64| sum(stats.swarms.iter().map(read));
    let all = SwarmTotals {
        swarms: all(|totals| totals.swarms),
        seeders: all(|totals| totals.seeders),
        leechers: all(|totals| totals.leechers),
        completed: all(|totals| totals.completed),
        expired: all(|totals| totals.expired),
        ..SwarmTotals::default()
    };
    let families = stats.swarms.iter().map(|totals| row(words(&totals.family), totals));
    Section {
        title: "Swarms",
        columns: vec![
            Column::words("", 0),
            Column::numbers("swarms", 0),
            Column::numbers("seeders", 0),
            Column::numbers("leechers", 0),
            Column::numbers("completed", 1),
            Column::numbers("expired", 2),
        ],
        rows: families.chain([row("all".to_owned(), &all)]).collect(),
        none: "",
    }
}

fn workers(stats: &Stats, rates: Option<&Rates<'_>>) -> Section {
    let rows = stats.workers.iter().enumerate().map(|(number, worker)| {
        vec![
            Cell::new(format!("worker {number}")),
            Cell::part(worker.busy, if worker.busy > BUSY { Tone::Bad } else { Tone::Plain }),
            Cell::new(format!("+{}", percent(worker.interval_raise))),
            lost(worker.kernel_drops),
        ]
    });
    let processors = rates.map(|rates| {
        vec![
            Cell::toned("processor time", Tone::Faint),
            Cell::toned(percent(rates.processors()), Tone::Faint),
        ]
    });
    Section {
        title: "Load of workers",
        columns: vec![
            Column::words("", 0),
            Column::numbers("load", 0),
            Column::numbers("interval", 2),
            Column::numbers("lost", 1),
        ],
        rows: rows.chain(processors).collect(),
        none: "",
    }
}

fn memory(stats: &Stats) -> Section {
    let memory = &stats.memory;
    let of_max = |bytes: u64| bytes as f64 / memory.max as f64;
    let name = |kind: &str| match kind {
        "store" => "swarms".to_owned(),
        "webtorrent_swarms" => "WebTorrent".to_owned(),
        kind => words(kind),
    };
    let row = |name: String, used: u64| {
        let tone = if of_max(used) > FULL { Tone::Bad } else { Tone::Plain };
        vec![Cell::new(name), Cell::part(of_max(used), tone), Cell::new(bytes(used as f64))]
    };
    let mut rows: Vec<_> = memory.uses.iter().map(|one| row(name(&one.kind), one.bytes)).collect();
    rows.push(row("all".to_owned(), sum(memory.uses.iter().map(|one| one.bytes))));
    let faint = |text: String| Cell::toned(text, Tone::Faint);
    rows.push(vec![faint("ceiling".to_owned()), Cell::default(), faint(bytes(memory.max as f64))]);
    if let Some(per_peer) = memory.per_peer {
        rows.push(vec![faint("a peer".to_owned()), Cell::default(), faint(format!("{per_peer:.1} B"))]);
    }
    Section {
        title: "Memory",
        columns: vec![Column::words("", 0), Column::numbers("", 1), Column::numbers("", 0)],
        rows,
        none: "",
    }
}

fn processing(stats: &Stats, rates: Option<&Rates<'_>>) -> Section {
    let quantile = |times: &Processing, part| match times.quantile(part) {
        None => UNKNOWN.to_owned(),
        Some(end) if end.is_finite() => format!("≤ {}", time(end)),
        Some(_) => times.bounds_s.last().map_or(UNKNOWN.to_owned(), |end| format!("> {}", time(*end))),
    };
    let used = stats.processing.iter().filter(|times| times.buckets.iter().any(|count| *count > 0));
    let rows = used.map(|times| {
        let now = rates.map(|rates| rates.processing(times));
        let of_now = |part| now.as_ref().map_or(UNKNOWN.to_owned(), |now| quantile(now, part));
        vec![
            Cell::new(words(&times.protocol)),
            Cell::new(of_now(0.5)),
            Cell::new(of_now(0.99)),
            Cell::new(quantile(times, 0.5)),
            Cell::new(quantile(times, 0.99)),
        ]
    });
    Section {
        title: "Time of requests in the tracker",
        columns: vec![
            Column::words("", 0),
            Column::numbers("50 % now", 0),
            Column::numbers("99 % now", 0),
            Column::numbers("50 % ever", 2),
            Column::numbers("99 % ever", 1),
        ],
        rows: rows.collect(),
        none: "No samples yet.",
    }
}

fn datagrams(stats: &Stats, rates: Option<&Rates<'_>>) -> Section {
    let mut rows = Vec::new();
    for datagrams in &stats.datagrams {
        let of_family = |stats: &Stats, read: fn(&shoal_control::stats::Datagrams) -> u64| {
            stats.datagrams.iter().find(|other| other.family == datagrams.family).map_or(0, read)
        };
        let name = words(&datagrams.family);
        rows.push(vec![
            Cell::new(format!("{name} received")),
            now(rates, |stats| of_family(stats, |datagrams| datagrams.received)),
            Cell::new(count(datagrams.received)),
        ]);
        rows.push(vec![
            Cell::new(format!("{name} sent")),
            now(rates, |stats| of_family(stats, |datagrams| datagrams.sent)),
            Cell::new(count(datagrams.sent)),
        ]);
        for (reason, number) in &datagrams.drops {
            rows.push(vec![
                Cell::new(format!("no reply, {}", words(reason))),
                Cell::default(),
                Cell::new(count(*number)),
            ]);
        }
        for (reason, number) in &datagrams.reply_drops {
            rows.push(vec![
                Cell::new(format!("not sent, {}", words(reason))),
                Cell::default(),
                Cell::new(count(*number)),
            ]);
        }
    }
    let drops = |stats: &Stats| sum(stats.workers.iter().map(|worker| worker.kernel_drops));
    rows.push(vec![Cell::new("lost by the kernel"), now(rates, drops), lost(drops(stats))]);
    Section { title: "Datagrams", columns: name_now_count(), rows, none: "" }
}

fn connections(connections: &Connections, rates: Option<&Rates<'_>>) -> Section {
    let row = |name: &str, number: String, read: fn(&Connections) -> u64| {
        vec![Cell::new(name), now(rates, |stats| read(&stats.connections)), Cell::new(number)]
    };
    let traffic = |name: &str, number: u64, read: fn(&Connections) -> u64| {
        let per_s = rates.map(|rates| bytes(rates.of(|stats| read(&stats.connections))) + "/s");
        let per_s = per_s.unwrap_or_else(|| UNKNOWN.to_owned());
        vec![Cell::new(name), Cell::new(per_s), Cell::new(bytes(number as f64))]
    };
    let is_full = connections.open as f64 > FULL * connections.max as f64;
    let open = format!("{} of {}", count(connections.open), count(connections.max));
    let open = Cell::toned(open, if is_full { Tone::Bad } else { Tone::Plain });
    let mut rows = vec![
        vec![Cell::new("open"), Cell::default(), open],
        row("accepted", count(connections.accepted), |connections| connections.accepted),
        traffic("received", connections.received_bytes, |connections| connections.received_bytes),
        traffic("sent", connections.sent_bytes, |connections| connections.sent_bytes),
    ];
    let counted = [
        ("ended", &connections.ended),
        ("TLS", &connections.tls_handshakes),
        ("WebSocket", &connections.websocket_upgrades),
    ];
    for (name, counts) in counted {
        let counts = counts.iter().map(|(reason, number)| {
            vec![Cell::new(format!("{name}, {}", words(reason))), Cell::default(), Cell::new(count(*number))]
        });
        rows.extend(counts);
    }
    Section { title: "Connections", columns: name_now_count(), rows, none: "" }
}

fn relays(stats: &Stats, rates: Option<&Rates<'_>>) -> Section {
    let mut rows = vec![
        vec![
            Cell::new("offers"),
            now(rates, |stats| stats.relays.offers),
            Cell::new(count(stats.relays.offers)),
        ],
        vec![
            Cell::new("answers"),
            now(rates, |stats| stats.relays.answers),
            Cell::new(count(stats.relays.answers)),
        ],
    ];
    for (reason, number) in &stats.relays.drops {
        let of_reason = |stats: &Stats| stats.relays.drops.get(reason).copied().unwrap_or(0);
        rows.push(vec![
            Cell::new(format!("dropped, {}", words(reason))),
            now(rates, of_reason),
            Cell::new(count(*number)),
        ]);
    }
    Section { title: "Relayed WebTorrent messages", columns: name_now_count(), rows, none: "" }
}

fn unregistered(stats: &Stats) -> Section {
    let rows = stats
        .unregistered
        .iter()
        .map(|(limit, number)| vec![Cell::new(words(limit)), Cell::new(count(*number))]);
    Section {
        title: "Peers not registered, by limit",
        columns: vec![Column::words("", 0), Column::numbers("", 0)],
        rows: rows.collect(),
        none: "",
    }
}

fn name_now_count() -> Vec<Column> {
    vec![Column::words("", 0), Column::numbers("now", 0), Column::numbers("count", 0)]
}
