//! The node of a cluster: several trackers that share their swarms over NATS.
//!
//! [`protocol`] has no I/O. The other modules add a connection to NATS (`connection`), a thread that owns the
//! protocol's state (`node`), the state that all nodes share ([`shared`]), and the credit of users ([`credit`]).
//! Nothing here delays a request: workers never wait for the node, and without NATS the tracker starts and serves
//! alone.
#![deny(unsafe_code)]

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: shoal_testkit::allocator::CountingAllocator = shoal_testkit::allocator::CountingAllocator;

mod connection;
mod credentials;
pub mod credit;
mod events;
mod jetstream;
mod metrics;
mod node;
pub mod protocol;
pub mod shared;
mod stats;
mod swarms;

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{NodeId, Outgoing, Status};
use anyhow::Context;
use shoal_config::Config;
use tokio::sync::mpsc;

use shoal_runtime::failure::Failure;
use shoal_runtime::periodic::PeriodicThread;
use shoal_runtime::published::Published;
use shoal_runtime::random;

pub(crate) use connection::Link;
use connection::{Connection, ConnectionSettings, Followed, INBOX_BYTES_MAX};
use credit::{CreditLink, CreditThreads};
use node::NodeThread;
use shared::{Copy, NodeKeys, SharedState, SharedThread, Targets};
use swarms::ClusterSwarms;
pub use swarms::{Shared, SwarmCounters};

/// Maximum number of messages of this node that wait for the connection. Batches have about 16 KiB.
const OUTGOING_MESSAGES_MAX: usize = 1024;

/// Maximum memory of batches that are retained for nodes that missed them.
const RETAINED_BYTES_MAX: usize = 16 << 20;

/// Memory of all messages of a node: waiting for the node, for earlier messages, and for the connection, and retained
/// ones.
pub const MESSAGES_BYTES_MAX: usize = INBOX_BYTES_MAX
    + protocol::WAITING_BYTES_MAX
    + OUTGOING_MESSAGES_MAX * protocol::BATCH_BYTES_MAX
    + RETAINED_BYTES_MAX;

/// The settings of a node. Their files have been read once.
#[derive(Debug)]
pub struct ClusterSettings {
    node: protocol::Settings,
    connection: ConnectionSettings,
    config: Config,
}

/// A running node. Dropping it tells the others that it leaves.
pub struct Cluster {
    /// Ends before the connection, to which it leaves its last messages.
    node: PeriodicThread,
    connection: Option<Connection>,
    observed: Arc<Observed>,
    applier: Option<SharedThread>,
    credit: Option<CreditThreads>,
    /// Keeps the connection open.
    outgoing: mpsc::Sender<Outgoing>,
}

/// A node that has left. Requests may still be answered, so it still collects and publishes the credit of users.
pub struct Leaving {
    connection: Option<Connection>,
    credit: Option<CreditThreads>,
    outgoing: mpsc::Sender<Outgoing>,
}

/// The sources of a node's status and metrics.
#[derive(Debug)]
pub struct Observed {
    /// The name of the cluster.
    pub cluster: String,
    /// The connection to NATS.
    pub link: Arc<Link>,
    /// The state of this node and of the others.
    pub status: Published<Status>,
    /// Counts of the swarms of other nodes.
    pub swarms: SwarmCounters,
    /// The state that all nodes share, unless each node has its own.
    pub shared: Option<Arc<SharedState>>,
    /// The credit's way to its stream, if users are credited.
    pub credit: Option<Arc<CreditLink>>,
}

impl ClusterSettings {
    /// Returns the settings of the node, if the tracker should join a cluster. Reads files. Fails if a file cannot be
    /// used, or the kernel provides no random numbers.
    pub fn read(config: &Config) -> Result<Option<Self>, Failure> {
        if config.cluster.servers.is_empty() {
            return Ok(None);
        }
        let host_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = config.cluster.node.as_ref().map_or_else(host_name, ToString::to_string);
        let connection =
            ConnectionSettings::read(&config.cluster, name.clone()).map_err(Failure::Configuration)?;
        let node = protocol::Settings {
            cluster: config.cluster.name.as_str().to_owned(),
            name,
            id: NodeId(u64::from_ne_bytes(random::bytes()?)),
            retained_bytes_max: RETAINED_BYTES_MAX,
        };
        Ok(Some(Self { node, connection, config: config.clone() }))
    }
}

