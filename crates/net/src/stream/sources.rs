//! The sources of connections, and the number of each one's connections over all workers.
//!
//! Only networks of one customer are counted ([`Width::is_of_customer`]). Wider networks have no maximum, but a share
//! when a worker is full, see [`super::shares`].
//!
//! A connection can move to another source when a proxy names its client, or to another limit when it becomes a
//! WebSocket. The session first asks whether the source has capacity, because it can send a refusal. The connection
//! moves to its new groups right after that call. Other workers may take the last free place in between, so a limit can
//! be exceeded by one connection for each worker.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shoal_base::source::{Network, Width};
use shoal_base::transport::stream::{ConnectionKind, SourceCapacity};

use super::StreamCounters;

/// Number of shards with a lock each, so that workers seldom contend.
const SHARDS: usize = 16;

/// Number of networks for which a shard keeps spare capacity.
const SPARE_NETWORKS: usize = 256;

/// The number of connections of each network, shared by all workers. Takes memory in proportion to the connected
/// networks.
#[derive(Debug, Default)]
pub struct Sources {
    /// Keyed at random, so that an attacker cannot choose addresses that collide.
    hasher: RandomState,
    shards: [Mutex<HashMap<Network, Counts>>; SHARDS],
}

/// Maximum number of connections of one source over all workers. Wider networks may have a few times as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLimits {
    /// Maximum number of connections of [`ConnectionKind::Http`].
    pub http_max: usize,
    /// Maximum number of connections of [`ConnectionKind::WebSocket`].
    pub websockets_max: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    http: u32,
    websockets: u32,
}

/// Decides for a worker whether a source may have one more connection, and counts refusals.
#[derive(Debug)]
pub struct SourceLimiter {
    sources: Arc<Sources>,
    limits: SourceLimits,
    counters: Arc<StreamCounters>,
}

impl SourceLimits {
    const fn max(self, kind: ConnectionKind) -> usize {
        match kind {
            ConnectionKind::Http => self.http_max,
            ConnectionKind::WebSocket => self.websockets_max,
        }
    }

    /// Returns whether a network with these `counts` may have one more connection.
    fn allow(self, kind: ConnectionKind, width: Width, counts: Counts) -> bool {
        (counts.of(kind) as usize) < self.max(kind).saturating_mul(width.shares() as usize)
    }
}

impl Counts {
    const fn of(self, kind: ConnectionKind) -> u32 {
        match kind {
            ConnectionKind::Http => self.http,
            ConnectionKind::WebSocket => self.websockets,
        }
    }

    const fn of_mut(&mut self, kind: ConnectionKind) -> &mut u32 {
        match kind {
            ConnectionKind::Http => &mut self.http,
            ConnectionKind::WebSocket => &mut self.websockets,
        }
    }
}

impl Sources {
    /// Counts a new connection, unless one of its networks has the maximum number.
    pub(super) fn enter(&self, ip: IpAddr, kind: ConnectionKind, limits: SourceLimits) -> bool {
        for network in counted(ip) {
            let mut shard = self.shard(network);
            let counts = shard.entry(network).or_default();
            if !limits.allow(kind, network.width(), *counts) {
                if *counts == Counts::default() {
                    shard.remove(&network);
                }
                drop(shard);
                let entered = counted(ip).take_while(|entered| *entered != network);
                entered.for_each(|entered| self.leave(entered, kind));
                return false;
            }
            *counts.of_mut(kind) += 1;
        }
        true
    }

    /// Counts a new connection of a network without a limit, if the network is counted.
    pub(super) fn add(&self, network: Network, kind: ConnectionKind) {
        if !network.width().is_of_customer() {
            return;
        }
        *self.shard(network).entry(network).or_default().of_mut(kind) += 1;
    }

    pub(super) fn leave(&self, network: Network, kind: ConnectionKind) {
        if !network.width().is_of_customer() {
            return;
        }
        let mut shard = self.shard(network);
        let Some(counts) = shard.get_mut(&network) else { return };
        let count = counts.of_mut(kind);
        *count = count.saturating_sub(1);
        if *counts == Counts::default() {
            shard.remove(&network);
            // This is rare, because the capacity halves each time.
            if shard.capacity() > SPARE_NETWORKS && shard.len() < shard.capacity() / 8 {
                let entries = (2 * shard.len()).max(SPARE_NETWORKS / 2);
                shard.shrink_to(entries);
            }
        }
    }

    fn has_capacity(&self, ip: IpAddr, kind: ConnectionKind, limits: SourceLimits) -> bool {
        counted(ip).all(|network| {
            let counts = self.shard(network).get(&network).copied().unwrap_or_default();
            limits.allow(kind, network.width(), counts)
        })
    }

