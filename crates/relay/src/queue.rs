//! The outbound queue of one connection, and its limits.
//!
//! The queue of a connection is the content of its buffer plus the bytes that its socket has not accepted. Messages of
//! other clients are dropped beyond 128 KiB, before they are encoded: answers at the full limit, offers at half of it.
//! While the socket has unsent bytes, a quarter is the limit for offers of any group of sources that takes an eighth of the
//! full limit in the queue, and while the connection is put off, of any that takes three eighths. Groups are three bits of the keyed hash of the source. The queue is therefore at most one
//! message longer than the limit, and an empty one accepts a message of any size. Messages are lost before connections.
//! Replies to the client's own messages, and pongs, are counted separately, up to 256 KiB. A client that leaves more
//! unread is disconnected.
//! The client must read the output of one write within six times `http.send_timeout_s`. With the defaults, a client
//! that reads 35 kbit/s stays connected, whatever others send.

use shoal_base::transport::stream::Handle;

use crate::dispatcher::WriteError;
use crate::message::{MessageKind, SOURCE_GROUPS};

/// Limits of the outbound queue of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Number of queued bytes beyond which answers of other peers are dropped. Offers are dropped beyond half of it.
    /// While the socket has unsent bytes, a quarter is the limit for offers of each group of sources that takes an
    /// eighth of the full limit in the queue, and while the connection is put off, of each that takes three eighths. One answer or offer may exceed the limit, so an empty queue accepts a
    /// message of any size.
    pub queue_bytes_max: usize,
    /// Maximum number of queued bytes of replies to the connection's own messages. A connection that leaves more unread
    /// must be closed.
    pub reply_bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { queue_bytes_max: 128 * 1024, reply_bytes_max: 256 * 1024 }
    }
}

/// Number of bytes of replies that each connection may queue, regardless of other connections.
const GUARANTEED_REPLY_BYTES: usize = 2 * 1024;

/// The messages that are queued for one connection.
#[derive(Debug)]
pub(crate) struct OutboundQueue {
    pub(crate) to: Handle,
    /// The queued messages, one after another.
    pub(crate) bytes: Vec<u8>,
    /// Number of those bytes that reply to messages of the connection itself.
    reply_bytes: usize,
    /// Number of those bytes that are offers, by the group of their source.
    offer_bytes: [u32; SOURCE_GROUPS as usize],
    /// Number of earlier bytes that the socket has not accepted. The queue is not flushed until this is zero.
    pub(crate) unsent_bytes: usize,
    /// Whether the connection cannot be written to now, although its socket has room.
    pub(crate) is_put_off: bool,
    /// Whether the connection must be flushed, even if the queue is empty, and pinged.
    pub(crate) is_ping_requested: bool,
}

/// Number of bytes in all outbound queues of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueTotals {
    /// All messages to connections that have unsent bytes or are put off.
    backlog: usize,
    /// Replies to other connections.
    replies: usize,
    /// Messages of other peers to these.
    relayed: usize,
}

impl QueueTotals {
    pub(crate) const fn add(&mut self, queue: &OutboundQueue) {
        if queue.waits() {
            self.backlog += queue.bytes.len();
        } else {
            self.replies += queue.reply_bytes;
            self.relayed += queue.bytes.len() - queue.reply_bytes;
        }
    }

    pub(crate) const fn subtract(&mut self, queue: &OutboundQueue) {
        if queue.waits() {
            self.backlog -= queue.bytes.len();
        } else {
            self.replies -= queue.reply_bytes;
            self.relayed -= queue.bytes.len() - queue.reply_bytes;
        }
    }
}

impl OutboundQueue {
    pub(crate) const fn new(to: Handle) -> Self {
        Self {
            to,
            bytes: Vec::new(),
            reply_bytes: 0,
            offer_bytes: [0; SOURCE_GROUPS as usize],
            unsent_bytes: 0,
            is_put_off: false,
            is_ping_requested: false,
        }
    }

    /// Returns whether the connection must be flushed.
    pub(crate) const fn is_ready(&self) -> bool {
        !self.waits() && (self.is_ping_requested || !self.bytes.is_empty())
    }

    /// Returns whether it is not flushed now.
    pub(crate) const fn waits(&self) -> bool {
        self.is_put_off || self.unsent_bytes > 0
    }

    pub(crate) fn has_room(&self, kind: MessageKind, limits: &QueueLimits) -> bool {
        let queue_bytes = self.bytes.len() - self.reply_bytes + self.unsent_bytes;
        match kind {
            MessageKind::Reply => self.reply_bytes < limits.reply_bytes_max,
            MessageKind::Answer | MessageKind::Ping => queue_bytes < limits.queue_bytes_max,
            MessageKind::Offer(group) => {
                let group_bytes = self.offer_bytes[usize::from(group % SOURCE_GROUPS)] as usize;
                let eighths = match (self.unsent_bytes, self.is_put_off) {
                    (0, false) => 4,
                    (0, true) => 3,
                    _ => 1,
                };
                let eighth = limits.queue_bytes_max / 8;
                queue_bytes < 2 * eighth || queue_bytes < 4 * eighth && group_bytes < eighths * eighth
            }
        }
    }

    /// Checks that the limits of all queues together allow one more message. A few bytes of replies are always allowed,
    /// regardless of other connections and peers. So connections that leave their messages unread, or request much at
    /// once, cost others nothing.
    pub(crate) const fn check_totals(
        &self,
        kind: MessageKind,
        totals: &QueueTotals,
        bytes_max: usize,
    ) -> Result<(), WriteError> {
        let (is_reply, waits) = (matches!(kind, MessageKind::Reply), self.waits());
        let total_bytes = match (waits, is_reply) {
            (true, _) => totals.backlog,
            (false, true) => totals.replies,
            (false, false) => totals.relayed,
        };
        if total_bytes < bytes_max || is_reply && self.reply_bytes < GUARANTEED_REPLY_BYTES {
            Ok(())
        } else if is_reply && waits {
            Err(WriteError::QueueFull)
        } else {
            Err(WriteError::MailboxFull)
        }
    }

    /// Appends a message, without a check of limits.
    pub(crate) fn push(&mut self, kind: MessageKind, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let written = self.bytes.len() - before;
        match kind {
            MessageKind::Reply => self.reply_bytes += written,
            MessageKind::Offer(group) => {
                let bytes = &mut self.offer_bytes[usize::from(group % SOURCE_GROUPS)];
                *bytes = bytes.saturating_add(u32::try_from(written).unwrap_or(u32::MAX));
            }
            MessageKind::Answer | MessageKind::Ping => {}
        }
    }

    /// Resets everything but the handle and the capacity of the buffer.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.reply_bytes, self.unsent_bytes) = (0, 0);
        (self.is_put_off, self.is_ping_requested) = (false, false);
        self.offer_bytes = [0; SOURCE_GROUPS as usize];
    }
}
