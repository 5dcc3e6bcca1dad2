//! The order in which a poll round serves connections.
//!
//! Quiet connections come first. Busy connections, which have moved more bytes lately, have a share of the round for
//! themselves, and the one whose last turn was longest ago comes first. So a client with one request does not wait behind
//! thousands of connections that never pause, and no connection waits without an end. A round that has room for all serves
//! all.
//!
//! The order holds among the events that the kernel reports at once. Bytes stand for the time that a turn takes, so a turn
//! counts as some bytes at least. A handshake with a slow key takes longer than its bytes tell.

use std::cmp::Reverse;

use rustix::event::epoll::{Event, EventFlags};
use shoal_base::transport::stream::{Handle, StreamService};

use super::io::{StreamIo, Token};
use super::{Direction, INPUT_BYTES_MAX};

/// The level from which on a connection is busy, in bytes. A TLS handshake with certificates and an announce stay below.
const BUSY_BYTES_MIN: u32 = 8 * 1024;

/// The highest level, in bytes. A connection at this level is quiet again after two seconds.
const LEVEL_BYTES_MAX: u32 = 64 * 1024;

/// The bytes by which a level falls in a millisecond: a connection with forty announces a second stays quiet.
const LEAK_BYTES: u32 = 32;

/// The bytes that a turn counts as at least.
const TURN_BYTES_MIN: u64 = 512;

/// The bytes of a poll round after which a turn of a quiet connection is [short](SHORT_INPUT_BYTES_MAX), and an accepted
/// connection waits for its first turn. Also the share of the busy connections. They take half a millisecond.
pub(super) const SHARE_BYTES_MAX: u64 = 64 * 1024;

/// The bytes of a poll round after which quiet connections wait for the next round.
const QUIET_BYTES_MAX: u64 = 16 * SHARE_BYTES_MAX;

/// The bytes that a short turn receives at most.
const SHORT_INPUT_BYTES_MAX: usize = 4 * 1024;

/// The number of busy connections from which on their turns are short.
const CROWD_MIN: usize = 16;

/// The bytes that a connection has moved lately: a bucket that leaks, except while the connection waits for its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    level_bytes: u32,
    /// When `level_bytes` was right, in milliseconds modulo 2³².
    at_ms: u32,
    /// The number of its last turn, modulo 2³².
    turn: u32,
}

/// The turns of all connections of a worker.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The number of turns, modulo 2³².
    count: u32,
    /// The bytes of the present poll round.
    pub(super) round_bytes: u64,
    /// The bytes that the present turn receives at most.
    pub(super) input_bytes_max: usize,
}

impl Traffic {
    fn level_bytes(self, now_ms: u64) -> u32 {
        let leaked_bytes = low_half(now_ms).wrapping_sub(self.at_ms).saturating_mul(LEAK_BYTES);
        self.level_bytes.saturating_sub(leaked_bytes)
    }

    fn add(&mut self, bytes: u64, now_ms: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.level_bytes = self.level_bytes(now_ms).saturating_add(bytes).min(LEVEL_BYTES_MAX);
        self.at_ms = low_half(now_ms);
    }

    /// Returns whether the connection is busy. If so, its level does not fall before it has had a turn.
    fn stays_busy(&mut self, now_ms: u64) -> bool {
        let is_busy = self.level_bytes(now_ms) >= BUSY_BYTES_MIN;
        if is_busy {
            self.at_ms = low_half(now_ms);
        }
        is_busy
    }
}

fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

impl<S: StreamService> StreamIo<S> {
    /// Returns whether a connection waits until the quiet ones are served.
    pub(super) fn waits(&mut self, handle: Handle, flags: EventFlags, now_ms: u64) -> bool {
        let Some(connection) = self.table.get_mut(handle) else { return false };
        // One that has failed costs nothing, and holds memory.
        let is_busy = connection.traffic.stays_busy(now_ms) && !flags.contains(EventFlags::ERR);
        is_busy || self.is_full()
    }

    /// Returns whether even quiet connections wait for the next round.
    pub(super) const fn is_full(&self) -> bool {
        self.turns.round_bytes >= QUIET_BYTES_MAX
    }

    /// Serves a quiet connection.
    pub(super) fn take_turn(&mut self, handle: Handle, flags: EventFlags, now_ms: u64, service: &mut S) {
        let is_short = self.turns.round_bytes >= SHARE_BYTES_MAX;
        self.take_turn_of(is_short, handle, flags, now_ms, service);
    }

    /// Serves busy connections, of which there is an event each, until they have used their share of the round.
    pub(super) fn serve_busy(&mut self, events: &mut [Event], now_ms: u64, service: &mut S) {
        let (count, table) = (self.turns.count, &mut self.table);
        events.sort_unstable_by_key(|event| {
            let connection = connection_of(event).and_then(|handle| table.get_mut(handle));
            Reverse(connection.map_or(0, |connection| count.wrapping_sub(connection.traffic.turn)))
        });
        let (full_bytes, is_short) = (self.turns.round_bytes + SHARE_BYTES_MAX, events.len() >= CROWD_MIN);
        for event in events {
            if self.turns.round_bytes >= full_bytes {
                break;
            }
            if let Some(handle) = connection_of(event) {
                self.take_turn_of(is_short, handle, event.flags, now_ms, service);
            }
        }
    }

    fn take_turn_of(
        &mut self,
        is_short: bool,
        handle: Handle,
        flags: EventFlags,
        now_ms: u64,
        service: &mut S,
    ) {
        self.turns.input_bytes_max = if is_short { SHORT_INPUT_BYTES_MAX } else { INPUT_BYTES_MAX };
        let before = self.moved_bytes();
        self.handle_event(handle, flags, now_ms, service);
        let bytes = (self.moved_bytes() - before).max(TURN_BYTES_MIN);
        self.turns.round_bytes += bytes;
        self.turns.count = self.turns.count.wrapping_add(1);
        if let Some(connection) = self.table.get_mut(handle) {
            connection.traffic.add(bytes, now_ms);
            connection.traffic.turn = self.turns.count;
        }
    }

    /// Returns the number of bytes that all connections have received and sent.
    fn moved_bytes(&self) -> u64 {
        let bytes = &self.table.counters().bytes;
        bytes.of(Direction::In).read() + bytes.of(Direction::Out).read()
    }
}

fn connection_of(event: &Event) -> Option<Handle> {
    match Token::decode(event.data) {
        Token::Connection(handle) => Some(handle),
        Token::Listener(_) | Token::Foreign => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_falls_unless_the_connection_waits() {
        // The clock passes the end of its lower half.
        let now_ms = 2 * (u64::from(u32::MAX) + 1) - 5;
        let mut traffic = Traffic::default();
        traffic.add(u64::from(BUSY_BYTES_MIN) - 1, now_ms);
        assert!(!traffic.stays_busy(now_ms));
        traffic.add(1 + u64::from(LEAK_BYTES) * 10, now_ms);
        // It waits for as long as it is looked at in time.
        assert!((0..100).all(|look| traffic.stays_busy(now_ms + 10 * look)));
        assert!(!{ traffic }.stays_busy(now_ms + 990 + 11));
        traffic.add(u64::MAX, now_ms + 1000);
        assert!({ traffic }.stays_busy(now_ms + 2700) && !{ traffic }.stays_busy(now_ms + 2900));
    }
}
