//! The rows of the report: a tracker on a number of cores, with medians over the rounds that count.

use shoal_load::LatencySummary;

use super::round::{self, Connections, Figures, Idle, Latency, Marks, Relays, SlowReaders};
use super::spread::Spread;
use crate::result::{Cell, Comparison, Tracker};

/// A tracker on a number of cores.
pub(super) struct Row<'a> {
    /// The tracker.
    pub(super) tracker: &'a Tracker,
    /// Its cell. There is none for a tracker that is absent or was not reached.
    pub(super) cell: Option<&'a Cell>,
    /// The outcome of the cell.
    pub(super) outcome: Outcome,
    /// The numbers of the rounds that do not count, and the reasons.
    pub(super) left_out: Vec<(usize, String)>,
}

/// The outcome of a cell.
pub(super) enum Outcome {
    /// At least one round counts.
    Measured(Box<Measured>),
    /// None of the rounds counts, for this reason.
    Failed(String),
    /// The tracker could not take part, for this reason.
    Absent(String),
    /// The comparison ended before it.
    NotRun,
}

/// Medians over the rounds that count.
pub(super) struct Measured {
    pub(super) rounds: usize,
    pub(super) responses_per_s: Option<Spread>,
    pub(super) connects_per_s: Option<Spread>,
    pub(super) announces_per_s: Option<Spread>,
    pub(super) scrapes_per_s: Option<Spread>,
    pub(super) user_us: Option<Spread>,
    pub(super) system_us: Option<Spread>,
    pub(super) receive_us: Option<Spread>,
    pub(super) core_us: Option<Spread>,
    pub(super) user_error_us: Option<Spread>,
    pub(super) whole_us: Option<Spread>,
    pub(super) peers_per_announce: Option<Spread>,
    pub(super) loss_share: Option<Spread>,
    pub(super) errors: Option<Spread>,
    pub(super) wrong: Option<Spread>,
    pub(super) tracker_busy: Option<Spread>,
    pub(super) load_busy: Option<Spread>,
    pub(super) resident_mb: Option<Spread>,
    pub(super) filled_mb: Option<Spread>,
    pub(super) latency: Option<MeasuredLatency>,
    pub(super) connections: Option<Connections<Spread>>,
    pub(super) relays: Option<Relays<Spread>>,
    pub(super) slow_readers: Option<SlowReaders<Spread>>,
    pub(super) idle: Option<Idle<Spread>>,
    /// The marks of all rounds.
    pub(super) marks: Marks,
}

/// Medians of the open loop, in microseconds.
pub(super) struct MeasuredLatency {
    pub(super) p50_us: Option<Spread>,
    pub(super) p90_us: Option<Spread>,
    pub(super) p99_us: Option<Spread>,
    pub(super) p99_9_us: Option<Spread>,
    pub(super) max_us: Option<Spread>,
    /// Time from an offer to its arrival, if there are offers: 50th, 90th, 99th, 99.9th percentile, and maximum.
    pub(super) relay_us: Option<[Option<Spread>; 5]>,
    pub(super) responses_per_s: Option<Spread>,
    pub(super) loss_share: Option<Spread>,
    /// The marks of all rounds.
    pub(super) marks: Marks,
}

impl Row<'_> {
    /// Returns the number of cores.
    pub(super) fn cores(&self) -> Option<usize> {
        self.cell.map(|cell| cell.cores)
    }

    /// Returns the medians, if there are any.
    pub(super) fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Failed(_) | Outcome::Absent(_) | Outcome::NotRun => None,
        }
    }

    /// Returns whether it is Shoal.
    pub(super) fn is_shoal(&self) -> bool {
        !self.tracker.is_ceiling && self.tracker.name.starts_with("shoal")
    }

    /// Returns whether it is a tracker other than Shoal.
    pub(super) fn is_rival(&self) -> bool {
        !self.tracker.is_ceiling && !self.is_shoal()
    }
}

/// Returns the rows of a comparison, with the trackers in its order, each from few cores to many.
pub(super) fn rows(comparison: &Comparison) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for tracker in &comparison.trackers {
        let of_tracker = comparison.cells.iter().filter(|cell| cell.tracker == tracker.name);
        let mut cells: Vec<&Cell> = of_tracker.collect();
        cells.sort_by_key(|cell| cell.cores);
        if cells.is_empty() {
            let outcome = tracker.absent.clone().map_or(Outcome::NotRun, Outcome::Absent);
            rows.push(Row { tracker, cell: None, outcome, left_out: Vec::new() });
        }
        rows.extend(cells.into_iter().map(|cell| row_of(tracker, cell)));
    }
    rows
}

/// Returns the numbers of cores that occur, in ascending order.
pub(super) fn core_counts<'a>(rows: impl IntoIterator<Item = &'a Row<'a>>) -> Vec<usize> {
    let mut counts: Vec<usize> = rows.into_iter().filter_map(Row::cores).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn row_of<'a>(tracker: &'a Tracker, cell: &'a Cell) -> Row<'a> {
    let mut counting = Vec::new();
    let mut left_out = Vec::new();
    for round in &cell.rounds {
        match round::figures(cell, round) {
            Ok(figures) => counting.push(figures),
            Err(reason) => left_out.push((round.round, reason)),
        }
    }
    let outcome = match (counting.is_empty(), left_out.first()) {
        (false, _) => Outcome::Measured(Box::new(Measured::of(&counting))),
        (true, Some((_, reason))) => Outcome::Failed(reason.clone()),
        (true, None) => Outcome::NotRun,
    };
    Row { tracker, cell: Some(cell), outcome, left_out }
}

