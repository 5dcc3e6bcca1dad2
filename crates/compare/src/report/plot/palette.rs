//! The style of each tracker in every plot: a colour that colour-blind people can distinguish (after Okabe and Ito, and
//! Tol), and a marker.

use super::drawing::{BACKGROUND, Colour, Drawing, FOREGROUND, Point};
use crate::result::Tracker;

/// The style of a tracker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlotStyle {
    pub(super) colour: Colour,
    pub(super) marker: Marker,
    /// Whether it is the ceiling, which is drawn in grey and dashed.
    pub(super) is_ceiling: bool,
}

/// The symbol at a measured point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Disc,
    Square,
    Up,
    Down,
    Diamond,
    Cross,
    Plus,
    Ring,
    Frame,
}

const STYLES: [(Colour, Marker); 10] = [
    (Colour(0x00, 0x72, 0xb2), Marker::Disc),
    (Colour(0x56, 0xb4, 0xe9), Marker::Square),
    (Colour(0xd5, 0x5e, 0x00), Marker::Up),
    (Colour(0xe6, 0x9f, 0x00), Marker::Diamond),
    (Colour(0x00, 0x9e, 0x73), Marker::Down),
    (Colour(0xcc, 0x79, 0xa7), Marker::Cross),
    (Colour(0x22, 0x22, 0x22), Marker::Plus),
    (Colour(0x8c, 0x7a, 0x00), Marker::Ring),
    (Colour(0x88, 0x22, 0x55), Marker::Frame),
    (Colour(0x33, 0x22, 0x88), Marker::Up),
];

const CEILINGS: [(Colour, Marker); 2] =
    [(Colour(0x6e, 0x6e, 0x6e), Marker::Disc), (Colour(0xa0, 0xa0, 0xa0), Marker::Square)];

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

/// Draws a circle around a point that should be read with care. It is drawn before lines and markers, which cover it.
pub(super) fn circle(drawing: &mut Drawing, point: Point) {
    drawing.disc(point, 19.0, FOREGROUND);
    drawing.disc(point, 16.5, BACKGROUND);
}

impl PlotStyle {
    /// Draws the marker at a point.
    pub(super) fn mark(self, drawing: &mut Drawing, (x, y): Point) {
        const R: f64 = 9.0;
        let colour = self.colour;
        let square = |r: f64| ((x - r, y - r), (x + r, y + r));
        match self.marker {
            Marker::Disc => drawing.disc((x, y), R, colour),
            Marker::Ring => {
                drawing.disc((x, y), R + 1.0, colour);
                drawing.disc((x, y), R - 3.0, BACKGROUND);
            }
            Marker::Square => drawing.rectangle(square(R - 1.0).0, square(R - 1.0).1, colour),
            Marker::Frame => {
                drawing.rectangle(square(R).0, square(R).1, colour);
                drawing.rectangle(square(R - 4.0).0, square(R - 4.0).1, BACKGROUND);
            }
            Marker::Up => {
                drawing.polygon(vec![(x, y - R - 2.0), (x + R + 2.0, y + R), (x - R - 2.0, y + R)], colour)
            }
            Marker::Down => {
                drawing.polygon(vec![(x, y + R + 2.0), (x + R + 2.0, y - R), (x - R - 2.0, y - R)], colour)
            }
            Marker::Diamond => {
                let r = R + 3.0;
                drawing.polygon(vec![(x, y - r), (x + r, y), (x, y + r), (x - r, y)], colour);
            }
            Marker::Cross => {
                drawing.line(&[(x - R, y - R), (x + R, y + R)], 5, colour);
                drawing.line(&[(x - R, y + R), (x + R, y - R)], 5, colour);
            }
            Marker::Plus => {
                drawing.line(&[(x - R - 1.0, y), (x + R + 1.0, y)], 5, colour);
                drawing.line(&[(x, y - R - 1.0), (x, y + R + 1.0)], 5, colour);
            }
        }
    }

    /// Draws a line through points in the style of this tracker.
    pub(super) fn line(self, drawing: &mut Drawing, points: &[Point]) {
        if self.is_ceiling {
            drawing.dashes(points, 3, self.colour);
        } else {
            drawing.line(points, 4, self.colour);
        }
    }
}
