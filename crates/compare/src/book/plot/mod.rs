//! The plots of the book. Each is a drawing of shapes, which goes out as SVG and as PNG.

mod bars;
mod cost;
mod drawing;
mod latency;
mod letters;
mod output;
mod palette;
mod scale;
mod sheet;
mod throughput;

use drawing::Drawing;
use palette::Look;

use super::noun::Noun;
use super::row::{self, Row};
use crate::result::Comparison;

/// A plot, ready to be written.
pub(super) struct Plot {
    /// Its file without the ending.
    pub(super) name: String,
    /// What it shows, for those who do not see it.
    pub(super) title: String,
    drawing: Drawing,
}

impl Plot {
    /// The plot as a document of SVG.
    pub(super) fn svg(&self) -> anyhow::Result<String> {
        output::svg(&self.drawing)
    }

    /// The plot as a file of PNG.
    pub(super) fn png(&self) -> anyhow::Result<Vec<u8>> {
        output::png(&self.drawing)
    }
}

/// The plots of a comparison; those without a single figure are left out.
pub(super) fn plots(comparison: &Comparison) -> Vec<Plot> {
    let rows = row::rows(comparison);
    let looks = palette::looks(&comparison.trackers);
    let look = |row: &Row<'_>| {
        let at = comparison.trackers.iter().position(|tracker| std::ptr::eq(tracker, row.tracker));
        looks[at.unwrap_or(0)]
    };
    let dressed: Vec<(&Row<'_>, Look)> = rows.iter().map(|row| (row, look(row))).collect();
    let counts = row::core_counts(&rows);
    let throughput = match counts.as_slice() {
        [] => None,
        [cores] => cost::throughput(&dressed, *cores),
        _ => throughput::over_cores(&dressed),
    };
    let Noun { one, many, .. } = Noun::of(&rows);
    let mut plots = vec![
        plot("throughput".into(), format!("Throughput: {many} a second"), throughput),
        plot("cpu".into(), format!("CPU time per {one}, user and system"), cost::cpu(&dressed)),
        plot("memory".into(), "Resident memory after the fill".into(), cost::memory(&dressed)),
        plot("idle".into(), "Resident memory of each idle connection".into(), cost::idle(&dressed)),
    ];
    plots.extend(counts.iter().map(|cores| {
        let title = format!("Latency by percentile at a fixed rate, cores: {cores}");
        plot(format!("latency-{cores}"), title, latency::curves(&dressed, *cores))
    }));
    plots.into_iter().flatten().collect()
}

fn plot(name: String, title: String, drawing: Option<Drawing>) -> Option<Plot> {
    drawing.map(|drawing| Plot { name, title, drawing })
}
