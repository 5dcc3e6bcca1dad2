//! The networks of a list, in little memory.

use std::io;

use super::{NETWORKS_MAX, Network};
use crate::budget::{Budget, Share};

/// The peak memory of an IPv4 network: its entry here (8 bytes), the rule that a table is built from (8), up to two
/// changes of the answer in the construction (8), in the table (8), and in the table that it replaces (8), and room to
/// grow.
pub(super) const V4_NETWORK_BYTES: u64 = 48;

/// The peak memory of an IPv6 network. It has the same parts, of 32 bytes each.
const V6_NETWORK_BYTES: u64 = 5 * 32 + 16;

/// The peak memory of an IPv4 network with a rule: its entry here (8 bytes), the same in order (8), up to two changes of
/// the rule (16), these with their answers in the construction (10), in the table and in the table that it replaces
/// (20).
const V4_RULED_BYTES: u64 = 64;

/// The peak memory of an IPv6 network with a rule. It has the same parts, of 32 bytes each or 17 for each change.
const V6_RULED_BYTES: u64 = 5 * 32 + 4 * 17;

/// The networks of a list. They also take the memory for a table of them: a change of any list rebuilds the table.
#[derive(Debug, Default)]
pub struct NetworkList {
    /// The first addresses, the lengths of the prefixes, and the numbers of rules, which lists do not have.
    v4: Vec<(u32, u8, u8)>,
    v6: Vec<(u128, u8, u8)>,
    share: Share,
    is_full: bool,
}

impl NetworkList {
    /// Creates an empty list, which takes its memory from a budget.
    pub fn within(budget: &Budget) -> Self {
        Self { share: Share::of(budget), ..Self::default() }
    }

    /// Adds a network, if there is memory for it.
    pub(super) fn push(&mut self, network: Network) {
        self.insert(network, 0, if network.is_v6 { V6_NETWORK_BYTES } else { V4_NETWORK_BYTES });
    }

    /// Adds a network with the number of its rule, if there is memory for it.
    pub(super) fn push_ruled(&mut self, network: Network, rule: u8) {
        self.insert(network, rule, if network.is_v6 { V6_RULED_BYTES } else { V4_RULED_BYTES });
    }

    fn insert(&mut self, network: Network, rule: u8, bytes: u64) {
        if self.len() == NETWORKS_MAX {
            self.is_full = true;
            return;
        }
        if !self.share.need(bytes) {
            (self.v4, self.v6) = (Vec::new(), Vec::new());
            return;
        }
        match u32::try_from(network.first) {
            Ok(first) if !network.is_v6 => self.v4.push((first, network.length, rule)),
            _ => self.v6.push((network.first, network.length, rule)),
        }
    }

    /// Fails unless all networks fit.
    pub(super) fn check(&mut self) -> io::Result<()> {
        self.share.check().map_err(io::Error::other)?;
        if self.is_full {
            return Err(io::Error::other(format!("it has more than {NETWORKS_MAX} networks")));
        }
        self.v4.shrink_to_fit();
        self.v6.shrink_to_fit();
        Ok(())
    }

    /// Returns the number of networks.
    pub const fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether there are no networks.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the networks.
    pub fn iter(&self) -> impl Iterator<Item = Network> {
        self.ruled().map(|(network, _)| network)
    }

    /// Returns the networks with the numbers of their rules.
    pub fn ruled(&self) -> impl Iterator<Item = (Network, u8)> {
        let v4 = self
            .v4
            .iter()
            .map(|&(first, length, rule)| (Network { is_v6: false, first: first.into(), length }, rule));
        v4.chain(self.v6.iter().map(|&(first, length, rule)| (Network { is_v6: true, first, length }, rule)))
    }
}
