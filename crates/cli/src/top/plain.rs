//! The figures as lines of text, for where there is no terminal, and for `shoal ctl stats`.

use std::thread;
use std::time::Duration;

use super::figures::{View, requests, warnings};
use super::numbers::{duration, rate, utc};
use super::rates::Rates;
use super::table::Look;
use super::{Reply, Top, ask};
use crate::client::ControlClient;
use shoal_control::stats::Stats;
use shoal_runtime::failure::Failure;
use shoal_runtime::{log, output, printable};

/// The width of the lines.
const WIDTH: usize = 100;

/// Prints a block of text or a line of JSON at each interval, or one of them.
pub(super) fn follow(top: &Top, client: &ControlClient) -> Result<(), Failure> {
    let mut before = ask(client)?;
    if top.json {
        let is_over = output::print(&(printable::json(&before.text) + "\n"))?;
        if top.once || is_over {
            return Ok(());
        }
    }
    loop {
        // Rates need two replies, so the first block comes after an interval, too.
        thread::sleep(Duration::from_secs(top.interval));
        let reply = match ask(client) {
            Err(error) if !top.once => {
                log::report(&format!("{error}; trying again"));
                continue;
            }
            reply => reply?,
        };
        let text =
            if top.json { printable::json(&reply.text) + "\n" } else { text(top, client, &before, &reply) };
        let is_over = output::print(&text)?;
        before = reply;
        if top.once || is_over {
            return Ok(());
        }
    }
}

fn text(top: &Top, client: &ControlClient, before: &Reply, reply: &Reply) -> String {
    let rates = Rates::between(&before.stats, &reply.stats);
    let text = block(client.shown(), top.view, &reply.stats, rates.as_ref());
    // Blocks are apart from each other.
    if top.once { text } else { text + "\n" }
}

/// Returns the figures of a view as lines.
pub(super) fn block(url: &str, view: View, stats: &Stats, rates: Option<&Rates<'_>>) -> String {
    let up = duration(stats.now_unix_s.saturating_sub(stats.started_unix_s));
    let head = format!("Shoal {}  {url}  {}  up {up}", stats.version, utc(stats.now_unix_s));
    let mut text = printable::line(&head) + "\n";
    for warning in warnings(stats) {
        text.push_str(&format!("! {}\n", printable::line(&warning)));
    }
    if let (Some(rates), View::Overview) = (rates, view) {
        text.push_str(&format!("{} requests\n", rate(rates.of(requests))));
    }
    for section in view.sections(stats, rates, 0) {
        text.push('\n');
        for line in section.lines(WIDTH, Look::Plain) {
            text.push_str(line.to_string().trim_end());
            text.push('\n');
        }
    }
    text
}
