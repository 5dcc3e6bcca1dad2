//! The description of a load, and the rules that replies are checked against.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use shoal_net::Backend;

use crate::clock::nanoseconds;

/// The load on one tracker, except its pace and its length, which each run has of its own.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address of the tracker.
    pub target: SocketAddr,
    /// The peers and their torrents.
    pub population: Population,
    /// The weights of the kinds of request.
    pub mix: Mix,
    /// The number of peers that an announce asks for. A negative number leaves it to the tracker.
    pub numwant: i32,
    /// Most info hashes in a scrape. Each scrape has one to this many.
    pub scrape_hashes_max: usize,
    /// The addresses and ports that requests come from.
    pub sources: Sources,
    /// One thread for each entry, bound to the processor if the entry names one.
    pub workers: Vec<Option<usize>>,
    /// The same seed creates the same population and draws the same requests. Their order also depends on the replies.
    pub seed: u64,
    /// The I/O back end of UDP.
    pub io: Backend,
    /// A request counts as lost after this time without a reply.
    pub timeout: Duration,
    /// Whether a reply with the announcing peer itself counts as wrong. Some trackers send such replies by design.
    pub own_address_is_wrong: bool,
}

/// The peers and their torrents.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// The number of torrents.
    pub torrents: u32,
    /// The number of peers at any moment, over all torrents. A peer is in one torrent.
    pub peers: u32,
    /// How peers are distributed over the torrents.
    pub popularity: Popularity,
    /// The share of peers that are seeders from the start, 0 to 1.
    pub seeder_share: f64,
    /// The average number of announces in the life of a peer: started, updates, perhaps completed, stopped. Then
    /// another peer takes its place at once. 0 means that peers never leave.
    pub announces_per_life: u32,
    /// The share of peers that leave without an announce that stops, 0 to 1. The tracker knows them until they expire.
    #[serde(default)]
    pub vanish_share: f64,
}

/// How peers are distributed over the torrents.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Popularity {
    /// Every torrent is equally likely.
    Uniform,
    /// Torrent n has weight n^-exponent.
    Zipf {
        /// Above 0; 1 is the classic value.
        exponent: f64,
    },
    /// A Pareto distribution with minimum 1 draws the torrent, modulo the number of torrents.
    Pareto {
        /// Above 0. A small shape spreads wide.
        shape: f64,
    },
    /// A gamma distribution draws the position of the torrent as a share of all torrents, modulo 1.
    Gamma {
        /// Above 0. Below 1, most peers are in the first torrents.
        shape: f64,
        /// Above 0. The mean position is `shape * scale`.
        scale: f64,
    },
    /// A share of the peers is in a head that falls off exponentially; the others are spread over all torrents equally.
    Exponential {
        /// The share of peers in the head, 0 to 1.
        head_share: f64,
        /// The share of torrents within which the weight falls to 1/e.
        head_width: f64,
    },
}

/// The weights of the kinds of request. Only their ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Connects. With weight 0, clients still send those that they need.
    pub connect: u32,
    /// Announces.
    pub announce: u32,
    /// Scrapes.
    pub scrape: u32,
}

/// The addresses and ports that requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The first address. Sockets take the next ones in turn. A host has 16 million loopback addresses of IPv4.
    pub first: IpAddr,
    /// The number of different addresses of all workers together; at most one for each socket.
    pub addresses: NonZeroUsize,
    /// The number of sockets of each worker, each with a port of its own; at most [`shoal_net::SOCKETS_MAX`].
    pub sockets_per_worker: NonZeroUsize,
}

/// The rule by which requests leave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Pace {
    /// As fast as replies come: each worker keeps a number of requests in flight.
    Closed {
        /// The number of requests in flight of each worker.
        window: usize,
    },
    /// At a fixed rate. Latency counts from when a request should have left, so that a stall shows in full.
    Open {
        /// Requests per second of all workers together.
        rate: f64,
    },
}

/// When a run ends by itself, whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// After this time.
    pub after: Option<Duration>,
    /// After this number of requests of all workers together.
    pub requests: Option<u64>,
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} cannot be {found}: {accepted}")]
pub struct PlanError {
    /// The value at fault.
    pub what: &'static str,
    /// Its present content.
    pub found: String,
    /// The accepted values.
    pub accepted: String,
}

/// The rules that replies are checked against, for a whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Negative if the tracker may send any number of peers.
    pub(crate) numwant: i32,
    pub(crate) own_address_is_wrong: bool,
    /// A reply that takes longer is late.
    pub(crate) timeout_ns: u64,
}

/// BEP 15, "scrape": "up to about 74 torrents can be scraped at once".
const SCRAPE_HASHES_MAX: usize = 74;

/// The capacity of a processor set of the kernel.
const WORKERS_MAX: usize = 1024;

