//! Mailboxes, through which messages pass from one worker to another.
//!
//! Each worker has one mailbox, into which all other workers put batches of messages. The lock of a mailbox is held for
//! a swap of two buffers, or for a copy of the messages that one worker has written in one poll round.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::message::MessageBatch;

/// Default maximum size of the content of a mailbox in bytes. A worker that does not empty its mailbox for so long is
/// in trouble. Further messages are lost; their receivers would get them too late.
pub const MAILBOX_BYTES_MAX: usize = 8 << 20;

/// Minimum size limit of a batch, whatever the number of workers: one offer of the maximum size fits.
const BATCH_BYTES_MIN: usize = 32 * 1024;

/// One mailbox for each worker.
#[derive(Debug)]
pub struct Mailboxes {
    boxes: Box<[Mailbox]>,
    bytes_max: usize,
}

/// The messages that wait for one worker. Each mailbox has cache lines of its own, so two workers share one only when
/// they write to each other.
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
    #[must_use]
    pub fn new(workers: u16) -> Arc<Self> {
        Self::with_bytes_max(workers, MAILBOX_BYTES_MAX)
    }

    /// Creates empty mailboxes that hold up to `bytes_max` bytes each.
    #[must_use]
    pub fn with_bytes_max(workers: u16, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { boxes: (0..workers).map(|_| Mailbox::default()).collect(), bytes_max })
    }

    pub(crate) fn workers(&self) -> usize {
        self.boxes.len()
    }

    /// Returns the size limit of the batch that one worker collects for another: an equal part of the mailbox for each
    /// sender.
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
