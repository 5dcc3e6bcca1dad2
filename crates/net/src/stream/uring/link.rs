//! What this back end keeps of a connection, and what remains of one that was removed.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use super::super::conduct::Leave;

/// What this back end keeps of a connection.
#[derive(Debug)]
pub(in super::super) struct Link {
    pub(super) socket: OwnedFd,
    /// Whether a receive is under way, or queued, or to follow what is being sent.
    pub(super) receiving: bool,
    /// The letter that is being sent.
    pub(super) sending: Option<u32>,
    /// The letter that is to be sent after it, and is still being written.
    pub(super) waiting: Option<u32>,
}

/// What remains of a connection that was removed.
#[derive(Debug)]
pub(super) struct Parting {
    pub(super) link: Link,
    pub(super) leave: Leave,
}

impl From<OwnedFd> for Link {
    fn from(socket: OwnedFd) -> Self {
        Self { socket, receiving: false, sending: None, waiting: None }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link {
    pub(super) const fn is_under_way(&self) -> bool {
        self.receiving || self.sending.is_some()
    }

    /// Lets go of the descriptor, which the kernel has closed.
    pub(super) fn forget(self) {
        let _ = self.socket.into_raw_fd();
    }
}