impl Plan {
    /// Returns a small load to begin with: one worker with a thousand peers, a tenth as many torrents, and announces only.
    pub fn new(target: SocketAddr) -> Self {
        let first = match (target.ip(), target.ip().is_loopback()) {
            (IpAddr::V4(_), true) => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V4(_), false) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), true) => Ipv6Addr::LOCALHOST.into(),
            (IpAddr::V6(_), false) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self {
            target,
            population: Population {
                torrents: 100,
                peers: 1000,
                popularity: Popularity::Uniform,
                seeder_share: 0.5,
                announces_per_life: 0,
                vanish_share: 0.0,
            },
            mix: Mix { connect: 0, announce: 1, scrape: 0 },
            numwant: 30,
            scrape_hashes_max: 10,
            sources: Sources { first, addresses: NonZeroUsize::MIN, sockets_per_worker: NonZeroUsize::MIN },
            workers: vec![None],
            seed: 1,
            io: Backend::Mmsg,
            timeout: Duration::from_secs(1),
            own_address_is_wrong: false,
        }
    }

    /// Checks that the plan can be carried out. Opening a session does the same.
    ///
    /// # Errors
    /// Returns an error with the value that cannot be, and what is accepted.
    pub fn check(&self) -> Result<(), PlanError> {
        self.population.check()?;
        let Mix { connect, announce, scrape } = self.mix;
        let weights = [connect, announce, scrape].iter().map(|weight| u64::from(*weight)).sum::<u64>();
        require((1..=u64::from(u32::MAX)).contains(&weights), "mix", weights, "a sum of 1 to 4,294,967,295")?;
        let hashes = self.scrape_hashes_max;
        require((1..=SCRAPE_HASHES_MAX).contains(&hashes), "scrape hashes", hashes, "1 to 74")?;
        let workers = self.workers.len();
        require((1..=WORKERS_MAX).contains(&workers), "workers", workers, "1 to 1024")?;
        require(!self.timeout.is_zero(), "timeout", "0", "above 0")?;
        self.sources.check(self.target)?;
        let sockets = workers * self.sources.sockets_per_worker.get();
        let addresses = self.sources.addresses.get();
        let most = format!("at most one for each of the {sockets} sockets");
        require(addresses <= sockets, "number of source addresses", addresses, &most)?;
        let peers = self.population.peers;
        let enough = usize::try_from(peers).is_ok_and(|peers| peers >= sockets);
        require(enough, "peers", peers, &format!("at least one for each of the {sockets} sockets"))
    }
}

impl Plan {
    pub(crate) fn peers_of(&self, index: usize) -> usize {
        let (workers, peers) = (self.workers.len(), self.population.peers as usize);
        peers / workers + usize::from(index < peers % workers)
    }

    /// Returns the random numbers of worker `index`. They differ from those of its peers.
    pub(crate) fn random(&self, index: usize) -> SmallRng {
        SmallRng::seed_from_u64(self.seed ^ 0x6c6f_6164 ^ (index as u64) << 32)
    }

    pub(crate) fn local_addrs(&self, worker: usize) -> Vec<SocketAddr> {
        let (sockets, addresses) = (self.sources.sockets_per_worker.get(), self.sources.addresses.get());
        let ip = |number| self.sources.nth(number % addresses).expect("the plan was checked");
        (worker * sockets..(worker + 1) * sockets).map(|number| SocketAddr::new(ip(number), 0)).collect()
    }
}

impl Population {
    fn check(&self) -> Result<(), PlanError> {
        require(self.torrents > 0, "torrents", self.torrents, "at least 1")?;
        require_share("seeder share", self.seeder_share)?;
        require_share("vanish share", self.vanish_share)?;
        let lives = self.announces_per_life;
        require(
            lives != 1,
            "announces per life",
            lives,
            "0, or at least 2: one that starts and one that stops",
        )?;
        match self.popularity {
            Popularity::Uniform => Ok(()),
            Popularity::Zipf { exponent } => require_positive("exponent of Zipf", exponent),
            Popularity::Pareto { shape } => require_positive("shape of Pareto", shape),
            Popularity::Gamma { shape, scale } => {
                require_positive("shape of gamma", shape)?;
                require_positive("scale of gamma", scale)
            }
            Popularity::Exponential { head_share, head_width } => {
                require_share("head share", head_share)?;
                require_share("head width", head_width)
            }
        }
    }
}

impl Sources {
    fn check(&self, target: SocketAddr) -> Result<(), PlanError> {
        let sockets = self.sockets_per_worker.get();
        let sockets_max = shoal_net::SOCKETS_MAX;
        require(sockets <= sockets_max, "sockets of a worker", sockets, &format!("at most {sockets_max}"))?;
        let same_family = self.first.is_ipv4() == target.is_ipv4();
        require(same_family, "source address", self.first, &format!("one of the family of {target}"))?;
        let addresses = self.addresses.get();
        let last = self.nth(addresses - 1);
        let stays = last.is_some_and(|last| last.is_loopback() == self.first.is_loopback());
        require(stays, "number of source addresses", addresses, "so many as there are from the first one on")
    }

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

impl Rules {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            numwant: plan.numwant,
            own_address_is_wrong: plan.own_address_is_wrong,
            timeout_ns: nanoseconds(plan.timeout),
        }
    }

    pub(crate) fn allows(&self, peers: usize) -> bool {
        usize::try_from(self.numwant).map_or(true, |wanted| peers <= wanted)
    }
}

pub(crate) fn require(
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

fn require_share(what: &'static str, found: f64) -> Result<(), PlanError> {
    require((0.0..=1.0).contains(&found), what, found, "a share from 0 to 1")
}

fn require_positive(what: &'static str, found: f64) -> Result<(), PlanError> {
    require(found > 0.0 && found.is_finite(), what, found, "a number above 0")
}
