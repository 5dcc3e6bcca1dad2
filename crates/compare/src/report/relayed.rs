//! The tables of WebTorrent, whose trackers relay messages as well as replying.

use super::figure::Figure::*;
use super::number;
use super::page::Table;
use super::row::Row;
use super::tables::{Column, outcome_word, table, with_rounds};

pub(super) fn is_relayed(rows: &[Row<'_>]) -> bool {
    rows.iter().any(|row| row.has(OffersPerS))
}

pub(super) fn has_slow_readers(rows: &[Row<'_>]) -> bool {
    rows.iter().any(|row| row.has(SlowReaders))
}

pub(super) const MAIN: &[Column] = &[
    Column::spread("Messages/s", ResponsesPerS, number::whole).marked(),
    Column::spread("CPU µs each", WholeUs, number::hundredths).marked(),
    Column::with_error("of it user", UserUs, UserErrorUs).marked(),
    Column::median("Tracker busy", TrackerBusy, number::busy).marked(),
    Column::median("Announces/s", AnnouncesPerS, number::whole).marked(),
    Column::spread("Memory MB", ResidentMb, number::figure),
    Column::spread("KiB a connection", ConnectionKib, number::figure),
    Column::spread("MB after the load", LoadedMb, number::figure),
    Column::spread("p99 µs of a relay at rate", RelayP99Us, number::figure).rated(),
];

pub(super) fn messages(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::median("Announces/s", AnnouncesPerS, number::whole),
        Column::median("Scrapes/s", ScrapesPerS, number::whole),
        Column::median("Offers/s", OffersPerS, number::whole),
        Column::median("of those due missing", OffersMissing, number::percent),
        Column::median("Answers/s", AnswersPerS, number::whole),
        Column::median("of those sent missing", AnswersMissing, number::percent),
        Column::median("Lost", LossShare, number::percent),
        Column::median("Errors", ErrorReplies, number::whole),
        Column::median("Wrong", Wrong, number::whole),
    ];
    with_rounds(table(COLUMNS, rows, outcome_word), rows)
}

pub(super) fn latency(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::spread("Reply p50 µs", P50Us, number::figure).rated(),
        Column::spread("p99 µs", P99Us, number::figure).rated(),
        Column::spread("Relay p50 µs", RelayP50Us, number::figure).rated(),
        Column::spread("p90 µs", RelayP90Us, number::figure).rated(),
        Column::spread("p99 µs", RelayP99Us, number::figure).rated(),
        Column::spread("p99.9 µs", RelayP999Us, number::figure).rated(),
        Column::spread("Max µs", RelayMaxUs, number::figure).rated(),
        Column::median("Lost", RatedLossShare, number::percent),
    ];
    table(COLUMNS, rows, outcome_word)
}

/// Returns the table of the effect of slow readers on other connections.
pub(super) fn slow_readers(rows: &[Row<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        Column::spread("p99 µs without", WithoutSlowP99Us, number::figure),
        Column::spread("with", WithSlowP99Us, number::figure),
        Column::median("ratio", SlowP99Ratio, number::hundredths),
        Column::spread("loaded: p99 µs without", WithoutSlowLoadedP99Us, number::figure),
        Column::spread("with", WithSlowLoadedP99Us, number::figure),
        Column::median("ratio", SlowLoadedP99Ratio, number::hundredths),
        Column::median("Slow readers", SlowReaders, number::whole),
        Column::median("Closed", SlowReadersClosed, number::whole),
        Column::spread("Memory MB", SlowResidentMb, number::figure),
    ];
    table(COLUMNS, rows, outcome_word)
}
