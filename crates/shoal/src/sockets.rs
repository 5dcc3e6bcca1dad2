//! The sockets of a tracker: those that it binds at the start, those that a service manager passes to it, and how a reload
//! changes them.
//!
//! Sockets are bound before the tracker gives up its privileges. Afterwards, only the broker can bind.

pub(crate) mod activation;
pub(crate) mod bound;
mod host;
pub(crate) mod listening;
