//! The result on a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table};
use shoal_compare::book;
use shoal_compare::result::Comparison;

use super::tools::STYLE;

/// Columns of the summary that are words; the others are figures.
const COLUMNS_OF_WORDS: usize = 1;

/// The table that most readers want; the others are in the book.
pub(super) fn text(comparison: &Comparison) -> String {
    let (head, rows) = book::summary(comparison);
    let mut table = Table::new();
    table.load_style(STYLE).set_header(head).add_rows(rows);
    for column in table.column_iter_mut().skip(COLUMNS_OF_WORDS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}\n{table}", comparison.title);
    out
}
