//! The options of load generators that use connections: threads and addresses.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Result;
use shoal_load::{Plan, Preset, Sources};
use shoal_net::Backend;

use super::address::source_for;
use super::args::{Threads, duration, positive};
use super::target::LoadTarget;
use crate::shape::ShapeArgs;

/// The options of the generator.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The generator")]
pub(super) struct ConnectionGeneratorArgs {
    #[command(flatten)]
    pub(super) threads: Threads,

    /// The first source address [default: 127.0.0.1 towards a loopback address, otherwise the one of the route]
    #[arg(long, value_name = "IP")]
    source: Option<IpAddr>,

    /// The number of consecutive source addresses of each worker, at most 64; this host must have them. An address has
    /// about 28,000 ports, and a closed connection keeps its port for a minute [default: towards an IPv4 loopback
    /// address as many as connections, or 64 if each request has its own; otherwise 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    sources: Option<NonZeroUsize>,

    /// How long to wait for a reply until the request counts as lost
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,
}

/// Most source addresses of a worker.
pub(super) const SOURCES_MAX: usize = shoal_net::SOCKETS_MAX;

impl ConnectionGeneratorArgs {
    /// Returns the plan of a load over connections. By default there are `fitting` source addresses towards an IPv4
    /// loopback address, since this host has those.
    pub(super) fn plan(&self, target: &LoadTarget, shape: &ShapeArgs, fitting: usize) -> Result<Plan> {
        let address = target.addresses.choose_tcp(self.source)?;
        let first = match self.source {
            Some(source) => source,
            None => source_for(address)?,
        };
        let many = first.is_ipv4() && first.is_loopback();
        let fitting = NonZeroUsize::new(fitting.min(SOURCES_MAX)).unwrap_or(NonZeroUsize::MIN);
        let each = self.sources.unwrap_or(if many { fitting } else { NonZeroUsize::MIN });
        let workers = self.threads.workers();
        let threads = NonZeroUsize::new(workers.len()).unwrap_or(NonZeroUsize::MIN);
        let addresses = if many { each.saturating_mul(threads) } else { each };
        let Preset { population, mix, numwant, scrape_hashes_max, .. } = shape.load();
        Ok(Plan {
            target: address,
            population,
            mix,
            numwant,
            scrape_hashes_max,
            sources: Sources { first, addresses, sockets_per_worker: each },
            workers,
            seed: shape.seed,
            io: Backend::ALL[0],
            timeout: self.timeout,
            own_address_is_wrong: true,
        })
    }
}
