//! Latency by percentile. The axis shows rarity: each section of it is ten times as rare as the one before.

use super::lines::{Axis, Lines, Point, Series};
use super::missing;
use super::palette::PlotStyle;
use crate::report::figure::Figure;
use crate::report::number;
use crate::report::round::{self, Marks};
use crate::report::row::Row;
use crate::report::spread::Spread;

/// The rarest requests that are shown, one in so many. Rarer ones depend on chance.
const RARITY_MAX: f64 = 1e5;
/// Points of a curve between two powers of ten.
const POINTS_PER_DECADE: f64 = 24.0;
/// Percentiles with a label and a marker, as rarities.
const NAMED: [(f64, &str); 6] =
    [(2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %")];

/// Returns the chart of one number of cores.
pub(super) fn curves(rows: &[(&Row<'_>, PlotStyle)], cores: usize) -> Option<Lines> {
    let here = || rows.iter().filter(|(row, _)| row.cores() == Some(cores));
    let (series, marks): (Vec<Series>, Vec<Marks>) =
        here().filter_map(|(row, style)| curve(row, *style)).unzip();
    let points = || series.iter().flat_map(|series| &series.points);
    let spread = Spread::of(points().map(|point| point.y))?;
    let rarity = points().map(|point| point.x).fold(10.0, f64::max);
    let lacking =
        rows.iter().filter(|(row, _)| row.cores().is_none_or(|own| own == cores) && !row.has(Figure::P50Us));
    let notes = lacking.map(|(row, _)| format!("{}: {}", row.tracker.title, missing(row))).collect();
    let ticks = decades(spread.min.max(0.1), spread.max.max(0.2));
    let on = if cores == 1 { "one core".into() } else { format!("{cores} cores") };
    let is_relayed = rows.iter().any(|(row, _)| row.has(Figure::OffersPerS));
    let subtitle = if is_relayed {
        "From the scheduled start of an announce to the arrival of one of its offers; medians over the rounds"
    } else {
        "From the scheduled start of a request to its reply; medians over the rounds; dashed: the ceiling"
    };
    let named = NAMED.iter().filter(|(value, _)| *value <= rarity * 1.001);
    Some(Lines {
        title: format!("Latency at a fixed rate, {on}"),
        subtitle: subtitle.into(),
        x: Axis {
            title: "percentile".into(),
            range: (1.0, rarity),
            ticks: named.map(|(value, name)| (*value, (*name).into())).collect(),
            is_logarithmic: true,
        },
        y: Axis {
            title: "latency".into(),
            range: (ticks[0], ticks[ticks.len() - 1]),
            ticks: ticks.into_iter().map(|tick| (tick, number::duration_us(tick))).collect(),
            is_logarithmic: true,
        },
        series,
        notes,
        footnotes: Marks::meanings(marks),
    })
}

/// Returns the median latency at each rarity, over the rounds that count, as far as all of them reach.
fn curve(row: &Row<'_>, style: PlotStyle) -> Option<(Series, Marks)> {
    let marks = row.measured().filter(|_| row.has(Figure::P50Us))?.rated_marks;
    let cell = row.cell?;
    let counting = cell
        .rounds
        .iter()
        .filter(|round| round::figures(cell, round).is_ok_and(|figures| figures.of(Figure::P50Us).is_some()));
    let rounds: Vec<Vec<(f64, f64)>> = counting
        .filter_map(|round| round.latency.as_ref())
        .map(by_rarity)
        .filter(|curve| !curve.is_empty())
        .collect();
    let reach =
        rounds.iter().filter_map(|curve| curve.last()).map(|point| point.0).fold(RARITY_MAX, f64::min);
    let at = |rarity: f64| {
        let y = Spread::of(rounds.iter().filter_map(|curve| value_at(curve, rarity)))?.median;
        let has_marker = NAMED.iter().any(|(named, _)| (rarity / named - 1.0).abs() < 1e-6);
        Some(Point { x: rarity, y, range: (y, y), has_marker, is_circled: false })
    };
    let points: Vec<_> =
        rarities().into_iter().take_while(|rarity| *rarity <= reach).filter_map(at).collect();
    let title = format!("{}{}", row.tracker.title, marks.signs());
    (!points.is_empty()).then_some((Series { title, style, points }, marks))
}

/// Returns a round's curve (of the relays, if any) as rarities and latencies, without the infinite rarity.
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

/// Returns the powers of ten around a range, and twice and five times these if the range is narrow.
pub(super) fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let factors: &[f64] = if last - first > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let mut ticks = Vec::new();
    let mut exponent = first;
    while exponent < last {
        ticks.extend(factors.iter().map(|factor| factor * 10f64.powf(exponent)));
        exponent += 1.0;
    }
    ticks.push(10f64.powf(last));
    // At most one tick below the range and one above it.
    let start = ticks.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let end = ticks.iter().position(|tick| *tick >= high).unwrap_or(ticks.len() - 1);
    ticks[start..=end.max(start + 1).min(ticks.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_around_the_data() {
        assert_eq!(decades(100.0, 100.0), [100.0, 200.0]);
        assert_eq!(decades(30.0, 150.0), [20.0, 50.0, 100.0, 200.0]);
        assert_eq!(decades(30.0, 2_500_000.0), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7]);
    }
}
