//! What this back end keeps of a connection, and what remains of one that was removed.

use std::os::fd::{IntoRawFd, OwnedFd};

use super::super::conduct::Leave;
use super::slots::Slot;

/// A connected socket.
#[derive(Debug)]
pub(super) enum Socket {
    /// It has a descriptor of this process.
    Descriptor(OwnedFd),
    /// It is in the ring's table of files, and nowhere else.
    Slot(Slot),
}

/// What this back end keeps of a connection.
#[derive(Debug)]
pub(in super::super) struct Link {
    pub(super) socket: Socket,
    /// Whether a receive is under way, or queued, or to follow what is being sent.
    pub(super) receiving: bool,
    /// The letter that is being sent.
    pub(super) sending: Option<u32>,
    /// The letter that is to be sent after it, and is still being written.
    pub(super) waiting: Option<u32>,
    /// Whether its sending direction is being closed.
    pub(super) ending: bool,
}

/// What remains of a connection that was removed.
#[derive(Debug)]
pub(super) struct Parting {
    pub(super) link: Link,
    /// How it is closed when nothing is under way any more. None: that is queued already.
    pub(super) leave: Option<Leave>,
}

impl From<OwnedFd> for Link {
    fn from(socket: OwnedFd) -> Self {
        let socket = Socket::Descriptor(socket);
        Self { socket, receiving: false, sending: None, waiting: None, ending: false }
    }
}

impl Link {
    pub(super) const fn is_under_way(&self) -> bool {
        self.receiving || self.sending.is_some() || self.ending
    }

    /// Lets go of the socket, which the kernel has closed.
    pub(super) fn forget(self) {
        if let Socket::Descriptor(descriptor) = self.socket {
            let _ = descriptor.into_raw_fd();
        }
    }
}
