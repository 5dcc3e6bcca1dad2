//! The TLS state of one connection, which decrypts input and encrypts output.
//!
//! A session owns the keys of the connection and the part of an incomplete record; between two records it owns no
//! buffer. Input is decrypted in place. Opening and sealing cost one allocation each, because rustls returns each
//! record in a new `Vec` and builds each outgoing record in another.

use std::{fmt, mem};

use rustls::HandshakeKind;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};

use crate::tls::Server;

/// The maximum size of a record, RFC 5246, 6.2.3: the header, 2^14 bytes, and 2,048 more that a cipher may add. (RFC
/// 8446, 5.2 allows fewer, which rustls enforces.) More than this is never buffered.
const PARTIAL_BYTES_MAX: usize = 5 + 16_384 + 2_048;

/// The maximum plaintext of a record, RFC 8446, 5.1.
const RECORD_PLAINTEXT_BYTES_MAX: usize = 16_384;

/// The maximum overhead of a record: header, explicit nonce of TLS 1.2, content type of TLS 1.3, tag.
const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 8 + 1 + 16;

/// The memory of a session after its handshake, including keys and allocator overhead: 1.3 KB in isolation
/// (`tests/idle.rs`), up to 4 KB among other connections in a tracker, where the memory of the handshake is not reused.
const ESTABLISHED_BYTES: usize = 4_096;

/// The additional memory during the handshake, for the transcript, key shares and state. Together 4.2 KB were measured.
const HANDSHAKE_BYTES: usize = 1_024;

/// Why a session ended early. The peer causes each failure, so none is worth a log line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The peer sent plain HTTP. No alert was written, so that the reply can be plain HTTP as well.
    #[error("unencrypted HTTP on a TLS port")]
    PlainHttp,
    /// The peer split a handshake message into too many records.
    #[error("a handshake message in too many pieces")]
    TooManyPieces,
    /// The peer violated the protocol, sent an alert, or shares no version, cipher or certificate with the server.
    #[error("TLS: {0}")]
    Protocol(#[from] rustls::Error),
}

/// The kind of a failure, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The peer sent plain HTTP.
    PlainHttp,
    /// The peer shares no version, cipher, key exchange or application protocol with the server, or the server has no
    /// certificate yet.
    Incompatible,
    /// The peer sent an alert, for example because it does not trust the certificate.
    Alert,
    /// The peer violated the protocol.
    Violation,
}

impl Failure {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::PlainHttp => FailureKind::PlainHttp,
            Self::Protocol(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) => {
                FailureKind::Incompatible
            }
            // rustls has no other error for a client that gets no certificate.
            Self::Protocol(rustls::Error::General(text)) if text.starts_with("no server certificate") => {
                FailureKind::Incompatible
            }
            Self::Protocol(rustls::Error::AlertReceived(_)) => FailureKind::Alert,
            Self::TooManyPieces | Self::Protocol(_) => FailureKind::Violation,
        }
    }
}

/// The server side of a TLS connection.
pub struct Session {
    /// Boxed, because the owner of many connections should not reserve this much for each from the start.
    connection: Box<UnbufferedServerConnection>,
    /// Input that rustls cannot consume yet. rustls may have decrypted some of it in place and remember the position,
    /// so every call must get it.
    partial: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The peer will send no more, but can still receive.
    PeerClosed,
    /// Closed by this side, or failed. rustls must not be called any more.
    Closed,
}

impl Session {
    /// Creates the session of a new connection.
    pub fn new(server: &Server) -> Self {
        let connection = UnbufferedServerConnection::new(server.config())
            .expect("only an invalid maximum fragment size fails, and none is configured");
        Self { connection: Box::new(connection), partial: Vec::new(), state: State::Open }
    }

    /// Decrypts input from the peer. Appends the contents to `plaintext`, and responses of the protocol to `output`.
    /// All of `input` is consumed and overwritten. Fails if the session cannot continue. `output` then ends with an
    /// alert, if there is one, which should be sent before the connection is closed. Further calls do nothing.
    pub fn open(
        &mut self,
        input: &mut [u8],
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        // "Any data received after a closure alert has been received MUST be ignored." (RFC 8446, 6.1)
        if self.state != State::Open {
            return Ok(());
        }
        let outcome = if self.partial.is_empty() {
            self.process(input, plaintext, output).map(|used| extend(&mut self.partial, &input[used..]))
        } else {
            let mut bytes = mem::take(&mut self.partial);
            extend(&mut bytes, input);
            self.process(&mut bytes, plaintext, output).map(|used| self.keep_rest(bytes, used))
        };
        if outcome.is_ok() && self.partial.len() <= PARTIAL_BYTES_MAX {
            return Ok(());
        }
        self.state = State::Closed;
        self.partial = Vec::new();
        outcome.and(Err(Failure::TooManyPieces))
    }

    /// Encrypts `plaintext` and appends the records to `output`.
    ///
    /// Nothing is written before the end of the handshake or after [`Self::close`]. TLS 1.2 cannot change keys, so
    /// after 2^24 records the session closes itself, which [`Self::is_closed`] reports.
    pub fn seal(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
        let records = plaintext.len().div_ceil(RECORD_PLAINTEXT_BYTES_MAX);
        let size = plaintext.len() + records * RECORD_OVERHEAD_BYTES_MAX;
        let sealed = self
            .write(output, |writer, output| append(output, size, |space| writer.encrypt(plaintext, space)));
        if sealed.is_err() {
            self.flush(output);
            self.state = State::Closed;
        }
    }

    /// Appends the close_notify alert and closes the session.
    pub fn close(&mut self, output: &mut Vec<u8>) {
        // Before the end of the handshake, no data could be truncated, so no alert is needed.
        let _ = self.write(output, |writer, output| {
            append(output, 2 + RECORD_OVERHEAD_BYTES_MAX, |space| writer.queue_close_notify(space))
        });
        self.state = State::Closed;
    }

