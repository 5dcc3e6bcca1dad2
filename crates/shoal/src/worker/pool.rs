//! The worker pool: all workers of a tracker, from binding their sockets to the end of their threads.

use std::io;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow};
use shoal_base::Presence;
use shoal_engine::access_log::{self, AccessRecords};
use shoal_engine::context as engine;
use shoal_engine::counter::Tally;
use shoal_engine::credit::RecordedCredits;
use shoal_engine::insight::Sampler;
use shoal_engine::policy::Protocol;
use shoal_engine::replication::{Recorded, Recorder};
use shoal_engine::{credit, http, replication, udp, webtorrent};
use shoal_net::stream::{Budget, StreamLimits, StreamListeners};
use shoal_net::{Backend, BindError, InheritedSockets, SocketSettings, Sockets, Waker, XdpQueue};
use shoal_relay::{Dispatcher, Mailboxes, Swarms};
use shoal_session::Statistics;
use shoal_store::Store;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::sandbox::WorkerLimits;
use crate::worker::phase::{Phase, WorkerPhase};
use crate::worker::processors;
use crate::worker::service::WorkerService;
use crate::worker::{Wakers, Worker, WorkerIo};
use shoal_control::WorkerSources;
use shoal_control::insight::Insight;
use shoal_engine::processing::{ProcessingCounters, Stopwatch};
use shoal_runtime::clock;
use shoal_runtime::heartbeat::Heartbeat;
use shoal_runtime::live::Live;
use shoal_runtime::panics;
use shoal_runtime::published::Published;

/// Maximum number of notices of a worker: one when it is ready, one when it ends.
const NOTICES_PER_WORKER_MAX: usize = 2;

pub(crate) struct WorkerSetup {
    pub(crate) backend: Backend,
    pub(crate) limits: Option<WorkerLimits>,
    pub(crate) insight: Arc<Insight>,
    pub(crate) live: Arc<Published<Live>>,
    pub(crate) tls: Option<shoal_session::tls::Server>,
    pub(crate) store: Arc<Store>,
    pub(crate) webtorrent: Option<WebTorrent>,
    /// The processors to pin workers to. Empty if workers are not pinned.
    pub(crate) processors: Vec<usize>,
    pub(crate) access_log: bool,
    /// The waker of the thread that exchanges messages with other nodes, if the tracker is a node.
    pub(crate) node: Option<Waker>,
    pub(crate) credit: bool,
    pub(crate) statistics: Arc<Published<Statistics>>,
    pub(crate) phase: Arc<WorkerPhase>,
}

