//! Warnings that clients or a fault can provoke repeatedly. One of a kind is logged a minute, and the others are
//! counted. Workers log nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two log lines of a kind. A line states how many events were not logged before it.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// The events of a kind.
#[derive(Debug, Default)]
pub struct Repeated {
    logged: Option<Instant>,
    /// The number of events since the last logged one.
    unlogged: u64,
}

impl Repeated {
    /// Records an event. If it is to be logged, returns the number of unlogged ones before it.
    pub fn note(&mut self, now: Instant) -> Option<u64> {
        if self.logged.is_some_and(|logged| now < logged + LOG_EVERY) {
            self.unlogged += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_logged_once_a_minute() {
        let mut events = Repeated::default();
        let start = Instant::now();
        assert_eq!(events.note(start), Some(0));
        for ms in [0, 1, 59_999] {
            assert_eq!(events.note(start + Duration::from_millis(ms)), None);
        }
        assert_eq!(events.note(start + LOG_EVERY), Some(3));
        assert_eq!(events.note(start + 3 * LOG_EVERY), Some(0));
    }
}
