//! The rows of the report: a tracker on a number of cores, with medians over the rounds that count.

use super::figure::{Figure, Medians};
use super::round;
use crate::result::{Cell, Comparison, Tracker};

/// A tracker on a number of cores.
pub(super) struct Row<'a> {
    pub(super) tracker: &'a Tracker,
    /// Its cell. There is none for a tracker that is absent or was not reached.
    pub(super) cell: Option<&'a Cell>,
    pub(super) outcome: Outcome,
    /// The numbers of the rounds that do not count, and the reasons.
    pub(super) left_out: Vec<(usize, String)>,
}

pub(super) enum Outcome {
    /// At least one round counts.
    Measured(Medians),
    /// None of the rounds counts, for this reason.
    Failed(String),
    /// The tracker could not take part, for this reason.
    Absent(String),
    /// The comparison ended before it.
    NotRun,
}

impl Row<'_> {
    pub(super) fn cores(&self) -> Option<usize> {
        self.cell.map(|cell| cell.cores)
    }

    pub(super) fn measured(&self) -> Option<&Medians> {
        match &self.outcome {
            Outcome::Measured(medians) => Some(medians),
            Outcome::Failed(_) | Outcome::Absent(_) | Outcome::NotRun => None,
        }
    }

    /// Returns whether the figure is known of any round that counts.
    pub(super) fn has(&self, figure: Figure) -> bool {
        self.measured().is_some_and(|medians| medians.of(figure).is_some())
    }

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
        (false, _) => Outcome::Measured(Medians::over(&counting)),
        (true, Some((_, reason))) => Outcome::Failed(reason.clone()),
        (true, None) => Outcome::NotRun,
    };
    Row { tracker, cell: Some(cell), outcome, left_out }
}
