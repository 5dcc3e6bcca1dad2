//! What load is asked for.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shoal_net::Backend;

/// The load on one tracker, except how fast and for how long: that is the business of each run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tracker.
    pub target: SocketAddr,
    /// Torrents and peers.
    pub population: Population,
    /// How often each kind of request is made.
    pub mix: Mix,
    /// Peers that an announce asks for; negative for as many as the tracker thinks fit.
    pub numwant: i32,
    /// Info hashes of a scrape, at least 1.
    pub scrape_hashes: usize,
    /// Where requests come from.
    pub sources: Sources,
    /// A thread for each entry, bound to that processor if it names one.
    pub workers: Vec<Option<usize>>,
    /// The same seed makes the same population and the same requests.
    pub seed: u64,
    /// What moves the datagrams of the generator.
    pub io: Backend,
    /// After so long without a reply a request counts as lost.
    pub timeout: Duration,
    /// Whether a reply that hands a peer to itself counts as wrong. Some trackers do that by design.
    pub own_address_is_wrong: bool,
}

/// Torrents, and the peers in them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// How many torrents there are.
    pub torrents: u32,
    /// How many peers there are at any moment, over all torrents; a peer is in one torrent.
    pub peers: u32,
    /// How peers spread over the torrents.
    pub popularity: Popularity,
    /// Share of the peers that have everything from the start, 0 to 1.
    pub seeder_share: f64,
    /// Announces in the life of a peer, on average: started, updates, perhaps completed, stopped. Then another peer
    /// takes its place. 0 means that peers never leave.
    pub announces_per_life: u32,
}

/// How likely each torrent is to be chosen by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Popularity {
    /// All the same.
    Uniform,
    /// Torrent n has weight n^-exponent.
    Zipf {
        /// Above 0; 1 is the classic.
        exponent: f64,
    },
    /// The torrent is what a Pareto distribution with minimum 1 draws, folded into the number of torrents.
    Pareto {
        /// Above 0; small shapes spread wide.
        shape: f64,
    },
    /// A share of the peers goes to all torrents alike, the others to a head that falls off exponentially.
    Exponential {
        /// Share of the peers in the head, 0 to 1.
        head_share: f64,
        /// The weight falls to 1/e within this share of the torrents.
        head_width: f64,
    },
}

/// Weights of the kinds of request; only their ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Connects. With weight 0 there are still those that a client needs.
    pub connect: u32,
    /// Announces.
    pub announce: u32,
    /// Scrapes.
    pub scrape: u32,
}

/// The addresses that requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The first address; where it is a loopback address of IPv4, sockets take the ones after it in turn.
    pub first: IpAddr,
    /// How many different addresses there are, for all workers together.
    pub addresses: NonZeroUsize,
    /// Sockets of each worker, each with a port of its own; at most [`shoal_net::SOCKETS_MAX`].
    pub sockets_per_worker: NonZeroUsize,
}

/// How fast requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Pace {
    /// As fast as replies come: so many requests of each worker are in flight at any moment.
    Closed {
        /// How many.
        window: usize,
    },
    /// So many requests a second, whatever the tracker does. Latency counts from when a request should have left, so
    /// that a stall shows in full.
    Open {
        /// Requests a second, of all workers together.
        rate: f64,
    },
}

/// When a run ends by itself, whichever is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// After so long.
    pub after: Option<Duration>,
    /// After so many requests.
    pub requests: Option<u64>,
}
