//! Horizontal bar charts: a row for each tracker and number of cores, with its name and its figure.

use super::drawing::{Anchor, Colour, Drawing, FOREGROUND, GRID, MUTED, text_width};
use super::layout::{self, LABEL, SMALL, WIDTH};
use super::scale::{Scale, ticks};
use crate::report::number;

/// A horizontal bar chart.
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) subtitle: String,
    /// The unit of the axis.
    pub(super) unit: String,
    /// Colours and their meanings, if they have any.
    pub(super) legend: Vec<(Colour, &'static str)>,
    pub(super) bars: Vec<Bar>,
    /// Paragraphs below the chart.
    pub(super) footnotes: Vec<String>,
}

/// A row.
pub(super) struct Bar {
    pub(super) tracker: String,
    /// Shown beside the tracker, if trackers have several rows.
    pub(super) cores: Option<usize>,
    pub(super) content: Content,
}

/// The content of a row.
pub(super) enum Content {
    /// Adjacent parts, the minimum and maximum of their sum, and the figure as text.
    Parts { parts: Vec<(f64, Colour)>, range: (f64, f64), text: String },
    /// Why there is no bar.
    Nothing(&'static str),
}

const ROW: f64 = 46.0;
const BAR: f64 = 28.0;
const GROUP_GAP: f64 = 14.0;
const TOP: f64 = 190.0;

impl Bars {
    /// Draws the chart. Its height depends on the number of rows.
    pub(super) fn draw(&self) -> Drawing {
        let rows_end =
            self.bars.iter().zip(0..).map(|(_, at)| self.row_centre(at)).fold(TOP, f64::max) + ROW / 2.0;
        let footnotes = layout::wrapped(&self.footnotes);
        let notes = u32::try_from(footnotes.len()).map_or(0.0, f64::from);
        let height = layout::whole_units(notes.mul_add(layout::NOTE_LINE, rows_end + 150.0));
        let mut drawing = Drawing::new(WIDTH, height);
        let has_cores = self.bars.iter().any(|bar| bar.cores.is_some());
        let labels = self.bars.iter().map(|bar| text_width(&bar.tracker, LABEL)).fold(0.0, f64::max);
        let left = labels + if has_cores { 180.0 } else { 60.0 };
        let right = f64::from(WIDTH) - 60.0 - self.text_width();
        let ticks = ticks(self.most());
        let scale = Scale::linear((0.0, ticks.last().copied().unwrap_or(1.0)), (left, right));
        layout::title(&mut drawing, &self.title, &self.subtitle);
        let mut x = left;
        for (colour, meaning) in &self.legend {
            drawing.rectangle((x, 143.0), (x + 24.0, 167.0), *colour);
            drawing.text(meaning, (x + 36.0, 155.0), SMALL, FOREGROUND, Anchor::Left);
            x += text_width(meaning, SMALL) + 90.0;
        }
        for (tick, name) in ticks.iter().zip(number::ticks(&ticks)) {
            let x = scale.at(*tick);
            drawing.line(&[(x, TOP - 8.0), (x, rows_end + 8.0)], 2, GRID);
            drawing.text(&name, (x, rows_end + 30.0), SMALL, MUTED, Anchor::Centre);
        }
        let middle = f64::midpoint(left, right);
        drawing.text(&self.unit, (middle, rows_end + 70.0), SMALL, FOREGROUND, Anchor::Centre);
        for at in 0..self.bars.len() {
            self.draw_bar(&mut drawing, at, left, &scale);
        }
        drawing.line(&[(left, TOP - 8.0), (left, rows_end + 8.0)], 2, MUTED);
        layout::footnotes(&mut drawing, &footnotes, rows_end + 115.0);
        drawing
    }

    fn draw_bar(&self, drawing: &mut Drawing, at: usize, left: f64, scale: &Scale) {
        let bar = &self.bars[at];
        let y = self.row_centre(at);
        if self.begins_group(at) {
            drawing.text(&bar.tracker, (50.0, y), LABEL, FOREGROUND, Anchor::Left);
        }
        if let Some(cores) = bar.cores {
            let text = if cores == 1 { "1 core".into() } else { format!("{cores} cores") };
            drawing.text(&text, (left - 14.0, y), SMALL, MUTED, Anchor::Right);
        }
        match &bar.content {
            Content::Nothing(why) => drawing.text(why, (left + 14.0, y), SMALL, MUTED, Anchor::Left),
            Content::Parts { parts, range, text } => {
                let mut sum = 0.0;
                for (value, colour) in parts {
                    let (from, to) = (scale.at(sum), scale.at(sum + value));
                    drawing.rectangle((from, y - BAR / 2.0), (to, y + BAR / 2.0), *colour);
                    sum += value;
                }
                if range.0 < range.1 {
                    drawing.whisker((scale.at(range.0), y), (scale.at(range.1), y), FOREGROUND);
                }
                let end = scale.at(sum.max(range.1));
                drawing.text_on_background(text, (end + 16.0, y), SMALL, FOREGROUND);
            }
        }
    }

    /// Returns the largest value that has to fit.
    fn most(&self) -> f64 {
        let most = |bar: &Bar| match &bar.content {
            Content::Parts { parts, range, .. } => parts.iter().map(|part| part.0).sum::<f64>().max(range.1),
            Content::Nothing(_) => 0.0,
        };
        self.bars.iter().map(most).fold(0.0, f64::max)
    }

    fn text_width(&self) -> f64 {
        let width = |bar: &Bar| match &bar.content {
            Content::Parts { text, .. } => text_width(text, SMALL),
            Content::Nothing(_) => 0.0,
        };
        self.bars.iter().map(width).fold(0.0, f64::max)
    }

    fn begins_group(&self, at: usize) -> bool {
        at == 0 || self.bars[at].tracker != self.bars[at - 1].tracker
    }

    /// Returns the vertical centre of a row. If trackers have several rows, there is a gap between trackers.
    fn row_centre(&self, at: usize) -> f64 {
        let has_groups = self.bars.iter().any(|bar| bar.cores.is_some());
        let gaps = (1..=at).filter(|row| has_groups && self.begins_group(*row)).count();
        let as_f64 = |count: usize| u32::try_from(count).map_or(0.0, f64::from);
        as_f64(gaps).mul_add(GROUP_GAP, as_f64(at).mul_add(ROW, TOP + ROW / 2.0))
    }
}
