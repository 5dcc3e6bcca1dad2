//! Stream I/O (TCP and Unix sockets).
//!
//! This module owns listeners, connections, their time limits and their number, and moves bytes between them and a
//! [`StreamService`](shoal_base::transport::stream::StreamService). It must not interpret the bytes, nor decide
//! anything about their sender.
//!
//! A worker uses it as follows:
//! 1. [`StreamListeners::bind`] opens the listeners of all workers. Configuration errors show here.
//! 2. Other threads take their handles: [`StreamListeners::counters`].
//! 3. Each worker thread calls [`StreamIo::open`] on its own listeners, passes [`StreamIo::readiness`] to its datagram
//!    back end ([`crate::DatagramIo::watch`]) so that it waits for both in one place, and then calls [`StreamIo::poll`]
//!    in a loop.
//!
//! Connections have one back end, over epoll. An io_uring back end was measured, improved, measured again and removed
//! (`bench-runs/ways-tried.md`). A worker waits in its datagram back end, which also watches the epoll set of its
//! connections. So either datagram back end works with streams, and neither side knows the other.
//!
//! A Unix socket has one listener for all workers, each of which watches it exclusively (EPOLLEXCLUSIVE). That works
//! only if a worker waits in the epoll set that contains the listener. So with a shared listener, `mmsg` waits in the
//! set of the connections. After an accept, the worker moves behind the others in the queue of the listener. `uring`
//! waits in its ring, so a connection still wakes all idle workers there.
//!
//! The kernel hands a connection over when its first bytes have arrived (TCP_DEFER_ACCEPT), because the client sends
//! first in all these protocols. A connection with a single request costs accept, receive, send and close, and one
//! without input costs the worker nothing at first.

mod accept;
mod connection;
mod counters;
mod io;
mod lifecycle;
mod limits;
mod listen;
mod memory;
mod queue;
mod shares;
mod slab;
mod socket_file;
mod sources;
mod table;
mod transfer;
mod tunnel;
mod turn;

pub use counters::{Direction, EndReason, StreamCounters};
pub use io::{Readiness, StreamIo};
pub use limits::{Budget, StreamLimits};
pub(crate) use listen::serves;
pub use listen::{BACKLOG, ListenError, StreamListeners};
pub use shoal_base::transport::stream::ListenAddress;

pub use sources::{SourceLimiter, SourceLimits, Sources};
pub use table::Phase;
pub use transfer::DetachedConnection;
pub use tunnel::Tunnels;

/// Maximum number of bytes received from a connection at a time. An announce with ten offers of a browser fits. With
/// more, each connection waits longer behind connections with constant input.
pub const INPUT_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of events of a poll round, after which the worker does its other duties. One event of a listener can be
/// several connections.
pub const POLL_EVENTS_MAX: usize = 1024;

/// Maximum number of connections that a poll round closes because of their time.
pub const CLOSES_MAX: usize = 256;
