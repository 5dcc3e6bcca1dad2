//! The contracts between I/O and protocol code.
//!
//! I/O moves bytes and does not know their meaning. Protocol code knows it, but no sockets. This module owns the traits
//! and types at the border between the two, so that neither depends on the other:
//!
//! | | the shape | I/O (`shoal-net`) | protocol code |
//! |---|---|---|---|
//! | [`datagram`] | a batch of [`Exchange`](datagram::Exchange)s: a borrowed request, a buffer for its reply | fills in requests, sends replies | implements [`DatagramService`](datagram::DatagramService) |
//! | [`stream`] | bytes in, bytes appended to an output, and the [`Next`](stream::Next) event to wait for | calls and closes, keeps time and limits | implements [`StreamService`](stream::StreamService) |
//!
//! The module has no sockets, no clock, no allocation and no dependency, and takes no decisions.

pub mod datagram;
pub mod stream;
