//! Drawings as SVG and PNG, by plotters.

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::{
    BitMapBackend, Circle, DrawingArea, DrawingBackend, IntoDrawingArea as _, IntoFont as _, PathElement,
    Polygon, RGBColor, Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontTransform};

use super::drawing::{Anchor, Colour, Drawing, Point, Shape};
use super::letters;

/// The family that SVG names.
const FAMILY: &str = "sans-serif";
/// plotters writes a size as that divided by this into SVG.
const SIZE_FACTOR: f64 = 1.24;

/// Who draws the letters.
#[derive(Clone, Copy)]
enum Letters {
    /// Whoever shows the drawing later: texts stay texts.
    Later,
    /// We, with the font that is built in.
    Now,
}

/// The drawing as a document of SVG.
pub(super) fn svg(drawing: &Drawing) -> anyhow::Result<String> {
    let mut out = String::new();
    let area = SVGBackend::with_string(&mut out, (drawing.width, drawing.height)).into_drawing_area();
    play(drawing, &area, Letters::Later)?;
    drop(area);
    Ok(out)
}

/// The drawing as a file of PNG.
pub(super) fn png(drawing: &Drawing) -> anyhow::Result<Vec<u8>> {
    let (width, height) = (drawing.width, drawing.height);
    let mut pixels = vec![0; usize::try_from(u64::from(width) * u64::from(height) * 3)?];
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    play(drawing, &area, Letters::Now)?;
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

fn play<B: DrawingBackend>(
    drawing: &Drawing,
    area: &DrawingArea<B, Shift>,
    letters: Letters,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    for shape in &drawing.shapes {
        draw(shape, area, letters)?;
    }
    area.present()?;
    Ok(())
}

fn draw<B: DrawingBackend>(
    shape: &Shape,
    area: &DrawingArea<B, Shift>,
    letters: Letters,
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
        Shape::Text { text, at, size, colour, anchor, upwards } => match letters {
            Letters::Later => {
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
            Letters::Now => {
                for dot in letters::dots(text, *at, *size, *anchor, *upwards)? {
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
    reason = "a sheet is far smaller than an i32 can say; casts saturate"
)]
pub(super) fn pixel((x, y): Point) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}
