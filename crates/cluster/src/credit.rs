//! Credit: the announces of users on their way to a stream of JetStream, from which another program credits the users.
//!
//! The responders record announces in rings ([`shoal_engine::credit`]). The thread `credit` (`collect`) puts them into
//! batches, and keeps the batches until the stream has them: in a journal on disk if there is a directory (`journal`),
//! and otherwise in memory. The thread `credit-disk` (``mod@disk``) waits for the disk meanwhile, and adopts the files
//! of ended runs (`adopt`). A task on the thread of the connection publishes one batch at a time (``mod@publish``), so
//! that the stream keeps their order, also after faults.
//!
//! A batch has the same message id in each attempt. The id consists of the run, which is new after each start, and the
//! number of the batch, so it never belongs to two batches. Nothing here delays a request: announces that cannot be
//! held are lost and counted.

mod adopt;
mod collect;
mod disk;
mod journal;
mod publish;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crate::protocol::{CREDIT_BATCH_BYTES_MAX, NodeId};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_base::metrics::Gauge;
use shoal_config::Config;
use shoal_control::stats::CreditStats;
use shoal_engine::credit::{CreditCounters, RecordedCredits};
use tokio::sync::Notify;

use self::collect::{BATCHES_MAX, Collector, HELD_BYTES_MAX};
use self::disk::disk;
use self::journal::{Journal, READ_BYTES_MAX};
pub(crate) use self::publish::publish;
use super::connection::Link;
use super::jetstream::Availability;
use shoal_runtime::clock;
use shoal_runtime::periodic::PeriodicThread;

/// How often the thread looks for records. At 400,000 announces a second, a ring holds this time's announces.
const TURN_EVERY: Duration = Duration::from_millis(10);

/// Maximum time for the last batches at the end.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(500);

/// The memory of batches: those held without files, their list, the batches in work, and a file that is read and
/// mended.
pub const BYTES_MAX: usize = HELD_BYTES_MAX
    + BATCHES_MAX * 2 * size_of::<collect::Waiting>()
    + 4 * CREDIT_BATCH_BYTES_MAX
    + 2 * READ_BYTES_MAX;

/// The credit's way to its stream, which the threads of a node share.
#[derive(Debug)]
pub struct CreditLink {
    link: Arc<Link>,
    stream: String,
    subject: String,
    domain: Option<String>,
    exchange: Mutex<Exchange>,
    /// Ends the task's wait for a batch.
    batch_is_there: Notify,
    /// The thread, whose pause ends when the stream has a batch.
    thread: OnceLock<Thread>,
    /// The counts of each responder.
    recorders: Vec<Arc<CreditCounters>>,
    counts: Counts,
}

/// The batch that is being published, and its progress.
#[derive(Debug)]
struct Exchange {
    phase: Availability,
    batch: Option<Batch>,
    /// Whether the stream has the batch.
    is_stored: bool,
    /// Whether the thread must hold nothing back any more.
    is_leaving: bool,
}

#[derive(Clone, Debug)]
struct Batch {
    run: NodeId,
    sequence: u64,
    payload: Bytes,
}

/// Counts of announces, in records unless they say otherwise.
#[derive(Debug, Default)]
struct Counts {
    stored: Gauge,
    /// Lost because too many waited.
    lost_full: Gauge,
    /// Lost because a file could not be read again.
    lost_unreadable: Gauge,
    waiting: Gauge,
    spool_bytes: Gauge,
}

pub(super) struct CreditThreads {
    credit: Arc<CreditLink>,
    collector: PeriodicThread,
    /// Waits for the disk, if there are files.
    disk: Option<PeriodicThread>,
}

impl CreditLink {
    /// Returns the way to the stream, unless the node credits no user.
    pub(super) fn new(config: &Config, link: Arc<Link>, recorded: &[RecordedCredits]) -> Option<Arc<Self>> {
        let stream = config.cluster.credit_stream.as_ref()?;
        let recorders = recorded.iter().map(|recorded| Arc::clone(recorded.counters())).collect();
        Some(Arc::new(Self {
            link,
            stream: stream.as_str().to_owned(),
            subject: crate::protocol::credit_subject(config.cluster.name.as_str()),
            domain: config.cluster.jetstream_domain.as_ref().map(ToString::to_string),
            exchange: Mutex::new(Exchange {
                phase: Availability::Away(None),
                batch: None,
                is_stored: false,
                is_leaving: false,
            }),
            batch_is_there: Notify::new(),
            thread: OnceLock::new(),
            recorders,
            counts: Counts::default(),
        }))
    }

    /// Returns the way to a stream without a connection.
    #[cfg(test)]
    fn away() -> Arc<Self> {
        let text =
            "tokens.jwks = \"keys\"\n[cluster]\nservers = [\"nats://127.0.0.1\"]\ncredit_stream = \"CREDIT\"";
        let file = shoal_config::ConfigFile { path: "test", text };
        let config = shoal_config::read(Some(file), []).expect("a configuration");
        let (link, _inbox) = Link::new(shoal_net::Waker::new().expect("a waker"));
        Self::new(&config, link, &[]).expect("there is a stream")
    }

