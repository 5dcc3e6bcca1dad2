//! A process without the feature `cluster` is no node, and its configuration may not ask for one.

use std::sync::Arc;

use shoal_config::Config;
use shoal_net::Waker;
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::{Lists, SharedEntries};

use super::{Changed, NodeParts};
use crate::worker::pool::{WorkerPool, WorkerSetup};

/// A process without the feature reads no files for a node.
pub(crate) struct ClusterFiles;

/// Without the feature, other nodes share nothing with this process.
pub(crate) struct Shared;

/// Never exists.
pub(crate) enum Node {}

/// Never exists.
pub(crate) enum Leaving {}

impl ClusterFiles {
    pub(crate) fn read(config: &Config) -> Result<Self, Failure> {
        check(config).map(|()| Self)
    }

    pub(crate) const fn connection_key(&self) -> Option<[u8; 16]> {
        None
    }

    pub(crate) const fn share(&self, _: &mut Lists) {}
}

pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    let Some(server) = config.cluster.servers.first() else { return Ok(()) };
    Err(Failure::Configuration(format!(
        "cluster.servers = [\"{server}\", …]: this program was built without the feature `cluster`; expected []"
    )))
}

pub(crate) const fn bytes(_: &Config) -> usize {
    0
}

pub(crate) fn shared(_: &WorkerSetup, _: &mut WorkerPool, _: Waker) -> Shared {
    Shared
}

impl Node {
    #[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(crate) fn start(_: NodeParts<'_>) -> anyhow::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn apply_shared(&mut self, _: Changed, _: &Config) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) fn observed(&self) -> Arc<dyn shoal_control::cluster::Node> {
        match *self {}
    }

    pub(crate) fn entries(&self) -> Option<Arc<dyn SharedEntries>> {
        match *self {}
    }

    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        match *self {}
    }

    pub(crate) fn leave(self) -> Leaving {
        match self {}
    }
}

impl Leaving {
    pub(crate) fn finish(self) {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_a_node_is_refused() {
        let variable = ("SHOAL_CLUSTER_SERVERS".into(), "nats://127.0.0.1:4222".into());
        let config = shoal_config::read(None, [variable]).unwrap();
        let refusal = check(&config).unwrap_err().to_string();
        assert!(refusal.starts_with("cluster.servers = [\"nats://127.0.0.1:4222\""), "{refusal}");
        assert!(check(&shoal_config::read(None, []).unwrap()).is_ok());
    }
}
