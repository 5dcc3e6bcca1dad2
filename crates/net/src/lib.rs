//! I/O back ends for datagrams behind one short trait; the I/O of streams is in [`stream`].
//!
//! Owns sockets and rings, and moves bytes between them and a [`DatagramService`]. It must not look into a datagram, nor
//! decide anything about its sender: what an answer is, is the business of whoever implements [`DatagramService`].
//!
//! How a worker comes to its back end:
//! 1. [`Sockets::bind`] opens the sockets of all workers, where faults of the configuration show;
//! 2. handles for other threads are taken: [`Sockets::waker`], [`Sockets::counters`], [`Sockets::probes`];
//! 3. each worker thread calls [`Backend::open`] on its own `Sockets`, and [`DatagramIo::turn`] from then on.
//!
//! A client, such as a load generator, has the same back ends: [`Sockets::connect`] opens its sockets, a [`Bundler`]
//! sends from them, and [`DatagramIo::turn`] hands the replies to a [`DatagramService`] that leaves `reply_len` at 0.
//!
//! `unsafe` lives in the modules that talk to the kernel by pointers, and nowhere else: `shared`,
//! `ring`, `ring::provided`, `socket::options`, `bundle`, `mmsg::{inbox, outbox}` and `uring::{receive, slot}`.

mod backend;
mod bundle;
mod counters;
mod echo;
mod fault;
mod mmsg;
mod ring;
mod shared;
mod socket;
pub mod stream;
mod uring;
mod waker;

use std::io;
use std::time::Duration;

use shoal_transport::datagram::DatagramService;

pub use backend::{AnyIo, Backend, Choice, UnknownBackend, Unsupported};
pub use bundle::{BUNDLE_MAX, Bundler};
pub use counters::{Counter, Counters, FamilyCounters};
pub use echo::Echo;
pub use mmsg::MmsgIo;
pub use ring::TaskRun;
pub use socket::{
    BindError, BufferShortfall, ClientSettings, ConnectError, SOCKETS_MAX, SocketMemory, SocketProbe,
    SocketSettings, Sockets,
};
pub use uring::{UringIo, UringSettings};
pub use waker::Waker;

/// Longest request that is served. A longer datagram is dropped and counted, never served in part.
/// The longest honest one, a scrape or an announce with options, fits an Ethernet frame of 1500 bytes.
pub const REQUEST_BYTES_MAX: usize = 2048;

/// Most batches that one socket gets in a turn (mmsg), or that a turn serves (uring, whose batches mix sockets in
/// the order of arrival). At 64 datagrams of about 5 µs each, two sockets hold the thread for under 3 ms.
pub const TURN_BATCHES_MAX: usize = 4;

/// A datagram back end of one worker: its sockets, and whatever it needs to batch over them.
///
/// Duties of an implementation:
/// - `turn` waits until a datagram has arrived on any socket, `timeout` has passed, the worker's [`Waker`] was used,
///   or what [`Sockets::watch`] was given is readable, whichever is first; a wake before the turn counts too;
/// - it hands every datagram to `service` exactly once, in batches of at most `BATCH_MAX`, then sends the replies
///   from the local address that was asked; when it returns, the kernel has all of them;
/// - within one turn every socket gets at most a bounded number of batches, so that no family starves another
///   and the caller gets the thread back under saturation;
/// - it counts what it drops and never fails on what a peer can cause (ICMP errors, truncation, a full send queue);
/// - it allocates nothing after it was opened.
pub trait DatagramIo {
    /// One turn, as described above. Returns how many datagrams it took from the sockets, those it dropped included.
    ///
    /// # Errors
    /// Only for faults of this host, such as a closed ring; the worker cannot go on.
    fn turn(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize>;

    /// Serves what is queued in the sockets, without waiting, until nothing is left or `goes_on`, which is asked after
    /// each turn, says no (a flood never leaves nothing): the last thing a worker does.
    ///
    /// # Errors
    /// As [`DatagramIo::turn`].
    fn drain(
        &mut self,
        service: &mut impl DatagramService,
        mut goes_on: impl FnMut() -> bool,
    ) -> io::Result<()> {
        while self.turn(Duration::ZERO, service)? > 0 && goes_on() {}
        Ok(())
    }
}
