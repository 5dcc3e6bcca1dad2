//! What all plots have in common: width, sizes of text, title, legend and footnotes.

use super::drawing::{Anchor, Drawing, FAINT, INK, text_width};
use super::palette::Look;
use crate::book::round::Marks;
use crate::book::row::{Outcome, Row};

/// Every plot is so wide.
pub(super) const WIDTH: u32 = 1600;
/// Names of trackers.
pub(super) const LABEL: f64 = 27.0;
/// Figures, axes.
pub(super) const SMALL: f64 = 24.0;
const TITLE: f64 = 38.0;
const NOTE: f64 = 21.0;

/// A line of a legend.
pub(super) struct Entry {
    pub(super) look: Look,
    pub(super) title: String,
}

/// Title and subtitle at the top.
pub(super) fn title(drawing: &mut Drawing, title: &str, subtitle: &str) {
    drawing.text(title, (50.0, 56.0), TITLE, INK, Anchor::Left);
    drawing.text(subtitle, (50.0, 104.0), SMALL, FAINT, Anchor::Left);
}

/// Lines at the bottom.
pub(super) fn footnotes(drawing: &mut Drawing, lines: &[String], top: f64) {
    let mut y = top;
    for line in lines {
        drawing.text(line, (50.0, y), NOTE, FAINT, Anchor::Left);
        y += 32.0;
    }
}

/// How much room a legend needs at the right, so that it covers no data.
pub(super) fn legend_width(entries: &[Entry], notes: &[String]) -> f64 {
    let entries = entries.iter().map(|entry| text_width(&entry.title, SMALL) + 100.0);
    let notes = notes.iter().map(|note| text_width(note, NOTE));
    entries.chain(notes).fold(0.0, f64::max) + 50.0
}

/// The legend: looks and names, and below them what is not shown.
pub(super) fn legend(drawing: &mut Drawing, entries: &[Entry], notes: &[String], left: f64, top: f64) {
    let mut y = top;
    for Entry { look, title } in entries {
        look.line(drawing, &[(left, y), (left + 74.0, y)]);
        look.mark(drawing, (left + 37.0, y));
        drawing.text(title, (left + 92.0, y), SMALL, INK, Anchor::Left);
        y += 42.0;
    }
    y += 12.0;
    for note in notes {
        drawing.text(note, (left, y), NOTE, FAINT, Anchor::Left);
        y += 32.0;
    }
}

/// Why a row is not shown, in a word.
pub(super) fn missing(row: &Row<'_>) -> &'static str {
    match &row.outcome {
        Outcome::Absent(_) => "absent",
        Outcome::Failed(_) => "failed",
        Outcome::NotRun => "not run",
        Outcome::Measured(_) => "not measured",
    }
}

/// The meaning of the signs that a plot shows.
pub(super) fn meanings(marks: impl IntoIterator<Item = Marks>) -> Vec<String> {
    let signs = marks.into_iter().fold(Marks::default(), Marks::or).signs();
    let used = Marks::LEGEND.iter().filter(|(sign, _)| signs.contains(*sign));
    used.map(|(sign, meaning)| format!("{sign} {meaning}")).collect()
}

/// A height as the number of units that a sheet has.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "heights are positive and small")]
pub(super) fn whole_units(height: f64) -> u32 {
    height.ceil() as u32
}
