//! The swarms of a simulated node: a naive map.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use shoal_cluster::{Damaged, Swarms};
use shoal_types::{Action, Delta, InfoHash};

/// The interval of announces, and the time after which a silent peer is forgotten, in milliseconds.
pub(crate) const INTERVAL_MS: u64 = 30_000;
pub(crate) const TIMEOUT_MS: u64 = 2 * INTERVAL_MS;

/// Peers in a block of an export.
const BLOCK_PEERS: usize = 7;

pub(crate) type Key = (InfoHash, IpAddr, u16);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) seeds: bool,
    stamp_ms: u64,
    is_counted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) peers: BTreeMap<Key, Entry>,
    pub(crate) completed: BTreeMap<InfoHash, u32>,
    /// The time of the calls.
    pub(crate) now_ms: u64,
}

impl Model {
    /// Applies an announce at this node. Returns the delta for the others, if there is one.
    pub(crate) fn announce(&mut self, delta: Delta) -> Option<Delta> {
        let key = (delta.info_hash, delta.ip, delta.port);
        let before = self.peers.get(&key).copied();
        let is_download = self.change(&delta, self.now_ms);
        let period = |ms: u64| ms / (TIMEOUT_MS / 4);
        let is_news = match (before, delta.action) {
            (before, Action::Stop) => before.is_some(),
            (None, _) => true,
            (Some(before), _) => {
                before.seeds != (delta.action != Action::Leech)
                    || is_download
                    || period(before.stamp_ms) != period(self.now_ms)
            }
        };
        let action = match delta.action {
            Action::Complete if !is_download => Action::Seed,
            action => action,
        };
        is_news.then_some(Delta { action, ..delta })
    }

    /// Changes a peer. Returns whether a download was counted.
    fn change(&mut self, delta: &Delta, at_ms: u64) -> bool {
        let key = (delta.info_hash, delta.ip, delta.port);
        if delta.action == Action::Stop {
            self.peers.remove(&key);
            return false;
        }
        let fresh = Entry { seeds: false, stamp_ms: at_ms, is_counted: false };
        let entry = self.peers.entry(key).or_insert(fresh);
        entry.stamp_ms = at_ms;
        entry.seeds = delta.action != Action::Leech;
        let is_download = delta.action == Action::Complete && !entry.is_counted;
        if is_download {
            entry.is_counted = true;
            *self.completed.entry(delta.info_hash).or_default() += 1;
        }
        is_download
    }

    /// Forgets silent peers.
    pub(crate) fn expire(&mut self) {
        self.peers.retain(|_, entry| self.now_ms < entry.stamp_ms + TIMEOUT_MS);
    }
}

impl Swarms for Model {
    type Export = Option<Key>;

    fn apply(&mut self, deltas: &[Delta], age_ms: u64) {
        for delta in deltas {
            if age_ms < TIMEOUT_MS || delta.action == Action::Stop {
                self.change(delta, self.now_ms.saturating_sub(age_ms));
            }
        }
    }

    fn export(&mut self, export: &mut Option<Key>, block: &mut Vec<u8>) -> bool {
        let after = export.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.peers.range((after, Bound::Unbounded));
        for (key, entry) in rest.by_ref().take(BLOCK_PEERS) {
            let (InfoHash(info_hash), IpAddr::V4(ip), port) = *key else { panic!("all are IPv4") };
            let age_ms = self.now_ms - entry.stamp_ms;
            let completed = self.completed.get(&key.0).copied().unwrap_or(0);
            block.extend(info_hash);
            block.extend(ip.octets());
            block.extend(port.to_le_bytes());
            block.extend([u8::from(entry.seeds), u8::from(entry.is_counted)]);
            block.extend(age_ms.to_le_bytes());
            block.extend(completed.to_le_bytes());
            *export = Some(*key);
        }
        rest.next().is_some()
    }

    fn adopt(&mut self, block: &[u8]) -> Result<(), Damaged> {
        let (peers, []) = block.as_chunks::<40>() else { return Err(Damaged) };
        for peer in peers {
            let info_hash = InfoHash(peer[..20].try_into().unwrap());
            let ip: [u8; 4] = peer[20..24].try_into().unwrap();
            let port = u16::from_le_bytes(peer[24..26].try_into().unwrap());
            let age_ms = u64::from_le_bytes(peer[28..36].try_into().unwrap());
            let completed = u32::from_le_bytes(peer[36..].try_into().unwrap());
            let stamp_ms = self.now_ms.saturating_sub(age_ms);
            let count = self.completed.entry(info_hash).or_default();
            *count = completed.max(*count);
            if age_ms >= TIMEOUT_MS {
                continue;
            }
            let read = Entry { seeds: peer[26] == 1, stamp_ms, is_counted: peer[27] == 1 };
            let entry = self.peers.entry((info_hash, ip.into(), port)).or_insert(read);
            if entry.stamp_ms < read.stamp_ms {
                *entry = Entry { is_counted: entry.is_counted || read.is_counted, ..read };
            }
        }
        Ok(())
    }
}
