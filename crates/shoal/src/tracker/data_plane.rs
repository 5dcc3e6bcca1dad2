//! Starts the workers, and the threads that work for them.
//!
//! Shared values are made first. Then the threads start. The tracker serves once the last worker is ready and, in an
//! upgrade, the old process has let go.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use shoal_access::Access;
use shoal_base::source::Holdings;
use shoal_config::Config;
use shoal_engine::policy::Policy;
use shoal_net::{Backend, Waker};
use shoal_session::{SessionSettings, Statistics};

use super::files::Reloadable;
use super::protection;
use super::swarms::OpenedSwarms;
use crate::access_log::{AccessLog, OpenTarget};
use crate::certificates::Certificates;
use crate::cluster;
use crate::hand_over::{Offered, Predecessor};
use crate::memory::thread::{self as memory_thread, Connections};
use crate::sandbox::WorkerLimits;
use crate::service_manager::frozen_swarms::FrozenSwarms;
use crate::settings;
use crate::sockets::bound::{self, Bound, ControlSockets};
use crate::sockets::listening::Listening;
use crate::state::{Saver, State};
use crate::worker::phase::{Phase, WorkerPhase};
use crate::worker::pool::{Endpoints, WorkerPool, WorkerSetup};
use crate::xdp::{DataPath, DataPathThread};
use shoal_control::insight::{Collector, Insight};
use shoal_control::last_day::LastDay;
use shoal_control::pause::{self, pausing};
use shoal_runtime::clock;
use shoal_runtime::counters::SnapshotCounters;
use shoal_runtime::division::Division;
use shoal_runtime::lists::{ListControl, Publisher};
use shoal_runtime::live::Live;
use shoal_runtime::periodic::PeriodicThread;
use shoal_runtime::published::Published;

pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    pub(super) division: &'a Division,
    pub(super) bound: Bound,
    pub(super) limits: Option<WorkerLimits>,
    pub(super) state: State,
    pub(super) access: Access,
    pub(super) access_target: Option<OpenTarget>,
    pub(super) files: &'a Reloadable,
    pub(super) frozen_swarms: Option<FrozenSwarms>,
}

/// The running workers and threads, and what they share with the control plane.
pub(super) struct DataPlane {
    pub(super) started_unix_s: u64,
    pub(super) last_day: LastDay,
    pub(super) backend: Backend,
    pub(super) threads: Threads,
    pub(super) publisher: Arc<Publisher>,
    pub(super) insight: Arc<Insight>,
    pub(super) statistics: Arc<Published<Statistics>>,
    pub(super) holdings: Option<Arc<Holdings>>,
    pub(super) snapshots: Arc<SnapshotCounters>,
    pub(super) offered: Offered,
    /// The parts that other nodes of a cluster change and read, if the tracker is a node.
    pub(super) node: Option<cluster::Shared>,
    pub(super) control: Option<ControlSockets>,
}

/// All threads of the data plane, in the order in which they end after a failure.
pub(super) struct Threads {
    pub(super) data_path: Option<DataPathThread>,
    pub(super) saver: Option<Saver>,
    pub(super) access_log: Option<AccessLog>,
    pub(super) collector: PeriodicThread,
    pub(super) memory_thread: PeriodicThread,
    pub(super) pool: WorkerPool,
}

struct Prepared {
    /// The configuration, without the address families that this host lacks.
    config: Config,
    setup: WorkerSetup,
    endpoints: Vec<Endpoints>,
    listening: Listening,
    data_path: DataPath,
    state: State,
    access_target: Option<OpenTarget>,
    holdings: Option<Arc<Holdings>>,
    control: Option<ControlSockets>,
    /// The addresses of UDP, of HTTP, and of HTTP with TLS, for the log.
    addresses: [String; 3],
}

impl Prepared {
    async fn new(parts: Parts<'_>, predecessor: Option<&mut Predecessor>) -> anyhow::Result<Self> {
        let Parts { config, division, bound, limits, state, access, access_target, files, frozen_swarms } =
            parts;
        let torrents = access.torrents.clone();
        // A reload compares with the configuration as it was read.
        let policy = settings::policy(config.clone(), files.token_keys.current(), None, division.max)?;
        let policy = policy.with_access(access).with_private_host(bound.is_host_private);
        let paused = config.state.path.as_deref().map(pause::read).unwrap_or_default();
        let policy = pausing(policy, &paused);
        let listening = Listening::new(&bound).context("cannot copy the sockets")?;
        let Bound {
            config,
            backend,
            processors,
            sockets,
            listeners,
            control,
            connections_max,
            mut data_path,
            is_host_private: _,
        } = bound;
        let (http, tls) = bound::listen_addresses(&listeners, config.http.listen.len());
        let addresses = [bound::addresses(&sockets), http, tls];
        let phase = if predecessor.is_some() { Phase::Paused } else { Phase::Serving };
        let opened =
            OpenedSwarms::open(&config, division, (&state, torrents), frozen_swarms, predecessor).await?;
        let OpenedSwarms { store, continues, webtorrent, holdings } = opened;
        let live = Live {
            policy: Arc::new(with_permitted_swarms(policy, continues)),
            sessions: Arc::new(SessionSettings::of(&config)),
            stream_limits: settings::stream_limits(&config, connections_max),
            endpoints: Arc::new(listening.endpoints(connections_max)),
            home: files.home.clone(),
            connection_key: settings::connection_key(&config, &state.keys),
        };
        let workers = settings::workers(&config);
        let swarms = webtorrent.as_ref().map(|webtorrent| Arc::clone(&webtorrent.swarms));
        let insight = Insight::new(division.changes_max, workers.get(), Arc::clone(&store), swarms);
        let node = config.is_node().then(Waker::new).transpose();
        let setup = WorkerSetup {
            backend,
            limits,
            insight: Arc::new(insight),
            live: Arc::new(Published::new(Arc::new(live))),
            tls: files.certificates.as_ref().map(Certificates::server),
            store,
            webtorrent,
            processors,
            access_log: access_target.is_some(),
            node: node.context("cannot create an event descriptor")?,
            credit: config.cluster.credit_stream.is_some(),
            statistics: Arc::new(Published::new(Arc::default())),
            phase: Arc::new(WorkerPhase::new(phase, config.is_node())),
        };
        let queues = data_path.take_queues(workers);
        let endpoints = sockets.into_iter().zip(listeners).zip(queues);
        let endpoints = endpoints
            .map(|((sockets, listeners), queues)| Endpoints { sockets, listeners, queues })
            .collect();
        Ok(Self {
            config,
            setup,
            endpoints,
            listening,
            data_path,
            state,
            access_target,
            holdings,
            control,
            addresses,
        })
    }
}

