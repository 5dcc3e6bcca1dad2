//! Stream I/O (TCP and Unix sockets).
//!
//! Owns listeners, connections, their time limits and their number, and moves bytes between them and a
//! [`StreamService`]. It must not look into what is received, nor decide anything about its sender.
//!
//! How a worker comes to it:
//! 1. [`StreamListeners::bind`] opens the listeners of all workers, where faults of the configuration show;
//! 2. handles for other threads are taken: [`StreamListeners::counters`];
//! 3. each worker thread calls [`StreamIo::open`] on its own listeners, hands [`StreamIo::readiness`] to its
//!    datagram back end ([`crate::Sockets::watch`]), so that it waits in one place for both, and calls
//!    [`StreamIo::turn`] from then on.

mod accept;
mod connection;
mod counters;
mod holders;
mod io;
mod lifecycle;
mod limits;
mod listen;
mod queue;
mod roster;
mod shares;
mod slab;
mod socket_file;
mod sources;

pub use counters::{Evictions, StreamCounters};
pub use io::StreamIo;
pub use limits::{Budget, StreamLimits};
pub use listen::{ListenAddress, ListenError, StreamListeners};
pub use sources::{Room, SourceLimits, Sources};

use shoal_wire::stream::{Claim, Handle, Held, Next, Origin};

/// The maximum number of bytes taken from a connection at a time. An announce with ten offers of a browser fits. With more,
/// each connection waits longer for its turn behind others that always have input.
pub const INPUT_BYTES_MAX: usize = 32 * 1024;

/// Most events that a turn sees to before the worker looks after its other duties. Of a listener, one event may be
/// several connections.
pub const TURN_EVENTS_MAX: usize = 256;

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

    /// Returns the next connection whose peer may be gone. Asked for at the end of each poll round.
    fn suspect(&mut self) -> Option<Handle> {
        None
    }

    /// Reports that the peer of the connection that was last returned by [`StreamService::suspect`] is still receiving
    /// earlier output, so it may not have seen the last of it.
    fn vouch(&mut self) {}

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
