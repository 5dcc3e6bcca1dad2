//! Counters of connections, for export.

use shoal_base::metrics::{Counter, counters, labels};

use super::table::Phase;

labels! {
    /// Why a connection ends otherwise than by a regular close of the client.
    pub enum EndReason {
        /// The worker is full, and no source has more of its connections than the source of this one.
        RefusedShare = "refused_share",
        /// Its source has the maximum number of connections.
        RefusedSource = "refused_source",
        /// Its source opens connections more often than the service allows, or is banned.
        RefusedRate = "refused_rate",
        /// There is no memory for another connection, and none that could be closed instead.
        RefusedMemory = "refused_memory",
        /// All connections together hold too much memory. Connections of the sources that hold most go first.
        EvictedMemory = "evicted_memory",
        /// It makes room for another.
        Evicted = "evicted",
        /// No request arrived for too long.
        Idle = "idle",
        /// A request or handshake took too long.
        SlowRequest = "slow_request",
        /// The peer did not read its replies.
        SlowReader = "slow_reader",
        /// It is upgraded, and the service gave it up because its peer was silent for too long.
        Silent = "silent",
        /// The connection had an error, such as a reset.
        Failed = "failed",
    }
}

labels! {
    /// The direction of bytes.
    pub enum Direction {
        /// Received.
        In = "in",
        /// Sent.
        Out = "out",
    }
}

counters! {
    /// The counters of one worker's connections.
    pub struct StreamCounters {
        /// Accepted connections, including those that were then refused.
        pub accepted = "shoal_connections_accepted";
        /// Connections closed, for any reason. The difference is the number of open connections.
        pub closed: Counter;
        /// Connections that did not end with a regular close by the client, by reason.
        pub ended = "shoal_connections_ended", by reason: EndReason;
        /// Connections closed to make room for others, by the phase that they were in.
        pub evicted = "shoal_connections_evicted", by phase: Phase;
        /// Connections closed to make room for others because their source had more connections than others.
        pub evicted_greedy = "shoal_connections_evicted_greedy";
        /// WebSocket upgrades, and clients named by the PROXY protocol, refused because their source has too many.
        pub refused_named = "shoal_connections_refused_named";
        /// Failed accepts, mostly for lack of file descriptors.
        pub accept_failed = "shoal_accepts_failed";
        /// Bytes sent and received on connections, including TLS overhead.
        pub bytes = "shoal_connection_bytes", by direction: Direction;
        /// Writes that sent bytes.
        pub writes: Counter;
    }
}

impl StreamCounters {
    /// Counts received bytes.
    pub(super) fn add_received(&self, received: usize) {
        self.bytes.of(Direction::In).add(received as u64);
    }

    /// Counts a write of this many bytes.
    pub(super) fn add_write(&self, sent: usize) {
        if sent > 0 {
            self.bytes.of(Direction::Out).add(sent as u64);
            self.writes.increment();
        }
    }
}
