//! The encoding of messages.
//!
//! A message is the version and the kind, a byte each, the identity of the sender (8 bytes), the body, and the CRC-32
//! of all of that (4 bytes). Numbers are little-endian. A later version may only change kinds and bodies.
//!
//! | Kind | Body |
//! |---|---|
//! | 1, batch | shard (1), sequence number (8), time of departure in ms (8), deltas |
//! | 2, hello | flags (1: ready, 2: whole), time of departure in ms (8), time since the start in ms (8), length of the name (1), name; for each shard, the next sequence number (8) and the digest (8) |
//! | 3, goodbye | nothing |
//! | 4, resend | shard (1), first and last sequence number (8 each) |
//! | 5, gone | shard (1), the first sequence number that can be resent (8) |
//! | 6, fetch | number of the snapshot (4), number of the next part (4), scope (1: 0 addresses, 1 connected) |
//! | 7, part | number of the snapshot (4), number of the part (4), whether it is the last (1), block |
//! | 8, refused | number of the snapshot (4) |
//! | 9, ping | time of departure in ms (8) |
//! | 10, pong | the time of the ping (8) |
//! | 11, relay | a message for clients |
//! | 12, heads: part 0 of a snapshot | number of the snapshot (4); for each node, its identity (8) and the next sequence number of each shard (8 each) |

use bytes::Bytes;

use crate::protocol::api::{NodeId, Scope};
use crate::protocol::subject::{NAME_BYTES_MAX, SHARDS};

/// Maximum sequence number of a batch: a million batches a second for nine years. Sums of a few are far from an
/// overflow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 48;

pub(crate) const VERSION: u8 = 1;

/// Size of a message without its body.
pub(crate) const FRAME_BYTES: usize = 1 + 1 + 8 + 4;

/// Size of a batch without its deltas.
pub(crate) const BATCH_HEAD_BYTES: usize = FRAME_BYTES + 1 + 8 + 8;

/// The error of bytes that are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub struct Malformed;