#[derive(Debug)]
pub(crate) struct WebTorrent {
    pub(crate) swarms: Arc<Swarms>,
    /// The mailboxes, one for each worker.
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// Maximum number of bytes that wait for all connections of a worker.
    pub(crate) posts_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Tallies {
    udp: Tally,
    http: Tally,
    webtorrent: Tally,
    processing: Arc<ProcessingCounters>,
}

/// The sockets and listeners of one worker.
#[derive(Debug)]
pub(crate) struct Endpoints {
    pub(crate) sockets: Sockets,
    pub(crate) listeners: StreamListeners,
    pub(crate) queues: Vec<XdpQueue>,
}

#[derive(Debug)]
pub(crate) struct WorkerPool {
    phase: Arc<WorkerPhase>,
    wakers: Vec<Waker>,
    sources: Vec<WorkerSources>,
    /// The records of the workers for the access log.
    access_records: Vec<AccessRecords>,
    /// The changes that workers record for other nodes.
    recorded: Recorded,
    budgets: Vec<Arc<Budget>>,
    notices: Receiver<Notice>,
}

/// A notice of a worker about itself.
struct Notice {
    worker: usize,
    event: Event,
}

enum Event {
    /// The back end is open, and the worker serves.
    Ready,
    /// The thread ends, after a stop or with this error.
    Ended(anyhow::Result<()>),
}

impl WorkerPool {
    pub(crate) fn start(all_endpoints: Vec<Endpoints>, setup: &WorkerSetup) -> anyhow::Result<Self> {
        let (sender, notices) = channel(NOTICES_PER_WORKER_MAX * all_endpoints.len().max(1));
        let wakers: Vec<Waker> = all_endpoints.iter().map(|endpoints| endpoints.sockets.waker()).collect();
        let wakers_of_all = Wakers { workers: wakers.clone().into(), node: setup.node.clone() };
        let mut pool = Self {
            phase: Arc::clone(&setup.phase),
            wakers,
            sources: Vec::new(),
            access_records: Vec::new(),
            recorded: Recorded::default(),
            budgets: Vec::new(),
            notices,
        };
        for (number, endpoints) in all_endpoints.into_iter().enumerate() {
            let (tallies, heartbeat) = (Tallies::default(), Arc::<Heartbeat>::default());
            pool.budgets.push(endpoints.listeners.budget());
            let requests = [&tallies.udp, &tallies.http, &tallies.webtorrent].map(Tally::counters);
            let processing = Arc::clone(&tallies.processing);
            let rings = (&mut pool.access_records, &mut pool.recorded);
            let service = setup.service(number, tallies, &endpoints.listeners, rings)?;
            pool.sources.push(WorkerSources {
                heartbeat: Arc::clone(&heartbeat),
                requests,
                sessions: service.connections.counters(),
                processing,
                io: endpoints.sockets.counters(),
                streams: endpoints.listeners.counters(),
                budget: endpoints.listeners.budget(),
            });
            let worker = Worker {
                service,
                store: Arc::clone(&setup.store),
                swarms: setup.webtorrent.as_ref().map(|webtorrent| Arc::clone(&webtorrent.swarms)),
                wakers: wakers_of_all.clone(),
                heartbeat,
                phase: Arc::clone(&setup.phase),
            };
            let worker_thread = WorkerThread {
                backend: setup.backend,
                limits: setup.limits,
                stream_limits: setup.live.latest().stream_limits,
                endpoints,
                processor: setup.processors.get(number % setup.processors.len().max(1)).copied(),
            };
            spawn(number, sender.clone(), move |ready| worker_thread.serve(worker, ready))?;
        }
        Ok(pool)
    }

    /// Takes the counters and heartbeats of the workers, for the control listener. Later calls return nothing.
    pub(crate) fn take_sources(&mut self) -> Vec<WorkerSources> {
        std::mem::take(&mut self.sources)
    }

    /// Takes the rings with the records for the access log. Later calls return nothing.
    pub(crate) fn take_access_records(&mut self) -> Vec<AccessRecords> {
        std::mem::take(&mut self.access_records)
    }

    /// Takes the recorded changes for other nodes. Later calls return none.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a node uses it"))]
    pub(crate) fn take_recorded(&mut self) -> Recorded {
        std::mem::take(&mut self.recorded)
    }

    pub(crate) fn budgets(&self) -> Vec<Arc<Budget>> {
        self.budgets.clone()
    }

    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.wakers.clone()
    }

    /// Waits until every worker serves. The error says why a worker cannot serve.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let mut missing = self.wakers.len();
        while missing > 0 {
            match self.next().await {
                Notice { event: Event::Ready, .. } => missing -= 1,
                ended => return Err(ended.into_error()),
            }
        }
        Ok(())
    }

    /// Waits until a worker ends unexpectedly, and returns the reason.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        loop {
            match self.next().await {
                Notice { event: Event::Ready, .. } => {}
                ended => return ended.into_error(),
            }
        }
    }

    /// Makes all workers answer queued requests and end, and waits for them. The error says why a worker failed
    /// meanwhile.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.phase.set(Phase::Stopping, &self.wakers);
        let mut serving = self.wakers.len();
        while serving > 0 {
            match self.next().await {
                Notice { event: Event::Ready, .. } => {}
                Notice { event: Event::Ended(Ok(())), .. } => serving -= 1,
                failed => return Err(failed.into_error()),
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notices) => notices,
            // Every thread sends a notice of its end before it drops its sender.
            None => std::future::pending().await,
        }
    }
}

impl Notice {
    fn into_error(self) -> anyhow::Error {
        let cause = match self.event {
            Event::Ended(Err(error)) => error,
            Event::Ready | Event::Ended(Ok(())) => anyhow!("it ended without being told to"),
        };
        cause.context(format!("worker {} failed", self.worker))
    }
}

