//! Queries of announces and scrapes: what stands behind `?`.
//!
//! Keys are compared as they come, because no client escapes them. Where a key comes twice, the last one wins (but
//! each has to be right): a client appends its own parameters to those that stand in the URL of a torrent. Parameters
//! that nobody needs are skipped unread, also `ip`, `ipv4` and `ipv6`: a peer's claimed address is never believed.

use memchr::memchr;
use shoal_types::{Event, InfoHash, PeerId};

use super::number;
use super::percent::{self, Fault};

/// An announce (BEP 3, "trackers"; BEP 7, 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceQuery {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// What the peer calls itself. BEP 3 asks for it, but nothing depends on it here, so it may be absent or empty; one
    /// that is sent has to be whole.
    pub peer_id: Option<PeerId>,
    /// Where the peer accepts connections; 0 where it accepts none. Clients of the Azureus family say `hide=1` then.
    /// Those of that family and of BitTornado's that accept encrypted connections only say `port=0&cryptoport=N`, which
    /// is read as port N: most peers of today try encryption first. A peer that leaves may name no port.
    pub port: u16,
    /// Bytes that the peer still lacks. Unknown where it is absent, negative, not a number or beyond all measure.
    pub left_bytes: Option<u64>,
    /// What happened. Unknown events count as an update, such as `paused` (BEP 21).
    pub event: Event,
    /// How many peers are wanted, if that is said; out of range becomes the end of the range.
    pub numwant: Option<i64>,
    /// In which form.
    pub form: PeersForm,
    /// Whether the dictionary form may leave out the peer ids.
    pub no_peer_id: bool,
}

/// How peers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeersForm {
    /// As strings of packed addresses (BEP 23, BEP 7). Also for a client that does not say, as BEP 23 suggests.
    #[default]
    Compact,
    /// As a list of dictionaries (BEP 3), for a client that says `compact=0`.
    Dictionaries,
}

/// Why a query is not granted, in words for the user of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A parameter is not there.
    #[error("{parameter} is missing")]
    Missing {
        /// Its name.
        parameter: &'static str,
    },
    /// A parameter is too short or too long.
    #[error("{parameter} is not 20 bytes long")]
    NotTwentyBytes {
        /// Its name.
        parameter: &'static str,
    },
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("{parameter} has a broken percent escape")]
    BrokenEscape {
        /// Its name.
        parameter: &'static str,
    },
    /// The port is not a number, or too large.
    #[error("{parameter} is not a number from 0 to 65535")]
    NotAPort {
        /// Its name.
        parameter: &'static str,
    },
}

/// The parameters of a query as they came, escapes included. A parameter without `=` has an empty value.
#[derive(Clone, Debug)]
pub struct Parameters<'q> {
    rest: &'q [u8],
}

/// The info hashes of a scrape, in their order (BEP 48: one parameter each).
#[derive(Clone, Debug)]
pub struct ScrapeQuery<'q>(Parameters<'q>);

impl AnnounceQuery {
    /// Reads an announce.
    ///
    /// # Errors
    /// [`QueryError`] for the first parameter that is wrong, or else for the first that is missing.
    pub fn decode(query: &[u8]) -> Result<Self, QueryError> {
        let (mut info_hash, mut port, mut crypto_port, mut hides) = (None, None, None, false);
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
        for (key, value) in Parameters::new(query) {
            match key {
                b"info_hash" => info_hash = Some(InfoHash(decode_20("info_hash", value)?)),
                b"peer_id" if value.is_empty() => rest.peer_id = None,
                b"peer_id" => rest.peer_id = Some(PeerId(decode_20("peer_id", value)?)),
                b"port" => port = Some(decode_port("port", value)?),
                b"cryptoport" => crypto_port = Some(value),
                b"hide" => hides = value == b"1",
                b"left" => rest.left_bytes = decode_left(value),
                b"event" => rest.event = decode_event(value),
                b"numwant" => rest.numwant = number::parse_signed(value),
                b"compact" => rest.form = decode_form(value),
                b"no_peer_id" => rest.no_peer_id = value == b"1",
                _ => {}
            }
        }
        let info_hash = info_hash.ok_or(QueryError::Missing { parameter: "info_hash" })?;
        let port = match (port, crypto_port) {
            _ if hides => 0,
            // Elsewhere nobody depends on it, so it may say anything.
            (Some(0), Some(crypto_port)) => decode_port("cryptoport", crypto_port)?,
            (Some(port), _) => port,
            (None, _) if rest.event == Event::Stopped => 0,
            (None, _) => return Err(QueryError::Missing { parameter: "port" }),
        };
        Ok(Self { info_hash, port, ..rest })
    }
}

impl<'q> Parameters<'q> {
    /// The parameters of `query`.
    #[must_use]
    pub const fn new(query: &'q [u8]) -> Self {
        Self { rest: query }
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
                // Names are short: a search of this kind finds their end sooner.
                let equals_sign = parameter.iter().position(|&byte| byte == b'=');
                return Some(split_around(parameter, equals_sign));
            }
        }
    }
}

impl<'q> ScrapeQuery<'q> {
    /// The info hashes of `query`; none of them means a scrape of everything (BEP 48).
    #[must_use]
    pub const fn new(query: &'q [u8]) -> Self {
        Self(Parameters::new(query))
    }
}

impl Iterator for ScrapeQuery<'_> {
    type Item = Result<InfoHash, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, value) = self.0.find(|(key, _)| *key == b"info_hash")?;
        Some(decode_20("info_hash", value).map(InfoHash))
    }
}

/// Returns what stands before and after a separator: everything and nothing where there is none.
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
    let port = number::parse(value).and_then(|port| u16::try_from(port).ok());
    port.ok_or(QueryError::NotAPort { parameter })
}

/// The largest number stands for "unknown" with some clients, and for anything larger here.
fn decode_left(value: &[u8]) -> Option<u64> {
    let left = number::parse_signed(value).filter(|&left| left != i64::MAX)?;
    u64::try_from(left).ok()
}

fn decode_event(value: &[u8]) -> Event {
    match value {
        b"started" => Event::Started,
        b"completed" => Event::Completed,
        b"stopped" => Event::Stopped,
        _ => Event::Update,
    }
}

fn decode_form(value: &[u8]) -> PeersForm {
    if value == b"0" { PeersForm::Dictionaries } else { PeersForm::Compact }
}