    /// Returns whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns whether part of a record has arrived.
    pub const fn is_within_record(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Returns the memory of an idle session in bytes.
    pub const fn idle_bytes(&self) -> usize {
        ESTABLISHED_BYTES
    }

    /// Returns the additional memory for a handshake in progress and for a partial record, in bytes.
    pub fn pending_bytes(&self) -> usize {
        let handshake_bytes = if self.is_handshaking() { HANDSHAKE_BYTES } else { 0 };
        handshake_bytes + self.partial.capacity()
    }

    /// Returns whether the peer resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns whether the peer has closed its side, or the session is closed. Plaintext before the end is complete,
    /// and if only the peer has closed its side, the session can still send.
    pub fn is_closed(&self) -> bool {
        self.state != State::Open
    }

    /// Lets rustls process `bytes`, and returns how many it consumed.
    fn process(
        &mut self,
        bytes: &mut [u8],
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<usize, Failure> {
        if self.connection.protocol_version().is_none() && is_http(bytes) {
            return Err(Failure::PlainHttp);
        }
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut bytes[used..]);
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        plaintext.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    let encoded = append(output, 0, |space| message.encode(space));
                    encoded.map_err(|error| rustls::Error::General(error.to_string()))?;
                }
                Ok(ConnectionState::TransmitTlsData(transmission)) => transmission.done(),
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
                    return Ok(used + discard);
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.state = State::PeerClosed;
                    return Ok(bytes.len());
                }
                Ok(other) => {
                    let state = format!("unexpected state {other:?}");
                    return Err(Failure::Protocol(rustls::Error::General(state)));
                }
                Err(error) => {
                    self.flush(output);
                    return Err(error.into());
                }
            }
            used += discard;
        }
    }

    /// Keeps the unconsumed bytes, in at most about twice their size of memory.
    fn keep_rest(&mut self, mut bytes: Vec<u8>, used: usize) {
        let rest = &bytes[used..];
        if bytes.capacity() > 2 * rest.len() {
            extend(&mut self.partial, rest);
        } else {
            bytes.drain(..used);
            self.partial = bytes;
        }
    }

    /// Calls `write` if rustls permits writing.
    fn write(
        &mut self,
        output: &mut Vec<u8>,
        write: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>) -> Result<(), EncryptError>,
    ) -> Result<(), EncryptError> {
        if self.state == State::Closed || self.is_handshaking() {
            return Ok(());
        }
        match self.connection.process_tls_records(&mut self.partial).state {
            Ok(ConnectionState::WriteTraffic(mut writer)) => write(&mut writer, output),
            // `open` has already processed all other states.
            _ => Err(EncryptError::EncryptExhausted),
        }
    }

    /// Appends the alert that rustls has to send after a failure.
    fn flush(&mut self, output: &mut Vec<u8>) {
        // While there is output, rustls returns it without reading input. It must not be called afterwards, because it
        // would report the same invalid record again.
        while self.connection.wants_write() {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    if append(output, 0, |space| message.encode(space)).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

/// Appends a part of a record. Memory is allocated once for the whole record, by the length in its header, but for at
/// most twice the arrived bytes.
fn extend(partial: &mut Vec<u8>, input: &[u8]) {
    let needed = partial.len() + input.len();
    if needed > partial.capacity() {
        let byte = |index: usize| partial.iter().chain(input).nth(index).copied().unwrap_or(0);
        // RFC 8446, 5.1: the length follows the type and the version.
        let record_bytes = 5 + usize::from(u16::from_be_bytes([byte(3), byte(4)]));
        let wanted = needed.max(record_bytes.min(2 * needed));
        partial.reserve_exact(wanted - partial.len());
    }
    partial.extend_from_slice(input);
}

impl fmt::Debug for Session {
    /// Omits the keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut session = formatter.debug_struct("Session");
        session.field("version", &self.connection.protocol_version());
        session
            .field("partial_bytes", &self.partial.len())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Lets `write` append to `output`, first with `size` bytes of space, then with as many as it requires.
fn append<Error: Shortage>(
    output: &mut Vec<u8>,
    size: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Error>,
) -> Result<(), Error> {
    let start = output.len();
    output.resize(start + size, 0);
    let mut written = write(&mut output[start..]);
    if let Some(InsufficientSizeError { required_size }) = written.as_ref().err().and_then(Shortage::shortage)
    {
        output.resize(start + required_size, 0);
        written = write(&mut output[start..]);
    }
    output.truncate(start + written.as_ref().copied().unwrap_or(0));
    written.map(|_| ())
}

/// An error that may be caused by insufficient space.
trait Shortage {
    fn shortage(&self) -> Option<InsufficientSizeError>;
}

impl Shortage for EncryptError {
    fn shortage(&self) -> Option<InsufficientSizeError> {
        match self {
            Self::InsufficientSize(size) => Some(*size),
            Self::EncryptExhausted => None,
        }
    }
}

impl Shortage for EncodeError {
    fn shortage(&self) -> Option<InsufficientSizeError> {
        match self {
            Self::InsufficientSize(size) => Some(*size),
            Self::AlreadyEncoded => None,
        }
    }
}

/// Returns whether these are the first bytes of an HTTP request, or a prefix of them. The first byte of a TLS record is
/// below 32, so the two cannot be confused, and rustls would refuse a request anyway.
fn is_http(bytes: &[u8]) -> bool {
    let methods = [&b"GET "[..], b"HEAD ", b"POST ", b"OPTIONS "];
    !bytes.is_empty() && methods.iter().any(|method| bytes.starts_with(method) || method.starts_with(bytes))
}
