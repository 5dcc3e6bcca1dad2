//! The style of each tracker in every plot: a colour that colour-blind people can distinguish (after Okabe and Ito, and
//! Tol), and a marker.

use plotters::prelude::{Circle, Cross, RGBColor, Rectangle, TriangleMarker, WHITE};
use plotters::style::Color as _;

use crate::result::Tracker;
use crate::svg::Area;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlotStyle {
    pub(super) colour: RGBColor,
    marker: Marker,
    /// Whether it is the ceiling, which is drawn in grey and dashed.
    pub(super) is_ceiling: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Marker {
    Disc,
    Ring,
    Square,
    Triangle,
    Cross,
}

const STYLES: [(RGBColor, Marker); 10] = [
    (RGBColor(0x00, 0x72, 0xb2), Marker::Disc),
    (RGBColor(0x56, 0xb4, 0xe9), Marker::Square),
    (RGBColor(0xd5, 0x5e, 0x00), Marker::Triangle),
    (RGBColor(0xe6, 0x9f, 0x00), Marker::Cross),
    (RGBColor(0x00, 0x9e, 0x73), Marker::Ring),
    (RGBColor(0xcc, 0x79, 0xa7), Marker::Disc),
    (RGBColor(0x22, 0x22, 0x22), Marker::Cross),
    (RGBColor(0x8c, 0x7a, 0x00), Marker::Ring),
    (RGBColor(0x88, 0x22, 0x55), Marker::Square),
    (RGBColor(0x33, 0x22, 0x88), Marker::Triangle),
];

const CEILINGS: [(RGBColor, Marker); 2] =
    [(RGBColor(0x6e, 0x6e, 0x6e), Marker::Disc), (RGBColor(0xa0, 0xa0, 0xa0), Marker::Square)];

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
    pub(super) fn mark(self, area: &Area<'_>, (x, y): (i32, i32)) -> anyhow::Result<()> {
        let (at, filled, outline) = ((x, y), self.colour.filled(), self.colour.stroke_width(4));
        match self.marker {
            Marker::Disc => area.draw(&Circle::new(at, 9, filled))?,
            Marker::Ring => {
                area.draw(&Circle::new(at, 9, WHITE.filled()))?;
                area.draw(&Circle::new(at, 9, outline))?;
            }
            Marker::Square => area.draw(&Rectangle::new([(x - 8, y - 8), (x + 8, y + 8)], filled))?,
            Marker::Triangle => area.draw(&TriangleMarker::new(at, 12, filled))?,
            Marker::Cross => area.draw(&Cross::new(at, 9, outline))?,
        }
        Ok(())
    }
}
