//! The swarms of a simulated node: a naive map.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use shoal_base::{Action, Delta, InfoHash, PeerId, Presence};
use shoal_cluster::protocol::{Damaged, NodeId, Scope, Swarms};

/// The interval of announces, and the time after which a silent peer is forgotten, in milliseconds.
pub(crate) const INTERVAL_MS: u64 = 30_000;
pub(crate) const TIMEOUT_MS: u64 = 2 * INTERVAL_MS;

/// The age of a delta that yields to newer knowledge, in milliseconds.
const LATE_MS: u64 = 1_000;

/// Peers in a block of an export.
const BLOCK_PEERS: usize = 7;

/// Returns the period in which one announce of each peer is news.
fn period(ms: u64) -> u64 {
    ms / (TIMEOUT_MS / 4)
}

pub(crate) type Key = (InfoHash, IpAddr, u16);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) seeds: bool,
    stamp_ms: u64,
    is_counted: bool,
}

/// A peer of WebTorrent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Browser {
    /// The node to which it is connected.
    pub(crate) node: NodeId,
    pub(crate) seeds: bool,
    stamp_ms: u64,
}

/// The progress of an export.
#[derive(Debug)]
pub(crate) struct Export {
    scope: Scope,
    after: Option<Key>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) id: NodeId,
    /// The peers of WebTorrent.
    pub(crate) browsers: BTreeMap<(InfoHash, PeerId), Browser>,
    /// Messages for clients, and the nodes that have sent them.
    pub(crate) delivered: Vec<(NodeId, Vec<u8>)>,
    pub(crate) peers: BTreeMap<Key, Entry>,
    pub(crate) completed: BTreeMap<InfoHash, u32>,
    /// The time of the calls.
    pub(crate) now_ms: u64,
}

impl Model {
    pub(crate) fn new(id: NodeId, now_ms: u64) -> Self {
        Self {
            id,
            browsers: BTreeMap::new(),
            delivered: Vec::new(),
            peers: BTreeMap::new(),
            completed: BTreeMap::new(),
            now_ms,
        }
    }

    /// Applies an announce at this node. Returns the delta for the others, if there is one.
    pub(crate) fn announce(&mut self, delta: Delta) -> Option<Delta> {
        let key = (delta.info_hash, delta.ip, delta.port);
        let before = self.peers.get(&key).copied();
        let is_download = self.change(&delta, self.now_ms);
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

    /// Adds or renews a peer of WebTorrent. One that is connected here stays here. Returns whether that is news.
    pub(crate) fn connect(&mut self, node: NodeId, key: (InfoHash, PeerId), seeds: bool) -> bool {
        let stamp_ms = self.now_ms;
        let before = self.browsers.get(&key).copied();
        if before.is_some_and(|before| before.node == self.id && node != self.id) {
            return false;
        }
        self.browsers.insert(key, Browser { node, seeds, stamp_ms });
        before.is_none_or(|before| {
            (before.node, before.seeds, period(before.stamp_ms)) != (node, seeds, period(stamp_ms))
        })
    }

    /// Removes a peer of WebTorrent, unless it is connected to another node by now.
    pub(crate) fn disconnect(&mut self, node: NodeId, key: (InfoHash, PeerId)) {
        if self.browsers.get(&key).is_some_and(|browser| browser.node == node) {
            self.browsers.remove(&key);
        }
    }

    /// Forgets silent peers.
    pub(crate) fn expire(&mut self) {
        self.browsers.retain(|_, browser| self.now_ms < browser.stamp_ms + TIMEOUT_MS);
        self.peers.retain(|_, entry| self.now_ms < entry.stamp_ms + TIMEOUT_MS);
    }
}

impl Swarms for Model {
    type Export = Export;

    fn begin_export(&mut self, scope: Scope) -> Export {
        Export { scope, after: None }
    }

    fn apply_presences(&mut self, from: NodeId, presences: &[Presence]) {
        for presence in presences {
            let key = (presence.info_hash, presence.peer_id);
            if presence.action == Action::Stop {
                // It may be connected to another node by now.
                self.disconnect(from, key);
            } else {
                self.connect(from, key, presence.action != Action::Leech);
            }
        }
    }

    fn deliver(&mut self, from: NodeId, message: &[u8]) {
        self.delivered.push((from, message.to_vec()));
    }

    fn forget(&mut self, node: NodeId) {
        self.browsers.retain(|_, browser| browser.node != node);
    }

    fn apply(&mut self, deltas: &[Delta], age_ms: u64) {
        let at_ms = self.now_ms.saturating_sub(age_ms);
        for delta in deltas {
            let known = self.peers.get(&(delta.info_hash, delta.ip, delta.port));
            // A batch that was sent again may tell less than is known.
            let is_late = age_ms > LATE_MS && known.is_some_and(|entry| entry.stamp_ms > at_ms);
            if !is_late && (age_ms < TIMEOUT_MS || delta.action == Action::Stop) {
                self.change(delta, at_ms);
            }
        }
    }

    fn export(&mut self, export: &mut Export, block: &mut Vec<u8>) -> bool {
        if export.scope == Scope::Connected {
            block.push(1);
            for ((info_hash, peer_id), browser) in
                self.browsers.iter().filter(|(_, browser)| browser.node == self.id)
            {
                block.extend(info_hash.0);
                block.extend(peer_id.0);
                block.push(u8::from(browser.seeds));
            }
            return false;
        }
        block.push(0);
        let after = export.after.map_or(Bound::Unbounded, Bound::Excluded);
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
            export.after = Some(*key);
        }
        rest.next().is_some()
    }

    fn adopt(&mut self, from: NodeId, block: &[u8]) -> Result<(), Damaged> {
        let (kind, block) = block.split_first().ok_or(Damaged)?;
        if *kind == 1 {
            let (browsers, []) = block.as_chunks::<41>() else { return Err(Damaged) };
            for browser in browsers {
                let info_hash = InfoHash(browser[..20].try_into().unwrap());
                let peer_id = PeerId(browser[20..40].try_into().unwrap());
                self.connect(from, (info_hash, peer_id), browser[40] == 1);
            }
            return Ok(());
        }
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
            // Its download is in the count that was adopted.
            let is_counted = entry.is_counted || read.is_counted;
            if entry.stamp_ms < read.stamp_ms {
                *entry = read;
            }
            entry.is_counted = is_counted;
        }
        Ok(())
    }
}
