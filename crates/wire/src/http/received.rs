//! Bencoded replies, decoded for clients. [`reply`](super::reply) encodes them for trackers.

use core::net::{IpAddr, SocketAddr};

use shoal_base::{InfoHash, PeerV4, PeerV6};
use zerocopy::FromBytes;

use super::bencode::{self, BencodeError, Dictionary, List, Value};
use super::reply::{RetryIn, ScrapeFile};

/// A tracker's response to an announce or a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'b, T> {
    /// The reply.
    Reply(T),
    /// The tracker refused the request.
    Failure {
        /// The reason, for the user.
        reason: &'b [u8],
        /// When to try again (BEP 31).
        retry_in: Option<RetryIn>,
    },
}

/// An announce reply. Numbers that trackers may omit are optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedAnnounce<'b> {
    /// Seconds until the next regular announce.
    pub interval_s: u32,
    /// The minimum seconds until any announce.
    pub min_interval_s: Option<u32>,
    /// The number of seeders.
    pub complete: Option<u32>,
    /// The number of leechers.
    pub incomplete: Option<u32>,
    /// The number of completed downloads.
    pub downloaded: Option<u32>,
    /// The peers of the key `peers`.
    pub peers: ReceivedPeers<'b>,
    /// The peers of the key `peers6`.
    pub peers_v6: &'b [PeerV6],
    /// The client's address as the tracker sees it (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// A message for the user.
    pub warning: Option<&'b [u8]>,
    /// The tracker id, which the client sends back with its next announce.
    pub tracker_id: Option<&'b [u8]>,
}

/// Peers in one of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedPeers<'b> {
    /// The compact form (BEP 23).
    Compact(&'b [PeerV4]),
    /// The dictionary form (BEP 3).
    Dictionaries(List<'b>),
}

/// A scrape reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedScrape<'b> {
    files: Dictionary<'b>,
}

/// The reason why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceivedError {
    /// The bytes are not bencoded.
    #[error(transparent)]
    Bencode(#[from] BencodeError),
    /// The bytes are not a dictionary.
    #[error("the reply is not a dictionary")]
    NoDictionary,
    /// A key is missing or has an invalid value.
    #[error("the reply has no valid {key}")]
    Key {
        /// The name of the key.
        key: &'static str,
    },
}

impl<'b> ReceivedAnnounce<'b> {
    /// Decodes the reply to an announce. Fails if the bytes are not such a reply.
    pub fn decode(body: &'b [u8]) -> Result<Received<'b, Self>, ReceivedError> {
        let dictionary = match open(body)? {
            Received::Reply(dictionary) => dictionary,
            Received::Failure { reason, retry_in } => return Ok(Received::Failure { reason, retry_in }),
        };
        let number = |key: &'static str| optional(dictionary, key, number_of);
        let string = |key: &'static str| optional(dictionary, key, Value::bytes);
        Ok(Received::Reply(Self {
            interval_s: number("interval")?.ok_or(ReceivedError::Key { key: "interval" })?,
            min_interval_s: number("min interval")?,
            complete: number("complete")?,
            incomplete: number("incomplete")?,
            downloaded: number("downloaded")?,
            peers: optional(dictionary, "peers", peers_of)?.ok_or(ReceivedError::Key { key: "peers" })?,
            peers_v6: optional(dictionary, "peers6", peers_v6_of)?.unwrap_or_default(),
            external_ip: optional(dictionary, "external ip", ip_of)?,
            warning: string("warning message")?,
            tracker_id: string("tracker id")?,
        }))
    }
}

impl<'b> ReceivedPeers<'b> {
    /// Returns the number of peers.
    pub fn count(self) -> usize {
        match self {
            Self::Compact(peers) => peers.len(),
            Self::Dictionaries(peers) => peers.iter().count(),
        }
    }

