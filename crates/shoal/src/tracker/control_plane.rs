//! Starts everything that operators, other nodes and the service manager see, while workers already serve.
//!
//! Everything except the threads runs as tasks on the main thread.

use std::mem;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use shoal_config::Config;

use super::data_plane::DataPlane;
use super::files::Reloadable;
use super::running::{ControlTask, Running};
use crate::access_log::{AccessLog, Reopener};
use crate::acme::Renewal;
use crate::broker::Broker;
use crate::certificates::Certificates;
use crate::cluster::{Changed, ClusterFiles, Node, NodeParts};
use crate::hand_over::HandOver;
use crate::operations::Process;
use crate::reload::Reloader;
use crate::sandbox::Sandbox;
use crate::service_manager::status;
use crate::service_manager::{ServiceManager, SocketChanges};
use crate::signals::OperatorSignals;
use crate::state::Saver;
use crate::version;
use crate::worker::overload;
use shoal_control::drain::Drain;
use shoal_control::operations::DataPathFigures;
use shoal_control::public_statistics;
use shoal_control::{self, Control, Sources, Tokens};
use shoal_runtime::counters::ReloadCounters;
use shoal_runtime::division::Division;
use shoal_runtime::lists::{self, ListControl};
use shoal_runtime::log::LogFilter;
use tokio::sync::Notify;

/// The input of the start, apart from the data plane.
pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    pub(super) file: Option<&'a Path>,
    pub(super) log: LogFilter,
    pub(super) division: Division,
    pub(super) broker: Broker,
    pub(super) sandbox: Sandbox,
    pub(super) manager: ServiceManager,
    pub(super) files: Reloadable,
    pub(super) cluster: ClusterFiles,
    pub(super) signals: OperatorSignals,
    /// Changes that the manager does not know of yet.
    pub(super) socket_changes: SocketChanges,
}

/// Starts the cluster, the operator's controls and the control listener in this order, and tells the service manager
/// that the tracker is ready. The error says which part cannot be started, and why.
pub(super) fn start(parts: Parts<'_>, mut data_plane: DataPlane) -> anyhow::Result<Running> {
    let Parts {
        config,
        file,
        log,
        division,
        broker,
        sandbox,
        manager,
        files,
        cluster,
        signals,
        socket_changes,
    } = parts;
    let mut cluster = start_cluster(config, cluster, &files, &mut data_plane)?;
    let reloads = Arc::<ReloadCounters>::default();
    let sources = Arc::new(sources(&mut data_plane, &files, &division, cluster.as_ref(), &reloads));
    let DataPlane { threads, publisher, statistics, holdings, offered, control: sockets, .. } = data_plane;
    let Reloadable { lists, token_keys, certificates, control_certificates, control_tokens, .. } = files;
    let renew = Arc::<Notify>::default();
    let renewal = Renewal::new(config, certificates.as_ref(), &publisher.live);
    let renewal = renewal.map(|renewal| tokio::spawn(renewal.run(Arc::clone(&renew))));
    let reopener = threads.access_log.as_ref().map(AccessLog::reopener);
    drop(tokio::spawn(signals.log.obey(move || reopener.iter().for_each(Reopener::reopen))));
    lists::watch(&lists, &publisher).context("cannot start the thread that watches lists")?;
    let token_thread = token_keys.watch(&lists, &publisher);
    let token_thread = token_thread.context("cannot start the thread that reads the keys of tokens")?;
    let heartbeats: Vec<_> = sources.workers.iter().map(|worker| Arc::clone(&worker.heartbeat)).collect();
    drop(tokio::spawn(overload::report(heartbeats.clone())));
    let (store, keys) = (offered.store.clone(), offered.keys.clone());
    let hand_over = Arc::new(HandOver::new(broker, offered, manager.clone(), Arc::clone(&sources)));
    let access = shoal_control::Access {
        hosts: config.control.hosts.clone(),
        tls: control_certificates.as_ref().map(Certificates::server),
    };
    let reloader = Arc::new(Reloader {
        file: file.map(Path::to_owned),
        serves_tls: certificates.is_some(),
        certificates: certificates.into_iter().chain(control_certificates).collect(),
        control_tokens: Arc::new(Tokens::new(control_tokens)),
        lists,
        token_keys: (token_keys, token_thread),
        log,
        hand_over: Arc::clone(&hand_over),
        publisher,
        counters: reloads,
        policy_bytes_max: division.policy,
        memory_bytes_max: division.max,
        sandbox,
        manager: manager.clone(),
        cluster_values: Mutex::default(),
        renew,
        running: Mutex::default(),
    });
    let list_control = sources.list_control.clone();
    if let Some(cluster) = &mut cluster {
        let changed = Changed { lists: list_control.clone(), reloader: Arc::clone(&reloader) };
        cluster.apply_shared(changed, config)?;
    }
    drop(tokio::spawn(signals.upgrade.obey(Arc::clone(&hand_over))));
    let drain = Drain::new(list_control.clone());
    let process = Process {
        reloader: Arc::clone(&reloader),
        hand_over: Arc::clone(&hand_over),
        snapshots: threads.saver.as_ref().map(Saver::requester),
    };
    let shared = (Arc::clone(&reloader.control_tokens), reloader.log.clone());
    let control = Control::new(Arc::clone(&sources), Arc::new(process), drain.clone(), shared, holdings);
    drop(tokio::spawn(public_statistics::publish(Arc::clone(&sources), statistics)));
    let control = sockets.map(|sockets| ControlTask::spawn(sockets, control, access));
    let bans = tokio::spawn(list_control.clone().follow_bans());
    // The outcome is in the log.
    drop(tokio::spawn(signals.hangups.obey(move || drop(reloader.reload()))));
    manager.change_sockets(&socket_changes);
    manager.ready();
    let status = tokio::spawn(status::report(manager.clone(), sources, drain.clone()));
    drop(tokio::spawn(manager.clone().feed_watchdog(heartbeats)));
    Ok(Running {
        status,
        renewal,
        control,
        hand_over,
        keys,
        store,
        drain,
        lists: list_control,
        bans,
        cluster,
        threads,
        manager,
    })
}

