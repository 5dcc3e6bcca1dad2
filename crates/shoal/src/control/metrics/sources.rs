//! The counters and the state from which the metrics, and the pages of the control listener, are made.

use std::sync::Arc;

use shoal_engine::counter::{Counters, Family};
use shoal_engine::policy::Protocol;
use shoal_net::FamilyCounters;
use shoal_net::stream::{Budget, StreamCounters};
use shoal_relay::Swarms;
use shoal_session::SessionCounters;
use shoal_session::tls::Certificate;
use shoal_store::Store;

use crate::access::{ListControl, ListCounters};
use crate::access_log::RecordCounters;
use crate::cluster::Observed;
use crate::control::counters::ControlCounters;
use crate::heartbeat::Heartbeat;
use crate::insight::Insight;
use crate::memory::Division;
use crate::processing::ProcessingCounters;
use crate::published::Published;
use crate::reload::{Live, ReloadCounters};
use crate::state::{Requester, SnapshotCounters};
use crate::token_keys::KeyCounters;
use crate::xdp::DataPathStats;

/// Everything that the metrics are read from.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) workers: Vec<WorkerSources>,
    pub(crate) store: Arc<Store>,
    /// The swarms of WebTorrent, if it is served.
    pub(crate) swarms: Option<Arc<Swarms>>,
    pub(crate) memory: Division,
    pub(crate) backend: String,
    pub(crate) started_unix_s: u64,
    /// The certificates of the listeners for clients, if TLS is served, and that of the control listener, if it has one.
    pub(crate) tls: Vec<shoal_session::tls::Server>,
    pub(crate) reloads: Arc<ReloadCounters>,
    pub(crate) lists: Arc<ListCounters>,
    pub(crate) token_keys: Arc<KeyCounters>,
    pub(crate) access_log: Arc<RecordCounters>,
    pub(crate) control: Arc<ControlCounters>,
    pub(crate) snapshots: Arc<SnapshotCounters>,
    /// Asks for snapshots, if there is a place for them.
    pub(crate) snapshot_requester: Option<Requester>,
    pub(crate) live: Arc<Published<Live>>,
    pub(crate) list_control: ListControl,
    pub(crate) insight: Arc<Insight>,
    /// The node of a cluster, if the tracker is part of one.
    pub(crate) cluster: Option<Arc<Observed>>,
    /// The XDP data path, if there is one.
    pub(crate) data_path: Option<Arc<DataPathStats>>,
}

/// The counters and the heartbeat of one worker.
#[derive(Debug)]
pub(crate) struct WorkerSources {
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) udp: Arc<Counters>,
    pub(crate) http: Arc<Counters>,
    pub(crate) webtorrent: Arc<Counters>,
    pub(crate) sessions: Arc<SessionCounters>,
    pub(crate) processing: Arc<ProcessingCounters>,
    pub(crate) io: Arc<shoal_net::Counters>,
    pub(crate) streams: Arc<StreamCounters>,
    pub(crate) budget: Arc<Budget>,
}

impl WorkerSources {
    /// Returns the counters of a protocol.
    pub(crate) fn counters(&self, protocol: Protocol) -> &Counters {
        match protocol {
            Protocol::Udp => &self.udp,
            Protocol::Http => &self.http,
            Protocol::WebTorrent => &self.webtorrent,
        }
    }
}

impl Sources {
    /// Returns a count of one protocol, summed over all workers and the programs of an XDP data path.
    pub(crate) fn sum(&self, protocol: Protocol, read: impl Fn(&Counters) -> u64) -> u64 {
        let workers = self.workers.iter().map(|worker| worker.counters(protocol));
        let data_path = self.data_path.iter().filter(|_| protocol == Protocol::Udp);
        workers.chain(data_path.map(|data_path| data_path.requests())).map(read).sum()
    }

    /// Returns a count of connections, summed over all workers.
    pub(crate) fn sum_streams(&self, read: impl Fn(&StreamCounters) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(&worker.streams)).sum()
    }

    /// Returns a count of the back ends for one family, summed over all workers.
    pub(crate) fn sum_io(&self, family: Family, read: impl Fn(&FamilyCounters) -> u64) -> u64 {
        let counters = |io: &shoal_net::Counters| match family {
            Family::V4 => read(&io.v4),
            Family::V6 => read(&io.v6),
        };
        self.workers.iter().map(|worker| counters(&worker.io)).sum()
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
