//! The figures as lines of text, for use without a terminal, and for `shoal ctl stats`.

use std::thread;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::figures::{Figures, View, requests, warnings};
use super::numbers::{duration, rate, utc};
use super::{Top, ask};
use crate::client::ControlClient;
use shoal_control::stats::Stats;
use shoal_runtime::failure::Failure;
use shoal_runtime::{log, output, printable};

/// The width of the lines.
const WIDTH: u16 = 100;

/// Prints a block of text or a line of JSON at each interval, or only one.
pub(super) fn follow(top: &Top, client: &ControlClient) -> Result<(), Failure> {
    let mut before = ask(client)?;
    let mut is_over = top.json && (output::print(&(printable::json(&before.text) + "\n"))? || top.once);
    while !is_over {
        // Rates need two replies, so the first block also comes after an interval.
        thread::sleep(Duration::from_secs(top.interval));
        let reply = match ask(client) {
            Err(error) if !top.once => {
                log::report(&format!("{error}; trying again"));
                continue;
            }
            reply => reply?,
        };
        let mut text = match top.json {
            true => printable::json(&reply.text),
            false => block(client.shown(), top.view, &reply.stats, Some(&before.stats)),
        };
        // Blocks are separate.
        text.push_str(if top.once && !top.json { "" } else { "\n" });
        is_over = output::print(&text)? || top.once;
        before = reply;
    }
    Ok(())
}

/// Returns the figures of a view as lines.
pub(super) fn block(url: &str, view: View, stats: &Stats, before: Option<&Stats>) -> String {
    let figures = Figures::new(stats, before);
    let up = duration(stats.now_unix_s.saturating_sub(stats.started_unix_s));
    let head = format!("Shoal {}  {url}  {}  up {up}", stats.version, utc(stats.now_unix_s));
    let mut text = printable::line(&head) + "\n";
    for warning in warnings(stats) {
        text.push_str(&format!("! {}\n", printable::line(&warning)));
    }
    if let (Some(per_s), View::Overview) = (figures.rate(requests), view) {
        text.push_str(&format!("{} requests\n", rate(per_s)));
    }
    for section in figures.sections(view, 0) {
        let area = Rect::new(0, 0, WIDTH, section.height());
        let mut picture = Buffer::empty(area);
        section.draw(area, false, &mut picture);
        for line in picture.content.chunks(WIDTH.into()) {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            text.push('\n');
            text.push_str(line.trim_end());
        }
        text.push('\n');
    }
    text
}
