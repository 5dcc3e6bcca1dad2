//! Messages to connections, in batches of one buffer each.

use shoal_base::transport::stream::Handle;

/// Maximum capacity that an empty batch retains, so that a burst of messages does not hold memory forever.
const RETAINED_BYTES_MAX: usize = 256 * 1024;

/// Length of the header of each message: index and generation of the handle, length, kind.
const HEADER_BYTES: usize = 13;

/// Number of groups of sources whose offers are counted separately in an outbound queue.
pub(crate) const SOURCE_GROUPS: u8 = 8;

/// The kind of a message, which decides its limits in the outbound queue of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A reply to a message of the receiver itself.
    Reply,
    /// The answer of another peer to an offer of the receiver.
    Answer,
    /// The offer of another peer, with the group of its source, see [`Source::group`](crate::Source::group).
    Offer(u8),
    /// A request without content to ping the receiver, see
    /// [`Dispatcher::request_ping`](crate::Dispatcher::request_ping).
    Ping,
}

impl MessageKind {
    fn encode(self) -> u8 {
        match self {
            Self::Offer(group) => group % SOURCE_GROUPS,
            Self::Reply => SOURCE_GROUPS,
            Self::Answer => SOURCE_GROUPS + 1,
            Self::Ping => SOURCE_GROUPS + 2,
        }
    }

    fn decode(byte: u8) -> Self {
        match byte {
            SOURCE_GROUPS => Self::Reply,
            0..SOURCE_GROUPS => Self::Offer(byte),
            byte if byte == SOURCE_GROUPS + 1 => Self::Answer,
            _ => Self::Ping,
        }
    }
}

/// Messages to connections of one worker. The encoding never leaves the process.
#[derive(Debug, Default)]
pub(crate) struct MessageBatch {
    bytes: Vec<u8>,
}

impl MessageBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends a message, unless the batch would exceed `bytes_max`. Returns whether the message was appended.
    pub(crate) fn push(
        &mut self,
        to: Handle,
        kind: MessageKind,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let start = self.bytes.len();
        if start >= bytes_max {
            return false;
        }
        for number in [to.index, to.generation, 0] {
            self.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        self.bytes.push(kind.encode());
        let body = self.bytes.len();
        write(&mut self.bytes);
        let length = u32::try_from(self.bytes.len() - body).ok().filter(|_| self.bytes.len() <= bytes_max);
        match length {
            Some(length) => self.bytes[body - 5..body - 1].copy_from_slice(&length.to_ne_bytes()),
            None => self.bytes.truncate(start),
        }
        length.is_some()
    }

    /// Appends the messages of another batch, except those that do not fit into `bytes_max`. Returns the number of
    /// messages that were left out.
    pub(crate) fn append(&mut self, other: &Self, bytes_max: usize) -> u64 {
        if self.bytes.len() + other.bytes.len() <= bytes_max {
            self.bytes.extend_from_slice(&other.bytes);
            return 0;
        }
        let mut lost = 0;
        for (to, kind, message) in other.iter() {
            if self.bytes.len() + HEADER_BYTES + message.len() <= bytes_max {
                self.push(to, kind, bytes_max, |out| out.extend_from_slice(message));
            } else {
                lost += 1;
            }
        }
        lost
    }

    /// Returns the messages in the order in which they were appended.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, MessageKind, &[u8])> {
        let mut rest = &self.bytes[..];
        core::iter::from_fn(move || {
            let header: &[u8; HEADER_BYTES] = rest.split_off(..HEADER_BYTES)?.try_into().ok()?;
            let number = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
            let handle = Handle { index: number(0)?, generation: number(4)? };
            let message = rest.split_off(..usize::try_from(number(8)?).ok()?)?;
            Some((handle, MessageKind::decode(header[12]), message))
        })
    }

    /// Frees the buffer if the batch is empty.
    pub(crate) fn trim(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > RETAINED_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}
