//! The life of a tracker: from the configuration to the end of the last worker.
//!
//! Every possible refusal happens before the first worker serves: when the tracker logs that it is ready, sockets
//! are bound, the store's memory is reserved and back ends are open. Sockets come first, then the change of the user and the
//! sandbox, and then all files and all threads.

use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use shoal_access::Access;
use shoal_access::torrents::TorrentLists;
use shoal_config::{ByteSize, Config};
use shoal_net::Backend;
use shoal_relay::{Mailboxes, Swarms};
use shoal_session::Statistics;
use shoal_source::Holdings;
use shoal_store::{MemoryFile, SharedStore};
use shoal_tls::KeyShares;
use tokio::net::TcpListener;

use crate::access::{ListControl, Lists, Publisher};
use crate::access_log::{AccessLog, OpenTarget, Reopener};
use crate::activation::Given;
use crate::bound::{self, Bound};
use crate::broker::Broker;
use crate::certificates::Certificates;
use crate::cluster::shared::{self, Copy, NodeKeys, Targets};
use crate::cluster::{self, Cluster, ClusterSettings, Leaving};
use crate::control::{self, Control, Sources, TokenSet, Tokens};
use crate::drain::Drain;
use crate::failure::Failure;
use crate::frozen_swarms::{self, FrozenSwarms};
use crate::hand_over::{HandOver, Offered, Predecessor, Takeover};
use crate::insight::{Collector, Insight};
use crate::keeper::{self, Connections};
use crate::listening::Listening;
use crate::log::LogFilter;
use crate::memory::Division;
use crate::periodic::PeriodicThread;
use crate::phase::{Phase, WorkerPhase};
use crate::pool::{self, Endpoints, WorkerPool, WorkerSetup};
use crate::privileges::Identity;
use crate::published::Published;
use crate::reload::{Live, ReloadCounters, Reloader};
use crate::sandbox::{Sandbox, WorkerLimits};
use crate::service_manager::{ServiceManager, SocketChanges};
use crate::signals::{Hangups, LogSignals, Signals, UpgradeSignals};
use crate::state::{Saver, SnapshotCounters, State, StateKeys};
use crate::token_keys::TokenKeys;
use crate::xdp::{self, DataPathThread, HandedDataPath};
use crate::{
    access, access_log, activation, allocator, clock, memory, overload, privileges, public_statistics,
    service_status, settings, version,
};

/// Maximum time for the workers to answer queued requests when the tracker stops.
const STOP_TIME_MAX: Duration = Duration::from_millis(800);

/// The root of the file system, under which the kernel describes the machine.
const ROOT: &str = "/";

/// Runs a tracker until a signal stops it.
///
/// # Errors
/// Returns why it could not start or had to stop.
pub(crate) fn run(
    config: &Config,
    file: Option<&Path>,
    log: LogFilter,
    running: Option<OwnedFd>,
) -> Result<(), Failure> {
    allocator::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime of the control listener")?;
    let mut predecessor = running.map(Predecessor::meet).transpose()?;
    let outcome = runtime.block_on(live(config, file, log, &mut predecessor));
    if let (Err(failure), Some(predecessor)) = (&outcome, &predecessor) {
        predecessor.fail(&failure.to_string());
    }
    // The runtime does not wait for a thread that still reads a file.
    runtime.shutdown_background();
    outcome
}

