//! The node of a cluster in the control listener's view.

use core::fmt::{self, Debug};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_runtime::lists::SharedError;

use crate::metrics::Page;
use crate::stats::Cluster;

/// The figures and the shared state of a node.
pub trait Node: Debug + Send + Sync {
    /// Returns whether the node has the same swarms as the others, so that clients can be sent to it.
    fn is_ready(&self) -> bool;

    /// Returns the state of the node, at most a quarter of a second old.
    fn stats(&self) -> Cluster;

    /// Appends the metrics of the node. Fails if the page cannot be written.
    fn encode(&self, page: &mut Page<'_>) -> fmt::Result;

    /// Returns the values of the configuration that all nodes share, unless each node has its own.
    fn values(&self) -> Option<Arc<dyn SharedValues>>;
}

/// The values of the configuration that all nodes share.
pub trait SharedValues: Send + Sync {
    /// Returns the keys and their values.
    fn values(&self) -> Vec<(String, SharedValue)>;

    /// Sets a key at all nodes. The value must have been checked. May block. Fails if the shared state cannot be
    /// changed now.
    fn set(&self, key: &str, value: &SharedValue) -> Result<(), SharedError>;

    /// Lets each node have its own value of a key again. Returns whether there was a shared one. May block. Fails if
    /// the shared state cannot be changed now.
    fn unset(&self, key: &str) -> Result<bool, SharedError>;
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedValue {
    /// The value, in the form of an environment variable.
    pub value: String,
    /// The name of the token that set it.
    #[serde(default)]
    pub by: String,
}
