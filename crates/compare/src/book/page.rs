//! What the book says, before it becomes Markdown or HTML: headings, tables and text in their order. All text here is
//! plain; whoever renders it escapes it.

use super::noun::Noun;
use super::round::{Marks, STEAL_MAX};
use super::row::{self, Outcome, Row};
use super::{number, standing};
use super::{relayed, tables};
use crate::result::{Cell, Comparison, Machine, Round};

/// A piece of the book.
pub(super) enum Block {
    /// A section begins.
    Heading(&'static str),
    /// A paragraph.
    Text(String),
    /// A paragraph that must not be overlooked.
    Warning(String),
    /// Names and values.
    Facts(Vec<Fact>),
    /// A table.
    Table(Table),
    /// A list.
    List(Vec<String>),
    /// Where the plots stand.
    Plots,
}

/// A name and its value.
pub(super) struct Fact {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether the value is to be read letter by letter, such as a command.
    pub(super) is_code: bool,
}

/// A table whose first column names the row.
pub(super) struct Table {
    pub(super) head: Vec<&'static str>,
    /// How many columns from the left are words; the others are figures.
    pub(super) columns_of_words: usize,
    pub(super) rows: Vec<Vec<String>>,
}

/// The whole book.
pub(super) fn blocks(comparison: &Comparison) -> Vec<Block> {
    let rows = row::rows(comparison);
    let mut blocks = vec![];
    blocks.extend(warning(comparison));
    blocks.push(Block::Facts(facts(comparison)));
    let is_idle = tables::is_idle(&rows);
    let reading = match (is_idle, relayed::is_relayed(&rows)) {
        (true, _) => idle_reading(),
        (false, true) => relayed_reading(),
        (false, false) => reading(),
    };
    blocks.extend([Block::Heading("Result"), Block::Table(tables::main(&rows)), Block::Text(reading)]);
    blocks.extend(marks_legend(&rows));
    blocks.extend(standing_blocks(&rows));
    blocks.extend([Block::Heading("Plots"), Block::Plots]);
    if !is_idle {
        blocks.extend(load_blocks(&rows));
    }
    blocks.extend(list("Fewer connections than asked for", fewer_connections(comparison)));
    blocks.extend(list("What did not count", left_out(&rows)));
    blocks.extend([Block::Heading("Trackers"), Block::List(trackers(comparison))]);
    blocks.extend([Block::Heading("Load"), Block::Facts(load(comparison))]);
    blocks
}

/// What a load made of the trackers, in detail.
fn load_blocks(rows: &[Row<'_>]) -> Vec<Block> {
    let is_relayed = relayed::is_relayed(rows);
    let mut blocks = if is_relayed {
        vec![Block::Heading("Messages"), Block::Table(relayed::messages(rows))]
    } else {
        vec![Block::Heading("Replies"), Block::Table(tables::replies(rows))]
    };
    if relayed::has_deaf(rows) {
        blocks
            .extend([Block::Heading("Beside connections that are never read"), Block::Text(deaf_reading())]);
        blocks.push(Block::Table(relayed::deaf(rows)));
    }
    if tables::has_connections(rows) {
        blocks.extend([Block::Heading("Connections"), Block::Text(connections_reading())]);
        blocks.push(Block::Table(tables::connections(rows)));
    }
    blocks.extend([Block::Heading("Processors"), Block::Table(tables::processors(rows))]);
    blocks.extend([Block::Heading("Latency at a fixed rate"), Block::Text(latency_reading())]);
    blocks.push(Block::Table(if is_relayed { relayed::latency(rows) } else { tables::latency(rows) }));
    blocks
}

fn warning(comparison: &Comparison) -> Option<Block> {
    comparison.partial.then(|| {
        Block::Warning("Partial: the comparison was ended early, and some rounds are missing.".into())
    })
}

fn facts(comparison: &Comparison) -> Vec<Fact> {
    let fact = |name: &str, value: String, is_code| Fact { name: name.into(), value, is_code };
    let machine = &comparison.machine;
    let rounds = comparison.rounds;
    vec![
        fact("Command", command_line(&comparison.command), true),
        fact("Began", comparison.began.clone(), false),
        fact("Commit", comparison.commit.clone(), true),
        fact("Machine", machine_in_words(machine), false),
        fact("Kernel", machine.kernel.clone(), false),
        fact("CPU mode", comparison.cpu_mode.clone(), false),
        fact("Rounds", format!("{rounds} of each, trackers in turn"), false),
        fact("Complete", if comparison.partial { "no, ended early" } else { "yes" }.into(), false),
    ]
}

fn machine_in_words(machine: &Machine) -> String {
    let memory_gib = super::round::as_f64(machine.memory_bytes >> 20) / 1024.0;
    let memory = number::trimmed(memory_gib);
    let home = machine.virtualised.as_ref().map(|name| format!(", virtual ({name})")).unwrap_or_default();
    format!("{}, {} logical processors, {memory} GiB of memory{home}", machine.processor, machine.processors)
}

/// The command as a shell would take it.
fn command_line(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
    };
    let quoted = |word: &String| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn reading() -> String {
    "Medians over the rounds that count, least and most in parentheses. Responses are good replies only. CPU time is \
     that of the tracker's process, for each reply that it sent (good or not); the user part is the tracker's own \
     code, the rest the kernel's. Memory is what is resident after the fill, 1 MB = 1,000,000 bytes; \"of it fill\" is \
     what the fill added, without what the tracker had before any peer came (its program, its buffers, a white list). \
     p99 is latency at the fixed rate. The ceiling is no tracker: it does nothing but send a reply of the same size."
        .into()
}

fn relayed_reading() -> String {
    "Medians over the rounds that count, least and most in parentheses. Messages are all that the tracker sent: replies to \
     announces, offers and answers that it passed on. CPU time is that of the tracker's process for each of them; the user \
     part is the tracker's own code, the rest the kernel's. Memory is what is resident when all connections stand and every \
     peer has announced itself, 1 MB = 1,000,000 bytes; \"KiB a connection\" is what they added to it, peers included, \
     1 KiB = 1,024 bytes; \"after the load\" is what is resident after the closed loop. p99 of a relay is from when an \
     announce should have left, at the fixed rate, to the arrival of an offer of it. The ceiling is no tracker: it sends \
     each message back, and each has one offer."
        .into()
}

fn deaf_reading() -> String {
    "The round once more, on connections of which some announce themselves once and are never read again, so that what they \
     are offered piles up. Relays of offers to the others are timed: at the fixed rate, and loaded as far as it goes."
        .into()
}

fn idle_reading() -> String {
    "Medians over the rounds that count, least and most in parentheses. Each connection has carried one announce and waits \
     for another: over HTTP of the same peer, of WebTorrent of a peer of its own. Memory is what is resident, of all \
     processes of the tracker: before the first connection, and two seconds after the last. 1 KiB = 1,024 bytes, 1 MB = \
     1,000,000 bytes. What the kernel keeps of a connection is not in it."
        .into()
}

fn connections_reading() -> String {
    "Of the closed loop. A connection that failed (refused, reset, closed too early, too late, no TLS) never counts as a \
     response."
        .into()
}

fn latency_reading() -> String {
    "Requests leave at fixed times, whatever the tracker does; latency counts from when a request should have left, so \
     that a stall shows in full. A request that is lost has no latency: see the loss."
        .into()
}

fn marks_legend(rows: &[Row<'_>]) -> Option<Block> {
    debug_assert!((STEAL_MAX - 0.1).abs() < f64::EPSILON, "the legend names the share");
    let mut seen = Marks::default();
    for measured in rows.iter().filter_map(Row::measured) {
        let latency = measured.latency.as_ref().map(|latency| latency.marks);
        seen = seen.or(measured.marks).or(latency.unwrap_or_default());
    }
    let signs = seen.signs();
    let used = Marks::LEGEND.iter().filter(|(sign, _)| signs.contains(*sign));
    let lines: Vec<String> = used.map(|(sign, meaning)| format!("{sign} {meaning}")).collect();
    (!lines.is_empty()).then_some(Block::List(lines))
}

fn standing_blocks(rows: &[Row<'_>]) -> Vec<Block> {
    let standings = standing::standings(rows);
    if standings.is_empty() || tables::is_idle(rows) {
        return vec![];
    }
    let noun = Noun::of(rows);
    let text = "Shoal's median divided by that of the best rival on the same cores (the one with the least CPU time or \
                memory, or the fastest), and by that of the ceiling on the same back end. Of CPU time and memory less is \
                better, of speed more.";
    vec![
        Block::Heading("Shoal against the best rival"),
        Block::Text(text.into()),
        Block::Table(tables::standing(&standings, noun)),
        Block::Text("Against each rival, Shoal's median divided by that of the other:".into()),
        Block::Table(tables::duels(&standing::duels(rows), noun)),
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

fn left_out(rows: &[Row<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let title = &row.tracker.title;
        match &row.outcome {
            Outcome::Absent(reason) => lines.push(format!("{title}: absent: {reason}")),
            Outcome::NotRun => lines.push(format!("{title}: not run: the comparison ended before its turn")),
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
    let line = |tracker: &crate::result::Tracker| {
        let version = tracker.version.as_deref().unwrap_or("version unknown");
        let ceiling = if tracker.is_ceiling { "; the ceiling, no tracker" } else { "" };
        let notes: String = tracker.notes.iter().map(|note| format!("; {note}")).collect();
        format!("{} ({}): {version}{ceiling}{notes}", tracker.title, tracker.name)
    };
    comparison.trackers.iter().filter(|tracker| tracker.absent.is_none()).map(line).collect()
}

fn load(comparison: &Comparison) -> Vec<Fact> {
    let fact =
        |(name, value): &(String, String)| Fact { name: name.clone(), value: value.clone(), is_code: false };
    comparison.load.iter().map(fact).collect()
}

fn list(heading: &'static str, lines: Vec<String>) -> Vec<Block> {
    if lines.is_empty() { vec![] } else { vec![Block::Heading(heading), Block::List(lines)] }
}
