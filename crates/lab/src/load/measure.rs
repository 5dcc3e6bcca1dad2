//! The steps of a measurement, common to all protocols: fill, measure, report.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;
use shoal_load::{Bottleneck, Mix, OpenError, Pace, Plan, Population, Report, Session, Stop, Watch};

use super::args::{duration, rate};
use super::table;
use crate::process::{Cancellation, USAGE};
use crate::terminal::{self, ProgressLine};

/// The options of the measurement and its output.
#[derive(Debug, clap::Args)]
pub(super) struct MeasureArgs {
    /// Send requests at this rate, whatever the replies (open loop)
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    pub(super) rate: Option<f64>,

    /// Measure for this time, such as 10s, 500ms or 2m [default: 10s, unless --requests is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Measure with this number of requests
    #[arg(long, value_name = "N")]
    pub(super) requests: Option<u64>,

    /// Do not fill the tracker first: the measurement begins with an empty tracker
    #[arg(long)]
    pub(super) no_fill: bool,

    /// Accept replies that contain the announcer; some trackers send them by design
    #[arg(long)]
    pub(super) tolerate_own_address: bool,

    /// Print the result as JSON on standard output
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) struct LoadRun<'s, L> {
    pub(super) target: String,
    pub(super) plan: &'s Plan,
    /// Requests in flight of each worker in the closed loop.
    pub(super) window: usize,
    /// The load that is particular to the protocol, in the JSON result.
    pub(super) load: L,
}

/// The exit code after a Ctrl-C before the first measurement, as shells have it.
const INTERRUPTED: u8 = 130;

/// The output of `--json`.
#[derive(Serialize)]
struct Document<'d, L> {
    schema_version: u32,
    target: &'d str,
    address: SocketAddr,
    pace: Pace,
    load: LoadDocument<'d, L>,
    fill: Option<&'d Report>,
    run: &'d Report,
}

/// The load, in the JSON result.
#[derive(Serialize)]
struct LoadDocument<'d, L> {
    population: Population,
    mix: Mix,
    numwant: i32,
    scrape_hashes_max: usize,
    seed: u64,
    workers: usize,
    first_source: IpAddr,
    source_addresses: usize,
    timeout_s: f64,
    #[serde(flatten)]
    of_protocol: &'d L,
}

impl MeasureArgs {
    /// Opens a session and runs the measurement.
    pub(super) fn run(
        &self,
        load_run: &LoadRun<'_, impl Serialize>,
        open: impl FnOnce() -> Result<Session, OpenError>,
    ) -> Result<ExitCode> {
        let pace = match self.rate {
            Some(rate) => Pace::Open { rate },
            None => Pace::Closed { window: load_run.window },
        };
        let after =
            self.duration.or(if self.requests.is_none() { Some(Duration::from_secs(10)) } else { None });
        let stop = Stop { after, requests: self.requests };
        let cancellation = Cancellation::on_signals()?;
        let mut session = match open() {
            Err(error @ (OpenError::Plan(_) | OpenError::Processor { .. })) => {
                terminal::note(&format!("shoal-lab: {error}"));
                return Ok(ExitCode::from(USAGE));
            }
            opened => opened?,
        };
        let fill = (!self.no_fill).then(|| watch("fill", &cancellation, |watch| session.fill(watch)));
        if cancellation.flag().load(Ordering::Relaxed) {
            terminal::note("shoal-lab: interrupted during the fill, before anything was measured");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if let Some(reason) = fill.as_ref().and_then(fill_failure) {
            return Err(anyhow!("the tracker could not be filled: {reason}"));
        }
        let run = watch("load", &cancellation, |watch| session.run(pace, stop, watch));
        drop(session);
        self.print(load_run, pace, fill.as_ref(), &run)?;
        let is_good =
            run.failure.is_none() && run.responses.total() > 0 && run.verdict != Bottleneck::Unanswered;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(
        &self,
        load_run: &LoadRun<'_, impl Serialize>,
        pace: Pace,
        fill: Option<&Report>,
        run: &Report,
    ) -> Result<()> {
        let LoadRun { target, plan, load, .. } = load_run;
        let text = if self.json {
            let document = Document {
                schema_version: run.schema_version,
                target,
                address: plan.target,
                pace,
                load: LoadDocument {
                    population: plan.population,
                    mix: plan.mix,
                    numwant: plan.numwant,
                    scrape_hashes_max: plan.scrape_hashes_max,
                    seed: plan.seed,
                    workers: plan.workers.len(),
                    first_source: plan.sources.first,
                    source_addresses: plan.sources.addresses.get(),
                    timeout_s: plan.timeout.as_secs_f64(),
                    of_protocol: load,
                },
                fill,
                run,
            };
            serde_json::to_string_pretty(&document)? + "\n"
        } else {
            table::text(pace, plan, fill, run)
        };
        terminal::print(&text)
    }
}

/// Returns why a fill does not suffice, if it does not.
fn fill_failure(fill: &Report) -> Option<String> {
    let Report { failure, first_error, responses, wrong, connections, .. } = fill;
    if let Some(failure) = failure {
        return Some(failure.clone());
    }
    if responses.announce > 0 {
        return None;
    }
    let error = first_error.as_ref().map(|text| format!("it answers with the error \"{text}\""));
    Some(error.unwrap_or_else(|| {
        let first = connections.as_ref().and_then(|connections| connections.first_fault.as_ref());
        let first = first.map(|text| format!(", the first: {text}")).unwrap_or_default();
        format!("no reply was good, {} wrong{first}", table::wrong(wrong))
    }))
}

/// Runs a part of a session with a progress line.
fn watch(name: &str, cancellation: &Cancellation, run: impl FnOnce(&mut Watch<'_>) -> Report) -> Report {
    let line = ProgressLine::new(name, io::stderr().is_terminal());
    let cancel: &Arc<AtomicBool> = cancellation.flag();
    let report = run(&mut Watch { cancel, progress: &mut |progress| line.show(progress) });
    line.end();
    if cancel.load(Ordering::Relaxed) {
        terminal::note(&format!("{name}: ended early by a signal"));
    }
    report
}
