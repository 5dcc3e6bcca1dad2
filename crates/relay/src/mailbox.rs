//! How post crosses from one worker to another.
//!
//! Each worker has one mailbox, into which all others put their batches. A lock is held for a swap, or for a copy of
//! what a worker had to say in one turn.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::post::Letters;

/// Most bytes that wait in a mailbox. A worker that does not empty it for so long is in trouble; what comes then is lost
/// to connections that would hear it too late.
pub const MAILBOX_BYTES_MAX: usize = 8 << 20;

/// What a batch holds at least, however many workers there are: a largest offer.
const BATCH_BYTES_MIN: usize = 32 * 1024;

/// One mailbox for each worker.
#[derive(Debug)]
pub struct Mailboxes {
    boxes: Box<[Mailbox]>,
    bytes_max: usize,
}

/// Lines of its own: no two workers share one but when they write to each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Mailbox(Mutex<Letters>);

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posted {
    /// Whether the worker is to be woken: its mailbox was empty.
    pub(crate) wakes: bool,
    /// Letters for which there was no room.
    pub(crate) lost: u64,
}

impl Mailboxes {
    /// Empty mailboxes of so many workers.
    #[must_use]
    pub fn new(workers: u16) -> Arc<Self> {
        Self::with_bytes_max(workers, MAILBOX_BYTES_MAX)
    }

    /// Empty mailboxes that hold so many bytes each.
    #[must_use]
    pub fn with_bytes_max(workers: u16, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { boxes: (0..workers).map(|_| Mailbox::default()).collect(), bytes_max })
    }

    pub(crate) fn workers(&self) -> usize {
        self.boxes.len()
    }

    /// Most bytes of what one worker gathers for another: an equal part of the mailbox for each.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        let others = self.boxes.len().saturating_sub(1).max(1);
        (self.bytes_max / others).max(BATCH_BYTES_MIN).min(self.bytes_max)
    }

    /// Puts a batch into the mailbox of a worker, and leaves it empty.
    pub(crate) fn put(&self, worker: usize, batch: &mut Letters) -> Posted {
        let mut waiting = self.boxes[worker].0.lock();
        if waiting.is_empty() {
            core::mem::swap(&mut *waiting, batch);
            return Posted { wakes: true, lost: 0 };
        }
        let lost = waiting.append(batch, self.bytes_max);
        drop(waiting);
        batch.clear();
        Posted { wakes: false, lost }
    }

    /// Gives back memory that the mailbox of a worker keeps for later.
    pub(crate) fn trim(&self, worker: usize) {
        self.boxes[worker].0.lock().trim();
    }

    /// Exchanges what waits for a worker for `emptied`.
    pub(crate) fn collect(&self, worker: usize, emptied: &mut Letters) {
        core::mem::swap(&mut *self.boxes[worker].0.lock(), emptied);
    }
}
