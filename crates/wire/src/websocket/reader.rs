//! Messages out of frames (RFC 6455, 5.4).
//!
//! A message in one frame, as nearly all are, is unmasked where it lies and handed out without a copy. Only the
//! fragments of one that comes in several are kept, and never more of them than the maximum of a message.

use core::str;

use super::frame::{self, FrameHead, Opcode};
use super::{Role, Violation};

/// Up to so many bytes, room for fragments is doubled.
const DOUBLED_BYTES_MAX: usize = 64 * 1024;

/// Puts messages together. Owns memory only while a message comes in fragments.
#[derive(Debug, Default)]
pub struct Reader {
    /// Fragments so far. After the last one they are the message that was handed out, until the next call.
    kept: Vec<u8>,
    /// What the message is whose fragments come.
    within: Option<Kind>,
}

const _: () = assert!(size_of::<Reader>() <= 40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

/// What a call of [`Reader::read`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Read<'a> {
    /// How many bytes of the input are done with. 0 where the first frame is not whole yet.
    pub used: usize,
    /// What came with them; nothing where they were a fragment, and where they are none.
    pub event: Option<Event<'a>>,
}

/// What a peer says.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message of bytes, or of text that is UTF-8.
    Message(&'a mut [u8]),
    /// To be answered by a pong with the same payload.
    Ping(&'a [u8]),
    /// A sign of life.
    Pong(&'a [u8]),
    /// Its last frame, with a code or without.
    Close(Option<u16>),
}

impl Reader {
    /// Before the first frame.
    #[must_use]
    pub const fn new() -> Self {
        Self { kept: Vec::new(), within: None }
    }

    /// Reads the first frame of `input` once it is whole, and unmasks it where it lies. It is to be called with what
    /// follows until it uses nothing: by then it has given back the memory of a message that came in fragments.
    ///
    /// # Errors
    /// [`Violation`] as soon as the peer can be seen to break the protocol; of a frame or message over
    /// `message_bytes_max`, by its head.
    pub fn read<'a>(
        &'a mut self,
        input: &'a mut [u8],
        role: Role,
        message_bytes_max: usize,
    ) -> Result<Read<'a>, Violation> {
        const NOTHING: Read<'static> = Read { used: 0, event: None };
        if self.within.is_none() {
            self.kept = Vec::new();
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
            Opcode::Continuation => self.go_on(head.fin, payload, message_bytes_max)?,
        };
        Ok(Read { used, event })
    }

    /// Whether the fragments so far want another one.
    #[must_use]
    pub const fn is_within_message(&self) -> bool {
        self.within.is_some()
    }

    /// How much memory it holds beside itself.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// What a head tells without its payload.
    fn check(&self, head: &FrameHead, message_bytes_max: usize) -> Result<(), Violation> {
        let kept_bytes = match (head.opcode, self.within) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return Ok(()),
            (Opcode::Continuation, None) => return Err(Violation::NothingToContinue),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(Violation::Interleaved),
            (Opcode::Continuation, Some(_)) => self.kept.len(),
            (Opcode::Text | Opcode::Binary, None) => 0,
        };
        let room = u64::try_from(message_bytes_max.saturating_sub(kept_bytes)).unwrap_or(u64::MAX);
        if head.payload_bytes > room { Err(Violation::TooBig) } else { Ok(()) }
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
        self.within = Some(kind);
        self.keep(payload, message_bytes_max);
        Ok(None)
    }

    fn go_on(
        &mut self,
        fin: bool,
        payload: &[u8],
        message_bytes_max: usize,
    ) -> Result<Option<Event<'_>>, Violation> {
        self.keep(payload, message_bytes_max);
        if !fin {
            return Ok(None);
        }
        if let Some(kind) = self.within.take() {
            kind.check(&self.kept)?;
        }
        Ok(Some(Event::Message(&mut self.kept)))
    }

    /// Takes in a fragment. Room for short messages is doubled as that of any vector, that for longer ones grows by a
    /// quarter; never beyond what a message may have.
    fn keep(&mut self, payload: &[u8], message_bytes_max: usize) {
        let needed = self.kept.len() + payload.len();
        if needed > self.kept.capacity() {
            let doubled = self.kept.capacity().saturating_mul(2).min(DOUBLED_BYTES_MAX);
            let room = doubled.max(needed + needed / 4).min(message_bytes_max).max(needed);
            self.kept.reserve_exact(room - self.kept.len());
        }
        self.kept.extend_from_slice(payload);
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

/// The code of a close frame (5.5.1).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [_] => return Err(Violation::CloseLength),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
    };
    // RFC 6455, 7.4, and the registry it founded, which has 1012 to 1014 by now. 1004 to 1006 and 1015 mean something,
    // but must not be sent.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::CloseCode);
    }
    str::from_utf8(reason).map_err(|_| Violation::CloseReason)?;
    Ok(Some(code))
}
