//! Text as dots, for pictures. The font comes with the program, so that no machine needs one.
//!
//! plotters could draw text by itself, but leaves out the room that a letter keeps to its left, which glues words together.

use ab_glyph::{Font as _, FontRef, GlyphId, PxScale, ScaleFont as _};
use anyhow::Context as _;

use super::drawing::{Anchor, Point};

/// The baseline lies so far below the middle of a text, as a share of the size.
const BASELINE: f64 = 0.33;

/// How much of a pixel a letter covers.
pub(super) struct Dot {
    pub(super) at: (i32, i32),
    /// 0 to 1.
    pub(super) coverage: f64,
}

/// The dots of a text; `size` is that of an em.
pub(super) fn dots(
    text: &str,
    at: Point,
    size: f64,
    anchor: Anchor,
    upwards: bool,
) -> anyhow::Result<Vec<Dot>> {
    let font =
        FontRef::try_from_slice(epaint_default_fonts::UBUNTU_LIGHT).context("the font that is built in")?;
    let em = font.units_per_em().context("the font that is built in tells no size")?;
    let scale = PxScale::from(narrow(size) * font.height_unscaled() / em);
    let (letters, width) = line(&font, scale, text);
    let start = match anchor {
        Anchor::Left => 0.0,
        Anchor::Centre => -width / 2.0,
        Anchor::Right => -width,
    };
    let mut dots = Vec::new();
    for (letter, along) in letters {
        let place = ab_glyph::point(start + along, narrow(size * BASELINE));
        let Some(outline) = font.outline_glyph(letter.with_scale_and_position(scale, place)) else {
            continue;
        };
        let corner = outline.px_bounds().min;
        outline.draw(|x, y, coverage| {
            let (across, down) = (f64::from(corner.x) + f64::from(x), f64::from(corner.y) + f64::from(y));
            let (across, down) = if upwards { (down, -across) } else { (across, down) };
            let at = super::output::pixel((at.0.round() + across, at.1.round() + down));
            dots.push(Dot { at, coverage: f64::from(coverage.min(1.0)) });
        });
    }
    Ok(dots)
}

/// The letters of a text, each with where it begins, and how wide all are together.
fn line(font: &FontRef<'_>, scale: PxScale, text: &str) -> (Vec<(GlyphId, f32)>, f32) {
    let scaled = font.as_scaled(scale);
    let mut letters: Vec<(GlyphId, f32)> = Vec::new();
    let mut along = 0.0;
    for letter in text.chars().map(|letter| font.glyph_id(letter)) {
        if let Some((before, _)) = letters.last() {
            along += scaled.kern(*before, letter);
        }
        letters.push((letter, along));
        along += scaled.h_advance(letter);
    }
    (letters, along)
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of text are small")]
fn narrow(value: f64) -> f32 {
    value as f32
}
