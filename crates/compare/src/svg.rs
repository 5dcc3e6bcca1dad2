//! Plots as SVG documents, which plotters draws on a white page.

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::{DrawingArea, IntoDrawingArea as _, IntoFont as _, RGBColor, SVGBackend, WHITE};
use plotters::style::TextStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "system-ui, sans-serif";
/// plotters divides font sizes by this factor when it writes SVG.
const SIZE_FACTOR: f64 = 1.24;
/// On a dark page, light and dark change places and each colour stays what it is.
const DARK: &str =
    "\n<style>@media (prefers-color-scheme: dark) { svg { filter: invert(.92) hue-rotate(180deg) } }</style>";

/// Renders a plot as an SVG document, light or dark as the viewer prefers.
pub fn render(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut out = String::new();
    let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    area.present()?;
    drop(area);
    let opening = out.find("<svg").and_then(|at| Some(at + out[at..].find('>')? + 1));
    out.insert_str(opening.context("SVG: no root element")?, DARK);
    Ok(out)
}

/// Returns the style of a text of a height in pixels, which is vertically centred on its point and at this side of it.
pub fn text(height: f64, colour: RGBColor, side: HPos) -> TextStyle<'static> {
    (FONT, height * SIZE_FACTOR).into_font().color(&colour).pos(Pos::new(side, VPos::Center))
}

/// Estimates the width of a text in any font, to reserve space for it.
pub fn text_width(text: &str, height: f64) -> f64 {
    u32::try_from(text.chars().count()).map_or(0.0, f64::from) * height * 0.58
}

/// The coordinates of an axis, which is labelled where its user wants.
#[derive(Clone, Debug)]
pub struct Scale {
    pub range: (f64, f64),
    /// The values with a label and a line.
    pub ticks: Vec<f64>,
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.0) / (self.range.1 - self.range.0);
        #[expect(clippy::cast_possible_truncation, reason = "it is a number of pixels, and casts saturate")]
        let pixels = (share * f64::from(limit.1 - limit.0)).round() as i32;
        limit.0 + pixels
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}
