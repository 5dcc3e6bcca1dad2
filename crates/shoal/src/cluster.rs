//! The process as a node of a cluster.
//!
//! Without the feature `cluster`, the program has no client of NATS, and refuses a configuration with NATS servers.

#[cfg(not(feature = "cluster"))]
mod absent;
#[cfg(feature = "cluster")]
mod node;

use std::sync::Arc;

use shoal_config::Config;
use shoal_runtime::lists::ListControl;
use shoal_runtime::live::Live;
use shoal_runtime::published::Published;
use shoal_session::tls::Server;

#[cfg(not(feature = "cluster"))]
pub(crate) use self::absent::{ClusterFiles, Leaving, Node, Shared, bytes, check, shared};
#[cfg(feature = "cluster")]
pub(crate) use self::node::{ClusterFiles, Leaving, Node, Shared, bytes, check, shared};
use crate::reload::Reloader;
use crate::state::StateKeys;

#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a node uses it"))]
pub(crate) struct NodeParts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) files: ClusterFiles,
    /// The parts that other nodes change and read, if the tracker is a node.
    pub(crate) shared: Option<Shared>,
    pub(crate) live: Arc<Published<Live>>,
    pub(crate) wakers: Vec<shoal_net::Waker>,
    pub(crate) keys: StateKeys,
    /// The server whose tickets all nodes accept, if TLS is served.
    pub(crate) tickets: Option<Server>,
}

/// The parts of the process that follow the shared state of all nodes.
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a node uses it"))]
pub(crate) struct Changed {
    pub(crate) lists: ListControl,
    pub(crate) reloader: Arc<Reloader>,
}
