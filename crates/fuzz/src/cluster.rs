//! The messages of the nodes of a cluster, and a node that receives them.

pub(crate) mod message;
pub(crate) mod node;
pub(crate) mod remote_messages;
pub(crate) mod replica_block;
