//! Signs of life of the workers, asked for by one side and given by the other, without a lock between them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The pulse of one worker.
///
/// Whoever wants to know asks with [`Pulse::ask`] and waits until [`Pulse::answered`] has reached the number. The
/// worker answers between its turns, so that an answer tells that the loop that serves requests goes round, not
/// merely that the thread exists.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    asked: AtomicU64,
    answered: AtomicU64,
    beat_ms: AtomicU64,
}

impl Pulse {
    /// Asks for a sign of life: the number to wait for.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The highest number that was answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// When the worker last passed by, on the monotonic clock.
    pub(crate) fn beat_ms(&self) -> u64 {
        self.beat_ms.load(Ordering::Relaxed)
    }

    /// Gives a sign of life. For the worker, once a turn.
    pub(crate) fn beat(&self, now_ms: u64) {
        self.beat_ms.store(now_ms, Ordering::Relaxed);
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Pulse;

    #[test]
    fn only_a_beat_after_the_question_answers_it() {
        let pulse = Pulse::default();
        pulse.beat(1);
        let question = pulse.ask();
        assert!(pulse.answered() < question);
        pulse.beat(2);
        assert!(pulse.answered() >= question);
        assert_eq!(pulse.beat_ms(), 2);
    }
}
