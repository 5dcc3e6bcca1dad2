//! How many connections there may be, and how long each may take.

/// The limits of one worker's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Most connections of this worker. When it is reached, the one that has idled longest makes room for the next, or
    /// where none idles the standing one whose peer has been silent longest.
    pub connections_max: usize,
    /// Most connections of one source address, over all workers. An IPv6 source is a /64.
    pub connections_per_source_max: usize,
    /// Longest time between two requests of a connection.
    pub idle_ms_max: u64,
    /// Longest time for a request to arrive whole, or for a handshake.
    pub request_ms_max: u64,
    /// Longest time for the peer to take what one call of the service gave it; six times that where it was said unasked.
    pub send_ms_max: u64,
    /// Longest time for which the peer of a standing connection may be silent before the service has to tend it.
    pub silent_ms_max: u64,
}
