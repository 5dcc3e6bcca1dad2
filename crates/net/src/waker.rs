//! Ends the wait of a worker from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one worker; cheap to clone. A wake is remembered until the worker's next poll round. Several wakes before that
/// count as one.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    /// Makes the worker's poll round return soon.
    pub fn wake(&self) {
        // This write fails only if the counter is at its maximum. Then the worker is already being woken.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }

    /// Consumes all wakes so far, on the worker's side.
    pub(crate) fn clear(&self) {
        // It fails if there was no wake, which has the same effect.
        let _ = rustix::io::read(&*self.event, &mut [0; size_of::<u64>()]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
