//! Shows the progress of a comparison on standard error.

use std::io::{self, IsTerminal};

use shoal_compare::plan::{ComparisonEvent, Phase};
use shoal_compare::result::{IdleConnections, Round, Usage, spent};
use shoal_load::Report;

use crate::terminal::{self, ProgressLine, counted};

pub(super) struct ProgressDisplay {
    on_terminal: bool,
    runs: usize,
    /// The processors of the current tracker.
    processors: Vec<usize>,
    line: Option<ProgressLine>,
}

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        Self { on_terminal: io::stderr().is_terminal(), runs: 0, processors: Vec::new(), line: None }
    }

    pub(super) fn show(&mut self, event: &ComparisonEvent<'_>) {
        match event {
            ComparisonEvent::Started { runs, folder } => {
                self.runs = *runs;
                let runs = counted(*runs, "run", "runs");
                terminal::note(&format!("{runs}; the result grows in {}", folder.display()));
            }
            ComparisonEvent::Absent { tracker, reason } => {
                terminal::note(&format!("absent: {tracker}: {reason}"));
            }
            ComparisonEvent::Warning(warning) => terminal::note(&format!("note: {warning}")),
            ComparisonEvent::RunStarted { run, round, tracker, cores, processors } => {
                self.processors = processors.to_vec();
                let cores = counted(*cores, "core", "cores");
                terminal::note(&format!("[{run}/{}] round {round}, {cores}: {tracker}", self.runs));
            }
            ComparisonEvent::Phase(phase) => {
                self.end();
                let name = match phase {
                    Phase::Starting => "start",
                    Phase::Preparing => "peers",
                    Phase::Filling => "fill",
                    Phase::Loading => "load",
                    Phase::Timing => "time",
                    Phase::Idling => "idle",
                    Phase::Stopping => "stop",
                };
                self.line = Some(ProgressLine::new(name, self.on_terminal));
            }
            ComparisonEvent::Progress(progress) => {
                if let Some(line) = &self.line {
                    line.show(progress);
                }
            }
            ComparisonEvent::RunEnded(round) => {
                self.end();
                terminal::note(&format!("    {}", summary(round, &self.processors)));
            }
            ComparisonEvent::SaveFailed(error) => {
                terminal::note(&format!("warning: the result could not be written: {error}"));
            }
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(line) = self.line.take() {
            line.end();
        }
    }
}

/// Summarises a run in a line.
fn summary(round: &Round, processors: &[usize]) -> String {
    let mut words = Vec::new();
    if let Some(load) = &round.load {
        words.push(match &load.relays {
            Some(relays) => format!("{:.0} messages/s", relays.messages_per_s),
            None => format!("{:.0} replies/s", load.responses_per_s),
        });
        words.extend(round.usage.as_ref().and_then(|usage| {
            let (time, count) = spent(load, usage);
            let us = time.whole_s() * 1e6 / count;
            let unit = if load.relays.is_some() { "message" } else { "reply" };
            (count > 0.0).then(|| format!("{us:.2} µs CPU a {unit}"))
        }));
        words.extend(
            round.usage.as_ref().filter(|usage| usage.receive_s.is_some()).and_then(|usage| {
                Some(format!("{:.2} µs of the whole core", usage.core_us(load, processors)?))
            }),
        );
        let busy = round.usage.as_ref().and_then(|usage| usage.saturation(processors));
        words.extend(busy.map(|share| {
            let mark = if share < Usage::SATURATED_SHARE { ", generator-bound" } else { "" };
            format!("tracker {:.1} % busy{mark}", 100.0 * share)
        }));
        let counts = [("lost", load.lost), ("errors", load.errors), ("wrong", load.wrong.total())];
        words.extend(
            counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")),
        );
        if let Some(connections) = &load.connections {
            let failed = connections.failures.total();
            words.extend((failed > 0).then(|| format!("{failed} connections failed")));
            words.extend(connections.first_fault.as_ref().map(|fault| format!("first fault: {fault}")));
        }
    }
    if let Some(idle) = &round.idle {
        let IdleConnections {
            open, wanted, resident_before_bytes: before, resident_open_bytes: after, ..
        } = idle;
        let each_bytes = after.saturating_sub(*before).checked_div(*open as u64).unwrap_or(0);
        words.push(format!("{open} of {wanted} connections, {each_bytes} bytes resident each"));
        words.extend(idle.failure.clone());
    }
    words.extend(round.resident_filled_bytes.map(|bytes| format!("{} MB resident", bytes / 1_000_000)));
    words.extend(round.latency.as_ref().map(latency));
    if let Some(second) = &round.slow_readers {
        let latency = second.latency.as_ref().map(latency);
        words.extend(latency.map(|latency| format!("with slow readers: {latency}")));
    }
    words.extend(round.failure.as_ref().map(|failure| format!("FAILED: {failure}")));
    if words.is_empty() { "nothing was measured".to_owned() } else { words.join(", ") }
}

/// Formats the latency of relays, or of replies if nothing is relayed.
fn latency(report: &Report) -> String {
    let relays = report.relays.as_ref().filter(|relays| relays.offers > 0);
    let summary = relays.map_or(&report.latency, |relays| &relays.offer_latency);
    format!("p50 {:.0} µs, p99 {:.0} µs", summary.p50_us, summary.p99_us)
}
