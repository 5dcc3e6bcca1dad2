//! The tables of the report.

use super::figure::Figure::{self, *};
use super::figure::Medians;
use super::number::{self, NOTHING};
use super::page::Table;
use super::ranking::{Pairing, Ranking, Ratio};
use super::relayed;
use super::round::{self, Marks};
use super::row::{self, Outcome, Row};
use super::unit::UnitLabels;
use crate::result::{Cell, Comparison, Round};

/// A longer reason is shortened here and shown in full in the list of what was not counted.
const REASON_CHARS_MAX: usize = 40;

/// A column of figures, after the columns with the tracker and its cores.
#[derive(Clone, Copy)]
pub(super) struct Column {
    head: &'static str,
    figure: Figure,
    show: Show,
    /// The marks that are shown with the figure.
    marks: fn(&Medians) -> Marks,
}

#[derive(Clone, Copy)]
enum Show {
    Median(fn(f64) -> String),
    /// With the minimum and the maximum.
    Spread(fn(f64) -> String),
    /// With another figure, which is the error, and with the minimum and the maximum.
    WithError(Figure),
}

impl Column {
    const fn new(head: &'static str, figure: Figure, show: Show) -> Self {
        Self { head, figure, show, marks: |_| Marks::default() }
    }

    pub(super) const fn median(head: &'static str, figure: Figure, show: fn(f64) -> String) -> Self {
        Self::new(head, figure, Show::Median(show))
    }

    pub(super) const fn spread(head: &'static str, figure: Figure, show: fn(f64) -> String) -> Self {
        Self::new(head, figure, Show::Spread(show))
    }

    pub(super) const fn with_error(head: &'static str, figure: Figure, error: Figure) -> Self {
        Self::new(head, figure, Show::WithError(error))
    }

    pub(super) const fn marked(self) -> Self {
        Self { marks: |medians| medians.marks, ..self }
    }

    pub(super) const fn rated(self) -> Self {
        Self { marks: |medians| medians.rated_marks, ..self }
    }

    fn cell(&self, medians: &Medians) -> String {
        let (value, marks) = (medians.of(self.figure), (self.marks)(medians));
        match self.show {
            Show::Median(show) => number::median(value, marks, show),
            Show::Spread(show) => number::spread(value, marks, show),
            Show::WithError(error) => number::with_error(value, medians.of(error), marks),
        }
    }
}

const MAIN: &[Column] = &[
    Column::spread("Responses/s", ResponsesPerS, number::whole).marked(),
    Column::spread("CPU µs each", WholeUs, number::hundredths).marked(),
    Column::with_error("of it user", UserUs, UserErrorUs).marked(),
    Column::median("Tracker busy", TrackerBusy, number::busy).marked(),
    Column::spread("Memory MB", ResidentMb, number::figure),
    Column::spread("of it fill", FilledMb, number::figure),
    Column::spread("p99 µs at rate", P99Us, number::figure).rated(),
];

/// A comparison without steps shows the first four.
const IDLE: &[Column] = &[
    Column::median("Connections", IdleConnections, number::whole).marked(),
    Column::spread("KiB each", IdleKib, number::hundredths).marked(),
    Column::spread("Memory MB before", IdleBeforeMb, number::figure),
    Column::spread("Memory MB with all", IdleAllMb, number::figure),
    Column::spread("KiB each of the first 1,000", IdleFirstKib, number::hundredths),
];

pub(super) fn main(rows: &[Row<'_>]) -> Table {
    let columns = if is_idle(rows) {
        let has_steps = rows.iter().any(|row| row.has(IdleFirstKib));
        if has_steps { IDLE } else { &IDLE[..4] }
    } else if relayed::is_relayed(rows) {
        relayed::MAIN
    } else {
        MAIN
    };
    table(columns, rows, outcome_with_reason)
}

/// Returns the main table with fewer columns and without ranges, for a narrow terminal.
pub(super) fn brief(rows: &[Row<'_>]) -> Table {
    if is_idle(rows) {
        const COLUMNS: &[Column] = &[
            Column::median("Connections", IdleConnections, number::whole).marked(),
            Column::median("KiB each", IdleKib, number::hundredths).marked(),
            Column::median("MB with all", IdleAllMb, number::figure),
        ];
        return table(COLUMNS, rows, outcome_word);
    }
    let columns = [
        Column::median(UnitLabels::of(rows).rate, ResponsesPerS, number::whole).marked(),
        Column::median("CPU µs", WholeUs, number::hundredths).marked(),
        Column::median("MB", ResidentMb, number::figure),
        Column::median("p99 µs", RelayOrReplyP99Us, number::figure).rated(),
    ];
    table(&columns, rows, outcome_word)
}

pub(super) fn connections(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::median("Opened/s", OpenedPerS, number::whole),
        Column::median("Full handshakes/s", FullHandshakesPerS, number::whole),
        Column::median("Resumed/s", ResumedHandshakesPerS, number::whole),
        Column::spread("Ready after µs (median)", SetupP50Us, number::figure),
        Column::median("Failed", FailedConnections, number::whole),
    ];
    table(COLUMNS, rows, outcome_word)
}

pub(super) fn replies(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::median("Connects/s", ConnectsPerS, number::whole),
        Column::median("Announces/s", AnnouncesPerS, number::whole),
        Column::median("Scrapes/s", ScrapesPerS, number::whole),
        Column::median("Peers each", PeersPerAnnounce, number::hundredths),
        Column::median("Lost", LossShare, number::percent),
        Column::median("Errors", ErrorReplies, number::whole),
        Column::median("Wrong", Wrong, number::whole),
    ];
    with_rounds(table(COLUMNS, rows, outcome_word), rows)
}

