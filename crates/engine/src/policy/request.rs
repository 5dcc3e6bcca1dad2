//! Requests, in terms that all protocols share.

use core::net::IpAddr;

use shoal_access::rules::HeaderMatch;
use shoal_base::{Event, InfoHash, PeerId};

use super::Protocol;
use crate::tokens::Shown;

/// An announce, in terms that all protocols share.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The protocol.
    pub protocol: Protocol,
    /// The address that the request came from, which is canonical (no v4-mapped v6 address).
    pub ip: IpAddr,
    /// The torrent.
    pub info_hash: &'r InfoHash,
    /// The peer id. Clients may omit it over HTTP.
    pub peer_id: Option<&'r PeerId>,
    /// The port on which the client accepts peers; 0 if it accepts none. `None` if peers reach it through the tracker
    /// (WebTorrent).
    pub port: Option<u16>,
    /// The event.
    pub event: Event,
    /// The number of bytes that the client still needs, if it sends one. Clients that do not know it send negative or
    /// huge numbers.
    pub left_bytes: Option<i64>,
    /// The number of peers that the client wants, if it sends one. A negative number leaves it to the tracker.
    pub numwant: Option<i64>,
    /// The part of the request that may hold a token.
    pub shown: Shown<'r>,
    /// The rule about the head of the request, see [`Policy::match_headers`](super::Policy::match_headers).
    pub headers: HeaderMatch,
    /// Whether the front end calls [`check_torrent`](super::Policy::check_torrent) itself if the torrent has no swarm,
    /// provided that the policy [permits all swarms](super::Policy::permits_swarms). The front end looks for the swarm
    /// anyway, which saves most look-ups in lists.
    pub is_torrent_checked_later: bool,
    /// The number of requests for which this one counts towards limits, as the [`Gate`](super::Gate) of the front end
    /// has drawn it.
    pub drawn: u32,
}

impl<'r> Request<'r> {
    /// Returns a regular update with no optional field. A front end sets the fields of its protocol, so that a new
    /// field concerns only the protocols that send it.
    pub fn new(protocol: Protocol, ip: IpAddr, info_hash: &'r InfoHash) -> Self {
        let (event, shown, headers) = (Event::Update, Shown::Nothing, HeaderMatch::default());
        Self {
            protocol,
            ip,
            info_hash,
            peer_id: None,
            port: None,
            event,
            left_bytes: None,
            numwant: None,
            shown,
            headers,
            is_torrent_checked_later: false,
            drawn: 1,
        }
    }
}

/// A scrape, in terms that all protocols share.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeRequest<'r> {
    /// The protocol.
    pub protocol: Protocol,
    /// The canonical address that the request came from.
    pub ip: IpAddr,
    /// The torrents.
    pub torrents: Torrents<'r>,
    /// The part of the request that may hold a token.
    pub shown: Shown<'r>,
    /// The rule about the head of the request.
    pub headers: HeaderMatch,
}

/// The torrents of a scrape.
#[derive(Clone, Copy, Debug)]
pub enum Torrents<'r> {
    /// The torrents with these info hashes.
    Named(&'r [InfoHash]),
    /// All torrents of the tracker.
    All,
}
