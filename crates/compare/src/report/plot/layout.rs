//! The layout that all plots share: width, text sizes, title, legend and footnotes.

use super::drawing::{Anchor, Drawing, FOREGROUND, MUTED, text_width};
use super::palette::PlotStyle;
use crate::report::row::{Outcome, Row};

/// The width of every plot.
pub(super) const WIDTH: u32 = 1600;
/// The text size of tracker names.
pub(super) const LABEL: f64 = 27.0;
/// The text size of figures and axes.
pub(super) const SMALL: f64 = 24.0;
const TITLE: f64 = 38.0;
const NOTE: f64 = 21.0;
/// The distance of text from the left and the right edge.
const MARGIN: f64 = 50.0;

/// An entry of a legend.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) style: PlotStyle,
    pub(super) title: String,
}

/// Draws title and subtitle at the top.
pub(super) fn title(drawing: &mut Drawing, title: &str, subtitle: &str) {
    drawing.text(title, (50.0, 56.0), TITLE, FOREGROUND, Anchor::Left);
    drawing.text(subtitle, (50.0, 104.0), SMALL, MUTED, Anchor::Left);
}

/// The height of a line of footnotes.
pub(super) const NOTE_LINE: f64 = 32.0;

/// Wraps footnotes to the width of a plot. Text is as wide as the font of the viewer, so some room is left.
pub(super) fn wrapped(notes: &[String]) -> Vec<String> {
    let width = f64::from(WIDTH) - 2.0 * MARGIN;
    let mut lines: Vec<String> = Vec::new();
    for note in notes {
        let mut line = String::new();
        for word in note.split_whitespace() {
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if !line.is_empty() && text_width(&longer, NOTE) > width {
                lines.push(std::mem::replace(&mut line, word.to_owned()));
            } else {
                line = longer;
            }
        }
        lines.push(line);
    }
    lines
}

/// Draws lines at the bottom, which [`wrapped`] returned.
pub(super) fn footnotes(drawing: &mut Drawing, lines: &[String], top: f64) {
    let mut y = top;
    for line in lines {
        drawing.text(line, (MARGIN, y), NOTE, MUTED, Anchor::Left);
        y += NOTE_LINE;
    }
}

/// Returns the width of a legend at the right, so that it covers no data.
pub(super) fn legend_width(entries: &[Entry], notes: &[String]) -> f64 {
    let entries = entries.iter().map(|entry| text_width(&entry.title, SMALL) + 100.0);
    let notes = notes.iter().map(|note| text_width(note, NOTE));
    entries.chain(notes).fold(0.0, f64::max) + 50.0
}

/// Draws the legend: styles and names, followed by notes about missing rows.
pub(super) fn legend(drawing: &mut Drawing, entries: &[Entry], notes: &[String], left: f64, top: f64) {
    let mut y = top;
    for Entry { style, title } in entries {
        style.line(drawing, &[(left, y), (left + 74.0, y)]);
        style.mark(drawing, (left + 37.0, y));
        drawing.text(title, (left + 92.0, y), SMALL, FOREGROUND, Anchor::Left);
        y += 42.0;
    }
    y += 12.0;
    for note in notes {
        drawing.text(note, (left, y), NOTE, MUTED, Anchor::Left);
        y += NOTE_LINE;
    }
}

/// Returns why a row is missing, in a word.
pub(super) fn missing(row: &Row<'_>) -> &'static str {
    match &row.outcome {
        Outcome::Absent(_) => "absent",
        Outcome::Failed(_) => "failed",
        Outcome::NotRun => "not run",
        Outcome::Measured(_) => "not measured",
    }
}

/// Rounds a height up to whole units.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "heights are positive and small")]
pub(super) fn whole_units(height: f64) -> u32 {
    height.ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footnotes_are_wrapped_to_the_width_of_the_plot() {
        let long = "† generator-bound: in at least one round the tracker had work for less than 98 % of the time, or at the \
                    fixed rate the load was late; the tracker may be able to do more";
        let lines = wrapped(&[long.to_owned(), "‡ short".to_owned()]);
        assert_eq!(lines.join(" "), format!("{long} ‡ short"), "no word is lost");
        assert!(lines.len() > 2, "{lines:?}");
        for line in &lines {
            assert!(text_width(line, NOTE) <= f64::from(WIDTH) - 2.0 * MARGIN, "{line}");
        }
    }
}
