//! WebSocket (RFC 6455) in both directions: the handshake, frames, and messages made of them.
//!
//! Owns the shapes on the wire and the rules by which a peer breaks the protocol. [`handshake`] reads and writes the
//! two HTTP heads, [`frame`] single frames, and [`Reader`] puts messages together. Must not read or write a socket,
//! answer anything by itself, or know what a message says. No extension and no subprotocol is ever agreed on: messages
//! are short and mostly encrypted keys, which a compressor costs memory for each connection and saves little.

mod reader;

pub mod frame;
pub mod handshake;

pub use reader::{Event, Read, Reader};

/// Who reads: clients mask what they send and servers do not (RFC 6455, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads what a client sent, which has to be masked.
    Server,
    /// Reads what a server sent, which must not be masked.
    Client,
}

/// Why a connection is closed, as a close frame tells it (RFC 6455, 7.4.1). Only those that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum CloseCode {
    /// All is done.
    Normal = 1000,
    /// The server stops, or has no room for a connection that is not used.
    GoingAway = 1001,
    /// The peer broke the protocol.
    ProtocolError = 1002,
    /// A kind of data that is not taken.
    Unsupported = 1003,
    /// Text that is not UTF-8.
    InvalidPayload = 1007,
    /// The peer broke another rule.
    Policy = 1008,
    /// A message larger than anybody wants to read.
    TooBig = 1009,
    /// Our own fault.
    InternalError = 1011,
    /// The server has too much to do, or too little memory, at the moment.
    TryAgainLater = 1013,
}

impl CloseCode {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// How a peer broke the protocol. The connection is to be closed with the code and the reason, and nothing that follows
/// is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum Violation {
    /// A reserved bit, although no extension was agreed on (5.2).
    ReservedBits,
    /// An opcode that means nothing (5.2).
    Opcode,
    /// A frame of a client that is not masked (5.1).
    Unmasked,
    /// A frame of a server that is masked (5.1).
    Masked,
    /// A control frame in fragments (5.5).
    FragmentedControl,
    /// A control frame of more than 125 bytes (5.5).
    LongControl,
    /// A length in more bytes than it takes (5.2).
    LengthNotMinimal,
    /// A length of 2^63 or more (5.2).
    LengthTooLarge,
    /// A continuation where nothing was begun (5.4).
    NothingToContinue,
    /// A new message before the one in fragments was finished (5.4).
    Interleaved,
    /// A message over the maximum.
    TooBig,
    /// A text that is not UTF-8 (8.1).
    Utf8,
    /// A close frame whose payload is a single byte (5.5.1).
    CloseLength,
    /// A close frame with a code that must not be sent (7.4).
    CloseCode,
    /// A close frame whose reason is not UTF-8 (5.5.1).
    CloseReason,
}

impl Violation {
    /// The code to close with.
    #[must_use]
    pub const fn close_code(self) -> CloseCode {
        match self {
            Self::TooBig => CloseCode::TooBig,
            Self::Utf8 | Self::CloseReason => CloseCode::InvalidPayload,
            Self::ReservedBits
            | Self::Opcode
            | Self::Unmasked
            | Self::Masked
            | Self::FragmentedControl
            | Self::LongControl
            | Self::LengthNotMinimal
            | Self::LengthTooLarge
            | Self::NothingToContinue
            | Self::Interleaved
            | Self::CloseLength
            | Self::CloseCode => CloseCode::ProtocolError,
        }
    }

    /// The words to close with.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "a reserved bit is set, and no extension was agreed on",
            Self::Opcode => "an opcode that means nothing",
            Self::Unmasked => "a frame of a client is not masked",
            Self::Masked => "a frame of a server is masked",
            Self::FragmentedControl => "a control frame in fragments",
            Self::LongControl => "a control frame of more than 125 bytes",
            Self::LengthNotMinimal => "a length in more bytes than it takes",
            Self::LengthTooLarge => "a length of 2^63 or more",
            Self::NothingToContinue => "a continuation of nothing",
            Self::Interleaved => "a new message within another one",
            Self::TooBig => "the message is too large",
            Self::Utf8 => "the text is not UTF-8",
            Self::CloseLength => "a close frame with half a code",
            Self::CloseCode => "a close code that must not be sent",
            Self::CloseReason => "the reason of a close frame is not UTF-8",
        }
    }
}
