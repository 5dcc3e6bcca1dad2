//! Whether a tracker answers: one client that asks until it does.

mod http;
mod udp;
mod ws;

use std::io;
use std::net::SocketAddr;

use shoal_types::InfoHash;

use crate::http::Client;

/// A client that asks one tracker.
pub(crate) enum Probe {
    /// BEP 15.
    Udp(udp::Probe),
    /// BEP 3.
    Http(http::Probe),
    /// WebTorrent.
    Ws(ws::Probe),
}

/// What came of asking once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It serves.
    Serves,
    /// It answers, and does not serve the torrent that it was asked for, in its words.
    Refuses(String),
    /// Nothing, as far as anybody can tell.
    Silence,
}

impl Probe {
    /// One that asks over UDP. For a torrent it asks only where the tracker has a white list.
    ///
    /// # Errors
    /// Where there is no socket to be had.
    pub(crate) fn over_udp(tracker: SocketAddr, has_whitelist: bool) -> io::Result<Self> {
        Ok(Self::Udp(udp::Probe::new(tracker, has_whitelist)?))
    }

    /// One that asks over HTTP, by connections of `client`.
    pub(crate) fn over_http(client: Client) -> Self {
        Self::Http(http::Probe::new(client))
    }

    /// One that asks over WebSockets, by connections of `client`.
    pub(crate) fn over_ws(client: Client) -> Self {
        Self::Ws(ws::Probe::new(client))
    }

    /// Asks once. Takes a second at most.
    pub(crate) fn ask(&mut self, info_hash: InfoHash) -> Answer {
        match self {
            Self::Udp(probe) => probe.ask(info_hash),
            Self::Http(probe) => probe.ask(info_hash),
            Self::Ws(probe) => probe.ask(info_hash),
        }
    }

    /// What was asked for, for people.
    pub(crate) fn question(&self) -> &'static str {
        match self {
            Self::Udp(_) => "a connect",
            Self::Http(_) => "an announce",
            Self::Ws(_) => "an announce over a WebSocket",
        }
    }
}
