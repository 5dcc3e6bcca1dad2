//! The style of each tracker in every plot: a colour that colour-blind people can distinguish (after Okabe and Ito, and
//! Tol), and a marker.

use plotters::prelude::{Circle, PathElement, Polygon, RGBColor, WHITE};
use plotters::style::Color as _;

use crate::result::Tracker;
use crate::svg::Area;

/// The style of a tracker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlotStyle {
    pub(super) colour: RGBColor,
    marker: Marker,
    /// Whether it is the ceiling, which is drawn in grey and dashed.
    pub(super) is_ceiling: bool,
}

/// The symbol at a measured point: a polygon around it, or a circle if it has no corners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marker {
    corners: &'static [(i32, i32)],
    is_filled: bool,
}

const DISC: Marker = Marker { corners: &[], is_filled: true };
const RING: Marker = Marker { corners: &[], is_filled: false };
const SQUARE: Marker = Marker { corners: &[(-8, -8), (8, -8), (8, 8), (-8, 8)], is_filled: true };
const FRAME: Marker = Marker { is_filled: false, ..SQUARE };
const UP: Marker = Marker { corners: &[(0, -11), (11, 9), (-11, 9)], is_filled: true };
const DOWN: Marker = Marker { corners: &[(0, 11), (11, -9), (-11, -9)], is_filled: true };
const DIAMOND: Marker = Marker { corners: &[(0, -12), (12, 0), (0, 12), (-12, 0)], is_filled: true };
const CROSS: Marker = Marker {
    corners: &[
        (-10, -7),
        (-7, -10),
        (0, -3),
        (7, -10),
        (10, -7),
        (3, 0),
        (10, 7),
        (7, 10),
        (0, 3),
        (-7, 10),
        (-10, 7),
        (-3, 0),
    ],
    is_filled: true,
};
const PLUS: Marker = Marker {
    corners: &[
        (-2, -11),
        (2, -11),
        (2, -2),
        (11, -2),
        (11, 2),
        (2, 2),
        (2, 11),
        (-2, 11),
        (-2, 2),
        (-11, 2),
        (-11, -2),
        (-2, -2),
    ],
    is_filled: true,
};

const STYLES: [(RGBColor, Marker); 10] = [
    (RGBColor(0x00, 0x72, 0xb2), DISC),
    (RGBColor(0x56, 0xb4, 0xe9), SQUARE),
    (RGBColor(0xd5, 0x5e, 0x00), UP),
    (RGBColor(0xe6, 0x9f, 0x00), DIAMOND),
    (RGBColor(0x00, 0x9e, 0x73), DOWN),
    (RGBColor(0xcc, 0x79, 0xa7), CROSS),
    (RGBColor(0x22, 0x22, 0x22), PLUS),
    (RGBColor(0x8c, 0x7a, 0x00), RING),
    (RGBColor(0x88, 0x22, 0x55), FRAME),
    (RGBColor(0x33, 0x22, 0x88), UP),
];

const CEILINGS: [(RGBColor, Marker); 2] =
    [(RGBColor(0x6e, 0x6e, 0x6e), DISC), (RGBColor(0xa0, 0xa0, 0xa0), SQUARE)];

/// The trackers with a fixed style: prefixes of names, and indices of [`STYLES`].
const FIXED: [(&str, usize); 12] = [
    ("shoal-mmsg", 0),
    ("shoal-epoll", 0),
    ("shoal-uring", 1),
    ("aquatic_udp-io_uring", 2),
    ("aquatic_udp-mio", 3),
    ("aquatic_http", 2),
    ("opentracker", 4),
    ("chihaya", 5),
    ("mochi", 6),
    ("torrust", 7),
    ("bittorrent-tracker", 8),
    ("wt-tracker", 9),
];

/// Returns the style of each tracker, in their order. Trackers without a fixed style get unused ones.
pub(super) fn styles(trackers: &[Tracker]) -> Vec<PlotStyle> {
    let mut free: Vec<usize> = (0..STYLES.len()).collect();
    let mut indices: Vec<Option<usize>> = Vec::new();
    for tracker in trackers.iter() {
        let fixed = FIXED.iter().find(|(name, _)| tracker.name.starts_with(name)).map(|(_, index)| *index);
        let index = fixed.filter(|index| !tracker.is_ceiling && free.contains(index));
        free.retain(|other| Some(*other) != index);
        indices.push(index);
    }
    let mut others = free.into_iter().chain((0..STYLES.len()).cycle());
    let mut ceilings = (0..CEILINGS.len()).cycle();
    let style = |(tracker, index): (&Tracker, Option<usize>)| {
        let is_ceiling = tracker.is_ceiling;
        let (colour, marker) = if is_ceiling {
            CEILINGS[ceilings.next().unwrap_or(0)]
        } else {
            STYLES[index.or_else(|| others.next()).unwrap_or(0)]
        };
        PlotStyle { colour, marker, is_ceiling }
    };
    trackers.iter().zip(indices).map(style).collect()
}

impl PlotStyle {
    /// Draws the marker at a point.
    pub(super) fn mark(self, area: &Area<'_>, (x, y): (i32, i32)) -> anyhow::Result<()> {
        let Marker { corners, is_filled } = self.marker;
        let colour = if is_filled { self.colour } else { WHITE };
        let outline = self.colour.stroke_width(if is_filled { 1 } else { 4 });
        if corners.is_empty() {
            area.draw(&Circle::new((x, y), 9, colour.filled()))?;
            area.draw(&Circle::new((x, y), 9, outline))?;
            return Ok(());
        }
        let closed = corners.iter().chain(&corners[..1]).map(|(dx, dy)| (x + dx, y + dy));
        let closed: Vec<_> = closed.collect();
        area.draw(&Polygon::new(&closed[1..], colour.filled()))?;
        area.draw(&PathElement::new(closed, outline))?;
        Ok(())
    }
}
