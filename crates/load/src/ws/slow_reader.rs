//! Slow readers: connections that are never read during a run, and are read at its end to find out which of them the
//! tracker has closed.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::client::{Client, Role};
use crate::driver::Run;
use crate::stream::Pool;

/// One wait for the data of slow readers, when they are read at last.
const SLOW_READER_WAIT_NS: u64 = 20_000_000;

/// The longest time for reading all slow readers.
const SLOW_READERS_NS_MAX: u64 = 3_000_000_000;

/// The silence after which no more slow readers are expected to be closed. A tracker may wait before it closes one.
const SLOW_READERS_QUIET_NS: u64 = 1_000_000_000;

impl Client {
    /// Reads what the slow readers have left unread. If the stream ends after it, the tracker has closed the
    /// connection. Returns how many it closed. The others stay slow readers.
    pub(super) fn count_closed_slow_readers(&mut self, run: &Run) -> u64 {
        let mut open: Vec<usize> = self.open_slots(Role::SlowReader).collect();
        let Self { pool: Pool { connections, buffer, .. }, .. } = self;
        let (opened, began_ns) = (open.len(), run.now_ns());
        let mut last_data_ns = began_ns;
        while !open.is_empty() {
            let sockets = open.iter().filter_map(|slot| connections[*slot].socket());
            let mut polled: Vec<_> =
                sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
            let wait = Timespec::try_from(Duration::from_nanos(SLOW_READER_WAIT_NS)).unwrap_or_default();
            if poll(&mut polled, Some(&wait)).is_ok_and(|ready| ready > 0) {
                last_data_ns = run.now_ns();
            }
            let mut polled = polled.iter();
            open.retain(|_| {
                let polled = polled.next().expect("each has a socket");
                polled.revents().is_empty() || !is_at_end(polled, buffer)
            });
            let now_ns = run.now_ns();
            if now_ns - last_data_ns >= SLOW_READERS_QUIET_NS || now_ns - began_ns >= SLOW_READERS_NS_MAX {
                break;
            }
        }
        (opened - open.len()) as u64
    }
}

/// Reads from a socket until no more data is there. Returns whether the stream has ended.
fn is_at_end(socket: &impl AsFd, buffer: &mut [u8]) -> bool {
    loop {
        match rustix::io::read(socket, &mut *buffer) {
            Ok(0) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
}
