//! The report as headings, tables and plain text, which the renderers turn into Markdown or HTML and escape.

use super::ranking;
use super::round::{self, Marks};
use super::row::{self, Outcome, Row};
use super::unit::UnitLabels;
use super::{number, relayed, tables, verdict};
use crate::result::{Cell, Comparison, Machine, Round, Tracker};

const READING: &str = "Medians over the rounds that count, minimum and maximum in parentheses. Responses are good \
    replies only. CPU time is that of the tracker's processes for each reply that it sent (good or not); the user part \
    is the tracker's own code, the rest is the kernel; ± is the error of this division in one round. Memory is the resident memory after the fill, 1 MB = 1,000,000 \
    bytes; \"of it fill\" is what the fill added to the memory of the empty tracker (its program, its buffers, a white \
    list). p99 is the latency at the fixed rate. The ceiling is not a tracker: it only sends replies of the same size. \
    Receive time is that of the kernel's threads of the tracker's network interface, on the tracker's processors, in which its \
    program at the driver hook runs; whole core is all busy time of these processors, other programs included.";

const RELAYED_READING: &str = "Medians over the rounds that count, minimum and maximum in parentheses. Messages are all \
    messages that the tracker sent: replies to announces, and relayed offers and answers. CPU time is that of the \
    tracker's processes for each message; the user part is the tracker's own code, the rest is the kernel; ± is the \
    error of this division in one round. Memory is the \
    resident memory when all connections are open and every peer has announced itself, 1 MB = 1,000,000 bytes; \"KiB a \
    connection\" is what they added to it, peers included, 1 KiB = 1,024 bytes; \"after the load\" is the resident \
    memory after the closed loop. p99 of a relay is the time from the scheduled start of an announce, at the fixed rate, \
    to the arrival of one of its offers. The ceiling is not a tracker: it returns each message, and each has one offer.";

const BUSY_READING: &str = "\"Tracker busy\" is the share of the time in which the tracker had work for all of its \
    processors: it ran, or was ready to run.";

const SPINNERS_READING: &str = "In the closed loop, threads that only spin shared the processors of the tracker with it, so \
    that the load, which needs more time for a request than the tracker, could keep it busy. Their time is not that of the \
    tracker. The rates are those of whole processors: the measured rate, divided by the tracker's share of the time.";

const IDLE_READING: &str = "Medians over the rounds that count, minimum and maximum in parentheses. Each connection has \
    carried one announce and is idle: over HTTP all announce the same peer, with WebTorrent each announces its own. \
    Memory is the resident memory of all processes of the tracker, before the first connection and two seconds after the \
    last. 1 KiB = 1,024 bytes, 1 MB = 1,000,000 bytes. The kernel's memory for connections is not included.";

const SLOW_READERS_READING: &str = "The round again, with slow readers: connections that announce once and never read \
    again, so that the offers for them pile up. The relays of offers to the other connections are timed at the fixed \
    rate and at full load.";

const CONNECTIONS_READING: &str = "In the closed loop. A connection that failed (refused, reset, closed too early, \
    timed out, no TLS) never counts as a response.";

const LATENCY_READING: &str = "Requests are sent at fixed times, whatever the tracker does. Latency counts from the \
    scheduled time, so that a stall shows in full. A lost request has no latency; see the loss.";

