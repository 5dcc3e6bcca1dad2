//! Full load: a closed loop at the driver hook of a pair of virtual Ethernet interfaces, around each event.
//!
//! The load pauses between two events. In the pause, all frames of the AF_XDP sockets must be free again, and every request must be
//! answered or be found in a counter of the tracker, of the kernel or of a driver. So each process is checked at most one event
//! before its end.
//!
//! A worker that fails ends its process, and cannot be made to fail from outside. So its restart is that of the process.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use shoal_compare::load::LoadSpec;
use shoal_compare::network::NetworkKind;
use shoal_load::{Mix, Pace, Progress, Report, Session, Stop, Watch};

use crate::chaos::account::{Account, TIMEOUT, WINDOW};
use crate::chaos::counters::Counters;
use crate::chaos::event::EventKind;
use crate::chaos::tracker::{SOURCES, Tracker};

/// How long counters may take to settle after the load.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_POLL: Duration = Duration::from_millis(250);

/// Returns the same load at the driver hook. Most of its requests go through the AF_XDP sockets.
pub fn at_driver(load: LoadSpec) -> LoadSpec {
    LoadSpec {
        mix: Mix { connect: 10, ..load.mix },
        window: WINDOW as usize,
        timeout: TIMEOUT,
        network: NetworkKind::Veth,
        at_driver: true,
        sockets_per_worker: NonZeroUsize::new(SOURCES.into()).unwrap_or(NonZeroUsize::MIN),
        ..load
    }
}

/// The load around an event.
pub(crate) struct FullLoad {
    thread: JoinHandle<(Session, Report)>,
    is_over: Arc<AtomicBool>,
    /// The counters before the load, and those before the event.
    before: Counters,
    last: Counters,
}

impl FullLoad {
    /// Starts the load.
    pub(crate) fn begin(mut session: Session, tracker: &Tracker) -> Result<Self> {
        let before = Counters::read(tracker)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let cancel = Arc::clone(&is_over);
        let run = move || {
            let pace = Pace::Closed { window: WINDOW as usize };
            let mut watch = Watch { cancel: &cancel, progress: &mut |_: &Progress| {} };
            let report = session.run(pace, Stop { after: None, requests: None }, &mut watch);
            (session, report)
        };
        Ok(Self { thread: thread::spawn(run), is_over, last: before.clone(), before })
    }

    /// Reads the counters once more: the event may end the process.
    pub(crate) fn look(&mut self, tracker: &Tracker) -> Result<()> {
        self.last = Counters::read(tracker)?;
        Ok(())
    }

    /// Ends the load, and accounts for it. `until_start` is the time from the event to the start of the next process. Returns the
    /// reason as well if the load or the event had no effect.
    pub(crate) fn end(
        mut self,
        event: EventKind,
        until_start: Option<Duration>,
        tracker: &Tracker,
    ) -> Result<(Session, Account, Option<String>)> {
        self.is_over.store(true, Ordering::Relaxed);
        let (session, report) = self.thread.join().map_err(|_panic| anyhow!("the load has panicked"))?;
        if matches!(event, EventKind::Upgrade | EventKind::Restart | EventKind::Kill) {
            self.before.begin_anew(&self.last);
        }
        let counters = settle(tracker)?;
        let ending = until_start.filter(|_| matches!(event, EventKind::Restart | EventKind::Kill));
        let account = Account::new(event, &report, counters.since(&self.before), &counters, ending);
        let failure = report.failure.map(|reason| format!("the load ended early: {reason}"));
        let failure = failure.or_else(|| account.failure(event));
        Ok((session, account, failure))
    }
}

/// Waits until all frames are free and nothing is counted any more, or for too long. Returns the last counters.
fn settle(tracker: &Tracker) -> Result<Counters> {
    let mut last = Counters::read(tracker)?;
    for _ in 0..SETTLE_MAX.as_millis() / SETTLE_POLL.as_millis() {
        thread::sleep(SETTLE_POLL);
        let next = Counters::read(tracker)?;
        let is_settled = next.are_all_frames_free() && next == last;
        last = next;
        if is_settled {
            break;
        }
    }
    Ok(last)
}
