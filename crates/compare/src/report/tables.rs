//! The tables of the report.

use super::number::{self, NOTHING};
use super::page::Table;
use super::ranking::{Pairing, Ranking, Ratio};
use super::relayed;
use super::round::{self, Marks};
use super::row::{self, Measured, Outcome, Row};
use super::unit::UnitLabels;
use crate::result::{Cell, Comparison, Round};

/// A longer reason is shortened here and shown in full in the list of what was not counted.
const REASON_CHARS_MAX: usize = 40;

/// Returns the main table.
pub(super) fn main(rows: &[Row<'_>]) -> Table {
    if is_idle(rows) {
        return idle(rows);
    }
    if relayed::is_relayed(rows) {
        return relayed::main(rows);
    }
    let head = vec![
        "Responses/s",
        "CPU µs each",
        "of it user",
        "Tracker busy",
        "Memory MB",
        "of it fill",
        "p99 µs at rate",
    ];
    table(head, rows, outcome_with_reason, |row| {
        let marks = row.marks;
        let latency = row.latency.as_ref();
        let latency_marks = latency.map(|latency| latency.marks).unwrap_or_default();
        vec![
            number::spread(row.responses_per_s, marks, number::whole),
            number::spread(row.whole_us, marks, number::hundredths),
            number::with_error(row.user_us, row.user_error_us, marks),
            number::median(row.tracker_busy, marks, number::busy),
            number::spread(row.resident_mb, Marks::default(), number::figure),
            number::spread(row.filled_mb, Marks::default(), number::figure),
            number::spread(latency.and_then(|latency| latency.p99_us), latency_marks, number::figure),
        ]
    })
}

/// Returns the main table with fewer columns and without ranges, for a narrow terminal.
pub(super) fn brief(rows: &[Row<'_>]) -> Table {
    let unmarked = Marks::default();
    if is_idle(rows) {
        return table(vec!["Connections", "KiB each", "MB with all"], rows, outcome_word, |row| {
            let Some(idle) = &row.idle else { return vec![] };
            vec![
                number::median(idle.open, row.marks, number::whole),
                number::median(idle.each_kib, row.marks, number::hundredths),
                number::median(idle.open_mb, unmarked, number::figure),
            ]
        });
    }
    let rate = UnitLabels::of(rows).rate;
    table(vec![rate, "CPU µs", "MB", "p99 µs"], rows, outcome_word, |row| {
        let latency = row.latency.as_ref();
        let latency_marks = latency.map(|latency| latency.marks).unwrap_or_default();
        // With WebTorrent, that of a relayed offer, as in the whole table.
        let p99_us =
            latency.and_then(|latency| latency.relay_us.map_or(latency.p99_us, |[_, _, p99_us, ..]| p99_us));
        vec![
            number::median(row.responses_per_s, row.marks, number::whole),
            number::median(row.whole_us, row.marks, number::hundredths),
            number::median(row.resident_mb, unmarked, number::figure),
            number::median(p99_us, latency_marks, number::figure),
        ]
    })
}

/// Returns the main table of idle connections.
pub(super) fn idle(rows: &[Row<'_>]) -> Table {
    let mut head = vec!["Connections", "KiB each", "Memory MB before", "Memory MB with all"];
    let idle = |row: &Row<'_>| row.measured().and_then(|measured| measured.idle.as_ref()?.first_kib);
    let has_steps = rows.iter().any(|row| idle(row).is_some());
    head.extend(has_steps.then_some("KiB each of the first 1,000"));
    table(head, rows, outcome_with_reason, |row| {
        let Some(idle) = &row.idle else { return vec![] };
        let unmarked = Marks::default();
        let mut line = vec![
            number::median(idle.open, row.marks, number::whole),
            number::spread(idle.each_kib, row.marks, number::hundredths),
            number::spread(idle.before_mb, unmarked, number::figure),
            number::spread(idle.open_mb, unmarked, number::figure),
        ];
        line.extend(has_steps.then(|| number::spread(idle.first_kib, unmarked, number::hundredths)));
        line
    })
}

/// Returns the table of connections.
pub(super) fn connections(rows: &[Row<'_>]) -> Table {
    let head = vec!["Opened/s", "Full handshakes/s", "Resumed/s", "Ready after µs (median)", "Failed"];
    let unmarked = Marks::default();
    table(head, rows, outcome_word, |row| match &row.connections {
        None => vec![],
        Some(connections) => vec![
            number::median(connections.opened_per_s, unmarked, number::whole),
            number::median(connections.full_per_s, unmarked, number::whole),
            number::median(connections.resumed_per_s, unmarked, number::whole),
            number::spread(connections.setup_p50_us, unmarked, number::figure),
            number::median(connections.failed, unmarked, number::whole),
        ],
    })
}

/// Returns the table of replies, good and bad.
pub(super) fn replies(rows: &[Row<'_>]) -> Table {
    let head = vec!["Connects/s", "Announces/s", "Scrapes/s", "Peers each", "Lost", "Errors", "Wrong"];
    let unmarked = Marks::default();
    let table = table(head, rows, outcome_word, |row| {
        vec![
            // Connects exist over UDP only.
            match row.connections {
                Some(_) => NOTHING.into(),
                None => number::median(row.connects_per_s, unmarked, number::whole),
            },
            number::median(row.announces_per_s, unmarked, number::whole),
            number::median(row.scrapes_per_s, unmarked, number::whole),
            number::median(row.peers_per_announce, unmarked, number::hundredths),
            number::median(row.loss_share, unmarked, number::percent),
            number::median(row.errors, unmarked, number::whole),
            number::median(row.wrong, unmarked, number::whole),
        ]
    });
    with_rounds(table, rows)
}

/// Returns the table of CPU time and busy processors.
pub(super) fn processors(rows: &[Row<'_>]) -> Table {
    let head = vec![
        "User µs each",
        "System µs each",
        "Receive µs each",
        "Whole core µs each",
        "Tracker busy",
        "Load's CPUs busy",
    ];
    table(head, rows, outcome_word, |row| {
        vec![
            number::with_error(row.user_us, row.user_error_us, row.marks),
            number::spread(row.system_us, row.marks, number::hundredths),
            number::spread(row.receive_us, row.marks, number::hundredths),
            number::spread(row.core_us, row.marks, number::hundredths),
            number::median(row.tracker_busy, Marks::default(), number::busy),
            number::median(row.load_busy, Marks::default(), number::percent),
        ]
    })
}

/// Returns the table of the open loop.
pub(super) fn latency(rows: &[Row<'_>]) -> Table {
    let head = vec!["p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "Max µs", "Responses/s", "Lost"];
    table(head, rows, outcome_word, |row| match &row.latency {
        Some(latency) => {
            let marks = latency.marks;
            vec![
                number::spread(latency.p50_us, marks, number::figure),
                number::spread(latency.p90_us, marks, number::figure),
                number::spread(latency.p99_us, marks, number::figure),
                number::spread(latency.p99_9_us, marks, number::figure),
                number::spread(latency.max_us, marks, number::figure),
                number::median(latency.responses_per_s, Marks::default(), number::whole),
                number::median(latency.loss_share, Marks::default(), number::percent),
            ]
        }
        None => vec!["not measured".into()],
    })
}

/// Returns the table of Shoal's rankings.
pub(super) fn rankings(rankings: &[Ranking<'_>], labels: UnitLabels) -> Table {
    let head = vec![
        "Tracker",
        "Cores",
        "CPU, user part",
        "CPU, whole",
        "Memory",
        "Memory, fill",
        labels.rate,
        labels.ceiling_rate,
    ];
    let ratio = |ratio: &Option<Ratio<'_>>| {
        let Some(ratio) = ratio else { return NOTHING.into() };
        format!("{} × {}", ratio_figure(ratio), ratio.other.tracker.title)
    };
    let line = |ranking: &Ranking<'_>| {
        let ratios = [
            &ranking.user,
            &ranking.whole,
            &ranking.memory,
            &ranking.filled_memory,
            &ranking.rival_throughput,
            &ranking.ceiling_throughput,
        ];
        let mut line = vec![ranking.row.tracker.title.clone(), cores(ranking.row)];
        line.extend(ratios.map(ratio));
        line
    };
    Table { head, text_columns: 1, rows: rankings.iter().map(line).collect() }
}

/// Returns the table of Shoal against each rival.
pub(super) fn pairings(pairings: &[Pairing<'_>], labels: UnitLabels) -> Table {
    let head = vec!["Tracker", "Against", "Cores", "CPU, whole", "CPU, user part", labels.rate];
    let ratio = |ratio: &Option<Ratio<'_>>| match ratio {
        Some(ratio) => ratio_figure(ratio),
        None => NOTHING.into(),
    };
    let line = |pairing: &Pairing<'_>| {
        let ratios = [&pairing.whole, &pairing.user, &pairing.throughput].map(ratio);
        let names =
            [pairing.row.tracker.title.clone(), pairing.rival.tracker.title.clone(), cores(pairing.row)];
        names.into_iter().chain(ratios).collect()
    };
    Table { head, text_columns: 2, rows: pairings.iter().map(line).collect() }
}

/// Formats a ratio with its signs and its error. The sign ≈ stands for two figures that the error does not tell apart.
fn ratio_figure(Ratio { value, error, marks, .. }: &Ratio<'_>) -> String {
    let signs = marks.signs();
    match error {
        None => format!("{value:.2}{signs}"),
        Some(error) => {
            let equal = if (value - 1.0).abs() <= *error { "≈ " } else { "" };
            format!("{equal}{value:.2}{signs} ± {error:.2}")
        }
    }
}

/// Returns the table of every round of every cell.
pub(super) fn raw_rounds(comparison: &Comparison) -> Table {
    let head = vec![
        "Tracker",
        "Cores",
        "Round",
        "Started",
        UnitLabels::of(&row::rows(comparison)).rate,
        "User µs",
        "System µs",
        "Memory MB",
        "of it fill",
        "p99 µs",
        "Lost",
        "Steal",
        "Generator busy",
        "Outcome",
    ];
    let line = |cell: &Cell, round: &Round| {
        let mut line =
            vec![cell.tracker.clone(), cell.cores.to_string(), round.round.to_string(), round.began.clone()];
        line.extend(raw_figures(cell, round));
        line
    };
    let rows =
        comparison.cells.iter().flat_map(|cell| cell.rounds.iter().map(move |round| line(cell, round)));
    Table { head, text_columns: 1, rows: rows.collect() }
}

/// Returns whether idle connections were measured instead of a load.
pub(super) fn is_idle(rows: &[Row<'_>]) -> bool {
    let rounds = rows.iter().filter_map(|row| row.cell).flat_map(|cell| &cell.rounds);
    rounds.into_iter().any(|round| round.idle.is_some())
}

/// Returns whether requests were carried by connections.
pub(super) fn has_connections(rows: &[Row<'_>]) -> bool {
    rows.iter().filter_map(Row::measured).any(|measured| measured.connections.is_some())
}

/// Returns the number of cores of a row as text.
pub(super) fn cores(row: &Row<'_>) -> String {
    row.cores().map_or_else(|| NOTHING.into(), |cores| cores.to_string())
}

fn raw_figures(cell: &Cell, round: &Round) -> Vec<String> {
    let show = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| NOTHING.into(), show);
    let steal = round.usage.as_ref().map(|usage| usage.steal);
    let busy = round.load.as_ref().map(|load| load.generator_busy);
    let (figures, outcome) = match round::figures(cell, round) {
        Ok(figures) => (Some(figures), format!("counts{}", figures.marks.signs())),
        Err(reason) => (None, format!("failed: {reason}")),
    };
    let latency = figures.and_then(|figures| figures.latency);
    let latency = latency.map(|latency| latency.relay.unwrap_or(latency.summary));
    vec![
        show(figures.and_then(|figures| figures.responses_per_s), number::whole),
        show(figures.and_then(|figures| figures.user_us), number::hundredths),
        show(figures.and_then(|figures| figures.system_us), number::hundredths),
        show(figures.and_then(|figures| figures.resident_mb), number::figure),
        show(figures.and_then(|figures| figures.filled_mb), number::figure),
        show(latency.map(|latency| latency.p99_us), number::figure),
        show(figures.and_then(|figures| figures.loss_share), number::percent),
        show(steal, number::percent),
        show(busy, number::percent),
        outcome,
    ]
}

/// Builds a table with a line for each row, which begins with the tracker and its cores. `head` names the figures. If
/// nothing was measured, `otherwise` fills the first of their columns.
pub(super) fn table(
    head: Vec<&'static str>,
    rows: &[Row<'_>],
    otherwise: fn(&Outcome) -> String,
    figures: impl Fn(&Measured) -> Vec<String>,
) -> Table {
    let head: Vec<&str> = ["Tracker", "Cores"].into_iter().chain(head).collect();
    let line = |row: &Row<'_>| {
        let mut line = vec![row.tracker.title.clone(), cores(row)];
        match row.measured() {
            Some(measured) => line.extend(figures(measured)),
            None => line.push(otherwise(&row.outcome)),
        }
        line.resize(head.len(), NOTHING.into());
        line
    };
    let rows = rows.iter().map(line).collect();
    Table { head, text_columns: 1, rows }
}

/// Appends a column that tells how many rounds count, of how many.
pub(super) fn with_rounds(mut table: Table, rows: &[Row<'_>]) -> Table {
    table.head.push("Rounds");
    for (line, row) in table.rows.iter_mut().zip(rows) {
        let all = row.cell.map_or(0, |cell| cell.rounds.len());
        line.push(match row.measured() {
            Some(measured) => format!("{} of {all}", measured.rounds),
            None if all > 0 => format!("0 of {all}"),
            None => NOTHING.into(),
        });
    }
    table
}

/// Returns the outcome in a word; empty if there are measurements.
pub(super) fn outcome_word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(_) => String::new(),
        Outcome::Failed(_) => "failed".into(),
        Outcome::Absent(_) => "absent".into(),
        Outcome::NotRun => "not run".into(),
    }
}

/// Returns the outcome with the first line of its reason, shortened to fit a table.
pub(super) fn outcome_with_reason(outcome: &Outcome) -> String {
    let word = outcome_word(outcome);
    let (Outcome::Failed(reason) | Outcome::Absent(reason)) = outcome else { return word };
    let line = reason.lines().next().unwrap_or_default();
    if line.chars().count() <= REASON_CHARS_MAX {
        return format!("{word}: {line}");
    }
    let cut: String = line.chars().take(REASON_CHARS_MAX - 1).collect();
    format!("{word}: {}…", cut.trim_end())
}
