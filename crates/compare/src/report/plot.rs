//! The plots of the report. Each is a drawing of shapes that is rendered as SVG and as PNG.

mod backend;
mod bars;
mod cost;
mod drawing;
mod glyphs;
mod latency;
mod layout;
mod palette;
mod scale;
mod throughput;

use drawing::Drawing;
use palette::PlotStyle;

use super::row::{self, Row};
use super::unit::UnitLabels;
use crate::result::Comparison;

/// A plot that can be rendered.
pub(super) struct Plot {
    /// The file name without its extension.
    pub(super) name: String,
    /// The alternative text.
    pub(super) title: String,
    drawing: Drawing,
}

impl Plot {
    /// Renders the plot as an SVG document.
    pub(super) fn svg(&self) -> anyhow::Result<String> {
        backend::svg(&self.drawing)
    }

    /// Renders the plot as a PNG file.
    pub(super) fn png(&self) -> anyhow::Result<Vec<u8>> {
        backend::png(&self.drawing)
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
        [cores] => cost::throughput(&styled, *cores),
        _ => throughput::over_cores(&styled),
    };
    let UnitLabels { one, many, .. } = UnitLabels::of(&rows);
    let mut plots = vec![
        plot("throughput".into(), format!("Throughput: {many} a second"), throughput),
        plot("cpu".into(), format!("CPU time per {one}, user and system"), cost::cpu(&styled)),
        plot("memory".into(), "Resident memory after the fill".into(), cost::memory(&styled)),
        plot("idle".into(), "Resident memory of each idle connection".into(), cost::idle(&styled)),
    ];
    plots.extend(counts.iter().map(|cores| {
        let title = format!("Latency by percentile at a fixed rate, cores: {cores}");
        plot(format!("latency-{cores}"), title, latency::curves(&styled, *cores))
    }));
    plots.into_iter().flatten().collect()
}

fn plot(name: String, title: String, drawing: Option<Drawing>) -> Option<Plot> {
    drawing.map(|drawing| Plot { name, title, drawing })
}
