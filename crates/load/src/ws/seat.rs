//! A place for a connection, and what a WebSocket has beside it.

use shoal_wire::websocket::Reader;

use crate::connection::Connection;
use crate::tally::Kind;

/// A place for a connection.
pub(super) struct Seat {
    pub(super) connection: Connection<Asked>,
    pub(super) reader: Reader,
    pub(super) role: Role,
    /// Whether its connection is a WebSocket by now.
    pub(super) is_upgraded: bool,
    /// Whether a ping was answered.
    pub(super) has_ponged: bool,
    /// Announces and answers so far, and replies to announces: by their numbers a reply is known to be to an answer, where
    /// a tracker replies to those too.
    pub(super) said: u64,
    pub(super) replied: u64,
    /// How many of its peers the tracker has heard of, while it is filled.
    pub(super) filled: usize,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its peers announce themselves again and again.
    Trader,
    /// It does nothing, or announces itself once.
    Held,
    /// It announces itself once and is never read again.
    Deaf,
}

/// What was asked, as far as the reply is checked against it. There is one request under way on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// When the request should have left.
    pub(super) due_ns: u64,
    /// When it was written.
    pub(super) asked_ns: u64,
    /// How many announces and answers were sent before it.
    pub(super) place: u64,
    /// The torrent of an announce.
    pub(super) torrent: u32,
    /// Info hashes of a scrape.
    pub(super) hashes: u8,
    pub(super) offers: u16,
    /// Whether nothing is left to download.
    pub(super) is_seeder: bool,
    /// Whether the peer stays.
    pub(super) stays: bool,
    pub(super) kind: Kind,
}

impl Seat {
    pub(super) fn vacant(role: Role, line: usize) -> Self {
        Self {
            connection: Connection::vacant(line, 1),
            reader: Reader::new(),
            role,
            is_upgraded: false,
            has_ponged: false,
            said: 0,
            replied: 0,
            filled: 0,
        }
    }
}
