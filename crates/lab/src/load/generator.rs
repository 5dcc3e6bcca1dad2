//! The generator of load on connections, as the command line spells it: threads, addresses, descriptors.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Resource, getrlimit, setrlimit};
use shoal_load::Sources;

use super::spelling::{Threads, duration, source_for};

/// How the generator works.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The generator")]
pub(super) struct Generator {
    #[command(flatten)]
    pub(super) threads: Threads,

    /// The address to send from, or the first of them [default: 127.0.0.1 to a loopback address, else the one that the
    /// route takes]
    #[arg(long, value_name = "IP")]
    source: Option<IpAddr>,

    /// How many addresses each worker sends from, up to 64, beginning with the first; this host must have them. One has
    /// about 28,000 ports, and a closed connection keeps its port for a minute [default: as many as connections to a
    /// loopback address of IPv4, 64 where each request has its own, else 1]
    #[arg(long, value_name = "N")]
    sources: Option<NonZeroUsize>,

    /// A request that is not answered within this time is lost
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(super) timeout: Duration,
}

/// Most addresses of a worker.
pub(super) const SOURCES_MAX: usize = shoal_net::SOCKETS_MAX;

impl Generator {
    /// Where connections to `address` come from. Unless it is said, there are as many addresses as `fitting`, to a
    /// loopback address of IPv4, since this host has those.
    pub(super) fn sources(&self, address: SocketAddr, fitting: usize) -> Result<Sources> {
        let first = match self.source {
            Some(source) => source,
            None => source_for(address)?,
        };
        let many = first.is_ipv4() && first.is_loopback();
        let fitting = NonZeroUsize::new(fitting.min(SOURCES_MAX)).unwrap_or(NonZeroUsize::MIN);
        let each = self.sources.unwrap_or(if many { fitting } else { NonZeroUsize::MIN });
        let workers = NonZeroUsize::new(self.threads.workers().len()).unwrap_or(NonZeroUsize::MIN);
        let addresses = if many { each.saturating_mul(workers) } else { each };
        Ok(Sources { first, addresses, sockets_per_worker: each })
    }
}

/// Lets this process have as many descriptors as the system grants; where that is too few, the session says so.
pub(super) fn allow_many_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
