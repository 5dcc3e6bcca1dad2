//! A drawing as a list of shapes in its own units, so that what is drawn does not depend on where it goes.

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

pub(super) const PAPER: Colour = Colour(0xff, 0xff, 0xff);
pub(super) const INK: Colour = Colour(0x1c, 0x1e, 0x21);
pub(super) const FAINT: Colour = Colour(0x5b, 0x61, 0x68);
pub(super) const GRID: Colour = Colour(0xe3, 0xe6, 0xea);

/// Across and down from the upper left corner.
pub(super) type Point = (f64, f64);

/// Where the given point lies on a text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Left,
    Centre,
    Right,
}

/// What a drawing consists of. Texts are centred on the height of their point.
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
    /// Words.
    Text { text: String, at: Point, size: f64, colour: Colour, anchor: Anchor, upwards: bool },
}

/// Shapes on a white sheet, the first lowest.
pub(super) struct Drawing {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) shapes: Vec<Shape>,
}

impl Drawing {
    /// An empty sheet.
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self { width, height, shapes: Vec::new() }
    }

    pub(super) fn rectangle(&mut self, from: Point, to: Point, colour: Colour) {
        self.shapes.push(Shape::Rectangle { from, to, colour });
    }

    pub(super) fn line(&mut self, points: &[Point], width: u32, colour: Colour) {
        self.shapes.push(Shape::Line { points: points.to_vec(), width, colour });
    }

    /// A line of dashes through points.
    pub(super) fn dashes(&mut self, points: &[Point], width: u32, colour: Colour) {
        const DASH: f64 = 16.0;
        const GAP: f64 = 11.0;
        // How far along the pattern of dash and gap the pen is, carried over from one stretch to the next.
        let mut along = 0.0;
        for stretch in points.windows(2) {
            let &[from, to] = stretch else { continue };
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
                // Rounding must not leave the pen a hair before a border for ever.
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

    /// A text from the left, on paper of its own, so that no line of the grid goes through it.
    pub(super) fn text_on_paper(&mut self, text: &str, (x, y): Point, size: f64, colour: Colour) {
        let (width, half_height) = (text_width(text, size), size * 0.6);
        self.rectangle((x - 4.0, y - half_height), (x + width, y + half_height), PAPER);
        self.text(text, (x, y), size, colour, Anchor::Left);
    }

    /// A text that is read from below.
    pub(super) fn text_upwards(&mut self, text: &str, at: Point, size: f64, colour: Colour) {
        let text = text.to_owned();
        self.shapes.push(Shape::Text { text, at, size, colour, anchor: Anchor::Centre, upwards: true });
    }

    /// A line from the least to the most with a stroke at each end; `across` if it lies.
    pub(super) fn whisker(&mut self, from: Point, to: Point, colour: Colour) {
        const HALF_STROKE: f64 = 7.0;
        let lies = (from.1 - to.1).abs() < f64::EPSILON;
        let (dx, dy) = if lies { (0.0, HALF_STROKE) } else { (HALF_STROKE, 0.0) };
        self.line(&[from, to], 2, colour);
        for (x, y) in [from, to] {
            self.line(&[(x - dx, y - dy), (x + dx, y + dy)], 2, colour);
        }
    }
}

/// About how wide a text is, whatever the font: enough to keep room for it.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(letters) * size * 0.56
}