/// Lets workers skip the lists for swarms in the store, if the store has no forbidden swarm.
fn with_permitted_swarms(policy: Policy, continues: bool) -> Policy {
    // A continued store may have swarms that the lists forbid by now.
    if continues { policy } else { policy.with_permitted_swarms() }
}

impl DataPlane {
    /// Starts all threads. Takes a predecessor once it has let go. The error says which part cannot be started, and
    /// why.
    pub(super) async fn start(
        parts: Parts<'_>,
        predecessor: &mut Option<Predecessor>,
    ) -> anyhow::Result<Self> {
        let started_unix_s = clock::unix_s();
        let (division, lists) = (parts.division, Arc::clone(&parts.files.lists));
        let has_tokens = !parts.files.control_tokens.is_empty();
        let Prepared {
            config,
            setup,
            endpoints,
            listening,
            data_path,
            state,
            access_target,
            holdings,
            control,
            addresses: [udp, http, tls],
        } = Prepared::new(parts, predecessor.as_mut()).await?;
        let mut pool = WorkerPool::start(endpoints, &setup)?;
        let node = setup.node.clone().map(|waker| cluster::shared(&setup, &mut pool, waker));
        let access_log = access_target.map(|target| target.start(pool.take_access_records()));
        let access_log = access_log.transpose().context("cannot start the thread of the access log")?;
        let WorkerSetup { backend, insight, live, store, webtorrent, statistics, phase, .. } = setup;
        let swarms = webtorrent.map(|webtorrent| webtorrent.swarms);
        let list_counters = lists.lock().unwrap_or_else(PoisonError::into_inner).counters();
        let connections = Connections::new(division, pool.budgets(), list_counters);
        let memory_thread =
            memory_thread::start(store.clone(), connections).context("cannot start the memory thread")?;
        let offered = Offered {
            keys: state.keys.clone(),
            lock: state.lock()?,
            listening: Mutex::new(listening),
            store: store.clone(),
            counted_swarms: holdings.as_ref().and(swarms.clone()),
            snapshots: state.snapshot_writer(&config, store.clone()),
            phase: Arc::clone(&phase),
            wakers: pool.wakers(),
            leave_time: Duration::from_secs(config.webtorrent.upgrade_close_s.into()),
        };
        let snapshots = Arc::<SnapshotCounters>::default();
        let saver = state.keep(&config, store.clone(), Arc::clone(&snapshots))?;
        let collector =
            Collector::start(&insight).context("cannot start the thread that collects samples")?;
        pool.ready().await?;
        let publisher = Arc::new(Publisher { live: Arc::clone(&live), wakers: pool.wakers(), store, swarms });
        let mut last_day = Vec::new();
        if let Some(running) = &predecessor
            && let Some(carried) = running.wait_until_it_lets_go()?
        {
            // The workers still pause, so they serve nothing that the old process would have refused.
            live.replace(|live| live.with_policy(pausing((*live.policy).clone(), &carried.paused)));
            let lists = ListControl { lists, publisher: Arc::clone(&publisher), shared: None };
            carried.bans.iter().for_each(|bans| lists.adopt_bans(bans));
            last_day = carried.last_day;
        }
        if let Some(running) = predecessor.take() {
            phase.set(Phase::Serving, &pool.wakers());
            running.take_connections(phase, pool.wakers(), holdings.clone())?;
        }
        let data_path = data_path.follow(&live).context("cannot start the thread of the XDP data path")?;
        let address = control.as_ref().and_then(|control| control.tcp.local_addr().ok());
        let control_shown = address.map_or("off".to_owned(), |address| address.to_string());
        protection::log(&live.latest().policy, address, has_tokens);
        let workers = settings::workers(&config);
        tracing::info!(udp, http, tls, control = control_shown, workers, io = %backend, "ready");
        Ok(Self {
            started_unix_s,
            last_day: LastDay::new(started_unix_s, last_day),
            backend,
            threads: Threads { data_path, saver, access_log, collector, memory_thread, pool },
            publisher,
            insight,
            statistics,
            holdings,
            snapshots,
            offered,
            node,
            control,
        })
    }
}
