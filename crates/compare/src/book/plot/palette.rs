//! How each tracker looks in every plot: a colour that colour-blind people can tell from the others (after Okabe and
//! Ito, and Tol), and a marker of its own.

use super::drawing::{Colour, Drawing, INK, PAPER, Point};
use crate::result::Tracker;

/// The look of a tracker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) colour: Colour,
    pub(super) marker: Marker,
    /// The ceiling is no competitor: it is drawn in grey and dashed.
    pub(super) is_ceiling: bool,
}

/// What stands at a measured point.
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

const LOOKS: [(Colour, Marker); 10] = [
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

/// Those that look the same in every comparison, whoever else takes part: beginnings of names, and entries of
/// [`LOOKS`].
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

/// The look of each tracker, in their order. Trackers without a place of their own take those that are free.
pub(super) fn looks(trackers: &[Tracker]) -> Vec<Look> {
    let mut free: Vec<usize> = (0..LOOKS.len()).collect();
    let mut places: Vec<Option<usize>> = Vec::new();
    for tracker in trackers.iter() {
        let fixed = FIXED.iter().find(|(name, _)| tracker.name.starts_with(name)).map(|(_, place)| *place);
        let place = fixed.filter(|place| !tracker.is_ceiling && free.contains(place));
        free.retain(|other| Some(*other) != place);
        places.push(place);
    }
    let mut others = free.into_iter().chain((0..LOOKS.len()).cycle());
    let mut ceilings = (0..CEILINGS.len()).cycle();
    let look = |(tracker, place): (&Tracker, Option<usize>)| {
        let is_ceiling = tracker.is_ceiling;
        let (colour, marker) = if is_ceiling {
            CEILINGS[ceilings.next().unwrap_or(0)]
        } else {
            LOOKS[place.or_else(|| others.next()).unwrap_or(0)]
        };
        Look { colour, marker, is_ceiling }
    };
    trackers.iter().zip(places).map(look).collect()
}

/// A circle for what is to be read with care; it is drawn below lines and markers.
pub(super) fn circle(drawing: &mut Drawing, point: Point) {
    drawing.disc(point, 19.0, INK);
    drawing.disc(point, 16.5, PAPER);
}

impl Look {
    /// The marker, at a point.
    pub(super) fn mark(self, drawing: &mut Drawing, (x, y): Point) {
        const R: f64 = 9.0;
        let colour = self.colour;
        let square = |r: f64| ((x - r, y - r), (x + r, y + r));
        match self.marker {
            Marker::Disc => drawing.disc((x, y), R, colour),
            Marker::Ring => {
                drawing.disc((x, y), R + 1.0, colour);
                drawing.disc((x, y), R - 3.0, PAPER);
            }
            Marker::Square => drawing.rectangle(square(R - 1.0).0, square(R - 1.0).1, colour),
            Marker::Frame => {
                drawing.rectangle(square(R).0, square(R).1, colour);
                drawing.rectangle(square(R - 4.0).0, square(R - 4.0).1, PAPER);
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

    /// A line through points, as this tracker's lines look.
    pub(super) fn line(self, drawing: &mut Drawing, points: &[Point]) {
        if self.is_ceiling {
            drawing.dashes(points, 3, self.colour);
        } else {
            drawing.line(points, 4, self.colour);
        }
    }
}
