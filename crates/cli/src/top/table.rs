//! Tables as lines of a given width: for the screen, and without bars and styles for plain text.
//!
//! A table that does not fit loses its least important columns, and then the ends of its longest words. Every text of a cell
//! passes [`printable`], so nothing from the network can control a terminal.

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::numbers::percent;
use shoal_runtime::printable;

/// Number of characters between columns.
const GAP: usize = 2;

/// Minimum and maximum width of a bar.
const BAR_MIN: usize = 6;
const BAR_MAX: usize = 24;

/// Minimum width to which the longest words are cut.
const WORDS_MIN: usize = 8;

/// The meaning of a text, from which its style follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    /// Of less importance.
    Faint,
    /// A title.
    Strong,
    /// A bar.
    Bar,
    Good,
    /// Something that an operator should look at.
    Bad,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
    /// A part from 0 to 1 that a bar shows before the text.
    bar: Option<f64>,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    is_left: bool,
    /// Columns of higher ranks are left out first. A column of rank 0 stays.
    rank: u8,
}

/// A table with a title.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Shown in place of no rows.
    pub(super) none: &'static str,
}

/// How tables are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// With bars, bold and faint text, and the colours of the terminal's own palette.
    Colour,
    /// The same without colours.
    Mono,
    /// Text only.
    Plain,
}

impl Cell {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self { text: printable::line(text.as_ref()), ..Self::default() }
    }

    pub(super) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { tone, ..Self::new(text) }
    }

    /// Returns a cell with a bar and the percentage.
    pub(super) fn part(part: f64, tone: Tone) -> Self {
        Self { bar: Some(part), ..Self::toned(percent(part), tone) }
    }

    fn width(&self) -> usize {
        Span::raw(&*self.text).width()
    }
}

impl Column {
    /// Returns a column of words.
    pub(super) const fn words(name: &'static str, rank: u8) -> Self {
        Self { name, is_left: true, rank }
    }

    /// Returns a column of numbers.
    pub(super) const fn numbers(name: &'static str, rank: u8) -> Self {
        Self { name, is_left: false, rank }
    }
}

impl Look {
    /// Returns the style of a tone. It sets no background, and only the first eight colours, which palettes for light and
    /// dark backgrounds both make readable.
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let (style, colour) = match tone {
            Tone::Plain => return style,
            Tone::Faint => return style.add_modifier(Modifier::DIM),
            Tone::Strong => return style.add_modifier(Modifier::BOLD),
            Tone::Bar => (style, Color::Cyan),
            Tone::Good => (style, Color::Green),
            Tone::Bad => (style.add_modifier(Modifier::BOLD), Color::Red),
        };
        if self == Self::Colour { style.fg(colour) } else { style }
    }

    /// Returns a text in a style.
    pub(super) fn span(self, text: impl Into<String>, tone: Tone) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }
}

impl Section {
    /// Returns the lines of a section. None is wider than `width`, if that is a sensible one.
    pub(super) fn lines(&self, width: usize, look: Look) -> Vec<Line<'static>> {
        let mut lines = vec![Line::from(look.span(self.title, Tone::Strong))];
        if self.rows.is_empty() {
            lines.push(Line::from(look.span(fit(self.none, width), Tone::Faint)));
            return lines;
        }
        let shown = self.fitting(width, look);
        if self.columns.iter().any(|column| !column.name.is_empty()) {
            let head = self.columns.iter().map(|column| Cell::toned(column.name, Tone::Faint));
            lines.push(self.line(&shown, &head.collect::<Vec<_>>(), look));
        }
        lines.extend(self.rows.iter().map(|row| self.line(&shown, row, look)));
        lines
    }

    /// Returns the columns that fit, with their widths and the widths of their bars.
    fn fitting(&self, width: usize, look: Look) -> Vec<Fitted> {
        let mut fitted: Vec<Fitted> =
            (0..self.columns.len()).map(|index| self.natural(index, look)).collect();
        while total(&fitted) > width {
            // The last of the least important ones.
            let least = (0..fitted.len()).max_by_key(|place| self.columns[fitted[*place].index].rank);
            match least.filter(|place| self.columns[fitted[*place].index].rank > 0) {
                Some(place) => drop(fitted.remove(place)),
                None => break,
            }
        }
        let excess = total(&fitted).saturating_sub(width);
        if let Some(bar) = fitted.iter_mut().find(|column| column.bar > 0) {
            let room = width.saturating_sub(bar.words).min(BAR_MAX);
            let smaller = bar.bar.saturating_sub(excess);
            bar.bar = if smaller < 3 { 0 } else { smaller.min(room) };
        }
        let excess = total(&fitted).saturating_sub(width);
        if let Some(longest) =
            fitted.iter_mut().filter(|column| column.bar == 0).max_by_key(|column| column.words)
        {
            longest.words = longest.words.saturating_sub(excess).max(WORDS_MIN.min(longest.words));
        }
        let room = width.saturating_sub(total(&fitted));
        if let Some(bar) = fitted.iter_mut().find(|column| column.bar > 0) {
            bar.bar = (bar.bar + room).min(BAR_MAX);
        }
        fitted
    }

    /// Returns a column with the width that it needs.
    fn natural(&self, index: usize, look: Look) -> Fitted {
        let cells = || self.rows.iter().filter_map(|row| row.get(index));
        let words = cells().map(Cell::width).chain([self.columns[index].name.len()]).max().unwrap_or(0);
        let has_bar = look != Look::Plain && cells().any(|cell| cell.bar.is_some());
        Fitted { index, words, bar: if has_bar { BAR_MIN } else { 0 } }
    }

    fn line(&self, shown: &[Fitted], cells: &[Cell], look: Look) -> Line<'static> {
        let nothing = Cell::default();
        let mut spans = Vec::new();
        for (place, column) in shown.iter().enumerate() {
            let cell = cells.get(column.index).unwrap_or(&nothing);
            if place > 0 {
                spans.push(Span::raw(" ".repeat(GAP)));
            }
            if column.bar > 0 {
                let drawn = cell.bar.map_or_else(|| " ".repeat(column.bar), |part| bar(part, column.bar));
                let tone = if cell.tone == Tone::Plain { Tone::Bar } else { cell.tone };
                spans.push(look.span(drawn + " ", tone));
            }
            let text = fit(&cell.text, column.words);
            let padding = " ".repeat(column.words.saturating_sub(Span::raw(&*text).width()));
            let text = if self.columns[column.index].is_left { text + &padding } else { padding + &text };
            spans.push(look.span(text, cell.tone));
        }
        Line::from(spans)
    }
}

