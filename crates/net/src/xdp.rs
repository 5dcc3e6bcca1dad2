//! The back end over AF_XDP sockets, in addition to the ordinary ones.
//!
//! This module owns the order of events: which socket is served when, when the worker waits, and when the eBPF program
//! learns about it. [`shoal_xdp::socket`] has the rings and frames; [`MmsgIo`] has the ordinary sockets.
//!
//! A reply is written into the frame of its request, and takes the same way back. No datagram takes a system call of
//! its own: a round takes one for sending, and a worker without frames one for waiting.
//!
//! A frame has 4 KiB: a request in its first half, and room for the reply at its end. The headers of the reply are
//! written before the payload once its length is known, and the same frame goes into the transmit ring. The engine
//! writes its reply there just as into the buffers of the other back ends.

mod queue;

use std::io;
use std::mem;
use std::time::Duration;

use arrayvec::ArrayVec;
use shoal_base::transport::datagram::{BATCH_MAX, DatagramService, Exchange};
use shoal_xdp::frame::{Datagram, REPLY_HEAD_BYTES_MAX, parse, write_reply_head};
use shoal_xdp::socket::{Answered, Failure, Frame};

use crate::mmsg::OTHERS_MAX;
use crate::stream::Readiness;
use crate::{
    Counters, DatagramIo, MmsgIo, POLL_BATCHES_MAX, REQUEST_BYTES_MAX, Sockets, Unread, Unsent, XdpDrop,
};
pub use queue::{QueueLoss, XdpQueue};

/// Rounds with served frames between two checks of the ordinary sockets. A check takes a system call, a microsecond or
/// two; a full round takes some 250. After a wait in which datagrams collect, each round checks them.
const ROUNDS_PER_LOOK: u32 = 4;

/// Busy rounds between two reads of the kernel's counts, which take two system calls for each queue.
const ROUNDS_PER_REPORT: u32 = 64;

/// Maximum wait while the kernel has not taken all replies: it takes more when it is called again.
const UNSENT_WAIT: Duration = Duration::from_millis(5);

/// How often a pause checks whether the kernel has sent everything, and the wait before each check.
const COMPLETION_LOOKS_MAX: usize = 50;
const COMPLETION_WAIT: Duration = Duration::from_millis(1);

/// The back end over AF_XDP sockets, with ordinary ones for all other datagrams.
#[derive(Debug)]
pub struct XdpIo {
    sockets: MmsgIo,
    /// The descriptor of each is among those that `sockets` waits for, at the same place.
    queues: Vec<XdpQueue>,
    rounds: u32,
    /// Whether datagrams were collecting before this round, and so may have for the ordinary sockets.
    has_waited: bool,
}

/// The lengths of the replies of a batch, and where each starts in its frame.
type Replies = ArrayVec<Option<(usize, usize)>, BATCH_MAX>;

