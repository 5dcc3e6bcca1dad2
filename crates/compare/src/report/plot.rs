//! The plots of the report: charts of bars and of lines, which plotters draws as SVG.

mod bars;
mod cost;
mod latency;
mod lines;
mod palette;
mod throughput;

use plotters::prelude::{RGBColor, Text};
use plotters::style::text_anchor::HPos;

use self::bars::Bars;
use self::lines::Lines;
use self::palette::PlotStyle;
use super::row::{self, Outcome, Row};
use super::unit::UnitLabels;
use crate::result::Comparison;
use crate::svg::{self, Area};

const WIDTH: u32 = 1600;
/// The distance of text from the left and the right edge.
const MARGIN: i32 = 50;
/// The heights of texts: title, names and figures, footnotes.
const TITLE: f64 = 38.0;
const SMALL: f64 = 24.0;
const NOTE: f64 = 21.0;
/// The height of a line of footnotes.
const NOTE_LINE: i32 = 32;
/// The height of title and subtitle.
const HEAD: i32 = 130;

const FOREGROUND: RGBColor = RGBColor(0x1c, 0x1e, 0x21);
const MUTED: RGBColor = RGBColor(0x5b, 0x61, 0x68);
const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);

pub(super) struct Plot {
    /// The file name without its extension.
    pub(super) name: String,
    /// The alternative text.
    pub(super) title: String,
    chart: Chart,
}

enum Chart {
    Bars(Bars),
    Lines(Lines),
}

impl Plot {
    pub(super) fn svg(&self) -> anyhow::Result<String> {
        match &self.chart {
            Chart::Bars(bars) => bars.svg(),
            Chart::Lines(lines) => lines.svg(),
        }
    }
}

/// Returns the plots of a comparison, without those that have no data.
pub(super) fn plots(comparison: &Comparison) -> Vec<Plot> {
    let rows = row::rows(comparison);
    let styles = palette::styles(&comparison.trackers);
    let style = |row: &Row<'_>| {
        let at = comparison.trackers.iter().position(|tracker| std::ptr::eq(tracker, row.tracker));
        styles[at.unwrap_or(0)]
    };
    let styled: Vec<(&Row<'_>, PlotStyle)> = rows.iter().map(|row| (row, style(row))).collect();
    let counts = row::core_counts(&rows);
    let throughput = match counts.as_slice() {
        [] => None,
        [cores] => cost::throughput(&styled, *cores).map(Chart::Bars),
        _ => throughput::over_cores(&styled).map(Chart::Lines),
    };
    let UnitLabels { one, many, .. } = UnitLabels::of(&rows);
    let bars =
        |name: &str, title: String, bars: Option<Bars>| plot(name.into(), title, bars.map(Chart::Bars));
    let mut plots = vec![
        plot("throughput".into(), format!("Throughput: {many} a second"), throughput),
        bars("cpu", format!("CPU time per {one}, user and system"), cost::cpu(&styled)),
        bars("memory", "Resident memory after the fill".into(), cost::memory(&styled)),
        bars("idle", "Resident memory of each idle connection".into(), cost::idle(&styled)),
    ];
    plots.extend(counts.iter().map(|cores| {
        let title = format!("Latency by percentile at a fixed rate, cores: {cores}");
        let curves = latency::curves(&styled, *cores).map(Chart::Lines);
        plot(format!("latency-{cores}"), title, curves)
    }));
    plots.into_iter().flatten().collect()
}

fn plot(name: String, title: String, chart: Option<Chart>) -> Option<Plot> {
    chart.map(|chart| Plot { name, title, chart })
}

/// Draws title and subtitle at the top, and footnotes from `notes_top` on.
fn frame(
    area: &Area<'_>,
    [title, subtitle]: [&str; 2],
    notes: &[String],
    notes_top: i32,
) -> anyhow::Result<()> {
    area.draw(&Text::new(title, (MARGIN, 56), svg::text(TITLE, FOREGROUND, HPos::Left)))?;
    area.draw(&Text::new(subtitle, (MARGIN, 104), svg::text(SMALL, MUTED, HPos::Left)))?;
    for (y, note) in (notes_top..).step_by(32).zip(notes) {
        area.draw(&Text::new(note.as_str(), (MARGIN, y), svg::text(NOTE, MUTED, HPos::Left)))?;
    }
    Ok(())
}

/// Wraps texts to a width. Text is as wide as the font of the viewer, so some room is left.
fn wrapped(texts: &[String], width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        let mut line = String::new();
        for word in text.split_whitespace() {
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if !line.is_empty() && svg::text_width(&longer, NOTE) > width {
                lines.push(std::mem::replace(&mut line, word.to_owned()));
            } else {
                line = longer;
            }
        }
        lines.push(line);
    }
    lines
}

/// Wraps footnotes to the width of a plot.
fn footnotes(notes: &[String]) -> Vec<String> {
    wrapped(notes, f64::from(WIDTH) - 2.0 * f64::from(MARGIN))
}

/// Returns why a row is missing, in a word.
fn missing(row: &Row<'_>) -> &'static str {
    match &row.outcome {
        Outcome::Absent(_) => "absent",
        Outcome::Failed(_) => "failed",
        Outcome::NotRun => "not run",
        Outcome::Measured(_) => "not measured",
    }
}

/// Returns a length in whole pixels.
#[expect(clippy::cast_possible_truncation, reason = "lengths are small, and casts saturate")]
fn pixels(length: f64) -> i32 {
    length.ceil() as i32
}

fn count(things: usize) -> i32 {
    i32::try_from(things).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footnotes_are_wrapped_to_the_width_of_the_plot() {
        let long = "† generator-bound: in at least one round the tracker had work for less than 98 % of the time, or at the \
                    fixed rate the load was late; the tracker may be able to do more";
        let lines = footnotes(&[long.to_owned(), "‡ short".to_owned()]);
        assert_eq!(lines.join(" "), format!("{long} ‡ short"), "no word is lost");
        assert!(lines.len() > 2, "{lines:?}");
        for line in &lines {
            assert!(svg::text_width(line, NOTE) <= f64::from(WIDTH) - 2.0 * f64::from(MARGIN), "{line}");
        }
    }
}