impl Measured {
    fn of(rounds: &[Figures]) -> Self {
        let known = |value: fn(&Figures) -> Option<f64>| Spread::of(rounds.iter().filter_map(value));
        let latencies: Vec<Latency> = rounds.iter().filter_map(|round| round.latency).collect();
        Self {
            rounds: rounds.len(),
            responses_per_s: known(|round| round.responses_per_s),
            connects_per_s: known(|round| round.connects_per_s),
            announces_per_s: known(|round| round.announces_per_s),
            scrapes_per_s: known(|round| round.scrapes_per_s),
            user_us: known(|round| round.user_us),
            system_us: known(|round| round.system_us),
            receive_us: known(|round| round.receive_us),
            core_us: known(|round| round.core_us),
            user_error_us: known(|round| round.user_error_us),
            whole_us: known(|round| round.whole_us),
            peers_per_announce: known(|round| round.peers_per_announce),
            loss_share: known(|round| round.loss_share),
            errors: known(|round| round.errors),
            wrong: known(|round| round.wrong),
            tracker_busy: known(|round| round.tracker_busy),
            load_busy: known(|round| round.load_busy),
            resident_mb: known(|round| round.resident_mb),
            filled_mb: known(|round| round.filled_mb),
            latency: MeasuredLatency::of(&latencies),
            connections: Connections::medians(rounds),
            relays: Relays::medians(rounds),
            slow_readers: SlowReaders::medians(rounds),
            idle: Idle::medians(rounds),
            marks: rounds.iter().fold(Marks::default(), |marks, round| marks.union(round.marks)),
        }
    }
}

impl Connections<Spread> {
    fn medians(rounds: &[Figures]) -> Option<Self> {
        let rounds: Vec<_> = rounds.iter().filter_map(|round| round.connections).collect();
        let over = |value: fn(&_) -> Option<f64>| Spread::of(rounds.iter().filter_map(value));
        (!rounds.is_empty()).then(|| Self {
            opened_per_s: over(|round| round.opened_per_s),
            full_per_s: over(|round| round.full_per_s),
            resumed_per_s: over(|round| round.resumed_per_s),
            setup_p50_us: over(|round| round.setup_p50_us),
            failed: over(|round| round.failed),
        })
    }
}

impl Relays<Spread> {
    fn medians(rounds: &[Figures]) -> Option<Self> {
        let rounds: Vec<_> = rounds.iter().filter_map(|round| round.relays).collect();
        let over = |value: fn(&_) -> Option<f64>| Spread::of(rounds.iter().filter_map(value));
        (!rounds.is_empty()).then(|| Self {
            offers_per_s: over(|round| round.offers_per_s),
            offers_missing: over(|round| round.offers_missing),
            answers_per_s: over(|round| round.answers_per_s),
            answers_missing: over(|round| round.answers_missing),
            wrong: over(|round| round.wrong),
            each_kib: over(|round| round.each_kib),
            loaded_mb: over(|round| round.loaded_mb),
        })
    }
}

impl SlowReaders<Spread> {
    fn medians(rounds: &[Figures]) -> Option<Self> {
        let rounds: Vec<_> = rounds.iter().filter_map(|round| round.slow_readers).collect();
        let over = |value: fn(&_) -> Option<f64>| Spread::of(rounds.iter().filter_map(value));
        let each = |values: fn(&_) -> [Option<f64>; 3]| {
            [0, 1, 2].map(|at| Spread::of(rounds.iter().filter_map(|round| values(round)[at])))
        };
        (!rounds.is_empty()).then(|| Self {
            count: over(|round| round.count),
            closed: over(|round| round.closed),
            p99_us: each(|round| round.p99_us),
            loaded_p99_us: each(|round| round.loaded_p99_us),
            resident_mb: over(|round| round.resident_mb),
        })
    }
}

impl Idle<Spread> {
    fn medians(rounds: &[Figures]) -> Option<Self> {
        let rounds: Vec<_> = rounds.iter().filter_map(|round| round.idle).collect();
        let over = |value: fn(&_) -> Option<f64>| Spread::of(rounds.iter().filter_map(value));
        (!rounds.is_empty()).then(|| Self {
            open: over(|round| round.open),
            each_kib: over(|round| round.each_kib),
            first_kib: over(|round| round.first_kib),
            before_mb: over(|round| round.before_mb),
            open_mb: over(|round| round.open_mb),
        })
    }
}

impl MeasuredLatency {
    fn of(rounds: &[Latency]) -> Option<Self> {
        let over = |value: fn(&Latency) -> f64| Spread::of(rounds.iter().map(value));
        let relays: Vec<LatencySummary> = rounds.iter().filter_map(|round| round.relay).collect();
        let of_relay = |value: fn(&LatencySummary) -> f64| Spread::of(relays.iter().map(value));
        (!rounds.is_empty()).then(|| Self {
            p50_us: over(|round| round.summary.p50_us),
            p90_us: over(|round| round.summary.p90_us),
            p99_us: over(|round| round.summary.p99_us),
            p99_9_us: over(|round| round.summary.p99_9_us),
            max_us: over(|round| round.summary.max_us),
            relay_us: (!relays.is_empty()).then(|| {
                [
                    of_relay(|relay| relay.p50_us),
                    of_relay(|relay| relay.p90_us),
                    of_relay(|relay| relay.p99_us),
                    of_relay(|relay| relay.p99_9_us),
                    of_relay(|relay| relay.max_us),
                ]
            }),
            responses_per_s: over(|round| round.responses_per_s),
            loss_share: Spread::of(rounds.iter().filter_map(|round| round.loss_share)),
            marks: rounds.iter().fold(Marks::default(), |marks, round| marks.union(round.marks)),
        })
    }
}
