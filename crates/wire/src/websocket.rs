//! WebSocket (RFC 6455) in both directions: the handshake, frames, and messages.
//!
//! Owns the layouts on the wire and the rules of the protocol. [`handshake`] reads and writes the two HTTP heads,
//! [`frame`] single frames, and [`Reader`] assembles messages. This module must not read or write a socket, reply by
//! itself, or interpret a message. It negotiates no extension and no subprotocol: messages are short and consist mostly
//! of encrypted keys, so a compressor would cost memory for each connection and save little.

mod reader;

pub mod frame;
pub mod handshake;

pub use reader::{Event, Read, Reader};

/// The side that reads. Clients mask their data, and servers do not (RFC 6455, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads data from a client, which must be masked.
    Server,
    /// Reads data from a server, which must not be masked.
    Client,
}

/// The reason for closing a connection, in a close frame (RFC 6455, 7.4.1). Only codes that are sent are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum CloseCode {
    /// The connection has served its purpose.
    Normal = 1000,
    /// The server stops, or needs the capacity of an unused connection.
    GoingAway = 1001,
    /// The peer broke the protocol.
    ProtocolError = 1002,
    /// The data has an unsupported type.
    Unsupported = 1003,
    /// Text that is not UTF-8.
    InvalidPayload = 1007,
    /// The peer broke another rule.
    Policy = 1008,
    /// The message is too large.
    TooBig = 1009,
    /// An internal error of the server.
    InternalError = 1011,
    /// The server is about to stop or restart: the client should connect again (IANA registry of close codes).
    ServiceRestart = 1012,
    /// The server is overloaded or short of memory at the moment.
    TryAgainLater = 1013,
}

impl CloseCode {
    /// Returns the numeric code.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// A violation of the protocol by the peer. The connection must be closed with the code and the reason, without reading
/// more input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum Violation {
    /// A reserved bit is set, although no extension was negotiated (5.2).
    ReservedBits,
    /// An undefined opcode (5.2).
    Opcode,
    /// A client's frame without a mask (5.1).
    Unmasked,
    /// A server's frame with a mask (5.1).
    Masked,
    /// A fragmented control frame (5.5).
    FragmentedControl,
    /// A control frame of more than 125 bytes (5.5).
    LongControl,
    /// A length that is not minimally encoded (5.2).
    LengthNotMinimal,
    /// A length of 2^63 or more (5.2).
    LengthTooLarge,
    /// A continuation frame without a message to continue (5.4).
    NothingToContinue,
    /// A new message before the last fragment of another one (5.4).
    Interleaved,
    /// A message that exceeds the maximum.
    TooBig,
    /// Text that is not UTF-8 (8.1).
    Utf8,
    /// A close frame whose payload is a single byte (5.5.1).
    CloseLength,
    /// A close frame with a code that must not be sent (7.4).
    CloseCode,
    /// A close frame whose reason is not UTF-8 (5.5.1).
    CloseReason,
}

impl Violation {
    /// Returns the code to close with.
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

    /// Returns the reason to close with.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "a reserved bit is set, and no extension was negotiated",
            Self::Opcode => "an undefined opcode",
            Self::Unmasked => "a client's frame is not masked",
            Self::Masked => "a server's frame is masked",
            Self::FragmentedControl => "a fragmented control frame",
            Self::LongControl => "a control frame of more than 125 bytes",
            Self::LengthNotMinimal => "a length that is not minimally encoded",
            Self::LengthTooLarge => "a length of 2^63 or more",
            Self::NothingToContinue => "a continuation without a message to continue",
            Self::Interleaved => "a new message within a fragmented one",
            Self::TooBig => "the message is too large",
            Self::Utf8 => "the text is not UTF-8",
            Self::CloseLength => "a close frame with an incomplete code",
            Self::CloseCode => "a close code that must not be sent",
            Self::CloseReason => "the reason of a close frame is not UTF-8",
        }
    }
}
