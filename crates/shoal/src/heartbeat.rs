//! Heartbeats of the workers: one side asks and the other answers, without a lock between them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shoal_engine::pace::Pace;

/// The heartbeat of one worker.
///
/// A thread that wants to know whether the worker responds calls [`Heartbeat::ask`] and waits until
/// [`Heartbeat::answered`] reaches the returned number. The worker answers between its poll rounds. An answer
/// therefore proves that the loop that serves requests is running, and not merely that the thread exists.
#[derive(Debug, Default)]
#[repr(align(128))] // As `Counters`: workers do not slow each other down by their beats.
pub(crate) struct Heartbeat {
    asked: AtomicU64,
    answered: AtomicU64,
    beat_ms: AtomicU64,
    pace: AtomicU32,
    overload: AtomicU32,
    busy: AtomicU32,
}

impl Heartbeat {
    /// Asks the worker to respond, and returns the number to wait for.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the highest number that was answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Records the pace of the worker.
    pub(crate) fn set_pace(&self, pace: Pace) {
        self.pace.store(pace.thousandths(), Ordering::Relaxed);
        self.overload.store(pace.overload() as u32, Ordering::Relaxed);
    }

    /// Returns how far the worker raises intervals, in thousandths.
    pub(crate) fn pace(&self) -> u32 {
        self.pace.load(Ordering::Relaxed)
    }

    /// Returns how overloaded the worker is, as the number of a stage of [`Overload`](shoal_engine::pace::Overload).
    pub(crate) fn overload(&self) -> u32 {
        self.overload.load(Ordering::Relaxed)
    }

    /// Records the part of the last second that the worker's thread ran, in thousandths.
    pub(crate) fn set_busy(&self, thousandths: u32) {
        self.busy.store(thousandths, Ordering::Relaxed);
    }

    /// Returns the part of the last second that the worker's thread ran, in thousandths.
    pub(crate) fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Returns when the worker last finished a poll round, on the monotonic clock.
    pub(crate) fn beat_ms(&self) -> u64 {
        self.beat_ms.load(Ordering::Relaxed)
    }

    /// Answers all questions so far. The worker calls it once per poll round.
    pub(crate) fn beat(&self, now_ms: u64) {
        self.beat_ms.store(now_ms, Ordering::Relaxed);
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Heartbeat;

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
}
