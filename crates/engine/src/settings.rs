//! What the operator decides about the engine.

use core::ops::RangeInclusive;

use shoal_wire::datagram::REPLY_BYTES_MAX;
use shoal_wire::udp::{ScrapeEntry, ScrapeHead};

use crate::connection::{ConnectionKey, GRACE_S_MAX};

/// The operator's decisions, as plain values. Defaults are those of a public tracker on the open internet, save
/// that private addresses are served, since a newcomer tries it at home first.
///
/// Values outside of the ranges below are moved to the nearest end: the configuration refuses them with words, and
/// here nothing may break.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seconds after which a client is to announce again, at the least.
    pub interval_s: u32,
    /// Most seconds that are added to the interval at random.
    pub interval_jitter_s: u32,
    /// Seconds that a client is to let pass in any case before it announces again; 0 says nothing of it. Only HTTP can
    /// carry it, and never more than the interval is said.
    pub min_interval_s: u32,
    /// Peers handed to a client that does not say how many it wants.
    pub numwant_default: u32,
    /// Most peers handed to any client, as far as a reply has room for them.
    pub numwant_max: u32,
    /// Most info hashes of a scrape over UDP that are answered, as far as a reply has room for them. Over HTTP all are,
    /// as the size of a request limits them.
    pub scrape_hashes_max: u32,
    /// Whether a scrape over HTTP that names no torrent is answered with the counts of all.
    pub full_scrape: bool,
    /// Whether peers at private, shared, loopback and link-local addresses are refused.
    pub refuse_private_addresses: bool,
    /// The secret from which connection ids are made.
    pub connection_key: ConnectionKey,
    /// Seconds for which a connection id is accepted beyond the two minutes of BEP 15.
    pub connection_grace_s: u32,
    /// What a request with a wrong connection id gets.
    pub wrong_connection_id: WrongConnectionId,
    /// Most bytes of a datagram sent over IPv4, headers not counted.
    pub reply_bytes_max_v4: usize,
    /// Most bytes of a datagram sent over IPv6, headers not counted.
    pub reply_bytes_max_v6: usize,
}

/// What a request with a wrong connection id gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WrongConnectionId {
    /// Nothing, so that nobody can make the tracker send towards a forged source.
    #[default]
    Silence,
    /// An error that is no larger than the request, so that an honest client reconnects at once.
    Error,
}

impl Settings {
    /// What fits every path of today: the 1280 bytes that IPv6 guarantees, less headers of 40 and 8 bytes, leave
    /// 1232. Over IPv4 the same figure passes PPPoE, tunnels and tunnels in tunnels, and still holds 202 peers.
    const REPLY_BYTES_MAX_DEFAULT: usize = 1232;

    /// Possible values of `reply_bytes_max_v4` and `reply_bytes_max_v6`: from what every host must take in one piece,
    /// 576 bytes less headers of 20 and 8 (RFC 791, section 3.1), to what the buffers hold.
    pub const REPLY_BYTES: RangeInclusive<usize> = 548..=REPLY_BYTES_MAX;

    /// Possible values of `connection_grace_s`.
    pub const CONNECTION_GRACE_S: RangeInclusive<u32> = 0..=GRACE_S_MAX;

    /// The defaults, with the one value that has none.
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

    /// How many torrents fit a scrape reply of `reply_bytes`.
    #[must_use]
    pub const fn scrape_hashes_in(reply_bytes: usize) -> usize {
        reply_bytes.saturating_sub(size_of::<ScrapeHead>()) / size_of::<ScrapeEntry>()
    }
}
