//! The real clients, each told to take peers from the tracker alone.
//!
//! This module owns the knowledge of every client's options. What a client does over the network is the client's
//! own business, and nothing is worked around here.

mod aria2;
mod libtorrent;
mod rtorrent;
mod transmission;
mod webtorrent;

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use rustix::process::Signal;

use crate::network::Host;
use crate::way::{Protocol, Swarm, Way};

/// The port on which every client takes connections from peers.
pub const PEER_PORT: u16 = 6881;

/// The signal on which every client leaves its swarms before it exits.
pub const QUIT_SIGNAL: Signal = Signal::INT;

/// A BitTorrent client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// libtorrent-rasterbar, as in qBittorrent and Deluge, through its Python binding.
    Libtorrent,
    /// Transmission, by its command line program.
    Transmission,
    /// aria2.
    Aria2,
    /// rTorrent, without its screen.
    Rtorrent,
    /// WebTorrent (npm package `webtorrent`) in Chromium, without a window.
    WebTorrent,
}

/// A client, and how it reaches the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The client.
    pub client: Client,
    /// What its torrent has for a tracker.
    pub way: Way,
    /// What its torrent has for another tracker, if it has one.
    pub also: Option<Way>,
}

impl Participant {
    /// This participant, whose torrent has the tracker by `way` as well.
    #[must_use]
    pub fn and_by(self, way: Way) -> Self {
        Self { also: Some(way), ..self }
    }

    /// All that its torrent has for trackers.
    pub fn ways(self) -> impl Iterator<Item = Way> {
        [self.way].into_iter().chain(self.also)
    }

    /// Whether it announces by `protocol`.
    #[must_use]
    pub fn speaks(self, protocol: Protocol) -> bool {
        self.ways().any(|way| way.protocol() == protocol)
    }

    /// Whether it is one of `swarm`.
    #[must_use]
    pub fn is_of(self, swarm: Swarm) -> bool {
        self.ways().any(|way| way.protocol().swarm() == swarm)
    }

    /// A command that has a client on `host` leave the swarm, where it cannot do so as it quits.
    ///
    /// # Errors
    /// Where the command is missing.
    pub fn pause(self, host: &Host) -> Result<Option<Command>> {
        match (self.client, self.way.protocol()) {
            (Client::Transmission, Protocol::Http) => transmission::pause(host).map(Some),
            _ => Ok(None),
        }
    }
}

/// Which part a client plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has all files when it starts.
    Seeder,
    /// It has none.
    Leecher,
}

/// What one client is to do.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The `.torrent` file.
    pub torrent: &'a Path,
    /// Where the files are, or will be.
    pub downloads: &'a Path,
    /// An empty directory for the client's own files.
    pub state: &'a Path,
    /// Seeder or leecher.
    pub role: Role,
    /// The certificate that it is to trust, where it may need one. Every client is to check certificates.
    pub certificate: Option<&'a Path>,
}

impl Client {
    /// This client, whose torrent has the tracker by `way`.
    #[must_use]
    pub fn by(self, way: Way) -> Participant {
        Participant { client: self, way, also: None }
    }

    /// Whether it tells the tracker of a completed download when it finds that it has all files already, though BEP 3
    /// says not to.
    #[must_use]
    pub fn boasts(self) -> bool {
        self == Self::WebTorrent
    }

    /// The command that does `job` on `host` until it is told to quit.
    ///
    /// # Errors
    /// Where the client is not installed, or its settings cannot be written.
    pub fn command(self, host: &Host, job: &Job<'_>) -> Result<Command> {
        match self {
            Self::Libtorrent => libtorrent::command(host, job),
            Self::Transmission => transmission::command(host, job),
            Self::Aria2 => aria2::command(host, job),
            Self::Rtorrent => rtorrent::command(host, job),
            Self::WebTorrent => webtorrent::command(host, job),
        }
    }
}
