//! The outbound queues of the connections of one worker, and their messages to connections of other workers.
//!
//! All messages to a connection in one poll round are collected in one buffer and leave in one write. The messages are
//! bytes that are ready to be sent; nothing here looks at them. In the settled state, no memory is allocated per
//! message.
//!
//! Each connection has one queue: the messages collected here, and the earlier ones that its socket has not accepted
//! ([`Dispatcher::set_unsent`]). When the queue is long, messages of other peers are dropped before they are encoded.
//! Replies to the connection's own messages have a separate limit ([`QueueLimits`]). So a peer can neither fill the
//! queue of another peer nor block its replies.
//!
//! With TLS, the bytes of a connection are sealed when they leave, in as few records as possible. Messages for a
//! connection of another worker are collected during the poll round and handed over afterwards. The worker that empties
//! the mailbox then checks the queue's limits.

use std::collections::VecDeque;
use std::sync::Arc;

use shoal_base::transport::stream::Handle;

use crate::api::Address;
use crate::mailbox::Mailboxes;
use crate::message::{MessageBatch, MessageKind};
use crate::queue::{OutboundQueue, QueueLimits, QueueTotals};

/// Default maximum size of all queues of a worker, see [`Dispatcher::with_bytes_max`].
const TOTAL_BYTES_MAX: usize = 64 << 20;

/// Maximum capacity of a buffer that is retained for reuse.
const RETAINED_BYTES_MAX: usize = 64 * 1024;

/// Maximum capacity of all retained buffers: enough for a thousand connections that are sent something in each poll
/// round. New messages go to the retained buffers first, so that both together stay within the limit of all queues.
const RETAINED_TOTAL_BYTES_MAX: usize = 32 << 20;

/// Number of poll rounds after which unused retained buffers are freed.
const RETAINED_ROUNDS: u32 = 1024;

/// The slot of a connection without a queue.
const NO_SLOT: u32 = u32::MAX;

/// The outbound queues of one worker, and its end of the mailboxes.
#[derive(Debug)]
pub struct Dispatcher {
    worker: u16,
    mailboxes: Arc<Mailboxes>,
    limits: QueueLimits,
    /// The slots of the connections of this worker in `queues`, by the index of their handles.
    slots: Vec<u32>,
    queues: Vec<OutboundQueue>,
    /// The sizes of all queues, and the limit for each of them.
    totals: QueueTotals,
    bytes_max: usize,
    /// Slots without a connection. The most recently released one is reused first, since its buffer is still cached.
    free: Vec<u32>,
    /// Total capacity of the buffers of the free slots.
    retained_bytes: usize,
    /// The minimum length of `free` in the current period: this many slots at its front have not been used.
    unused: usize,
    /// Poll rounds of the current period.
    rounds: u32,
    /// The connections with a queue, in the order of their first message. Some may have been flushed since.
    ready: VecDeque<Handle>,
    /// The connection that is being flushed. If it has not drained its queue when the next one is requested, it never
    /// will.
    flushing: Option<Handle>,
    /// The messages for each of the other workers.
    batches: Box<[MessageBatch]>,
    /// The messages from other workers that are being distributed.
    inbox: MessageBatch,
    /// The workers to wake.
    wakes: Vec<u16>,
    losses: Losses,
}

/// Why a message is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The receiver has disconnected.
    Gone,
    /// The queue of the receiver is full.
    QueueFull,
    /// The mailbox of the receiver's worker is full, or the queues of this worker are full in total.
    MailboxFull,
}

/// Numbers of messages that were lost after they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Messages to connections that have disconnected or could not be flushed. A whole queue counts as one message.
    pub gone: u64,
    /// Messages that did not fit the mailbox of another worker.
    pub mailbox_full: u64,
    /// Messages from other workers that did not fit the queues of their receivers.
    pub queue_full: u64,
}

