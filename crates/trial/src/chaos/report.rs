//! The report: a table for the terminal, and a folder with the result, a page and a plot for each event.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::chaos::account::Account;
use crate::chaos::plot;
use crate::chaos::record::Lane;
use crate::chaos::result::{ChaosResult, EventResult, LaneResult, Latency, PeerCounts};
use crate::chaos::run::Outcome;
use crate::write_file;

impl Lane {
    /// Returns its name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::HttpKeepAlive => "HTTP, keep-alive",
            Self::HttpConnections => "HTTP, connections",
        }
    }
}

/// The columns of the requests.
const HEADER: [&str; 10] = [
    "event",
    "requests by",
    "due",
    "lost",
    "doubled",
    "refused",
    "gap ms",
    "p50 µs, before · during · after",
    "p99 µs, before · during · after",
    "lost because",
];

/// Returns the result as text for a terminal.
pub fn text(result: &ChaosResult) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(HEADER);
    for row in rows(result) {
        let cells = row.into_iter().enumerate().map(|(column, text)| {
            let alignment = if (2..9).contains(&column) { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(alignment)
        });
        table.add_row(cells);
    }
    let mut out = format!("{}\n{table}\n", title(result));
    for event in &result.events {
        let _ = writeln!(out, "{}", verdict(event));
    }
    out + &notes(result) + "\n"
}

/// Writes `result.json`, given as text, a page `README.md`, and a plot for each event into a new folder.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write(outcome: &Outcome, json: &str, folder: &Path) -> Result<()> {
    write_file(folder, "result.json", json)?;
    for (number, (event, (window, answers))) in outcome.result.events.iter().zip(&outcome.answers).enumerate()
    {
        if answers.is_empty() {
            continue;
        }
        write_file(folder, &plot_name(number, event), &plot::answers(event.event, window, answers)?)?;
    }
    write_file(folder, "README.md", &page(&outcome.result))
}

fn page(result: &ChaosResult) -> String {
    let mut out = format!("# {}\n\n", title(result));
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    out += &row(&HEADER.map(str::to_owned));
    out += &row(&HEADER.map(|_| "---".to_owned()));
    rows(result).iter().for_each(|cells| out += &row(cells));
    let _ = writeln!(out, "\n{}\n", notes(result));
    for (number, event) in result.events.iter().enumerate() {
        let _ = writeln!(out, "## {}\n\n{}\n", event.event, verdict(event));
        if !event.lanes.is_empty() {
            let _ = writeln!(out, "![answers]({})\n", plot_name(number, event));
        }
    }
    out
}

fn plot_name(number: usize, event: &EventResult) -> String {
    format!("{:02}-{}.svg", number + 1, event.event)
}

fn title(result: &ChaosResult) -> String {
    let settings = &result.settings;
    let version = result.version.as_ref().map(|version| format!(" ({version})")).unwrap_or_default();
    let rates = settings.rates.iter().map(|(lane, rate)| format!("{rate:.0} by {}", lane.name()));
    let rates: Vec<String> = rates.collect();
    let rates = if rates.is_empty() { "as many as it answers".to_owned() } else { rates.join(", ") };
    format!(
        "{}{version}: {} torrents, {} peers; requests a second: {rates}",
        result.tracker, settings.torrents, settings.peers
    )
}

fn rows(result: &ChaosResult) -> Vec<[String; 10]> {
    let of_event = |event: &EventResult| {
        let lanes = event.lanes.iter().enumerate();
        let lanes = lanes.map(|(index, lane)| row(if index == 0 { event.event.name() } else { "" }, lane));
        let account = event.account.iter().map(|account| row_of_account(event.event.name(), account));
        lanes.chain(account).collect::<Vec<_>>()
    };
    result.events.iter().flat_map(of_event).collect()
}

fn row(event: &str, lane: &LaneResult) -> [String; 10] {
    let three = |of: fn(&Latency) -> u32| {
        let of = |latency: &Latency| match latency.answers {
            0 => "–".to_owned(),
            _ => of(latency).to_string(),
        };
        [&lane.before, &lane.during, &lane.after].map(of).join(" · ")
    };
    let reasons =
        [("connection refused", lane.connect_refused), ("reset", lane.reset), ("closed", lane.closed)];
    let known: u64 = reasons.iter().map(|(_, count)| count).sum();
    let reasons = reasons.into_iter().chain([("no answer", lane.lost.saturating_sub(known))]);
    let reasons = reasons.filter(|(_, count)| *count > 0).map(|(reason, count)| format!("{reason} {count}"));
    [
        event.to_owned(),
        lane.lane.name().to_owned(),
        lane.requests.to_string(),
        lane.lost.to_string(),
        lane.doubled.to_string(),
        lane.refused.to_string(),
        format!("{:.1}", lane.gap_ms),
        three(|latency| latency.p50_us),
        three(|latency| latency.p99_us),
        reasons.collect::<Vec<_>>().join(", "),
    ]
}

