//! The decisions of a tracker: from a request to its reply.
//!
//! This crate decides which requests are served, for which clients, and how they are answered: connection ids,
//! address rules, roles, limits and intervals. The rules that hold for every protocol are in [`policy`],
//! [`address`] and [`refusal`]. [`udp`] applies them to datagrams, [`http`] to queries and [`webtorrent`] to
//! messages.
//!
//! The crate must not touch sockets, threads or clocks: time and randomness are arguments. The outcome is bytes
//! in the caller's buffer and counts in [`counter`]. Nothing that arrives from the network makes it panic or
//! allocate.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod address;
mod batch;
mod caller;
pub mod connection_id;
pub mod context;
pub mod counter;
pub mod credit;
pub mod http;
pub mod insight;
pub mod limits;
pub mod pace;
pub mod policy;
pub mod processing;
pub mod refusal;
pub mod replication;
pub mod suspension;
pub mod tokens;
pub mod udp;
pub mod watch;
pub mod webtorrent;

/// The clock readings of one batch. The owner of the clocks reads them once for the whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Seconds on a clock that never goes back, from an arbitrary start. The ages of peers are measured on it.
    pub monotonic_s: u32,
    /// Milliseconds on the same clock. The rates of sources are measured on it.
    pub monotonic_ms: u64,
    /// Seconds since 1970 on the wall clock. Several nodes share it, and an operator may set it. Connection ids
    /// are made from it.
    pub unix_s: u64,
}

impl Now {
    /// Returns [`monotonic_ms`](Self::monotonic_ms) in nanoseconds.
    pub(crate) const fn monotonic_ns(&self) -> u64 {
        const NS_PER_MS: u64 = 1_000_000;
        self.monotonic_ms.saturating_mul(NS_PER_MS)
    }
}