async fn live(
    config: &Config,
    file: Option<&Path>,
    log: LogFilter,
    predecessor: &mut Option<Predecessor>,
) -> Result<(), Failure> {
    let mut signals = Signals::take().context("cannot handle SIGTERM and SIGINT")?;
    greet(config, file);
    let manager = ServiceManager::connect();
    let handed = predecessor.as_mut().map(|predecessor| mem::take(&mut predecessor.sockets));
    let mut handed = handed.unwrap_or_default();
    let handed_data_path = HandedDataPath::take(&mut handed);
    let config = &activation::with_ports_of(config, &handed);
    let Given { sockets: inherited, unused, swarms: frozen_swarms } =
        activation::take(config, &manager, handed)?;
    // Descriptors that were passed to this process are closed in programs that it starts from here on.
    let broker = Broker::spawn(config);
    let identity = Identity::of(config)?;
    let frames_bytes = xdp::bytes(config, &handed_data_path);
    let division = memory::divide(config, settings::workers(config), frames_bytes, Path::new(ROOT))
        .map_err(Failure::Configuration)?;
    division.log();
    // SIGHUP is handled before the certificates are read: a SIGHUP after a renewal in the meantime must not end the
    // tracker.
    let hangups = Hangups::take().context("cannot handle SIGHUP")?;
    let upgrade_signals = UpgradeSignals::take().context("cannot handle SIGUSR2")?;
    let log_signals = LogSignals::take().context("cannot handle SIGUSR1")?;
    let bound = Bound::open(config, &inherited, handed_data_path).await?;
    let mut socket_changes = SocketChanges::default();
    if manager.keeps_descriptors() {
        let new = bound.to_keep(&inherited).context("cannot keep the sockets")?;
        socket_changes = SocketChanges { new, unused };
    }
    drop(inherited);
    if predecessor.is_none() {
        // Otherwise, the manager does not listen to this process yet.
        manager.change_sockets(&mem::take(&mut socket_changes));
        manager.status("starting: reading the state");
    }
    let sandbox = lower_privileges(config, file, identity.as_ref(), bound.backend)?;
    let mut state = match predecessor {
        Some(Predecessor { keys, lock, .. }) => State::take_over(config, keys, lock.take())?,
        None => State::open(config, frozen_swarms.as_ref().map(FrozenSwarms::keys))?,
    };
    let certificates = Certificates::load(config).await?;
    if let Some(certificates) = &certificates {
        state.resume_sessions(config, certificates.server());
    }
    let control_certificates = Certificates::load_control(config).await?;
    let control_access = control::Access {
        hosts: config.control.hosts.clone(),
        tls: control_certificates.as_ref().map(Certificates::server),
    };
    let control_tokens = load_control_tokens(config).await?;
    let token_keys = load_token_keys(config).await?;
    let cluster_settings = load_cluster_settings(config).await?;
    let copy = load_copy(config).await?;
    if let Some(key) = copy.connection_key().filter(|_| config.state.keys) {
        state.keys.adopt_connections(key);
    }
    let (lists, access, copy) = load_lists(config, copy).await?;
    let counters = Arc::<ReloadCounters>::default();
    let access_target = access_log::open(&config.log.access)?;
    let Running {
        mut pool,
        control,
        mut sources,
        mut keeper,
        mut collector,
        publisher,
        access_log,
        statistics,
        holdings,
        saver,
        offered,
        shared,
        mut data_path,
    } = start(
        config,
        (bound, sandbox.workers(), state, frozen_swarms, predecessor),
        (&lists, access),
        &token_keys,
        &division,
        certificates.as_ref(),
        (Arc::clone(&counters), access_target),
    )
    .await?;
    let node_keys = NodeKeys {
        live: Arc::clone(&sources.live),
        wakers: publisher.wakers.clone(),
        state: offered.keys.clone(),
        configured: config.connection_id.key.0,
        tickets: certificates.as_ref().map(Certificates::server),
    };
    let mut cluster = cluster_settings
        .zip(shared)
        .map(|(settings, shared)| Cluster::start(settings, shared, (copy, node_keys)))
        .transpose()?;
    sources.cluster = cluster.as_ref().map(Cluster::observed);
    if let Some(state) = sources.cluster.as_ref().and_then(|observed| observed.shared.clone()) {
        sources.list_control.shared = Some(state);
    }
    sources.tls.extend(control_certificates.as_ref().map(Certificates::server));
    let reopener = access_log.as_ref().map(AccessLog::reopener);
    drop(tokio::spawn(log_signals.obey(move || reopener.iter().for_each(Reopener::reopen))));
    let control_tokens = Arc::new(Tokens::new(control_tokens));
    access::watch(&lists, &publisher).context("cannot start the thread that watches lists")?;
    let token_thread = token_keys.watch(&lists, &publisher);
    let token_thread = token_thread.context("cannot start the thread that reads the keys of tokens")?;
    let token_keys = (token_keys, token_thread);
    let heartbeats: Vec<_> = sources.workers.iter().map(|worker| Arc::clone(&worker.heartbeat)).collect();
    drop(tokio::spawn(overload::report(heartbeats.clone())));
    let list_control = sources.list_control.clone();
    let drain = Drain::new(list_control.clone());
    let file = file.map(Path::to_owned);
    let policy_bytes_max = division.policy;
    let serves_tls = certificates.is_some();
    let certificates = certificates.into_iter().chain(control_certificates).collect();
    let (store, keys) = (offered.store.clone(), offered.keys.clone());
    let hand_over = Arc::new(HandOver::new(broker, offered, manager.clone()));
    let reloader = Reloader {
        file,
        serves_tls,
        certificates,
        control_tokens,
        lists,
        token_keys,
        log,
        hand_over: Arc::clone(&hand_over),
        publisher,
        counters,
        policy_bytes_max,
        sandbox,
        manager: manager.clone(),
        cluster_values: Mutex::default(),
        running: Mutex::default(),
    };
    let reloader = Arc::new(reloader);
    if let Some(cluster) = &mut cluster {
        cluster
            .apply_shared(Targets { lists: list_control.clone(), reloader: Arc::clone(&reloader) }, config)?;
    }
    drop(tokio::spawn(upgrade_signals.obey(Arc::clone(&hand_over))));
    let shared =
        Control::new(sources, Arc::clone(&reloader), drain.clone(), holdings, Arc::clone(&hand_over));
    drop(tokio::spawn(public_statistics::publish(Arc::clone(&shared.sources), statistics)));
    let status = service_status::report(manager.clone(), Arc::clone(&shared.sources), drain.clone());
    let control = control.map(|listener| ControlTask::spawn(listener, shared, control_access));
    drop(tokio::spawn(list_control.end_bans()));
    // The outcome is in the log.
    drop(tokio::spawn(hangups.obey(move || drop(reloader.reload()))));
    manager.change_sockets(&socket_changes);
    drop(socket_changes);
    manager.ready();
    let status = tokio::spawn(status);
    drop(tokio::spawn(manager.clone().feed_watchdog(heartbeats)));
    let reason = tokio::select! {
        signal = signals.next() => signal.to_string(),
        () = drain.exit() => "drained".to_owned(),
        () = hand_over.handed() => {
            // The new process is a node of its own.
            let _leaving = cluster.map(Cluster::leave);
            // Its connections are served to their end. The thread of the hand-over ends this process.
            status.abort();
            drop(control);
            std::process::exit(signals.next().await.exit_code());
        }
        error = pool.failure() => return Err(error.into()),
        error = keeper.failure() => return Err(error.into()),
        error = collector.failure() => return Err(error.into()),
        error = cluster_failure(cluster.as_mut()) => return Err(error.into()),
        error = data_path_failure(data_path.as_mut()) => return Err(error.into()),
    };
    tracing::info!(
        signal = reason,
        "stopping after queued requests are answered; a second signal stops at once"
    );
    status.abort();
    manager.stopping(&reason);
    // From here on the tracker must not be reported as healthy.
    drop(control);
    hand_over.close_sockets();
    // Datagrams that arrive from now on wait in the sockets.
    drop(data_path);
    let leaving = cluster.map(Cluster::leave);
    tokio::select! {
        stopped = tokio::time::timeout(STOP_TIME_MAX, pool.stop()) => {
            stopped.context("a worker did not stop in time")??;
        }
        signal = signals.next() => std::process::exit(signal.exit_code()),
    }
    leaving.into_iter().for_each(Leaving::finish);
    if let Some(access_log) = access_log {
        access_log.stop();
    }
    if let Some(saver) = saver {
        manager.status("stopping: writing the snapshot");
        tokio::select! {
            // The outcome is in the log.
            _saved = saver.finish() => {}
            signal = signals.next() => std::process::exit(signal.exit_code()),
        }
    }
    // These threads use the store, and are waited for.
    drop((keeper, collector));
    frozen_swarms::keep(&store, &keys.to_bytes(), &manager);
    tracing::info!("stopped");
    Ok(())
}

