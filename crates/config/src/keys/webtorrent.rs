//! The keys of WebTorrent.

use super::FILES_MAX;
use crate::declare::settings;
use crate::values::{Auto, ByteSize, Origin};

settings! {
    /// WebTorrent: browsers announce over WebSockets and reach each other through the tracker. Every path on the
    /// addresses of http.listen and tls.listen accepts WebSockets (ws://HOST:6969/announce, wss://...). WebTorrent
    /// has swarms of its own, since no client can reach a browser by address and port.
    section webtorrent: WebTorrentConfig {
        /// Serve WebTorrent.
        enabled: bool = true => Restart;

        /// Seconds until a client should announce again. Each announce brings new offers, with which a browser finds more
        /// peers, so this is shorter than announce.interval_s. It is spread like that one (announce.interval_jitter_s), by up
        /// to a quarter, and rises under load by the same factor (announce.interval_s_max), as far as peer_timeout_s permits.
        interval_s: u32 = 120, in 1..=21_600 => Reload;

        /// Seconds without an announce after which the tracker forgets a peer that is still connected. A peer that
        /// disconnects is forgotten at once.
        peer_timeout_s: u32 = 600, in 2..=86_400 => Restart;

        /// Seconds of silence after which the tracker pings a client. If the client stays silent for the same time again,
        /// the tracker closes its connection. Proxies in front may close connections that are silent for a minute.
        ping_interval_s: u32 = 50, in 1..=86_400 => Reload;

        /// The time in seconds over which an upgrade closes encrypted connections, one after another; WebSockets with code
        /// 1012. Until then they go on, and the old process remains to encrypt and decrypt. A shorter time makes more clients
        /// connect at once. Connections without TLS move to the new process and stay open.
        upgrade_close_s: u32 = 120, in 0..=86_400 => Restart;

        /// Maximum number of offers of one announce that are relayed, each to a different peer. Clients send 5 to 50.
        offers_max: u32 = 10, in 0..=100 => Reload;

        /// Maximum number of WebSockets from one source, as defined at http.connections_per_source_max. Carriers put many
        /// browsers behind one address. A WebSocket that a trusted proxy requests counts towards the client that the proxy
        /// names.
        connections_per_source_max: u32 = 8192, in 1..=100_000_000 => Reload;

        /// Maximum rate in bytes per second at which the offers of one connection are relayed, including the messages
        /// around them, averaged over eight seconds. An offer counts as 2 KiB at least, so this limits their number, too: to
        /// 128 a second by default. One source (an IPv4 address or an IPv6 /64) may use eight times as much. To a single
        /// receiver, one IPv4 address or IPv6 /48 may send an eighth of that number: 16 offers a second by default, and
        /// 128 at once. Announces are answered regardless. 0 means no limit.
        relay_rate_max: ByteSize = ByteSize::kib(256), in ByteSize(0)..=ByteSize::gib(1) => Restart;

        /// Maximum number of torrents that a client may announce on one connection.
        torrents_per_connection_max: u32 = 1000, in 1..=1_000_000 => Reload;

        /// Maximum number of peers in all WebTorrent swarms together. At the limit, new peers are refused. Above half of
        /// it, new peers are refused if their source (an IPv4 address or /24, or an IPv6 /64, /48, /40 or /32) has more than
        /// its share.
        /// Each peer takes 200 to 360 bytes, and up to 768 more for offers without an answer. "auto" is the number that
        /// fits in an eighth of memory.max, or fewer if memory.max is small.
        peers_max: Auto<u32> = Auto::Auto, in 1..=1_000_000_000 => Restart;

        /// Origins of the web pages that may use the tracker. Browsers send the origin in the Origin header, and pages
        /// cannot change it. [] allows all origins.
        origins_allow: Vec<Origin> = Vec::new(), in 0..=FILES_MAX => Reload, essential;

        /// Origins of the web pages that may not use the tracker. This list takes precedence over origins_allow.
        origins_deny: Vec<Origin> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Serve clients that send no Origin header. These are not browsers but desktop clients, servers and tools.
        origin_missing: bool = true => Reload;
    }
}