pub(super) fn processors(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::with_error("User µs each", UserUs, UserErrorUs).marked(),
        Column::spread("System µs each", SystemUs, number::hundredths).marked(),
        Column::spread("Receive µs each", ReceiveUs, number::hundredths).marked(),
        Column::spread("Whole core µs each", CoreUs, number::hundredths).marked(),
        Column::median("Tracker busy", TrackerBusy, number::busy),
        Column::median("Load's CPUs busy", LoadBusy, number::percent),
    ];
    table(COLUMNS, rows, outcome_word)
}

pub(super) fn latency(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::spread("p50 µs", P50Us, number::figure).rated(),
        Column::spread("p90 µs", P90Us, number::figure).rated(),
        Column::spread("p99 µs", P99Us, number::figure).rated(),
        Column::spread("p99.9 µs", P999Us, number::figure).rated(),
        Column::spread("Max µs", MaxUs, number::figure).rated(),
        Column::spread("CPU µs each", RatedWholeUs, number::hundredths).rated(),
        Column::spread("Whole core µs each", RatedCoreUs, number::hundredths).rated(),
        Column::median("Responses/s", RatedResponsesPerS, number::whole),
        Column::median("Lost", RatedLossShare, number::percent),
    ];
    table(COLUMNS, rows, outcome_word)
}

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
    rows.iter().any(|row| row.has(FailedConnections))
}

pub(super) fn cores(row: &Row<'_>) -> String {
    row.cores().map_or_else(|| NOTHING.into(), |cores| cores.to_string())
}

fn raw_figures(cell: &Cell, round: &Round) -> Vec<String> {
    let show = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| NOTHING.into(), show);
    let steal = round.usage.as_ref().map(|usage| usage.steal);
    let busy = round.load.as_ref().map(|load| load.generator_busy);
    let (figures, outcome) = match round::figures(cell, round) {
        Ok(figures) => {
            let signs = figures.marks.signs();
            (Some(figures), format!("counts{signs}"))
        }
        Err(reason) => (None, format!("failed: {reason}")),
    };
    let of = |figure, format| show(figures.as_ref().and_then(|figures| figures.of(figure)), format);
    vec![
        of(ResponsesPerS, number::whole),
        of(UserUs, number::hundredths),
        of(SystemUs, number::hundredths),
        of(ResidentMb, number::figure),
        of(FilledMb, number::figure),
        of(RelayOrReplyP99Us, number::figure),
        of(LossShare, number::percent),
        show(steal, number::percent),
        show(busy, number::percent),
        outcome,
    ]
}

/// Builds a table with a line for each row. `otherwise` is the first figure of a row without measurements.
pub(super) fn table(columns: &[Column], rows: &[Row<'_>], otherwise: fn(&Outcome) -> String) -> Table {
    let heads = columns.iter().map(|column| column.head);
    let head: Vec<&str> = ["Tracker", "Cores"].into_iter().chain(heads).collect();
    let line = |row: &Row<'_>| {
        let mut line = vec![row.tracker.title.clone(), cores(row)];
        match row.measured() {
            Some(_) if !columns.iter().any(|column| row.has(column.figure)) => {
                line.push("not measured".into());
            }
            Some(medians) => line.extend(columns.iter().map(|column| column.cell(medians))),
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
        line.push(match all {
            0 => NOTHING.into(),
            _ => format!("{} of {all}", all - row.left_out.len()),
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