/// A running tracker.
struct Running {
    pool: WorkerPool,
    /// The control listener, on which nothing is served yet.
    control: Option<TcpListener>,
    sources: Sources,
    /// Manages memory. Without it, `memory.max` would not be enforced.
    keeper: PeriodicThread,
    /// Collects what workers leave for the operator.
    collector: PeriodicThread,
    publisher: Arc<Publisher>,
    access_log: Option<AccessLog>,
    /// The public statistics, empty at first.
    statistics: Arc<Published<Statistics>>,
    holdings: Option<Arc<Holdings>>,
    /// Writes snapshots.
    saver: Option<Saver>,
    /// The parts that another process can take over.
    offered: Offered,
    /// The parts that other nodes change and read, if there may be some.
    shared: Option<cluster::Shared>,
    /// Follows the configuration, if there is an XDP data path.
    data_path: Option<DataPathThread>,
}

/// Changes to the user of the configuration and enters the sandbox.
fn lower_privileges(
    config: &Config,
    file: Option<&Path>,
    identity: Option<&Identity>,
    backend: Backend,
) -> anyhow::Result<Sandbox> {
    if let Some(identity) = identity {
        identity.assume()?;
    }
    privileges::permit_dumps(config.process.core_dumps)?;
    let sandbox = Sandbox::enter(config, file, backend)?;
    if let Some((identity, file)) = identity.zip(file)
        && let Err(error) = std::fs::File::open(file)
    {
        tracing::warn!(
            %error,
            "user {identity} cannot read {}, so SIGHUP cannot apply changes; let that user or its group read it",
            file.display()
        );
    }
    Ok(sandbox)
}

