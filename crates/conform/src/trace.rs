//! The messages that a case sent and received, described and as bytes. Only the latest are kept.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

const ENTRIES_MAX: usize = 12;

const HEX_BYTES_MAX: usize = 128;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the tracker.
    Sent,
    /// From the tracker.
    Seen,
}

/// A message of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// Whether the case sent or received it.
    pub direction: Direction,
    /// The message in words.
    #[serde(rename = "words")]
    pub text: String,
    /// Its length.
    pub bytes: usize,
    /// The bytes, or the first of them.
    pub hex: String,
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    entries: VecDeque<TraceEntry>,
    is_paused: bool,
}

impl Trace {
    pub(crate) fn add(&mut self, direction: Direction, text: String, bytes: &[u8]) {
        if self.is_paused {
            return;
        }
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        let shown = &bytes[..bytes.len().min(HEX_BYTES_MAX)];
        self.entries.push_back(TraceEntry { direction, text, bytes: bytes.len(), hex: hex(shown) });
    }

    /// Pauses or resumes recording: the clean-up after a case is not part of it.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub(crate) fn into_entries(self) -> Vec<TraceEntry> {
        self.entries.into()
    }
}

/// Formats bytes as pairs of hexadecimal digits, in groups of four bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let group = |group: &[u8]| group.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(4).map(group).collect::<Vec<_>>().join(" ")
}
