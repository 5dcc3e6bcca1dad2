//! Heartbeats of threads, without a lock: workers answer questions, and threads that read files say since when they
//! have been busy.

use std::sync::atomic::{AtomicU64, Ordering};

use shoal_base::metrics::Gauge;
use shoal_engine::pace::Pace;

/// The heartbeat of one worker.
///
/// A thread that wants to know whether the worker responds calls [`Heartbeat::ask`] and waits until
/// [`answered`](Self::answered) reaches the returned number. The worker answers between its poll rounds. An answer
/// therefore proves that the loop that serves requests is running, and not merely that the thread exists.
#[derive(Debug, Default)]
#[repr(align(128))] // As `Counters`: workers do not slow each other down by their beats.
pub struct Heartbeat {
    asked: AtomicU64,
    /// The highest number that was answered.
    pub answered: Gauge,
    /// When the worker last finished a poll round, on the monotonic clock.
    pub beat_ms: Gauge,
    /// How far the worker raises intervals, in thousandths.
    pub pace: Gauge,
    /// How overloaded the worker is, as the number of a stage of [`Overload`](shoal_engine::pace::Overload).
    pub overload: Gauge,
    /// The part of the last second that the worker's thread ran, in thousandths.
    pub busy: Gauge,
}

impl Heartbeat {
    /// Asks the worker to respond, and returns the number to wait for.
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records the pace of the worker.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.set(pace.thousandths().into());
        self.overload.set(pace.overload() as u64);
    }

    /// Answers all questions so far. The worker calls it once per poll round.
    pub fn beat(&self, now_ms: u64) {
        self.beat_ms.set(now_ms);
        self.answered.set(self.asked.load(Ordering::Relaxed));
    }
}

/// The heartbeat of a thread that reads files of the operator. It is busy until it waits again, and a hanging file
/// system keeps it busy for ever.
#[derive(Debug, Default)]
pub struct ReaderHeartbeat {
    /// Since when it has been busy, on the monotonic clock, or 0.
    busy_since_ms: Gauge,
}

impl ReaderHeartbeat {
    /// The time after which a busy reader is silent. A directory of a million `.torrent` files may take half of it.
    const SILENT_AFTER_MS: u64 = 60_000;

    /// Runs a piece of work of the thread.
    pub(crate) fn during<T>(&self, now_ms: u64, work: impl FnOnce() -> T) -> T {
        self.busy_since_ms.set(now_ms.max(1));
        let done = work();
        self.busy_since_ms.set(0);
        done
    }

    /// Returns whether the thread has been busy for so long that it probably hangs.
    pub fn is_silent(&self, now_ms: u64) -> bool {
        let since_ms = self.busy_since_ms.read();
        since_ms > 0 && now_ms.saturating_sub(since_ms) >= Self::SILENT_AFTER_MS
    }
}

#[cfg(test)]
mod tests {
    use super::{Heartbeat, ReaderHeartbeat};

    #[test]
    fn only_a_beat_after_the_question_answers_it() {
        let heartbeat = Heartbeat::default();
        heartbeat.beat(1);
        let question = heartbeat.ask();
        assert!(heartbeat.answered.read() < question);
        heartbeat.beat(2);
        assert!(heartbeat.answered.read() >= question);
        assert_eq!(heartbeat.beat_ms.read(), 2);
    }

    #[test]
    fn a_reader_that_does_not_return_to_waiting_is_silent() {
        let reader = ReaderHeartbeat::default();
        assert!(!reader.is_silent(u64::MAX));
        reader.during(1000, || {
            assert!(!reader.is_silent(60_999));
            assert!(reader.is_silent(61_000));
        });
        assert!(!reader.is_silent(u64::MAX));
    }
}