/// Starts all parts, in the order in which an operator would look for a mistake.
async fn start(
    config: &Config,
    (bound, worker_limits, state, frozen_swarms, predecessor): (
        Bound,
        Option<WorkerLimits>,
        State,
        Option<FrozenSwarms>,
        &mut Option<Predecessor>,
    ),
    (lists, access): (&Arc<Mutex<Lists>>, Access),
    token_keys: &TokenKeys,
    division: &Division,
    certificates: Option<&Certificates>,
    (reloads, access_target): (Arc<ReloadCounters>, Option<OpenTarget>),
) -> anyhow::Result<Running> {
    let started_unix_s = clock::unix_s();
    // A reload compares with the configuration as it was read.
    let torrents = access.torrents.clone();
    // No swarm of a forbidden torrent returns from the last run.
    let policy = settings::policy(config.clone(), token_keys.current(), None)?.with_access(access);
    let listening = Listening::new(&bound).context("cannot copy the sockets")?;
    let Bound { config, backend, processors, sockets, listeners, control, connections_max, mut data_path } =
        bound;
    let config = &config;
    let udp = bound::addresses(&sockets);
    let (http, tls) = bound::listen_addresses(&listeners, config.http.listen.len());
    let holdings = settings::holdings(config, &state.keys);
    let workers = settings::workers(config);
    let webtorrent = if config.webtorrent.enabled {
        Some(webtorrent(config, workers, division, holdings.clone(), &state.keys)?)
    } else {
        None
    };
    let open = |memory| open_store(config, division.store, holdings.clone(), &state.keys, memory);
    let timeout_s = config.announce.peer_timeout_s;
    let frozen =
        frozen_swarms.and_then(|swarms| swarms.resume(timeout_s, |memory| Ok(open(Some(memory))?.0)));
    let continues = predecessor.is_some() || frozen.is_some();
    let store = match (predecessor.as_mut(), frozen) {
        (Some(predecessor), _) => take_swarms(config, &state, torrents.as_deref(), predecessor, open)?,
        (None, Some(store)) => store,
        (None, None) => {
            let (store, _) = open(None)?;
            state.restore(config, &store, torrents).await?;
            store
        }
    };
    let policy = Arc::new(match config.store.info_hashes {
        // A store that continues may have swarms of torrents that the lists have come to forbid since.
        shoal_config::StoredInfoHashes::Whole if !continues => policy.with_permitted_swarms(),
        // Such a store cannot tell which swarms a change of the lists forbids.
        _ => policy,
    });
    let swarms = webtorrent.as_ref().map(|webtorrent| Arc::clone(&webtorrent.swarms));
    let live = Arc::new(Published::new(Arc::new(Live {
        policy,
        sessions: Arc::new(settings::sessions(config)),
        stream_limits: settings::stream_limits(config, connections_max),
        endpoints: Arc::new(listening.endpoints(connections_max)),
        connection_key: settings::connection_key(config, &state.keys),
    })));
    let insight =
        Arc::new(Insight::new(config, division.changes_max, workers.get(), store.clone(), swarms.clone()));
    let statistics = Arc::new(Published::new(Arc::default()));
    let phase = if predecessor.is_some() { Phase::Paused } else { Phase::Serving };
    let phase = Arc::new(WorkerPhase::new(phase));
    let node_waker = settings::is_node(config).then(shoal_net::Waker::new).transpose();
    let node_waker = node_waker.context("cannot create an event descriptor")?;
    let setup = WorkerSetup {
        backend,
        limits: worker_limits,
        insight: Arc::clone(&insight),
        measures: config.insight.latency,
        live: Arc::clone(&live),
        tls: certificates.map(Certificates::server),
        key_shares: if config.tls.key_share_reuse { KeyShares::Reused } else { KeyShares::Fresh },
        store: store.clone(),
        webtorrent,
        processors,
        access_log: access_target.is_some(),
        node: node_waker.clone(),
        credit: config.cluster.credit_stream.is_some(),
        statistics: Arc::clone(&statistics),
        phase: Arc::clone(&phase),
    };
    let queues = data_path.take_queues(workers);
    let all_endpoints = sockets.into_iter().zip(listeners).zip(queues);
    let all_endpoints = all_endpoints
        .map(|((sockets, listeners), queues)| Endpoints { sockets, listeners, queues })
        .collect();
    let mut pool = WorkerPool::start(all_endpoints, &setup)?;
    let shared = node_waker.map(|waker| cluster::Shared {
        store: store.clone(),
        webtorrent: setup
            .webtorrent
            .as_ref()
            .map(|webtorrent| (Arc::clone(&webtorrent.swarms), Arc::clone(&webtorrent.mailboxes))),
        live: Arc::clone(&live),
        recorded: pool.take_recorded(),
        wakers: pool.wakers(),
        waker,
    });
    let access_log = access_target.map(|target| target.start(pool.take_access_records()));
    let access_log = access_log.transpose().context("cannot start the thread of the access log")?;
    let list_counters = lists.lock().unwrap_or_else(PoisonError::into_inner).counters();
    let connections = Connections::new(division, pool.budgets(), Arc::clone(&list_counters));
    let keeper =
        keeper::start(store.clone(), connections).context("cannot start the memory keeper thread")?;
    let snapshots = Arc::<SnapshotCounters>::default();
    let offered = Offered {
        keys: state.keys.clone(),
        lock: state.lock()?,
        listening: Mutex::new(listening),
        store: store.clone(),
        counted_swarms: holdings.as_ref().and(swarms.clone()),
        snapshots: state.snapshot_writer(config, store.clone()),
        phase: Arc::clone(&phase),
        wakers: pool.wakers(),
        leave_time: Duration::from_secs(config.webtorrent.upgrade_close_s.into()),
    };
    let saver = state.keep(config, store.clone(), Arc::clone(&snapshots))?;
    let collector = Collector::start(&insight).context("cannot start the thread that collects samples")?;
    pool.ready().await?;
    if let Some(running) = &predecessor {
        running.wait_until_it_lets_go()?;
    }
    if let Some(running) = predecessor.take() {
        phase.set(Phase::Serving, &pool.wakers());
        running.take_connections(Arc::clone(&phase), pool.wakers(), holdings.clone())?;
    }
    let data_path = data_path.follow(&live).context("cannot start the thread of the XDP data path")?;
    let publisher =
        Arc::new(Publisher { live, wakers: pool.wakers(), store: store.clone(), swarms: swarms.clone() });
    let sources = Sources {
        workers: pool.take_sources(),
        store,
        swarms,
        memory: division.clone(),
        backend: backend.to_string(),
        started_unix_s,
        tls: certificates.map(Certificates::server).into_iter().collect(),
        reloads,
        lists: list_counters,
        list_control: ListControl {
            lists: Arc::clone(lists),
            publisher: Arc::clone(&publisher),
            shared: None,
        },
        token_keys: token_keys.counters(),
        access_log: access_log.as_ref().map(AccessLog::counters).unwrap_or_default(),
        control: Arc::default(),
        live: Arc::clone(&publisher.live),
        insight,
        snapshots,
        snapshot_requester: saver.as_ref().map(Saver::requester),
        cluster: None,
        data_path: data_path.as_ref().map(DataPathThread::stats),
    };
    let control_address = control.as_ref().and_then(|listener| listener.local_addr().ok());
    let control_shown = control_address.map_or("off".to_owned(), |address| address.to_string());
    tracing::info!(udp, http, tls, control = control_shown, workers, io = %backend, "ready");
    Ok(Running {
        pool,
        control,
        sources,
        keeper,
        collector,
        publisher,
        access_log,
        statistics,
        holdings,
        saver,
        offered,
        shared,
        data_path,
    })
}

