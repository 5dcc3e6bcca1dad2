//! The io_uring back end: multishot receives into provided buffers, replies sent in batches.
//!
//! Owns the order of events in a turn. Each socket has one receive that stays armed and yields a completion for
//! each datagram; a batch is made of what has completed, from all sockets in the order of arrival. One
//! `io_uring_enter` hands over the replies of a batch and has the kernel fetch the datagrams of the next.
//!
//! io_uring is given addresses, not borrows. What keeps them valid: every part of the memory has one owner at a
//! time, this process or the kernel, and changes hands only by a submission and its completion (`ring::provided`,
//! `slot`); and nothing is unmapped before the kernel has completed all it was given (`UringIo::drop`).

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
use shoal_transport::datagram::{BATCH_MAX, DatagramService, Exchange};

use crate::ring::provided::{BufferGroup, Filled};
use crate::ring::{Completion, Ring};
use crate::socket::{SOCKETS_MAX, decode_source};
use crate::{DatagramIo, Sockets, TURN_BATCHES_MAX, TaskRun, fault};
use message::{MESSAGE_BYTES_MIN, Message};
use receive::Template;
use slot::{Slot, SlotPool};
use token::Token;

/// How the ring is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringSettings {
    /// Receive buffers of each socket, a power of two. The kernel fills them while a batch is served, and when they
    /// are all full the socket's own buffer takes over.
    pub receive_buffers: u16,
    /// Replies that can be with the kernel at once.
    pub send_slots: u16,
    /// When the kernel does its share of the work; `Cooperative` too where it knows no other.
    pub task_run: TaskRun,
}

/// Two batches: one that is being served while, at the worst, another is still with the kernel.
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
    /// Whether the poll of the waker is under way, or queued.
    awaiting_wake: bool,
    /// Whether the poll of what is watched beside is under way, or queued.
    watching: bool,
    /// Datagrams that were received and not looked at. Has room for as many as there are receive buffers, so that
    /// the completions can always be taken to the last, and those of replies never wait behind.
    waiting: VecDeque<Filled>,
    own_thread: PhantomData<*const ()>,
}

/// The receiving side of one socket.
#[derive(Debug)]
struct Channel {
    /// A group for each socket, under its number, so that a flood on one cannot take the buffers of another.
    buffers: BufferGroup<Message>,
    /// Whether its multishot receive is under way, or queued.
    armed: bool,
}

/// A request that is being served, and the slot for its reply.
#[derive(Debug)]
struct Request {
    source: SocketAddr,
    filled: Filled,
    slot: Slot,
}

/// Patience with the kernel when the back end closes: rounds, and the wait in each.
const CLOSE_ROUNDS_MAX: usize = 20;
const CLOSE_ROUND_WAIT: Duration = Duration::from_millis(50);

