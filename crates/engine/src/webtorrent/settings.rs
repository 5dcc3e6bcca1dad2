//! What the operator decides about WebTorrent.

/// The operator's decisions, as plain values. How long a silent peer is remembered and how many there may be is decided
/// in `shoal_relay::Settings`, how large a message may be where it is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seconds after which a client is to announce again, at the least.
    pub interval_s: u32,
    /// Most seconds that are added to the interval at random.
    pub interval_jitter_s: u32,
    /// Most offers of an announce that are relayed, each to another peer.
    pub offers_max: usize,
    /// Offers relayed for a client that does not say how many peers it wants, if it makes as many.
    pub numwant_default: usize,
    /// Most bytes of one offer or answer. A larger offer is left out, a larger answer refused.
    pub offer_bytes_max: usize,
    /// Most torrents of a scrape that are answered.
    pub scrape_hashes_max: usize,
    /// Most peers of one connection: torrents, times the peer ids by which it takes part in each.
    pub torrents_per_socket_max: usize,
    /// Whether clients at private, shared, loopback and link-local addresses are refused.
    pub refuse_private_addresses: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // Shorter than of other protocols: an announce is the only way by which a client gets at new peers, and its
            // connection stands anyway.
            interval_s: 120,
            interval_jitter_s: 20,
            offers_max: 10,
            numwant_default: 10,
            // Five times what browsers make.
            offer_bytes_max: 10 * 1024,
            scrape_hashes_max: 100,
            torrents_per_socket_max: 1000,
            refuse_private_addresses: false,
        }
    }
}
