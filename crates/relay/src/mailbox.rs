//! Mailboxes, which carry messages from one worker to another.
//!
//! Each worker has one mailbox, into which all other workers put batches of messages. The lock of a mailbox is held
//! only to swap two buffers, or to copy the messages of one worker in one poll round.
//!
//! An event descriptor wakes a worker whose mailbox was empty. A model checker (loom) searches the interleavings of two
//! senders and a receiver for a lost message or wake-up. A mailbox is bounded, and messages that do not fit are lost:
//! to the client, such a message is a peer that never answered.

use std::sync::Arc;

#[cfg(not(test))]
use parking_lot::Mutex;

#[cfg(test)]
use self::tests::Mutex;
use crate::api::REMOTE_WORKER;
use crate::message::MessageBatch;

/// Default maximum size of the content of a mailbox in bytes. A worker that leaves so much in it is in trouble. More
/// messages are lost; they would arrive too late.
pub const MAILBOX_BYTES_MAX: usize = 8 << 20;

/// Minimum size limit of a batch, for any number of workers: one offer of the maximum size fits.
const BATCH_BYTES_MIN: usize = 32 * 1024;

/// One mailbox for each worker.
#[derive(Debug)]
pub struct Mailboxes {
    /// The mailboxes of the workers, and then the one for other nodes if there is one.
    boxes: Box<[Mailbox]>,
    has_remote: bool,
    bytes_max: usize,
}

/// The messages that wait for one worker. Each mailbox has its own cache lines, so two workers share one only when they
/// write to each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Mailbox(Mutex<MessageBatch>);

/// The result of delivering a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Whether the mailbox was empty, so that its worker must be woken.
    pub(crate) must_wake: bool,
    /// Number of messages that did not fit.
    pub(crate) lost: u64,
}

impl Mailboxes {
    /// Creates empty mailboxes for `workers` workers.
    pub fn new(workers: u16) -> Arc<Self> {
        Self::with_bytes_max(workers, MAILBOX_BYTES_MAX)
    }

    /// Creates empty mailboxes that hold up to `bytes_max` bytes each.
    pub fn with_bytes_max(workers: u16, bytes_max: usize) -> Arc<Self> {
        let boxes = (0..workers).map(|_| Mailbox::default()).collect();
        Arc::new(Self { boxes, has_remote: false, bytes_max })
    }

    /// Creates one more mailbox, for the messages to other nodes. Its owner is [`REMOTE_WORKER`], and its index is the
    /// number of workers.
    pub fn with_remote(workers: u16, bytes_max: usize) -> Arc<Self> {
        let boxes = (0..=workers).map(|_| Mailbox::default()).collect();
        Arc::new(Self { boxes, has_remote: true, bytes_max })
    }

    pub(crate) fn len(&self) -> usize {
        self.boxes.len()
    }

    pub(crate) fn index(&self, worker: u16) -> Option<usize> {
        let workers = self.boxes.len() - usize::from(self.has_remote);
        match usize::from(worker) {
            worker if worker < workers => Some(worker),
            _ => (self.has_remote && worker == REMOTE_WORKER).then_some(workers),
        }
    }

    /// Returns the size limit of the batch that one worker collects for another: the mailbox divided by the number of
    /// senders.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        let senders = self.boxes.len().saturating_sub(1).max(1);
        (self.bytes_max / senders).max(BATCH_BYTES_MIN).min(self.bytes_max)
    }

    /// Moves a batch to the mailbox of a worker. The batch is empty afterwards.
    pub(crate) fn deliver(&self, worker: usize, batch: &mut MessageBatch) -> Delivery {
        let mut waiting = self.boxes[worker].0.lock();
        if waiting.is_empty() {
            core::mem::swap(&mut *waiting, batch);
            return Delivery { must_wake: true, lost: 0 };
        }
        let lost = waiting.append(batch, self.bytes_max);
        drop(waiting);
        batch.clear();
        Delivery { must_wake: false, lost }
    }

    /// Exchanges the content of the mailbox of a worker for `emptied`, an empty batch.
    pub(crate) fn collect(&self, worker: usize, emptied: &mut MessageBatch) {
        core::mem::swap(&mut *self.boxes[worker].0.lock(), emptied);
    }

    /// Frees the buffer of the mailbox of a worker if the mailbox is empty.
    pub(crate) fn trim(&self, worker: usize) {
        self.boxes[worker].0.lock().trim();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loom::sync::{Condvar, MutexGuard};
    use loom::thread;
    use shoal_base::transport::stream::Handle;

    use super::*;
    use crate::message::MessageKind;

    /// A lock whose order of acquisition the model checker chooses.
    #[derive(Debug, Default)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread of the model panics")
        }
    }

    /// The event descriptor of a worker.
    #[derive(Default)]
    struct Waker {
        is_woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Waker {
        fn wake(&self) {
            *self.is_woken.lock() = true;
            self.changed.notify_one();
        }

        fn sleep(&self) {
            let mut is_woken = self.is_woken.lock();
            while !*is_woken {
                is_woken = self.changed.wait(is_woken).expect("no thread of the model panics");
            }
            *is_woken = false;
        }
    }

    const SENDERS: u8 = 2;
    const MESSAGES: u8 = 2;

    /// Delivers the messages of one worker, each in a batch of its own.
    fn send(mailboxes: &Mailboxes, waker: &Waker, sender: u8) {
        let (mut batch, to) = (MessageBatch::default(), Handle { index: 0, generation: 0 });
        for number in 0..MESSAGES {
            batch.push(to, MessageKind::Reply, usize::MAX, |out| out.extend_from_slice(&[sender, number]));
            let delivery = mailboxes.deliver(0, &mut batch);
            assert!(batch.is_empty() && delivery.lost == 0);
            if delivery.must_wake {
                waker.wake();
            }
        }
    }

    /// Checks the interleavings of two senders and a receiver in which threads are preempted twice at most, which is
    /// enough to lose a wake-up. A worker that sleeps although messages wait for it would be a deadlock.
    #[test]
    fn no_message_and_no_wake_up_is_lost() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let (mailboxes, waker) = (Mailboxes::new(u16::from(SENDERS) + 1), Arc::new(Waker::default()));
            for sender in 0..SENDERS {
                let (mailboxes, waker) = (Arc::clone(&mailboxes), Arc::clone(&waker));
                thread::spawn(move || send(&mailboxes, &waker, sender));
            }
            let (mut inbox, mut received) = (MessageBatch::default(), [0; SENDERS as usize]);
            loop {
                mailboxes.collect(0, &mut inbox);
                for (_, _, message) in inbox.iter() {
                    let next = &mut received[usize::from(message[0])];
                    assert_eq!(message[1], *next, "in order");
                    *next += 1;
                }
                inbox.clear();
                if received == [MESSAGES; SENDERS as usize] {
                    break;
                }
                waker.sleep();
            }
        });
    }
}
