//! Text as pixels, with a built-in font, so that no machine needs one.
//!
//! plotters could render text itself, but it ignores the space to the left of a glyph, which glues words together.

use ab_glyph::{Font as _, FontRef, GlyphId, PxScale, ScaleFont as _};
use anyhow::Context as _;

use super::drawing::{Anchor, Point};

/// The distance of the baseline from the vertical centre of a text, relative to its size.
const BASELINE: f64 = 0.33;

/// A pixel, and how much of it a glyph covers.
pub(super) struct Dot {
    pub(super) at: (i32, i32),
    /// 0 to 1.
    pub(super) coverage: f64,
}

/// Returns the pixels of a text. `size` is that of an em.
pub(super) fn dots(
    text: &str,
    at: Point,
    size: f64,
    anchor: Anchor,
    upwards: bool,
) -> anyhow::Result<Vec<Dot>> {
    let font = FontRef::try_from_slice(epaint_default_fonts::UBUNTU_LIGHT).context("the built-in font")?;
    let em = font.units_per_em().context("the built-in font has no size")?;
    let scale = PxScale::from(narrow(size) * font.height_unscaled() / em);
    let (glyphs, width) = line(&font, scale, text);
    let start = match anchor {
        Anchor::Left => 0.0,
        Anchor::Centre => -width / 2.0,
        Anchor::Right => -width,
    };
    let mut dots = Vec::new();
    for (glyph, along) in glyphs {
        let position = ab_glyph::point(start + along, narrow(size * BASELINE));
        let Some(outline) = font.outline_glyph(glyph.with_scale_and_position(scale, position)) else {
            continue;
        };
        let corner = outline.px_bounds().min;
        outline.draw(|x, y, coverage| {
            let (across, down) = (f64::from(corner.x) + f64::from(x), f64::from(corner.y) + f64::from(y));
            let (across, down) = if upwards { (down, -across) } else { (across, down) };
            let at = super::backend::pixel((at.0.round() + across, at.1.round() + down));
            dots.push(Dot { at, coverage: f64::from(coverage.min(1.0)) });
        });
    }
    Ok(dots)
}

/// Returns the glyphs of a text with their positions, and the total width.
fn line(font: &FontRef<'_>, scale: PxScale, text: &str) -> (Vec<(GlyphId, f32)>, f32) {
    let scaled = font.as_scaled(scale);
    let mut glyphs: Vec<(GlyphId, f32)> = Vec::new();
    let mut along = 0.0;
    for glyph in text.chars().map(|c| font.glyph_id(c)) {
        if let Some((before, _)) = glyphs.last() {
            along += scaled.kern(*before, glyph);
        }
        glyphs.push((glyph, along));
        along += scaled.h_advance(glyph);
    }
    (glyphs, along)
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of text are small")]
fn narrow(value: f64) -> f32 {
    value as f32
}
