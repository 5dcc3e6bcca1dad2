//! I/O back ends for datagrams behind one short trait. The I/O of streams is in [`stream`].
//!
//! This crate owns sockets and rings, and moves bytes between them and a [`DatagramService`] or
//! [`StreamService`](shoal_base::transport::stream::StreamService). It must not interpret the bytes, nor decide
//! anything about the sender.
//!
//! A worker uses a back end as follows:
//! 1. [`Sockets::bind`] opens the sockets of all workers. Configuration errors show here.
//! 2. Other threads take their handles: [`Sockets::waker`], [`Sockets::counters`], [`Sockets::probes`].
//! 3. Each worker thread calls [`Backend::open`] on its own `Sockets`, and then [`DatagramIo::poll`] in a loop.
//!
//! Datagrams can also bypass the kernel's socket path, through AF_XDP sockets of [`shoal_xdp`]. Each is an
//! [`XdpQueue`]. [`PreparedIo::with_xdp`] adds it to a worker's sockets. [`AnyIo::take_xdp`] returns it for a change of
//! the ordinary sockets.
//!
//! A client, such as a load generator, uses the same back ends. [`Sockets::connect`] opens its sockets, a
//! [`SegmentedSender`] sends from them, and [`DatagramIo::poll`] passes the replies to a [`DatagramService`] that
//! leaves `reply_len` at 0.
//!
//! `unsafe` occurs only in the modules that pass pointers to the kernel: `shared`, `ring`, `ring::provided`,
//! `socket::options`, `segmentation`, `mmsg::{receive, send}`, `uring::{receive, slot}` and the end of `uring`; and in `names`.
//!
//! io_uring and `recvmmsg`/`sendmmsg` behave the same: one black-box suite runs over both. `docs/benchmarking.md` has
//! the figures that decided the default. Memory that io_uring may use stays mapped, even after its owner, until the
//! ring has completed all operations.

mod backend;
mod counters;
mod echo;
mod fault;
mod inherited;
mod mmsg;
pub mod names;
mod ring;
mod segmentation;
mod shared;
mod socket;
pub mod stream;
mod uring;
mod waker;
mod xdp;

use std::io;
use std::time::Duration;

use shoal_base::transport::datagram::DatagramService;

pub use backend::{AnyIo, Backend, Choice, PreparedIo, UnknownBackend, Unsupported};
pub use counters::{Counters, FamilyCounters, Unread, Unsent, XdpCounters, XdpDrop};
pub use echo::Echo;
pub use inherited::{InheritedSocket, InheritedSockets, SocketKind};
pub use mmsg::MmsgIo;
pub use ring::TaskRun;
pub use segmentation::{SEGMENTS_MAX, SegmentedSender};
pub use socket::{
    BindError, BufferShortfall, ClientSettings, ConnectError, SOCKETS_MAX, SocketMemory, SocketProbe,
    SocketSettings, Sockets,
};
pub use uring::{UringIo, UringSettings};
pub use waker::Waker;
pub use xdp::{QueueLoss, XdpIo, XdpQueue};

/// Maximum length of a request. A longer datagram is dropped and counted, never served in part. The longest honest
/// request, a scrape or an announce with options, fits an Ethernet frame of 1500 bytes.
pub const REQUEST_BYTES_MAX: usize = 2048;

/// Maximum number of batches for each socket in a poll round (mmsg), or for the whole round (uring, whose batches mix
/// sockets in the order of arrival). With 64 datagrams of about 5 µs each, two sockets occupy the thread for less than
/// 3 ms.
pub const POLL_BATCHES_MAX: usize = 4;

/// A datagram back end of one worker: its sockets, and the buffers for batches.
///
/// Duties of an implementation:
/// - `poll` waits until a datagram arrives on any socket, `timeout` passes, the worker's [`Waker`] is used, or the
///   descriptor given to [`DatagramIo::watch`] is readable. A wake before the call counts too.
/// - It passes every datagram to `service` exactly once, in batches of at most `BATCH_MAX`, and then sends the replies
///   from the local addresses of the requests. When it returns, the kernel has all of them.
/// - Within one poll round, every socket gets a bounded number of batches. No family starves another, and the caller
///   regains control even under saturation.
/// - It counts dropped datagrams, and never fails because of errors that a peer can cause (ICMP errors, truncation, a
///   full send queue).
/// - It allocates nothing after it was opened.
pub trait DatagramIo {
    /// Runs a poll round, as described above. Returns the number of datagrams received, including dropped ones. Fails
    /// with errors of this host that make it impossible to continue, such as a closed ring.
    fn poll(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize>;

    /// Serves the datagrams queued in the sockets, without waiting, until none is left or `should_continue` returns
    /// false. It is called after each poll round, because a flood always leaves some. A worker does this last. Fails as
    /// [`DatagramIo::poll`] does.
    fn drain(
        &mut self,
        service: &mut impl DatagramService,
        mut should_continue: impl FnMut() -> bool,
    ) -> io::Result<()> {
        while self.poll(Duration::ZERO, service)? > 0 && should_continue() {}
        Ok(())
    }

    /// Waits for `time`, so that the next poll round takes all datagrams that arrive meanwhile in a few system calls. The
    /// worker's [`Waker`] and the watched descriptor end the wait, and the wait of that round as well. It may end at once
    /// where a back end cannot tell datagrams from other events. Fails as [`DatagramIo::poll`] does.
    ///
    /// The kernel may add its timer slack, 50 µs by default (`PR_SET_TIMERSLACK`).
    fn coalesce(&mut self, time: Duration) -> io::Result<()>;

    /// Makes a poll round also end when `readiness` is readable, so that a worker can wait for both in one place.
    /// Replaces an earlier one. Fails if the kernel lacks memory.
    fn watch(&mut self, readiness: Option<stream::Readiness>) -> io::Result<()>;

    /// Serves the datagrams that the back end has already taken from the kernel, and takes no more until the next poll
    /// round. Later datagrams wait in the sockets, where another process can receive them. Fails as
    /// [`DatagramIo::poll`] does.
    fn pause(&mut self, service: &mut impl DatagramService) -> io::Result<()>;
}