impl XdpIo {
    /// Takes over the sockets of a worker. Fails if there are too many, or if there is not enough memory.
    pub fn open(sockets: Sockets, queues: Vec<XdpQueue>) -> io::Result<Self> {
        if queues.len() > OTHERS_MAX {
            let problem = format!("a worker can serve {OTHERS_MAX} queues, not {}", queues.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let descriptors = queues.iter().map(|queue| queue.socket().descriptor()).collect();
        let mut io = Self {
            sockets: MmsgIo::open_beside(sockets, descriptors)?,
            queues,
            rounds: 0,
            has_waited: false,
        };
        io.report(false);
        Ok(io)
    }

    /// Takes the queues, for a back end that replaces this one.
    pub fn take_queues(&mut self) -> Vec<XdpQueue> {
        for index in (0..self.queues.len()).rev() {
            self.sockets.remove_other(index);
        }
        mem::take(&mut self.queues)
    }

    /// Waits, unless frames have arrived, and serves the ordinary sockets. Returns the number of their datagrams.
    fn serve_sockets(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize> {
        let ready = self.sockets.wait(timeout)?;
        self.sockets.serve(ready, service)
    }

    /// Serves frames, a bounded number, and sends all replies at once. Returns how many frames have arrived.
    fn serve_queues(&mut self, service: &mut impl DatagramService) -> usize {
        let mut taken = 0;
        for _ in 0..POLL_BATCHES_MAX {
            let before = taken;
            // Backwards, since a queue may be lost.
            for index in (0..self.queues.len()).rev() {
                match exchange(&mut self.queues[index], self.sockets.counters(), service) {
                    Ok(arrived) => taken += arrived,
                    Err(reason) => self.lose(index, reason),
                }
            }
            if taken == before {
                break;
            }
        }
        if taken > 0 {
            self.try_each(XdpQueue::settle);
        }
        taken
    }

    /// Gives a queue up. Its later frames go to the ordinary sockets.
    fn lose(&mut self, index: usize, reason: Failure) {
        self.sockets.remove_other(index);
        self.queues.remove(index).abandon(reason);
        self.sockets.counters().xdp.lost.increment();
    }

    /// Applies a fallible action to each queue, and gives up those where it fails.
    fn try_each(&mut self, mut action: impl FnMut(&mut XdpQueue) -> Result<(), Failure>) {
        for index in (0..self.queues.len()).rev() {
            if let Err(reason) = action(&mut self.queues[index]) {
                self.lose(index, reason);
            }
        }
    }

    /// Adds up the kernel's counts. `is_idle` means that there was nothing to do for some time. Skips a socket that
    /// another process still uses.
    fn report(&mut self, is_idle: bool) {
        self.try_each(|queue| if queue.is_own() { queue.socket().check() } else { Ok(()) });
        let counters = &self.sockets.counters().xdp;
        let (mut free, mut total) = (0, 0);
        for queue in &mut self.queues {
            if queue.is_own() {
                queue.report(counters, is_idle);
            }
            let owned = queue.socket().owned();
            free += u64::from(owned.free + owned.receiving);
            total += u64::from(queue.socket().frames_total());
        }
        counters.frames_free.set(free);
        counters.frames_total.set(total);
        counters.sockets.set(self.queues.len() as u64);
    }
}

impl DatagramIo for XdpIo {
    fn poll(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize> {
        self.rounds = self.rounds.wrapping_add(1);
        let has_waited = mem::take(&mut self.has_waited);
        self.queues.iter_mut().filter(|queue| !queue.is_own()).for_each(XdpQueue::recover);
        let mut has_frames = false;
        let mut has_unsent = false;
        self.try_each(|queue| {
            has_frames |= queue.has_arrived()?;
            has_unsent |= queue.has_unsent();
            Ok(())
        });
        let mut taken = 0;
        if !has_frames {
            self.try_each(XdpQueue::settle);
            let timeout = if has_unsent { timeout.min(UNSENT_WAIT) } else { timeout };
            taken += self.serve_sockets(timeout, service)?;
        } else if has_waited || self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            taken += self.serve_sockets(Duration::ZERO, service)?;
        }
        let frames = self.serve_queues(service);
        // Without a wait, nothing may have arrived just for lack of time.
        let is_idle = !timeout.is_zero() && !has_frames && taken + frames == 0;
        if is_idle || self.rounds.is_multiple_of(ROUNDS_PER_REPORT) {
            self.report(is_idle);
        }
        Ok(taken + frames)
    }

    fn coalesce(&mut self, time: Duration) -> io::Result<()> {
        self.has_waited = true;
        self.sockets.coalesce(time)
    }

    fn watch(&mut self, readiness: Option<Readiness>) -> io::Result<()> {
        self.sockets.watch(readiness)
    }

    fn pause(&mut self, service: &mut impl DatagramService) -> io::Result<()> {
        if !self.queues.iter().all(XdpQueue::is_own) {
            // Another process still uses the rings.
            return self.sockets.pause(service);
        }
        // The rings hold no more than this. Later frames wait there for the next owner of the rings.
        let frames_max: usize = self.queues.iter().map(|queue| queue.socket().receiving_max() as usize).sum();
        let mut served = 0;
        while served < frames_max {
            match self.serve_queues(service) {
                0 => break,
                frames => served += frames,
            }
        }
        for _ in 0..COMPLETION_LOOKS_MAX {
            self.try_each(XdpQueue::settle);
            if self.queues.iter().all(|queue| queue.socket().owned().transmitting == 0) {
                break;
            }
            std::thread::sleep(COMPLETION_WAIT);
        }
        self.report(false);
        self.sockets.pause(service)
    }
}

/// Exchanges one batch on one queue. Returns the number of arrived frames. If none, the ring is now empty.
fn exchange(
    queue: &mut XdpQueue,
    counters: &Counters,
    service: &mut impl DatagramService,
) -> Result<usize, Failure> {
    let arrived = queue.receive(counters)?;
    if arrived == 0 {
        return Ok(0);
    }
    // They are filled in place, since a batch of them is several kilobytes to move.
    let mut datagrams = ArrayVec::<_, BATCH_MAX>::new();
    let mut replies = Replies::new();
    let mut frames = ArrayVec::<_, BATCH_MAX>::new();
    frames.extend(queue.frames());
    datagrams.extend(frames.iter().map(|frame: &Frame<'_>| read(frame.received, counters)));
    serve(&mut frames, &datagrams, &mut replies, counters, service);
    drop(frames);
    let answered = queue.answer(&replies)?;
    count_answered(&datagrams, &replies, answered, counters);
    service.sent();
    Ok(arrived)
}

/// Returns the datagram of a frame, if it is one to serve. Counts it.
fn read(frame: &[u8], counters: &Counters) -> Option<Datagram> {
    // The program has checked the headers, but not all checksums, and a frame may come from another program.
    let Ok(datagram) = parse(frame) else {
        counters.xdp.drops.of(XdpDrop::Malformed).increment();
        return None;
    };
    if !datagram.checksum(frame).is_acceptable() {
        counters.xdp.drops.of(XdpDrop::BadChecksum).increment();
        return None;
    }
    let family = counters.family(&datagram.destination);
    if datagram.payload.len() > REQUEST_BYTES_MAX {
        family.unread.of(Unread::Oversized).increment();
        return None;
    }
    family.received.increment();
    Some(datagram)
}

/// Passes the datagrams to the service, and writes the headers of the replies.
fn serve(
    frames: &mut [Frame<'_>],
    datagrams: &[Option<Datagram>],
    replies: &mut Replies,
    counters: &Counters,
    service: &mut impl DatagramService,
) {
    let mut batch = ArrayVec::<_, BATCH_MAX>::new();
    for (frame, datagram) in frames.iter_mut().zip(datagrams) {
        if let Some(datagram) = datagram
            && let Some(reply) = frame.reply.last_chunk_mut()
        {
            let request = &frame.received[datagram.payload.clone()];
            batch.push(Exchange { source: datagram.source, request, reply, reply_len: 0 });
        }
    }
    if !batch.is_empty() {
        counters.batches.increment();
        service.serve(&mut batch);
    }
    let mut lengths = ArrayVec::<usize, BATCH_MAX>::new();
    lengths.extend(batch.iter().map(|exchange| exchange.reply_len));
    drop(batch);
    let mut lengths = lengths.iter().copied();
    let reply = |(frame, datagram): (&mut Frame<'_>, &Option<Datagram>)| {
        let (datagram, bytes) = (datagram.as_ref()?, lengths.next()?);
        if bytes == 0 {
            return None;
        }
        let head = write_reply_head(frame.received, datagram, frame.reply, REPLY_HEAD_BYTES_MAX, bytes);
        let Ok(start) = head else {
            counters.family(&datagram.destination).unsent.of(Unsent::Failed).increment();
            return None;
        };
        Some((start, REPLY_HEAD_BYTES_MAX + bytes - start))
    };
    replies.extend(frames.iter_mut().zip(datagrams).map(reply));
}

/// Counts the replies of a batch, the last of which were dropped.
fn count_answered(
    datagrams: &[Option<Datagram>],
    replies: &Replies,
    answered: Answered,
    counters: &Counters,
) {
    let replied = datagrams.iter().zip(replies).filter(|(_, reply)| reply.is_some());
    for (place, datagram) in replied.filter_map(|(datagram, _)| datagram.as_ref()).enumerate() {
        let family = counters.family(&datagram.destination);
        let counter = if place < answered.sent { &family.sent } else { family.unsent.of(Unsent::Full) };
        counter.increment();
    }
    counters.xdp.drops.of(XdpDrop::TransmitFull).add(answered.dropped as u64);
}
