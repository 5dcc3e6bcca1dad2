//! Latency over percentiles. The axis of percentiles is one of rarity: each stretch of it is ten times as rare.

use super::drawing::{Anchor, Drawing, FAINT, GRID, INK, Point};
use super::palette::Look;
use super::scale::{Scale, decades};
use super::sheet::{self, Entry, SMALL, WIDTH};
use crate::book::number;
use crate::book::round::{self, Marks};
use crate::book::row::Row;
use crate::book::spread::Spread;
use crate::result::Cell;

const HEIGHT: u32 = 1000;
const TOP: f64 = 150.0;
const LEFT: f64 = 170.0;
/// One request in so many at most: what is rarer is chance.
const RARITY_MAX: f64 = 1e5;
/// Points of a curve between two powers of ten.
const POINTS_PER_DECADE: f64 = 24.0;
/// Percentiles that the axis names and at which markers stand, as rarities.
const NAMED: [(f64, &str); 6] =
    [(2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %")];

/// A tracker's curve: rarity and latency in microseconds.
struct Curve {
    entry: Entry,
    marks: Marks,
    points: Vec<(f64, f64)>,
}

/// The chart of one number of cores.
pub(super) fn curves(rows: &[(&Row<'_>, Look)], cores: usize) -> Option<Drawing> {
    let here = || rows.iter().filter(|(row, _)| row.cores() == Some(cores));
    let curves: Vec<Curve> = here().filter_map(|(row, look)| curve(row, *look)).collect();
    let latencies = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let spread = Spread::of(latencies())?;
    let rarity =
        curves.iter().filter_map(|curve| curve.points.last()).map(|point| point.0).fold(10.0, f64::max);
    let missing = rows.iter().filter(|(row, _)| {
        row.cores().is_none_or(|own| own == cores)
            && row.measured().is_none_or(|measured| measured.latency.is_none())
    });
    let notes: Vec<String> =
        missing.map(|(row, _)| format!("{}: {}", row.tracker.title, sheet::missing(row))).collect();
    let meanings = sheet::meanings(curves.iter().map(|curve| curve.marks));
    let entries: Vec<Entry> = curves.iter().map(Curve::entry_with_signs).collect();
    let bottom =
        u32::try_from(meanings.len()).map_or(0.0, f64::from).mul_add(-32.0, f64::from(HEIGHT) - 130.0);
    let right = f64::from(WIDTH) - sheet::legend_width(&entries, &notes) - 40.0;
    let ticks = decades(spread.min.max(0.1), spread.max.max(0.2));
    let x = Scale::logarithmic((1.0, rarity), (LEFT, right));
    let y = Scale::logarithmic((ticks[0], ticks[ticks.len() - 1]), (bottom, TOP));
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    let on = if cores == 1 { "one core".into() } else { format!("{cores} cores") };
    let is_relayed = rows.iter().filter_map(|(row, _)| row.measured()).any(|row| row.relays.is_some());
    let subtitle = if is_relayed {
        "From when an announce should have left to the arrival of an offer of it; medians over the rounds"
    } else {
        "From when a request should have left to its reply; medians over the rounds; dashed: the ceiling"
    };
    sheet::title(&mut drawing, &format!("Latency at a fixed rate, {on}"), subtitle);
    draw_axes(&mut drawing, &ticks, rarity, &x, &y);
    for curve in &curves {
        curve.draw(&mut drawing, &x, &y);
    }
    sheet::legend(&mut drawing, &entries, &notes, right + 50.0, TOP + 20.0);
    sheet::footnotes(&mut drawing, &meanings, bottom + 110.0);
    Some(drawing)
}

fn draw_axes(drawing: &mut Drawing, ticks: &[f64], rarity: f64, x: &Scale, y: &Scale) {
    let ((left, right), (bottom, top)) = (x.ends(), y.ends());
    for tick in ticks {
        drawing.line(&[(left, y.at(*tick)), (right, y.at(*tick))], 2, GRID);
        let name = number::duration_us(*tick);
        drawing.text(&name, (left - 14.0, y.at(*tick)), SMALL, FAINT, Anchor::Right);
    }
    for (value, name) in NAMED.iter().filter(|(value, _)| *value <= rarity * 1.001) {
        let at = x.at(*value);
        drawing.line(&[(at, top), (at, bottom + 10.0)], 2, GRID);
        drawing.text(name, (at, bottom + 30.0), SMALL, FAINT, Anchor::Centre);
    }
    drawing.line(&[(left, bottom), (right, bottom)], 2, FAINT);
    let middle = f64::midpoint(left, right);
    drawing.text("percentile", (middle, bottom + 66.0), SMALL, INK, Anchor::Centre);
    drawing.text_upwards("latency", (40.0, f64::midpoint(top, bottom)), SMALL, INK);
}

impl Curve {
    fn draw(&self, drawing: &mut Drawing, x: &Scale, y: &Scale) {
        let place = |(rarity, latency_us): &(f64, f64)| (x.at(*rarity), y.at(*latency_us));
        let points: Vec<Point> = self.points.iter().map(place).collect();
        self.entry.look.line(drawing, &points);
        for (named, _) in NAMED {
            let nearest = self.points.iter().find(|(rarity, _)| (rarity / named - 1.0).abs() < 1e-6);
            if let Some(point) = nearest {
                self.entry.look.mark(drawing, place(point));
            }
        }
    }

    fn entry_with_signs(&self) -> Entry {
        Entry { look: self.entry.look, title: format!("{}{}", self.entry.title, self.marks.signs()) }
    }
}

fn curve(row: &Row<'_>, look: Look) -> Option<Curve> {
    let marks = row.measured()?.latency.as_ref()?.marks;
    let points = median_curve(row.cell?);
    let entry = Entry { look, title: row.tracker.title.clone() };
    (!points.is_empty()).then_some(Curve { entry, marks, points })
}

/// At each rarity the median over the rounds that count, as far as every one of them reaches.
fn median_curve(cell: &Cell) -> Vec<(f64, f64)> {
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
    rarities().into_iter().take_while(|rarity| *rarity <= reach).filter_map(at).collect()
}

/// A round's curve as rarities and latencies, without the point that no request is rarer than. Where offers are relayed it
/// is theirs.
fn by_rarity(report: &shoal_load::Report) -> Vec<(f64, f64)> {
    let curve = report.relays.as_ref().map_or(&report.latency_curve, |relays| &relays.offer_latency_curve);
    let finite = curve.iter().filter(|point| point.percentile < 100.0);
    finite.map(|point| (100.0 / (100.0 - point.percentile), point.latency_us)).collect()
}

/// Between two points of the curve as the line between them goes.
fn value_at(curve: &[(f64, f64)], rarity: f64) -> Option<f64> {
    let after = curve.iter().position(|point| point.0 >= rarity * (1.0 - 1e-9))?;
    let (above, high) = curve[after];
    let (below, low) = curve[after.saturating_sub(1)];
    let share = if above > below { (rarity / below).ln() / (above / below).ln() } else { 1.0 };
    Some((high - low).mul_add(share.min(1.0), low))
}

/// Evenly spread, and the named ones among them.
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
