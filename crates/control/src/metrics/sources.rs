//! The sources of the metrics and of the control listener's pages.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_engine::counter::{Counters, Drop, Family, Unregistered};
use shoal_engine::policy::Protocol;
use shoal_net::stream::{Budget, StreamCounters};
use shoal_net::{FamilyCounters, Unread, Unsent};
use shoal_relay::Swarms;
use shoal_session::SessionCounters;
use shoal_session::tls::Certificate;
use shoal_store::Store;

use crate::cluster::Node;
use crate::counters::ControlCounters;
use crate::insight::Insight;
use crate::last_day::{self, DayCounts, LastDay};
use crate::operations::{Build, DataPathFigures};
use crate::stats;
use shoal_engine::processing::ProcessingCounters;
use shoal_runtime::counters::RecordCounters;
use shoal_runtime::counters::ReloadCounters;
use shoal_runtime::counters::SnapshotCounters;
use shoal_runtime::division::Division;
use shoal_runtime::heartbeat::Heartbeat;
use shoal_runtime::lists::{ListControl, ListCounters};
use shoal_runtime::live::Live;
use shoal_runtime::published::Published;
use shoal_runtime::token_keys::KeyCounters;

/// Everything that the metrics are read from.
#[derive(Debug)]
pub struct Sources {
    /// The workers, in order.
    pub workers: Vec<WorkerSources>,
    /// The swarms of UDP and HTTP.
    pub store: Arc<Store>,
    /// The swarms of WebTorrent, if it is served.
    pub swarms: Option<Arc<Swarms>>,
    /// The division of the memory.
    pub memory: Division,
    /// The name of the back end of datagrams.
    pub backend: String,
    /// The build of the program.
    pub build: Build,
    /// When the tracker started, in seconds since 1970.
    pub started_unix_s: u64,
    /// The certificates of the listeners for clients, if TLS is served, and of the control listener, if it has one.
    pub tls: Vec<shoal_session::tls::Server>,
    /// Counts of reloads.
    pub reloads: Arc<ReloadCounters>,
    /// Figures of the lists.
    pub lists: Arc<ListCounters>,
    /// Figures of the keys of tokens.
    pub token_keys: Arc<KeyCounters>,
    /// Counts of records of the access log.
    pub access_log: Arc<RecordCounters>,
    /// Counts of the control listener itself.
    pub control: Arc<ControlCounters>,
    /// Counts of snapshots.
    pub snapshots: Arc<SnapshotCounters>,
    /// The values that workers follow.
    pub live: Arc<Published<Live>>,
    /// Changes of the lists.
    pub list_control: ListControl,
    /// The largest swarms, the clients, and the feed of changes.
    pub insight: Arc<Insight>,
    /// The node of a cluster, if the tracker is part of one.
    pub cluster: Option<Arc<dyn Node>>,
    /// The requests of the last 24 hours.
    pub last_day: Mutex<LastDay>,
    /// The XDP data path, if there is one.
    pub data_path: Option<Arc<dyn DataPathFigures>>,
}

/// The counters and the heartbeat of one worker.
#[derive(Debug)]
pub struct WorkerSources {
    /// Whether the worker responds.
    pub heartbeat: Arc<Heartbeat>,
    /// Requests of each protocol, in the order of [`Protocol::ALL`].
    pub requests: [Arc<Counters>; Protocol::ALL.len()],
    /// Connections, by protocol.
    pub sessions: Arc<SessionCounters>,
    /// How long requests take.
    pub processing: Arc<ProcessingCounters>,
    /// Datagrams.
    pub io: Arc<shoal_net::Counters>,
    /// Connections, as the back end counts them.
    pub streams: Arc<StreamCounters>,
    /// The memory of connections.
    pub budget: Arc<Budget>,
}

impl Sources {
    /// Returns a count of one protocol, summed over all workers and the programs of an XDP data path.
    pub fn sum(&self, protocol: Protocol, read: impl Fn(&Counters) -> u64) -> u64 {
        let workers = self.workers.iter().map(|worker| &*worker.requests[protocol as usize]);
        let data_path = self.data_path.iter().filter(|_| protocol == Protocol::Udp);
        workers.chain(data_path.map(|data_path| data_path.requests())).map(read).sum()
    }

    /// Returns the counts of which the last day is made.
    pub(crate) fn day_counts(&self) -> DayCounts {
        last_day::counts(&stats::all_traffic(self))
    }

    /// Returns a count of connections, summed over all workers.
    pub(crate) fn sum_streams(&self, read: impl Fn(&StreamCounters) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(&worker.streams)).sum()
    }

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> u64 {
        let sum = |read: fn(&StreamCounters) -> u64| self.sum_streams(read);
        sum(|io| io.accepted.read()).saturating_sub(sum(|io| io.closed.read()))
    }

    /// Returns the received datagrams without a reply, by reason.
    pub(crate) fn drops(&self, family: Family) -> impl Iterator<Item = (&'static str, u64)> {
        let decided =
            Drop::ALL.map(|reason| (reason.name(), self.sum(Protocol::Udp, |udp| udp.drops(family, reason))));
        let unread =
            Unread::ALL.map(|reason| (reason.name(), self.sum_io(family, |io| io.unread.of(reason).read())));
        decided.into_iter().chain(unread)
    }

    /// Returns the replies that the kernel did not send, by reason.
    pub(crate) fn reply_drops(&self, family: Family) -> [(&'static str, u64); Unsent::ALL.len()] {
        Unsent::ALL.map(|reason| (reason.name(), self.sum_io(family, |io| io.unsent.of(reason).read())))
    }

    /// Returns the announces that were answered without registering the peer, by the limit of its source.
    pub(crate) fn unregistered(
        &self,
        protocol: Protocol,
        family: Family,
    ) -> [(&'static str, u64); Unregistered::ALL.len()] {
        Unregistered::ALL.map(|reason| {
            (reason.name(), self.sum(protocol, |counters| counters.unregistered(family, reason)))
        })
    }

    /// Returns a count of the back ends for one family, summed over all workers.
    pub(crate) fn sum_io(&self, family: Family, read: impl Fn(&FamilyCounters) -> u64) -> u64 {
        let counters = |io: &shoal_net::Counters| match family {
            Family::V4 => read(&io.v4),
            Family::V6 => read(&io.v6),
        };
        self.workers.iter().map(|worker| counters(&worker.io)).sum()
    }

    /// Returns the reloads by SIGHUP, by outcome.
    pub(crate) fn reloads(&self) -> [(&'static str, u64); 2] {
        [("applied", self.reloads.applied.read()), ("failed", self.reloads.failed.read())]
    }

    /// Returns the certificates in use.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = Certificate> {
        self.tls.iter().flat_map(shoal_session::tls::Server::certificates)
    }

    /// Returns the workers with their numbers as label values.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (String, &WorkerSources)> {
        self.workers.iter().enumerate().map(|(number, worker)| (number.to_string(), worker))
    }
}
