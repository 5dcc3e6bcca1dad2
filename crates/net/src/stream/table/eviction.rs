//! Chooses the connection that is closed to make room for another, or to free memory.
//!
//! [`Class`] has the order, and [`Shares`](crate::stream::shares::Shares) the source that has most. This module compares
//! that source with the source that wants room, or with the connection that holds most memory.

use std::net::IpAddr;

use shoal_base::transport::stream::Handle;

use super::{ConnectionTable, Phase, networks};
use crate::stream::queue::NodeId;
use crate::stream::shares::Class;

/// A connection that can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) struct Victim {
    pub(in crate::stream) handle: Handle,
    pub(in crate::stream) phase: Phase,
    /// The highest usage of a source, see `Shares`.
    pub(in crate::stream) usage: usize,
    /// Whether the connection belongs to that source, and the source has more connections than others.
    pub(in crate::stream) is_over_share: bool,
}

/// A connection that can be closed to free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum MemoryVictim {
    /// The connection holds more memory than others.
    Account(Handle),
    /// The source of the connection has many connections.
    Connection(Victim),
}

impl<T> ConnectionTable<T> {
    /// Returns the connection that is evicted in favour of one from this source, if any: the first in the order of
    /// eviction, unless this source's usage is at least as high as that of the victim's source. In that case it can
    /// only replace an idle or lingering connection of its own. If only a wider network has such a usage, it can also
    /// replace a connection of that network that is idle, lingers or is in a request, so that a client of a provider is
    /// served although others of the provider have many connections.
    pub(in crate::stream) fn victim_for(&mut self, ip: Option<IpAddr>) -> Option<Victim> {
        let (highest, usage) = self.shares.highest_usage_of(networks(ip));
        match self.victim() {
            Some(victim) if victim.usage > usage => Some(victim),
            _ => {
                let own = networks(ip).next()?;
                let of_own = [Class::Idle, Class::Linger].map(|class| (own, class));
                let of_wider = highest.filter(|network| *network != own).map(|network| {
                    [Class::Idle, Class::Linger, Class::Request].map(|class| (network, class))
                });
                let mut candidates = of_own.into_iter().chain(of_wider.into_iter().flatten());
                let node = candidates.find_map(|(network, class)| self.shares.first_of(network, class))?;
                Some(self.victim_at((node, usage, usage > 1)))
            }
        }
    }

    pub(in crate::stream) fn victim(&mut self) -> Option<Victim> {
        let victim = self.shares.victim(&mut self.slab)?;
        Some(self.victim_at(victim))
    }

    fn victim_at(&mut self, (node, usage, is_over_share): (NodeId, usize, bool)) -> Victim {
        let (handle, entry) = self.slab.at(node.index());
        Victim { handle, phase: entry.phase, usage, is_over_share }
    }

    /// Returns the connection that is closed to free memory: one of the source that holds most, by the memory that
    /// depends on its peers and by the number of its connections.
    pub(in crate::stream) fn memory_victim(&mut self) -> Option<MemoryVictim> {
        let Some(account) = self.accounts.largest() else {
            return self.victim().map(MemoryVictim::Connection);
        };
        let fixed_bytes = self.accounts.fixed_bytes() / self.len().max(1);
        let (_, usage) = self.shares.highest_usage_of(networks(account.ip));
        let account_weight = usage.saturating_mul(fixed_bytes) + account.source_bytes;
        match self.shares.victim_of_highest(&mut self.slab) {
            Some((node, usage)) if usage.saturating_mul(fixed_bytes) > account_weight => {
                Some(MemoryVictim::Connection(self.victim_at((node, usage, true))))
            }
            _ => Some(MemoryVictim::Account(self.slab.at(account.index).0)),
        }
    }
}
