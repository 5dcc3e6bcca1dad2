//! The io_uring back end: multishot receives into provided buffers, replies sent in batches.
//!
//! This module owns the order of events in a poll round. Each socket has one receive that stays armed and yields a
//! completion for each datagram. A batch consists of the completed receives of all sockets, in the order of arrival.
//! One `io_uring_enter` passes the replies of a batch to the kernel and lets it fetch the datagrams of the next.
//!
//! io_uring takes addresses, not borrows. Two rules keep them valid. Every part of the memory has one owner at a time,
//! this process or the kernel, and changes hands only by a submission and its completion (`ring::provided`, `slot`).
//! And memory that the kernel may use stays mapped, even after its owner, until `UringIo::drop` has seen that all
//! operations have completed.

mod message;
mod receive;
mod slot;
mod token;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use shoal_base::transport::datagram::{BATCH_MAX, DatagramService, Exchange};

use crate::ring::provided::{BufferGroup, Filled};
use crate::ring::{Completion, Ring};
use crate::socket::{SOCKETS_MAX, decode_source};
use crate::stream::Readiness;
use crate::{DatagramIo, POLL_BATCHES_MAX, Sockets, TaskRun, Unread, fault};
use message::{MESSAGE_BYTES_MIN, Message};
use receive::Template;
use slot::{Slot, SlotPool};
use token::Token;

/// The setup of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringSettings {
    /// Number of receive buffers of each socket, a power of two. The kernel fills them while a batch is served. When
    /// all are full, the socket's own buffer fills instead.
    pub receive_buffers: u16,
    /// Number of replies that the kernel can hold at the same time.
    pub send_slots: u16,
    /// When the kernel does its share of the work. `Cooperative` is used if the kernel does not support the other.
    pub task_run: TaskRun,
}

/// Two batches: one being served while, at worst, the kernel still holds another.
const SEND_SLOTS: u16 = 128;

impl Default for UringSettings {
    fn default() -> Self {
        const { assert!(SEND_SLOTS as usize >= BATCH_MAX) };
        Self { receive_buffers: 256, send_slots: SEND_SLOTS, task_run: TaskRun::Deferred }
    }
}

/// The back end over io_uring. Belongs to the thread that opens it (`IORING_SETUP_SINGLE_ISSUER`).
#[derive(Debug)]
pub struct UringIo {
    sockets: Sockets,
    ring: Ring,
    template: Template,
    channels: Vec<Channel>,
    slots: SlotPool,
    /// Whether the poll of the waker is in progress, or queued.
    awaiting_wake: bool,
    /// Another descriptor that ends a wait.
    watched: Option<Readiness>,
    /// Whether the poll of the watched descriptor is in progress, or queued.
    watching: bool,
    /// Received datagrams that are not processed yet. Has capacity for all receive buffers, so that all completions can
    /// always be taken, and completions of replies never wait behind others.
    waiting: VecDeque<Filled>,
    own_thread: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Channel {
    /// Each socket has a group under its own number, so that a flood on one cannot take the buffers of another.
    buffers: BufferGroup<Message>,
    /// Whether its multishot receive is in progress, or queued.
    armed: bool,
}

/// A request in service, and the slot for its reply.
#[derive(Debug)]
struct Request {
    source: SocketAddr,
    filled: Filled,
    slot: Slot,
}

/// Maximum time to wait for the kernel when the back end closes: number of rounds, and the wait in each.
const CLOSE_ROUNDS_MAX: usize = 20;
const CLOSE_ROUND_WAIT: Duration = Duration::from_millis(50);

impl UringIo {
    /// Creates the ring for the sockets of a worker, on any thread. Fails if the kernel lacks or forbids something, see
    /// [`crate::Backend::probe`].
    pub(crate) fn create_ring(sockets: &Sockets, settings: &UringSettings) -> io::Result<Ring> {
        let files = sockets.bound.len() + 1;
        // Each send holds a slot. For each file, and for the watched descriptor, at most one request waits to be
        // submitted.
        let submissions_max = usize::from(settings.send_slots) + files + 1;
        let completions_max =
            usize::from(settings.send_slots) + files * (usize::from(settings.receive_buffers) + 1) + 1;
        // The kernel requires a completion queue that is no smaller than the submission queue.
        let completions_max = completions_max.max(submissions_max);
        match Ring::new(settings.task_run, submissions_max, completions_max) {
            // Linux 6.0 supports everything else.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                Ring::new(TaskRun::Cooperative, submissions_max, completions_max)
            }
            other => other,
        }
    }

    /// Takes over the sockets of a worker, on its thread. Receives nothing before the first poll round. Fails if the
    /// kernel lacks or forbids something, see [`crate::Backend::probe`].
    pub fn open(sockets: Sockets, settings: &UringSettings) -> io::Result<Self> {
        let ring = Self::create_ring(&sockets, settings)?;
        Self::with_ring(ring, sockets, settings)
    }

