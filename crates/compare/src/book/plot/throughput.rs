//! Responses a second over the number of cores, a line for each tracker.

use super::drawing::{Anchor, Drawing, FAINT, GRID, INK};
use super::palette::Look;
use super::scale::{Scale, ticks};
use super::sheet::{self, Entry, SMALL, WIDTH};
use crate::book::number;
use crate::book::round::Marks;
use crate::book::row::{self, Measured, Row};
use crate::book::spread::Spread;

const HEIGHT: u32 = 1000;
const TOP: f64 = 150.0;
const LEFT: f64 = 190.0;
/// Trackers on the same number of cores stand so far apart that their whiskers can be told apart.
const ASIDE: f64 = 9.0;

/// The chart; for at least two numbers of cores.
pub(super) fn over_cores(rows: &[(&Row<'_>, Look)]) -> Option<Drawing> {
    let shown: Vec<(&Row<'_>, Look, &Measured, Spread)> = (rows.iter())
        .filter_map(|(row, look)| Some((*row, *look, row.measured()?, row.measured()?.responses_per_s?)))
        .collect();
    let most = shown.iter().map(|(.., spread)| spread.max).fold(0.0, f64::max);
    let counts = row::core_counts(rows.iter().map(|(row, _)| *row));
    let cores_max = counts.last().map(|cores| as_f64(*cores))?;
    if shown.is_empty() {
        return None;
    }
    let entries = entries(&shown);
    let notes = notes(rows);
    let meanings = meanings(&shown);
    let bottom = as_f64(meanings.len()).mul_add(-32.0, f64::from(HEIGHT) - 130.0);
    let right = f64::from(WIDTH) - sheet::legend_width(&entries, &notes) - 40.0;
    let ticks = ticks(most);
    let x = Scale::linear((0.0, cores_max + 0.3), (LEFT, right));
    let y = Scale::linear((0.0, ticks.last().copied().unwrap_or(1.0)), (bottom, TOP));
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    let subtitle = "Medians over the rounds, with least and most; dashed: the ceiling, no tracker";
    sheet::title(&mut drawing, "Throughput over cores", subtitle);
    axes(&mut drawing, &counts, &ticks, &x, &y, right, bottom);
    for (at, entry) in entries.iter().enumerate() {
        let aside = (as_f64(at) - (as_f64(entries.len()) - 1.0) / 2.0) * ASIDE;
        let own: Vec<_> = shown.iter().filter(|(row, ..)| row.tracker.title == entry.title).collect();
        let points: Vec<_> =
            own.iter().map(|(row, .., spread)| (x.at(cores(row)) + aside, y.at(spread.median))).collect();
        entry.look.line(&mut drawing, &points);
        for ((.., measured, spread), point) in own.iter().zip(points) {
            if spread.min < spread.max {
                drawing.whisker((point.0, y.at(spread.min)), (point.0, y.at(spread.max)), entry.look.colour);
            }
            entry.look.mark(&mut drawing, point);
            if measured.marks != Marks::default() {
                drawing.circle(point, 17.0, INK);
            }
        }
    }
    let entries: Vec<Entry> = entries.into_iter().map(|entry| with_signs(entry, &shown)).collect();
    sheet::legend(&mut drawing, &entries, &notes, right + 50.0, TOP + 20.0);
    sheet::footnotes(&mut drawing, &meanings, bottom + 110.0);
    Some(drawing)
}

fn axes(
    drawing: &mut Drawing,
    counts: &[usize],
    ticks: &[f64],
    x: &Scale,
    y: &Scale,
    right: f64,
    bottom: f64,
) {
    for (tick, name) in ticks.iter().zip(number::ticks(ticks)) {
        drawing.line(&[(LEFT, y.at(*tick)), (right, y.at(*tick))], 2, GRID);
        drawing.text(&name, (LEFT - 14.0, y.at(*tick)), SMALL, FAINT, Anchor::Right);
    }
    for cores in counts {
        let at = x.at(as_f64(*cores));
        drawing.line(&[(at, bottom), (at, bottom + 10.0)], 2, FAINT);
        drawing.text(&cores.to_string(), (at, bottom + 30.0), SMALL, FAINT, Anchor::Centre);
    }
    drawing.line(&[(LEFT, bottom), (right, bottom)], 2, FAINT);
    drawing.text(
        "cores of the tracker",
        (f64::midpoint(LEFT, right), bottom + 66.0),
        SMALL,
        INK,
        Anchor::Centre,
    );
    drawing.text_upwards("good responses a second", (48.0, f64::midpoint(TOP, bottom)), SMALL, INK);
}

/// One for each tracker that has a point, in the order of the rows.
fn entries(shown: &[(&Row<'_>, Look, &Measured, Spread)]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (row, look, ..) in shown {
        if entries.iter().all(|entry| entry.title != row.tracker.title) {
            entries.push(Entry { look: *look, title: row.tracker.title.clone() });
        }
    }
    entries
}

/// The entry with the signs of all points of its tracker.
fn with_signs(entry: Entry, shown: &[(&Row<'_>, Look, &Measured, Spread)]) -> Entry {
    let own = shown.iter().filter(|(row, ..)| row.tracker.title == entry.title);
    let marks = own.fold(Marks::default(), |marks, (_, _, measured, _)| marks.or(measured.marks));
    Entry { title: format!("{}{}", entry.title, marks.signs()), ..entry }
}

/// What the circles around points, and the signs in the legend, mean.
fn meanings(shown: &[(&Row<'_>, Look, &Measured, Spread)]) -> Vec<String> {
    let mut lines = sheet::meanings(shown.iter().map(|(_, _, measured, _)| measured.marks));
    if !lines.is_empty() {
        lines.insert(0, "Circled points are to be read with care:".into());
    }
    lines
}

/// What has no point, and why; a line for each tracker.
fn notes(rows: &[(&Row<'_>, Look)]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for (row, _) in rows.iter().filter(|(row, _)| row.measured().is_none()) {
        let note = format!("{}: {}", row.tracker.title, sheet::missing(row));
        let cores = row.cores().map(|cores| cores.to_string());
        match notes.last_mut() {
            Some((last, on)) if *last == note => on.extend(cores),
            _ => notes.push((note, cores.into_iter().collect())),
        }
    }
    let line = |(note, on): (String, Vec<String>)| match on.as_slice() {
        [] => note,
        _ => format!("{note} (cores: {})", on.join(", ")),
    };
    notes.into_iter().map(line).collect()
}

fn cores(row: &Row<'_>) -> f64 {
    row.cores().map_or(0.0, as_f64)
}

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(0.0, f64::from)
}
