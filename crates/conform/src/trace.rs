//! What was sent and seen in a case: in words, and in bytes. Keeps the latest of it only.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Most events that are kept of a case.
const EVENTS_MAX: usize = 12;

/// Most bytes of a datagram that are written out.
const HEX_BYTES_MAX: usize = 128;

/// Which way something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the tracker.
    Sent,
    /// From the tracker.
    Seen,
}

/// Something that was sent or seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Which way it went.
    pub direction: Direction,
    /// What it is, for a reader.
    pub words: String,
    /// How many bytes it has.
    pub bytes: usize,
    /// Its bytes, or the first of them.
    pub hex: String,
}

/// The latest events of a case.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    events: VecDeque<Event>,
    is_paused: bool,
}

impl Trace {
    pub(crate) fn add(&mut self, direction: Direction, words: String, bytes: &[u8]) {
        if self.is_paused {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let shown = &bytes[..bytes.len().min(HEX_BYTES_MAX)];
        self.events.push_back(Event { direction, words, bytes: bytes.len(), hex: hex(shown) });
    }

    /// Forgets what comes from now on: the tidying up after a case is no part of it.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub(crate) fn into_events(self) -> Vec<Event> {
        self.events.into()
    }
}

/// Bytes as pairs of hexadecimal digits, in groups of four bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let group = |group: &[u8]| group.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(4).map(group).collect::<Vec<_>>().join(" ")
}
