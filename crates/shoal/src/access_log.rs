//! The access log: a thread that takes the records of all workers and writes them as JSON lines.
//!
//! A slow or failing target holds up this thread alone. Meanwhile the rings of the workers
//! ([`shoal_engine::access_log`]) fill. Records beyond their capacity are lost and counted. A worker never waits.

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

/// Pauses while there is nothing to write: short ones at first, so that the rings of a busy tracker never fill, and
/// longer ones while it stays idle.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Maximum number of records that one ring gives up before the next ring has its turn.
const TURN_RECORDS: usize = 256;

/// Collected lines are written when they reach this size.
const WRITE_BYTES: usize = 64 << 10;

/// Maximum time for the last lines at the end.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct AccessLog {
    signals: Arc<LogSignals>,
    thread: Thread,
    ended: Receiver<()>,
    counters: Arc<RecordCounters>,
}

/// Tells the thread of the log to reopen its file.
#[derive(Clone, Debug)]
pub(crate) struct Reopener {
    signals: Arc<LogSignals>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct LogSignals {
    reopen: AtomicBool,
    stop: AtomicBool,
}

/// A target that is open, before there are records.
pub(crate) struct OpenTarget(Target);

struct Writer {
    target: Target,
    rings: Vec<AccessRecords>,
    counters: Arc<RecordCounters>,
    lines: Vec<u8>,
    losses: Losses,
}

/// Lost records, which the log reports once a minute.
#[derive(Default)]
struct Losses {
    write_failed: Repeated,
    full: Repeated,
    /// The number of records that were lost in full rings, and the number that the log has already reported.
    queue_full: u64,
    told: u64,
}

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
            // Without a receiver, the tracker has not waited for the last lines.
            let _ = end.send(());
        })?;
        Ok(AccessLog { signals, thread: thread.thread().clone(), ended, counters })
    }
}

impl AccessLog {
    pub(crate) fn counters(&self) -> Arc<RecordCounters> {
        Arc::clone(&self.counters)
    }

    pub(crate) fn reopener(&self) -> Reopener {
        Reopener { signals: Arc::clone(&self.signals), thread: self.thread.clone() }
    }

    /// Writes the recorded lines, and ends. A target that hangs loses the rest.
    pub(crate) fn stop(self) {
        self.signals.stop.store(true, Ordering::Release);
        self.thread.unpark();
        let _in_time_or_not = self.ended.recv_timeout(FLUSH_TIME_MAX);
    }
}

impl Reopener {
    /// Makes the log reopen its file soon.
    pub(crate) fn reopen(&self) {
        self.signals.reopen.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Writer {
    fn run(&mut self, signals: &LogSignals) {
        let mut pause = PAUSE_MIN;
        loop {
            // Every record from before the stop is now in its ring.
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

    /// Writes all records that were in the rings, and returns their number. If the rings fill as fast as they are
    /// emptied, a round ends after as many records as all rings can hold.
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
        // A full ring has just been emptied, so this comes after every loss.
        self.tell_losses();
    }

    /// Counts and reports the records that the workers have lost.
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
