//! The keys of connections, and of proxies in front of the tracker.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::{FILES_MAX, LISTEN_ADDRESSES_MAX, PORT};
use crate::declare::settings;
use crate::values::{Auto, ClientHeader, Listen, Trusted};

settings! {
    /// Announces and scrapes over HTTP (BEP 3). HTTP serves the same swarms as UDP. Clients use the URL
    /// http://HOST:6969/announce.
    section http: HttpConfig {
        /// Where to accept plain HTTP: addresses with ports, and Unix sockets ("unix:/run/shoal/http.sock") for a proxy
        /// on this host. Append " proxy-protocol" to an entry if each of its connections begins with a PROXY header
        /// (version 1 or 2), as haproxy, hitch and nginx can send it. Such an entry accepts connections only from
        /// proxy.trusted. [] disables plain HTTP.
        listen: Vec<Listen> = vec![
            Listen::tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))),
            Listen::tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))),
        ], in 0..=LISTEN_ADDRESSES_MAX => Reload, essential;

        /// Serve announces and scrapes that come from web pages of other sites. BitTorrent clients do not need this, and
        /// with it any web page could add the addresses of its visitors to swarms. For WebTorrent see
        /// webtorrent.origins_allow.
        cross_site: bool = false => Reload;

        /// Seconds for which a connection may stay idle between two requests.
        idle_timeout_s: u32 = 60, in 1..=86_400 => Reload;

        /// Seconds within which a complete request must arrive, counted from its first byte or from the start of the
        /// connection. The same limit applies to a TLS handshake.
        request_timeout_s: u32 = 10, in 1..=3600 => Reload;

        /// Seconds within which a client must read a reply, or each piece of a full scrape.
        send_timeout_s: u32 = 10, in 1..=3600 => Reload;

        /// Maximum number of connections, plain and TLS, over all workers. Each worker gets an equal share. At the limit,
        /// the tracker closes a connection of the source that has the most, the longest idle first, in favour of the new
        /// one. Sources are addresses and the networks around them up to an IPv4 /24 and an IPv6 /32, which have larger
        /// shares. WebSockets that have announced are closed last. If the source of the new connection has as many itself,
        /// the new one is refused instead. "auto" is the most that the limit on open files allows; the log tells the number.
        connections_max: Auto<u32> = Auto::Auto, in 1..=100_000_000 => Reload;

        /// Maximum number of connections from one source: an IPv4 address or an IPv6 /64 network. A /56 network may have
        /// twice as many, and a /48 network eight times as many. Carriers put many clients behind one address, so leave
        /// some margin. Connections from proxy.trusted do not count, except that a connection counts towards the client
        /// that a PROXY header names. For WebSockets, webtorrent.connections_per_source_max applies instead.
        connections_per_source_max: u32 = 8192, in 1..=100_000_000 => Reload;

        /// Answer a scrape without info_hash with the counts of all torrents. The reply tells every client which torrents
        /// exist, and its cost in time and traffic is proportional to their number.
        full_scrape: bool = false => Reload;

        /// Seconds within which a client must read a whole full scrape or blocklist, or any series of replies during which its
        /// connection is never idle. Only the time that the tracker spends waiting for the client counts.
        full_scrape_timeout_s: u32 = 300, in 1..=86_400 => Reload;
    }

    /// The same as HTTP, over TLS 1.2 and 1.3 without a proxy in front. Clients use the URL
    /// https://HOST:PORT/announce.
    section tls: TlsConfig {
        /// Where to accept TLS, in the format of http.listen. Clients and firewalls expect port 443. If there was no address at
        /// the start, the first one takes "shoal upgrade" or a restart.
        listen: Vec<Listen> = Vec::new(), in 0..=LISTEN_ADDRESSES_MAX => Reload, essential;

        /// Certificate files in PEM format, each with its whole chain. If there are several, a client gets the one that
        /// matches the server name it asks for, or the first if none matches. SIGHUP reloads the files without dropping a
        /// connection. "shoal tls self-signed" makes a certificate for testing.
        certificates: Vec<PathBuf> = Vec::new(), in 0..=FILES_MAX => Reload, essential;

        /// The private key file of each certificate, in the same order, in PEM format (PKCS#8, SEC1 or PKCS#1). ECDSA
        /// P-256 keys cost the least processor time. Leave this [] if each certificate file also contains its key.
        keys: Vec<PathBuf> = Vec::new(), in 0..=FILES_MAX => Reload, essential;
    }

    /// Proxies in front of HTTP. The tracker trusts only the proxies listed here to report the addresses of clients.
    section proxy: ProxyConfig {
        /// Networks from which only proxies connect, and "unix" for the Unix sockets of http.listen. Any program that
        /// connects from there can announce any address.
        trusted: Vec<Trusted> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// The header in which proxies name the client. "x-forwarded-for" and "forwarded" are lists; the tracker uses the
        /// last address that is not itself a trusted proxy. Choose the header that your proxy overwrites or appends to,
        /// because clients can forge any other. The PROXY protocol does not need this key; see http.listen.
        header: ClientHeader = ClientHeader::None => Reload;
    }
}
