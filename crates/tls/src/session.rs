//! The TLS state of one connection: ciphertext in, plaintext out, and back.
//!
//! Owns the keys of the connection and, while a record has arrived in part, that part; between two records it owns no
//! buffer. Input is decrypted where it lies. That rustls hands out each record in a `Vec` of its own, and builds each
//! outgoing one in another, is the one allocation that opening and the one that sealing costs.

use std::{fmt, mem};

use rustls::HandshakeKind;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};

use crate::{Failure, Server};

/// The longest record, RFC 5246, 6.2.3: the header, 2^14 bytes, and 2,048 more that a cipher may add. (RFC 8446, 5.2
/// allows fewer, which rustls sees to.) More than this never waits for its rest.
const PARTIAL_BYTES_MAX: usize = 5 + 16_384 + 2_048;

/// The most plaintext of one record, RFC 8446, 5.1.
const RECORD_PLAINTEXT_BYTES_MAX: usize = 16_384;

/// What a record adds to its plaintext at most: header, explicit nonce of TLS 1.2, content type of TLS 1.3, tag.
const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 8 + 1 + 16;

/// What a session takes once its handshake is done, keys and what the allocator adds included: 1.3 KB by itself
/// (`tests/idle.rs`), up to 4 KB between other connections in a tracker, where what the handshake needed is not used again.
const ESTABLISHED_BYTES: usize = 4_096;

/// What it takes beside that before: the transcript, key shares, the state of the handshake. With them 4.2 KB were
/// measured.
const HANDSHAKE_BYTES: usize = 1_024;

/// The server's side of a TLS connection.
pub struct Session {
    /// Boxed, because whoever has many connections would not like each to be this large from the beginning.
    connection: Box<UnbufferedServerConnection>,
    /// Bytes that rustls cannot use up yet. It may have decrypted some of them in place and remember where they are,
    /// so they must be shown to it whenever it is called.
    partial: Vec<u8>,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The peer will send no more, but may be sent to.
    PeerClosed,
    /// Closed by us, or failed. rustls must not be called any more.
    Over,
}

impl Session {
    /// The session of a connection that was just accepted.
    #[must_use]
    pub fn new(server: &Server) -> Self {
        let connection = UnbufferedServerConnection::new(server.config())
            .expect("only a maximum fragment size could be wrong, and none is configured");
        Self { connection: Box::new(connection), partial: Vec::new(), life: Life::Open }
    }

    /// Takes what the peer sent. Appends what it means to `plaintext`, and what must be sent because of it to
    /// `output`. All of `input` is used up, and left in disorder.
    ///
    /// # Errors
    /// When the session cannot go on. `output` then ends with the alert that tells the peer, if there is one; it
    /// should be sent before the connection is closed. Further calls do nothing.
    pub fn open(
        &mut self,
        input: &mut [u8],
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        // "Any data received after a closure alert has been received MUST be ignored." (RFC 8446, 6.1)
        if self.life != Life::Open {
            return Ok(());
        }
        let outcome = if self.partial.is_empty() {
            self.process(input, plaintext, output).map(|used| extend(&mut self.partial, &input[used..]))
        } else {
            let mut bytes = mem::take(&mut self.partial);
            extend(&mut bytes, input);
            self.process(&mut bytes, plaintext, output).map(|used| self.keep(bytes, used))
        };
        if outcome.is_ok() && self.partial.len() <= PARTIAL_BYTES_MAX {
            return Ok(());
        }
        self.life = Life::Over;
        self.partial = Vec::new();
        outcome.and(Err(Failure::TooManyPieces))
    }

    /// Encrypts `plaintext` and appends the records to `output`.
    ///
    /// Nothing is written before the handshake is done, and nothing after [`Self::close`]. TLS 1.2 has no way to
    /// change keys, so after 2^24 records the session closes itself, which [`Self::is_closed`] tells.
    pub fn seal(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
        let records = plaintext.len().div_ceil(RECORD_PLAINTEXT_BYTES_MAX);
        let size = plaintext.len() + records * RECORD_OVERHEAD_BYTES_MAX;
        let sealed = self
            .write(output, |writer, output| append(output, size, |space| writer.encrypt(plaintext, space)));
        if sealed.is_err() {
            self.flush(output);
            self.life = Life::Over;
        }
    }