impl Cluster {
    /// Starts the node without waiting for NATS. Fails if the kernel provides no more threads.
    pub fn start(
        settings: ClusterSettings,
        mut shared: Shared,
        (copy, keys): (Copy, NodeKeys),
    ) -> anyhow::Result<Self> {
        let ClusterSettings { node, connection, config } = settings;
        let (cluster, run, name) = (node.cluster.clone(), node.id, node.name.clone());
        let (outgoing, to_send) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        let servers: Vec<String> = connection.servers.iter().map(ToString::to_string).collect();
        tracing::info!(cluster, node = node.name, id = %node.id, nats = servers.join(", "), "cluster");
        let waker = shared.waker.clone();
        let recorded = std::mem::take(&mut shared.recorded.credits);
        let (link, inbox) = Link::new(waker.clone());
        let swarms = ClusterSwarms::new(shared);
        let counters = swarms.counters();
        let mut thread = NodeThread::new(&node, swarms, Arc::clone(&link), (inbox, waker), outgoing.clone());
        let state = SharedState::new(&config, Arc::clone(&link), copy);
        let credit = CreditLink::new(&config, Arc::clone(&link), &recorded);
        let followed = Followed { shared: state.clone().map(|state| (state, keys)), credit: credit.clone() };
        let observed = Arc::new(Observed {
            cluster,
            link: Arc::clone(&link),
            status: Published::new(thread.status()),
            swarms: counters,
            shared: state,
            credit: credit.clone(),
        });
        let connection = Connection::start(connection, thread.subscriptions(), link, to_send, followed)
            .context("cannot start the thread of the connection to NATS")?;
        let publish = Arc::clone(&observed);
        let node = PeriodicThread::start("cluster", Duration::ZERO, move || thread.turn(&publish.status))
            .context("cannot start the thread of the cluster")?;
        let directory = config.state.path.clone();
        let credit = credit
            .map(|credit| CreditThreads::start(credit, (run, name), recorded, directory))
            .transpose()
            .context("cannot start the thread of the credit of users")?;
        Ok(Self { node, connection: Some(connection), observed, applier: None, credit, outgoing })
    }

    /// Applies the shared state of all nodes here from now on. Fails if the kernel provides no more threads.
    pub fn apply_shared(&mut self, targets: Targets, config: &Config) -> anyhow::Result<()> {
        let Some(state) = &self.observed.shared else { return Ok(()) };
        let thread = SharedThread::start(state, targets, config);
        self.applier = Some(thread.context("cannot start the thread of the shared state")?);
        Ok(())
    }

    /// Returns the sources of the status and the metrics.
    pub fn observed(&self) -> Arc<Observed> {
        Arc::clone(&self.observed)
    }

    /// Waits until a thread fails, and returns the reason.
    pub async fn failure(&mut self) -> anyhow::Error {
        let Self { node, connection, applier, credit, .. } = self;
        let of_connection = async {
            match connection {
                Some(connection) => connection.failure().await,
                None => std::future::pending().await,
            }
        };
        let of_applier = async {
            match applier {
                Some(applier) => applier.failure().await,
                None => std::future::pending().await,
            }
        };
        let of_credit = async {
            match credit {
                Some(credit) => credit.failure().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = node.failure() => error,
            error = of_connection => error,
            error = of_applier => error,
            error = of_credit => error,
        }
    }

    /// Tells the others that this node leaves. Takes a fraction of a second.
    pub fn leave(self) -> Leaving {
        let Self { node, connection, applier, credit, outgoing, .. } = self;
        drop((node, applier));
        if let Some(credit) = &credit {
            credit.leave();
        }
        Leaving { connection, credit, outgoing }
    }
}

impl Leaving {
    /// Publishes the last credit of users and ends the connection. Takes a fraction of a second.
    pub fn finish(self) {
        let Self { connection, credit, outgoing } = self;
        if let Some(credit) = credit {
            credit.finish();
        }
        drop(outgoing);
        if let Some(connection) = connection {
            connection.finish();
        }
    }
}
