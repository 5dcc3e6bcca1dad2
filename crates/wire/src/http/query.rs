//! Queries of announces and scrapes: the part of the target after `?`.
//!
//! Names and values are compared without their escapes (RFC 3986, 2.3), although no client is known to escape a name or
//! a number. If a name occurs several times, the last value wins, but each must be valid: a client appends its own
//! parameters to those in the tracker URL of a torrent. Unknown parameters are skipped, and so are `ip`, `ipv4` and
//! `ipv6`: a peer's claimed address is never trusted.

use memchr::memchr;
use shoal_base::{Event, InfoHash, PeerId};

use super::number;
use super::percent::{self, Fault, SHORT_BYTES_MAX, unescape};

/// An announce (BEP 3, "trackers"; BEP 7, 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceQuery {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id. BEP 3 requires it, but nothing depends on it here, so it may be absent or empty. A present peer id
    /// must be complete.
    pub peer_id: Option<PeerId>,
    /// The port on which the peer accepts connections; 0 if it accepts none. Clients of the Azureus family then send
    /// `hide=1`. Clients of that family and of BitTornado's that only accept encrypted connections send
    /// `port=0&cryptoport=N`, which counts as port N: most of today's peers try encryption first. A peer that leaves
    /// need not send a port.
    pub port: u16,
    /// The number of bytes that the peer still needs. `None` if the parameter is absent, negative, not a number, or too
    /// large.
    pub left_bytes: Option<u64>,
    /// The event. Unknown events count as an update, such as `paused` (BEP 21).
    pub event: Event,
    /// The number of peers that the client wants, if it sends one. A number out of range becomes the nearest bound.
    pub numwant: Option<i64>,
    /// The form of the peers in the reply.
    pub form: PeersForm,
    /// Whether the dictionary form may omit the peer ids.
    pub no_peer_id: bool,
}

/// The form in which a reply contains peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeersForm {
    /// Strings of packed addresses (BEP 23, BEP 7). Also the default if the client does not choose, as BEP 23 suggests.
    #[default]
    Compact,
    /// A list of dictionaries (BEP 3), for a client that sends `compact=0`.
    Dictionaries,
}

/// The reason why a query is refused, in words for the user of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A parameter is missing.
    #[error("{parameter} is missing")]
    Missing {
        /// The name of the parameter.
        parameter: &'static str,
    },
    /// A parameter is too short or too long.
    #[error("{parameter} is not 20 bytes long")]
    NotTwentyBytes {
        /// The name of the parameter.
        parameter: &'static str,
    },
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("{parameter} has a broken percent escape")]
    BrokenEscape {
        /// The name of the parameter.
        parameter: &'static str,
    },
    /// The port is not a number, or too large.
    #[error("{parameter} is not a number from 0 to 65535")]
    NotAPort {
        /// The name of the parameter.
        parameter: &'static str,
    },
}

/// The parameters of a query, with their escapes. A parameter without `=` has an empty value.
#[derive(Clone, Debug)]
pub struct Parameters<'q> {
    rest: &'q [u8],
}

/// The info hashes of a scrape, in order (BEP 48: one parameter each).
#[derive(Clone, Debug)]
pub struct ScrapeQuery<'q>(Parameters<'q>);

impl AnnounceQuery {
    /// Decodes an announce.
    ///
    /// # Errors
    /// Returns [`QueryError`] for the first invalid parameter, or else for the first missing one.
    pub fn decode(query: &[u8]) -> Result<Self, QueryError> {
        let (mut info_hash, mut port, mut crypto_port, mut is_hidden) = (None, None, None, false);
        let mut rest = Self {
            info_hash: InfoHash([0; 20]),
            peer_id: None,
            port: 0,
            left_bytes: None,
            event: Event::Update,
            numwant: None,
            form: PeersForm::Compact,
            no_peer_id: false,
        };
        for (name, value) in Parameters::new(query) {
            match unescape(name, &mut [0; SHORT_BYTES_MAX]) {
                b"info_hash" => info_hash = Some(InfoHash(decode_20("info_hash", value)?)),
                b"peer_id" if value.is_empty() => rest.peer_id = None,
                b"peer_id" => rest.peer_id = Some(PeerId(decode_20("peer_id", value)?)),
                b"port" => port = Some(decode_port("port", value)?),
                b"cryptoport" => crypto_port = Some(value),
                b"hide" => is_hidden = is_digit(value, b'1'),
                b"left" => rest.left_bytes = decode_bytes(value),
                b"event" => rest.event = decode_event(value),
                b"numwant" => rest.numwant = decode_number(value),
                b"compact" if is_digit(value, b'0') => rest.form = PeersForm::Dictionaries,
                b"compact" => rest.form = PeersForm::Compact,
                b"no_peer_id" => rest.no_peer_id = is_digit(value, b'1'),
                _ => {}
            }
        }
        let info_hash = info_hash.ok_or(QueryError::Missing { parameter: "info_hash" })?;
        let port = match (port, crypto_port) {
            _ if is_hidden => 0,
            // Otherwise nothing depends on `cryptoport`, so any value is accepted.
            (Some(0), Some(crypto_port)) => decode_port("cryptoport", crypto_port)?,
            (Some(port), _) => port,
            (None, _) if rest.event == Event::Stopped => 0,
            (None, _) => return Err(QueryError::Missing { parameter: "port" }),
        };
        Ok(Self { info_hash, port, ..rest })
    }
}