fn row_of_account(event: &str, account: &Account) -> [String; 10] {
    let drops = account.drops.iter().map(|(counter, count)| format!("{counter} {count}"));
    let unaccounted = Some(account.unaccounted).filter(|count| *count != 0);
    let reasons = drops.chain(unaccounted.map(|count| format!("unaccounted {count}")));
    let (lost, none) = (account.sent.saturating_sub(account.replied), || "–".to_owned());
    [
        event.to_owned(),
        "UDP, full load".to_owned(),
        account.sent.to_string(),
        lost.to_string(),
        none(),
        account.errors.to_string(),
        none(),
        none(),
        none(),
        reasons.collect::<Vec<_>>().join(", "),
    ]
}

/// Returns the verdict about an event, as a paragraph.
fn verdict(event: &EventResult) -> String {
    let mark = if event.passed() { "passed" } else { "FAILED" };
    let mut words = vec![format!("took {:.0} ms", event.took_ms)];
    words.extend(event.first_answer_ms.map(|ms| format!("first answer after {ms:.0} ms")));
    match (&event.account, event.peers) {
        (Some(account), _) => words.push(format!(
            "{:.0} replies a second; {}/{} frames free; {} unaccounted",
            account.responses_per_s, account.frames_free, account.frames, account.unaccounted
        )),
        (None, Some(PeerCounts { torrents, before: 0, .. })) => {
            words.push(format!("no peers to lose: none were left before it (in {torrents} torrents)"));
        }
        (None, Some(PeerCounts { torrents, before, after })) => {
            words.push(format!("peers {before} → {after} (in {torrents} torrents)"));
        }
        (None, None) => words.push("peers not counted".to_owned()),
    }
    if let Some(websockets) = &event.websockets {
        let codes: Vec<String> =
            websockets.codes.iter().map(|(code, count)| format!("{count} with code {code}")).collect();
        let suffix = if codes.is_empty() {
            String::new()
        } else {
            format!(" ({}; over {:.0} ms)", codes.join(", "), websockets.spread_ms)
        };
        words.push(format!("{} WebSockets ended{suffix}", websockets.ended));
    }
    let drops = event.drops;
    if drops.own + drops.no_port + drops.no_room > 0 {
        words.push(format!(
            "dropped by this host: {} replies at the load, {} at full sockets in all, {} at ports without a socket",
            drops.own, drops.no_room, drops.no_port
        ));
    }
    words.extend(event.state_bytes.map(|bytes| format!("state {bytes} bytes")));
    words.extend(event.note.clone());
    words.extend(event.failure.as_ref().map(|failure| format!("could not be carried out: {failure}")));
    let failed = event.findings.iter().filter(|finding| !finding.passed());
    words.extend(failed.map(|finding| {
        let value = finding.value.map_or("none".to_owned(), |value| format!("{value:.1}"));
        format!("{} is {value}, at most {} is accepted", finding.figure.name(), finding.most)
    }));
    format!("{:10} {mark}: {}", event.event.name(), words.join("; "))
}

/// Returns the remarks that concern the whole run.
fn notes(result: &ChaosResult) -> String {
    let settings = &result.settings;
    let mut words = vec![format!(
        "The fill took {:.1} s. A request counts as lost after {} ms without an answer.",
        settings.fill_s, settings.timeout_ms
    )];
    let accounts = || result.events.iter().filter_map(|event| event.account.as_ref());
    words.push(if accounts().next().is_none() {
        let late_ms = result.load_late_ms;
        format!("The load sent no request more than {late_ms:.1} ms late: gaps shorter than that may be its own.")
    } else {
        let sum = |of: fn(&Account) -> u64| accounts().map(of).sum::<u64>();
        let unaccounted: i64 = accounts().map(|account| account.unaccounted).sum();
        let (sent, replied) = (sum(|account| account.sent), sum(|account| account.replied));
        let events = result.events.len();
        format!("In {events} events, {sent} requests had {replied} replies, and {unaccounted} were unaccounted for.")
    });
    words.extend(
        settings.most_per_s.map(|most| format!("In a closed loop over UDP it answered {most:.0} a second.")),
    );
    words.extend(
        settings.resident_bytes.map(|bytes| format!("Its resident memory was {} MB.", bytes / 1_000_000)),
    );
    if result.malformed > 0 {
        words.push(format!("{} replies belonged to no request, or were malformed.", result.malformed));
    }
    words.extend(result.failure.as_ref().map(|failure| format!("The run ended early: {failure}.")));
    words.push(if result.passed() { "PASSED".to_owned() } else { "FAILED".to_owned() });
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_after_the_loss_of_all_peers_says_so() {
        let with = |before| {
            let peers = Some(PeerCounts { torrents: 7, before, after: 0 });
            verdict(&EventResult { peers, ..EventResult::default() })
        };
        assert!(with(0).contains("no peers to lose"), "{}", with(0));
        assert!(with(5).contains("peers 5 → 0 (in 7 torrents)"), "{}", with(5));
    }
}
