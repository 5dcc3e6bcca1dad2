//! How many connections each source address has, over all workers.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts with a lock each, so that workers seldom meet.
const SHARDS: usize = 16;

/// Connections by source, shared by all workers. Takes memory in proportion to the most sources that have been connected
/// at once.
#[derive(Debug, Default)]
pub struct Sources {
    /// Keyed at random, so that nobody can choose addresses that collide.
    hasher: RandomState,
    shards: [Mutex<HashMap<Source, u32>>; SHARDS],
}

/// What counts as one source: an IPv4 address, or the /64 that an IPv6 customer is given at the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source(u64);

impl Source {
    pub(super) fn of(ip: IpAddr) -> Self {
        match ip {
            // No IPv6 network in use begins with these 32 zero bits.
            IpAddr::V4(ip) => Self(u64::from(u32::from(ip))),
            IpAddr::V6(ip) => {
                let [network, ..] = split(u128::from(ip));
                Self(network)
            }
        }
    }
}

/// The two halves of an address.
fn split(address: u128) -> [u64; 2] {
    let bytes = address.to_be_bytes();
    let half = |from: usize| {
        let mut half = [0; 8];
        half.copy_from_slice(&bytes[from..from + 8]);
        u64::from_be_bytes(half)
    };
    [half(0), half(8)]
}

impl Sources {
    /// Counts a connection in, unless the source has `max` already.
    pub(super) fn enter(&self, source: Source, max: usize) -> bool {
        match self.shard(source).entry(source) {
            Entry::Occupied(entry) if *entry.get() as usize >= max => false,
            entry => {
                *entry.or_insert(0) += 1;
                true
            }
        }
    }

    /// Counts a connection out that was counted in.
    pub(super) fn leave(&self, source: Source) {
        if let Entry::Occupied(mut entry) = self.shard(source).entry(source) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    fn shard(&self, source: Source) -> MutexGuard<'_, HashMap<Source, u32>> {
        let index = self.hasher.hash_one(source) % SHARDS as u64;
        let shard = &self.shards[usize::try_from(index).unwrap_or(0)];
        // Whoever panicked left whole numbers behind.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(ip: &str) -> Source {
        Source::of(ip.parse().unwrap())
    }

    #[test]
    fn a_source_has_so_many_connections_and_no_more() {
        let sources = Sources::default();
        let (one, other) = (source("192.0.2.1"), source("192.0.2.2"));
        assert!(sources.enter(one, 2) && sources.enter(one, 2));
        assert!(!sources.enter(one, 2));
        assert!(sources.enter(other, 2));
        sources.leave(one);
        assert!(sources.enter(one, 2));
    }

    #[test]
    fn a_source_without_connections_takes_no_memory() {
        let sources = Sources::default();
        for ip in ["192.0.2.1", "2001:db8::1"] {
            assert!(sources.enter(source(ip), 1));
            sources.leave(source(ip));
        }
        assert!(sources.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        assert_eq!(source("2001:db8:0:1::1"), source("2001:db8:0:1:ffff::2"));
        assert_ne!(source("2001:db8:0:1::1"), source("2001:db8:0:2::1"));
    }
}
