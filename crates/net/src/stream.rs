//! Stream I/O (TCP and Unix sockets).
//!
//! Owns listeners, connections, their time limits and their number, and moves bytes between them and a
//! [`StreamService`](shoal_transport::stream::StreamService). It must not look into what is received, nor decide anything about its sender.
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
pub use sources::{SourceLimiter, SourceLimits, Sources};

/// The maximum number of bytes taken from a connection at a time. An announce with ten offers of a browser fits. With more,
/// each connection waits longer for its turn behind others that always have input.
pub const INPUT_BYTES_MAX: usize = 32 * 1024;

/// Most events that a turn sees to before the worker looks after its other duties. Of a listener, one event may be
/// several connections.
pub const TURN_EVENTS_MAX: usize = 256;
