//! `shoal-lab load udp --herd`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use shoal_load::udp::{HERD_RETRIES_MAX, Herd, HerdReport, run_herd};
use shoal_load::{OpenError, Plan};

use super::args::duration;
use crate::process::{Cancellation, USAGE};
use crate::terminal;

/// The options of a herd.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A herd, as after the restart of a tracker that has lost its peers")]
pub(super) struct HerdArgs {
    /// Simulate N clients that connect and announce once, each at a random moment, and retransmit as real ones (15 s, 30 s, 60
    /// s, …)
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "duration", "requests", "no_fill", "window"],
          value_parser = clap::value_parser!(u32).range(1..))]
    herd: Option<u32>,

    /// The time within which all of them start
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, requires = "herd")]
    within: Duration,

    /// Retransmissions of a request after which a client gives up
    #[arg(long, value_name = "N", default_value_t = HERD_RETRIES_MAX, requires = "herd",
          value_parser = clap::value_parser!(u8).range(0..=8))]
    retries: u8,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Document<'d> {
    target: &'d str,
    within_s: f64,
    retries_max: u8,
    run: &'d HerdReport,
    /// The most clients that come back in one second.
    returns_per_s_max: u32,
}

impl HerdArgs {
    /// Returns the herd, if one is asked for.
    pub(super) fn herd(&self) -> Option<Herd> {
        let Self { within, retries, .. } = *self;
        self.herd.map(|clients| Herd { clients, within, retries_max: retries })
    }
}

/// Sends a herd and prints its fate. Exit code 1 if a client did not get what it asked for.
pub(super) fn run(plan: &Plan, herd: &Herd, is_json: bool) -> Result<ExitCode> {
    let cancellation = Cancellation::on_signals()?;
    let report = match run_herd(plan, herd, cancellation.flag()) {
        Err(error @ (OpenError::Plan(_) | OpenError::Processor { .. })) => {
            terminal::note(&format!("shoal-lab: {error}"));
            return Ok(ExitCode::from(USAGE));
        }
        ended => ended?,
    };
    let target = plan.target.to_string();
    let text = if is_json {
        let document = Document {
            target: &target,
            within_s: herd.within.as_secs_f64(),
            retries_max: herd.retries_max,
            returns_per_s_max: report.returns.iter().copied().max().unwrap_or(0),
            run: &report,
        };
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        text(&report)?
    };
    terminal::print(&text)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &HerdReport) -> Result<String> {
    let mut out = String::new();
    #[expect(clippy::cast_precision_loss, reason = "a percentage needs no more than 2^53")]
    let percent = |count: u64| 100.0 * count as f64 / report.clients.max(1) as f64;
    let mut line = |name: &str, count: u64| writeln!(out, "{name:<28}{count:>12}  {:>8.4} %", percent(count));
    line("clients", report.clients)?;
    for (retries, count) in report.answered.iter().enumerate() {
        match retries {
            0 => line("answered at the first try", *count)?,
            1 => line("after 1 retry", *count)?,
            _ => line(&format!("after {retries} retries"), *count)?,
        }
    }
    line("refused", report.refused)?;
    line("never answered", report.never)?;
    let HerdReport { connects, announces, last_answer_s, send_failures, receive_drops, .. } = report;
    writeln!(
        out,
        "\nThe last answer came after {last_answer_s:.1} s. Sent: {connects} connects, {announces} announces."
    )?;
    if let Some(message) = &report.first_refusal {
        writeln!(out, "The first refusal: {message:?}")?;
    }
    if send_failures + receive_drops > 0 {
        writeln!(
            out,
            "Lost on this host, not by the tracker: {send_failures} requests, {receive_drops} replies."
        )?;
    }
    let (most, first) = (report.returns.iter().max(), report.returns.iter().position(|clients| *clients > 0));
    if let (Some(most), Some(first)) = (most, first) {
        let last = report.returns.len() - 1;
        writeln!(out, "They come back {first} to {last} s after the start, at most {most} in a second.")?;
    }
    Ok(out)
}