/// Returns the uploaded and downloaded bytes in the query of an announce. Only trackers that credit users need them, so
/// [`AnnounceQuery`] does not contain them.
pub fn transferred(query: &[u8]) -> [Option<u64>; 2] {
    let (mut uploaded, mut downloaded) = (None, None);
    for (name, value) in Parameters::new(query) {
        match unescape(name, &mut [0; SHORT_BYTES_MAX]) {
            b"uploaded" => uploaded = decode_bytes(value),
            b"downloaded" => downloaded = decode_bytes(value),
            _ => {}
        }
    }
    [uploaded, downloaded]
}

impl<'q> Parameters<'q> {
    /// Returns the parameters of `query`.
    pub const fn new(query: &'q [u8]) -> Self {
        Self { rest: query }
    }

    /// Returns whether the name of a parameter, possibly with escapes, is `expected`.
    pub fn is_name(name: &[u8], expected: &[u8]) -> bool {
        name == expected || unescape(name, &mut [0; SHORT_BYTES_MAX]) == expected
    }
}

impl<'q> Iterator for Parameters<'q> {
    type Item = (&'q [u8], &'q [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let (parameter, rest) = split_around(self.rest, memchr(b'&', self.rest));
            self.rest = rest;
            if !parameter.is_empty() {
                // Names are short, so a byte-by-byte search finds their end sooner than `memchr`.
                let equals_sign = parameter.iter().position(|&byte| byte == b'=');
                return Some(split_around(parameter, equals_sign));
            }
        }
    }
}

impl<'q> ScrapeQuery<'q> {
    /// Returns the info hashes of `query`. A query without any requests a full scrape (BEP 48).
    pub const fn new(query: &'q [u8]) -> Self {
        Self(Parameters::new(query))
    }
}

impl Iterator for ScrapeQuery<'_> {
    type Item = Result<InfoHash, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, value) = self.0.find(|(name, _)| Parameters::is_name(name, b"info_hash"))?;
        Some(decode_20("info_hash", value).map(InfoHash))
    }
}

/// Returns the bytes before and after a separator, or all bytes and none without a separator.
fn split_around(bytes: &[u8], separator: Option<usize>) -> (&[u8], &[u8]) {
    separator.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + 1..]))
}

fn decode_20(parameter: &'static str, value: &[u8]) -> Result<[u8; 20], QueryError> {
    percent::decode_20(value).map_err(|fault| match fault {
        Fault::Length => QueryError::NotTwentyBytes { parameter },
        Fault::Escape => QueryError::BrokenEscape { parameter },
    })
}

fn decode_port(parameter: &'static str, value: &[u8]) -> Result<u16, QueryError> {
    let port = number::parse(unescape(value, &mut [0; SHORT_BYTES_MAX]));
    port.and_then(|port| u16::try_from(port).ok()).ok_or(QueryError::NotAPort { parameter })
}

/// Parses a number of bytes. The largest number, which some clients send for "unknown", gives `None`, and so does a
/// larger one.
fn decode_bytes(value: &[u8]) -> Option<u64> {
    let left = decode_number(value).filter(|&left| left != i64::MAX)?;
    u64::try_from(left).ok()
}

fn decode_number(value: &[u8]) -> Option<i64> {
    number::parse_signed(unescape(value, &mut [0; SHORT_BYTES_MAX]))
}

fn is_digit(value: &[u8], digit: u8) -> bool {
    unescape(value, &mut [0; SHORT_BYTES_MAX]) == [digit]
}

fn decode_event(value: &[u8]) -> Event {
    match unescape(value, &mut [0; SHORT_BYTES_MAX]) {
        b"started" => Event::Started,
        b"completed" => Event::Completed,
        b"stopped" => Event::Stopped,
        _ => Event::Update,
    }
}
