//! Bar charts: CPU time, memory, and throughput on a single number of cores.

use plotters::prelude::RGBColor;

use super::bars::{Bar, Bars};
use super::missing;
use super::palette::PlotStyle;
use crate::report::figure::{Figure, Medians};
use crate::report::number;
use crate::report::round::Marks;
use crate::report::row::Row;
use crate::report::spread::Spread;
use crate::report::unit::UnitLabels;

const USER: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const SYSTEM: RGBColor = RGBColor(0xb9, 0xc4, 0xcf);
const MEDIANS: &str = "Medians over the rounds, with minimum and maximum";

/// Draws the CPU time of a reply, divided into user and system time.
pub(super) fn cpu(rows: &[(&Row<'_>, PlotStyle)]) -> Option<Bars> {
    let content = |row: &Medians, _| {
        let whole = row.of(Figure::WholeUs)?;
        let parts = match (row.of(Figure::UserUs), row.of(Figure::SystemUs)) {
            (Some(Spread { median: user, .. }), Some(Spread { median: system, .. })) => {
                // The medians of the parts need not add up to the median of the whole.
                let scale = if user + system > 0.0 { whole.median / (user + system) } else { 0.0 };
                vec![(user * scale, USER), (system * scale, SYSTEM)]
            }
            _ => vec![(whole.median, SYSTEM)],
        };
        let user =
            row.of(Figure::UserUs).map(|user| format!(", user {:.2}", user.median)).unwrap_or_default();
        let text = format!("{:.2}{}{user}", whole.median, row.marks.signs());
        Some(Bar { parts, range: (whole.min, whole.max), text, ..Bar::default() })
    };
    let shown = |row: &Medians| row.of(Figure::WholeUs).map(|_| row.marks);
    chart(rows, content, shown).map(|bars| {
        let labels = UnitLabels::of(rows.iter().map(|(row, _)| *row));
        Bars {
            title: format!("CPU time per {}", labels.one),
            subtitle: MEDIANS.into(),
            unit: format!("µs of the tracker's CPU time for each {} that it sent", labels.sent),
            legend: vec![(USER, "user: the tracker's own code"), (SYSTEM, "system: the kernel")],
            ..bars
        }
    })
}

pub(super) fn memory(rows: &[(&Row<'_>, PlotStyle)]) -> Option<Bars> {
    let content = |row: &Medians, style: PlotStyle| {
        let Spread { median, min, max } = row.of(Figure::ResidentMb)?;
        let fill = row.of(Figure::FilledMb).map(|fill| format!(", fill {}", number::figure(fill.median)));
        let text = number::figure(median) + &fill.unwrap_or_default();
        Some(Bar { parts: vec![(median, style.colour)], range: (min, max), text, ..Bar::default() })
    };
    let shown = |row: &Medians| row.of(Figure::ResidentMb).map(|_| Marks::default());
    chart(rows, content, shown).map(|bars| {
        let unit = "MB resident after the fill (1 MB = 1,000,000 bytes)".into();
        let subtitle = format!("{MEDIANS}; fill: the part that the fill added");
        Bars { title: "Memory".into(), subtitle, unit, ..bars }
    })
}

/// Draws the resident memory of each idle connection.
pub(super) fn idle(rows: &[(&Row<'_>, PlotStyle)]) -> Option<Bars> {
    let of = |row: &Medians| row.of(Figure::IdleKib);
    let content = |row: &Medians, style: PlotStyle| plain(of(row)?, style, row.marks, number::hundredths);
    let shown = |row: &Medians| of(row).map(|_| row.marks);
    chart(rows, content, shown).map(|bars| {
        let unit = "KiB resident for each connection (1 KiB = 1,024 bytes)".into();
        Bars { title: "Idle connections".into(), subtitle: MEDIANS.into(), unit, ..bars }
    })
}

pub(super) fn throughput(rows: &[(&Row<'_>, PlotStyle)], cores: usize) -> Option<Bars> {
    let content = |row: &Medians, style: PlotStyle| {
        plain(row.of(Figure::ResponsesPerS)?, style, row.marks, number::whole)
    };
    let shown = |row: &Medians| row.of(Figure::ResponsesPerS).map(|_| row.marks);
    chart(rows, content, shown).map(|bars| {
        let cores = if cores == 1 { "one core".into() } else { format!("{cores} cores") };
        let title = format!("Throughput on {cores}");
        Bars {
            title,
            subtitle: format!("{MEDIANS}; grey: the ceiling, not a tracker"),
            unit: format!("{} a second", UnitLabels::of(rows.iter().map(|(row, _)| *row)).many),
            ..bars
        }
    })
}

/// Returns the bars, or nothing if no row has one. `shown` returns the marks of a row that has a bar.
fn chart(
    rows: &[(&Row<'_>, PlotStyle)],
    content: impl Fn(&Medians, PlotStyle) -> Option<Bar>,
    shown: impl Fn(&Medians) -> Option<Marks>,
) -> Option<Bars> {
    let marks: Vec<Marks> = rows.iter().filter_map(|(row, _)| shown(row.measured()?)).collect();
    let several = crate::report::row::core_counts(rows.iter().map(|(row, _)| *row)).len() > 1;
    let bar = |(row, style): &(&Row<'_>, PlotStyle)| {
        let nothing = || Bar { text: missing(row).into(), ..Bar::default() };
        let bar = row.measured().and_then(|measured| content(measured, *style)).unwrap_or_else(nothing);
        let name = match row.cores().filter(|_| several) {
            None => row.tracker.title.clone(),
            Some(1) => format!("{}, 1 core", row.tracker.title),
            Some(cores) => format!("{}, {cores} cores", row.tracker.title),
        };
        Bar { name, ..bar }
    };
    (!marks.is_empty()).then(|| Bars {
        bars: rows.iter().map(bar).collect(),
        footnotes: Marks::meanings(marks),
        ..Bars::default()
    })
}

fn plain(spread: Spread, style: PlotStyle, marks: Marks, show: fn(f64) -> String) -> Option<Bar> {
    let text = format!("{}{}", show(spread.median), marks.signs());
    let parts = vec![(spread.median, style.colour)];
    Some(Bar { parts, range: (spread.min, spread.max), text, ..Bar::default() })
}
