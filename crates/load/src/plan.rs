//! What load is asked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
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
    /// Most info hashes of a scrape; each asks for one to so many.
    pub scrape_hashes_max: usize,
    /// Where requests come from.
    pub sources: Sources,
    /// A thread for each entry, bound to that processor if it names one.
    pub workers: Vec<Option<usize>>,
    /// The same seed makes the same population, and draws requests in the same way. Which peer comes when goes also by when
    /// replies come.
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
    /// The torrent is at this share of the way through all torrents: what a gamma distribution draws, folded into 0 to 1.
    Gamma {
        /// Above 0; below 1 most peers crowd at the first torrents.
        shape: f64,
        /// Above 0; the mean is at `shape * scale` of the way.
        scale: f64,
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
    /// The first address. Sockets take the ones after it in turn, which this host must have too; of the loopback
    /// addresses of IPv4 it has 16 million.
    pub first: IpAddr,
    /// How many different addresses there are, for all workers together; at most one for each socket.
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

/// Why a plan is impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} cannot be {found}: {accepted}")]
pub struct PlanError {
    /// Which setting.
    pub what: &'static str,
    /// What it is.
    pub found: String,
    /// What it could be.
    pub accepted: String,
}

/// BEP 15, "scrape": "up to about 74 torrents can be scraped at once".
const SCRAPE_HASHES_MAX: usize = 74;

/// As many processors as a set of them has places for.
const WORKERS_MAX: usize = 1024;

impl Plan {
    /// Whether the plan is possible.
    ///
    /// # Errors
    /// With the setting, what it is, and what it could be.
    pub fn check(&self) -> Result<(), PlanError> {
        self.population.check()?;
        let Mix { connect, announce, scrape } = self.mix;
        let weights = [connect, announce, scrape].iter().map(|weight| u64::from(*weight)).sum::<u64>();
        demand((1..=u64::from(u32::MAX)).contains(&weights), "mix", weights, "a sum of 1 to 4,294,967,295")?;
        let hashes = self.scrape_hashes_max;
        demand((1..=SCRAPE_HASHES_MAX).contains(&hashes), "scrape hashes", hashes, "1 to 74")?;
        let workers = self.workers.len();
        demand((1..=WORKERS_MAX).contains(&workers), "workers", workers, "1 to 1024")?;
        demand(!self.timeout.is_zero(), "timeout", "0", "above 0")?;
        self.sources.check(self.target)?;
        let sockets = workers * self.sources.sockets_per_worker.get();
        let addresses = self.sources.addresses.get();
        let most = format!("at most one for each of the {sockets} sockets");
        demand(addresses <= sockets, "number of source addresses", addresses, &most)?;
        let peers = self.population.peers;
        let enough = usize::try_from(peers).is_ok_and(|peers| peers >= sockets);
        demand(enough, "peers", peers, &format!("at least one for each of the {sockets} sockets"))
    }
}

impl Plan {
    /// How many peers worker `index` plays.
    pub(crate) fn peers_of(&self, index: usize) -> usize {
        let (workers, peers) = (self.workers.len(), self.population.peers as usize);
        peers / workers + usize::from(index < peers % workers)
    }

    /// Random numbers of worker `index`, other ones than those of its peers.
    pub(crate) fn random(&self, index: usize) -> SmallRng {
        SmallRng::seed_from_u64(self.seed ^ 0x6c6f_6164 ^ (index as u64) << 32)
    }

    /// Where a socket of a worker is bound.
    pub(crate) fn local(&self, worker: usize, socket: usize) -> SocketAddr {
        let number = worker * self.sources.sockets_per_worker.get() + socket;
        let step = number % self.sources.addresses.get();
        let ip = self.sources.nth(step).expect("the plan was checked");
        SocketAddr::new(ip, 0)
    }
}

impl Population {
    fn check(&self) -> Result<(), PlanError> {
        demand(self.torrents > 0, "torrents", self.torrents, "at least 1")?;
        demand_share("seeder share", self.seeder_share)?;
        match self.popularity {
            Popularity::Uniform => Ok(()),
            Popularity::Zipf { exponent } => demand_positive("exponent of Zipf", exponent),
            Popularity::Pareto { shape } => demand_positive("shape of Pareto", shape),
            Popularity::Gamma { shape, scale } => {
                demand_positive("shape of gamma", shape)?;
                demand_positive("scale of gamma", scale)
            }
            Popularity::Exponential { head_share, head_width } => {
                demand_share("head share", head_share)?;
                demand_share("head width", head_width)
            }
        }
    }
}

impl Sources {
    fn check(&self, target: SocketAddr) -> Result<(), PlanError> {
        let sockets = self.sockets_per_worker.get();
        let sockets_max = shoal_net::SOCKETS_MAX;
        demand(sockets <= sockets_max, "sockets of a worker", sockets, &format!("at most {sockets_max}"))?;
        let same_family = self.first.is_ipv4() == target.is_ipv4();
        demand(same_family, "source address", self.first, &format!("one of the family of {target}"))?;
        let addresses = self.addresses.get();
        let last = self.nth(addresses - 1);
        let stays = last.is_some_and(|last| last.is_loopback() == self.first.is_loopback());
        demand(stays, "number of source addresses", addresses, "so many as there are from the first one on")
    }

    /// The address so many places after the first.
    fn nth(&self, step: usize) -> Option<IpAddr> {
        match self.first {
            IpAddr::V4(first) => {
                let last = u32::from(first).checked_add(u32::try_from(step).ok()?)?;
                Some(Ipv4Addr::from(last).into())
            }
            IpAddr::V6(first) => Some(Ipv6Addr::from(u128::from(first).checked_add(step as u128)?).into()),
        }
    }
}

pub(crate) fn demand(
    holds: bool,
    what: &'static str,
    found: impl ToString,
    accepted: &str,
) -> Result<(), PlanError> {
    if holds {
        return Ok(());
    }
    Err(PlanError { what, found: found.to_string(), accepted: accepted.to_owned() })
}

fn demand_share(what: &'static str, found: f64) -> Result<(), PlanError> {
    demand((0.0..=1.0).contains(&found), what, found, "a share from 0 to 1")
}

fn demand_positive(what: &'static str, found: f64) -> Result<(), PlanError> {
    demand(found > 0.0 && found.is_finite(), what, found, "a number above 0")
}
