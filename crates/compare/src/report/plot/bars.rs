//! Horizontal bar charts: a row for each tracker and number of cores, with its name and its figure.

use plotters::coord::ranged1d::Ranged as _;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    ChartBuilder, EmptyElement, ErrorBar, LabelAreaPosition, RGBColor, Rectangle, Text, WHITE,
};
use plotters::style::Color as _;
use plotters::style::text_anchor::HPos;

use super::{
    FOREGROUND, GRID, HEAD, MARGIN, MUTED, NOTE_LINE, SMALL, WIDTH, count, footnotes, frame, pixels,
};
use crate::report::number;
use crate::svg::{self, Scale, text, text_width};

#[derive(Default)]
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) unit: String,
    pub(super) legend: Vec<(RGBColor, &'static str)>,
    pub(super) bars: Vec<Bar>,
    pub(super) footnotes: Vec<String>,
}

#[derive(Default)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) parts: Vec<(f64, RGBColor)>,
    /// The minimum and the maximum of their sum.
    pub(super) range: (f64, f64),
    /// The figure, or why there is no bar.
    pub(super) text: String,
}

/// The height of a row, and the part of it that is empty above and below the bar.
const ROW: i32 = 46;
const GAP: f64 = 0.2;
/// The heights of the legend, and of the axis with its unit.
const LEGEND: i32 = 60;
const AXIS: i32 = 100;

impl Bars {
    /// Draws the chart. Its height depends on the number of rows.
    pub(super) fn svg(&self) -> anyhow::Result<String> {
        let notes = footnotes(&self.footnotes);
        let top = HEAD + if self.legend.is_empty() { 0 } else { LEGEND };
        let chart_end = top + count(self.bars.len()) * ROW + AXIS;
        let height = chart_end + 40 + count(notes.len()) * NOTE_LINE;
        svg::render((WIDTH, height.unsigned_abs()), |area| {
            frame(area, [&self.title, &self.subtitle], &notes, chart_end + 25)?;
            let mut x = MARGIN;
            for (colour, meaning) in &self.legend {
                let square = [(x, HEAD + 13), (x + 24, HEAD + 37)];
                area.draw(&Rectangle::new(square, colour.filled()))?;
                area.draw(&Text::new(*meaning, (x + 36, HEAD + 25), text(SMALL, FOREGROUND, HPos::Left)))?;
                x += pixels(text_width(meaning, SMALL)) + 90;
            }
            let (_, below) = area.split_vertically(top);
            let (chart, _) = below.split_vertically(chart_end - top);
            self.draw(&chart)
        })
    }

    fn draw(&self, area: &svg::Area<'_>) -> anyhow::Result<()> {
        let widest = |texts: &dyn Fn(&Bar) -> &str| {
            pixels(self.bars.iter().map(|bar| text_width(texts(bar), SMALL)).fold(0.0, f64::max))
        };
        let most = self.bars.iter().map(|bar| bar.sum().max(bar.range.1)).fold(f64::MIN_POSITIVE, f64::max);
        let ticks = RangedCoordf64::from(0.0..most).key_points(7);
        let names = number::ticks(&ticks);
        let rows = f64::from(count(self.bars.len()));
        // The rows are from the top to the bottom, and the axis is not.
        let middles: Vec<f64> = (0..count(self.bars.len())).map(|row| -0.5 - f64::from(row)).collect();
        let mut chart = ChartBuilder::on(area)
            .set_label_area_size(LabelAreaPosition::Left, MARGIN + widest(&|bar| &bar.name) + 20)
            .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
            .margin_right(widest(&|bar| &bar.text) + MARGIN)
            .build_cartesian_2d(0.0..most, Scale { range: (-rows, 0.0), ticks: middles })?;
        let name_of_tick = |value: &f64| {
            let at = ticks.iter().position(|tick| (tick - value).abs() < 1e-9 * most);
            at.map(|at| names[at].clone()).unwrap_or_default()
        };
        let name_of_row = |middle: &f64| {
            let row = self.bars.iter().zip(0..).find(|(_, row)| (f64::from(*row) + 0.5 + middle).abs() < 0.1);
            row.map(|(bar, _)| bar.name.clone()).unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(MUTED.stroke_width(2))
            .x_labels(7)
            .x_label_formatter(&name_of_tick)
            .y_label_formatter(&name_of_row)
            .x_desc(&self.unit)
            .label_style(text(SMALL, FOREGROUND, HPos::Left))
            .axis_desc_style(text(SMALL, FOREGROUND, HPos::Left))
            .draw()?;
        for (bar, row) in self.bars.iter().zip(0..) {
            let top = -f64::from(row);
            let mut sum = 0.0;
            for (value, colour) in &bar.parts {
                let corners = [(sum, top - GAP), (sum + value, top - 1.0 + GAP)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                sum += value;
            }
            let middle = top - 0.5;
            let (min, max) = bar.range;
            if min < max {
                let whisker = FOREGROUND.stroke_width(2);
                chart.draw_series([ErrorBar::new_horizontal(middle, min, sum, max, whisker, 14)])?;
            }
            let width = pixels(text_width(&bar.text, SMALL));
            let behind = Rectangle::new([(10, -14), (width, 14)], WHITE.filled());
            let text = Text::new(bar.text.clone(), (16, 0), text(SMALL, FOREGROUND, HPos::Left));
            chart.draw_series([EmptyElement::at((sum.max(max), middle)) + behind + text])?;
        }
        Ok(())
    }
}

impl Bar {
    fn sum(&self) -> f64 {
        self.parts.iter().map(|part| part.0).sum()
    }
}
