//! The deadline of a case. It limits the duration of a case, however often the tracker sends something.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::case::{Checked, Unmet};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { at: now() + limit, limit }
    }

    /// Returns `timeout`, or the remaining time if that is less.
    pub(crate) fn bound(&self, timeout: Duration) -> Checked<Duration> {
        let left = self.at.saturating_duration_since(now());
        if left.is_zero() { Err(self.passed()) } else { Ok(timeout.min(left)) }
    }

    pub(crate) fn passed(&self) -> Unmet {
        Unmet::Fail {
            expected: format!("a case that ends within {} s", self.limit.as_secs_f32()),
            seen: "the deadline has passed, and the tracker has not completed an answer".to_owned(),
        }
    }

    /// Returns the earlier of this deadline and the one that is `timeout` from now.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        let earlier = Self::after(timeout);
        if earlier.at < self.at { earlier } else { *self }
    }

    /// Returns the remaining time as the timeout of a system call, where zero would mean no timeout.
    fn left(&self) -> io::Result<Duration> {
        let left = self.at.saturating_duration_since(now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
    }
}

/// A socket with one deadline for all its reads and writes together.
pub(crate) struct TimedSocket<'s> {
    pub(crate) socket: &'s TcpStream,
    pub(crate) deadline: Deadline,
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.deadline.left()?))?;
        self.socket.read(buffer)
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.deadline.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[expect(clippy::disallowed_methods, reason = "a tracker is tested in real time")]
fn now() -> Instant {
    Instant::now()
}
