//! The node's access to the swarms of this tracker, and the changes of the tracker's own announces.
//!
//! Peers of UDP and HTTP lie in the store; [`Replica`] exchanges them. A WebTorrent peer is connected to one node; the
//! others know it by [`Nodes`].

use std::mem;
use std::sync::Arc;

use crate::protocol::{Damaged, Deltas, Node, NodeId, Scope, Swarms, decode_deltas, encode_presence};
use shoal_base::metrics::Counter;
use shoal_base::{Delta, Presence};
use shoal_engine::Now;
use shoal_engine::replication::{
    Applier, Recorded, RecordedDeltas, Replica, ReplicaExport, ReplicationCounters,
};
use shoal_engine::webtorrent::{NodeCounters, Nodes};
use shoal_net::Waker;
use shoal_relay::Mailboxes;
use shoal_store::Store;

use super::node::LocalSwarms;
use shoal_runtime::clock;
use shoal_runtime::live::Live;
use shoal_runtime::published::{Published, Subscription};

/// Maximum number of a worker's deltas in one turn.
const DELTAS_PER_TURN_MAX: usize = 4096;

/// Number of peers in a block of connected peers. Each takes 48 bytes.
const CONNECTED_PER_BLOCK: usize = 4096;

/// The first byte of a block of connected peers. Other blocks begin differently.
const CONNECTED: u8 = b'C';

/// How often unneeded memory is freed.
const TRIM_MS: u64 = 2_000;

/// The parts of the tracker that other nodes change and read.
pub struct Shared {
    /// The swarms of UDP and HTTP.
    pub store: Arc<Store>,
    /// The swarms of WebTorrent and the mailboxes of its workers, if it is served.
    pub webtorrent: Option<(Arc<shoal_relay::Swarms>, Arc<Mailboxes>)>,
    /// The values that workers follow.
    pub live: Arc<Published<Live>>,
    /// The changes that workers record.
    pub recorded: Recorded,
    /// The wakers of all workers.
    pub wakers: Vec<Waker>,
    /// Ends the wait of the thread that exchanges them.
    pub waker: Waker,
    /// Waits while the workers pause. Returns whether this process still has the swarms.
    pub has_swarms: Box<dyn Fn() -> bool + Send>,
}

pub(super) struct ClusterSwarms {
    replica: Replica,
    swarms: Option<Arc<shoal_relay::Swarms>>,
    nodes: Option<Nodes>,
    live: Subscription<Live>,
    recorded: Recorded,
    wakers: Vec<Waker>,
    has_swarms: Box<dyn Fn() -> bool + Send>,
    now: Now,
    trimmed_ms: u64,
    deltas: Deltas,
}

/// The counters of swarms that are exchanged with other nodes.
#[derive(Debug)]
pub struct SwarmCounters {
    /// Counts of the changes of other nodes.
    pub replication: Arc<ReplicationCounters>,
    /// Counts of WebTorrent, if it is served.
    pub clients: Option<Arc<NodeCounters>>,
    /// The changes that were lost in the ring of each worker.
    pub unrecorded: Vec<Arc<Counter>>,
}

#[derive(Debug)]
pub(crate) enum Export {
    Addresses(ReplicaExport),
    /// The next shard, and peers that were read but not exported.
    Connected(usize, Vec<Presence>),
}

impl ClusterSwarms {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { store, webtorrent, live, recorded, wakers, waker: _, has_swarms } = shared;
        let policy = Arc::clone(&live.latest().policy);
        let nodes = webtorrent
            .as_ref()
            .map(|(swarms, mailboxes)| Nodes::new(Arc::clone(swarms), Arc::clone(mailboxes)));
        Self {
            replica: Replica::new(Applier::new(policy, store)),
            swarms: webtorrent.map(|(swarms, _)| swarms),
            nodes,
            live: live.subscribe(),
            recorded,
            wakers,
            has_swarms,
            now: Now::default(),
            trimmed_ms: 0,
            deltas: Deltas::default(),
        }
    }

    pub(super) fn counters(&self) -> SwarmCounters {
        let Recorded { addresses, presences, .. } = &self.recorded;
        let of_addresses = addresses.iter().map(RecordedDeltas::lost_counter);
        let unrecorded = of_addresses.chain(presences.iter().map(RecordedDeltas::lost_counter));
        SwarmCounters {
            replication: Arc::clone(self.replica.applier().counters()),
            clients: self.nodes.as_ref().map(|nodes| Arc::clone(nodes.counters())),
            unrecorded: unrecorded.cloned().collect(),
        }
    }

    fn apply_connected(&mut self, from: NodeId, presences: &[Presence]) {
        let policy = self.replica.applier().policy();
        if let Some(nodes) = &mut self.nodes {
            let permitted = |info_hash: &_| policy.check_torrent(info_hash).is_ok();
            nodes.apply(from.0, presences, permitted, self.now.monotonic_s);
        }
    }
}

