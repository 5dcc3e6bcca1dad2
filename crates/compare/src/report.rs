//! The report of a comparison: a Markdown file, plots as SVG, and a self-contained HTML page.
//!
//! It reads a finished (or partial) [`crate::result::Comparison`] and measures nothing. Figures are computed once
//! (`figure`, `round`, `row`, `ranking`), arranged once (`page`, `tables`), and rendered twice (`markdown`, `html`).

mod figure;
mod html;
mod markdown;
mod number;
mod page;
mod plot;
mod ranking;
mod relayed;
mod round;
mod row;
mod spread;
mod tables;
mod unit;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::result::Comparison;

/// Writes `README.md`, `index.html` and the plots to a folder, and returns the paths. They refer to `results.json`.
pub fn write(comparison: &Comparison, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let plots = plot::plots(comparison);
    let mut files: Vec<(PathBuf, Vec<u8>)> = vec![
        ("README.md".into(), markdown::render(comparison, &plots).into_bytes()),
        ("index.html".into(), html::render(comparison, &plots)?.into_bytes()),
    ];
    for plot in &plots {
        files.push((format!("plots/{}.svg", plot.name).into(), plot.svg()?.into_bytes()));
    }
    let plots_folder = folder.join("plots");
    fs::create_dir_all(&plots_folder).with_context(|| format!("cannot create {}", plots_folder.display()))?;
    let write_file = |(name, content): (PathBuf, Vec<u8>)| {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    files.into_iter().map(write_file).collect()
}

/// Renders the report as Markdown. It refers to the plots of [`write()`].
pub fn markdown(comparison: &Comparison) -> String {
    markdown::render(comparison, &plot::plots(comparison))
}

/// The main table for a terminal, and what a reader needs to understand it.
pub struct Summary {
    pub verdict: String,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// The signs that occur in the table, each with its meaning, and why rows have no figures.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Medians of the most important figures, which fit 80 columns.
    Few,
    All,
}

pub fn summary(comparison: &Comparison, columns: Columns) -> Summary {
    let rows = row::rows(comparison);
    let table = match columns {
        Columns::Few => tables::brief(&rows),
        Columns::All => tables::main(&rows),
    };
    let notes = page::legend(&rows).into_iter().chain(page::left_out(&rows)).collect();
    Summary { verdict: verdict::verdict(&rows), head: table.head, rows: table.rows, notes }
}

/// Renders the report as a single HTML page, plots included.
pub fn html(comparison: &Comparison) -> anyhow::Result<String> {
    html::render(comparison, &plot::plots(comparison))
}