fn start_cluster(
    config: &Config,
    cluster: ClusterFiles,
    files: &Reloadable,
    data_plane: &mut DataPlane,
) -> anyhow::Result<Option<Node>> {
    Node::start(NodeParts {
        config,
        files: cluster,
        shared: data_plane.node.take(),
        live: Arc::clone(&data_plane.publisher.live),
        wakers: data_plane.publisher.wakers.clone(),
        keys: data_plane.offered.keys.clone(),
        tickets: files.certificates.as_ref().map(Certificates::server),
    })
}

/// Returns the sources of metrics, the status page and the other pages of the control listener.
fn sources(
    data_plane: &mut DataPlane,
    files: &Reloadable,
    division: &Division,
    cluster: Option<&Node>,
    reloads: &Arc<ReloadCounters>,
) -> Sources {
    let shared = cluster.and_then(Node::entries);
    let cluster = cluster.map(Node::observed);
    let DataPlane { threads, publisher, insight, snapshots, last_day, .. } = data_plane;
    let certificates = files.certificates.iter().chain(&files.control_certificates);
    Sources {
        workers: threads.pool.take_sources(),
        store: publisher.store.clone(),
        swarms: publisher.swarms.clone(),
        memory: division.clone(),
        backend: data_plane.backend.to_string(),
        build: version::BUILD,
        started_unix_s: data_plane.started_unix_s,
        tls: certificates.map(Certificates::server).collect(),
        reloads: Arc::clone(reloads),
        lists: files.lists.lock().unwrap_or_else(PoisonError::into_inner).counters(),
        list_control: ListControl {
            lists: Arc::clone(&files.lists),
            publisher: Arc::clone(publisher),
            shared,
        },
        token_keys: files.token_keys.counters(),
        access_log: threads.access_log.as_ref().map(AccessLog::counters).unwrap_or_default(),
        control: Arc::default(),
        live: Arc::clone(&publisher.live),
        insight: Arc::clone(insight),
        snapshots: Arc::clone(snapshots),
        cluster,
        last_day: mem::take(last_day).into(),
        data_path: threads.data_path.as_ref().map(|thread| thread.stats() as Arc<dyn DataPathFigures>),
    }
}
