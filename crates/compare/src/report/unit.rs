//! The unit of measurement: replies with most protocols, all sent messages with WebTorrent.

use super::figure::Figure;
use super::row::Row;

#[derive(Clone, Copy, Debug)]
pub(super) struct UnitLabels {
    /// A single unit.
    pub(super) one: &'static str,
    /// The units that count.
    pub(super) many: &'static str,
    /// A unit that the tracker sent, counted or not.
    pub(super) sent: &'static str,
    /// The heading of a column with the rate.
    pub(super) rate: &'static str,
    /// The heading of a column with the rate relative to the ceiling.
    pub(super) ceiling_rate: &'static str,
}

const RESPONSE: UnitLabels = UnitLabels {
    one: "response",
    many: "good responses",
    sent: "reply",
    rate: "Responses/s",
    ceiling_rate: "Responses/s to the ceiling",
};

const MESSAGE: UnitLabels = UnitLabels {
    one: "message",
    many: "messages",
    sent: "message",
    rate: "Messages/s",
    ceiling_rate: "Messages/s to the ceiling",
};

impl UnitLabels {
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row<'a>>) -> Self {
        if rows.into_iter().any(|row| row.has(Figure::OffersPerS)) { MESSAGE } else { RESPONSE }
    }
}
