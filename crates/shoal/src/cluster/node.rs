//! The node of a process with the feature `cluster`.

use std::sync::Arc;

use shoal_cluster::shared::{ApplyValues, ConnectionKeys, Copy, NodeKeys, Targets, copy_file};
use shoal_cluster::{Cluster, ClusterSettings};
use shoal_config::Config;
use shoal_net::Waker;
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::{Lists, SharedEntries};

pub(crate) use shoal_cluster::{Leaving, Shared};

use super::{Changed, NodeParts};
use crate::reload::Reloader;
use crate::state::StateKeys;
use crate::worker::pool::{WorkerPool, WorkerSetup};

pub(crate) struct ClusterFiles {
    settings: Option<ClusterSettings>,
    /// This node's copy of the shared state of all nodes.
    copy: Copy,
}

pub(crate) struct Node(Cluster);

impl ClusterFiles {
    /// Reads the files that the configuration names. A disk may block the call.
    pub(crate) fn read(config: &Config) -> Result<Self, Failure> {
        let copy = Copy::read(copy_file(config).as_deref());
        Ok(Self { settings: ClusterSettings::read(config)?, copy })
    }

    /// Returns the key of connection ids from the copy of the shared state.
    pub(crate) fn connection_key(&self) -> Option<[u8; 16]> {
        self.copy.connection_key()
    }

    /// Adds the entries of the shared state to the lists.
    pub(crate) fn share(&self, lists: &mut Lists) {
        lists.share(|key| self.copy.tables(key), self.copy.bans());
    }
}

/// Opens every file of a node, to check the configuration.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    ClusterSettings::read(config).map(drop)
}

/// Returns the memory of a node without its workers' rings: the messages, the shared state, and the credit of users.
pub(crate) const fn bytes(config: &Config) -> usize {
    let of_credit = if config.cluster.credit_stream.is_some() { shoal_cluster::credit::BYTES_MAX } else { 0 };
    let of_shared = if config.shares_state() { shoal_cluster::shared::BYTES_MAX } else { 0 };
    shoal_cluster::MESSAGES_BYTES_MAX + of_shared + of_credit
}

/// Returns the parts that other nodes of a cluster change and read. The `waker` wakes the node's thread.
pub(crate) fn shared(setup: &WorkerSetup, pool: &mut WorkerPool, waker: Waker) -> Shared {
    let webtorrent = setup.webtorrent.as_ref();
    Shared {
        store: Arc::clone(&setup.store),
        webtorrent: webtorrent
            .map(|webtorrent| (Arc::clone(&webtorrent.swarms), Arc::clone(&webtorrent.mailboxes))),
        live: Arc::clone(&setup.live),
        recorded: pool.take_recorded(),
        wakers: pool.wakers(),
        waker,
        has_swarms: {
            let phase = Arc::clone(&setup.phase);
            Box::new(move || phase.permits_node())
        },
    }
}

impl Node {
    pub(crate) fn start(parts: NodeParts<'_>) -> anyhow::Result<Option<Self>> {
        let NodeParts { config, files: ClusterFiles { settings, copy }, shared, live, wakers, keys, tickets } =
            parts;
        let Some((settings, shared)) = settings.zip(shared) else { return Ok(None) };
        let configured = config.connection_id.key.0;
        let keys = NodeKeys { live, wakers, state: Arc::new(keys), configured, tickets };
        Ok(Some(Self(Cluster::start(settings, shared, (copy, keys))?)))
    }

    /// Makes this process follow the shared state from now on.
    pub(crate) fn apply_shared(&mut self, changed: Changed, config: &Config) -> anyhow::Result<()> {
        let Changed { lists, reloader } = changed;
        self.0.apply_shared(Targets { lists, reloader: reloader as Arc<dyn ApplyValues> }, config)
    }

    pub(crate) fn observed(&self) -> Arc<dyn shoal_control::cluster::Node> {
        self.0.observed()
    }

    /// Returns the shared entries of lists, unless each node has its own.
    pub(crate) fn entries(&self) -> Option<Arc<dyn SharedEntries>> {
        self.0.observed().shared.clone().map(|state| state as Arc<dyn SharedEntries>)
    }

    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        self.0.failure().await
    }

    /// Tells the other nodes that this one leaves.
    pub(crate) fn leave(self) -> Leaving {
        self.0.leave()
    }
}

impl ApplyValues for Reloader {
    fn apply(&self, values: Vec<(String, String)>) -> Result<(), String> {
        self.apply_cluster(values).map(drop)
    }
}

impl ConnectionKeys for StateKeys {
    fn connections(&self) -> [u8; 16] {
        self.connections()
    }

    fn adopt_connections(&self, key: [u8; 16]) {
        self.adopt_connections(key);
    }
}
