//! Charts with a line for each tracker and a legend beside them.

use plotters::prelude::{
    ChartBuilder, Circle, DashedLineSeries, ErrorBar, LabelAreaPosition, LineSeries, PathElement, Text, WHITE,
};
use plotters::style::Color as _;
use plotters::style::text_anchor::HPos;

use super::palette::PlotStyle;
use super::{
    FOREGROUND, GRID, HEAD, MARGIN, MUTED, NOTE, NOTE_LINE, SMALL, WIDTH, count, footnotes, frame, pixels,
    wrapped,
};
use crate::svg::{self, Scale, text, text_width};

const HEIGHT: i32 = 1000;
/// The spaces for the names of the values of the axes.
const LEFT: i32 = 170;
const BOTTOM: i32 = 90;
/// Maximum width of the texts in the legend.
const LEGEND_MAX: f64 = 480.0;

pub(super) struct Lines {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Below the legend.
    pub(super) notes: Vec<String>,
    pub(super) footnotes: Vec<String>,
}

pub(super) struct Axis {
    pub(super) title: String,
    /// The lowest and the highest value.
    pub(super) range: (f64, f64),
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) is_logarithmic: bool,
}

pub(super) struct Series {
    pub(super) title: String,
    pub(super) style: PlotStyle,
    pub(super) points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) range: (f64, f64),
    pub(super) has_marker: bool,
    /// Whether it should be read with care.
    pub(super) is_circled: bool,
}

impl Axis {
    /// Returns the coordinate of a value. Logarithms make a linear axis of a logarithmic one.
    fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.range.0, self.range.1);
        if self.is_logarithmic { value.log10() } else { value }
    }

    fn scale(&self) -> Scale {
        let ticks = self.ticks.iter().map(|(value, _)| self.at(*value)).collect();
        Scale { range: (self.at(self.range.0), self.at(self.range.1)), ticks }
    }

    fn name(&self, coordinate: f64) -> String {
        let tick = self.ticks.iter().find(|(value, _)| (self.at(*value) - coordinate).abs() < 1e-9);
        tick.map(|(_, name)| name.clone()).unwrap_or_default()
    }
}

impl Lines {
    pub(super) fn svg(&self) -> anyhow::Result<String> {
        let footnotes = footnotes(&self.footnotes);
        let chart_end = HEIGHT - 30 - count(footnotes.len()) * NOTE_LINE;
        svg::render((WIDTH, HEIGHT.unsigned_abs()), |area| {
            frame(area, [&self.title, &self.subtitle], &footnotes, chart_end + 20)?;
            let notes = wrapped(&self.notes, LEGEND_MAX);
            let titles = self.series.iter().map(|series| text_width(&series.title, SMALL) + 92.0);
            let notes_width = notes.iter().map(|note| text_width(note, NOTE));
            let legend_width = pixels(titles.chain(notes_width).fold(0.0, f64::max));
            let (_, below) = area.split_vertically(HEAD);
            let (chart, _) = below.split_vertically(chart_end - HEAD);
            let (chart, legend) = chart.split_horizontally(count(WIDTH as usize) - legend_width - MARGIN);
            self.draw(&chart)?;
            self.draw_legend(&legend, &notes)
        })
    }

    fn draw(&self, area: &svg::Area<'_>) -> anyhow::Result<()> {
        let mut chart = ChartBuilder::on(area)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, BOTTOM)
            .margin_top(15)
            .margin_left(30)
            .margin_right(40)
            .build_cartesian_2d(self.x.scale(), self.y.scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(MUTED.stroke_width(2))
            .x_label_formatter(&|x| self.x.name(*x))
            .y_label_formatter(&|y| self.y.name(*y))
            .x_desc(&self.x.title)
            .y_desc(&self.y.title)
            .label_style(text(SMALL, MUTED, HPos::Left))
            .axis_desc_style(text(SMALL, FOREGROUND, HPos::Left))
            .draw()?;
        for Series { style, points, .. } in &self.series {
            let at = |point: &Point| (self.x.at(point.x), self.y.at(point.y));
            let circled = points.iter().filter(|point| point.is_circled);
            chart.draw_series(circled.map(|point| Circle::new(at(point), 18, FOREGROUND.stroke_width(2))))?;
            let (all, stroke) = (points.iter().map(at), style.colour.stroke_width(4));
            if style.is_ceiling {
                chart.draw_series(DashedLineSeries::new(all, 16, 11, stroke))?;
            } else {
                chart.draw_series(LineSeries::new(all, stroke))?;
            }
            let ranged = points.iter().filter(|point| point.range.0 < point.range.1);
            chart.draw_series(ranged.map(|point| {
                let ((x, y), (min, max)) = (at(point), point.range);
                let (min, max) = (self.y.at(min), self.y.at(max));
                ErrorBar::new_vertical(x, min, y, max, style.colour.stroke_width(2), 14)
            }))?;
            let (left, top) = area.get_base_pixel();
            for point in points.iter().filter(|point| point.has_marker) {
                let (x, y) = chart.backend_coord(&at(point));
                style.mark(area, (x - left, y - top))?;
            }
        }
        Ok(())
    }

    /// Draws styles and names, followed by notes.
    fn draw_legend(&self, area: &svg::Area<'_>, notes: &[String]) -> anyhow::Result<()> {
        let mut y = 20;
        for Series { title, style, .. } in &self.series {
            let stroke = style.colour.stroke_width(4);
            // A dash, a marker and a dash for the ceiling, and otherwise a line and a marker.
            let lines = if style.is_ceiling { vec![(0, 16), (58, 74)] } else { vec![(0, 74)] };
            for (from, to) in lines {
                area.draw(&PathElement::new(vec![(from, y), (to, y)], stroke))?;
            }
            style.mark(area, (37, y))?;
            area.draw(&Text::new(title.as_str(), (92, y), text(SMALL, FOREGROUND, HPos::Left)))?;
            y += 42;
        }
        for note in notes {
            area.draw(&Text::new(note.as_str(), (0, y + 12), text(NOTE, MUTED, HPos::Left)))?;
            y += NOTE_LINE;
        }
        Ok(())
    }
}
