//! The book of a comparison: a Markdown table, plots as SVG and PNG, and one page of HTML that needs nothing else.
//!
//! Reads a finished (or partial) [`crate::result::Comparison`]; measures nothing. Figures are made once (`round`,
//! `row`, `standing`), put in order once (`page`, `tables`), and rendered twice (`markdown`, `html`).

mod html;
mod markdown;
mod noun;
mod number;
mod page;
mod plot;
mod relayed;
mod round;
mod row;
mod spread;
mod standing;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::result::Comparison;

/// Writes `README.md`, `index.html` and the plots into an existing or new folder, and tells what it wrote. The raw
/// results, to which these refer as `results.json`, are written by whoever measured them.
pub fn write(comparison: &Comparison, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let plots = plot::plots(comparison);
    let mut files: Vec<(PathBuf, Vec<u8>)> = vec![
        ("README.md".into(), markdown::render(comparison, &plots).into_bytes()),
        ("index.html".into(), html::render(comparison, &plots)?.into_bytes()),
    ];
    for plot in &plots {
        files.push((format!("plots/{}.svg", plot.name).into(), plot.svg()?.into_bytes()));
        files.push((format!("plots/{}.png", plot.name).into(), plot.png()?));
    }
    let plots_folder = folder.join("plots");
    fs::create_dir_all(&plots_folder)
        .with_context(|| format!("cannot make the folder {}", plots_folder.display()))?;
    files.into_iter().map(|(name, content)| write_file(folder.join(name), &content)).collect()
}

/// The book as Markdown; it refers to the plots that [`write()`] makes.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    markdown::render(comparison, &plot::plots(comparison))
}

/// The table that most readers want, for whoever shows it elsewhere: its head and its rows.
#[must_use]
pub fn summary(comparison: &Comparison) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let table = tables::main(&row::rows(comparison));
    (table.head, table.rows)
}

/// The book as one page of HTML, plots included.
pub fn html(comparison: &Comparison) -> anyhow::Result<String> {
    html::render(comparison, &plot::plots(comparison))
}

fn write_file(path: PathBuf, content: &[u8]) -> anyhow::Result<PathBuf> {
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