/// A column that is shown.
struct Fitted {
    /// The place of the column in the section.
    index: usize,
    /// The width of its text.
    words: usize,
    /// The width of its bars, or 0.
    bar: usize,
}

fn total(columns: &[Fitted]) -> usize {
    let widths = columns.iter().map(|column| column.words + column.bar + usize::from(column.bar > 0));
    widths.sum::<usize>() + GAP * columns.len().saturating_sub(1)
}

/// Returns a text, cut to a width if it is longer.
pub(super) fn fit(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if Span::raw(&*cut).width() >= width {
            cut.pop();
            break;
        }
    }
    if width > 0 { cut + "…" } else { cut }
}

/// Returns a bar of a width, in eighths of a character.
pub(super) fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is from 0 to eight times the width"
    )]
    let eighths = (part * (width * 8) as f64).round() as usize;
    let drawn = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let rest = width - eighths.div_ceil(8);
    drawn + &"·".repeat(rest)
}

/// Returns the lines of a chart with a column for each of the last values, scaled to the largest of them.
pub(super) fn chart(
    values: impl DoubleEndedIterator<Item = f64>,
    width: usize,
    height: usize,
) -> Vec<String> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let last: Vec<f64> = values.rev().take(width).collect();
    let highest = last.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is from 0 to eight times the height"
    )]
    // A column is at least an eighth high, so that the time for which there are values is seen.
    let eighths = |value: &f64| ((value / highest * (height * 8) as f64).round() as usize).max(1);
    let line = |above: usize| {
        let drawn = last.iter().rev().map(|value| EIGHTHS[eighths(value).saturating_sub(above * 8).min(8)]);
        " ".repeat(width - last.len()) + &drawn.collect::<String>()
    };
    (0..height).rev().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        Section {
            title: "Title",
            columns: vec![
                Column::words("", 0),
                Column::numbers("now", 0),
                Column::numbers("all", 2),
                Column::words("part", 1),
            ],
            rows: vec![
                vec![Cell::new("UDP"), Cell::new("12/s"), Cell::new("1.2M"), Cell::part(0.5, Tone::Plain)],
                vec![Cell::new("a\x1b[31m\u{9b}b"), Cell::new("7"), Cell::new("3")],
            ],
            none: "nothing",
        }
    }

    fn text(width: usize, look: Look) -> Vec<String> {
        section().lines(width, look).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned_and_the_least_important_are_left_out() {
        assert_eq!(
            text(60, Look::Plain),
            ["Title", "           now   all  part", "UDP       12/s  1.2M  50 %", "a?[31m?b     7     3",]
        );
        assert_eq!(text(39, Look::Mono)[2], "UDP       12/s  1.2M  ██████······ 50 %");
        assert_eq!(text(24, Look::Plain)[2], "UDP       12/s  50 %");
        assert_eq!(text(16, Look::Plain)[2], "UDP       12/s");
    }

    #[test]
    fn lines_are_as_wide_as_permitted() {
        for look in [Look::Colour, Look::Mono, Look::Plain] {
            for width in 14..80 {
                for line in section().lines(width, look) {
                    assert!(line.width() <= width, "{width}: {line}");
                }
            }
            (0..14).for_each(|width| drop(section().lines(width, look)));
        }
    }

    #[test]
    fn bars_and_charts_have_their_width() {
        assert_eq!(
            (&*bar(0.0, 4), &*bar(0.5, 4), &*bar(2.0, 4), &*bar(f64::NAN, 2)),
            ("····", "██··", "████", "··")
        );
        assert_eq!(bar(0.3, 4), "█▎··");
        assert_eq!(chart([9.0, 0.0, 1.0, 2.0].into_iter(), 3, 1), ["▁▄█"]);
        assert_eq!(chart([0.0, 3.0, 4.0].into_iter(), 4, 2), ["  ▄█", " ▁██"]);
        assert_eq!(chart([0.0].into_iter(), 3, 1), ["  ▁"]);
        assert_eq!(
            (&*fit("日本語", 5), &*fit("abc", 3), &*fit("abcd", 3), &*fit("abc", 0)),
            ("日本…", "abc", "ab…", "")
        );
    }
}