    /// Like `open`, with a ring that [`create_ring`](Self::create_ring) has created for these sockets and settings.
    pub(crate) fn with_ring(ring: Ring, sockets: Sockets, settings: &UringSettings) -> io::Result<Self> {
        assert!(sockets.bound.len() <= SOCKETS_MAX);
        let open_channel = |socket| {
            let buffers = receive::open_group(&ring, socket, settings.receive_buffers)?;
            Ok(Channel { buffers, armed: false })
        };
        let channels = (0..).take(sockets.bound.len()).map(open_channel).collect::<io::Result<Vec<_>>>()?;
        let files: Vec<_> = sockets.descriptors().chain([sockets.waker.as_fd()]).collect();
        ring.enable(&files)?;
        drop(files);
        Ok(Self {
            template: Template::new()?,
            slots: SlotPool::new(settings.send_slots)?,
            waiting: VecDeque::with_capacity(channels.len() * usize::from(settings.receive_buffers)),
            awaiting_wake: false,
            watched: None,
            watching: false,
            own_thread: PhantomData,
            sockets,
            ring,
            channels,
        })
    }

    /// Queues the receives, and the poll of the waker, unless they are in progress.
    fn arm(&mut self) {
        let Self { ring, template, channels, awaiting_wake, .. } = self;
        for (socket, channel) in (0..).zip(channels) {
            channel.buffers.publish();
            if !channel.armed {
                ring.push(template.receive(socket));
                channel.armed = true;
            }
        }
        if !*awaiting_wake {
            let waker = u32::try_from(self.channels.len()).expect("there are at most SOCKETS_MAX");
            ring.push(receive::await_wake(waker));
            *awaiting_wake = true;
        }
    }

    /// Queues the poll of the watched descriptor. This happens before each wait: the poll then also ends the wait if
    /// the descriptor has long been readable, and never wakes a worker that is about to check it anyway.
    fn arm_watch(&mut self) {
        if let Some(watched) = &self.watched
            && !self.watching
        {
            self.ring.push(receive::watch(watched));
            self.watching = true;
        }
    }

    /// Takes all completions so far. Returns whether the worker was woken, or the watched descriptor is readable.
    fn collect(&mut self) -> io::Result<bool> {
        let mut woken = false;
        while let Some(completion) = self.ring.complete() {
            let token = Token::decode(completion.token).expect("every submission has a token");
            match token {
                Token::Receive { socket } => self.finish_receive(socket, &completion)?,
                Token::Send { socket, slot } => {
                    let counters = self.sockets.family(usize::from(socket));
                    match completion.outcome() {
                        Ok(_) => counters.sent.increment(),
                        Err(errno) => fault::count_send(errno, 1, counters),
                    }
                    self.slots.complete(slot);
                }
                Token::Wake => {
                    self.sockets.waker.clear();
                    self.awaiting_wake = completion.has_more();
                    woken = true;
                }
                Token::Watch => {
                    self.watching = false;
                    woken = true;
                }
            }
        }
        Ok(woken)
    }

    fn finish_receive(&mut self, socket: u8, completion: &Completion) -> io::Result<()> {
        let index = usize::from(socket);
        let Channel { buffers, armed } = &mut self.channels[index];
        *armed = completion.has_more();
        let filled = completion.buffer().map(|buffer| buffers.take(buffer));
        match (completion.outcome(), filled) {
            (Ok(MESSAGE_BYTES_MIN..), Some(filled)) => self.waiting.push_back(filled),
            (outcome, unused) => {
                if let Some(unused) = unused {
                    buffers.give_back(unused);
                }
                match outcome {
                    Ok(_) => {}
                    Err(Errno::NOBUFS) => self.sockets.counters.pool_exhausted.increment(),
                    Err(errno) => fault::count_receive(errno, self.sockets.family(index))?,
                }
            }
        }
        Ok(())
    }

    /// Passes a batch of the waiting datagrams to the service, and queues the replies. Returns the number of datagrams
    /// taken.
    fn serve(&mut self, service: &mut impl DatagramService) -> usize {
        let waiting_before = self.waiting.len();
        let mut requests = self.open_requests();
        let taken = waiting_before - self.waiting.len();
        if requests.is_empty() {
            return taken;
        }
        let Self { sockets, ring, channels, slots, .. } = self;
        let mut batch = ArrayVec::<_, BATCH_MAX>::new();
        for Request { source, filled, slot } in &mut requests {
            let message = channels[usize::from(filled.group)].buffers.buffer(filled);
            let request = message.request().expect("what is too long was dropped");
            batch.push(Exchange { source: *source, request, reply: slots.reply(slot), reply_len: 0 });
        }
        sockets.counters.batches.increment();
        service.serve(&mut batch);
        let reply_lens: ArrayVec<_, BATCH_MAX> =
            batch.into_iter().map(|exchange| exchange.reply_len).collect();
        for (Request { filled, slot, .. }, reply_len) in requests.into_iter().zip(reply_lens) {
            let buffers = &mut channels[usize::from(filled.group)].buffers;
            if reply_len > 0 {
                ring.push(slots.send(slot, reply_len, buffers.buffer(&filled), filled.group));
            } else {
                slots.give_back(slot);
            }
            buffers.give_back(filled);
        }
        taken
    }

