//! The order in which a poll round serves connections.
//!
//! Connections with little recent traffic come first. Busy connections share the rest of the round, and those without a
//! turn come first in the next. So a client with one request does not wait behind thousands of connections that never
//! pause. If the round has room for all, it serves all.

use rustix::event::epoll::{Event, EventFlags};
use shoal_base::transport::stream::{Handle, StreamService};

use super::Direction;
use super::io::{EVENTS_MAX, StreamIo, Token};

/// The recent bytes from which on a connection is busy. A few announces stay below.
const BUSY_BYTES_MIN: u32 = 4 * 1024;

/// The time in which the recent bytes of a connection halve, in milliseconds.
const HALF_LIFE_MS: u64 = 64;

/// The bytes that a poll round moves before busy connections wait for the next round: some hundred announces, which take
/// one to two milliseconds.
const ROUND_BYTES_MAX: u64 = 256 * 1024;

/// The bytes that a poll round moves before all connections wait for the next round. The connections that have had so much
/// of it are busy in that one.
const QUIET_BYTES_MAX: u64 = EVENTS_MAX as u64 * BUSY_BYTES_MIN as u64;

/// The bytes that a connection has received and sent recently.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    bytes: u32,
    /// When `bytes` was recorded, in half-lives.
    at: u32,
}

impl Traffic {
    fn add(&mut self, bytes: u64, now_ms: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        *self = Self { bytes: self.recent(now_ms).saturating_add(bytes), at: half_lives(now_ms) };
    }

    fn is_busy(self, now_ms: u64) -> bool {
        self.bytes >= BUSY_BYTES_MIN && self.recent(now_ms) >= BUSY_BYTES_MIN
    }

    fn recent(self, now_ms: u64) -> u32 {
        self.bytes.checked_shr(half_lives(now_ms).saturating_sub(self.at)).unwrap_or(0)
    }
}

fn half_lives(now_ms: u64) -> u32 {
    u32::try_from(now_ms / HALF_LIFE_MS).unwrap_or(u32::MAX)
}

impl<S: StreamService> StreamIo<S> {
    /// Returns whether a connection waits until those with little traffic are served, in a round that began with this
    /// number of bytes.
    pub(super) fn waits(&mut self, handle: Handle, began_bytes: u64, now_ms: u64) -> bool {
        self.moved_bytes() - began_bytes >= QUIET_BYTES_MAX
            || self.table.get_mut(handle).is_some_and(|connection| connection.traffic.is_busy(now_ms))
    }

    /// Serves a connection, and records its traffic.
    pub(super) fn take_turn(&mut self, handle: Handle, flags: EventFlags, now_ms: u64, service: &mut S) {
        let before = self.moved_bytes();
        self.handle_event(handle, flags, now_ms, service);
        let moved = self.moved_bytes() - before;
        if let Some(connection) = self.table.get_mut(handle) {
            connection.traffic.add(moved, now_ms);
        }
    }

    /// Serves busy connections, of which there is an event each, until the round that began with this number of bytes is
    /// full. Returns whether all were served.
    pub(super) fn serve_busy(
        &mut self,
        events: &[Event],
        began_bytes: u64,
        now_ms: u64,
        service: &mut S,
    ) -> bool {
        // The kernel reports the connections in the same order each time.
        let first = self.busy_turns % events.len().max(1);
        let (later, next) = events.split_at(first);
        for event in next.iter().chain(later) {
            if self.moved_bytes() - began_bytes >= ROUND_BYTES_MAX {
                return false;
            }
            self.busy_turns = self.busy_turns.wrapping_add(1);
            if let Token::Connection(handle) = Token::decode(event.data) {
                self.take_turn(handle, event.flags, now_ms, service);
            }
        }
        true
    }

    /// Returns the number of bytes that all connections have received and sent.
    pub(super) fn moved_bytes(&self) -> u64 {
        let bytes = &self.table.counters().bytes;
        bytes.of(Direction::In).read() + bytes.of(Direction::Out).read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_forgotten() {
        let (mut traffic, busy) = (Traffic::default(), u64::from(BUSY_BYTES_MIN));
        traffic.add(busy - 1, 10);
        assert!(!traffic.is_busy(10));
        traffic.add(1, 20);
        assert!(traffic.is_busy(20) && !traffic.is_busy(20 + HALF_LIFE_MS));
        traffic.add(u64::MAX, 1000);
        assert!(traffic.is_busy(1000 + 19 * HALF_LIFE_MS) && !traffic.is_busy(1000 + 32 * HALF_LIFE_MS));
        assert!(!traffic.is_busy(u64::MAX));
    }
}