/// A message. The table above explains the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table above explains the fields")]
pub enum Message<'a> {
    /// Deltas of the sender.
    Batch { shard: usize, sequence: u64, sent_ms: u64, deltas: &'a [u8] },
    /// The state of the sender.
    Hello(Box<Hello<'a>>),
    /// The sender ends.
    Goodbye,
    /// The receiver should resend these batches.
    Resend { shard: usize, first: u64, last: u64 },
    /// The sender only has batches from this one on.
    Gone { shard: usize, first: u64 },
    /// The receiver should send parts of a snapshot from this one on.
    Fetch { snapshot: u32, next: u32, scope: Scope },
    /// A part of a snapshot.
    Part { snapshot: u32, part: u32, is_last: bool, block: &'a [u8] },
    /// The sender exports no such snapshot at present.
    Refused { snapshot: u32 },
    /// The receiver should answer with the same time.
    Ping { at_ms: u64 },
    /// The answer.
    Pong { at_ms: u64 },
    /// A message for clients of the receiver.
    Relay { content: &'a [u8] },
    /// Part 0 of a snapshot.
    Heads { snapshot: u32, nodes: Heads<'a> },
}

/// The batches that a snapshot contains: for each node, the next one of each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads<'a>(&'a [[u8; NODE_HEADS_BYTES]]);

/// Size of the heads of a node in bytes: its identity, and a sequence number for each shard.
pub const NODE_HEADS_BYTES: usize = 8 + 8 * SHARDS;

impl<'a> Heads<'a> {
    /// Creates the heads of these nodes.
    pub const fn new(encoded: &'a [[u8; NODE_HEADS_BYTES]]) -> Self {
        Self(encoded)
    }

    /// Encodes the heads of a node.
    pub fn encode_node(id: NodeId, next: [u64; SHARDS]) -> [u8; NODE_HEADS_BYTES] {
        let mut bytes = [0; NODE_HEADS_BYTES];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip([id.0].into_iter().chain(next)) {
            chunk.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns the nodes and their heads.
    pub fn nodes(self) -> impl Iterator<Item = (NodeId, [u64; SHARDS])> + 'a {
        self.0.iter().map(|bytes| {
            let number =
                |index: usize| bytes[8 * index..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            (NodeId(number(0)), core::array::from_fn(|shard| number(1 + shard)))
        })
    }
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Whether it misses nothing that it knows of.
    pub is_ready: bool,
    /// Whether it knows of nothing that it misses.
    pub is_whole: bool,
    /// The time of departure on its clock, in milliseconds.
    pub sent_ms: u64,
    /// The time since its start, in milliseconds.
    pub uptime_ms: u64,
    /// Its name, at most 64 bytes without control characters.
    pub name: &'a str,
    /// The ends of its streams, by shard.
    pub streams: [StreamHead; SHARDS],
}

/// The end of a stream of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHead {
    /// The sequence number of the next batch.
    pub next: u64,
    /// The digest of all batches before it.
    pub digest: u64,
}

impl StreamHead {
    /// The beginning of every stream.
    pub const FIRST: Self = Self { next: 1, digest: 0 };

    /// Returns the end of the stream after a batch with this checksum.
    #[must_use]
    pub const fn after(self, checksum: u32) -> Self {
        // Knuth's multiplier: every bit of a checksum affects the others, and their order matters.
        let sum = (self.digest ^ checksum as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { next: self.next + 1, digest: sum.rotate_left(29) }
    }
}

/// The outcome of reading a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A message of this version.
    Message {
        /// The claimed sender.
        from: NodeId,
        /// The content.
        message: Message<'a>,
    },
    /// The sender uses another version.
    OtherVersion {
        /// The sender.
        from: NodeId,
    },
}

/// Reads a message. Fails if the bytes are no message of this version, and do not claim another version.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, Malformed> {
    let (checked, checksum) = bytes.split_last_chunk::<4>().ok_or(Malformed)?;
    if crc32fast::hash(checked) != u32::from_le_bytes(*checksum) {
        return Err(Malformed);
    }
    let mut body = Reader::new(checked);
    let [version, kind] = body.array()?;
    let from = NodeId(body.u64()?);
    if version != VERSION {
        return Ok(Decoded::OtherVersion { from });
    }
    let message = match kind {
        1 => Message::Batch {
            shard: body.shard()?,
            sequence: body.sequence()?,
            sent_ms: body.u64()?,
            deltas: body.rest(),
        },
        2 => Message::Hello(Box::new(Hello::read(&mut body)?)),
        3 => Message::Goodbye,
        4 => Message::Resend { shard: body.shard()?, first: body.sequence()?, last: body.sequence()? },
        5 => Message::Gone { shard: body.shard()?, first: body.sequence()? },
        6 => Message::Fetch { snapshot: body.u32()?, next: body.u32()?, scope: body.scope()? },
        7 => Message::Part {
            snapshot: body.u32()?,
            part: body.u32()?,
            is_last: body.array()? == [1],
            block: body.rest(),
        },
        8 => Message::Refused { snapshot: body.u32()? },
        9 => Message::Ping { at_ms: body.u64()? },
        10 => Message::Pong { at_ms: body.u64()? },
        11 => Message::Relay { content: body.rest() },
        12 => {
            let snapshot = body.u32()?;
            let (nodes, []) = body.rest().as_chunks() else { return Err(Malformed) };
            let heads = Heads(nodes);
            if heads.nodes().any(|(_, next)| next.iter().any(|&next| next > SEQUENCE_MAX)) {
                return Err(Malformed);
            }
            Message::Heads { snapshot, nodes: heads }
        }
        _ => return Err(Malformed),
    };
    if !body.is_empty() {
        return Err(Malformed);
    }
    Ok(Decoded::Message { from, message })
}

/// Returns the checksum of an encoded message.
pub fn checksum_of(message: &[u8]) -> u32 {
    message.last_chunk().map_or(0, |checksum| u32::from_le_bytes(*checksum))
}

/// Returns the bytes of a message.
pub fn encode(from: NodeId, message: &Message<'_>) -> Bytes {
    let mut out = Vec::with_capacity(FRAME_BYTES + message.body_bytes());
    out.extend_from_slice(&[VERSION, message.kind()]);
    out.extend_from_slice(&from.0.to_le_bytes());
    message.write_body(&mut out);
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.into()
}

impl Message<'_> {
    const fn kind(&self) -> u8 {
        match self {
            Self::Batch { .. } => 1,
            Self::Hello(_) => 2,
            Self::Goodbye => 3,
            Self::Resend { .. } => 4,
            Self::Gone { .. } => 5,
            Self::Fetch { .. } => 6,
            Self::Part { .. } => 7,
            Self::Refused { .. } => 8,
            Self::Ping { .. } => 9,
            Self::Pong { .. } => 10,
            Self::Relay { .. } => 11,
            Self::Heads { .. } => 12,
        }
    }

    /// Returns the approximate length of the body.
    const fn body_bytes(&self) -> usize {
        match self {
            Self::Batch { deltas: bytes, .. }
            | Self::Part { block: bytes, .. }
            | Self::Relay { content: bytes } => 32 + bytes.len(),
            Self::Heads { nodes, .. } => 32 + nodes.0.as_flattened().len(),
            Self::Hello(_) => 32 + NAME_BYTES_MAX + 16 * SHARDS,
            _ => 32,
        }
    }

    fn write_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Batch { shard, sequence, sent_ms, deltas } => {
                write_shard(*shard, out);
                out.extend_from_slice(&sequence.to_le_bytes());
                out.extend_from_slice(&sent_ms.to_le_bytes());
                out.extend_from_slice(deltas);
            }
            Self::Hello(hello) => hello.write(out),
            Self::Goodbye => {}
            Self::Resend { shard, first, last } => {
                write_shard(*shard, out);
                out.extend_from_slice(&first.to_le_bytes());
                out.extend_from_slice(&last.to_le_bytes());
            }
            Self::Gone { shard, first } => {
                write_shard(*shard, out);
                out.extend_from_slice(&first.to_le_bytes());
            }
            Self::Fetch { snapshot, next, scope } => {
                out.extend_from_slice(&snapshot.to_le_bytes());
                out.extend_from_slice(&next.to_le_bytes());
                out.push(u8::from(*scope == Scope::Connected));
            }
            Self::Part { snapshot, part, is_last, block } => {
                out.extend_from_slice(&snapshot.to_le_bytes());
                out.extend_from_slice(&part.to_le_bytes());
                out.push(u8::from(*is_last));
                out.extend_from_slice(block);
            }
            Self::Refused { snapshot } => out.extend_from_slice(&snapshot.to_le_bytes()),
            Self::Ping { at_ms } | Self::Pong { at_ms } => out.extend_from_slice(&at_ms.to_le_bytes()),
            Self::Relay { content } => out.extend_from_slice(content),
            Self::Heads { snapshot, nodes } => {
                out.extend_from_slice(&snapshot.to_le_bytes());
                out.extend_from_slice(nodes.0.as_flattened());
            }
        }
    }
}

impl<'a> Hello<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let [flags] = reader.array()?;
        let (sent_ms, uptime_ms) = (reader.u64()?, reader.u64()?);
        let [length] = reader.array()?;
        if usize::from(length) > NAME_BYTES_MAX {
            return Err(Malformed);
        }
        let name = str::from_utf8(reader.take(length.into())?).map_err(|_| Malformed)?;
        if name.chars().any(char::is_control) {
            return Err(Malformed);
        }
        let mut streams = [StreamHead::FIRST; SHARDS];
        for stream in &mut streams {
            *stream = StreamHead { next: reader.sequence()?, digest: reader.u64()? };
        }
        let (is_ready, is_whole) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self { is_ready, is_whole, sent_ms, uptime_ms, name, streams })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_ready) | u8::from(self.is_whole) << 1);
        out.extend_from_slice(&self.sent_ms.to_le_bytes());
        out.extend_from_slice(&self.uptime_ms.to_le_bytes());
        let length = u8::try_from(self.name.len()).expect("a name is at most 64 bytes long");
        out.push(length);
        out.extend_from_slice(self.name.as_bytes());
        for StreamHead { next, digest } in &self.streams {
            out.extend_from_slice(&next.to_le_bytes());
            out.extend_from_slice(&digest.to_le_bytes());
        }
    }
}

