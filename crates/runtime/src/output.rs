//! Standard output of the commands, and whether colours are wanted.

use std::io::{ErrorKind, Write, stdout};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;

/// Writes to standard output. Returns whether its reader is gone, which is no error: `head` leaves after some lines.
pub fn print(text: &str) -> Result<bool, Failure> {
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("cannot write to standard output").map_err(Failure::from),
    }
}

/// Returns whether the reader of standard output is gone, without writing anything.
pub fn is_closed() -> bool {
    let output = stdout();
    // Errors are always reported.
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|number| number > 0)
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Returns whether a terminal should get colours: `NO_COLOR`, if set and not empty, turns them off (no-color.org).
pub fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