impl LocalSwarms for ClusterSwarms {
    /// Sets the time as well, and follows changes of the policy.
    fn begin_turn(&mut self) -> bool {
        if !(self.has_swarms)() {
            return false;
        }
        self.now = clock::now();
        self.replica.set_now(self.now);
        if let Some(live) = self.live.update() {
            self.replica.applier_mut().set_policy(Arc::clone(&live.policy));
            self.live.acknowledge();
        }
        true
    }

    fn exchange(&mut self, node: &mut Node<Export>) {
        let now_ms = self.now.monotonic_ms;
        for recorded in &mut self.recorded.addresses {
            recorded.drain(DELTAS_PER_TURN_MAX, |delta| node.record(&delta, now_ms));
        }
        for recorded in &mut self.recorded.presences {
            recorded.drain(DELTAS_PER_TURN_MAX, |presence| node.record_presence(&presence, now_ms));
        }
        let Some(nodes) = &mut self.nodes else { return };
        let wakers = &self.wakers;
        nodes.exchange(
            |to, messages| send_in_pieces(node, NodeId(to), messages),
            |worker| wakers.get(usize::from(worker)).into_iter().for_each(Waker::wake),
        );
        if now_ms >= self.trimmed_ms + TRIM_MS {
            self.trimmed_ms = now_ms;
            nodes.trim();
        }
    }
}

/// Sends messages to a node. A queue may hold more than fits one message of the bus.
fn send_in_pieces(node: &mut Node<Export>, to: NodeId, messages: &[u8]) {
    for piece in Nodes::split(messages, Node::<Export>::RELAY_BYTES_MAX) {
        node.send_to(to, piece);
    }
}

impl Swarms for ClusterSwarms {
    type Export = Export;

    fn apply(&mut self, deltas: &[Delta], age_ms: u64) {
        self.replica.apply(deltas, age_ms);
    }

    fn apply_presences(&mut self, from: NodeId, presences: &[Presence]) {
        self.apply_connected(from, presences);
    }

    fn deliver(&mut self, from: NodeId, message: &[u8]) {
        if let Some(nodes) = &mut self.nodes {
            nodes.deliver(from.0, message, self.now.monotonic_s);
        }
    }

    fn forget(&mut self, node: NodeId) {
        if let Some(nodes) = &mut self.nodes {
            nodes.forget(node.0);
        }
    }

    fn begin_export(&mut self, scope: Scope) -> Export {
        match scope {
            Scope::Addresses => Export::Addresses(ReplicaExport::default()),
            Scope::Connected => Export::Connected(0, Vec::new()),
        }
    }

    fn export(&mut self, export: &mut Export, block: &mut Vec<u8>) -> bool {
        match export {
            Export::Addresses(export) => self.replica.export(export, block),
            Export::Connected(shard, waiting) => {
                let Some(swarms) = &self.swarms else { return false };
                while waiting.is_empty() && *shard < shoal_relay::Swarms::SHARDS {
                    swarms.connected(*shard, waiting);
                    *shard += 1;
                }
                let rest = waiting.split_off(waiting.len().min(CONNECTED_PER_BLOCK));
                write_connected(&mem::replace(waiting, rest), block);
                !waiting.is_empty() || *shard < shoal_relay::Swarms::SHARDS
            }
        }
    }

    fn adopt(&mut self, from: NodeId, block: &[u8]) -> Result<(), Damaged> {
        match block {
            [] => Ok(()),
            [CONNECTED, encoded @ ..] => {
                let mut deltas = mem::take(&mut self.deltas);
                let decoded = decode_deltas(encoded, &mut deltas).map_err(|_| Damaged);
                if decoded.is_ok() {
                    self.apply_connected(from, &deltas.presences);
                }
                self.deltas = deltas;
                decoded
            }
            block => self.replica.adopt(block).map(drop).map_err(|_| Damaged),
        }
    }
}

fn write_connected(presences: &[Presence], block: &mut Vec<u8>) {
    block.push(CONNECTED);
    let mut before = None;
    for presence in presences {
        encode_presence(presence, before, block);
        before = Some(&presence.info_hash);
    }
}
