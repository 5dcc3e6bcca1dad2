//! The operator's settings of WebTorrent.

/// The operator's settings, as plain values. `shoal_relay::Settings` has the lifetime of a silent peer and the
/// maximum number of peers. The receiving side has the maximum size of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Minimum number of seconds after which a client announces again.
    pub interval_s: u32,
    /// Maximum number of seconds that are added to the interval at random.
    pub interval_jitter_s: u32,
    /// Maximum number of offers of an announce that are relayed, each to another peer.
    pub offers_max: usize,
    /// Number of offers that are relayed for a client that does not say how many peers it wants, if it makes as
    /// many.
    pub numwant_default: usize,
    /// Maximum size in bytes of one offer or answer. A larger offer is skipped, a larger answer refused.
    pub offer_bytes_max: usize,
    /// Maximum number of torrents that a scrape is answered for.
    pub scrape_hashes_max: usize,
    /// Maximum number of peers of one connection: torrents times the peer ids that it uses in each.
    pub torrents_per_socket_max: usize,
    /// Whether clients at private, shared, loopback and link-local addresses are refused.
    pub refuse_private_addresses: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // This is shorter than in other protocols: an announce is the only way for a client to get new peers,
            // and its connection is open anyway.
            interval_s: 120,
            interval_jitter_s: 20,
            offers_max: 10,
            numwant_default: 10,
            // Five times the size that browsers make.
            offer_bytes_max: 10 * 1024,
            scrape_hashes_max: 100,
            torrents_per_socket_max: 1000,
            refuse_private_addresses: false,
        }
    }
}
