//! A table with a title: ratatui's table, without its least important columns if it is too wide.
//!
//! Every text of a cell passes [`printable`], so nothing from the network can control a terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table, Widget};

use super::numbers::percent;
use shoal_runtime::printable;

pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
// No background, and only the first eight colours, which palettes make readable on light and dark backgrounds.
pub(super) const BAR: Style = Style::new().fg(Color::Cyan);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
/// The style for things that an operator should look at.
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// The space between columns, and the width of a bar.
const GAP: usize = 2;
const BAR_WIDTH: usize = 12;

/// Minimum width to which the longest words are cut.
const WORDS_MIN: usize = 8;

/// Maximum number of rows. A tracker sends fewer.
const ROWS_MAX: usize = 2000;

/// The name and the rank of a column. Columns of higher ranks are left out first. A column of rank 0 stays.
pub(super) type Column = (&'static str, u8);

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    text: String,
    style: Style,
    /// A part from 0 to 1 that a bar shows before the text.
    part: Option<f64>,
    /// Whether it is left-aligned, like all cells of the first column.
    is_left: bool,
}

/// A table with a title.
#[derive(Clone, Debug)]
pub(super) struct Section {
    title: &'static str,
    columns: &'static [Column],
    rows: Vec<Vec<Cell>>,
    /// Shown if there are no rows.
    none: &'static str,
}

/// Makes a row of texts and cells.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($crate::top::table::Cell::from($cell)),*] };
}
pub(super) use row;

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: printable::line(text.as_ref()), ..Self::default() }
    }
}

impl Cell {
    pub(super) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { style, ..Self::from(text) }
    }

    pub(super) fn words(text: impl AsRef<str>) -> Self {
        Self { is_left: true, ..Self::styled(text, FAINT) }
    }

    /// Returns a cell that is marked if `is_bad`.
    pub(super) fn marked(text: impl AsRef<str>, is_bad: bool) -> Self {
        Self::styled(text, if is_bad { BAD } else { Style::new() })
    }

    /// Returns a cell with a bar and the percentage.
    pub(super) fn bar(part: f64, is_bad: bool) -> Self {
        Self { part: Some(part), ..Self::marked(percent(part), is_bad) }
    }

    fn width(&self, has_bars: bool) -> usize {
        let bar = if has_bars && self.part.is_some() { BAR_WIDTH + 1 } else { 0 };
        bar + Span::raw(&*self.text).width()
    }

    fn line(&self, width: usize, has_bars: bool) -> Line<'static> {
        let text = Span::styled(fit(&self.text, width), self.style);
        let Some(part) = self.part.filter(|_| has_bars) else { return Line::from(text) };
        let padding = " ".repeat(width.saturating_sub(BAR_WIDTH + text.width()));
        let style = if self.style == Style::new() { BAR } else { self.style };
        Line::from(vec![Span::styled(bar(part), style), Span::raw(padding), text])
    }
}

impl Section {
    pub(super) fn new(
        title: &'static str,
        columns: &'static [Column],
        none: &'static str,
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Self {
        Self { title, columns, rows: rows.into_iter().take(ROWS_MAX).collect(), none }
    }

    pub(super) fn height(&self) -> u16 {
        let head = usize::from(self.has_head());
        u16::try_from(1 + head + self.rows.len().max(1)).unwrap_or(u16::MAX)
    }

    fn has_head(&self) -> bool {
        !self.rows.is_empty() && self.columns.iter().any(|(name, _)| !name.is_empty())
    }

    /// Draws the title and the table below it.
    pub(super) fn draw(&self, area: Rect, has_bars: bool, buffer: &mut Buffer) {
        Line::styled(self.title, STRONG).render(area, buffer);
        let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        if self.rows.is_empty() {
            return Line::styled(self.none, FAINT).render(area, buffer);
        }
        let (shown, has_bars) = self.fitting(area.width.into(), has_bars);
        let row = |cells: &[Cell]| {
            Row::new(shown.iter().map(|&(column, width)| {
                let line = cells.get(column).map(|cell| cell.line(width, has_bars)).unwrap_or_default();
                let is_left = column == 0 || self.rows[0].get(column).is_some_and(|cell| cell.is_left);
                line.alignment(if is_left { Alignment::Left } else { Alignment::Right })
            }))
        };
        let widths =
            shown.iter().map(|(_, width)| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
        let mut table = Table::new(self.rows.iter().map(|cells| row(cells)), widths).column_spacing(2);
        if self.has_head() {
            let head: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::styled(name, FAINT)).collect();
            table = table.header(row(&head));
        }
        Widget::render(table, area, buffer);
    }

    /// Returns the columns that fit, with their widths, and whether bars fit.
    fn fitting(&self, width: usize, has_bars: bool) -> (Vec<(usize, usize)>, bool) {
        let natural = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width(has_bars)).max().unwrap_or(0).max(self.columns[column].0.len())
        };
        let mut shown: Vec<_> = (0..self.columns.len()).map(|column| (column, natural(column))).collect();
        while total(&shown) > width {
            // The last of the least important columns.
            let rank = |place: &usize| self.columns[shown[*place].0].1;
            match (0..shown.len()).max_by_key(rank).filter(|place| rank(place) > 0) {
                Some(place) => drop(shown.remove(place)),
                None if has_bars => return self.fitting(width, false),
                None => break,
            }
        }
        let excess = total(&shown).saturating_sub(width);
        if let Some((_, longest)) = shown.iter_mut().max_by_key(|(_, width)| *width) {
            *longest = longest.saturating_sub(excess).max(WORDS_MIN.min(*longest));
        }
        (shown, has_bars)
    }
}

fn total(shown: &[(usize, usize)]) -> usize {
    shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
}

/// Returns a text, cut to a width if it is longer.
pub(super) fn fit(text: &str, width: usize) -> String {
    if width == 0 || Span::raw(text).width() <= width {
        return text.chars().take(width).collect();
    }
    let mut cut: String = text.chars().take(width).collect();
    while Span::raw(&*cut).width() >= width {
        cut.pop();
    }
    cut + "…"
}

/// Returns a bar for a part from 0 to 1.
fn bar(part: f64) -> String {
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to the width")]
    let filled = (part * BAR_WIDTH as f64).round() as usize;
    "█".repeat(filled) + &"·".repeat(BAR_WIDTH - filled)
}
