//! One AF_XDP socket, and the reports about it to the eBPF program.
//!
//! The program passes frames on only while fewer are on their way than the socket has room for, and leaves the others
//! to the kernel. It knows how many it has passed on; this module tells it how many of these have come through.
//!
//! A full ring would drop packets, so the difference never reaches its size. The ordinary sockets of the same worker
//! serve the rest.

use std::sync::{Arc, OnceLock};

use shoal_xdp::program::Backlog;
use shoal_xdp::socket::{Answered, Failure, Faults, Frame, XdpSocket};

use super::Replies;
use crate::Counters;
use crate::counters::{XdpCounters, XdpDrop};

/// How many frames may be on their way after a correction of the count, until one arrives. Some interfaces drop
/// everything that is passed to their sockets, and their count would be corrected again and again.
const PROBING_FRAMES: u64 = 64;

/// A queue of an interface, which a worker serves.
#[derive(Debug)]
pub struct XdpQueue {
    socket: XdpSocket,
    /// The record that the program reads.
    backlog: Option<Backlog>,
    /// Whether the rings belong to this process. Otherwise, another one uses them until this one's first poll round.
    is_own: bool,
    /// How many frames have come through, in the program's count: received ones, and those that the kernel has dropped.
    consumed: u64,
    /// How many frames the program had passed on when nothing arrived.
    idle_at: Option<u64>,
    /// Whether a frame has arrived since the last report.
    has_received: bool,
    /// Whether the count was corrected, and nothing has arrived since.
    is_probing: bool,
    /// Whether the kernel has not taken all replies, or has not been called since the last ones.
    has_unsent: bool,
    kernel: KernelCounts,
    faults: Faults,
    loss: QueueLoss,
}

/// Why a socket was given up, once it was. Another thread than its worker reads it.
#[derive(Clone, Debug, Default)]
pub struct QueueLoss(Arc<OnceLock<Failure>>);

impl QueueLoss {
    /// Returns the reason, if the socket was given up.
    pub fn reason(&self) -> Option<&Failure> {
        self.0.get()
    }
}

/// The kernel's counts at the socket when they were last read.
#[derive(Clone, Copy, Debug, Default)]
struct KernelCounts {
    ring_full: u64,
    dropped: u64,
    invalid: u64,
}

impl XdpQueue {
    /// Makes a queue of a socket. From now on the program of the backlog passes frames on, if it knows the socket.
    pub fn new(socket: XdpSocket, backlog: Option<Backlog>) -> Self {
        let mut queue = Self::handed_over(socket, backlog);
        queue.begin();
        queue
    }

    /// Makes a queue of a socket that another process uses until this one's first poll round.
    pub fn handed_over(socket: XdpSocket, backlog: Option<Backlog>) -> Self {
        let (kernel, faults) = (KernelCounts::read(&socket).unwrap_or_default(), socket.faults());
        Self {
            socket,
            backlog,
            is_own: false,
            consumed: 0,
            idle_at: None,
            has_received: false,
            is_probing: false,
            has_unsent: false,
            kernel,
            faults,
            loss: QueueLoss::default(),
        }
    }

    /// Returns whether no other process uses the rings.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Continues after another process has stopped using the socket.
    pub fn recover(&mut self) {
        self.socket.recover();
        self.begin();
    }

    /// Returns the socket.
    pub fn socket(&self) -> &XdpSocket {
        &self.socket
    }

    /// Returns a handle that will tell why the socket was given up.
    pub fn loss(&self) -> QueueLoss {
        self.loss.clone()
    }

    /// Ends it. The program leaves all frames to the kernel.
    pub(super) fn abandon(self, reason: Failure) {
        // It is given up once.
        let _ = self.loss.0.set(reason);
        if let Some(backlog) = &self.backlog {
            backlog.set_frames_max(0);
        }
    }

    /// Begins to count. Waiting frames in the ring count as on their way, from any program.
    fn begin(&mut self) {
        let arrived = self.socket.arrived().map_or(0, u64::from);
        let redirected = self.backlog.as_ref().map_or(0, Backlog::redirected);
        self.kernel = KernelCounts::read(&self.socket).unwrap_or_default();
        self.consumed = redirected.wrapping_sub(arrived);
        (self.has_unsent, self.is_own) = (true, true);
        self.publish();
        self.set_probing(false);
    }

    /// Tells the program how many frames may be on their way.
    fn set_probing(&mut self, is_probing: bool) {
        self.is_probing = is_probing;
        if let Some(backlog) = &self.backlog {
            let frames = u64::from(self.socket.receiving_max());
            backlog.set_frames_max(if is_probing { frames.min(PROBING_FRAMES) } else { frames });
        }
    }