impl Dispatcher {
    /// Creates the dispatcher of `worker`, the owner of the mailbox of this number or of the mailbox for other nodes.
    pub fn new(worker: u16, mailboxes: Arc<Mailboxes>) -> Self {
        let batches = (0..mailboxes.len()).map(|_| MessageBatch::default()).collect();
        Self {
            worker,
            mailboxes,
            limits: QueueLimits::default(),
            slots: Vec::new(),
            queues: Vec::new(),
            totals: QueueTotals::default(),
            bytes_max: TOTAL_BYTES_MAX,
            free: Vec::new(),
            retained_bytes: 0,
            unused: 0,
            rounds: 0,
            ready: VecDeque::new(),
            flushing: None,
            batches,
            inbox: MessageBatch::default(),
            wakes: Vec::new(),
            losses: Losses::default(),
        }
    }

    /// Sets the limits of each queue.
    #[must_use]
    pub const fn with_limits(mut self, limits: QueueLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the limit of all queues together. It applies separately to three sums: messages for connections with unsent
    /// bytes or put off, replies to other connections, and messages of other peers for those other connections. The guaranteed
    /// replies of each connection may exceed it slightly. Messages beyond the limit are lost. Buffers retained for
    /// reuse take at most this much too.
    #[must_use]
    pub const fn with_bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Returns the worker that owns this dispatcher.
    pub const fn worker(&self) -> u16 {
        self.worker
    }

    /// Lets `write` append a message to the queue of a connection, or to the batch for its worker. Fails if the message
    /// is lost; if that is known beforehand, `write` is not called.
    pub fn write(
        &mut self,
        to: Address,
        kind: MessageKind,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), WriteError> {
        if to.worker == self.worker {
            return self.enqueue(to.handle, kind, write);
        }
        let bytes_max = self.mailboxes.batch_bytes_max();
        let batch = self.mailboxes.index(to.worker).and_then(|index| self.batches.get_mut(index));
        let batch = batch.ok_or(WriteError::Gone)?;
        if batch.push(to.handle, kind, bytes_max, write) { Ok(()) } else { Err(WriteError::MailboxFull) }
    }

    /// Records how many bytes written to a connection its socket has not accepted, and that the connection is not put off
    /// any longer. Messages for the connection are
    /// queued, and not flushed, until that is zero.
    pub fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        // A connection need not have drained its queue when it is flushed.
        self.flushing.take_if(|flushing| *flushing == handle);
        let slot = if unsent_bytes > 0 { self.slot_or_insert(handle) } else { self.slot(handle) };
        let Some(slot) = slot else { return };
        let queue = &mut self.queues[as_usize(slot)];
        self.totals.subtract(queue);
        queue.unsent_bytes = unsent_bytes;
        queue.is_put_off = false;
        self.totals.add(queue);
        if unsent_bytes > 0 {
            return;
        }
        if queue.is_ready() {
            self.ready.push_back(handle);
        } else {
            self.release(slot);
        }
    }

    /// Puts off the queue of a connection that cannot be written to now, until [`set_unsent`](Self::set_unsent) is called.
    pub fn put_off(&mut self, handle: Handle) {
        self.flushing.take_if(|flushing| *flushing == handle);
        let Some(slot) = self.slot(handle) else { return };
        let queue = &mut self.queues[as_usize(slot)];
        self.totals.subtract(queue);
        queue.is_put_off = true;
        self.totals.add(queue);
    }

    /// Returns the memory size of the queue of a connection that has unsent bytes or is put off; otherwise zero.
    pub fn backlog_bytes(&self, handle: Handle) -> usize {
        let queue = self.slot(handle).map(|slot| &self.queues[as_usize(slot)]);
        queue.filter(|queue| queue.waits()).map_or(0, |queue| queue.bytes.capacity())
    }

    /// Returns how many bytes are queued for a connection.
    pub fn queued_bytes(&self, handle: Handle) -> usize {
        self.slot(handle).map_or(0, |slot| self.queues[as_usize(slot)].bytes.len())
    }

