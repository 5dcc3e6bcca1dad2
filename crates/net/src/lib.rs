//! Datagram I/O back ends behind one short trait.
//!
//! Owns sockets and rings, and moves bytes. It must not look into a datagram.

use std::io;
use std::time::Duration;

use shoal_wire::datagram::Exchange;

/// A datagram back end of one worker: its sockets, and whatever it needs to batch over them.
///
/// Duties of an implementation:
/// - `turn` waits until a datagram has arrived on any socket or `timeout` has passed, whichever is first;
/// - it hands every datagram to `service` exactly once, in batches of at most `BATCH_MAX`, then sends the replies
///   from the local address that was asked;
/// - within one turn every socket gets at most a bounded number of batches, so that no family starves another
///   and the caller gets the thread back under saturation;
/// - it counts what it drops and never fails on what a peer can cause (ICMP errors, truncation, a full send queue).
pub trait DatagramIo {
    /// One turn, as described above.
    ///
    /// # Errors
    /// Only for faults of this host, such as a closed ring; the worker cannot go on.
    fn turn(&mut self, timeout: Duration, service: &mut impl Service) -> io::Result<()>;
}

/// Whoever answers datagrams.
pub trait Service {
    /// Answers a batch: reads each request, writes each reply or leaves `reply_len` at 0.
    fn serve(&mut self, batch: &mut [Exchange<'_>]);
}
