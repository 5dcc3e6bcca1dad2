//! How a comparison goes, on standard error: a live line on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};

use shoal_compare::order::{Event, Phase};
use shoal_compare::result::{IdleConnections, Round, Usage, spent};
use shoal_load::{Bottleneck, Report};

use crate::load::live::Line;
use crate::output;

/// What is shown.
pub(super) struct Screen {
    on_terminal: bool,
    runs: usize,
    /// How many processors the present tracker has.
    processors: usize,
    line: Option<Line>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { on_terminal: io::stderr().is_terminal(), runs: 0, processors: 1, line: None }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Began { runs, folder } => {
                self.runs = *runs;
                output::tell(&format!("{runs} runs; the result grows in {}", folder.display()));
            }
            Event::Absent { tracker, reason } => output::tell(&format!("absent: {tracker}: {reason}")),
            Event::Doubt(doubt) => output::tell(&format!("note: {doubt}")),
            Event::Run { run, round, tracker, cores, processors } => {
                self.processors = *processors;
                let unit = if *cores == 1 { "core" } else { "cores" };
                output::tell(&format!("[{run}/{}] round {round}, {cores} {unit}: {tracker}", self.runs));
            }
            Event::Phase(phase) => self.begin(*phase),
            Event::Progress(progress) => {
                if let Some(line) = &self.line {
                    line.show(progress);
                }
            }
            Event::Ended(round) => {
                self.end();
                output::tell(&format!("    {}", in_words(round, self.processors)));
            }
            Event::NotWritten(error) => {
                output::tell(&format!("warning: the result could not be written: {error}"))
            }
        }
    }

    /// Removes the live line.
    pub(super) fn end(&mut self) {
        if let Some(line) = self.line.take() {
            line.end();
        }
    }

    fn begin(&mut self, phase: Phase) {
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
        self.line = Some(Line::new(name, self.on_terminal));
    }
}

/// A run in a line.
fn in_words(round: &Round, processors: usize) -> String {
    let mut words = Vec::new();
    if let Some(load) = &round.load {
        words.push(rate(load));
        words.extend(round.usage.as_ref().and_then(|usage| cost(load, usage)));
        if load.verdict == Bottleneck::GeneratorBound {
            words.push("generator bound".to_owned());
        }
        let share = round.usage.as_ref().and_then(|usage| usage.share_of(processors));
        words.extend(
            share
                .filter(|share| *share < Usage::SATURATED_SHARE)
                .map(|share| format!("the tracker had only {:.0} % of its processors' time", 100.0 * share)),
        );
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
    if let Some(beside) = &round.deaf {
        let latency = beside.latency.as_ref().map(latency);
        words.extend(latency.map(|latency| format!("beside those that are never read: {latency}")));
    }
    words.extend(round.failure.as_ref().map(|failure| format!("FAILED: {failure}")));
    if words.is_empty() { "nothing was measured".to_owned() } else { words.join(", ") }
}

/// Good replies a second; where messages are relayed, all of them.
fn rate(load: &Report) -> String {
    match &load.relays {
        Some(relays) => format!("{:.0} messages/s", relays.messages_per_s),
        None => format!("{:.0} replies/s", load.responses_per_s),
    }
}

/// That of relays, where there are some.
fn latency(report: &Report) -> String {
    let relays = report.relays.as_ref().filter(|relays| relays.offers > 0);
    let summary = relays.map_or(&report.latency, |relays| &relays.offer_latency);
    format!("p50 {:.0} µs, p99 {:.0} µs", summary.p50_us, summary.p99_us)
}

/// CPU time of a reply or message; of every one that was sent, good or not.
fn cost(load: &Report, usage: &Usage) -> Option<String> {
    let (time, count) = spent(load, usage);
    let us = time.whole_s() * 1e6 / count;
    let noun = if load.relays.is_some() { "message" } else { "reply" };
    (count > 0.0).then(|| format!("{us:.2} µs CPU a {noun}"))
}
