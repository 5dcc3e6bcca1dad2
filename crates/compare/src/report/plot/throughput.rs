//! Throughput by the number of cores, with a line for each tracker.

use super::drawing::{Anchor, Drawing, FOREGROUND, GRID, MUTED, Point};
use super::layout::{self, Entry, SMALL, WIDTH};
use super::palette::{self, PlotStyle};
use super::scale::{Scale, ticks};
use crate::report::number;
use crate::report::round::Marks;
use crate::report::row::{self, Row};
use crate::report::spread::Spread;
use crate::report::unit::UnitLabels;

const HEIGHT: u32 = 1000;
const TOP: f64 = 150.0;
const LEFT: f64 = 190.0;
/// The horizontal distance of trackers on the same number of cores, so that their whiskers can be told apart.
const ASIDE: f64 = 9.0;

/// A tracker's points, at least one.
struct Series<'a> {
    name: &'a str,
    title: &'a str,
    style: PlotStyle,
    points: Vec<ThroughputPoint>,
}

/// Responses a second on a number of cores.
struct ThroughputPoint {
    cores: f64,
    spread: Spread,
    marks: Marks,
}

/// Draws the chart, for at least two numbers of cores.
pub(super) fn over_cores(rows: &[(&Row<'_>, PlotStyle)]) -> Option<Drawing> {
    let series = series(rows);
    let points = || series.iter().flat_map(|series| &series.points);
    let most = points().map(|point| point.spread.max).reduce(f64::max)?;
    let counts = row::core_counts(rows.iter().map(|(row, _)| *row));
    let cores_max = counts.last().map(|cores| as_f64(*cores))?;
    let (entries, notes) = (entries(&series), notes(rows));
    let meanings = layout::wrapped(&meanings(points()));
    let bottom = as_f64(meanings.len()).mul_add(-layout::NOTE_LINE, f64::from(HEIGHT) - 130.0);
    let right = f64::from(WIDTH) - layout::legend_width(&entries, &notes) - 40.0;
    let ticks = ticks(most);
    let x = Scale::linear((0.0, cores_max + 0.3), (LEFT, right));
    let y = Scale::linear((0.0, ticks.last().copied().unwrap_or(1.0)), (bottom, TOP));
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    let subtitle = "Medians over the rounds, with minimum and maximum; dashed: the ceiling, not a tracker";
    layout::title(&mut drawing, "Throughput over cores", subtitle);
    let labels = UnitLabels::of(rows.iter().map(|(row, _)| *row));
    draw_axes(&mut drawing, &counts, &ticks, &x, &y);
    let middle = f64::midpoint(TOP, bottom);
    drawing.text_upwards(&format!("{} a second", labels.many), (48.0, middle), SMALL, FOREGROUND);
    draw_series(&mut drawing, &series, &x, &y);
    layout::legend(&mut drawing, &entries, &notes, right + 50.0, TOP + 20.0);
    layout::footnotes(&mut drawing, &meanings, bottom + 110.0);
    Some(drawing)
}

fn draw_axes(drawing: &mut Drawing, counts: &[usize], ticks: &[f64], x: &Scale, y: &Scale) {
    let ((left, right), (bottom, _)) = (x.ends(), y.ends());
    for (tick, name) in ticks.iter().zip(number::ticks(ticks)) {
        drawing.line(&[(left, y.at(*tick)), (right, y.at(*tick))], 2, GRID);
        drawing.text(&name, (left - 14.0, y.at(*tick)), SMALL, MUTED, Anchor::Right);
    }
    for cores in counts {
        let at = x.at(as_f64(*cores));
        drawing.line(&[(at, bottom), (at, bottom + 10.0)], 2, MUTED);
        drawing.text(&cores.to_string(), (at, bottom + 30.0), SMALL, MUTED, Anchor::Centre);
    }
    drawing.line(&[(left, bottom), (right, bottom)], 2, MUTED);
    let middle = f64::midpoint(left, right);
    drawing.text("cores of the tracker", (middle, bottom + 66.0), SMALL, FOREGROUND, Anchor::Centre);
}

fn draw_series(drawing: &mut Drawing, series: &[Series<'_>], x: &Scale, y: &Scale) {
    let aside = |at: usize| (as_f64(at) - (as_f64(series.len()) - 1.0) / 2.0) * ASIDE;
    let position =
        |at: usize, point: &ThroughputPoint| (x.at(point.cores) + aside(at), y.at(point.spread.median));
    for (at, Series { points, .. }) in series.iter().enumerate() {
        for point in points.iter().filter(|point| point.marks != Marks::default()) {
            palette::circle(drawing, position(at, point));
        }
    }
    for (at, Series { points, style, .. }) in series.iter().enumerate() {
        let positions: Vec<Point> = points.iter().map(|point| position(at, point)).collect();
        style.line(drawing, &positions);
        for (ThroughputPoint { spread, .. }, position) in points.iter().zip(positions) {
            if spread.min < spread.max {
                drawing.whisker((position.0, y.at(spread.min)), (position.0, y.at(spread.max)), style.colour);
            }
            style.mark(drawing, position);
        }
    }
}

/// Returns the trackers with at least one point, in the order of the rows.
fn series<'a>(rows: &[(&'a Row<'a>, PlotStyle)]) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'_>> = Vec::new();
    for (row, style) in rows {
        let Some(measured) = row.measured() else { continue };
        let (Some(cores), Some(spread)) = (row.cores(), measured.responses_per_s) else { continue };
        let point = ThroughputPoint { cores: as_f64(cores), spread, marks: measured.marks };
        let (name, title) = (row.tracker.name.as_str(), row.tracker.title.as_str());
        match all.last_mut() {
            Some(last) if last.name == name => last.points.push(point),
            _ => all.push(Series { name, title, style: *style, points: vec![point] }),
        }
    }
    all
}

/// Returns the legend, with the signs of all points of a tracker.
fn entries(series: &[Series<'_>]) -> Vec<Entry> {
    let entry = |series: &Series<'_>| {
        let marks = series.points.iter().fold(Marks::default(), |marks, point| marks.union(point.marks));
        Entry { style: series.style, title: format!("{}{}", series.title, marks.signs()) }
    };
    series.iter().map(entry).collect()
}

/// Returns the meanings of the circled points and of the signs in the legend.
fn meanings<'a>(points: impl Iterator<Item = &'a ThroughputPoint>) -> Vec<String> {
    let mut lines = Marks::meanings(points.map(|point| point.marks));
    if !lines.is_empty() {
        lines.insert(0, "Circled points should be read with care:".into());
    }
    lines
}

/// Returns the trackers without a point, with the reasons, a line for each tracker.
fn notes(rows: &[(&Row<'_>, PlotStyle)]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for (row, _) in rows.iter().filter(|(row, _)| row.measured().is_none()) {
        let note = format!("{}: {}", row.tracker.title, layout::missing(row));
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

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(0.0, f64::from)
}