    /// Requests that a connection is flushed and then pinged, since it may be dead. If it has unsent bytes, it is
    /// pinged when it has read them.
    pub fn request_ping(&mut self, to: Address) {
        if to.worker == self.worker {
            if let Some(slot) = self.slot_or_insert(to.handle) {
                self.queues[as_usize(slot)].is_ping_requested = true;
            }
        } else {
            // If the request is lost, the connection is pinged after its silence, like any other.
            let _ = self.write(to, MessageKind::Ping, |_| {});
        }
    }

    /// Returns whether a connection must be pinged when it is drained.
    pub fn is_ping_requested(&self, handle: Handle) -> bool {
        self.slot(handle).is_some_and(|slot| self.queues[as_usize(slot)].is_ping_requested)
    }

    /// Returns the next connection to flush. Each is returned once. If the previous one has not drained its queue by
    /// now, it is assumed to have disconnected.
    pub fn next_to_flush(&mut self) -> Option<Handle> {
        if let Some(undrained) = self.flushing.take().and_then(|handle| self.slot(handle)) {
            self.release(undrained);
            self.losses.gone += 1;
        }
        while let Some(handle) = self.ready.pop_front() {
            if self.slot(handle).is_some_and(|slot| self.queues[as_usize(slot)].is_ready()) {
                self.flushing = Some(handle);
                break;
            }
        }
        self.flushing
    }

    /// Calls `read` with the content of a connection's queue, which is empty afterwards. Returns `None` if there is no
    /// queue.
    pub fn drain<R>(&mut self, handle: Handle, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let slot = self.slot(handle)?;
        // Messages that are written to it from now on belong to the next flush.
        self.flushing.take_if(|flushing| *flushing == handle);
        let result = read(&self.queues[as_usize(slot)].bytes);
        self.release(slot);
        Some(result)
    }

    /// Removes the queue of a connection that has disconnected.
    pub fn remove(&mut self, handle: Handle) {
        if let Some(slot) = self.slot(handle) {
            self.release(slot);
        }
    }

    /// Collects the messages from other workers, before each poll round.
    pub fn collect(&mut self) {
        if let Some(index) = self.mailboxes.index(self.worker) {
            self.mailboxes.collect(index, &mut self.inbox);
        }
        let inbox = core::mem::take(&mut self.inbox);
        for (to, kind, message) in inbox.iter() {
            if kind == MessageKind::Ping {
                self.request_ping(Address { worker: self.worker, handle: to });
                continue;
            }
            match self.enqueue(to, kind, |out| out.extend_from_slice(message)) {
                Ok(()) => {}
                Err(WriteError::Gone) => self.losses.gone += 1,
                Err(WriteError::QueueFull | WriteError::MailboxFull) => self.losses.queue_full += 1,
            }
        }
        self.inbox = inbox;
        self.inbox.clear();
    }