    fn shard(&self, network: Network) -> MutexGuard<'_, HashMap<Network, Counts>> {
        let index = self.hasher.hash_one(network) % SHARDS as u64;
        let shard = &self.shards[usize::try_from(index).unwrap_or(0)];
        // A panic leaves valid counts behind.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the counted networks, the narrowest first.
fn counted(ip: IpAddr) -> impl Iterator<Item = Network> {
    Network::all(ip).filter(|network| network.width().is_of_customer())
}

impl SourceLimiter {
    pub(super) const fn new(
        sources: Arc<Sources>,
        limits: SourceLimits,
        counters: Arc<StreamCounters>,
    ) -> Self {
        Self { sources, limits, counters }
    }
}

impl SourceCapacity for SourceLimiter {
    fn has_capacity(&self, ip: IpAddr, kind: ConnectionKind) -> bool {
        let has_capacity = self.sources.has_capacity(ip, kind, self.limits);
        if !has_capacity {
            self.counters.refused_named.increment();
        }
        has_capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SourceLimits = SourceLimits { http_max: 2, websockets_max: 3 };

    fn enter(sources: &Sources, ip: &str, kind: ConnectionKind) -> bool {
        sources.enter(ip.parse().unwrap(), kind, LIMITS)
    }

    fn leave(sources: &Sources, ip: &str, kind: ConnectionKind) {
        Network::all(ip.parse().unwrap()).for_each(|network| sources.leave(network, kind));
    }

    fn is_empty(sources: &Sources) -> bool {
        sources.shards.iter().all(|shard| shard.lock().unwrap().is_empty())
    }

    #[test]
    fn a_source_has_so_many_connections_and_no_more() {
        let sources = Sources::default();
        let (one, other) = ("192.0.2.1", "192.0.2.2");
        assert!(enter(&sources, one, ConnectionKind::Http) && enter(&sources, one, ConnectionKind::Http));
        assert!(!enter(&sources, one, ConnectionKind::Http));
        assert!(enter(&sources, other, ConnectionKind::Http));
        leave(&sources, one, ConnectionKind::Http);
        assert!(enter(&sources, one, ConnectionKind::Http));
    }

    #[test]
    fn websockets_have_a_limit_of_their_own() {
        let sources = Sources::default();
        let ip = "192.0.2.1";
        assert!((0..3).all(|_| enter(&sources, ip, ConnectionKind::WebSocket)));
        assert!(!enter(&sources, ip, ConnectionKind::WebSocket));
        assert!(!sources.has_capacity(ip.parse().unwrap(), ConnectionKind::WebSocket, LIMITS));
        assert!(sources.has_capacity(ip.parse().unwrap(), ConnectionKind::Http, LIMITS));
        assert!(enter(&sources, ip, ConnectionKind::Http) && enter(&sources, ip, ConnectionKind::Http));
        (0..3).for_each(|_| leave(&sources, ip, ConnectionKind::WebSocket));
        (0..2).for_each(|_| leave(&sources, ip, ConnectionKind::Http));
        assert!(is_empty(&sources));
    }

    #[test]
    fn a_source_without_connections_takes_no_memory() {
        let sources = Sources::default();
        for ip in ["192.0.2.1", "2001:db8::1"] {
            assert!(enter(&sources, ip, ConnectionKind::Http));
            assert!(enter(&sources, ip, ConnectionKind::Http));
            assert!(!enter(&sources, ip, ConnectionKind::Http));
            (0..2).for_each(|_| leave(&sources, ip, ConnectionKind::Http));
        }
        assert!(is_empty(&sources));
    }

    #[test]
    fn room_goes_back_after_a_peak() {
        let sources = Sources::default();
        let ips: Vec<_> = (0..20_000_u32).map(|number| IpAddr::from(number.to_be_bytes())).collect();
        assert!(ips.iter().all(|ip| sources.enter(*ip, ConnectionKind::Http, LIMITS)));
        let room = || sources.shards.iter().map(|shard| shard.lock().unwrap().capacity()).sum::<usize>();
        assert!(room() >= ips.len());
        for ip in &ips[..19_990] {
            Network::all(*ip).for_each(|network| sources.leave(network, ConnectionKind::Http));
        }
        assert!(room() <= SHARDS * 2 * SPARE_NETWORKS, "{}", room());
        assert!(ips[19_990..].iter().all(|ip| sources.enter(*ip, ConnectionKind::Http, LIMITS)));
        assert!(!sources.enter(ips[19_995], ConnectionKind::Http, LIMITS));
    }

    #[test]
    fn wider_networks_have_more_and_not_without_limit() {
        let count = |ip: fn(u32) -> String| {
            let sources = Sources::default();
            (0..200).filter(|number| enter(&sources, &ip(*number), ConnectionKind::Http)).count()
        };
        assert_eq!(count(|number| format!("2001:db8:0:0100::{number:x}")), 2);
        assert_eq!(
            count(|number| format!("2001:db8:0:01{number:02x}::1")),
            2 * Width::Home.shares() as usize
        );
        assert_eq!(
            count(|number| format!("2001:db8:0:{number:02x}00::1")),
            2 * Width::Site.shares() as usize
        );
        assert_eq!(count(|number| format!("2001:db8:{number:x}::1")), 200);
        assert_eq!(count(|number| format!("192.0.2.{number}")), 200);
    }

    #[test]
    fn one_that_is_refused_is_counted_nowhere() {
        let sources = Sources::default();
        let full: Vec<_> = (0..16).map(|number| format!("2001:db8:0:{number:02x}00::1")).collect();
        assert!(full.iter().all(|ip| enter(&sources, ip, ConnectionKind::Http)));
        assert!(!enter(&sources, "2001:db8:0:ff00::1", ConnectionKind::Http));
        full.iter().for_each(|ip| leave(&sources, ip, ConnectionKind::Http));
        assert!(is_empty(&sources));
    }
}