    /// Returns the state at this moment.
    pub(crate) fn stats(&self) -> CreditStats {
        let sum = |count: fn(&CreditCounters) -> u64| {
            self.recorders.iter().map(|counters| count(counters)).sum::<u64>()
        };
        let by_reason = |counts: &[(&str, u64)]| {
            counts.iter().map(|&(reason, count)| (reason.to_owned(), count)).collect()
        };
        let (state, fault) = self.exchange.lock().phase.clone().told(["accepted", "away", "refused"]);
        CreditStats {
            stream: self.stream.clone(),
            state,
            fault,
            stored: self.counts.stored.read(),
            waiting: self.counts.waiting.read(),
            spool_bytes: self.counts.spool_bytes.read(),
            lost: by_reason(&[
                ("ring_full", sum(|counters| counters.lost.read())),
                ("spool_full", self.counts.lost_full.read()),
                ("unreadable", self.counts.lost_unreadable.read()),
            ]),
            skipped: by_reason(&[
                ("without_subject", sum(|counters| counters.without_subject.read())),
                ("invalid_token", sum(|counters| counters.invalid_token.read())),
            ]),
        }
    }

    /// Waits until there is a batch to publish.
    async fn next(&self) -> Batch {
        loop {
            let there = self.batch_is_there.notified();
            if let Some(batch) = self.offered() {
                return batch;
            }
            there.await;
        }
    }

    /// Returns the offered batch, unless the stream has it.
    fn offered(&self) -> Option<Batch> {
        let exchange = self.exchange.lock();
        exchange.batch.clone().filter(|_| !exchange.is_stored)
    }

    /// Records that the stream has the offered batch.
    fn note_stored(&self) {
        let mut exchange = self.exchange.lock();
        exchange.is_stored = true;
        drop(exchange);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Offers a batch, if none is offered. Returns whether it was taken.
    fn offer(&self, batch: impl FnOnce() -> Option<Batch>) -> bool {
        let mut exchange = self.exchange.lock();
        if exchange.batch.is_some() {
            return false;
        }
        drop(exchange);
        // The call may read a file. Only this thread offers batches.
        let Some(batch) = batch() else { return false };
        exchange = self.exchange.lock();
        (exchange.batch, exchange.is_stored) = (Some(batch), false);
        drop(exchange);
        self.batch_is_there.notify_one();
        true
    }

    /// Returns whether the stream has the offered batch, and forgets the batch then.
    fn take_stored(&self) -> bool {
        let mut exchange = self.exchange.lock();
        let is_stored = exchange.is_stored;
        if is_stored {
            (exchange.batch, exchange.is_stored) = (None, false);
        }
        is_stored
    }

    fn is_leaving(&self) -> bool {
        self.exchange.lock().is_leaving
    }
}

impl CreditThreads {
    pub(super) fn start(
        credit: Arc<CreditLink>,
        (run, node): (NodeId, String),
        recorded: Vec<RecordedCredits>,
        directory: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let (mut files, mut disk_thread) = (None, None);
        if let Some(directory) = directory {
            let (mut disk, link) = disk(Arc::clone(&credit), directory.clone(), run);
            let body = move || disk.turn();
            disk_thread = Some(PeriodicThread::start("credit-disk", disk::LOOK_EVERY, body)?);
            files = Some((Journal::new(directory, run), link));
        }
        let mut collector = Collector::new(Arc::clone(&credit), (run, node), recorded, files);
        let body = move || collector.turn(clock::monotonic_ms(), clock::unix_ms());
        let collector = PeriodicThread::start("credit", TURN_EVERY, body)?;
        let _first = credit.thread.set(collector.thread());
        Ok(Self { credit, collector, disk: disk_thread })
    }

    pub(super) async fn failure(&mut self) -> anyhow::Error {
        let of_disk = async {
            match &mut self.disk {
                Some(disk) => disk.failure().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = self.collector.failure() => error,
            error = of_disk => error,
        }
    }

    /// Makes the threads hold back nothing from now on. They continue, since requests may still be answered.
    pub(super) fn leave(&self) {
        self.credit.exchange.lock().is_leaving = true;
        self.collector.thread().unpark();
    }

    /// Ends the threads, once the stream has everything or a short time is over. The rest stays in files, if there is a
    /// directory.
    pub(super) fn finish(self) {
        self.leave();
        let end = tokio::time::Instant::now() + FLUSH_TIME_MAX;
        // The rings now hold the last requests, and two turns empty them.
        std::thread::sleep(2 * TURN_EVERY);
        while self.credit.counts.waiting.read() > 0
            && self.credit.link.is_connected()
            && tokio::time::Instant::now() < end
        {
            std::thread::sleep(TURN_EVERY);
        }
        let lost = self.credit.counts.waiting.read();
        // The other thread waits for nothing when this one has ended.
        drop(self.collector);
        drop(self.disk);
        if lost > 0 {
            tracing::warn!(
                records = lost,
                "credit was not in its stream at the end; files of state.path have it, if there are some"
            );
        }
    }
}