impl UringIo {
    /// Takes over the sockets of a worker, on its thread.
    ///
    /// # Errors
    /// Where the kernel lacks or forbids something, see [`crate::Backend::probe`].
    pub fn open(sockets: Sockets, settings: &UringSettings) -> io::Result<Self> {
        assert!(sockets.listeners.len() <= SOCKETS_MAX);
        let descriptors = sockets.listeners.iter().map(|listener| listener.socket.as_fd());
        let files: Vec<_> = descriptors.chain([sockets.waker.as_fd()]).collect();
        // Each send holds a slot, and of each file at most one request waits to be submitted; and one of what is watched.
        let submissions_max = usize::from(settings.send_slots) + files.len() + 1;
        let completions_max =
            usize::from(settings.send_slots) + files.len() * (usize::from(settings.receive_buffers) + 1) + 1;
        // The kernel insists on a completion queue that is no smaller than the submission queue.
        let completions_max = completions_max.max(submissions_max);
        let new_ring = |task_run| Ring::new(task_run, submissions_max, completions_max, &files);
        let ring = match new_ring(settings.task_run) {
            // Linux 6.0 has all that is needed but this.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                new_ring(TaskRun::Cooperative)?
            }
            other => other?,
        };
        let open_channel = |socket| {
            let buffers = receive::open_group(&ring, socket, settings.receive_buffers)?;
            Ok(Channel { buffers, armed: false })
        };
        let channels =
            (0..).take(sockets.listeners.len()).map(open_channel).collect::<io::Result<Vec<_>>>()?;
        let mut io = Self {
            template: Template::new()?,
            slots: SlotPool::new(settings.send_slots)?,
            waiting: VecDeque::with_capacity(channels.len() * usize::from(settings.receive_buffers)),
            awaiting_wake: false,
            watching: false,
            own_thread: PhantomData,
            sockets,
            ring,
            channels,
        };
        io.arm();
        io.ring.enter(Duration::ZERO)?;
        Ok(io)
    }

    /// Queues the receives, and the watch on the waker, that are not under way.
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

    /// Queues the watch on what else ends a turn. Only before a wait, and anew for each: then it ends that wait also
    /// if it has been readable for long, and the worker is not woken for what it is about to do anyway.
    fn watch(&mut self) {
        if let Some(watched) = &self.sockets.watched
            && !self.watching
        {
            self.ring.push(receive::watch(watched));
            self.watching = true;
        }
    }

    /// Takes all completions so far. Returns whether the worker was woken, or what is watched is readable.
    fn collect(&mut self) -> io::Result<bool> {
        let mut woken = false;
        while let Some(completion) = self.ring.complete() {
            let token = Token::decode(completion.token).expect("every submission has a token");
            match token {
                Token::Receive { socket } => self.finish_receive(socket, &completion)?,
                Token::Send { socket, slot } => self.finish_send(socket, slot, &completion),
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
                self.count_failed_receive(index, outcome.err())?;
            }
        }
        Ok(())
    }

    fn count_failed_receive(&self, index: usize, errno: Option<Errno>) -> io::Result<()> {
        match errno {
            None => Ok(()),
            Some(Errno::NOBUFS) => {
                self.sockets.counters.pool_exhausted.add(1);
                Ok(())
            }
            Some(errno) => fault::count_receive(errno, self.sockets.family(index)),
        }
    }

    fn finish_send(&mut self, socket: u8, slot: u16, completion: &Completion) {
        let counters = self.sockets.family(usize::from(socket));
        match completion.outcome() {
            Ok(_) => counters.sent.add(1),
            Err(errno) => fault::count_send(errno, 1, counters),
        }
        self.slots.land(slot);
    }

    /// Has a batch of the datagrams that wait answered, and queues the replies. Returns how many it took.
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
        sockets.counters.batches.add(1);
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

    /// Takes datagrams that wait, as many as a batch and the free slots allow, and drops those that are no requests.
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
                    counters.received.add(1);
                    requests.push(Request { source, filled, slot });
                }
                (request, _) => {
                    let dropped =
                        if request.is_none() { &counters.oversized } else { &counters.receive_failed };
                    dropped.add(1);
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

    /// Ends all that is under way. Returns whether the kernel has confirmed it.
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
    fn turn(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize> {
        let woken = self.collect()?;
        if !woken && !self.can_serve() {
            self.arm();
            self.watch();
            self.ring.enter(timeout)?;
            self.collect()?;
        }
        let mut taken = 0;
        for _ in 0..TURN_BATCHES_MAX {
            taken += self.serve(service);
            self.arm();
            if !self.ring.has_queued() && !self.can_serve() {
                break;
            }
            self.ring.enter(Duration::ZERO)?;
            self.collect()?;
        }
        Ok(taken)
    }
}

impl Drop for UringIo {
    fn drop(&mut self) {
        if self.close() {
            return;
        }
        // A little memory lost is harmless, a kernel that writes to memory of somebody else is not.
        self.template.leak();
        self.slots.leak();
        self.channels.iter_mut().for_each(|channel| channel.buffers.leak());
    }
}