    /// Takes waiting datagrams, as many as a batch and the free slots allow, and drops those that are not requests.
    fn open_requests(&mut self) -> ArrayVec<Request, BATCH_MAX> {
        let Self { sockets, channels, slots, waiting, .. } = self;
        let mut requests = ArrayVec::new();
        while !requests.is_full() && !waiting.is_empty() {
            let Some(slot) = slots.take() else { break };
            let filled = waiting.pop_front().expect("it is not empty");
            let counters = sockets.family(usize::from(filled.group));
            let buffers = &mut channels[usize::from(filled.group)].buffers;
            let message = buffers.buffer(&filled);
            match (message.request(), decode_source(&message.name)) {
                (Some(_), Some(source)) => {
                    counters.received.increment();
                    requests.push(Request { source, filled, slot });
                }
                (request, _) => {
                    let reason = if request.is_none() { Unread::Oversized } else { Unread::Failed };
                    counters.unread.of(reason).increment();
                    buffers.give_back(filled);
                    slots.give_back(slot);
                }
            }
        }
        requests
    }

    fn can_serve(&self) -> bool {
        !self.waiting.is_empty() && self.slots.any_free()
    }

    /// Serves all waiting datagrams, and waits until the kernel has sent their replies. Begins no receive.
    fn finish_replies(&mut self, service: &mut impl DatagramService) -> io::Result<()> {
        for _ in 0..CLOSE_ROUNDS_MAX {
            self.collect()?;
            while self.can_serve() {
                self.serve(service);
                self.ring.enter(Duration::ZERO)?;
                service.sent();
                self.collect()?;
            }
            if self.waiting.is_empty() && !self.slots.any_in_flight() {
                break;
            }
            self.ring.enter(CLOSE_ROUND_WAIT)?;
        }
        Ok(())
    }

    /// Cancels all operations in progress. Returns whether the kernel has confirmed it.
    fn close(&mut self) -> bool {
        for _ in 0..CLOSE_ROUNDS_MAX {
            self.ring.cancel_all(CLOSE_ROUND_WAIT);
            if self.ring.enter(Duration::ZERO).is_err() || self.collect().is_err() {
                return false;
            }
            let armed =
                self.awaiting_wake || self.watching || self.channels.iter().any(|channel| channel.armed);
            if !armed && !self.slots.any_in_flight() {
                self.ring.release_files();
                return true;
            }
        }
        false
    }
}

impl DatagramIo for UringIo {
    fn poll(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize> {
        let woken = self.collect()?;
        if !woken && !self.can_serve() {
            self.arm();
            self.arm_watch();
            self.ring.enter(timeout)?;
            self.collect()?;
        }
        let mut taken = 0;
        for _ in 0..POLL_BATCHES_MAX {
            taken += self.serve(service);
            self.arm();
            if !self.ring.has_queued() && !self.can_serve() {
                break;
            }
            self.ring.enter(Duration::ZERO)?;
            service.sent();
            self.collect()?;
        }
        Ok(taken)
    }

    fn coalesce(&mut self, time: Duration) -> io::Result<()> {
        self.sockets.waker.wait_beside(self.watched.as_ref().map(AsFd::as_fd), time)
    }

    fn watch(&mut self, readiness: Option<Readiness>) -> io::Result<()> {
        // A poll in progress watches the same set, and ends at most one wait too early.
        self.watched = readiness;
        Ok(())
    }

    fn pause(&mut self, service: &mut impl DatagramService) -> io::Result<()> {
        // The replies in progress come first: the cancellation would affect them as well.
        self.finish_replies(service)?;
        self.ring.cancel_all(CLOSE_ROUND_WAIT);
        self.finish_replies(service)
    }
}

#[allow(unsafe_code, reason = "it knows when the kernel has finished with the memory")]
impl Drop for UringIo {
    fn drop(&mut self) {
        if !self.close() {
            // The memory stays mapped. That is harmless; a kernel that writes to reused memory is not.
            return;
        }
        // SAFETY: all receives have completed, and the ring is about to be closed.
        unsafe { self.template.reclaim() };
        for channel in &mut self.channels {
            // SAFETY: the same holds here.
            unsafe { channel.buffers.reclaim() };
        }
    }
}
