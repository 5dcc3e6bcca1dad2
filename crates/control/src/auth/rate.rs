//! How often a client may ask: a token bucket for each source or name, in a table of a fixed size.
//!
//! A bucket is one number, the time at which it is full again. A full bucket equals an unused one, so a full table
//! drops these.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of distinguished clients.
const CLIENTS_MAX: usize = 1024;

/// The rates of all clients.
#[derive(Debug)]
pub(crate) struct Rates<K> {
    /// Time after which one more request is allowed, and the number of requests that may come at once.
    interval: Duration,
    burst: u32,
    full_at: HashMap<K, Instant>,
}

impl<K: Eq + Hash> Rates<K> {
    pub(crate) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, full_at: HashMap::new() }
    }

    /// Counts a request. Returns the time to wait if the client has asked too often.
    pub(crate) fn take(&mut self, client: K, now: Instant) -> Result<(), Duration> {
        if self.full_at.len() >= CLIENTS_MAX && !self.full_at.contains_key(&client) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= CLIENTS_MAX {
                // This many clients at once are an attack. New ones wait until some are quiet.
                return Err(self.interval);
            }
        }
        let full_at = self.full_at.entry(client).or_insert(now);
        let next = (*full_at).max(now) + self.interval;
        let over = next.saturating_duration_since(now + self.interval * self.burst);
        if !over.is_zero() {
            return Err(over);
        }
        *full_at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn a_client_has_its_burst_and_then_its_rate() {
        let (mut rates, now) = (Rates::new(INTERVAL, 3), Instant::now());
        for _ in 0..3 {
            assert_eq!(rates.take(1, now), Ok(()));
        }
        assert_eq!(rates.take(1, now), Err(INTERVAL));
        assert_eq!(rates.take(2, now), Ok(()));
        assert_eq!(rates.take(1, now + INTERVAL), Ok(()));
        assert!(rates.take(1, now + INTERVAL).is_err());
    }

    #[test]
    fn the_table_does_not_grow_and_forgets_quiet_clients() {
        let (mut rates, now) = (Rates::new(INTERVAL, 3), Instant::now());
        for client in 0..CLIENTS_MAX {
            assert_eq!(rates.take(client, now), Ok(()));
        }
        assert!(rates.take(CLIENTS_MAX, now).is_err());
        assert_eq!(rates.take(0, now), Ok(()));
        assert_eq!(rates.take(CLIENTS_MAX, now + INTERVAL), Ok(()));
        assert!(rates.full_at.len() <= CLIENTS_MAX);
    }
}
