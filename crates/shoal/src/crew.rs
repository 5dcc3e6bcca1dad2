//! The crew: all workers of a tracker, from the binding of their sockets to the end of their threads.

use std::io;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, anyhow};
use shoal_engine::counter::Tally;
use shoal_engine::{http, udp, webtorrent};
use shoal_net::stream::{Budget, StreamIo, StreamLimits, StreamListeners};
use shoal_net::{Backend, BindError, SocketSettings, Sockets, Waker};
use shoal_relay::{Mailboxes, Postroom, QueueLimits, Swarms};
use shoal_store::Store;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::control::WorkerSources;
use crate::desk::Desk;
use crate::pulse::Pulse;
use crate::worker::Worker;
use crate::{processors, settings};

/// Most that a worker has to tell: that it is ready, and that it ends.
const NEWS_PER_WORKER_MAX: usize = 2;

/// What the workers are to do.
pub(crate) struct Orders {
    pub(crate) backend: Backend,
    pub(crate) stream_limits: StreamLimits,
    pub(crate) engine: shoal_engine::Settings,
    pub(crate) connections: Arc<shoal_connection::Settings>,
    pub(crate) tls: Option<shoal_tls::Server>,
    pub(crate) store: Arc<Store>,
    /// How WebTorrent is served, if it is.
    pub(crate) webtorrent: Option<WebTorrent>,
    /// The processors to pin workers to, or none.
    pub(crate) processors: Vec<usize>,
}

/// How WebTorrent is served.
#[derive(Debug)]
pub(crate) struct WebTorrent {
    pub(crate) settings: webtorrent::Settings,
    pub(crate) swarms: Arc<Swarms>,
    /// One for each worker.
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) queue_limits: QueueLimits,
    /// Most bytes that wait for all connections of a worker.
    pub(crate) posts_bytes_max: usize,
}

/// What one worker counts, for each protocol.
#[derive(Debug, Default)]
struct Tallies {
    udp: Tally,
    http: Tally,
    webtorrent: Tally,
}

/// What one worker has of the outside world.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) sockets: Sockets,
    pub(crate) listeners: StreamListeners,
}

/// The workers at work.
#[derive(Debug)]
pub(crate) struct Crew {
    stopping: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    sources: Vec<WorkerSources>,
    budgets: Vec<Arc<Budget>>,
    news: Receiver<News>,
}

/// What a worker tells of itself.
struct News {
    worker: usize,
    event: Event,
}

enum Event {
    /// Its back end is open, and it serves.
    Ready,
    /// Its thread ends: as it was told to, or for this reason.
    Ended(anyhow::Result<()>),
}

impl Crew {
    /// Starts one worker for each of `places`.
    ///
    /// # Errors
    /// Where there are no threads or random numbers to be had.
    pub(crate) fn start(places: Vec<Place>, orders: &Orders) -> anyhow::Result<Self> {
        let (sender, news) = channel(NEWS_PER_WORKER_MAX * places.len().max(1));
        let wakers: Vec<Waker> = places.iter().map(|place| place.sockets.waker()).collect();
        let wakers_of_all: Arc<[Waker]> = wakers.clone().into();
        let mut crew =
            Self { stopping: Arc::default(), wakers, sources: Vec::new(), budgets: Vec::new(), news };
        for (number, place) in places.into_iter().enumerate() {
            let (tallies, pulse) = (Tallies::default(), Arc::<Pulse>::default());
            crew.budgets.push(place.listeners.budget());
            crew.sources.push(WorkerSources {
                pulse: Arc::clone(&pulse),
                udp: tallies.udp.counters(),
                http: tallies.http.counters(),
                webtorrent: tallies.webtorrent.counters(),
                io: place.sockets.counters(),
                streams: place.listeners.counters(),
                budget: place.listeners.budget(),
                sockets: place.sockets.probes().collect(),
            });
            let worker = Worker {
                desk: orders.desk(number, tallies, &place.listeners)?,
                store: Arc::clone(&orders.store),
                swarms: orders.webtorrent.as_ref().map(|webtorrent| Arc::clone(&webtorrent.swarms)),
                wakers: Arc::clone(&wakers_of_all),
                pulse,
                stopping: Arc::clone(&crew.stopping),
            };
            let station = Station {
                backend: orders.backend,
                stream_limits: orders.stream_limits,
                place,
                processor: orders.processors.get(number % orders.processors.len().max(1)).copied(),
            };
            spawn(number, sender.clone(), move |ready| station.serve(worker, ready))?;
        }
        Ok(crew)
    }

