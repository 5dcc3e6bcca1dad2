//! `shoal top`: the figures of the status page in the terminal.
//!
//! It requests the statistics of the control listener ([`shoal_control::stats`]) at an interval, and shows them with
//! their rates:
//!
//! - `figures` makes tables of two statistics, which `table` draws.
//! - `screen` is the operator's choice, and `view` its picture. Both are pure. `session` owns the terminal, and
//!   connects
//!   them with keys and replies.
//! - `plain` prints the same tables as text, without a terminal.
//!
//! It shares no memory with the tracker, and may run on another host with another version.

mod figures;
pub(crate) mod numbers;
mod plain;
mod screen;
mod session;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::io::{IsTerminal, stdin, stdout};

use clap::Args;

use self::figures::View;
use self::screen::Screen;
use crate::client::{ClientError, ControlClient, Endpoint};
use crate::ctl;
use shoal_control::stats::Stats;
use shoal_runtime::failure::Failure;
use shoal_runtime::output;

pub(crate) const STATS_PATH: &str = "/api/v1/stats";

const INTERVAL_S_MAX: u64 = 3600;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Top {
    #[command(flatten)]
    endpoint: Endpoint,

    /// Time from one look to the next, such as 1s, 10s or 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: u64,

    /// The figures to begin with, or to print
    #[arg(long, value_enum, default_value_t)]
    view: View,

    /// Print the figures once, with rates over one interval, and end
    #[arg(long)]
    once: bool,

    /// Print the statistics as JSON, an object on each line, as the tracker sends them
    #[arg(long)]
    json: bool,
}

/// The text that `shoal top --help` prints after the arguments.
const HELP: &str = "\
Keys:
  q, Ctrl-C   quit                          tab, 1 to 4   another view
  ?           all keys                      arrows        scroll
  p           pause, go on                  s             sort by something else
  + and -     ask less often, more often

Examples:
  shoal top                                     the tracker on this host
  shoal top --url https://tracker.example:6970 --token-file token
  shoal top --once --view torrents              the largest swarms, as text
  shoal top --interval 10s >> figures.txt       text every ten seconds
  shoal top --json --interval 1m | jq .swarms   for programs

A rate is that of the last interval. Times in the tracker are those of samples, and `≤` is the end of a bucket of a histogram. \
If the tracker goes away, the last figures stay, and it is asked again until it is back. NO_COLOR turns colours off. \
docs/openapi.json describes the object that --json prints (Stats).

Exit codes: 0 done, 1 no reply or the tracker failed, 2 the arguments are invalid, 5 the token does not permit it.";

struct Reply {
    /// The text as sent.
    text: String,
    stats: Stats,
}

/// Shows the figures until the operator quits.
pub fn run(top: &Top) -> Result<(), Failure> {
    let client = ControlClient::new(&top.endpoint)?;
    if top.once || top.json || !has_screen() {
        return plain::follow(top, &client);
    }
    // Errors in the arguments are reported before the screen is taken over.
    let first = ask(&client)?;
    let screen = Screen::new(client.shown(), output::has_colour(), top.view, top.interval);
    session::run(client, screen, first)
}

/// Returns statistics as text for people.
pub(crate) fn text(url: &str, stats: &Stats) -> String {
    plain::block(url, View::Overview, stats, None)
}

fn ask(client: &ControlClient) -> Result<Reply, ClientError> {
    let text = client.text(STATS_PATH)?;
    let stats = serde_json::from_str(&text).map_err(|error| {
        ClientError::Transport(format!("{}{STATS_PATH}: these are no statistics: {error}", client.shown()))
    })?;
    Ok(Reply { text, stats })
}

/// Returns whether there is a terminal that can show a picture.
fn has_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb
}

fn interval(text: &str) -> Result<u64, String> {
    let seconds = ctl::seconds(text)?;
    if (1..=INTERVAL_S_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("it must be from 1s to 1h".to_owned())
    }
}
