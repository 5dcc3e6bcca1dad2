//! A plot of the answers over time around an event, as SVG.
//!
//! Each lane has a panel of its own, since lanes have different rates. A panel ends at twice the rate before the event:
//! the burst of answers behind a gap would otherwise flatten everything else.

use anyhow::{Result, anyhow};
use plotters::prelude::{
    DrawingArea, IntoDrawingArea as _, IntoFont as _, PathElement, RGBColor, SVGBackend, Text, WHITE,
};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chaos::event::EventKind;
use crate::chaos::measure::{Window, milliseconds};
use crate::chaos::record::Lane;

const WIDTH: i32 = 900;
/// The left and right edges of the panels.
const EDGES: (i32, i32) = (80, WIDTH - 20);
/// The heights of the names of the events, of a panel with its title, of the title alone, and of the times.
const HEAD: i32 = 30;
const PANEL: i32 = 130;
const TITLE: i32 = 30;
const FOOT: i32 = 40;
const SIZE: u32 = 15;

const GREY: RGBColor = RGBColor(110, 110, 110);
const LIGHT: RGBColor = RGBColor(210, 210, 210);
const BLACK: RGBColor = RGBColor(30, 30, 30);
const COLOURS: [(Lane, RGBColor); 3] = [
    (Lane::Udp, RGBColor(0, 90, 160)),
    (Lane::HttpKeepAlive, RGBColor(200, 80, 0)),
    (Lane::HttpConnections, RGBColor(0, 130, 70)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws the answers of each lane.
///
/// # Errors
/// Returns an error if plotters fails.
pub(crate) fn answers(event: EventKind, window: &Window, lanes: &[(Lane, Vec<u64>)]) -> Result<String> {
    let mut out = String::new();
    let panels = i32::try_from(lanes.len())?;
    let size = (WIDTH.unsigned_abs(), (HEAD + panels * PANEL + FOOT).unsigned_abs());
    let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
    draw(&area, event, window, lanes).map_err(|error| anyhow!("the plot: {error}"))?;
    drop(area);
    Ok(out)
}

fn draw(area: &Area<'_>, event: EventKind, window: &Window, lanes: &[(Lane, Vec<u64>)]) -> Drawn {
    area.fill(&WHITE)?;
    let length_ms = milliseconds(window.ended_ns - window.began_ns).max(1.0);
    let acted_ms = milliseconds(window.acted_ns - window.began_ns);
    let done_ms = milliseconds(window.done_ns - window.began_ns);
    let x = |ms: f64| EDGES.0 + position(ms / length_ms, EDGES.1 - EDGES.0);
    let mut bottom = HEAD;
    for (lane, answers) in lanes {
        bottom += PANEL;
        panel(area, bottom, *lane, answers, (acted_ms / length_ms, length_ms))?;
    }
    // The names are on both sides of the event, so that they do not overlap.
    for (ms, name, side, margin) in
        [(acted_ms, event.name(), HPos::Right, -5), (done_ms, "done", HPos::Left, 5)]
    {
        area.draw(&PathElement::new(vec![(x(ms), HEAD), (x(ms), bottom)], GREY))?;
        text(area, name, (x(ms) + margin, HEAD - 20), side, GREY)?;
    }
    let mut ms = acted_ms % 1000.0;
    while ms <= length_ms {
        text(area, &format!("{:.0} s", (ms - acted_ms) / 1000.0), (x(ms), bottom + 8), HPos::Center, BLACK)?;
        ms += 1000.0;
    }
    area.present()?;
    Ok(())
}

/// Draws the answers of a lane above `bottom`. The window has a length in milliseconds, and this share of it is before the
/// event.
fn panel(
    area: &Area<'_>,
    bottom: i32,
    lane: Lane,
    answers: &[u64],
    (share_before, length_ms): (f64, f64),
) -> Drawn {
    let (left, right) = EDGES;
    let height = PANEL - TITLE;
    #[expect(clippy::cast_precision_loss, reason = "a plot needs no more than 2^53")]
    let counts: Vec<f64> = answers.iter().map(|count| *count as f64).collect();
    #[expect(clippy::cast_precision_loss, reason = "there are hundreds of parts")]
    let parts = counts.len().max(1) as f64;
    let per_s = |count: f64| count * parts / (length_ms / 1000.0);
    let before = counts.iter().take(usize::try_from(position(share_before, i32::try_from(counts.len())?))?);
    let (sum, number) = before.fold((0.0, 0.0), |(sum, number), count| (sum + count, number + 1.0));
    let most = counts.iter().copied().fold(0.0, f64::max);
    let usual = if sum > 0.0 { sum / number } else { most.max(1.0) };
    let y = |count: f64| bottom - position((count / (2.0 * usual)).min(1.0), height);
    let colour = COLOURS.iter().find(|(of, _)| *of == lane).map_or(BLACK, |(_, colour)| *colour);
    area.draw(&PathElement::new(vec![(left, y(usual)), (right, y(usual))], LIGHT))?;
    area.draw(&PathElement::new(vec![(left, bottom - height), (left, bottom), (right, bottom)], BLACK))?;
    let points = (0..).zip(&counts).map(|(index, count): (u32, &f64)| {
        (left + position(f64::from(index) / parts, right - left), y(*count))
    });
    area.draw(&PathElement::new(points.collect::<Vec<_>>(), colour.stroke_width(2)))?;
    let title = format!("{}, answers a second (up to {:.0})", lane.name(), per_s(most));
    text(area, &title, (left + 8, bottom - PANEL + 10), HPos::Left, colour)?;
    text(area, &format!("{:.0}", per_s(usual)), (left - 8, y(usual) - 8), HPos::Right, BLACK)?;
    text(area, "0", (left - 8, bottom - 14), HPos::Right, BLACK)
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), side: HPos, colour: RGBColor) -> Drawn {
    let style = ("sans-serif", SIZE).into_font().color(&colour).pos(Pos::new(side, VPos::Top));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// Returns a share of a length in pixels.
fn position(share: f64, length: i32) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "it is a number of pixels, and casts saturate")]
    let pixels = (share * f64::from(length)).round() as i32;
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_line_for_each_lane_and_marks_the_event() {
        let window =
            Window { began_ns: 0, acted_ns: 2_000_000_000, done_ns: 3_000_000_000, ended_ns: 5_000_000_000 };
        let lanes = [(Lane::Udp, vec![5, 5, 0, 500, 5]), (Lane::HttpKeepAlive, vec![0; 5])];
        let svg = answers(EventKind::Kill, &window, &lanes).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 8, "{svg}");
        for expected in ["kill", "done", "UDP, answers a second (up to 500)", "-2 s", "0 s", "3 s"] {
            assert!(svg.contains(expected), "{expected} is not in\n{svg}");
        }
        // The burst behind the gap does not flatten the usual rate, which is in the middle of the panel.
        let middle = HEAD + PANEL - (PANEL - TITLE) / 2;
        assert!(svg.contains(&format!("80,{middle} ")), "{svg}");
    }
}