    /// Appends the alert that tells the peer that nothing more comes. The session is closed then.
    pub fn close(&mut self, output: &mut Vec<u8>) {
        // Before the handshake is done there is nothing that could be cut off, so there is nothing to tell.
        let _ = self.write(output, |writer, output| {
            append(output, 2 + RECORD_OVERHEAD_BYTES_MAX, |space| writer.queue_close_notify(space))
        });
        self.life = Life::Over;
    }

    /// Whether the handshake is still going on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether part of a record has come, and waits for the rest.
    #[must_use]
    pub const fn is_within_record(&self) -> bool {
        !self.partial.is_empty()
    }

    /// How many bytes every session takes that waits for its peer between two records.
    #[must_use]
    pub const fn idle_bytes(&self) -> usize {
        ESTABLISHED_BYTES
    }

    /// How many bytes it takes beside that: for the handshake that is going on, for a record that has come in part.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        let handshake_bytes = if self.is_handshaking() { HANDSHAKE_BYTES } else { 0 };
        handshake_bytes + self.partial.capacity()
    }

    /// Whether the peer resumed an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether the peer will send no more, or the session is over altogether. Plaintext that came before the end is
    /// complete, and if only the peer closed its side, it can still be answered.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.life != Life::Open
    }

    /// Has rustls process `bytes` as far as it can. Says how many of them are used up.
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
                    append(output, 0, |space| message.encode(space)).map_err(encoding)?;
                }
                Ok(ConnectionState::TransmitTlsData(transmission)) => transmission.done(),
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
                    return Ok(used + discard);
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.life = Life::PeerClosed;
                    return Ok(bytes.len());
                }
                Ok(other) => {
                    let state = format!("no rule for the state {other:?}");
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

    /// Keeps what is not used up, in no more memory than about twice of what it takes.
    fn keep(&mut self, mut bytes: Vec<u8>, used: usize) {
        let rest = &bytes[used..];
        if bytes.capacity() > 2 * rest.len() {
            extend(&mut self.partial, rest);
        } else {
            bytes.drain(..used);
            self.partial = bytes;
        }
    }

    /// Has `write` write when rustls allows it.
    fn write(
        &mut self,
        output: &mut Vec<u8>,
        write: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>) -> Result<(), EncryptError>,
    ) -> Result<(), EncryptError> {
        if self.life == Life::Over || self.is_handshaking() {
            return Ok(());
        }
        match self.connection.process_tls_records(&mut self.partial).state {
            Ok(ConnectionState::WriteTraffic(mut writer)) => write(&mut writer, output),
            // Whatever rustls had to send or to say, `open` has taken from it.
            _ => Err(EncryptError::EncryptExhausted),
        }
    }

    /// Appends what rustls has still to send after it failed, which is an alert.
    fn flush(&mut self, output: &mut Vec<u8>) {
        // As long as something is to be sent, rustls hands it out and looks at no input. What comes after that must
        // not be asked for: a broken record would be complained of twice.
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

/// Appends what has come of a record. Memory is taken once for the whole of it, as its head tells, but for no more than
/// twice of what has come; a record is short.
fn extend(partial: &mut Vec<u8>, input: &[u8]) {
    let needed = partial.len() + input.len();
    if needed > partial.capacity() {
        let byte = |index: usize| partial.iter().chain(input).nth(index).copied().unwrap_or(0);
        // RFC 8446, 5.1: the length stands behind the type and the version.
        let record_bytes = 5 + usize::from(u16::from_be_bytes([byte(3), byte(4)]));
        let wanted = needed.max(record_bytes.min(2 * needed));
        partial.reserve_exact(wanted - partial.len());
    }
    partial.extend_from_slice(input);
}

impl fmt::Debug for Session {
    /// Without keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut session = formatter.debug_struct("Session");
        session.field("version", &self.connection.protocol_version());
        session.field("partial_bytes", &self.partial.len()).field("life", &self.life).finish_non_exhaustive()
    }
}

/// Has `write` write behind the end of `output`, where it finds `size` bytes, or as many as it then asks for.
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

/// An error that may be about too little space.
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

fn encoding(error: EncodeError) -> Failure {
    Failure::Protocol(rustls::Error::General(error.to_string()))
}

/// Whether these are the first bytes of a request, perhaps of only a part of it. The first byte of a record is below
/// 32, so there is no doubt, and rustls would refuse it already.
fn is_http(bytes: &[u8]) -> bool {
    let methods = [&b"GET "[..], b"HEAD ", b"POST ", b"OPTIONS "];
    !bytes.is_empty() && methods.iter().any(|method| bytes.starts_with(method) || method.starts_with(bytes))
}
