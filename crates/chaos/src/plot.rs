//! A plot of the answers over time around an event, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::{
    DrawingArea, IntoDrawingArea as _, IntoFont as _, PathElement, RGBColor, SVGBackend, Text, WHITE,
};
use plotters::style::Color as _;

use crate::event::EventKind;
use crate::measure::{Window, milliseconds};
use crate::record::Lane;

const WIDTH: i32 = 900;
const HEIGHT: i32 = 320;
/// The edges of the plot: left, right, top, bottom.
const EDGES: (i32, i32, i32, i32) = (70, WIDTH - 20, 40, HEIGHT - 40);
const SIZE: u32 = 15;

const GREY: RGBColor = RGBColor(150, 150, 150);
const BLACK: RGBColor = RGBColor(30, 30, 30);
const COLOURS: [(Lane, RGBColor); 3] = [
    (Lane::Udp, RGBColor(0, 90, 160)),
    (Lane::HttpKeepAlive, RGBColor(200, 80, 0)),
    (Lane::HttpConnections, RGBColor(0, 130, 70)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws the answers of each lane, each as a share of its busiest moment, since lanes have different rates.
///
/// # Errors
/// Returns an error if plotters fails.
pub(crate) fn answers(event: EventKind, window: &Window, lanes: &[(Lane, Vec<u64>)]) -> Result<String> {
    let mut out = String::new();
    let size = (WIDTH.unsigned_abs(), HEIGHT.unsigned_abs());
    let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
    draw(&area, event, window, lanes).map_err(|error| anyhow!("the plot: {error}"))?;
    drop(area);
    Ok(out)
}

fn draw(
    area: &Area<'_>,
    event: EventKind,
    window: &Window,
    lanes: &[(Lane, Vec<u64>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let (left, right, top, bottom) = EDGES;
    let text = |text: String, at: (i32, i32), colour: &RGBColor| {
        Text::new(text, at, ("sans-serif", SIZE).into_font().color(colour))
    };
    area.fill(&WHITE)?;
    area.draw(&PathElement::new(vec![(left, top), (left, bottom), (right, bottom)], BLACK))?;
    let length_ms = milliseconds(window.ended_ns - window.began_ns).max(1.0);
    for (ns, name) in [(window.acted_ns, event.name()), (window.done_ns, "done")] {
        let x = left + position(milliseconds(ns - window.began_ns) / length_ms, right - left);
        area.draw(&PathElement::new(vec![(x, top), (x, bottom)], GREY))?;
        area.draw(&text(name.to_owned(), (x + 3, top), &GREY))?;
    }
    for (number, (lane, answers)) in (0..).zip(lanes) {
        let colour = COLOURS.iter().find(|(of, _)| of == lane).map_or(BLACK, |(_, colour)| *colour);
        let most = answers.iter().copied().max().unwrap_or(0).max(1);
        let points = (0..).zip(answers).map(|(index, count): (u32, &u64)| {
            #[expect(clippy::cast_precision_loss, reason = "a plot needs no more than 2^53")]
            let (x, y) = (f64::from(index) / answers.len().max(1) as f64, *count as f64 / most as f64);
            (left + position(x, right - left), bottom - position(y, bottom - top))
        });
        area.draw(&PathElement::new(points.collect::<Vec<_>>(), colour.stroke_width(2)))?;
        #[expect(clippy::cast_precision_loss, reason = "a plot needs no more than 2^53")]
        let most_per_s = most as f64 * answers.len() as f64 / (length_ms / 1000.0);
        let legend = format!("{} (up to {most_per_s:.0}/s)", lane.name());
        area.draw(&text(legend, (left + number * 270, 12), &colour))?;
    }
    area.draw(&text("0".to_owned(), (left - 15, bottom - 12), &BLACK))?;
    area.draw(&text("answers".to_owned(), (8, top), &BLACK))?;
    let seconds = format!("{:.1} s", length_ms / 1000.0);
    area.draw(&text(seconds, (right - 45, bottom + 8), &BLACK))?;
    area.present()?;
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
        let window = Window { began_ns: 0, acted_ns: 10, done_ns: 20, ended_ns: 40 };
        let lanes = [(Lane::Udp, vec![5, 0, 5]), (Lane::HttpKeepAlive, vec![0, 0, 0])];
        let svg = answers(EventKind::Kill, &window, &lanes).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 5, "{svg}");
        assert!(svg.contains("kill") && svg.contains("UDP (up to") && svg.contains("done"), "{svg}");
    }
}