    /// Delivers the messages for other workers, and returns the workers that must be woken because they may be waiting
    /// for I/O. The thread that sends to other nodes comes after the last worker. Must be called after a poll round.
    pub fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        self.rounds += 1;
        if self.rounds == RETAINED_ROUNDS {
            self.free_unused();
        }
        self.wakes.clear();
        for (worker, batch) in (0..).zip(&mut self.batches) {
            if !batch.is_empty() {
                let delivery = self.mailboxes.deliver(usize::from(worker), batch);
                self.losses.mailbox_full += delivery.lost;
                if delivery.must_wake {
                    self.wakes.push(worker);
                }
            }
        }
        self.wakes.drain(..)
    }

    /// Frees memory that was not used since the last call. Must be called every few seconds.
    pub fn trim(&mut self) {
        self.free_unused();
        self.inbox.trim();
        self.batches.iter_mut().for_each(MessageBatch::trim);
        if let Some(index) = self.mailboxes.index(self.worker) {
            self.mailboxes.trim(index);
        }
        self.ready.shrink_to(2 * self.ready.len());
    }

    /// Returns and resets the losses, which do not include the messages that [`write`](Self::write) refused.
    pub fn take_losses(&mut self) -> Losses {
        core::mem::take(&mut self.losses)
    }

    /// Appends a message to the queue of a connection of this worker.
    fn enqueue(
        &mut self,
        to: Handle,
        kind: MessageKind,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), WriteError> {
        let slot = self.slot_or_insert(to).ok_or(WriteError::Gone)?;
        let queue = &mut self.queues[as_usize(slot)];
        if !queue.has_room(kind, &self.limits) {
            return Err(WriteError::QueueFull);
        }
        queue.check_totals(kind, &self.totals, self.bytes_max)?;
        self.totals.subtract(queue);
        queue.push(kind, write);
        self.totals.add(queue);
        Ok(())
    }

    /// Returns the slot of a connection that has a queue.
    fn slot(&self, handle: Handle) -> Option<u32> {
        let slot = *self.slots.get(as_usize(handle.index))?;
        (slot != NO_SLOT && self.queues[as_usize(slot)].to == handle).then_some(slot)
    }

    /// Returns the slot of a connection, which gets a queue if it has none. Returns `None` if the connection is known
    /// to have disconnected.
    fn slot_or_insert(&mut self, to: Handle) -> Option<u32> {
        let index = as_usize(to.index);
        if index >= self.slots.len() {
            self.slots.resize(index + 1, NO_SLOT);
        }
        let slot = self.slots[index];
        if slot == NO_SLOT {
            return Some(self.insert(to));
        }
        let queue = &mut self.queues[as_usize(slot)];
        if queue.to == to {
            return Some(slot);
        }
        if !is_newer(to, queue.to) {
            return None;
        }
        // An earlier connection with this index has disconnected.
        self.losses.gone += 1;
        self.totals.subtract(queue);
        queue.clear();
        queue.to = to;
        self.ready.push_back(to);
        Some(slot)
    }

    /// Gives a queue to a connection that has none. Returns its slot.
    fn insert(&mut self, to: Handle) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                let queue = &mut self.queues[as_usize(slot)];
                queue.to = to;
                self.retained_bytes -= queue.bytes.capacity();
                self.unused = self.unused.min(self.free.len());
                slot
            }
            None => {
                let slot = u32::try_from(self.queues.len()).expect("there are no more queues than handles");
                self.queues.push(OutboundQueue::new(to));
                slot
            }
        };
        self.slots[as_usize(to.index)] = slot;
        self.ready.push_back(to);
        slot
    }

    /// Discards the content of a queue and frees its slot.
    fn release(&mut self, slot: u32) {
        let queue = &mut self.queues[as_usize(slot)];
        self.slots[as_usize(queue.to.index)] = NO_SLOT;
        self.totals.subtract(queue);
        queue.clear();
        let capacity = queue.bytes.capacity();
        let retained_bytes_max = RETAINED_TOTAL_BYTES_MAX.min(self.bytes_max);
        if capacity > RETAINED_BYTES_MAX || self.retained_bytes + capacity > retained_bytes_max {
            queue.bytes = Vec::new();
        }
        self.retained_bytes += queue.bytes.capacity();
        self.free.push(slot);
    }

    /// Frees the buffers that were not used in the current period, and begins the next one.
    fn free_unused(&mut self) {
        for &slot in &self.free[..self.unused] {
            let bytes = &mut self.queues[as_usize(slot)].bytes;
            self.retained_bytes -= bytes.capacity();
            *bytes = Vec::new();
        }
        self.unused = self.free.len();
        self.rounds = 0;
    }
}

/// Returns whether a connection is newer than another one with the same index. Generations wrap at their maximum.
fn is_newer(handle: Handle, than: Handle) -> bool {
    let ahead = handle.generation.wrapping_sub(than.generation) & Handle::GENERATION_MAX;
    ahead <= Handle::GENERATION_MAX / 2
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).expect("an address has 32 bits or more")
}
