//! A running tracker: what ends it, and how it stops.
//!
//! It stops in the reverse order of its start: first the parts that report its health, then the workers, then the
//! threads that use the workers' results, and last the store.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_store::Store;
use tokio::task::JoinHandle;

use super::data_plane::Threads;
use crate::cluster::{Leaving, Node};
use crate::hand_over::HandOver;
use crate::service_manager::ServiceManager;
use crate::service_manager::frozen_swarms;
use crate::signals::Signals;
use crate::sockets::bound::ControlSockets;
use crate::state::StateKeys;
use crate::xdp::DataPathThread;
use shoal_control::drain::Drain;
use shoal_control::{self, Control, LocalSocket};
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::ListControl;

/// Maximum time for the workers to answer queued requests when the tracker stops.
const STOP_TIME_MAX: Duration = Duration::from_millis(800);

/// All parts of a running tracker, in the order in which they end after a failure.
pub(super) struct Running {
    pub(super) status: JoinHandle<()>,
    /// The task that renews the certificate, if the tracker obtains one.
    pub(super) renewal: Option<JoinHandle<()>>,
    pub(super) control: Option<ControlTask>,
    pub(super) hand_over: Arc<HandOver>,
    pub(super) keys: StateKeys,
    pub(super) store: Arc<Store>,
    pub(super) drain: Drain,
    pub(super) lists: ListControl,
    /// The task that follows bans and writes their file.
    pub(super) bans: JoinHandle<()>,
    pub(super) cluster: Option<Node>,
    pub(super) threads: Threads,
    pub(super) manager: ServiceManager,
}

pub(super) enum End {
    /// The tracker is to stop, for this reason.
    Stop(String),
    /// Another process serves in its place.
    HandedOver,
}

/// The task of the control listener. Dropping this ends the task.
pub(super) struct ControlTask {
    task: JoinHandle<()>,
    local: Option<Arc<LocalSocket>>,
}

impl Running {
    pub(super) async fn end(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        let Self { hand_over, drain, cluster, threads, .. } = self;
        let Threads { data_path, collector, memory_thread, pool, .. } = threads;
        // A stop that comes first ends a hand-over.
        let stop = async |reason: String| {
            if hand_over.stop().await { End::Stop(reason) } else { End::HandedOver }
        };
        tokio::select! {
            signal = signals.next() => Ok(stop(signal.to_string()).await),
            () = drain.exit() => Ok(stop("drained".to_owned()).await),
            () = hand_over.handed() => Ok(End::HandedOver),
            error = pool.failure() => Err(error.into()),
            error = memory_thread.failure() => Err(error.into()),
            error = collector.failure() => Err(error.into()),
            error = failure_of(cluster.as_mut(), Node::failure) => Err(error.into()),
            error = failure_of(data_path.as_mut(), DataPathThread::failure) => Err(error.into()),
        }
    }

    /// Serves the connections that the new process did not take until they end. The thread of the hand-over ends this
    /// process.
    pub(super) async fn outlive(self, signals: &mut Signals) -> Result<(), Failure> {
        // The new process is a node itself. A thread of this one may wait for swarms that this process no longer has.
        let _leaving = tokio::task::spawn_blocking(|| self.cluster.map(Node::leave));
        self.status.abort();
        // The file of bans is the new process's now.
        self.bans.abort();
        self.renewal.inspect(JoinHandle::abort);
        drop(self.control);
        process::exit(signals.next().await.exit_code());
    }

    /// Answers queued requests and stops all parts. A second signal ends the process at once. The error says which
    /// worker does not stop.
    pub(super) async fn stop(self, reason: &str, signals: &mut Signals) -> Result<(), Failure> {
        let Self { status, control, hand_over, keys, store, lists, cluster, threads, manager, .. } = self;
        let Threads { mut pool, memory_thread, collector, access_log, saver, data_path } = threads;
        tracing::info!(
            signal = reason,
            "stopping after queued requests are answered; a second signal stops at once"
        );
        status.abort();
        manager.stopping(reason);
        // From here on the tracker must not report itself as healthy.
        if let Some(control) = control {
            control.stop();
        }
        hand_over.close_sockets();
        // Datagrams that arrive from now on wait in the sockets.
        drop(data_path);
        let leaving = cluster.map(Node::leave);
        let stopped = tokio::select! {
            stopped = tokio::time::timeout(STOP_TIME_MAX, pool.stop()) => {
                stopped.context("a worker did not stop in time")
            }
            signal = signals.next() => process::exit(signal.exit_code()),
        };
        tokio::select! {
            // The outcome is in the log.
            _written = tokio::task::spawn_blocking(move || lists.settle_bans()) => {}
            signal = signals.next() => process::exit(signal.exit_code()),
        }
        stopped??;
        leaving.into_iter().for_each(Leaving::finish);
        if let Some(access_log) = access_log {
            access_log.stop();
        }
        if let Some(saver) = saver {
            manager.status("stopping: writing the snapshot");
            tokio::select! {
                // The outcome is in the log.
                _saved = saver.finish() => {}
                signal = signals.next() => process::exit(signal.exit_code()),
            }
        }
        // These threads use the store, so their end is awaited.
        drop((memory_thread, collector));
        frozen_swarms::keep(&store, &keys.to_bytes(), &manager);
        tracing::info!("stopped");
        Ok(())
    }
}

/// Waits until a part fails. Waits forever for an absent part.
async fn failure_of<P>(
    part: Option<&mut P>,
    failure: impl AsyncFnOnce(&mut P) -> anyhow::Error,
) -> anyhow::Error {
    match part {
        Some(part) => failure(part).await,
        None => std::future::pending().await,
    }
}

impl ControlTask {
    pub(super) fn spawn(sockets: ControlSockets, control: Control, access: shoal_control::Access) -> Self {
        let local = sockets.local.map(Arc::new);
        Self {
            task: tokio::spawn(shoal_control::serve((sockets.tcp, local.clone()), control, access)),
            local,
        }
    }

    /// Ends the task, and removes the file of its socket.
    fn stop(self) {
        if let Some(local) = &self.local {
            local.remove();
        }
    }
}

impl Drop for ControlTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
