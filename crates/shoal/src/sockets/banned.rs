//! Tells the kernel which sources have earned a ban, so that their connection requests reach no worker.
//!
//! One thread compares the bans four times a second. Workers refuse a banned source themselves, from the moment that they
//! know of the ban; this only saves their time.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shoal_access::networks::{Answer, Network, NetworkTable, prefixes};
use shoal_net::SourceFilter;
use shoal_runtime::live::Live;
use shoal_runtime::periodic::PeriodicThread;
use shoal_runtime::published::Published;

use super::listening::Listening;

/// The period of the thread. XDP learns of bans as often.
const PERIOD: Duration = Duration::from_millis(250);

struct Follower {
    live: Arc<Published<Live>>,
    listening: Arc<Mutex<Listening>>,
    /// The bans that the kernel knows. Nothing is known of what sockets from another process have.
    told: Option<Option<Arc<NetworkTable>>>,
    has_failed: bool,
}

/// Starts the thread. Fails if the kernel provides no more threads.
pub(crate) fn follow(
    live: &Arc<Published<Live>>,
    listening: &Arc<Mutex<Listening>>,
) -> io::Result<PeriodicThread> {
    let (live, listening) = (Arc::clone(live), Arc::clone(listening));
    let mut follower = Follower { live, listening, told: None, has_failed: false };
    PeriodicThread::start("bans", PERIOD, move || follower.run())
}

impl Follower {
    fn run(&mut self) {
        let bans = self.live.latest().policy.access().and_then(|access| access.bans.clone());
        let pointer = |bans: &Option<Arc<NetworkTable>>| bans.as_ref().map(Arc::as_ptr);
        if self.told.as_ref().is_some_and(|told| pointer(told) == pointer(&bans)) {
            return;
        }
        let filter = bans.as_deref().map(filter).unwrap_or_default();
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = listening.filter(filter);
        if let (Err(error), false) = (&outcome, self.has_failed) {
            tracing::warn!(
                %error,
                "the kernel does not drop the connections of banned sources, so workers close them; is net.core.optmem_max too small?"
            );
        }
        self.has_failed = outcome.is_err();
        self.told = Some(bans);
    }
}

/// Returns the filter of the networks that a table refuses. A ban is as wide as a source of IPv6 or wider.
fn filter(bans: &NetworkTable) -> SourceFilter {
    let is_served = |[answer]: [Answer; 1]| answer == Answer::Served;
    let banned = prefixes([bans], true, is_served);
    let networks = || banned.iter().map(|(network, _)| *network);
    SourceFilter::new(networks().filter_map(range_v4), networks().filter_map(range_v6))
}

fn range_v4(network: Network) -> Option<RangeInclusive<u32>> {
    let IpAddr::V4(first) = network.first() else { return None };
    let first = u32::from(first);
    Some(first..=first | u32::MAX.checked_shr(network.prefix_length().into()).unwrap_or(0))
}

fn range_v6(network: Network) -> Option<RangeInclusive<u64>> {
    let IpAddr::V6(first) = network.first() else { return None };
    let first = u64::try_from(u128::from(first) >> u64::BITS).ok()?;
    // A network within a /64 is left to the workers.
    (network.prefix_length() <= 64)
        .then(|| first..=first | u64::MAX.checked_shr(network.prefix_length().into()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_range_of_its_addresses() {
        let network = |ip: &str, length| Network::new(ip.parse().unwrap(), length).unwrap();
        assert_eq!(range_v4(network("192.0.2.7", 32)), Some(0xc000_0207..=0xc000_0207));
        assert_eq!(range_v4(network("192.0.2.0", 24)), Some(0xc000_0200..=0xc000_02ff));
        assert_eq!(range_v4(network("0.0.0.0", 0)), Some(0..=u32::MAX));
        assert_eq!(
            range_v6(network("2001:db8:1:2::", 64)),
            Some(0x2001_0db8_0001_0002..=0x2001_0db8_0001_0002)
        );
        assert_eq!(
            range_v6(network("2001:db8:1::", 48)),
            Some(0x2001_0db8_0001_0000..=0x2001_0db8_0001_ffff)
        );
        assert_eq!(range_v6(network("2001:db8::1", 128)), None);
        assert_eq!((range_v4(network("::", 0)), range_v6(network("192.0.2.7", 32))), (None, None));
    }
}
