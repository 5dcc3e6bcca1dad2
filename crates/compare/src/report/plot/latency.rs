//! Latency by percentile. The axis shows rarity: each section of it is ten times as rare as the one before.

use super::drawing::{Anchor, Drawing, FOREGROUND, GRID, MUTED, Point};
use super::layout::{self, Entry, SMALL, WIDTH};
use super::palette::PlotStyle;
use super::scale::{Scale, decades};
use crate::report::number;
use crate::report::round::{self, Marks};
use crate::report::row::Row;
use crate::report::spread::Spread;

const HEIGHT: u32 = 1000;
const TOP: f64 = 150.0;
const LEFT: f64 = 170.0;
/// The rarest requests that are shown, one in so many. Rarer ones depend on chance.
const RARITY_MAX: f64 = 1e5;
/// Points of a curve between two powers of ten.
const POINTS_PER_DECADE: f64 = 24.0;
/// Percentiles with a label and a marker, as rarities.
const NAMED: [(f64, &str); 6] =
    [(2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %")];

/// A tracker's curve: rarity and latency in microseconds.
struct Curve {
    entry: Entry,
    marks: Marks,
    points: Vec<(f64, f64)>,
}

/// Draws the chart of one number of cores.
pub(super) fn curves(rows: &[(&Row<'_>, PlotStyle)], cores: usize) -> Option<Drawing> {
    let here = || rows.iter().filter(|(row, _)| row.cores() == Some(cores));
    let curves: Vec<Curve> = here().filter_map(|(row, style)| curve(row, *style)).collect();
    let latencies = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let spread = Spread::of(latencies())?;
    let rarity =
        curves.iter().filter_map(|curve| curve.points.last()).map(|point| point.0).fold(10.0, f64::max);
    let missing = rows.iter().filter(|(row, _)| {
        row.cores().is_none_or(|own| own == cores)
            && row.measured().is_none_or(|measured| measured.latency.is_none())
    });
    let notes: Vec<String> =
        missing.map(|(row, _)| format!("{}: {}", row.tracker.title, layout::missing(row))).collect();
    let meanings = layout::wrapped(&Marks::meanings(curves.iter().map(|curve| curve.marks)));
    let entries: Vec<Entry> = curves.iter().map(|curve| curve.entry.clone()).collect();
    let bottom = u32::try_from(meanings.len())
        .map_or(0.0, f64::from)
        .mul_add(-layout::NOTE_LINE, f64::from(HEIGHT) - 130.0);
    let right = f64::from(WIDTH) - layout::legend_width(&entries, &notes) - 40.0;
    let ticks = decades(spread.min.max(0.1), spread.max.max(0.2));
    let x = Scale::logarithmic((1.0, rarity), (LEFT, right));
    let y = Scale::logarithmic((ticks[0], ticks[ticks.len() - 1]), (bottom, TOP));
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    let on = if cores == 1 { "one core".into() } else { format!("{cores} cores") };
    let is_relayed = rows.iter().filter_map(|(row, _)| row.measured()).any(|row| row.relays.is_some());
    let subtitle = if is_relayed {
        "From the scheduled start of an announce to the arrival of one of its offers; medians over the rounds"
    } else {
        "From the scheduled start of a request to its reply; medians over the rounds; dashed: the ceiling"
    };
    layout::title(&mut drawing, &format!("Latency at a fixed rate, {on}"), subtitle);
    draw_axes(&mut drawing, &ticks, rarity, &x, &y);
    for curve in &curves {
        curve.draw(&mut drawing, &x, &y);
    }
    layout::legend(&mut drawing, &entries, &notes, right + 50.0, TOP + 20.0);
    layout::footnotes(&mut drawing, &meanings, bottom + 110.0);
    Some(drawing)
}

fn draw_axes(drawing: &mut Drawing, ticks: &[f64], rarity: f64, x: &Scale, y: &Scale) {
    let ((left, right), (bottom, top)) = (x.ends(), y.ends());
    for tick in ticks {
        drawing.line(&[(left, y.at(*tick)), (right, y.at(*tick))], 2, GRID);
        let name = number::duration_us(*tick);
        drawing.text(&name, (left - 14.0, y.at(*tick)), SMALL, MUTED, Anchor::Right);
    }
    for (value, name) in NAMED.iter().filter(|(value, _)| *value <= rarity * 1.001) {
        let at = x.at(*value);
        drawing.line(&[(at, top), (at, bottom + 10.0)], 2, GRID);
        drawing.text(name, (at, bottom + 30.0), SMALL, MUTED, Anchor::Centre);
    }
    drawing.line(&[(left, bottom), (right, bottom)], 2, MUTED);
    let middle = f64::midpoint(left, right);
    drawing.text("percentile", (middle, bottom + 66.0), SMALL, FOREGROUND, Anchor::Centre);
    drawing.text_upwards("latency", (40.0, f64::midpoint(top, bottom)), SMALL, FOREGROUND);
}

impl Curve {
    fn draw(&self, drawing: &mut Drawing, x: &Scale, y: &Scale) {
        let point = |(rarity, latency_us): &(f64, f64)| (x.at(*rarity), y.at(*latency_us));
        let points: Vec<Point> = self.points.iter().map(point).collect();
        self.entry.style.line(drawing, &points);
        for (named, _) in NAMED {
            let nearest = self.points.iter().find(|(rarity, _)| (rarity / named - 1.0).abs() < 1e-6);
            if let Some(nearest) = nearest {
                self.entry.style.mark(drawing, point(nearest));
            }
        }
    }
}

/// Returns the median latency at each rarity, over the rounds that count, as far as all of them reach.
fn curve(row: &Row<'_>, style: PlotStyle) -> Option<Curve> {
    let marks = row.measured()?.latency.as_ref()?.marks;
    let cell = row.cell?;
    let counting =
        cell.rounds.iter().filter(|round| round::figures(cell, round).is_ok_and(|f| f.latency.is_some()));
    let rounds: Vec<Vec<(f64, f64)>> = counting
        .filter_map(|round| round.latency.as_ref())
        .map(by_rarity)
        .filter(|curve| !curve.is_empty())
        .collect();
    let reach =
        rounds.iter().filter_map(|curve| curve.last()).map(|point| point.0).fold(RARITY_MAX, f64::min);
    let at = |rarity: f64| {
        Some((rarity, Spread::of(rounds.iter().filter_map(|curve| value_at(curve, rarity)))?.median))
    };
    let points: Vec<_> =
        rarities().into_iter().take_while(|rarity| *rarity <= reach).filter_map(at).collect();
    let entry = Entry { style, title: format!("{}{}", row.tracker.title, marks.signs()) };
    (!points.is_empty()).then_some(Curve { entry, marks, points })
}

/// Returns a round's curve as rarities and latencies, without the point of infinite rarity. If offers are relayed, it
/// is the curve of the relays.
fn by_rarity(report: &shoal_load::Report) -> Vec<(f64, f64)> {
    let curve = report.relays.as_ref().map_or(&report.latency_curve, |relays| &relays.offer_latency_curve);
    let finite = curve.iter().filter(|point| point.percentile < 100.0);
    finite.map(|point| (100.0 / (100.0 - point.percentile), point.latency_us)).collect()
}

/// Interpolates between two points of the curve.
fn value_at(curve: &[(f64, f64)], rarity: f64) -> Option<f64> {
    let after = curve.iter().position(|point| point.0 >= rarity * (1.0 - 1e-9))?;
    let (above, high) = curve[after];
    let (below, low) = curve[after.saturating_sub(1)];
    let share = if above > below { (rarity / below).ln() / (above / below).ln() } else { 1.0 };
    Some((high - low).mul_add(share.min(1.0), low))
}

/// Returns evenly spaced rarities, and the labelled ones among them.
fn rarities() -> Vec<f64> {
    let mut all: Vec<f64> = NAMED.iter().map(|named| named.0).collect();
    let mut exponent = 0.0;
    while exponent < RARITY_MAX.log10() {
        all.push(10f64.powf(exponent));
        exponent += 1.0 / POINTS_PER_DECADE;
    }
    all.sort_by(f64::total_cmp);
    all.dedup_by(|a, b| (*a / *b - 1.0).abs() < 1e-6);
    all
}
