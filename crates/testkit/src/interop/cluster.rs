//! A second node: a NATS server and another tracker, each on its own host, so that clients of two trackers form one swarm.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::interop::network::{Host, NODE_NAME, Network};
use crate::interop::tracker::{Setting, Tracker};
use crate::process::{Process, wait_for};
use crate::tools;

/// The name of the host of the NATS server, and the setting that makes a tracker use it.
const NATS_NAME: &str = "nats.test";
const SERVERS: Setting = ("SHOAL_CLUSTER_SERVERS", "nats://nats.test:4222");

/// Nodes look for each other for a few seconds. A busy machine takes longer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The second node, and the NATS server of both.
#[derive(Debug)]
pub(crate) struct SecondNode {
    pub(crate) tracker: Tracker,
    nats: Process,
    /// Lives as long as the server.
    _nats_host: Host,
}

/// A NATS server that runs, and the hosts of the second node.
#[derive(Debug)]
pub(crate) struct NatsHost {
    nats: Process,
    host: Host,
    node: Host,
    observer: Host,
}

impl NatsHost {
    /// Adds the hosts to a network, and starts the server.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a host, or the server is missing.
    pub(crate) fn start(network: &mut Network, directory: &Path) -> Result<Self> {
        let host = network.add_named_host(NATS_NAME)?;
        let (node, observer) = (network.add_named_host(NODE_NAME)?, network.add_host()?);
        let mut command = host.command_at(&tools::nats_server()?)?;
        command.args(["--addr", &host.address.to_string(), "--port", "4222"]);
        let nats = Process::start(command, &directory.join("nats.log")).context("cannot start NATS")?;
        Ok(Self { nats, host, node, observer })
    }

    /// Returns the setting of a node of the cluster.
    pub(crate) fn setting() -> Setting {
        SERVERS
    }

    /// Starts the second node with these settings, and waits until both nodes know each other.
    ///
    /// # Errors
    /// Returns an error if it does not start, or does not find the first one.
    pub(crate) fn join(
        self,
        first: &Tracker,
        settings: &[Setting],
        tracker_view: &Path,
        directory: &Path,
    ) -> Result<SecondNode> {
        let Self { nats, host, node, observer } = self;
        let directory = directory.join("second-node");
        std::fs::create_dir(&directory)?;
        let tracker = Tracker::start([node, observer], None, settings, tracker_view, &directory)?;
        let knows_other = |tracker: &Tracker| -> Result<bool> {
            let ready = tracker.metrics()?.sum("shoal_cluster_nodes", |labels| labels.contains("ready"));
            Ok(ready? == 1.0)
        };
        let joined = wait_for("the nodes should know each other", JOIN_TIMEOUT, || {
            Ok((knows_other(first)? && knows_other(&tracker)?).then_some(()))
        });
        let second = SecondNode { tracker, nats, _nats_host: host };
        joined.with_context(|| second.log_tails())?;
        Ok(second)
    }
}

impl SecondNode {
    /// Returns the ends of the logs of the tracker and the NATS server.
    pub(crate) fn log_tails(&self) -> String {
        self.tracker.log_tail() + &self.nats.report()
    }
}
