//! What header fields of both directions have in common.

use httparse::Header;

use super::{Version, number};

/// The values of all fields of a name, in their order.
pub(super) fn values<'h, 'b: 'h>(
    headers: &'h [Header<'b>],
    name: &'h str,
) -> impl DoubleEndedIterator<Item = &'b [u8]> + 'h {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// The elements of a comma-separated list (RFC 9110, 5.6.1): trimmed, empty ones left out.
pub(super) fn elements(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// The tokens of `Connection` that matter (RFC 9110, 7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

impl Connection {
    /// Adds the tokens of one more field.
    fn read(&mut self, value: &[u8]) {
        for token in elements(value) {
            self.close |= token.eq_ignore_ascii_case(b"close");
            self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// Whether the connection outlives the message (RFC 9112, 9.3: `close` outweighs all else).
    pub(super) const fn persists(self, version: Version) -> bool {
        match version {
            _ if self.close => false,
            Version::Http10 => self.keep_alive,
            Version::Http11 => true,
        }
    }
}

/// What a message says of its body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Absent,
    Bytes(u64),
    Chunked,
}

/// The fields that decide where a message ends and what comes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framing {
    pub(super) connection: Connection,
    pub(super) length: Length,
    /// How often `Host` comes, which a request may name once at most.
    pub(super) hosts: usize,
}

/// Reads in one pass what decides where a message ends and what comes of the connection.
///
/// This is read strictly, because a proxy and a server that disagree on it can be played off against each other.
pub(super) fn framing(headers: &[Header<'_>], version: Version) -> Result<Framing, &'static str> {
    let (mut connection, mut lengths, mut hosts) = (Connection::default(), Lengths::default(), 0);
    for header in headers {
        // Comparing lengths first leaves nearly all names uncompared.
        match header.name.len() {
            4 if header.name.eq_ignore_ascii_case("host") => hosts += 1,
            10 if header.name.eq_ignore_ascii_case("connection") => connection.read(header.value),
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                lengths.read_content_length(header.value)?;
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                lengths.read_transfer_encoding(header.value)?;
            }
            _ => {}
        }
    }
    Ok(Framing { connection, length: lengths.length(version)?, hosts })
}

/// Fields from which the length of a body follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lengths {
    content_length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    /// Adds one more `Content-Length`. Two that agree are tolerated, in one field or in two (RFC 9112, 6.3).
    fn read_content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        for element in value.split(|&byte| byte == b',') {
            let length = number::parse(element.trim_ascii()).filter(|&length| length < u64::MAX);
            let length = length.ok_or("content-length is not a number")?;
            if self.content_length.replace(length).is_some_and(|earlier| earlier != length) {
                return Err("two content-lengths that differ");
            }
        }
        Ok(())
    }

    /// Adds one more `Transfer-Encoding`: nothing but `chunked`, once, is spoken here.
    fn read_transfer_encoding(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err("transfer-encoding other than chunked");
        }
        self.chunked = true;
        Ok(())
    }

    /// What the fields say together. RFC 9112, 6.1 and 6.3: both lengths in one message, or chunks before HTTP/1.1,
    /// "ought to be handled as an error", because that is what smuggled requests are made of.
    fn length(self, version: Version) -> Result<Length, &'static str> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err("both content-length and transfer-encoding"),
            (true, None) if version == Version::Http10 => Err("transfer-encoding in HTTP/1.0"),
            (true, None) => Ok(Length::Chunked),
            (false, Some(bytes)) => Ok(Length::Bytes(bytes)),
            (false, None) => Ok(Length::Absent),
        }
    }
}
