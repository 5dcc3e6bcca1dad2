//! Stream I/O back ends (TCP and Unix sockets) behind one short trait.
//!
//! Owns listeners, connections, their time limits and their number, and moves bytes between them and a
//! [`StreamService`]. It must not look into what is received, nor decide anything about its sender.
//!
//! How a worker comes to its back end:
//! 1. [`StreamListeners::bind`] opens the listeners of all workers, where faults of the configuration show;
//! 2. handles for other threads are taken: [`StreamListeners::counters`];
//! 3. each worker thread calls [`StreamBackend::open`] on its own listeners, hands [`StreamIo::readiness`] to its
//!    datagram back end ([`crate::Sockets::watch`]), so that it waits in one place for both, and calls
//!    [`StreamIo::turn`] from then on.

mod accept;
mod backend;
mod budget;
mod conduct;
mod counters;
mod epoll;
mod holders;
mod limits;
mod listen;
mod phase;
mod queue;
mod roster;
mod shares;
mod slab;
mod socket_file;
mod sources;
mod uring;

use std::io;
use std::os::fd::OwnedFd;

pub use backend::{AnyStreamIo, StreamBackend, StreamChoice};
pub use budget::Budget;
pub use counters::{Evictions, StreamCounters};
pub use epoll::EpollIo;
pub use limits::StreamLimits;
pub use listen::{ListenAddress, ListenError, StreamListeners};
pub use sources::{Room, SourceLimits, Sources};
pub use uring::{UringIo, UringSettings};

use shoal_wire::stream::{Claim, Handle, Held, Next, Origin};

/// Most bytes that are taken from a connection at a time.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Most events that a turn sees to before the worker looks after its other duties. Of a listener, one event may be
/// several connections.
pub const TURN_EVENTS_MAX: usize = 256;

/// A stream back end of one worker: its listeners, its connections, and whatever it needs to serve them.
///
/// Duties of an implementation:
/// - `turn` never waits: it does what can be done now. [`StreamIo::readiness`] is a descriptor that is readable when
///   a turn has something to do;
/// - it hands all bytes of a connection to `service` in their order, and sends what the service appends to the output
///   in that order; while output waits for the peer to take it, nothing more is read from that connection;
/// - what the service says unasked is sent in the same order, at the end of each turn, and in one write as far as the
///   socket has room. What it has no room for waits; the service is told how much that is ([`StreamService::backlog`]),
///   and is not asked for more before all is sent. Meanwhile one input is heard at most, or two where replies to the
///   first are not among what waits: so a peer that takes nothing cannot have much held for it, and one for which others
///   have much to say is heard all the same, at the latest each time when it has taken it;
/// - an idle connection holds no buffer, nor does a standing one; a connection that waits holds what it waits with and no
///   more;
/// - it keeps the limits of [`StreamLimits`]: a connection that idles too long, takes too long over a request, or
///   does not take its answers is closed; a standing one has more time for what is said unasked; one whose peer is silent
///   is tended; when there are too many, one of the source that has most of them goes, and what its source has least need
///   of goes first ([`StreamLimits::connections_max`]);
/// - after each event of a connection it notes what that holds, with output that was not taken; when all together hold
///   more than the [`Budget`] of the worker, those of the sources that hold most are closed;
/// - what arrives after the last answer is read and thrown away for a moment before the socket is closed, so that no
///   reset overtakes the answer;
/// - a turn is bounded, and no listener or connection starves another;
/// - it counts, and never fails on what a peer can cause; out of descriptors, it closes a connection in the
///   same order and tries again, and never spins;
/// - in the settled state it allocates nothing for a request.
pub trait StreamIo<S: StreamService> {
    /// One turn, as described above, at `now_ms` (of any clock that never goes back). Returns how many accepts,
    /// inputs, outputs, speakers and ends it saw to: after none, the worker may wait.
    ///
    /// # Errors
    /// Only for faults of this host, such as a closed ring; the worker cannot go on.
    fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize>;

