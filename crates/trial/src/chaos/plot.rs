//! A plot of the answers over time around an event, as SVG.
//!
//! Each lane has a panel of its own, since lanes have different rates. A panel ends at twice the rate before the event:
//! the burst of answers behind a gap would otherwise flatten everything else.

use anyhow::Result;
use plotters::prelude::{ChartBuilder, LabelAreaPosition, LineSeries, PathElement, RGBColor, Text, WHITE};
use plotters::style::Color as _;
use plotters::style::text_anchor::HPos;
use shoal_compare::svg::{self, Area, Scale, text};

use crate::chaos::event::EventKind;
use crate::chaos::measure::{Window, milliseconds};
use crate::chaos::record::Lane;

const WIDTH: u32 = 900;
/// The heights of a panel with its title and its times, of the title, and of the times.
const PANEL: u32 = 170;
const TITLE: u32 = 34;
const TIMES: u32 = 30;
/// The space for the names of rates.
const LEFT: u32 = 90;
/// The height of texts.
const SIZE: f64 = 13.0;

const GREY: RGBColor = RGBColor(110, 110, 110);
const LIGHT: RGBColor = RGBColor(210, 210, 210);
const BLACK: RGBColor = RGBColor(30, 30, 30);

/// Draws the answers of each lane.
///
/// # Errors
/// Returns an error if plotters fails.
pub(crate) fn answers(event: EventKind, window: &Window, lanes: &[(Lane, Vec<u64>)]) -> Result<String> {
    let panels = u32::try_from(lanes.len())?;
    svg::render((WIDTH, panels * PANEL), |area| {
        for (panel, (lane, answers)) in area.split_evenly((lanes.len(), 1)).iter().zip(lanes) {
            draw(panel, event, window, *lane, answers)?;
        }
        Ok(())
    })
}

/// Draws the answers of a lane over the seconds before and after the event.
fn draw(area: &Area<'_>, event: EventKind, window: &Window, lane: Lane, answers: &[u64]) -> Result<()> {
    let seconds = |from_ns: u64, to_ns: u64| milliseconds(to_ns - from_ns) / 1000.0;
    let before_s = seconds(window.began_ns, window.acted_ns);
    let end_s = seconds(window.acted_ns, window.ended_ns).max(0.001 - before_s);
    let part_s = (before_s + end_s) / f64::from(u32::try_from(answers.len().max(1))?);
    let rate = |answers: &u64| u32::try_from(*answers).map_or(f64::from(u32::MAX), f64::from) / part_s;
    let points =
        || (0..).zip(answers).map(|(part, answers)| (f64::from(part) * part_s - before_s, rate(answers)));
    let most = points().map(|(_, rate)| rate).fold(0.0, f64::max);
    let usual = points().filter(|(at_s, _)| *at_s < 0.0).map(|(_, rate)| rate);
    let (sum, number) = usual.fold((0.0, 0.0), |(sum, number), rate| (sum + rate, number + 1.0));
    let usual = if sum > 0.0 { sum / number } else { most.max(1.0) };
    let colour = match lane {
        Lane::Udp => RGBColor(0, 90, 160),
        Lane::HttpKeepAlive => RGBColor(200, 80, 0),
        Lane::HttpConnections => RGBColor(0, 130, 70),
    };
    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE)
        .margin_right(30)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, TIMES)
        .build_cartesian_2d(
            Scale { range: (-before_s, end_s), ticks: whole(-before_s, end_s) },
            Scale { range: (0.0, 2.0 * usual), ticks: vec![0.0, usual] },
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(LIGHT)
        .axis_style(BLACK)
        .x_label_formatter(&|at_s| format!("{at_s:.0} s"))
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .label_style(text(SIZE, BLACK, HPos::Left))
        .draw()?;
    // The names are on both sides of the event, so that they do not overlap.
    let events = [
        (0.0, event.name(), HPos::Right, -5),
        (seconds(window.acted_ns, window.done_ns), "done", HPos::Left, 5),
    ];
    for (at_s, name, side, margin) in events {
        chart.draw_series([PathElement::new(vec![(at_s, 0.0), (at_s, 2.0 * usual)], GREY)])?;
        let (x, y) = chart.backend_coord(&(at_s, 2.0 * usual));
        let (left, top) = area.get_base_pixel();
        area.draw(&Text::new(name, (x - left + margin, y - top - 8), text(SIZE, GREY, side)))?;
    }
    let shown = points().map(|(at_s, rate)| (at_s, rate.min(2.0 * usual)));
    chart.draw_series(LineSeries::new(shown, colour.stroke_width(2)))?;
    let title = format!("{}, answers a second (up to {most:.0})", lane.name());
    area.draw(&Text::new(title, (10, 12), text(SIZE, colour, HPos::Left)))?;
    Ok(())
}

/// Returns whole numbers between two others, about ten of them.
fn whole(from: f64, to: f64) -> Vec<f64> {
    let step = ((to - from) / 10.0).ceil().max(1.0);
    std::iter::successors(Some((from / step).ceil() * step), |last| Some(last + step))
        .take_while(|number| *number <= to)
        .collect()
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
        for expected in
            ["\nkill\n", "done", "UDP, answers a second (up to 500)", "\n-2 s\n", "\n0 s\n", "\n3 s\n"]
        {
            assert!(svg.contains(expected), "{expected} is not in\n{svg}");
        }
        let lines = ["stroke=\"#005AA0\"", "stroke=\"#C85000\""].map(|colour| svg.matches(colour).count());
        assert_eq!(lines, [1, 1], "{svg}");
        // The burst behind the gap does not flatten the usual rate, which is in the middle of the panel.
        let middle = TITLE + (PANEL - TITLE - TIMES - 1) / 2;
        assert!(svg.contains(&format!("points=\"{LEFT},{middle} ")), "{svg}");
    }
}
