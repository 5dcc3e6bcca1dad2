//! The order in which a poll round serves connections.
//!
//! Quiet connections come first. Busy connections, which have moved more bytes lately, have a share of the round for
//! themselves, and take turns: each waits in a queue, and is not in the epoll set before its turn. So a client with one
//! request does not wait behind thousands of connections that never pause, no connection waits without an end, and a
//! round looks at no connection that has waited before and does not have its turn. Messages for a connection that waits
//! leave after its turn, in one write. A round that has room for all serves all.
//!
//! Bytes stand for the time that a turn takes, so a turn counts as some bytes at least. A handshake with a slow key takes
//! longer than its bytes tell.

use std::collections::VecDeque;
use std::mem;

use rustix::event::epoll::{self, EventFlags};
use shoal_base::transport::stream::{Handle, StreamService};

use super::io::StreamIo;
use super::{Direction, POLL_EVENTS_MAX};

/// The level from which on a connection is busy, in bytes. A TLS handshake with certificates and an announce stay below.
const BUSY_BYTES_MIN: u32 = 8 * 1024;

/// The highest level, in bytes. A connection at this level is quiet again after two seconds.
const LEVEL_BYTES_MAX: u32 = 64 * 1024;

/// The bytes by which a level falls in a millisecond: a connection with forty announces a second stays quiet.
const LEAK_BYTES: u32 = 32;

/// The bytes that a turn counts as at least.
const TURN_BYTES_MIN: u64 = 512;

/// The share of the busy connections in a poll round, in bytes, which take half a millisecond. Also the share of accepted
/// connections, after which others wait for their first turns.
pub(super) const SHARE_BYTES_MAX: u64 = 64 * 1024;

/// The bytes of a poll round after which quiet connections wait for the next round.
const QUIET_BYTES_MAX: u64 = 16 * SHARE_BYTES_MAX;

/// The bytes that a connection has moved lately, without a backlog of other clients' messages: a bucket that leaks,
/// except while the connection waits for its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    level_bytes: u32,
    /// When `level_bytes` was right, in milliseconds modulo 2³².
    at_ms: u32,
}

/// The turns of all connections of a worker.
#[derive(Debug)]
pub(super) struct Turns {
    /// The bytes of the present poll round.
    pub(super) round_bytes: u64,
    /// The events of busy connections that wait for their turns. Those of closed connections stay for as long.
    waiting: VecDeque<(Handle, EventFlags)>,
    /// The number of its last events that are of the present poll round.
    new: usize,
}

impl Default for Turns {
    fn default() -> Self {
        let waiting = VecDeque::with_capacity(POLL_EVENTS_MAX);
        Self { round_bytes: 0, waiting, new: 0 }
    }
}

impl Turns {
    /// Begins a poll round. Returns the number of connections that have waited since an earlier one.
    pub(super) fn begin_round(&mut self) -> usize {
        self.round_bytes = 0;
        self.waiting.len()
    }
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

    fn is_busy(self, now_ms: u64) -> bool {
        self.level_bytes(now_ms) >= BUSY_BYTES_MIN
    }

    /// Ends a wait for a turn, in which the level has not fallen.
    fn end_wait(&mut self, now_ms: u64) {
        self.at_ms = low_half(now_ms);
    }
}

fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

impl<S: StreamService> StreamIo<S> {
    /// Serves a connection for an event, or lets it wait for its turn if it is busy.
    pub(super) fn serve_or_queue(&mut self, handle: Handle, flags: EventFlags, now_ms: u64, service: &mut S) {
        let Some(connection) = self.table.get_mut(handle) else { return };
        if connection.traffic.is_busy(now_ms) {
            if !mem::replace(&mut connection.waits, true) {
                self.turns.waiting.push_back((handle, flags));
                self.turns.new += 1;
            }
        } else if !self.is_full() {
            self.take_turn(handle, flags, now_ms, service);
        }
    }

    /// Returns whether quiet connections wait for the next round.
    pub(super) const fn is_full(&self) -> bool {
        self.turns.round_bytes >= QUIET_BYTES_MAX
    }

    /// Serves waiting connections until they have used their share of the round.
    pub(super) fn serve_waiting(&mut self, now_ms: u64, service: &mut S) {
        let full_bytes = self.turns.round_bytes + SHARE_BYTES_MAX;
        while self.turns.round_bytes < full_bytes
            && let Some((handle, flags)) = self.turns.waiting.pop_front()
        {
            if self.table.get_mut(handle).is_some_and(|connection| connection.waits) {
                self.take_turn(handle, flags, now_ms, service);
            }
        }
        let left = self.turns.waiting.len();
        for at in left - mem::take(&mut self.turns.new).min(left)..left {
            self.leave_epoll_set(self.turns.waiting[at].0);
        }
    }

    /// Takes a connection that waits out of the epoll set, until its turn. A set that watches a socket for nothing still
    /// reports its failure in each round, although its peer may have sent much before.
    fn leave_epoll_set(&mut self, handle: Handle) {
        if let Some(connection) = self.table.get_mut(handle).filter(|connection| connection.waits) {
            // It fails if the socket is not in the set, which has the same effect.
            let _ = epoll::delete(&self.epoll, &connection.socket);
            connection.interest = None;
        }
    }

    /// Frees memory of the queue that was retained for reuse, or for connections that have been closed.
    pub(super) fn trim_turns(&mut self) {
        let Self { turns: Turns { waiting, .. }, table, .. } = self;
        if waiting.len() > 2 * table.len() {
            waiting.retain(|(handle, _)| table.get_mut(*handle).is_some());
        }
        waiting.shrink_to(POLL_EVENTS_MAX.max(2 * waiting.len()));
    }

    /// Serves a connection for an event, and counts what it moves.
    pub(super) fn take_turn(&mut self, handle: Handle, flags: EventFlags, now_ms: u64, service: &mut S) {
        let (received_before, sent_before) = self.moved_bytes();
        let Some(connection) = self.table.get_mut(handle) else { return };
        if mem::replace(&mut connection.waits, false) {
            connection.traffic.end_wait(now_ms);
            connection.end_backlog(handle, service);
        }
        let has_backlog = connection.has_backlog;
        self.handle_event(handle, flags, now_ms, service);
        let (received, sent) = self.moved_bytes();
        let (received_bytes, sent_bytes) = (received - received_before, sent - sent_before);
        self.turns.round_bytes += (received_bytes + sent_bytes).max(TURN_BYTES_MIN);
        if let Some(connection) = self.table.get_mut(handle) {
            // A backlog comes from other clients, and must not make this one busy.
            let own_bytes = received_bytes + if has_backlog { 0 } else { sent_bytes };
            connection.traffic.add(own_bytes.max(TURN_BYTES_MIN), now_ms);
        }
    }

    /// Returns the numbers of bytes that all connections have received and sent.
    fn moved_bytes(&self) -> (u64, u64) {
        let bytes = &self.table.counters().bytes;
        (bytes.of(Direction::In).read(), bytes.of(Direction::Out).read())
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
        assert!(!traffic.is_busy(now_ms));
        traffic.add(1 + u64::from(LEAK_BYTES) * 10, now_ms);
        assert!(traffic.is_busy(now_ms + 10) && !traffic.is_busy(now_ms + 11));
        traffic.end_wait(now_ms + 1000);
        assert!(traffic.is_busy(now_ms + 1010) && !traffic.is_busy(now_ms + 1011));
        traffic.add(u64::MAX, now_ms + 1000);
        assert!(traffic.is_busy(now_ms + 2700) && !traffic.is_busy(now_ms + 2900));
    }
}
