//! Ends the wait of a thread from another one.
//!
//! No wake is lost if a thread waits, then clears its wakes, and only then looks for work: a wake after the clear ends
//! the next wait. The tests check all interleavings of this order, with a model of the event descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Wakes one thread, such as a worker; cheap to clone. A wake is remembered until the thread waits again, or until the
/// worker's next poll round. Several wakes before that count as one.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

/// A counter that a worker can wait for, as `eventfd(2)` provides it.
trait Event {
    /// Adds one.
    fn add(&self);

    /// Sets the counter to zero.
    fn clear(&self);
}

impl Event for OwnedFd {
    fn add(&self) {
        // This write fails only if the counter is at its maximum. Then the thread is already being woken.
        let _ = rustix::io::write(self, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // It fails if the counter is zero.
        let _ = rustix::io::read(self, &mut [0; size_of::<u64>()]);
    }
}

impl Waker {
    /// Creates the waker of a thread that is no worker, and waits with [`wait`](Self::wait). Fails if the process has
    /// no free descriptor.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    /// Ends the wait of the thread.
    pub fn wake(&self) {
        self.event.add();
    }

    /// Waits for a wake, at most for `timeout`, and consumes all wakes so far. The thread then has to look for work.
    pub fn wait(&self, timeout: Duration) {
        // A thread that cannot wait looks for work.
        let _ = self.wait_beside(None, timeout);
        self.clear();
    }

    /// Waits for a wake, or for another descriptor, at most for `timeout`. Consumes neither.
    pub(crate) fn wait_beside(&self, other: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        let descriptors = [Some(self.as_fd()), other].into_iter().flatten();
        let mut descriptors: ArrayVec<_, 2> =
            descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
        // A timeout that does not fit is one of many years.
        match poll(&mut descriptors, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Consumes all wakes so far, on the worker's side. Must be called before the worker looks for work.
    pub(crate) fn clear(&self) {
        self.event.clear();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::Event;

    /// A model of an event descriptor and of a wait for it.
    #[derive(Default)]
    struct Model {
        count: Mutex<u64>,
        readable: Condvar,
    }

    impl Event for Model {
        fn add(&self) {
            *self.count.lock().unwrap() += 1;
            self.readable.notify_all();
        }

        fn clear(&self) {
            *self.count.lock().unwrap() = 0;
        }
    }

    impl Model {
        /// Waits as `poll` and `epoll_wait` do: until the descriptor is readable, which it stays.
        fn wait(&self) {
            let mut count = self.count.lock().unwrap();
            while *count == 0 {
                count = self.readable.wait(count).unwrap();
            }
        }
    }

    const SENDERS: usize = 2;

    /// Runs a worker against senders that each put a message into its mailbox, and wake it if that was empty. `poll` is
    /// one poll round of the worker: it runs once while they do, and afterwards as long as the event is readable.
    fn check(poll: fn(&Model, &Mutex<usize>) -> usize) {
        loom::model(move || {
            let (event, mailbox) = (Arc::new(Model::default()), Arc::new(Mutex::new(0)));
            let sender = |_| {
                let (event, mailbox) = (Arc::clone(&event), Arc::clone(&mailbox));
                thread::spawn(move || {
                    let mut messages = mailbox.lock().unwrap();
                    let was_empty = *messages == 0;
                    *messages += 1;
                    drop(messages);
                    if was_empty {
                        event.add();
                    }
                })
            };
            let senders: Vec<_> = (0..SENDERS).map(sender).collect();
            let mut received = poll(&event, &mailbox);
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            while *event.count.lock().unwrap() > 0 {
                received += poll(&event, &mailbox);
            }
            assert_eq!(received, SENDERS, "a wake was lost");
        });
    }

    fn take(mailbox: &Mutex<usize>) -> usize {
        std::mem::take(&mut *mailbox.lock().unwrap())
    }

    #[test]
    fn no_wake_is_lost() {
        check(|event, mailbox| {
            event.wait();
            event.clear();
            take(mailbox)
        });
    }

    /// The model finds the error that the order prevents.
    #[test]
    #[should_panic(expected = "a wake was lost")]
    fn a_worker_that_clears_after_it_has_looked_loses_wakes() {
        check(|event, mailbox| {
            event.wait();
            let received = take(mailbox);
            event.clear();
            received
        });
    }
}
