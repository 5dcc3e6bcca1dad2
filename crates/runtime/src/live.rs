//! Everything that workers take from the configuration and that can change while they run.
//!
//! A worker sees a new [`Live`] before its next batch, see [`crate::published`].
//!
//! A batch is served under one policy, and no worker waits for a reload. A worker computes values from keys again when
//! it adopts a new [`Live`]: in `set_policy` of the responders and `reconfigure` of the sessions.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use shoal_engine::connection_id::ConnectionKey;
use shoal_engine::policy::Policy;
use shoal_net::stream::{StreamLimits, StreamListeners};
use shoal_net::{PreparedIo, SocketProbe};
use shoal_session::SessionSettings;

/// The changeable values that workers take from the configuration.
#[derive(Clone, Debug)]
pub struct Live {
    /// The decisions.
    pub policy: Arc<Policy>,
    /// The settings of HTTP and WebSocket connections.
    pub sessions: Arc<SessionSettings>,
    /// The limits on connections.
    pub stream_limits: StreamLimits,
    /// The sockets.
    pub endpoints: Arc<Endpoints>,
    /// The operator's own home page, if there is one.
    pub home: Option<Arc<str>>,
    /// The key of connection ids, which a node of a cluster changes while it runs.
    pub connection_key: ConnectionKey,
}

impl Live {
    /// Returns the same with another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self { policy: Arc::new(policy), ..self.clone() }
    }
}

/// The part of the sockets that workers and metrics see.
#[derive(Debug)]
pub struct Endpoints {
    /// Maximum number of connections of all workers together.
    pub connections_max: u64,
    /// The sockets of each worker.
    pub probes: Vec<Vec<SocketProbe>>,
    /// The new part of each worker, until the worker takes it. Empty at the start.
    pub new: Vec<Mutex<Option<WorkerEndpoints>>>,
}

/// The new sockets and listeners of a worker.
#[derive(Debug)]
pub struct WorkerEndpoints {
    /// The sockets for datagrams.
    pub datagrams: PreparedIo,
    /// The listeners for connections.
    pub listeners: StreamListeners,
    /// The limits on connections.
    pub limits: StreamLimits,
}

impl Endpoints {
    /// Returns the addresses of the sockets for datagrams.
    pub fn datagram_addresses(&self) -> Vec<SocketAddr> {
        self.probes.first().into_iter().flatten().map(SocketProbe::local_addr).collect()
    }

    /// Takes the new part of a worker, if there is one.
    pub fn take(&self, worker: usize) -> Option<WorkerEndpoints> {
        self.new.get(worker)?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
