//! Errors of packets and buffers.

use super::{ConnectionId, TransactionId};

/// The reason why bytes are not a request. Only faults that make the rest unreadable are errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The packet ends before its fixed part does.
    #[error(transparent)]
    Truncated(Truncated),
    /// A connect request without the number that identifies the protocol.
    #[error("connect with protocol id {found:#x}")]
    WrongProtocolId {
        /// The value in place of [`PROTOCOL_ID`](super::PROTOCOL_ID).
        found: u64,
        /// The transaction id of the request.
        transaction_id: TransactionId,
    },
    /// The head is complete, but has an action that BEP 15 does not define (4 was once an IPv6 announce).
    #[error("unknown action {action}")]
    UnknownAction {
        /// The requested action.
        action: u32,
        /// The connection id, by which a tracker decides whether to send the source an error reply.
        connection_id: ConnectionId,
        /// The transaction id for that error reply.
        transaction_id: TransactionId,
    },
}

/// The reason why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The packet ends before its fixed part does.
    #[error(transparent)]
    Truncated(Truncated),
    /// The counts of a scrape reply end within an entry.
    #[error("scrape reply ends with {bytes} bytes of an entry")]
    PartialEntry {
        /// The number of bytes after the last complete entry.
        bytes: usize,
    },
    /// The reply has an action that BEP 15 does not define.
    #[error("unknown action {action}")]
    UnknownAction {
        /// The action of the reply.
        action: u32,
    },
}

/// A packet that is shorter than its kind requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of {bytes} bytes is shorter than {bytes_min}")]
pub struct Truncated {
    /// The part that is too short.
    pub part: &'static str,
    /// The length of the packet.
    pub bytes: usize,
    /// The minimum length of the packet.
    pub bytes_min: usize,
}

/// The caller's buffer cannot hold the packet. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {needed_bytes} bytes does not fit in a buffer of {room_bytes}")]
pub struct NoRoom {
    /// The length of the packet.
    pub needed_bytes: usize,
    /// The length of the buffer.
    pub room_bytes: usize,
}