/// Reads the lists of torrents on a separate thread, since a file system can hang.
async fn load_lists(config: &Config, copy: Copy) -> Result<(Arc<Mutex<Lists>>, Access, Copy), Failure> {
    let mut lists = Lists::new(settings::list_key()?);
    let config = config.clone();
    let read = tokio::task::spawn_blocking(move || {
        if settings::shares_state(&config) {
            lists.share(|key| copy.tables(key), copy.bans());
        }
        let access = lists.read_all(&config);
        (Arc::new(Mutex::new(lists)), access, copy)
    });
    Ok(read.await.context("the thread that reads lists has failed")?)
}

/// Reads the copy of the state that the nodes of a cluster share, for the same reason.
async fn load_copy(config: &Config) -> Result<Copy, Failure> {
    let file = shared::copy_file(config);
    let read = tokio::task::spawn_blocking(move || Copy::read(file.as_deref()));
    Ok(read.await.context("the thread that reads the copy of the shared state has failed")?)
}

/// Reads the keys of tokens on a separate thread, for the same reason.
async fn load_token_keys(config: &Config) -> Result<TokenKeys, Failure> {
    let config = config.clone();
    let read = tokio::task::spawn_blocking(move || TokenKeys::load(&config));
    let read = read.await.context("the thread that reads the keys of tokens has failed")?;
    read.map_err(Failure::Configuration)
}