    /// What the workers show of themselves, once, for whoever watches.
    pub(crate) fn take_sources(&mut self) -> Vec<WorkerSources> {
        std::mem::take(&mut self.sources)
    }

    /// What the connections of each worker may hold.
    pub(crate) fn budgets(&self) -> Vec<Arc<Budget>> {
        self.budgets.clone()
    }

    /// Waits until every worker serves.
    ///
    /// # Errors
    /// Why one of them cannot.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let mut missing = self.wakers.len();
        while missing > 0 {
            match self.next().await {
                News { event: Event::Ready, .. } => missing -= 1,
                ended => return Err(ended.into_error()),
            }
        }
        Ok(())
    }

    /// Waits until a worker ends that was not told to, and says why.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        loop {
            match self.next().await {
                News { event: Event::Ready, .. } => {}
                ended => return ended.into_error(),
            }
        }
    }

    /// Tells all workers to answer what is queued and to end, and waits for them.
    ///
    /// # Errors
    /// Why one of them failed meanwhile.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.stopping.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
        let mut serving = self.wakers.len();
        while serving > 0 {
            match self.next().await {
                News { event: Event::Ready, .. } => {}
                News { event: Event::Ended(Ok(())), .. } => serving -= 1,
                failed => return Err(failed.into_error()),
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            // Every thread has told of its end before it let go of its sender.
            None => std::future::pending().await,
        }
    }
}

impl News {
    fn into_error(self) -> anyhow::Error {
        let cause = match self.event {
            Event::Ended(Err(error)) => error,
            Event::Ready | Event::Ended(Ok(())) => anyhow!("it ended without being told to"),
        };
        cause.context(format!("worker {} failed", self.worker))
    }
}

/// Where a worker serves.
struct Station {
    backend: Backend,
    stream_limits: StreamLimits,
    place: Place,
    processor: Option<usize>,
}

impl Station {
    /// The life of a worker, on its own thread.
    fn serve(self, worker: Worker, ready: impl FnOnce()) -> anyhow::Result<()> {
        let Self { place: Place { mut sockets, listeners }, .. } = self;
        if let Some(processor) = self.processor {
            processors::pin(processor).with_context(|| format!("cannot pin it to processor {processor}"))?;
        }
        let mut streams = None;
        if listeners.local_addresses().next().is_some() {
            let opened = StreamIo::open(listeners, self.stream_limits);
            let opened = opened.context("cannot watch its listeners")?;
            sockets.watch(opened.readiness().context("cannot watch its connections")?);
            streams = Some(opened);
        }
        let mut datagrams = self.backend.open(sockets).context("cannot open its I/O back end")?;
        ready();
        worker.serve(&mut datagrams, streams).context("its I/O back end failed")
    }
}

impl Orders {
    /// What the worker of this number answers with. Each draws from a seed of its own.
    fn desk(&self, number: usize, tallies: Tallies, listeners: &StreamListeners) -> anyhow::Result<Desk> {
        let rng =
            || Ok::<_, anyhow::Error>(fastrand::Rng::with_seed(u64::from_ne_bytes(settings::random()?)));
        let http = http::Responder::new(&self.engine, Arc::clone(&self.store), tallies.http, rng()?);
        let webtorrent = match &self.webtorrent {
            Some(webtorrent) => Some(webtorrent.responder(number, tallies.webtorrent, rng()?)?),
            None => None,
        };
        Ok(Desk {
            datagrams: udp::Responder::new(&self.engine, Arc::clone(&self.store), tallies.udp, rng()?),
            connections: shoal_connection::Service::new(
                Arc::clone(&self.connections),
                http,
                webtorrent,
                self.tls.clone(),
            )
            .with_room(Box::new(listeners.room(self.stream_limits.per_source))),
        })
    }
}