    /// Accepts those who wait, and then no more. What is under way goes on with further turns, which also close what
    /// idles, so many at a time.
    ///
    /// # Errors
    /// As [`StreamIo::turn`].
    fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()>;

    /// After the retirement: closes what is still open, a bounded number of connections a call, whatever they wait for.
    /// Who is in the middle of a request is told so. Returns how many it closed: after none, none is left.
    ///
    /// # Errors
    /// As [`StreamIo::turn`].
    fn finish(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize>;

    /// Gives back memory that is kept for later and has not been used for a while. To be called every few seconds.
    fn trim(&mut self);

    /// How many connections are open.
    fn connections(&self) -> usize;

    /// A descriptor of its own that becomes readable when a turn has something to do.
    ///
    /// # Errors
    /// Where the kernel has no more descriptors.
    fn readiness(&self) -> io::Result<OwnedFd>;
}

/// Whoever speaks on connections.
pub trait StreamService {
    /// What it keeps of a connection from one call to the next.
    type Session;

    /// A connection was accepted, which is called `handle` until it is closed.
    fn open(&mut self, origin: &Origin, handle: Handle) -> Self::Session;

    /// Bytes have arrived: takes all of `input` (whose room it may use), appends what is to be sent to `output`, and
    /// tells what the connection waits for. With an empty input it is asked to go on after [`Next::More`].
    fn receive(&mut self, session: &mut Self::Session, input: &mut [u8], output: &mut Vec<u8>) -> Next;

    /// Returns what the connection counts towards from now on, where that has changed since the last call. Asked for after
    /// each [`StreamService::receive`]. At first a connection counts towards its origin if that is limited
    /// ([`StreamService::is_limited`]). The service asks [`shoal_wire::stream::SourceRoom`] for room beforehand, since
    /// what it tells here is not refused.
    fn claim(&mut self, _session: &mut Self::Session) -> Option<Claim> {
        None
    }

    /// The next connection that is to speak without having been asked, in a turn after which nobody else is named. Asked
    /// for at the end of each turn, so that all that waits for a connection at a moment leaves in one write. One that has
    /// not taken what it was told before is put off, see [`StreamService::backlog`]; one that has gone, or is not [`Next::Standing`] or within a message, is passed over: what waits for it is lost.
    fn speaker(&mut self) -> Option<Handle> {
        None
    }

    /// Appends to `output` what waits for the connection, and tells what that waits for now. Being spoken to does not
    /// prolong the time of a request, nor end the silence of a standing connection.
    fn speak(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) -> Next {
        Next::Standing
    }

    /// Of what was said on a connection, so many bytes wait for its peer to take them. What the service says next is not
    /// asked for before this is called with zero, and until then it should not name the connection as a speaker.
    fn backlog(&mut self, _handle: Handle, _unsent_bytes: usize) {}

    /// The peer of a standing connection has been silent for as long as it may: it may be asked for a sign of life, for
    /// which it has as much time again, or given up.
    fn tend(&mut self, _session: &mut Self::Session, _output: &mut Vec<u8>) -> Next {
        Next::Close
    }

    /// The time of the connection is up, or the tracker stops. It may append last words, then it is closed.
    fn expire(&mut self, session: &mut Self::Session, output: &mut Vec<u8>);

    /// The connection holds more memory than others, and there is not enough. It may append last words, then it is closed.
    fn shed(&mut self, session: &mut Self::Session, output: &mut Vec<u8>) {
        self.expire(session, output);
    }

    /// What the connection holds beside its session.
    fn held(&self, _session: &Self::Session) -> Held {
        Held::default()
    }

    /// There is no room for a connection from `origin`. It may be told so, as far as that fits a packet.
    fn refuse(&mut self, origin: &Origin, output: &mut Vec<u8>);

    /// The connection is gone, for whatever reason.
    fn close(&mut self, session: Self::Session);

    /// Whether connections from there count towards the limit of their source. Those of a proxy should not.
    fn is_limited(&self, origin: &Origin) -> bool;
}
