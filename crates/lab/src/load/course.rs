//! The course of a measurement, whatever the protocol: fill, measure, tell.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;
use shoal_load::{Bottleneck, OpenError, Pace, Plan, Report, Session, Stop, Watch};

use super::spelling::{duration, rate};
use super::{live, table};
use crate::interrupt::Interrupt;
use crate::output;

/// What is measured, and how it is told.
#[derive(Debug, clap::Args)]
pub(super) struct Course {
    /// Send so many requests a second, whatever comes back (open loop)
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    pub(super) rate: Option<f64>,

    /// Measure for so long, such as 10s, 500ms or 2m [default: 10s, unless --requests is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Measure with so many requests
    #[arg(long, value_name = "N")]
    pub(super) requests: Option<u64>,

    /// Do not fill the tracker first: what is measured begins with an empty one
    #[arg(long)]
    pub(super) no_fill: bool,

    /// Do not count it as wrong that a peer is handed to itself; some trackers do that by design
    #[arg(long)]
    pub(super) tolerate_own_address: bool,

    /// Print the result as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// What is to be measured.
pub(super) struct Subject<'s, L> {
    pub(super) target: String,
    pub(super) plan: &'s Plan,
    /// Requests in flight of each worker, where the loop is closed.
    pub(super) window: usize,
    /// How the JSON spells the load.
    pub(super) load: L,
}

/// The exit code of a command line that asks for the impossible.
pub(super) const USAGE: u8 = 2;

/// The exit code where Ctrl-C came before there was a result, as shells have it.
const INTERRUPTED: u8 = 130;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d, L> {
    schema_version: u32,
    target: &'d str,
    pace: Pace,
    load: &'d L,
    fill: Option<&'d Report>,
    run: &'d Report,
}

impl Course {
    /// Opens a session and carries the measurement out.
    pub(super) fn measure(
        &self,
        subject: &Subject<'_, impl Serialize>,
        open: impl FnOnce() -> Result<Session, OpenError>,
    ) -> Result<ExitCode> {
        let pace = match self.rate {
            Some(rate) => Pace::Open { rate },
            None => Pace::Closed { window: subject.window },
        };
        let after =
            self.duration.or(if self.requests.is_none() { Some(Duration::from_secs(10)) } else { None });
        let stop = Stop { after, requests: self.requests };
        let interrupt = Interrupt::listen()?;
        let mut session = match open() {
            Err(error @ (OpenError::Plan(_) | OpenError::Processor { .. })) => {
                output::tell(&format!("shoal-lab: {error}"));
                return Ok(ExitCode::from(USAGE));
            }
            opened => opened?,
        };
        let fill =
            if self.no_fill { None } else { Some(watch("fill", &interrupt, |watch| session.fill(watch))) };
        if interrupt.flag().load(Ordering::Relaxed) {
            output::tell("shoal-lab: ended while the tracker was filled, before anything was measured");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if let Some(reason) = fill.as_ref().and_then(why_not_filled) {
            return Err(anyhow!("the tracker could not be filled: {reason}"));
        }
        let run = watch("load", &interrupt, |watch| session.run(pace, stop, watch));
        drop(session);
        self.print(subject, pace, fill.as_ref(), &run)?;
        let is_good =
            run.failure.is_none() && run.responses.total() > 0 && run.verdict != Bottleneck::Unanswered;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(
        &self,
        subject: &Subject<'_, impl Serialize>,
        pace: Pace,
        fill: Option<&Report>,
        run: &Report,
    ) -> Result<()> {
        let Subject { target, plan, load, .. } = subject;
        let text = if self.json {
            let document = Document { schema_version: run.schema_version, target, pace, load, fill, run };
            serde_json::to_string_pretty(&document)? + "\n"
        } else {
            table::text(pace, plan.population.peers, fill, run)
        };
        output::print(&text)
    }
}

/// Why a fill is not good enough to go on.
fn why_not_filled(fill: &Report) -> Option<String> {
    let Report { failure, first_error, responses, wrong, connections, .. } = fill;
    if let Some(failure) = failure {
        return Some(failure.clone());
    }
    if responses.announce > 0 {
        return None;
    }
    let error = first_error.as_ref().map(|words| format!("it answers with the error \"{words}\""));
    Some(error.unwrap_or_else(|| {
        let first = connections.as_ref().and_then(|connections| connections.first_fault.as_ref());
        let first = first.map(|words| format!(", the first: {words}")).unwrap_or_default();
        format!("no reply was good, {} wrong{first}", table::wrong(wrong))
    }))
}

/// Runs something of a session while a live line shows how it goes.
fn watch(name: &str, interrupt: &Interrupt, run: impl FnOnce(&mut Watch<'_>) -> Report) -> Report {
    let line = live::Line::new(name, io::stderr().is_terminal());
    let cancel: &Arc<AtomicBool> = interrupt.flag();
    let report = run(&mut Watch { cancel, progress: &mut |progress| line.show(progress) });
    line.end();
    if cancel.load(Ordering::Relaxed) {
        output::tell(&format!("{name}: ended early, as asked"));
    }
    report
}
