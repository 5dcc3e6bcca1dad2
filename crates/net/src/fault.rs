//! The meaning of errors of receiving and sending: network errors are counted, errors of this host end the worker.

use std::io;

use rustix::io::Errno;

use crate::{FamilyCounters, Unread, Unsent};

/// Counts a failed receive. Fails if `errno` is a fault in this program or host that would only repeat.
pub(crate) fn count_receive(errno: Errno, counters: &FamilyCounters) -> io::Result<()> {
    match errno {
        Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP => Err(errno.into()),
        // Nothing was lost: the datagram went elsewhere, or a signal came first.
        Errno::AGAIN | Errno::INTR | Errno::CANCELED => Ok(()),
        _ => {
            counters.unread.of(Unread::Failed).increment();
            Ok(())
        }
    }
}

/// Counts `replies` that were dropped because sending failed with `errno`.
pub(crate) fn count_send(errno: Errno, replies: usize, counters: &FamilyCounters) {
    let reason = match errno {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Unsent::Full,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN | Errno::CONNREFUSED => {
            Unsent::Unreachable
        }
        _ => Unsent::Failed,
    };
    counters.unsent.of(reason).add(replies as u64);
}

/// Returns the error of the system call that has just failed through `libc`.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).expect("an error of the system has a number")
}