    /// Returns the addresses of the peers.
    pub fn addresses(self) -> impl Iterator<Item = SocketAddr> {
        let (compact, list) = match self {
            Self::Compact(peers) => (peers, None),
            Self::Dictionaries(list) => (&[][..], Some(list)),
        };
        let compact = compact.iter().map(|peer| peer.addr().into());
        compact.chain(list.into_iter().flat_map(List::iter).filter_map(peer_of))
    }
}

impl<'b> ReceivedScrape<'b> {
    /// Decodes the reply to a scrape. Fails if the bytes are not such a reply.
    pub fn decode(body: &'b [u8]) -> Result<Received<'b, Self>, ReceivedError> {
        let dictionary = match open(body)? {
            Received::Reply(dictionary) => dictionary,
            Received::Failure { reason, retry_in } => return Ok(Received::Failure { reason, retry_in }),
        };
        let key = ReceivedError::Key { key: "files" };
        let files = dictionary.get(b"files").and_then(Value::dictionary).ok_or(key)?;
        let whole = files.iter().all(|(info_hash, file)| info_hash.len() == 20 && file_of(file).is_some());
        if whole { Ok(Received::Reply(Self { files })) } else { Err(key) }
    }

    /// Returns the torrents and their counts, in the order of the reply.
    pub fn files(self) -> impl Iterator<Item = (InfoHash, ScrapeFile)> {
        self.files
            .iter()
            .filter_map(|(info_hash, file)| Some((InfoHash(info_hash.try_into().ok()?), file_of(file)?)))
    }

    /// Returns the counts of one torrent.
    pub fn file(self, info_hash: InfoHash) -> Option<ScrapeFile> {
        self.files.get(&info_hash.0).and_then(file_of)
    }
}

/// Decodes the dictionary of a reply, or the failure that it reports.
fn open(body: &[u8]) -> Result<Received<'_, Dictionary<'_>>, ReceivedError> {
    let dictionary = bencode::decode(body)?.dictionary().ok_or(ReceivedError::NoDictionary)?;
    let Some(reason) = optional(dictionary, "failure reason", Value::bytes)? else {
        return Ok(Received::Reply(dictionary));
    };
    let retry_in = dictionary.get(b"retry in").and_then(retry_in_of);
    Ok(Received::Failure { reason, retry_in })
}

/// Converts the value of a key with `read`, if the key is present.
fn optional<'b, T>(
    dictionary: Dictionary<'b>,
    key: &'static str,
    read: impl FnOnce(Value<'b>) -> Option<T>,
) -> Result<Option<T>, ReceivedError> {
    dictionary.get(key.as_bytes()).map(|value| read(value).ok_or(ReceivedError::Key { key })).transpose()
}

fn number_of(value: Value<'_>) -> Option<u32> {
    value.integer().and_then(|integer| u32::try_from(integer).ok())
}

fn peers_of(value: Value<'_>) -> Option<ReceivedPeers<'_>> {
    match value {
        Value::Bytes(bytes) => <[PeerV4]>::ref_from_bytes(bytes).ok().map(ReceivedPeers::Compact),
        Value::List(list) if list.iter().all(|peer| peer_of(peer).is_some()) => {
            Some(ReceivedPeers::Dictionaries(list))
        }
        _ => None,
    }
}

fn peers_v6_of(value: Value<'_>) -> Option<&[PeerV6]> {
    value.bytes().and_then(|bytes| <[PeerV6]>::ref_from_bytes(bytes).ok())
}

/// Converts one peer of the dictionary form. BEP 3 also allows host names, which no tracker sends.
fn peer_of(value: Value<'_>) -> Option<SocketAddr> {
    let peer = value.dictionary()?;
    let ip = core::str::from_utf8(peer.get(b"ip")?.bytes()?).ok()?;
    let port = u16::try_from(peer.get(b"port")?.integer()?).ok()?;
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

fn ip_of(value: Value<'_>) -> Option<IpAddr> {
    let bytes = value.bytes()?;
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn retry_in_of(value: Value<'_>) -> Option<RetryIn> {
    match value {
        Value::Bytes(b"never") => Some(RetryIn::Never),
        value => number_of(value).map(RetryIn::Minutes),
    }
}

fn file_of(value: Value<'_>) -> Option<ScrapeFile> {
    let file = value.dictionary()?;
    let number = |key| file.get(key).and_then(number_of);
    Some(ScrapeFile {
        complete: number(b"complete")?,
        // BEP 48 requires this key, but small trackers omit it.
        downloaded: number(b"downloaded").unwrap_or(0),
        incomplete: number(b"incomplete")?,
    })
}