/// Reads the tokens of the control listener, for the same reason.
async fn load_control_tokens(config: &Config) -> Result<TokenSet, Failure> {
    let config = config.clone();
    let read = tokio::task::spawn_blocking(move || TokenSet::read(&config));
    let read = read.await.context("the thread that reads the tokens of the control listener has failed")?;
    read.map_err(Failure::Configuration)
}

/// Reads the files of the connection to NATS, for the same reason.
async fn load_cluster_settings(config: &Config) -> Result<Option<ClusterSettings>, Failure> {
    let config = config.clone();
    let read = tokio::task::spawn_blocking(move || ClusterSettings::read(&config));
    read.await.context("the thread that reads the files of the cluster has failed")?
}

/// Waits until the thread of the XDP data path fails, if there is one.
async fn data_path_failure(data_path: Option<&mut DataPathThread>) -> anyhow::Error {
    match data_path {
        Some(data_path) => data_path.failure().await,
        None => std::future::pending().await,
    }
}

/// Waits until a thread of the cluster fails, if there is a cluster.
async fn cluster_failure(cluster: Option<&mut Cluster>) -> anyhow::Error {
    match cluster {
        Some(cluster) => cluster.failure().await,
        None => std::future::pending().await,
    }
}

/// How WebTorrent is served.
fn webtorrent(
    config: &Config,
    workers: NonZeroUsize,
    division: &Division,
    holdings: Option<Arc<Holdings>>,
    keys: &StateKeys,
) -> anyhow::Result<pool::WebTorrent> {
    let swarms = settings::swarms(config, division.swarms, holdings, keys);
    tracing::info!(peers_max = swarms.peers_max, "WebTorrent");
    let mailbox_bytes_max = division.mailbox_bytes_max(workers);
    let posts_bytes_max = division.posts_bytes_max(workers);
    let workers = u16::try_from(workers.get()).context("there are too many workers")?;
    let configured = usize::try_from(config.webtorrent.mailbox_max.0).unwrap_or(usize::MAX);
    let mailbox_bytes_max = mailbox_bytes_max.min(configured);
    Ok(pool::WebTorrent {
        swarms: Arc::new(Swarms::new(&swarms)),
        mailboxes: if settings::is_node(config) {
            Mailboxes::with_remote(workers, mailbox_bytes_max)
        } else {
            Mailboxes::with_bytes_max(workers, mailbox_bytes_max)
        },
        queue_limits: settings::queue_limits(config),
        posts_bytes_max,
    })
}

