//! Heartbeats of threads, without a lock: workers answer questions, and threads that read files say since when they
//! have been busy.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shoal_engine::pace::Pace;

/// The heartbeat of one worker.
///
/// A thread that wants to know whether the worker responds calls [`Heartbeat::ask`] and waits until
/// [`Heartbeat::answered`] reaches the returned number. The worker answers between its poll rounds. So an answer proves
/// that the loop that serves requests is running, and not merely that the thread exists.
#[derive(Debug, Default)]
#[repr(align(128))] // As `Counters`: workers do not slow each other down by their beats.
pub struct Heartbeat {
    asked: AtomicU64,
    answered: AtomicU64,
    beat_ms: AtomicU64,
    pace: AtomicU32,
    overload: AtomicU32,
    busy: AtomicU32,
}

impl Heartbeat {
    /// Asks the worker to respond, and returns the number to wait for.
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the highest number that was answered.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Records the pace of the worker.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.store(pace.thousandths(), Ordering::Relaxed);
        self.overload.store(pace.overload() as u32, Ordering::Relaxed);
    }

    /// Returns how far the worker raises intervals, in thousandths.
    pub fn pace(&self) -> u32 {
        self.pace.load(Ordering::Relaxed)
    }

    /// Returns how overloaded the worker is, as the number of a stage of [`Overload`](shoal_engine::pace::Overload).
    pub fn overload(&self) -> u32 {
        self.overload.load(Ordering::Relaxed)
    }

    /// Records the part of the last second that the worker's thread ran, in thousandths.
    pub fn set_busy(&self, thousandths: u32) {
        self.busy.store(thousandths, Ordering::Relaxed);
    }

    /// Returns the part of the last second that the worker's thread ran, in thousandths.
    pub fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Returns when the worker last finished a poll round, on the monotonic clock.
    pub fn beat_ms(&self) -> u64 {
        self.beat_ms.load(Ordering::Relaxed)
    }

    /// Answers all questions so far. The worker calls it once per poll round.
    pub fn beat(&self, now_ms: u64) {
        self.beat_ms.store(now_ms, Ordering::Relaxed);
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The heartbeat of a thread that reads files of the operator. It is busy until it waits again, and a hanging file
/// system keeps it busy for ever.
#[derive(Debug, Default)]
pub struct ReaderHeartbeat {
    /// Since when it has been busy, on the monotonic clock, or 0.
    busy_since_ms: AtomicU64,
}

impl ReaderHeartbeat {
    /// The time after which a busy reader is silent. A directory of a million `.torrent` files may take half of it.
    const SILENT_AFTER_MS: u64 = 60_000;

    /// Runs a piece of work of the thread.
    pub(crate) fn during<T>(&self, now_ms: u64, work: impl FnOnce() -> T) -> T {
        self.busy_since_ms.store(now_ms.max(1), Ordering::Relaxed);
        let done = work();
        self.busy_since_ms.store(0, Ordering::Relaxed);
        done
    }

    /// Returns whether the thread has been busy for so long that it probably hangs.
    pub fn is_silent(&self, now_ms: u64) -> bool {
        let since_ms = self.busy_since_ms.load(Ordering::Relaxed);
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
        assert!(heartbeat.answered() < question);
        heartbeat.beat(2);
        assert!(heartbeat.answered() >= question);
        assert_eq!(heartbeat.beat_ms(), 2);
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
