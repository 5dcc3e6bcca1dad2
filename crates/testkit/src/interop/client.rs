//! The real clients, each configured to take peers from the tracker only.
//!
//! This module owns the options of every client. It does not work around anything that a client does over the network.

mod command;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use rustix::process::{Pid, Signal};

use crate::interop::network::Host;
use crate::interop::route::{Protocol, Route, Swarm};

/// The port on which every client accepts connections from peers.
pub const PEER_PORT: u16 = 6881;

/// The signal that makes every client leave its swarms and exit.
pub const QUIT_SIGNAL: Signal = Signal::INT;

/// A BitTorrent client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// libtorrent-rasterbar, as in qBittorrent and Deluge, through its Python binding.
    Libtorrent,
    /// Transmission's daemon.
    Transmission,
    /// aria2.
    Aria2,
    /// rTorrent, without its screen.
    Rtorrent,
    /// WebTorrent (npm package `webtorrent`) in headless Chromium.
    WebTorrent,
}

/// A client, and how it reaches the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The client.
    pub client: Client,
    /// The route to the first tracker of its torrent.
    pub route: Route,
    /// The route to the second tracker, if it has one.
    pub second_route: Option<Route>,
}

impl Participant {
    /// Adds a second tracker to the torrent of this participant.
    #[must_use]
    pub fn and_via(self, route: Route) -> Self {
        Self { second_route: Some(route), ..self }
    }

    /// Returns the routes to all trackers of its torrent.
    pub fn routes(self) -> impl Iterator<Item = Route> {
        [self.route].into_iter().chain(self.second_route)
    }

    /// Returns whether it announces over `protocol`.
    #[must_use]
    pub fn announces_over(self, protocol: Protocol) -> bool {
        self.routes().any(|route| route.protocol() == protocol)
    }

    /// Returns whether it is in `swarm`.
    #[must_use]
    pub fn is_in(self, swarm: Swarm) -> bool {
        self.routes().any(|route| route.protocol().swarm() == swarm)
    }

    /// Returns a command that makes the client on `host` leave the swarm, if it does not do so when it quits.
    ///
    /// # Errors
    /// Returns an error if the command is missing.
    pub fn pause(self, host: &Host) -> Result<Option<Command>> {
        match (self.client, self.route.protocol()) {
            (Client::Transmission, Protocol::Http) => command::pause_transmission(host).map(Some),
            _ => Ok(None),
        }
    }
}

impl Client {
    /// Returns a command that makes the client on `host`, with this process id, announce at once, as a user can. Returns
    /// `None` if it tries again within half a minute by itself.
    ///
    /// # Errors
    /// Returns an error if the command is missing.
    pub fn reannounce(self, host: &Host, pid: Pid) -> Result<Option<Command>> {
        match self {
            Self::Transmission => command::reannounce_transmission(host).map(Some),
            Self::Libtorrent => {
                let mut kill = Command::new("kill");
                kill.arg("-USR1").arg(pid.as_raw_nonzero().to_string());
                Ok(Some(kill))
            }
            Self::Aria2 | Self::Rtorrent | Self::WebTorrent => Ok(None),
        }
    }
}

/// The role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has all files when it starts.
    Seeder,
    /// It has none.
    Leecher,
}

/// How to launch a client.
#[derive(Clone, Copy, Debug)]
pub struct LaunchOptions<'a> {
    /// The `.torrent` file.
    pub torrent: &'a Path,
    /// The directory of the shared files.
    pub downloads: &'a Path,
    /// An empty directory for the client's own files.
    pub state: &'a Path,
    /// Seeder or leecher.
    pub role: Role,
    /// The certificate to trust, if the client may need one. Every client has to verify certificates.
    pub certificate: Option<&'a Path>,
}

impl Client {
    /// Creates a participant that reaches its tracker by `route`.
    #[must_use]
    pub fn via(self, route: Route) -> Participant {
        Participant { client: self, route, second_route: None }
    }

    /// Returns whether it reports a completed download when it has all files from the start, against BEP 3.
    #[must_use]
    pub fn reports_completed_as_seeder(self) -> bool {
        self == Self::WebTorrent
    }

    /// Returns the command that runs the client on `host` until it is told to quit.
    ///
    /// # Errors
    /// Returns an error if the client is not installed, or its configuration cannot be written.
    pub fn command(self, host: &Host, options: &LaunchOptions<'_>) -> Result<Command> {
        match self {
            Self::Libtorrent => command::libtorrent(host, options),
            Self::Transmission => command::transmission(host, options),
            Self::Aria2 => command::aria2(host, options),
            Self::Rtorrent => command::rtorrent(host, options),
            Self::WebTorrent => command::webtorrent(host, options),
        }
    }
}