/// Writes the first lines of the log: the program and its configuration.
fn greet(config: &Config, file: Option<&Path>) {
    tracing::info!(
        version = version::RELEASE,
        commit = version::COMMIT,
        build = version::PROFILE,
        "Shoal starts"
    );
    let names = shoal_config::environment_names();
    let overrides: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| std::env::var_os(name).is_some()).collect();
    let file = file.map_or("none".to_owned(), |file| file.display().to_string());
    let overrides = if overrides.is_empty() { "none".to_owned() } else { overrides.join(" ") };
    tracing::info!(file, environment = overrides, "configuration");
    let key = if config.connection_id.key.0.is_some() { "configured" } else { "random" };
    tracing::info!(key, "connection ids");
}

/// Takes the swarms of a running tracker over: with their memory if possible, and otherwise as a snapshot.
fn take_swarms(
    config: &Config,
    state: &State,
    torrents: Option<&TorrentLists>,
    predecessor: &mut Predecessor,
    open: impl Fn(Option<MemoryFile>) -> anyhow::Result<(SharedStore, bool)>,
) -> anyhow::Result<SharedStore> {
    let (mut store, is_in_its_memory) = open(predecessor.memory.take())?;
    match predecessor.take_swarms(&mut store, is_in_its_memory)? {
        Takeover::InMemory => {
            tracing::info!("continuing with the swarms of the running tracker, in its memory");
            Ok(store)
        }
        Takeover::Snapshot(file) => {
            let (store, _) = open(None)?;
            state.restore_from(config, &store, torrents, file)?;
            Ok(store)
        }
    }
}

/// Opens the store in the memory of a running tracker, if there is some, or else in new memory. Returns whether it is the
/// former.
fn open_store(
    config: &Config,
    memory_bytes_max: u64,
    holdings: Option<Arc<Holdings>>,
    keys: &StateKeys,
    memory: Option<MemoryFile>,
) -> anyhow::Result<(SharedStore, bool)> {
    let huge_pages = memory::huge_pages(Path::new(ROOT));
    let shards = settings::shards(settings::workers(config), memory_bytes_max);
    let (settings, fingerprint_key) = settings::store(config, memory_bytes_max, holdings, keys);
    let no_space =
        || format!("the kernel cannot reserve {memory_bytes_max} bytes of address space; lower memory.max");
    let is_taken_over = memory.is_some();
    let store = match memory.map_or_else(MemoryFile::create, Ok) {
        Ok(file) => SharedStore::in_file(&settings, shards, fingerprint_key, file),
        Err(error) => {
            tracing::info!(%error, "the store is in private memory, so an upgrade has to copy it");
            SharedStore::new(&settings, shards, fingerprint_key)
        }
    };
    let store = store.with_context(no_space)?;
    settings::retain_completed(&store, config);
    let nodes = memory::nodes(Path::new(ROOT));
    if nodes.count_ones() > 1
        && let Err(error) = store.interleave(nodes)
    {
        tracing::warn!(%error, "the kernel does not spread the store over the NUMA nodes; one may get all of it");
    }
    let memory_max = ByteSize::mib(memory_bytes_max >> 20);
    tracing::info!(
        %memory_max,
        shards = store.shards(),
        info_hashes = ?config.store.info_hashes,
        numa_nodes = nodes.count_ones(),
        huge_pages = huge_pages.as_deref().unwrap_or("unknown"),
        "store"
    );
    if huge_pages.as_deref() == Some("never") {
        tracing::warn!(
            "huge pages are off, which makes large stores slower; \
             `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` lets the store ask for them"
        );
    }
    Ok((store, is_taken_over))
}

/// The task of the control listener, which ends when this is dropped.
struct ControlTask(tokio::task::JoinHandle<()>);

impl ControlTask {
    fn spawn(listener: TcpListener, control: Control, access: control::Access) -> Self {
        Self(tokio::spawn(control::serve(listener, control, access)))
    }
}

impl Drop for ControlTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
