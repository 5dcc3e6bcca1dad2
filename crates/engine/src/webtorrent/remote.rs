//! Messages between clients of different nodes of a cluster.
//!
//! A message is the frame for its receiver, and the data that the receiver's node needs for the delivery. The
//! sender's node has read the content from a client, so the content is that client's. The frame is checked again to
//! be one whole frame, since a partial one would garble all later messages.
//!
//! | Field | Bytes |
//! |---|---|
//! | length of the rest | 4, little-endian |
//! | kind | 1: 8 an answer, 16 an offer |
//! | info hash | 20 |
//! | peer id of the receiver | 20 |
//! | of an offer: source of the sender | 7 |
//! | peer id of the sender | 20 |
//! | length of the offer id, offer id | 1, up to 128 |
//! | the frame | the rest |

use shoal_base::{InfoHash, PeerId};
use shoal_wire::websocket::Role;
use shoal_wire::websocket::frame::{self, Opcode};

/// The kind of an answer. Earlier versions had other kinds from 0 to 10.
const ANSWER: u8 = 8;
const OFFER: u8 = 16;

/// A message from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMessage<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The receiver.
    pub to: PeerId,
    /// The rest.
    pub content: Content<'a>,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// An offer.
    Offer {
        /// The source of the sender, as its node knows it. The message may arrive before the node has introduced the
        /// sender.
        source: [u8; 7],
        /// The sender.
        from: PeerId,
        /// The id of the offer, at most 128 bytes long.
        offer_id: &'a [u8],
        /// The frame for the receiver.
        frame: &'a [u8],
    },
    /// An answer to an offer.
    Answer {
        /// The sender.
        from: PeerId,
        /// The id of the offer, at most 128 bytes long.
        offer_id: &'a [u8],
        /// The frame for the receiver.
        frame: &'a [u8],
    },
}

impl RemoteMessage<'_> {
    /// Appends a message. `write` appends its frame.
    ///
    /// # Panics
    /// Panics if the offer id is longer than 255 bytes, or the frame than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(match self.content {
            Content::Offer { .. } => OFFER,
            Content::Answer { .. } => ANSWER,
        });
        out.extend_from_slice(&self.info_hash.0);
        out.extend_from_slice(&self.to.0);
        if let Content::Offer { source, .. } = self.content {
            out.extend_from_slice(&source);
        }
        let (Content::Offer { from, offer_id, .. } | Content::Answer { from, offer_id, .. }) = self.content;
        out.extend_from_slice(&from.0);
        let length = u8::try_from(offer_id.len()).expect("an offer id is at most 128 bytes long");
        out.push(length);
        out.extend_from_slice(offer_id);
        write(out);
        let length = u32::try_from(out.len() - start - 4).expect("a message is smaller than its mailbox");
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Returns the messages in `bytes`. The last item is `None` if a malformed message ends them.
    pub fn decode_all(bytes: &[u8]) -> impl Iterator<Item = Option<RemoteMessage<'_>>> {
        let mut rest = bytes;
        core::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let message = split(&mut rest).and_then(decode);
            if message.is_none() {
                rest = &[];
            }
            Some(message)
        })
    }
}

/// Removes a message from the front of `bytes`, and returns it without its length.
fn split<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (message, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(message)
}

