//! The parts of a session that its tests share: the plan, and a watch that does nothing.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use shoal_load::{Mix, Plan, Popularity, Population, Report, Sources, Watch};
use shoal_net::Backend;

/// Returns a plan of one worker for a tracker that answers everything, on a machine that may be busy.
pub(crate) fn plan(target: SocketAddr) -> Plan {
    let is_v4 = target.is_ipv4();
    let addresses = NonZeroUsize::new(if is_v4 { 3 } else { 1 }).unwrap();
    Plan {
        target,
        population: Population {
            torrents: 50,
            peers: 200,
            popularity: Popularity::Uniform,
            seeder_share: 0.5,
            announces_per_life: 10,
            vanish_share: 0.0,
        },
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        numwant: 10,
        scrape_hashes_max: 5,
        sources: Sources {
            first: if is_v4 { "127.0.0.9".parse().unwrap() } else { "::1".parse().unwrap() },
            addresses,
            sockets_per_worker: addresses,
        },
        workers: vec![None],
        seed: 3,
        io: Backend::Mmsg,
        timeout: Duration::from_secs(60),
        own_address_is_wrong: true,
    }
}

pub(crate) fn watched(run: impl FnOnce(&mut Watch<'_>) -> Report) -> Report {
    run(&mut Watch { cancel: &AtomicBool::new(false), progress: &mut |_| {} })
}
