//! What can be wrong with a packet, and with a buffer.

use super::{ConnectionId, TransactionId};

/// Why bytes are no request. Only what makes the rest unreadable is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The packet ends before its fixed part does.
    #[error(transparent)]
    Truncated(Truncated),
    /// A connect request without the number that marks it as one.
    #[error("connect with protocol id {found:#x}")]
    WrongProtocolId {
        /// What stands in the place of [`PROTOCOL_ID`](super::PROTOCOL_ID).
        found: u64,
        /// The transaction id of the request.
        transaction_id: TransactionId,
    },
    /// The head is whole, but asks for something that BEP 15 does not know (4 was an IPv6 announce of old).
    #[error("unknown action {action}")]
    UnknownAction {
        /// The action asked for.
        action: u32,
        /// The connection id, by which a tracker tells whether the source deserves an error reply.
        connection_id: ConnectionId,
        /// The transaction id, which that error reply repeats.
        transaction_id: TransactionId,
    },
}

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The packet ends before its fixed part does.
    #[error(transparent)]
    Truncated(Truncated),
    /// The counts of a scrape reply end within an entry.
    #[error("scrape reply ends with {bytes} bytes of an entry")]
    PartialEntry {
        /// Bytes after the last whole entry.
        bytes: usize,
    },
    /// The reply is of a kind that BEP 15 does not know.
    #[error("unknown action {action}")]
    UnknownAction {
        /// The action of the reply.
        action: u32,
    },
}

/// A packet that is too short for what it says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of {bytes} bytes is shorter than {bytes_min}")]
pub struct Truncated {
    /// What is too short.
    pub part: &'static str,
    /// Length of the packet.
    pub bytes: usize,
    /// Length from which on the packet can be read.
    pub bytes_min: usize,
}

/// The caller's buffer cannot hold the packet; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {needed_bytes} bytes does not fit {room_bytes}")]
pub struct NoRoom {
    /// Length of the packet.
    pub needed_bytes: usize,
    /// Length of the buffer.
    pub room_bytes: usize,
}