/// Divides messages into pieces of at most `bytes_max` with whole messages. Skips longer messages.
pub(super) fn pieces(messages: &[u8], bytes_max: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = messages;
    core::iter::from_fn(move || {
        let (mut begin, mut end) = (rest, 0);
        let mut ahead = rest;
        while split(&mut ahead).is_some() {
            let taken = begin.len() - ahead.len();
            if taken <= bytes_max {
                end = taken;
            } else if end > 0 {
                break;
            } else {
                // This message fits no piece.
                begin = ahead;
            }
        }
        let (piece, behind) = begin.split_at(end);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

fn decode(bytes: &[u8]) -> Option<RemoteMessage<'_>> {
    let (&kind, rest) = bytes.split_first()?;
    let (info_hash, rest) = rest.split_first_chunk()?;
    let (to, rest) = rest.split_first_chunk()?;
    let (source, rest) = match kind {
        ANSWER => (None, rest),
        OFFER => rest.split_first_chunk().map(|(source, rest)| (Some(*source), rest))?,
        _ => return None,
    };
    let (from, rest) = rest.split_first_chunk()?;
    let (&length, rest) = rest.split_first()?;
    let (offer_id, frame) = rest.split_at_checked(length.into())?;
    let (from, frame) = (PeerId(*from), whole_text(frame)?);
    let content = match source {
        None => Content::Answer { from, offer_id, frame },
        Some(source) => Content::Offer { source, from, offer_id, frame },
    };
    Some(RemoteMessage { info_hash: InfoHash(*info_hash), to: PeerId(*to), content })
}

/// Returns the bytes if they are one whole text frame to a client.
fn whole_text(bytes: &[u8]) -> Option<&[u8]> {
    let head = frame::decode(bytes, Role::Client).ok()??;
    let length = usize::try_from(head.payload_bytes).ok()?.checked_add(head.head_bytes)?;
    let is_text = || str::from_utf8(&bytes[head.head_bytes..]).is_ok();
    (head.fin && head.opcode == Opcode::Text && length == bytes.len() && is_text()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: InfoHash = InfoHash([1; 20]);

    fn frame() -> Vec<u8> {
        let mut out = Vec::new();
        frame::write_text(&mut out, |out| out.extend_from_slice(b"{\"a\":1}"));
        out
    }

    fn messages(frame: &[u8]) -> Vec<RemoteMessage<'_>> {
        let contents = [
            Content::Offer { source: [5; 7], from: PeerId([4; 20]), offer_id: b"", frame },
            Content::Answer { from: PeerId([3; 20]), offer_id: b"an offer", frame },
        ];
        contents.map(|content| RemoteMessage { info_hash: HASH, to: PeerId([2; 20]), content }).to_vec()
    }

    fn encode(messages: &[RemoteMessage<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            message.encode(&mut bytes, |out| match message.content {
                Content::Offer { frame, .. } | Content::Answer { frame, .. } => out.extend_from_slice(frame),
            });
        }
        bytes
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let frame = frame();
        let messages = messages(&frame);
        let bytes = encode(&messages);
        let read: Vec<_> = RemoteMessage::decode_all(&bytes).collect::<Option<_>>().unwrap();
        assert_eq!(read, messages);
        for end in 1..bytes.len() {
            let read: Vec<_> = RemoteMessage::decode_all(&bytes[..end]).collect();
            let whole = read.iter().flatten().count();
            assert_eq!(read[..whole], messages[..whole].iter().copied().map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn messages_are_divided_at_their_ends() {
        let frame = frame();
        let bytes = encode(&messages(&frame));
        for bytes_max in 0..bytes.len() + 2 {
            let pieces: Vec<_> = pieces(&bytes, bytes_max).collect();
            assert!(pieces.iter().all(|piece| (1..=bytes_max).contains(&piece.len())));
            let read =
                pieces.iter().flat_map(|piece| RemoteMessage::decode_all(piece)).collect::<Option<Vec<_>>>();
            let fits = |message: &RemoteMessage<'_>| encode(&[*message]).len() <= bytes_max;
            let expected: Vec<_> = messages(&frame).into_iter().filter(fits).collect();
            assert_eq!(read, Some(expected), "{bytes_max}");
        }
    }

    #[test]
    fn what_is_not_one_whole_text_frame_is_refused() {
        let whole = frame();
        let mut two = whole.clone();
        two.extend_from_slice(&whole);
        let mut close = Vec::new();
        frame::encode(Opcode::Close, b"", None, &mut close);
        for other in [b"".as_slice(), &whole[..whole.len() - 1], &two, &close, b"\x01\x01a", b"\x81\x01\xff"]
        {
            let bytes = encode(&messages(other)[..1]);
            let read: Vec<_> = RemoteMessage::decode_all(&bytes).collect();
            assert_eq!(read, [None], "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for message in RemoteMessage::decode_all(&bytes).flatten() {
                prop_assert!(encode(&[message]).len() <= bytes.len());
            }
        }
    }
}
