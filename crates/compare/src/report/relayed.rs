//! The tables of WebTorrent, whose trackers relay messages as well as replying.

use super::number;
use super::page::Table;
use super::round::Marks;
use super::row::Row;
use super::spread::Spread;
use super::tables::{outcome_with_reason, outcome_word, table, with_rounds};

/// Returns whether these are measurements of WebTorrent.
pub(super) fn is_relayed(rows: &[Row<'_>]) -> bool {
    rows.iter().filter_map(Row::measured).any(|measured| measured.relays.is_some())
}

/// Returns whether some measurements were made with slow readers.
pub(super) fn has_slow_readers(rows: &[Row<'_>]) -> bool {
    rows.iter().filter_map(Row::measured).any(|measured| measured.slow_readers.is_some())
}

/// Returns the main table.
pub(super) fn main(rows: &[Row<'_>]) -> Table {
    let head = vec![
        "Messages/s",
        "CPU µs each",
        "of it user",
        "Tracker busy",
        "Announces/s",
        "Memory MB",
        "KiB a connection",
        "MB after the load",
        "p99 µs of a relay at rate",
    ];
    let unmarked = Marks::default();
    table(head, rows, outcome_with_reason, |row| {
        let relays = row.relays.as_ref();
        let each_kib = relays.and_then(|relays| relays.each_kib);
        let loaded_mb = relays.and_then(|relays| relays.loaded_mb);
        let latency = row.latency.as_ref();
        let latency_marks = latency.map(|latency| latency.marks).unwrap_or_default();
        let p99_us = latency.and_then(|latency| latency.relay_us).and_then(|[_, _, p99_us, ..]| p99_us);
        vec![
            number::spread(row.responses_per_s, row.marks, number::whole),
            number::spread(row.whole_us, row.marks, number::hundredths),
            number::with_error(row.user_us, row.user_error_us, row.marks),
            number::median(row.tracker_busy, row.marks, number::busy),
            number::median(row.announces_per_s, row.marks, number::whole),
            number::spread(row.resident_mb, unmarked, number::figure),
            number::spread(each_kib, unmarked, number::figure),
            number::spread(loaded_mb, unmarked, number::figure),
            number::spread(p99_us, latency_marks, number::figure),
        ]
    })
}

/// Returns the table of messages, good and bad.
pub(super) fn messages(rows: &[Row<'_>]) -> Table {
    let head = vec![
        "Announces/s",
        "Scrapes/s",
        "Offers/s",
        "of those due missing",
        "Answers/s",
        "of those sent missing",
        "Lost",
        "Errors",
        "Wrong",
    ];
    let unmarked = Marks::default();
    let table = table(head, rows, outcome_word, |row| {
        let Some(relays) = &row.relays else { return vec![] };
        let wrong = row.wrong.zip(relays.wrong).map(|(replies, relays)| replies.plus(relays));
        vec![
            number::median(row.announces_per_s, unmarked, number::whole),
            number::median(row.scrapes_per_s, unmarked, number::whole),
            number::median(relays.offers_per_s, unmarked, number::whole),
            number::median(relays.offers_missing, unmarked, number::percent),
            number::median(relays.answers_per_s, unmarked, number::whole),
            number::median(relays.answers_missing, unmarked, number::percent),
            number::median(row.loss_share, unmarked, number::percent),
            number::median(row.errors, unmarked, number::whole),
            number::median(wrong, unmarked, number::whole),
        ]
    });
    with_rounds(table, rows)
}

/// Returns the table of the open loop: replies and relays.
pub(super) fn latency(rows: &[Row<'_>]) -> Table {
    let head =
        vec!["Reply p50 µs", "p99 µs", "Relay p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "Max µs", "Lost"];
    table(head, rows, outcome_word, |row| {
        let Some(latency) = &row.latency else { return vec!["not measured".into()] };
        let show = |value| number::spread(value, latency.marks, number::figure);
        let mut line = vec![show(latency.p50_us), show(latency.p99_us)];
        line.extend(latency.relay_us.unwrap_or_default().map(show));
        line.push(number::median(latency.loss_share, Marks::default(), number::percent));
        line
    })
}

/// Returns the table of the effect of slow readers on other connections.
pub(super) fn slow_readers(rows: &[Row<'_>]) -> Table {
    let head = vec![
        "p99 µs without",
        "with",
        "ratio",
        "loaded: p99 µs without",
        "with",
        "ratio",
        "Slow readers",
        "Closed",
        "Memory MB",
    ];
    let unmarked = Marks::default();
    table(head, rows, outcome_word, |row| {
        let Some(slow_readers) = &row.slow_readers else { return vec!["not measured".into()] };
        let figure = |value: Option<Spread>| number::spread(value, unmarked, number::figure);
        let three = |[without, with, ratio]: [Option<Spread>; 3]| {
            [figure(without), figure(with), number::median(ratio, unmarked, number::hundredths)]
        };
        let mut line = Vec::from(three(slow_readers.p99_us));
        line.extend(three(slow_readers.loaded_p99_us));
        line.push(number::median(slow_readers.count, unmarked, number::whole));
        line.push(number::median(slow_readers.closed, unmarked, number::whole));
        line.push(figure(slow_readers.resident_mb));
        line
    })
}
