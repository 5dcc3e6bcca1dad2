//! The service of a worker: what answers its datagrams and its connections, and adopts the values that a reload changes.

use std::sync::Arc;

use shoal_base::transport::datagram::{DatagramService, Exchange};
use shoal_engine::pace::Pace;
use shoal_engine::policy::Protocol;
use shoal_engine::processing::Stopwatch;
use shoal_engine::udp::Responder;
use shoal_net::stream::StreamLimits;
use shoal_session::{Service as Connections, Statistics};

use shoal_runtime::clock;
use shoal_runtime::live::{Live, WorkerEndpoints};
use shoal_runtime::published::Subscription;

#[derive(Debug)]
pub(crate) struct WorkerService {
    pub(crate) datagrams: Responder,
    pub(crate) connections: Connections,
    pub(crate) live: Subscription<Live>,
    pub(crate) statistics: Subscription<Statistics>,
    /// The number of the worker, in the order of the wakers.
    pub(crate) number: usize,
    /// New limits that the I/O of connections has not adopted yet.
    pub(crate) new_limits: Option<StreamLimits>,
    /// New sockets and listeners that the worker has not adopted yet.
    pub(crate) new_endpoints: Option<WorkerEndpoints>,
    pub(crate) stopwatch: Stopwatch,
}

impl WorkerService {
    /// Adopts the last reload and the latest statistics, if they have changed since the last call. Without a change,
    /// this loads two cache lines that no thread writes.
    pub(crate) fn follow_reload(&mut self) {
        if let Some(statistics) = self.statistics.update() {
            self.connections.set_statistics(statistics);
            self.statistics.acknowledge();
        }
        let Some(live) = self.live.update() else { return };
        self.datagrams.set_policy(Arc::clone(&live.policy));
        self.datagrams.set_connection_key(&live.connection_key, clock::unix_s());
        self.connections.reconfigure(Arc::clone(&live.sessions), &live.policy);
        self.new_limits = Some(live.stream_limits);
        if let Some(endpoints) = live.endpoints.take(self.number) {
            self.new_endpoints = Some(endpoints);
        }
        self.live.acknowledge();
    }

    /// Sets the pace of all later replies.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.datagrams.set_pace(pace);
        self.connections.set_pace(pace);
    }
}

impl DatagramService for WorkerService {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.stopwatch.begin();
        self.stopwatch.note_size(batch.len());
        self.follow_reload();
        self.datagrams.serve(batch, clock::now());
    }

    fn sent(&mut self) {
        self.stopwatch.end(Protocol::Udp);
    }
}