struct WorkerThread {
    backend: Backend,
    limits: Option<WorkerLimits>,
    stream_limits: StreamLimits,
    endpoints: Endpoints,
    processor: Option<usize>,
}

impl WorkerThread {
    /// Opens the back ends and runs the worker, on its own thread.
    fn serve(self, mut worker: Worker, ready: impl FnOnce()) -> anyhow::Result<()> {
        let Self { endpoints: Endpoints { sockets, listeners, queues }, .. } = self;
        if let Some(processor) = self.processor {
            processors::pin(processor).with_context(|| format!("cannot pin it to processor {processor}"))?;
        }
        let datagrams = self.backend.prepare(sockets).and_then(|io| io.with_xdp(queues).open());
        let datagrams = datagrams.context("cannot open its I/O back end")?;
        let mut io = WorkerIo { datagrams, streams: None };
        let opened = io.set_listeners(listeners, self.stream_limits, &mut worker.service);
        opened.context("cannot poll its listeners")?;
        if let Some(limits) = self.limits {
            limits.enter()?;
        }
        ready();
        worker.serve(io).context("its I/O back end failed")
    }
}

impl WorkerSetup {
    /// Returns the service of worker `number`. Each responder draws from its own seed. It adds a ring to
    /// `access_records` if there is an access log, and to `recorded` if there may be other nodes.
    fn service(
        &self,
        number: usize,
        tallies: Tallies,
        listeners: &StreamListeners,
        (access_records, recorded): (&mut Vec<AccessRecords>, &mut Recorded),
    ) -> anyhow::Result<WorkerService> {
        let live = self.live.latest();
        let store = || Arc::clone(&self.store);
        let stopwatch = || {
            let processing = Arc::clone(&tallies.processing);
            Ok::<_, anyhow::Error>(Stopwatch::new(processing, rng()?, clock::precise_ns))
        };
        let changes = || self.node.is_some().then(replication::ring).unzip();
        let ((of_udp, udp_changes), (of_http, http_changes)) = (changes(), changes());
        recorded.addresses.extend(udp_changes.into_iter().chain(http_changes));
        let mut context =
            Contexts { setup: self, number, live: &live, access_records, credits: &mut recorded.credits };
        let http = http::Responder::new(context.of(Protocol::Http, tallies.http, of_http)?, store());
        let datagrams = context.of(Protocol::Udp, tallies.udp, of_udp)?;
        let datagrams = udp::Responder::new(datagrams, &live.connection_key, store());
        let webtorrent = match &self.webtorrent {
            Some(webtorrent) => {
                let (recorder, presences) = self.node.is_some().then(replication::presence_ring).unzip();
                recorded.presences.extend(presences);
                let context = context.of(Protocol::WebTorrent, tallies.webtorrent, recorder)?;
                Some(webtorrent.responder(number, context)?)
            }
            None => None,
        };
        let tls = self.tls.as_ref().map(|tls| tls.for_worker());
        let mut connections =
            shoal_session::Service::new(Arc::clone(&live.sessions), http, webtorrent, tls, stopwatch()?);
        let per_source = live.stream_limits.per_source;
        connections.set_source_capacity(Box::new(listeners.source_limiter(per_source)));
        Ok(WorkerService {
            datagrams,
            connections,
            live: self.live.subscribe(),
            number,
            new_limits: None,
            new_endpoints: None,
            stopwatch: stopwatch()?,
            statistics: self.statistics.subscribe(),
        })
    }
}

/// Creates the contexts of the responders of one worker.
struct Contexts<'s> {
    setup: &'s WorkerSetup,
    number: usize,
    live: &'s Live,
    access_records: &'s mut Vec<AccessRecords>,
    credits: &'s mut Vec<RecordedCredits>,
}

impl Contexts<'_> {
    fn of<T>(
        &mut self,
        protocol: Protocol,
        tally: Tally,
        recorder: Option<Recorder<T>>,
    ) -> anyhow::Result<engine::Context<T>> {
        let Self { setup, live, .. } = self;
        let mut context = engine::Context::new(protocol, Arc::clone(&live.policy), tally, rng()?);
        if let Some(ring) = setup.insight.ring(self.number) {
            context.sampler = Sampler::new(Arc::clone(ring), rng()?);
        }
        if setup.access_log {
            let (log, records) = access_log::ring(rng()?);
            context.access_log = Some(log);
            self.access_records.push(records);
        }
        if setup.credit {
            let (recorder, credits) = credit::ring();
            context.credit = Some(recorder);
            self.credits.push(credits);
        }
        context.recorder = recorder;
        Ok(context)
    }
}

