//! Throughput by the number of cores, with a line for each tracker.

use plotters::coord::ranged1d::Ranged as _;
use plotters::coord::types::RangedCoordf64;

use super::lines::{Axis, Lines, Point, Series};
use super::palette::PlotStyle;
use super::{count, missing};
use crate::report::figure::Figure;
use crate::report::number;
use crate::report::round::Marks;
use crate::report::row::{self, Row};
use crate::report::unit::UnitLabels;

/// The distance of trackers on the same number of cores, so that their whiskers can be told apart, as a share of the axis.
const ASIDE: f64 = 0.008;

/// Returns the chart, for at least two numbers of cores.
pub(super) fn over_cores(rows: &[(&Row<'_>, PlotStyle)]) -> Option<Lines> {
    let counts = row::core_counts(rows.iter().map(|(row, _)| *row));
    let as_f64 = |number: usize| f64::from(count(number));
    let end = counts.last().map(|cores| as_f64(*cores) + 0.3)?;
    let (mut series, marks) = series(rows);
    let most = series.iter().flat_map(|series| &series.points).map(|point| point.range.1).reduce(f64::max)?;
    let middle = (as_f64(series.len()) - 1.0) / 2.0;
    for (at, series) in series.iter_mut().enumerate() {
        let aside = (as_f64(at) - middle) * ASIDE * end;
        series.points.iter_mut().for_each(|point| point.x += aside);
    }
    let mut footnotes = Marks::meanings(marks);
    if !footnotes.is_empty() {
        footnotes.insert(0, "Circled points should be read with care:".into());
    }
    let ticks = RangedCoordf64::from(0.0..most).key_points(8);
    let names = number::ticks(&ticks);
    Some(Lines {
        title: "Throughput over cores".into(),
        subtitle: "Medians over the rounds, with minimum and maximum; dashed: the ceiling, not a tracker"
            .into(),
        x: Axis {
            title: "cores of the tracker".into(),
            range: (0.0, end),
            ticks: counts.iter().map(|cores| (as_f64(*cores), cores.to_string())).collect(),
            is_logarithmic: false,
        },
        y: Axis {
            title: format!("{} a second", UnitLabels::of(rows.iter().map(|(row, _)| *row)).many),
            range: (0.0, most * 1.03),
            ticks: ticks.into_iter().zip(names).collect(),
            is_logarithmic: false,
        },
        series,
        notes: notes(rows),
        footnotes,
    })
}

/// Returns the trackers that have points, in the order of the rows and with signs, and the marks of all points.
fn series(rows: &[(&Row<'_>, PlotStyle)]) -> (Vec<Series>, Vec<Marks>) {
    let mut all: Vec<(&str, Marks, Series)> = Vec::new();
    for (row, style) in rows {
        let Some(measured) = row.measured() else { continue };
        let (Some(cores), Some(spread)) = (row.cores(), measured.of(Figure::ResponsesPerS)) else { continue };
        let point = Point {
            x: f64::from(count(cores)),
            y: spread.median,
            range: (spread.min, spread.max),
            has_marker: true,
            is_circled: measured.marks != Marks::default(),
        };
        let (name, title) = (row.tracker.name.as_str(), row.tracker.title.clone());
        match all.last_mut() {
            Some((last, marks, series)) if *last == name => {
                *marks = marks.union(measured.marks);
                series.points.push(point);
            }
            _ => all.push((name, measured.marks, Series { title, style: *style, points: vec![point] })),
        }
    }
    let with_signs = |(_, marks, mut series): (&str, Marks, Series)| {
        series.title.push_str(&marks.signs());
        (series, marks)
    };
    all.into_iter().map(with_signs).unzip()
}

/// Returns the trackers without a point, with the reasons, a line for each tracker.
fn notes(rows: &[(&Row<'_>, PlotStyle)]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for (row, _) in rows.iter().filter(|(row, _)| row.measured().is_none()) {
        let note = format!("{}: {}", row.tracker.title, missing(row));
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