pub(super) enum Block {
    Heading(&'static str),
    Text(String),
    Verdict(String),
    /// A paragraph that must not be overlooked.
    Warning(String),
    Facts(Vec<Fact>),
    Table(Table),
    List(Vec<String>),
    Plots,
}

pub(super) struct Fact {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether every character of the value matters, as in a command.
    pub(super) is_code: bool,
}

/// A table whose first column names the row.
pub(super) struct Table {
    pub(super) head: Vec<&'static str>,
    /// The number of text columns at the left. The others are figures.
    pub(super) text_columns: usize,
    pub(super) rows: Vec<Vec<String>>,
}

pub(super) fn blocks(comparison: &Comparison) -> Vec<Block> {
    let rows = row::rows(comparison);
    let mut blocks = vec![Block::Verdict(verdict::verdict(&rows))];
    if comparison.partial {
        let text = "Partial: the comparison was interrupted, and some rounds are missing.";
        blocks.push(Block::Warning(text.into()));
    }
    blocks.push(Block::Facts(facts(comparison)));
    let is_idle = tables::is_idle(&rows);
    let reading = match (is_idle, relayed::is_relayed(&rows)) {
        (true, _) => IDLE_READING,
        (false, true) => RELAYED_READING,
        (false, false) => READING,
    };
    blocks.extend([Block::Heading("Result"), Block::Table(tables::main(&rows)), Block::Text(reading.into())]);
    blocks.extend((!is_idle).then(|| Block::Text(BUSY_READING.into())));
    let usages =
        comparison.cells.iter().flat_map(|cell| &cell.rounds).filter_map(|round| round.usage.as_ref());
    let has_spinners = usages.into_iter().any(|usage| usage.spinners > 0);
    blocks.extend(has_spinners.then(|| Block::Text(SPINNERS_READING.into())));
    let legend = legend(&rows);
    blocks.extend((!legend.is_empty()).then_some(Block::List(legend)));
    blocks.extend(ranking_blocks(&rows));
    blocks.extend([Block::Heading("Plots"), Block::Plots]);
    if !is_idle {
        blocks.extend(load_blocks(&rows));
    }
    blocks.extend(list("Fewer connections than requested", fewer_connections(comparison)));
    blocks.extend(list("Not counted", left_out(&rows)));
    blocks.extend([Block::Heading("Trackers"), Block::List(trackers(comparison))]);
    let fact =
        |(name, value): &(String, String)| Fact { name: name.clone(), value: value.clone(), is_code: false };
    let load = comparison.load.iter().map(fact).collect();
    blocks.extend([Block::Heading("Load"), Block::Facts(load)]);
    blocks
}

/// Returns the signs of all rows, each with its meaning.
pub(super) fn legend(rows: &[Row<'_>]) -> Vec<String> {
    let measured = rows.iter().filter_map(Row::measured);
    let marks = measured.flat_map(|medians| [medians.marks, medians.rated_marks]);
    Marks::meanings(marks)
}

fn load_blocks(rows: &[Row<'_>]) -> Vec<Block> {
    let is_relayed = relayed::is_relayed(rows);
    let mut blocks = if is_relayed {
        vec![Block::Heading("Messages"), Block::Table(relayed::messages(rows))]
    } else {
        vec![Block::Heading("Replies"), Block::Table(tables::replies(rows))]
    };
    if relayed::has_slow_readers(rows) {
        blocks.extend([Block::Heading("With slow readers"), Block::Text(SLOW_READERS_READING.into())]);
        blocks.push(Block::Table(relayed::slow_readers(rows)));
    }
    if tables::has_connections(rows) {
        blocks.extend([Block::Heading("Connections"), Block::Text(CONNECTIONS_READING.into())]);
        blocks.push(Block::Table(tables::connections(rows)));
    }
    blocks.extend([Block::Heading("Processors"), Block::Table(tables::processors(rows))]);
    blocks.extend([Block::Heading("Latency at a fixed rate"), Block::Text(LATENCY_READING.into())]);
    blocks.push(Block::Table(if is_relayed { relayed::latency(rows) } else { tables::latency(rows) }));
    blocks
}

fn facts(comparison: &Comparison) -> Vec<Fact> {
    let fact = |name: &str, value: String, is_code| Fact { name: name.into(), value, is_code };
    let Machine { processor, processors, memory_bytes, kernel, virtualised } = &comparison.machine;
    let memory = number::trimmed(round::as_f64(memory_bytes >> 20) / 1024.0);
    let hypervisor = virtualised.as_ref().map(|name| format!(", virtual ({name})")).unwrap_or_default();
    let machine = format!("{processor}, {processors} logical processors, {memory} GiB of memory{hypervisor}");
    vec![
        fact("Command", command_line(&comparison.command), true),
        fact("Started", comparison.began.clone(), false),
        fact("Commit", comparison.commit.clone(), true),
        fact("Machine", machine, false),
        fact("Kernel", kernel.clone(), false),
        fact("CPU mode", comparison.cpu_mode.clone(), false),
        fact("Rounds", format!("{} of each, trackers in turn", comparison.rounds), false),
        fact("Complete", if comparison.partial { "no, interrupted" } else { "yes" }.into(), false),
    ]
}

/// Returns the command line in the syntax of a shell.
fn command_line(arguments: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
    };
    let quoted = |word: &String| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn ranking_blocks(rows: &[Row<'_>]) -> Vec<Block> {
    let rankings = ranking::rankings(rows);
    if rankings.is_empty() || tables::is_idle(rows) {
        return vec![];
    }
    let labels = UnitLabels::of(rows);
    let text = "Shoal's median divided by that of the best rival on the same cores (the one with the least CPU time or \
                memory, or the fastest), and by that of the ceiling with the same back end. For CPU time and memory less \
                is better, for speed more. ± is the error of the user parts; ≈ stands for two user parts within it.";
    vec![
        Block::Heading("Shoal against the best rival"),
        Block::Text(text.into()),
        Block::Table(tables::rankings(&rankings, labels)),
        Block::Text("Shoal's median divided by that of each rival:".into()),
        Block::Table(tables::pairings(&ranking::pairings(rows), labels)),
    ]
}

fn fewer_connections(comparison: &Comparison) -> Vec<String> {
    let rounds = comparison.cells.iter().flat_map(|cell| cell.rounds.iter().map(move |round| (cell, round)));
    let line = |(cell, round): (&Cell, &Round)| {
        let idle = round.idle.as_ref().filter(|idle| idle.open < idle.wanted)?;
        let reason = idle.failure.as_deref().unwrap_or("the tracker closed the others");
        let (name, cores, number) = (&cell.tracker, cell.cores, round.round);
        Some(format!("{name}, cores: {cores}, round {number}: {} of {}: {reason}", idle.open, idle.wanted))
    };
    rounds.filter_map(line).collect()
}

/// Returns the trackers and the rounds that do not count, each with the reason.
pub(super) fn left_out(rows: &[Row<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let title = &row.tracker.title;
        match &row.outcome {
            Outcome::Absent(reason) => lines.push(format!("{title}: absent: {reason}")),
            Outcome::NotRun => lines.push(format!("{title}: not run: the comparison ended before it")),
            Outcome::Measured(_) | Outcome::Failed(_) => {}
        }
        let cores = tables::cores(row);
        for same in row.left_out.chunk_by(|a, b| a.1 == b.1) {
            let rounds: Vec<String> = same.iter().map(|(round, _)| round.to_string()).collect();
            let (rounds, reason) = (rounds.join(", "), &same[0].1);
            lines.push(format!("{title}, cores: {cores}, round {rounds}: failed: {reason}"));
        }
    }
    lines
}

fn trackers(comparison: &Comparison) -> Vec<String> {
    let line = |tracker: &Tracker| {
        let version = tracker.version.as_deref().unwrap_or("version unknown");
        let ceiling = if tracker.is_ceiling { "; the ceiling, not a tracker" } else { "" };
        let notes: String = tracker.notes.iter().map(|note| format!("; {note}")).collect();
        format!("{} ({}): {version}{ceiling}{notes}", tracker.title, tracker.name)
    };
    comparison.trackers.iter().filter(|tracker| tracker.absent.is_none()).map(line).collect()
}

fn list(heading: &'static str, lines: Vec<String>) -> Vec<Block> {
    if lines.is_empty() { vec![] } else { vec![Block::Heading(heading), Block::List(lines)] }
}