fn write_shard(shard: usize, out: &mut Vec<u8>) {
    out.push(u8::try_from(shard).expect("there are 16 shards"));
}

#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(*array)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn sequence(&mut self) -> Result<u64, Malformed> {
        self.u64().and_then(|number| if number <= SEQUENCE_MAX { Ok(number) } else { Err(Malformed) })
    }

    fn scope(&mut self) -> Result<Scope, Malformed> {
        match self.array()? {
            [0] => Ok(Scope::Addresses),
            [1] => Ok(Scope::Connected),
            [_] => Err(Malformed),
        }
    }

    fn shard(&mut self) -> Result<usize, Malformed> {
        let [shard] = self.array()?;
        Some(usize::from(shard)).filter(|&shard| shard < SHARDS).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ME: NodeId = NodeId(7);

    /// The heads of two nodes.
    const HEADS: &[[u8; NODE_HEADS_BYTES]] = &[[0; NODE_HEADS_BYTES]; 2];

    fn all() -> Vec<Message<'static>> {
        let streams = core::array::from_fn(|shard| StreamHead { next: shard as u64, digest: 9 });
        let (is_ready, is_whole, name) = (true, false, "a node");
        vec![
            Message::Batch { shard: 15, sequence: 9, sent_ms: 8, deltas: b"deltas" },
            Message::Hello(Box::new(Hello { is_ready, is_whole, sent_ms: 5, uptime_ms: 6, name, streams })),
            Message::Goodbye,
            Message::Resend { shard: 1, first: 2, last: 3 },
            Message::Gone { shard: 1, first: 2 },
            Message::Fetch { snapshot: 1, next: 2, scope: Scope::Addresses },
            Message::Fetch { snapshot: 1, next: 2, scope: Scope::Connected },
            Message::Part { snapshot: 1, part: 2, is_last: true, block: b"block" },
            Message::Refused { snapshot: 1 },
            Message::Ping { at_ms: 1 },
            Message::Pong { at_ms: 1 },
            Message::Relay { content: b"content" },
            Message::Heads { snapshot: 1, nodes: Heads(HEADS) },
        ]
    }

    #[test]
    fn every_message_is_read_as_it_is_written() {
        for message in all() {
            let bytes = encode(ME, &message);
            assert_eq!(decode(&bytes), Ok(Decoded::Message { from: ME, message }));
            assert_eq!(checksum_of(&bytes), crc32fast::hash(&bytes[..bytes.len() - 4]));
        }
    }

    #[test]
    fn a_message_that_is_cut_off_or_changed_is_refused() {
        for message in all() {
            let bytes = encode(ME, &message);
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Err(Malformed), "{message:?}, {end} bytes");
            }
            for position in 0..bytes.len() {
                let mut changed = bytes.to_vec();
                changed[position] ^= 0x10;
                assert_eq!(decode(&changed), Err(Malformed), "{message:?}, byte {position}");
            }
        }
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut bytes = encode(ME, &Message::Goodbye).to_vec();
        bytes[0] = VERSION + 1;
        assert_eq!(decode(&bytes), Err(Malformed));
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decode(&bytes), Ok(Decoded::OtherVersion { from: ME }));
    }

    #[test]
    fn heads_name_the_next_batches_of_each_node() {
        let next = core::array::from_fn(|shard| 100 + shard as u64);
        let encoded = [Heads::encode_node(ME, next), Heads::encode_node(NodeId(8), [1; SHARDS])];
        let read: Vec<_> = Heads::new(&encoded).nodes().collect();
        assert_eq!(read, [(ME, next), (NodeId(8), [1; SHARDS])]);
    }

    #[test]
    fn sequence_numbers_that_no_node_reaches_are_refused() {
        let refused =
            |message: Message<'_>| assert_eq!(decode(&encode(ME, &message)), Err(Malformed), "{message:?}");
        let (above, streams) = (SEQUENCE_MAX + 1, [StreamHead { next: u64::MAX, digest: 0 }; SHARDS]);
        refused(Message::Batch { shard: 0, sequence: above, sent_ms: 0, deltas: b"" });
        refused(Message::Resend { shard: 0, first: 1, last: above });
        refused(Message::Gone { shard: 0, first: above });
        refused(Message::Heads { snapshot: 1, nodes: Heads(&[Heads::encode_node(ME, [above; SHARDS])]) });
        let (is_ready, is_whole) = (true, true);
        refused(Message::Hello(Box::new(Hello {
            is_ready,
            is_whole,
            sent_ms: 5,
            uptime_ms: 6,
            name: "",
            streams,
        })));
    }

    #[test]
    fn digests_depend_on_the_order() {
        let head = StreamHead::FIRST;
        assert_ne!(head.after(1).after(2), head.after(2).after(1));
        assert_eq!(head.after(1).after(2).next, 3);
    }

    proptest! {
        #[test]
        fn any_body_with_a_right_checksum_is_read_or_refused(kind: u8, body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = vec![VERSION, kind % 14];
            bytes.extend_from_slice(&[0; 8]);
            bytes.extend_from_slice(&body);
            let checksum = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            if let Ok(Decoded::Message { from, message, .. }) = decode(&bytes) {
                let again = encode(from, &message);
                prop_assert_eq!(decode(&again).map(|_| ()), Ok(()));
            }
        }
    }
}
