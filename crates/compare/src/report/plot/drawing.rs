//! A drawing as a list of shapes in its own units, independent of the output format.

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

pub(super) const BACKGROUND: Colour = Colour(0xff, 0xff, 0xff);
pub(super) const FOREGROUND: Colour = Colour(0x1c, 0x1e, 0x21);
pub(super) const MUTED: Colour = Colour(0x5b, 0x61, 0x68);
pub(super) const GRID: Colour = Colour(0xe3, 0xe6, 0xea);

/// The colours that a dark page needs in place of others, which are hard to tell from its background. Each replaces
/// the first colour of its pair. The other colours of a plot are readable on both.
pub(super) const DARK: [(Colour, Colour); 11] = [
    (BACKGROUND, Colour(0x15, 0x18, 0x1c)),
    (FOREGROUND, Colour(0xe4, 0xe7, 0xea)),
    (MUTED, Colour(0xa3, 0xab, 0xb3)),
    (GRID, Colour(0x35, 0x3b, 0x42)),
    (Colour(0x00, 0x72, 0xb2), Colour(0x3d, 0x9b, 0xdc)),
    (Colour(0x56, 0xb4, 0xe9), Colour(0xa9, 0xdc, 0xf7)),
    (Colour(0xb9, 0xc4, 0xcf), Colour(0x5c, 0x66, 0x70)),
    (Colour(0x22, 0x22, 0x22), Colour(0xc8, 0xc8, 0xc8)),
    (Colour(0x88, 0x22, 0x55), Colour(0xd0, 0x6a, 0xa0)),
    (Colour(0x33, 0x22, 0x88), Colour(0x9a, 0x8c, 0xf0)),
    (Colour(0x6e, 0x6e, 0x6e), Colour(0x8e, 0x8e, 0x8e)),
];

/// Horizontal and vertical distance from the upper left corner.
pub(super) type Point = (f64, f64);

/// The position of a text relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Left,
    Centre,
    Right,
}

/// A shape of a drawing. Texts are vertically centred on their point.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A filled rectangle between two corners.
    Rectangle { from: Point, to: Point, colour: Colour },
    /// A line through points.
    Line { points: Vec<Point>, width: u32, colour: Colour },
    /// A filled shape.
    Polygon { points: Vec<Point>, colour: Colour },
    /// A filled disc.
    Disc { centre: Point, radius: f64, colour: Colour },
    /// A text.
    Text { text: String, at: Point, size: f64, colour: Colour, anchor: Anchor, upwards: bool },
}

/// Shapes on a white background. Later shapes cover earlier ones.
pub(super) struct Drawing {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) shapes: Vec<Shape>,
}

impl Drawing {
    /// Creates an empty drawing.
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self { width, height, shapes: Vec::new() }
    }

    pub(super) fn rectangle(&mut self, from: Point, to: Point, colour: Colour) {
        self.shapes.push(Shape::Rectangle { from, to, colour });
    }

    pub(super) fn line(&mut self, points: &[Point], width: u32, colour: Colour) {
        self.shapes.push(Shape::Line { points: points.to_vec(), width, colour });
    }

    /// Draws a dashed line through points.
    pub(super) fn dashes(&mut self, points: &[Point], width: u32, colour: Colour) {
        const DASH: f64 = 16.0;
        const GAP: f64 = 11.0;
        // The position in the pattern of dash and gap, carried over from one segment to the next.
        let mut along = 0.0;
        for segment in points.windows(2) {
            let &[from, to] = segment else { continue };
            let length = f64::hypot(to.0 - from.0, to.1 - from.1);
            let point = |done: f64| {
                let share = done / length;
                ((to.0 - from.0).mul_add(share, from.0), (to.1 - from.1).mul_add(share, from.1))
            };
            let mut done = 0.0;
            while done < length {
                let draws = along < DASH;
                let end = (done + if draws { DASH - along } else { DASH + GAP - along }).min(length);
                if draws {
                    self.line(&[point(done), point(end)], width, colour);
                }
                along = (along + end - done) % (DASH + GAP);
                // Rounding must not stop the position just before a border for ever.
                done = end.max(done + 1e-6);
            }
        }
    }

    pub(super) fn polygon(&mut self, points: Vec<Point>, colour: Colour) {
        self.shapes.push(Shape::Polygon { points, colour });
    }

    pub(super) fn disc(&mut self, centre: Point, radius: f64, colour: Colour) {
        self.shapes.push(Shape::Disc { centre, radius, colour });
    }

    pub(super) fn text(&mut self, text: &str, at: Point, size: f64, colour: Colour, anchor: Anchor) {
        let text = text.to_owned();
        self.shapes.push(Shape::Text { text, at, size, colour, anchor, upwards: false });
    }

    /// Draws a left-aligned text on a background, so that no grid line crosses it.
    pub(super) fn text_on_background(&mut self, text: &str, (x, y): Point, size: f64, colour: Colour) {
        let (width, half_height) = (text_width(text, size), size * 0.6);
        self.rectangle((x - 4.0, y - half_height), (x + width, y + half_height), BACKGROUND);
        self.text(text, (x, y), size, colour, Anchor::Left);
    }

    /// Draws a text that reads upwards.
    pub(super) fn text_upwards(&mut self, text: &str, at: Point, size: f64, colour: Colour) {
        let text = text.to_owned();
        self.shapes.push(Shape::Text { text, at, size, colour, anchor: Anchor::Centre, upwards: true });
    }

    /// Draws a line from the minimum to the maximum with a stroke at each end.
    pub(super) fn whisker(&mut self, from: Point, to: Point, colour: Colour) {
        const HALF_STROKE: f64 = 7.0;
        let is_horizontal = (from.1 - to.1).abs() < f64::EPSILON;
        let (dx, dy) = if is_horizontal { (0.0, HALF_STROKE) } else { (HALF_STROKE, 0.0) };
        self.line(&[from, to], 2, colour);
        for (x, y) in [from, to] {
            self.line(&[(x - dx, y - dy), (x + dx, y + dy)], 2, colour);
        }
    }
}

/// Estimates the width of a text in any font, to reserve space for it.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(characters) * size * 0.56
}
