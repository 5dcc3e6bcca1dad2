//! The deadline of a case. It bounds a case however often the tracker sends something.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::case::{Checked, Unmet};

/// When a case has to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Returns the deadline of what begins now and may last for `limit`.
    pub(crate) fn after(limit: Duration) -> Self {
        Self { at: now() + limit, limit }
    }

    /// Returns `patience`, or the time that is left where that is less.
    ///
    /// # Errors
    /// Fails the case if no time is left.
    pub(crate) fn bound(&self, patience: Duration) -> Checked<Duration> {
        let left = self.at.saturating_duration_since(now());
        if left.is_zero() {
            return Err(Unmet::Fail {
                expected: format!("a case that ends within {} s", self.limit.as_secs_f32()),
                seen: "the time is up, and the tracker has kept the case waiting".to_owned(),
            });
        }
        Ok(patience.min(left))
    }

    /// Returns the earlier one of this deadline and the moment `patience` from now.
    pub(crate) fn within(&self, patience: Duration) -> Self {
        let earlier = Self::after(patience);
        if earlier.at < self.at { earlier } else { *self }
    }

    /// Returns the time that is left for a system call. Zero would be a wait without end.
    fn left(&self) -> io::Result<Duration> {
        let left = self.at.saturating_duration_since(now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
    }
}

/// A socket whose reads and writes, all together, end by a deadline.
pub(crate) struct Timed<'s> {
    pub(crate) socket: &'s TcpStream,
    pub(crate) deadline: Deadline,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.deadline.left()?))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed<'_> {
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
