//! Drawings as SVG and PNG, by plotters. The font of the PNG comes with the program, so that no machine needs one.

use std::sync::OnceLock;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::{
    BitMapBackend, Circle, DrawingArea, DrawingBackend, IntoDrawingArea as _, IntoFont as _, PathElement,
    Polygon, RGBColor, Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontStyle, FontTransform, register_font};

use super::drawing::{Anchor, Colour, Drawing, Point, Shape};

/// The family that SVG names, and under which the font of the PNG is known.
const FAMILY: &str = "sans-serif";
/// plotters writes a size as that divided by this into SVG.
const SIZE_FACTOR: f64 = 1.24;

/// How a text has to be handed over so that it looks right.
#[derive(Clone, Copy)]
struct Type {
    /// What plotters calls the middle of a text lies so far above the middle, as a share of the size.
    drop: f64,
    /// What separates words.
    space: char,
}

/// Browsers know best.
const SVG_TYPE: Type = Type { drop: 0.0, space: ' ' };
/// The font draws a space towards some letters until it is gone, but not one that may not be broken.
const PNG_TYPE: Type = Type { drop: 0.2, space: '\u{a0}' };

/// The drawing as a document of SVG.
pub(super) fn svg(drawing: &Drawing) -> anyhow::Result<String> {
    let mut out = String::new();
    let area = SVGBackend::with_string(&mut out, (drawing.width, drawing.height)).into_drawing_area();
    play(drawing, &area, SVG_TYPE)?;
    drop(area);
    Ok(out)
}

/// The drawing as a file of PNG.
pub(super) fn png(drawing: &Drawing) -> anyhow::Result<Vec<u8>> {
    let (width, height) = (drawing.width, drawing.height);
    let mut pixels = vec![0; usize::try_from(u64::from(width) * u64::from(height) * 3)?];
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    play(drawing, &area, PNG_TYPE)?;
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
    letters: Type,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    font()?;
    area.fill(&WHITE)?;
    for shape in &drawing.shapes {
        draw(shape, area, letters)?;
    }
    area.present()?;
    Ok(())
}

fn draw<B: DrawingBackend>(shape: &Shape, area: &DrawingArea<B, Shift>, letters: Type) -> anyhow::Result<()>
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
        Shape::Text { text, at, size, colour, anchor, upwards } => {
            let horizontal = match anchor {
                Anchor::Left => HPos::Left,
                Anchor::Centre => HPos::Center,
                Anchor::Right => HPos::Right,
            };
            let turn = if *upwards { FontTransform::Rotate270 } else { FontTransform::None };
            let font = (FAMILY, size * SIZE_FACTOR).into_font().transform(turn);
            let style = font.color(&rgb(*colour)).pos(Pos::new(horizontal, VPos::Center));
            let drop = size * letters.drop;
            let at = if *upwards { (at.0 + drop, at.1) } else { (at.0, at.1 + drop) };
            area.draw(&Text::new(text.replace(' ', &letters.space.to_string()), pixel(at), style))?;
        }
    }
    Ok(())
}

/// Registers the font once for the whole process.
fn font() -> anyhow::Result<()> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || register_font(FAMILY, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT).is_ok();
    let is_registered = REGISTERED.get_or_init(register);
    is_registered.then_some(()).ok_or_else(|| anyhow!("the font that is built in cannot be read"))
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
fn pixel((x, y): Point) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}
