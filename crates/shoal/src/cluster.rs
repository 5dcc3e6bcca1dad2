//! The node of a cluster: several trackers that share their swarms over NATS.
//!
//! The protocol is `shoal-cluster`, which has no I/O. This module gives it a connection to NATS ([`connection`]), and a
//! thread that owns its state ([`node`]). Nothing here can delay a request: the workers never wait for either, and
//! without NATS the tracker starts and serves alone.

pub(crate) mod command;
mod connection;
mod credentials;
mod node;
pub(crate) mod shared;
mod swarms;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_cluster::{NodeId, Status};
use shoal_config::Config;
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::periodic::PeriodicThread;
use crate::published::Published;
use crate::settings;

pub(crate) use connection::Link;
use connection::{Connection, ConnectionSettings, INBOX_BYTES_MAX};
use node::NodeThread;
use shared::{Copy, NodeKeys, SharedState, SharedThread, Targets};
use swarms::ClusterSwarms;
pub(crate) use swarms::{Recorded, Shared, SwarmCounters};

/// Maximum number of messages of this node that wait for the connection. Their batches are 16 KiB or so.
const OUTGOING_MESSAGES_MAX: usize = 1024;

/// Maximum memory of the batches that are retained for nodes that have missed them.
const RETAINED_BYTES_MAX: usize = 16 << 20;

/// Memory of all messages of a node: those that wait for it, those that wait for earlier ones, those that wait for the
/// connection, and those that are retained.
pub(crate) const MESSAGES_BYTES_MAX: usize = INBOX_BYTES_MAX
    + shoal_cluster::WAITING_BYTES_MAX
    + OUTGOING_MESSAGES_MAX * shoal_cluster::BATCH_BYTES_MAX
    + RETAINED_BYTES_MAX;

/// The settings of a node, whose files have been read once.
#[derive(Debug)]
pub(crate) struct ClusterSettings {
    node: shoal_cluster::Settings,
    connection: ConnectionSettings,
    config: Config,
}

/// A running node. When it is dropped, it tells the others that it leaves.
pub(crate) struct Cluster {
    /// Ends before the connection, for which it leaves its last messages.
    node: PeriodicThread,
    connection: Option<Connection>,
    observed: Arc<Observed>,
    /// Applies the state that all nodes share.
    applier: Option<SharedThread>,
}

/// The parts of a node that its status and the metrics are read from.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The name of the cluster.
    pub(crate) cluster: String,
    pub(crate) link: Arc<Link>,
    pub(crate) status: Published<Status>,
    pub(crate) swarms: SwarmCounters,
    /// The state that all nodes share, unless each has its own.
    pub(crate) shared: Option<Arc<SharedState>>,
}

impl ClusterSettings {
    /// Returns the settings of the node, if the tracker is to be part of a cluster. Reads files.
    ///
    /// # Errors
    /// Fails if a file cannot be used, or the kernel provides no random numbers.
    pub(crate) fn read(config: &Config) -> Result<Option<Self>, Failure> {
        if config.cluster.servers.is_empty() {
            return Ok(None);
        }
        let host_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = config.cluster.node.as_ref().map_or_else(host_name, ToString::to_string);
        let connection =
            ConnectionSettings::read(&config.cluster, name.clone()).map_err(Failure::Configuration)?;
        let node = shoal_cluster::Settings {
            cluster: config.cluster.name.as_str().to_owned(),
            name,
            id: NodeId(u64::from_ne_bytes(settings::random()?)),
            retained_bytes_max: RETAINED_BYTES_MAX,
        };
        Ok(Some(Self { node, connection, config: config.clone() }))
    }
}

impl Cluster {
    /// Starts the node, and does not wait for NATS.
    ///
    /// # Errors
    /// Fails if the kernel provides no more threads.
    pub(crate) fn start(
        settings: ClusterSettings,
        shared: Shared,
        (copy, keys): (Copy, NodeKeys),
    ) -> anyhow::Result<Self> {
        let ClusterSettings { node, connection, config } = settings;
        let cluster = node.cluster.clone();
        let (outgoing, to_send) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        let servers: Vec<String> = connection.servers.iter().map(ToString::to_string).collect();
        tracing::info!(cluster, node = node.name, id = %node.id, nats = servers.join(", "), "cluster");
        let waker = shared.waker.clone();
        let (link, inbox) = Link::new(waker.clone());
        let swarms = ClusterSwarms::new(shared);
        let counters = swarms.counters();
        let mut thread = NodeThread::new(&node, swarms, Arc::clone(&link), (inbox, waker), outgoing);
        let state = SharedState::new(&config, Arc::clone(&link), copy);
        let followed = state.clone().map(|state| (state, keys));
        let observed = Arc::new(Observed {
            cluster,
            link: Arc::clone(&link),
            status: Published::new(thread.status()),
            swarms: counters,
            shared: state,
        });
        let connection = Connection::start(connection, thread.subscriptions(), link, to_send, followed)
            .context("cannot start the thread of the connection to NATS")?;
        let publish = Arc::clone(&observed);
        let node = PeriodicThread::start("cluster", Duration::ZERO, move || thread.turn(&publish.status))
            .context("cannot start the thread of the cluster")?;
        Ok(Self { node, connection: Some(connection), observed, applier: None })
    }

    /// Lets the state that all nodes share apply here from now on.
    ///
    /// # Errors
    /// Fails if the kernel provides no more threads.
    pub(crate) fn apply_shared(&mut self, targets: Targets, config: &Config) -> anyhow::Result<()> {
        let Some(state) = &self.observed.shared else { return Ok(()) };
        let thread = SharedThread::start(state, targets, config);
        self.applier = Some(thread.context("cannot start the thread of the shared state")?);
        Ok(())
    }

    /// Returns what the status and the metrics are read from.
    pub(crate) fn observed(&self) -> Arc<Observed> {
        Arc::clone(&self.observed)
    }

    /// Waits until a thread fails, and returns the reason.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        match &mut self.applier {
            Some(applier) => tokio::select! {
                error = self.node.failure() => error,
                error = applier.failure() => error,
            },
            None => self.node.failure().await,
        }
    }

    /// Tells the others that this node leaves, and ends the connection. Takes a fraction of a second.
    pub(crate) fn stop(self) {
        let Self { node, connection, applier, .. } = self;
        drop((node, applier));
        if let Some(connection) = connection {
            connection.finish();
        }
    }
}