impl WebTorrent {
    fn responder(
        &self,
        worker: usize,
        tally: Tally,
        rng: fastrand::Rng,
    ) -> anyhow::Result<webtorrent::Responder> {
        let worker = u16::try_from(worker).context("there are too many workers")?;
        let postroom = Postroom::new(worker, Arc::clone(&self.mailboxes))
            .with_limits(self.queue_limits)
            // It holds to this limit for each of three kinds, and buffers may have room for twice of what is in them.
            .with_bytes_max(self.posts_bytes_max * 2 / 3);
        Ok(webtorrent::Responder::new(self.settings.clone(), Arc::clone(&self.swarms), postroom, tally, rng))
    }
}

/// Binds the sockets of `workers` workers. Where this host lacks a family that is served `by_default` only, the other
/// one is served alone.
pub(crate) fn bind(
    wanted: &[SocketSettings],
    workers: NonZeroUsize,
    by_default: bool,
) -> Result<Vec<Sockets>, BindError> {
    match Sockets::bind(wanted, workers) {
        Err(error @ BindError::Address { addr, .. }) if by_default && error.is_family_missing() => {
            tracing::warn!(%error, "serving the other family alone; udp.listen can say so");
            let rest: Vec<_> = wanted.iter().filter(|socket| socket.addr != addr).copied().collect();
            Sockets::bind(&rest, workers)
        }
        bound => bound,
    }
}

/// Runs `life` on a thread that tells of its end, whatever kind of end it is.
fn spawn(
    number: usize,
    sender: Sender<News>,
    life: impl FnOnce(&mut dyn FnMut()) -> anyhow::Result<()> + Send + 'static,
) -> io::Result<()> {
    let tell = move |event| {
        // The channel has room for all the news of all workers. If nobody listens any more, the tracker is past caring.
        let _ = sender.try_send(News { worker: number, event });
    };
    let body = move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| life(&mut || tell(Event::Ready))));
        tell(Event::Ended(outcome.unwrap_or_else(|panic| Err(anyhow!("it panicked: {}", words(&*panic))))));
    };
    thread::Builder::new().name(format!("worker-{number}")).spawn(body).map(drop)
}

/// Returns the text of a panic.
pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a crew of one fails, whose worker lives like this.
    fn failure_of(life: impl FnOnce(&mut dyn FnMut()) -> anyhow::Result<()> + Send + 'static) -> String {
        let (sender, news) = channel(NEWS_PER_WORKER_MAX);
        let mut crew = Crew {
            stopping: Arc::default(),
            wakers: Vec::new(),
            sources: Vec::new(),
            budgets: Vec::new(),
            news,
        };
        spawn(3, sender, life).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        format!("{:#}", runtime.block_on(crew.failure()))
    }

    #[test]
    fn a_worker_that_panics_fails_the_crew_with_its_words() {
        assert_eq!(failure_of(|_| panic!("out of {}", "luck")), "worker 3 failed: it panicked: out of luck");
        assert_eq!(failure_of(|_| panic!("plainly")), "worker 3 failed: it panicked: plainly");
    }

    #[test]
    fn a_worker_that_ends_untold_fails_the_crew() {
        let life = |ready: &mut dyn FnMut()| {
            ready();
            Ok(())
        };
        assert_eq!(failure_of(life), "worker 3 failed: it ended without being told to");
        assert_eq!(failure_of(|_| Err(anyhow!("a closed ring"))), "worker 3 failed: a closed ring");
    }
}
