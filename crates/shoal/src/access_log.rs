//! The access log: a thread that takes the records of all workers and writes them as JSON lines.
//!
//! A target that is slow or fails holds up this thread alone. Meanwhile the rings of the workers
//! ([`shoal_engine::access_log`]) fill, and what they cannot hold is lost and counted. A worker never waits.

mod line;
mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, Thread};
use std::time::Duration;

use shoal_config::AccessLogTarget;
use shoal_engine::access_log::AccessRecords;
use tokio::time::Instant;

use self::line::Clocks;
use self::target::Target;
use shoal_runtime::counters::{RecordCounters, RecordOutcome};
use shoal_runtime::failure::Failure;
use shoal_runtime::repeated::Repeated;

/// Pauses while there is nothing to write: short ones at first, so that the rings of a busy tracker never fill, and longer
/// ones while it stays idle.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Maximum number of records that are taken from one ring before it is the turn of the next one.
const TURN_RECORDS: usize = 256;

/// Lines of this size together are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// Maximum time for the last lines at the end.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(200);

/// The access log of a running tracker.
#[derive(Debug)]
pub(crate) struct AccessLog {
    signals: Arc<LogSignals>,
    thread: Thread,
    ended: Receiver<()>,
    counters: Arc<RecordCounters>,
}

/// Tells the thread of the log to open its file anew.
#[derive(Clone, Debug)]
pub(crate) struct Reopener {
    signals: Arc<LogSignals>,
    thread: Thread,
}

/// A request to the thread of the log.
#[derive(Debug, Default)]
struct LogSignals {
    reopen: AtomicBool,
    stop: AtomicBool,
}

/// A target that is open, before there are records.
pub(crate) struct OpenTarget(Target);

/// The state of the thread.
struct Writer {
    target: Target,
    rings: Vec<AccessRecords>,
    counters: Arc<RecordCounters>,
    lines: Vec<u8>,
    losses: Losses,
}

/// The losses of records, of which the log tells once a minute.
#[derive(Default)]
struct Losses {
    write_failed: Repeated,
    full: Repeated,
    /// The number of records that were lost in full rings, and how many of them the log has told of.
    queue_full: u64,
    told: u64,
}

/// Opens the target that the operator has chosen, if any.
///
/// # Errors
/// Returns why it cannot be used.
pub(crate) fn open(target: &AccessLogTarget) -> Result<Option<OpenTarget>, Failure> {
    let opened = Target::open(target).map_err(|error| {
        Failure::Configuration(format!(
            "log.access = \"{target}\": {error}; name a file in a directory that exists and that the tracker may write \
             to, \"stderr\" or \"journald\" (where systemd runs), or set \"\" for no access log"
        ))
    })?;
    Ok(opened.map(OpenTarget))
}

impl OpenTarget {
    /// Starts the thread that writes the records of these rings.
    pub(crate) fn start(self, rings: Vec<AccessRecords>) -> std::io::Result<AccessLog> {
        let (signals, counters) = (Arc::<LogSignals>::default(), Arc::<RecordCounters>::default());
        let (end, ended) = mpsc::channel();
        let mut writer = Writer {
            target: self.0,
            rings,
            counters: Arc::clone(&counters),
            lines: Vec::with_capacity(2 * WRITE_BYTES),
            losses: Losses::default(),
        };
        let followed = Arc::clone(&signals);
        let thread = thread::Builder::new().name("access log".to_owned()).spawn(move || {
            writer.run(&followed);
            // If the receiver is gone, the tracker has not waited for the last lines.
            let _ = end.send(());
        })?;
        Ok(AccessLog { signals, thread: thread.thread().clone(), ended, counters })
    }
}

impl AccessLog {
    /// Returns the numbers of records, for an exporter.
    pub(crate) fn counters(&self) -> Arc<RecordCounters> {
        Arc::clone(&self.counters)
    }

    /// Returns a handle that makes the log open its file anew.
    pub(crate) fn reopener(&self) -> Reopener {
        Reopener { signals: Arc::clone(&self.signals), thread: self.thread.clone() }
    }

    /// Writes what the workers have recorded, and ends. A target that hangs loses the rest.
    pub(crate) fn stop(self) {
        self.signals.stop.store(true, Ordering::Release);
        self.thread.unpark();
        let _in_time_or_not = self.ended.recv_timeout(FLUSH_TIME_MAX);
    }
}

impl Reopener {
    /// Makes the log open its file anew, soon.
    pub(crate) fn reopen(&self) {
        self.signals.reopen.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Writer {
    fn run(&mut self, signals: &LogSignals) {
        let mut pause = PAUSE_MIN;
        loop {
            // A record before the stop is in its ring by now.
            let is_last = signals.stop.load(Ordering::Acquire);
            if signals.reopen.swap(false, Ordering::AcqRel)
                && let Err(error) = self.target.reopen()
            {
                tracing::error!(%error, "the file of the access log cannot be opened anew");
            }
            let taken = self.take_all();
            if is_last {
                return;
            }
            pause = if taken > 0 { PAUSE_MIN } else { (2 * pause).min(PAUSE_MAX) };
            thread::park_timeout(pause);
        }
    }

    /// Writes all records that were in the rings, and returns their number. Rings that fill as fast as they are emptied
    /// end a round after as many records as all of them can hold.
    fn take_all(&mut self) -> usize {
        let clocks = Clocks::read();
        let records_max = self.rings.len() * shoal_engine::access_log::RECORDS_MAX;
        let mut taken = 0;
        loop {
            let before = taken;
            for index in 0..self.rings.len() {
                for _ in 0..TURN_RECORDS {
                    let Some(record) = self.rings[index].take() else { break };
                    line::append(&record, &clocks, &mut self.lines);
                    taken += 1;
                    if self.lines.len() >= WRITE_BYTES {
                        self.write();
                    }
                }
            }
            if taken == before || taken >= records_max {
                break;
            }
        }
        self.write();
        taken
    }

    /// Hands the collected lines to the target.
    fn write(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let (written, error) = self.target.write(&self.lines);
        let all = self.lines.iter().filter(|&&byte| byte == b'\n').count();
        self.lines.clear();
        self.counters.add(RecordOutcome::Written, written as u64);
        let failed = (all - written) as u64;
        self.counters.add(RecordOutcome::WriteFailed, failed);
        if let Some(error) = error
            && let Some(unlogged) = self.losses.write_failed.note(Instant::now())
        {
            tracing::warn!(%error, records = failed, unlogged, "records of the access log could not be written");
        }
        // A ring that was full has just been emptied, so this comes after every loss.
        self.tell_losses();
    }

    /// Counts the records that the workers have lost, and tells of them.
    fn tell_losses(&mut self) {
        let queue_full = self.rings.iter().map(AccessRecords::lost).sum::<u64>();
        self.counters.add(RecordOutcome::QueueFull, queue_full - self.losses.queue_full);
        self.losses.queue_full = queue_full;
        if queue_full > self.losses.told && self.losses.full.note(Instant::now()).is_some() {
            let records = queue_full - self.losses.told;
            self.losses.told = queue_full;
            tracing::warn!(
                records,
                "records of the access log were lost, because its target is slower than the tracker; raise \
                 log.access_sample or choose another target"
            );
        }
    }
}
