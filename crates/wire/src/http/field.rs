//! Header fields that requests and responses share.

use httparse::Header;

use super::{Version, number};

/// Returns the values of all fields with a name, in order.
pub(super) fn values<'h, 'b: 'h>(
    headers: &'h [Header<'b>],
    name: &'h str,
) -> impl DoubleEndedIterator<Item = &'b [u8]> + 'h {
    // Most clients write a name as its standard does, and whole words are compared sooner than single letters.
    let has_name = move |header: &&Header<'b>| header.name == name || header.name.eq_ignore_ascii_case(name);
    headers.iter().filter(has_name).map(|header| header.value)
}

/// Returns the elements of a comma-separated list (RFC 9110, 5.6.1), trimmed and without empty ones.
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
    /// Returns whether the connection persists after the message (RFC 9112, 9.3: `close` takes precedence).
    pub(super) const fn persists(self, version: Version) -> bool {
        match version {
            _ if self.close => false,
            Version::Http10 => self.keep_alive,
            Version::Http11 => true,
        }
    }
}

/// The length of a body as the fields declare it (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Absent,
    Bytes(u64),
    Chunked,
}

/// The fields that determine where a message ends and whether the connection persists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framing {
    pub(super) connection: Connection,
    pub(super) length: Length,
    /// The number of `Host` fields. A request may have at most one.
    pub(super) hosts: usize,
}

/// Reads, in one pass, the fields that determine where a message ends and whether the connection persists.
///
/// This is strict, because an attacker can exploit any difference between a proxy's and a server's reading of these
/// fields.
pub(super) fn framing(headers: &[Header<'_>], version: Version) -> Result<Framing, &'static str> {
    let (mut connection, mut lengths, mut hosts) = (Connection::default(), Lengths::default(), 0);
    for header in headers {
        // Comparing the lengths first skips the comparison of nearly all names.
        match header.name.len() {
            4 if header.name.eq_ignore_ascii_case("host") => hosts += 1,
            10 if header.name.eq_ignore_ascii_case("connection") => {
                for token in elements(header.value) {
                    connection.close |= token.eq_ignore_ascii_case(b"close");
                    connection.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                    connection.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
                }
            }
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                lengths.read_content_length(header.value)?;
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                // Only a single `chunked` is supported.
                if lengths.chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err("transfer-encoding other than chunked");
                }
                lengths.chunked = true;
            }
            _ => {}
        }
    }
    Ok(Framing { connection, length: lengths.length(version)?, hosts })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lengths {
    content_length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    /// Adds a `Content-Length` field. Several equal lengths are tolerated, in one field or in several (RFC 9112, 6.3).
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

    /// Combines the fields. RFC 9112, 6.1 and 6.3: both lengths in one message, or chunks before HTTP/1.1, "ought to be
    /// handled as an error", because request smuggling relies on them.
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
