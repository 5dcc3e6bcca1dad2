//! The operator's settings of the engine.

use core::ops::RangeInclusive;

use shoal_transport::datagram::REPLY_BYTES_MAX;
use shoal_wire::udp::{ScrapeEntry, ScrapeHead};

use crate::connection_id::{ConnectionKey, GRACE_S_MAX};

/// The operator's settings, as plain values. The defaults suit a public tracker on the open internet, except that
/// private addresses are served, because newcomers try the tracker at home first.
///
/// A value outside of the ranges below is moved to the nearest end. The configuration has already rejected it
/// with an error text; here it must not break anything.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Minimum number of seconds after which a client announces again.
    pub interval_s: u32,
    /// Maximum number of seconds that are added to the interval at random.
    pub interval_jitter_s: u32,
    /// Seconds that a client must wait before any new announce; 0 omits the value from replies. Only HTTP can
    /// carry it, and a reply never states more than its interval.
    pub min_interval_s: u32,
    /// Number of peers for a client that does not say how many it wants.
    pub numwant_default: u32,
    /// Maximum number of peers for any client, as far as they fit the reply.
    pub numwant_max: u32,
    /// Maximum number of info hashes that a UDP scrape is answered for, as far as they fit the reply. An HTTP
    /// scrape is answered for all of them, because the size of a request limits them.
    pub scrape_hashes_max: u32,
    /// Whether an HTTP scrape that names no torrent is answered with the counts of all torrents.
    pub full_scrape: bool,
    /// Whether peers at private, shared, loopback and link-local addresses are refused.
    pub refuse_private_addresses: bool,
    /// The secret that connection ids are made from.
    pub connection_key: ConnectionKey,
    /// Seconds for which a connection id is accepted in addition to the two minutes of BEP 15.
    pub connection_grace_s: u32,
    /// The response to a request with a wrong connection id.
    pub wrong_connection_id: WrongConnectionId,
    /// Maximum size in bytes of a datagram sent over IPv4, without headers.
    pub reply_bytes_max_v4: usize,
    /// Maximum size in bytes of a datagram sent over IPv6, without headers.
    pub reply_bytes_max_v6: usize,
}

/// The response to a request with a wrong connection id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WrongConnectionId {
    /// No reply, so that an attacker cannot make the tracker send to a forged source.
    #[default]
    Silence,
    /// An error that is no larger than the request, so that an honest client reconnects at once.
    Error,
}

impl Settings {
    /// A size that fits every current path: the 1280 bytes that IPv6 guarantees, less headers of 40 and 8 bytes,
    /// leave 1232. Over IPv4 the same size passes PPPoE, tunnels and nested tunnels, and still holds 202 peers.
    const REPLY_BYTES_MAX_DEFAULT: usize = 1232;

    /// Valid values of `reply_bytes_max_v4` and `reply_bytes_max_v6`. The lower end is the size that every host
    /// must accept unfragmented, 576 bytes less headers of 20 and 8 (RFC 791, section 3.1). The upper end is the
    /// size of the buffers.
    pub const REPLY_BYTES: RangeInclusive<usize> = 548..=REPLY_BYTES_MAX;

    /// Valid values of `connection_grace_s`.
    pub const CONNECTION_GRACE_S: RangeInclusive<u32> = 0..=GRACE_S_MAX;

    /// Returns the defaults, with the given key, which has no default.
    #[must_use]
    pub const fn new(connection_key: ConnectionKey) -> Self {
        Self {
            interval_s: 1800,
            interval_jitter_s: 300,
            min_interval_s: 300,
            numwant_default: 50,
            numwant_max: 200,
            // BEP 15, "scrape": "Up to about 74 torrents can be scraped at once."
            scrape_hashes_max: 74,
            full_scrape: false,
            refuse_private_addresses: false,
            connection_key,
            connection_grace_s: 120,
            wrong_connection_id: WrongConnectionId::Silence,
            reply_bytes_max_v4: Self::REPLY_BYTES_MAX_DEFAULT,
            reply_bytes_max_v6: Self::REPLY_BYTES_MAX_DEFAULT,
        }
    }

    /// Returns how many torrents fit a scrape reply of `reply_bytes`.
    #[must_use]
    pub const fn scrape_hashes_in(reply_bytes: usize) -> usize {
        reply_bytes.saturating_sub(size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>()
    }
}