    pub(super) fn has_arrived(&mut self) -> Result<bool, Failure> {
        self.socket.has_arrived()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Takes a batch of frames into service. Returns their number.
    pub(super) fn receive(&mut self, counters: &Counters) -> Result<usize, Failure> {
        let arrived = self.socket.receive()?;
        self.consumed = self.consumed.wrapping_add(arrived as u64);
        counters.xdp.frames.add(arrived as u64);
        self.has_received |= arrived > 0;
        if arrived > 0 && self.is_probing {
            self.set_probing(false);
        }
        Ok(arrived)
    }

    pub(super) fn frames(&mut self) -> impl Iterator<Item = Frame<'_>> {
        self.socket.frames()
    }

    /// Passes the replies of the batch on, which [`XdpQueue::settle`] sends.
    pub(super) fn answer(&mut self, replies: &Replies) -> Result<Answered, Failure> {
        let answered = self.socket.answer(replies.iter().copied())?;
        self.has_unsent |= answered.sent > 0;
        Ok(answered)
    }

    /// Makes the kernel send remaining replies, and takes back sent frames.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        if self.has_unsent {
            self.has_unsent = self.socket.flush()? > 0;
        }
        let owned = self.socket.owned();
        if owned.transmitting > 0 || owned.receiving < self.socket.receiving_max() {
            self.socket.recycle()?;
            self.publish();
        }
        Ok(())
    }

    /// Adds up the kernel's counts since the last time. `is_idle` means that the worker had nothing to do.
    pub(super) fn report(&mut self, counters: &XdpCounters, is_idle: bool) {
        if let Some(kernel) = KernelCounts::read(&self.socket) {
            let before = std::mem::replace(&mut self.kernel, kernel);
            let [full, dropped, invalid] = [
                kernel.ring_full.wrapping_sub(before.ring_full),
                kernel.dropped.wrapping_sub(before.dropped),
                kernel.invalid.wrapping_sub(before.invalid),
            ];
            counters.drops.of(XdpDrop::KernelRingFull).add(full);
            counters.drops.of(XdpDrop::KernelOther).add(dropped);
            counters.drops.of(XdpDrop::KernelInvalid).add(invalid);
            self.consumed = self.consumed.wrapping_add(full).wrapping_add(dropped);
        }
        let faults = self.socket.faults();
        counters.drops.of(XdpDrop::BadDescriptor).add(faults.bad_descriptors - self.faults.bad_descriptors);
        counters.drops.of(XdpDrop::Malformed).add(faults.too_long - self.faults.too_long);
        self.faults = faults;
        // Other sockets may get all arriving frames, since the program believes that this one is busy.
        let has_received = std::mem::take(&mut self.has_received);
        self.correct(is_idle || !has_received);
        self.publish();
    }

    /// Corrects the count if it has drifted. The kernel drops some frames without counting them at the socket, for
    /// example while the interface goes down. Frames that the program passed on before a time without arrivals have
    /// come through.
    fn correct(&mut self, is_idle: bool) {
        let Some(backlog) = self.backlog.as_ref().filter(|_| is_idle) else {
            self.idle_at = None;
            return;
        };
        let redirected = backlog.redirected();
        if self.idle_at.replace(redirected) == Some(redirected) && self.consumed != redirected {
            self.consumed = redirected;
            self.set_probing(true);
        }
    }

    /// Tells the program how many frames have come through. Frames that the kernel lacks for receiving count as on
    /// their way, so that the program does not pass on frames that the kernel would have to drop.
    fn publish(&mut self) {
        let Some(backlog) = &self.backlog else { return };
        // Another program may have passed frames on, as after an upgrade: this one's count is a bound. The ring is read
        // first, so a frame that arrives meanwhile is in both.
        let waiting = self.socket.arrived().map_or(0, u64::from);
        let consumed_max = backlog.redirected().wrapping_sub(waiting);
        if is_less(consumed_max, self.consumed) {
            self.consumed = consumed_max;
        }
        let missing = self.socket.receiving_max().saturating_sub(self.socket.owned().receiving);
        backlog.publish(self.consumed.wrapping_sub(missing.into()));
    }
}

/// Returns whether a count is less than another. Either may have passed its maximum.
fn is_less(count: u64, other: u64) -> bool {
    count.wrapping_sub(other).cast_signed() < 0
}

impl KernelCounts {
    fn read(socket: &XdpSocket) -> Option<Self> {
        let counts = socket.statistics().ok()?;
        Some(Self {
            ring_full: counts.rx_ring_full.unwrap_or(0),
            dropped: counts.rx_dropped,
            invalid: counts.tx_invalid_descs,
        })
    }
}
