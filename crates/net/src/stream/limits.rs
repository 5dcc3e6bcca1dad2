//! How many connections there may be, and how long each may take.

use super::SourceLimits;

/// The limits of one worker's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Most connections of this worker. When it is reached, a connection of the source that has most of them makes room
    /// for the next: the one that has been idle longest, or else one that lingers, stands, is sent something, or is in a
    /// request, in this order. A source that has as many itself is refused instead.
    pub connections_max: usize,
    /// Most connections of one source, over all workers.
    pub per_source: SourceLimits,
    /// Longest time between two requests of a connection.
    pub idle_ms_max: u64,
    /// Longest time for a request to arrive whole, or for a handshake. Where further requests begin before the connection
    /// was idle, the waits for them add up, and none begins that would be waited for once the sum has come to this.
    pub request_ms_max: u64,
    /// Longest time for the peer to take what one call of the service gave it; where more is said meanwhile, to catch up.
    pub send_ms_max: u64,
    /// Longest time, in sum, for the peer to take what several calls gave it without the connection having been idle. It
    /// does not hold for connections of [`shoal_wire::stream::Class::WebSocket`].
    pub answer_ms_max: u64,
    /// Longest time for which the peer of a standing connection may be silent before the service has to tend it.
    pub silent_ms_max: u64,
    /// Most bytes that wait for the peer of a standing connection to take them. When there are more, it is closed.
    pub unsent_bytes_max: usize,
}
