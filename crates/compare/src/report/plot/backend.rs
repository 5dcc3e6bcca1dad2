//! Renders drawings as SVG and PNG, with plotters.

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::{
    BitMapBackend, Circle, DrawingArea, DrawingBackend, IntoDrawingArea as _, IntoFont as _, PathElement,
    Polygon, RGBColor, Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontTransform};

use super::drawing::{Anchor, Colour, DARK, Drawing, Point, Shape};
use super::glyphs;

/// The font family in SVG.
const FAMILY: &str = "sans-serif";
/// plotters divides font sizes by this factor when it writes SVG.
const SIZE_FACTOR: f64 = 1.24;

/// How text is rendered.
#[derive(Clone, Copy)]
enum TextRendering {
    /// As text elements, which the viewer draws.
    Elements,
    /// As pixels, with the built-in font.
    Pixels,
}

/// Renders the drawing as an SVG document, in light or dark colours as the viewer prefers.
pub(super) fn svg(drawing: &Drawing) -> anyhow::Result<String> {
    let mut out = String::new();
    let area = SVGBackend::with_string(&mut out, (drawing.width, drawing.height)).into_drawing_area();
    draw_all(drawing, &area, TextRendering::Elements)?;
    drop(area);
    let opening = out.find("<svg").and_then(|at| Some(at + out[at..].find('>')? + 1));
    out.insert_str(opening.context("SVG: no root element")?, &dark_style());
    Ok(out)
}

/// Returns the style element that replaces colours on a dark page. Rules of style win over the attributes that plotters
/// writes.
fn dark_style() -> String {
    let hex = |Colour(red, green, blue): Colour| format!("#{red:02X}{green:02X}{blue:02X}");
    let rule = |(light, dark): &(Colour, Colour)| {
        let (light, dark) = (hex(*light), hex(*dark));
        format!("svg [fill=\"{light}\"] {{ fill: {dark} }} svg [stroke=\"{light}\"] {{ stroke: {dark} }}\n")
    };
    let rules: String = DARK.iter().map(rule).collect();
    format!("\n<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>")
}

/// Renders the drawing as a PNG file.
pub(super) fn png(drawing: &Drawing) -> anyhow::Result<Vec<u8>> {
    let (width, height) = (drawing.width, drawing.height);
    let mut pixels = vec![0; usize::try_from(u64::from(width) * u64::from(height) * 3)?];
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    draw_all(drawing, &area, TextRendering::Pixels)?;
    drop(area);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().context("PNG: header")?;
    writer.write_image_data(&pixels).context("PNG: pixels")?;
    writer.finish().context("PNG: end")?;
    Ok(out)
}

fn draw_all<B: DrawingBackend>(
    drawing: &Drawing,
    area: &DrawingArea<B, Shift>,
    text_rendering: TextRendering,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    for shape in &drawing.shapes {
        draw(shape, area, text_rendering)?;
    }
    area.present()?;
    Ok(())
}

fn draw<B: DrawingBackend>(
    shape: &Shape,
    area: &DrawingArea<B, Shift>,
    text_rendering: TextRendering,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    match shape {
        Shape::Rectangle { from, to, colour } => {
            area.draw(&Rectangle::new([pixel(*from), pixel(*to)], rgb(*colour).filled()))?;
        }
        Shape::Line { points, width, colour } => {
            area.draw(&PathElement::new(pixels(points), rgb(*colour).stroke_width(*width)))?;
        }
        Shape::Polygon { points, colour } => {
            area.draw(&Polygon::new(pixels(points), rgb(*colour).filled()))?;
        }
        Shape::Disc { centre, radius, colour } => {
            area.draw(&Circle::new(pixel(*centre), *radius, rgb(*colour).filled()))?;
        }
        Shape::Text { text, at, size, colour, anchor, upwards } => match text_rendering {
            TextRendering::Elements => {
                let horizontal = match anchor {
                    Anchor::Left => HPos::Left,
                    Anchor::Centre => HPos::Center,
                    Anchor::Right => HPos::Right,
                };
                let turn = if *upwards { FontTransform::Rotate270 } else { FontTransform::None };
                let font = (FAMILY, size * SIZE_FACTOR).into_font().transform(turn);
                let style = font.color(&rgb(*colour)).pos(Pos::new(horizontal, VPos::Center));
                area.draw(&Text::new(text.as_str(), pixel(*at), style))?;
            }
            TextRendering::Pixels => {
                for dot in glyphs::dots(text, *at, *size, *anchor, *upwards)? {
                    area.draw_pixel(dot.at, &rgb(*colour).mix(dot.coverage))?;
                }
            }
        },
    }
    Ok(())
}

fn rgb(Colour(red, green, blue): Colour) -> RGBColor {
    RGBColor(red, green, blue)
}

fn pixels(points: &[Point]) -> Vec<(i32, i32)> {
    points.iter().map(|point| pixel(*point)).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "coordinates are far below the limits of i32, and casts saturate"
)]
pub(super) fn pixel((x, y): Point) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot::drawing::{BACKGROUND, FOREGROUND};

    /// The colours as they are written are those that the style replaces.
    #[test]
    fn an_svg_has_dark_colours_for_its_background_and_its_text() {
        let mut drawing = Drawing::new(100, 50);
        drawing.text("words", (10.0, 10.0), 12.0, FOREGROUND, Anchor::Left);
        let svg = svg(&drawing).unwrap();
        let (style, body) = svg.split_once("</style>").unwrap();
        assert!(style.contains("prefers-color-scheme: dark"), "{style}");
        for Colour(red, green, blue) in [BACKGROUND, FOREGROUND] {
            let written = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
            assert!(body.contains(&written) && style.contains(&format!("[{written}]")), "{written} in {svg}");
        }
    }
}
