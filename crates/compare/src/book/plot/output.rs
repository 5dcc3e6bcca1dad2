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
    /// The space between words, as a share of the size; none if whoever draws the text knows it.
    word_gap: Option<f64>,
}

/// Browsers know best.
const SVG_TYPE: Type = Type { drop: 0.0, word_gap: None };
/// The kerning of the font makes the space after some letters vanish at the sizes of a plot, so each word is put in its
/// place.
const PNG_TYPE: Type = Type { drop: 0.2, word_gap: Some(0.27) };

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
            let line = Line { at: *at, size: *size, colour: *colour, anchor: *anchor, upwards: *upwards };
            match letters.word_gap {
                Some(gap) => draw_words(text, &line, gap * size, area, letters)?,
                None => draw_text(text, &line, area, letters)?,
            }
        }
    }
    Ok(())
}

/// Where and how a text stands.
#[derive(Clone, Copy)]
struct Line {
    at: Point,
    size: f64,
    colour: Colour,
    anchor: Anchor,
    upwards: bool,
}

fn draw_words<B: DrawingBackend>(
    text: &str,
    line: &Line,
    gap: f64,
    area: &DrawingArea<B, Shift>,
    letters: Type,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    let font = (FAMILY, line.size * SIZE_FACTOR).into_font();
    let width = |word: &str| font.box_size(word).map(|(width, _)| f64::from(width));
    let words: Vec<&str> = text.split(' ').collect();
    let widths: Vec<f64> = words.iter().map(|word| width(word)).collect::<Result<_, _>>()?;
    let gaps = u32::try_from(words.len().saturating_sub(1)).map_or(0.0, f64::from);
    let whole = gaps.mul_add(gap, widths.iter().sum());
    let mut along = match line.anchor {
        Anchor::Left => 0.0,
        Anchor::Centre => -whole / 2.0,
        Anchor::Right => -whole,
    };
    for (word, width) in words.iter().zip(widths) {
        let (x, y) = line.at;
        let at = if line.upwards { (x, y - along - width / 2.0) } else { (x + along + width / 2.0, y) };
        draw_text(word, &Line { at, anchor: Anchor::Centre, ..*line }, area, letters)?;
        along += width + gap;
    }
    Ok(())
}

fn draw_text<B: DrawingBackend>(
    text: &str,
    line: &Line,
    area: &DrawingArea<B, Shift>,
    letters: Type,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    let horizontal = match line.anchor {
        Anchor::Left => HPos::Left,
        Anchor::Centre => HPos::Center,
        Anchor::Right => HPos::Right,
    };
    let turn = if line.upwards { FontTransform::Rotate270 } else { FontTransform::None };
    let font = (FAMILY, line.size * SIZE_FACTOR).into_font().transform(turn);
    let style = font.color(&rgb(line.colour)).pos(Pos::new(horizontal, VPos::Center));
    let drop = line.size * letters.drop;
    let at = if line.upwards { (line.at.0 + drop, line.at.1) } else { (line.at.0, line.at.1 + drop) };
    area.draw(&Text::new(text.to_owned(), pixel(at), style))?;
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
