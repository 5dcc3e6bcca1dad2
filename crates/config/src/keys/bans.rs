//! The keys of the bans that sources earn.

use crate::declare::settings;

settings! {
    /// Bans that come and go by themselves. A source that does far more than any client is not served for a time: datagrams
    /// get no reply, and connections are closed. A source is an IPv4 address or an IPv6 /64; a /56 may do twice as much, and
    /// a /48 eight times, before it is banned as a whole. Only sources that have proved their address are counted, by a
    /// connection id or a TCP connection, and only while a rate in the section limits is set, or tokens are. Never banned
    /// are limits.exempt, proxy.trusted and private addresses. The defaults leave room for 5,000 clients behind one
    /// address. 0 turns a cause off.
    section bans: BansConfig {
        /// Ban sources by what they do. With false, only bans through the control listener apply.
        automatic: bool = true => Reload;

        /// Duration of the first ban of a source in seconds. Each further one takes twice as long as the one before, until
        /// the source has not been banned for longest_s.
        first_s: u32 = 600, in 1..=604_800 => Reload;

        /// Maximum duration of a ban in seconds.
        longest_s: u32 = 86_400, in 1..=2_592_000 => Reload;

        /// Maximum number of banned sources. Beyond it, a new ban takes the place of the ban that ends first.
        sources_max: u32 = 65_536, in 1..=1_000_000 => Reload;

        /// How long a source may send twice what its limit of requests or connections admits, in seconds. A source that
        /// sends more is banned sooner, and one that exceeds its limit by less than a quarter never.
        over_limit_s: u32 = 300, in 0..=86_400 => Reload;

        /// Maximum number of requests for each minute that cannot be understood.
        malformed_per_min: u32 = 1000, in 0..=1_000_000 => Reload;

        /// Maximum number of tokens with a wrong signature for each minute. From the thirtieth on, a source has one signature a
        /// second verified, so no source can exceed 60 a minute for long. With 50, it shows them for two minutes without a
        /// pause.
        bad_tokens_per_min: u32 = 50, in 0..=59 => Reload;

        /// Maximum number of swarms that a source's peers enter for each hour. 5,000 clients with 50 torrents each enter
        /// 250,000 after a restart of the tracker.
        torrents_per_h: u32 = 500_000, in 0..=1_000_000_000 => Reload;

        /// Maximum number of announces for each hour over UDP and HTTP whose peer id differs from the one before at the same
        /// address, port and torrent. Clients behind one address that have chosen the same port cause some.
        peer_ids_per_h: u32 = 200_000, in 0..=1_000_000_000 => Reload;
    }
}
