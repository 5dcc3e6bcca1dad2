//! Assembles messages from frames (RFC 6455, 5.4).
//!
//! Nearly all messages take one frame. Such a message is unmasked in place and returned without a copy. Only fragments
//! are buffered, and never more than the maximum size of a message.

use core::str;

use super::frame::{self, FrameHead, Opcode};
use super::{Role, Violation};

/// The buffer for fragments doubles up to this size in bytes.
const DOUBLED_BYTES_MAX: usize = 64 * 1024;

/// Assembles messages. It owns memory only while a message arrives in fragments.
#[derive(Debug, Default)]
pub struct Reader {
    /// The fragments so far. After the last one, they are the returned message until the next call.
    buffer: Vec<u8>,
    /// The kind of the message whose fragments are arriving.
    partial: Option<Kind>,
}

const _: () = assert!(size_of::<Reader>() <= 40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

/// The result of [`Reader::read`].
#[derive(Debug, PartialEq, Eq)]
pub struct Read<'a> {
    /// The number of processed input bytes. 0 if the first frame is incomplete.
    pub used: usize,
    /// The event, or `None` if the input was a fragment or incomplete.
    pub event: Option<Event<'a>>,
}

/// A message or control frame from the peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A binary message, or a text message that is valid UTF-8.
    Message(&'a mut [u8]),
    /// A ping. The reply is a pong with the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The last frame, with or without a code.
    Close(Option<u16>),
}

impl Reader {
    /// Returns a reader for a new connection.
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), partial: None }
    }

    /// Reads the first frame of `input` when it is complete, and unmasks it in place. The caller repeats the call with
    /// the remaining input until no byte is used. The last call also releases the memory of a fragmented message. Fails
    /// as soon as the peer is known to break the protocol: for a frame or message larger than `message_bytes_max`, the
    /// head suffices.
    pub fn read<'a>(
        &'a mut self,
        input: &'a mut [u8],
        role: Role,
        message_bytes_max: usize,
    ) -> Result<Read<'a>, Violation> {
        const NOTHING: Read<'static> = Read { used: 0, event: None };
        if self.partial.is_none() {
            self.buffer = Vec::new();
        }
        let Some(head) = frame::decode(input, role)? else { return Ok(NOTHING) };
        self.check(&head, message_bytes_max)?;
        let payload_bytes = usize::try_from(head.payload_bytes).map_err(|_| Violation::TooBig)?;
        let used = head.head_bytes.saturating_add(payload_bytes);
        let Some(payload) = input.get_mut(head.head_bytes..used) else { return Ok(NOTHING) };
        if let Some(mask) = head.mask {
            frame::apply_mask(mask, payload);
        }
        let event = match head.opcode {
            Opcode::Ping => Some(Event::Ping(payload)),
            Opcode::Pong => Some(Event::Pong(payload)),
            Opcode::Close => Some(Event::Close(close_code(payload)?)),
            Opcode::Text => self.begin(Kind::Text, head.fin, payload, message_bytes_max)?,
            Opcode::Binary => self.begin(Kind::Binary, head.fin, payload, message_bytes_max)?,
            Opcode::Continuation => self.resume(head.fin, payload, message_bytes_max)?,
        };
        Ok(Read { used, event })
    }

    /// Returns whether a message is incomplete after the fragments so far.
    pub const fn is_within_message(&self) -> bool {
        self.partial.is_some()
    }

    /// Takes the fragments of an incomplete message, and whether it is text, for
    /// [`with_fragments`](Self::with_fragments) in another process.
    pub fn take_fragments(&mut self) -> Option<(bool, Vec<u8>)> {
        let kind = self.partial.take()?;
        Some((kind == Kind::Text, core::mem::take(&mut self.buffer)))
    }

    /// Returns a reader that continues after the fragments of another one. If they are longer than a message may be
    /// here, the next fragment is a violation.
    pub fn with_fragments(fragments: Option<(bool, Vec<u8>)>) -> Self {
        let Some((is_text, buffer)) = fragments else { return Self::new() };
        Self { buffer, partial: Some(if is_text { Kind::Text } else { Kind::Binary }) }
    }

    /// Returns the size of the buffer for fragments, in bytes.
    pub const fn buffered_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Checks the rules that a head can break without its payload.
    fn check(&self, head: &FrameHead, message_bytes_max: usize) -> Result<(), Violation> {
        let buffered_bytes = match (head.opcode, self.partial) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return Ok(()),
            (Opcode::Continuation, None) => return Err(Violation::NothingToContinue),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(Violation::Interleaved),
            (Opcode::Continuation, Some(_)) => self.buffer.len(),
            (Opcode::Text | Opcode::Binary, None) => 0,
        };
        let remaining_bytes =
            u64::try_from(message_bytes_max.saturating_sub(buffered_bytes)).unwrap_or(u64::MAX);
        if head.payload_bytes > remaining_bytes { Err(Violation::TooBig) } else { Ok(()) }
    }

    fn begin<'a>(
        &mut self,
        kind: Kind,
        fin: bool,
        payload: &'a mut [u8],
        message_bytes_max: usize,
    ) -> Result<Option<Event<'a>>, Violation> {
        if fin {
            kind.check(payload)?;
            return Ok(Some(Event::Message(payload)));
        }
        self.partial = Some(kind);
        self.append(payload, message_bytes_max);
        Ok(None)
    }

    fn resume(
        &mut self,
        fin: bool,
        payload: &[u8],
        message_bytes_max: usize,
    ) -> Result<Option<Event<'_>>, Violation> {
        self.append(payload, message_bytes_max);
        if !fin {
            return Ok(None);
        }
        if let Some(kind) = self.partial.take() {
            kind.check(&self.buffer)?;
        }
        Ok(Some(Event::Message(&mut self.buffer)))
    }

    /// Appends a fragment. The buffer doubles while it is small, like any vector, and grows by a quarter when it is
    /// larger, but never beyond the maximum size of a message.
    fn append(&mut self, payload: &[u8], message_bytes_max: usize) {
        let needed = self.buffer.len() + payload.len();
        if needed > self.buffer.capacity() {
            let doubled = self.buffer.capacity().saturating_mul(2).min(DOUBLED_BYTES_MAX);
            let capacity = doubled.max(needed + needed / 4).min(message_bytes_max).max(needed);
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        self.buffer.extend_from_slice(payload);
    }
}

impl Kind {
    /// RFC 6455, 8.1: text that is not UTF-8 fails the connection.
    fn check(self, message: &[u8]) -> Result<(), Violation> {
        match self {
            Self::Text => str::from_utf8(message).map(drop).map_err(|_| Violation::Utf8),
            Self::Binary => Ok(()),
        }
    }
}

/// Returns the code of a close frame (5.5.1).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [_] => return Err(Violation::CloseLength),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
    };
    // RFC 6455, 7.4, and the registry that it established, which now contains 1012 to 1014. The codes 1004 to 1006 and
    // 1015 are defined, but must not be sent.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::CloseCode);
    }
    str::from_utf8(reason).map_err(|_| Violation::CloseReason)?;
    Ok(Some(code))
}