/// Returns a generator with a seed of its own.
fn rng() -> anyhow::Result<fastrand::Rng> {
    Ok(fastrand::Rng::with_seed(u64::from_ne_bytes(shoal_runtime::random::bytes()?)))
}

impl WebTorrent {
    fn responder(
        &self,
        worker: usize,
        context: engine::Context<Presence>,
    ) -> anyhow::Result<webtorrent::Responder> {
        let worker = u16::try_from(worker).context("there are too many workers")?;
        let dispatcher = Dispatcher::new(worker, Arc::clone(&self.mailboxes))
            // The limit applies to each of three kinds of messages, and a buffer may have twice the capacity of its
            // contents.
            .with_bytes_max(self.posts_bytes_max * 2 / 3);
        Ok(webtorrent::Responder::new(context, Arc::clone(&self.swarms), dispatcher))
    }
}

/// Binds the sockets of `workers` workers. If this host lacks a family that is only served `by_default`, the workers
/// serve the other one alone.
pub(crate) fn bind(
    wanted: &[SocketSettings],
    workers: NonZeroUsize,
    by_default: bool,
    inherited: &InheritedSockets,
) -> Result<Vec<Sockets>, BindError> {
    match Sockets::bind_or_inherit(wanted, workers, inherited) {
        Err(error @ BindError::Address { addr, .. }) if by_default && error.is_family_missing() => {
            tracing::warn!(%error, "serving only the other address family; set udp.listen to avoid this warning");
            let rest: Vec<_> = wanted.iter().filter(|socket| socket.addr != addr).copied().collect();
            Sockets::bind_or_inherit(&rest, workers, inherited)
        }
        bound => bound,
    }
}

/// Runs `life` on a thread that reports its end, even after a panic.
fn spawn(
    number: usize,
    sender: Sender<Notice>,
    life: impl FnOnce(&mut dyn FnMut()) -> anyhow::Result<()> + Send + 'static,
) -> io::Result<()> {
    let tell = move |event| {
        // The channel has capacity for all notices of all workers. Without a receiver, the tracker is ending.
        let _ = sender.try_send(Notice { worker: number, event });
    };
    let body = move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| life(&mut || tell(Event::Ready))));
        tell(Event::Ended(
            outcome.unwrap_or_else(|panic| Err(anyhow!("it panicked: {}", panics::text(&*panic)))),
        ));
    };
    thread::Builder::new().name(format!("worker-{number}")).spawn(body).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns why a pool of one worker fails if the worker runs `life`.
    fn failure_of(life: impl FnOnce(&mut dyn FnMut()) -> anyhow::Result<()> + Send + 'static) -> String {
        let (sender, notices) = channel(NOTICES_PER_WORKER_MAX);
        let mut pool = WorkerPool {
            phase: Arc::new(WorkerPhase::new(Phase::Serving, false)),
            wakers: Vec::new(),
            sources: Vec::new(),
            access_records: Vec::new(),
            recorded: Recorded::default(),
            budgets: Vec::new(),
            notices,
        };
        spawn(3, sender, life).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        format!("{:#}", runtime.block_on(pool.failure()))
    }

    #[test]
    fn a_worker_that_panics_stops_the_pool_with_its_message() {
        assert_eq!(failure_of(|_| panic!("out of {}", "luck")), "worker 3 failed: it panicked: out of luck");
        assert_eq!(failure_of(|_| panic!("plainly")), "worker 3 failed: it panicked: plainly");
    }

    #[test]
    fn a_worker_that_ends_unexpectedly_stops_the_pool() {
        let life = |ready: &mut dyn FnMut()| {
            ready();
            Ok(())
        };
        assert_eq!(failure_of(life), "worker 3 failed: it ended without being told to");
        assert_eq!(failure_of(|_| Err(anyhow!("a closed ring"))), "worker 3 failed: a closed ring");
    }
}
