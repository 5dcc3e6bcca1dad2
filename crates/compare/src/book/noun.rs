//! What a tracker is measured by: of most protocols replies, of WebTorrent every message that it sends.

use super::row::Row;

/// The words for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noun {
    /// One of them.
    pub(super) one: &'static str,
    /// Those that count.
    pub(super) many: &'static str,
    /// Everything that it sent, one by one.
    pub(super) sent: &'static str,
    /// The head of a column with so many a second.
    pub(super) rate: &'static str,
    /// The same, as a share of what the ceiling does.
    pub(super) ceiling_rate: &'static str,
}

const RESPONSE: Noun = Noun {
    one: "response",
    many: "good responses",
    sent: "reply",
    rate: "Responses/s",
    ceiling_rate: "Responses/s to the ceiling",
};

const MESSAGE: Noun = Noun {
    one: "message",
    many: "messages",
    sent: "message",
    rate: "Messages/s",
    ceiling_rate: "Messages/s to the ceiling",
};

impl Noun {
    /// The one for these rows.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row<'a>>) -> Self {
        let is_relayed = |row: &Row<'_>| row.measured().is_some_and(|measured| measured.relays.is_some());
        if rows.into_iter().any(is_relayed) { MESSAGE } else { RESPONSE }
    }
}
