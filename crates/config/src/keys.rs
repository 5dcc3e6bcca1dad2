//! Every key of the tracker, declared once.
//!
//! `shoal config` prints these comments, so they address operators. Each says what the key decides, when to change it
//! and why the default is sensible.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use shoal_access::clients::ClientRule;
use shoal_access::ports::Ports;
use shoal_transport::datagram::REPLY_BYTES_MAX;

use crate::declare::settings;
use crate::values::{
    AccessLogTarget, Auto, BlocklistField, ByteSize, ClientHeader, ClusterName, DatagramBackend, HostName,
    InterfaceName, ListSource, Listen, LogFormat, LogLevel, LoggedAddresses, Name, NatsServer,
    OpentrackerMode, Origin, PrivateAddresses, SecretKey, StoredInfoHashes, StreamBackend, StreamName,
    Toggle, Trusted, XdpMode,
};

/// The port that BitTorrent trackers use by convention.
const PORT: u16 = 6969;

/// The port of the control listener.
const CONTROL_PORT: u16 = 6970;

/// The maximum number of addresses in each list of listeners. Each worker opens a socket for each address.
pub const LISTEN_ADDRESSES_MAX: usize = 16;

/// The maximum number of entries in a list of files or networks.
const FILES_MAX: usize = 256;

/// The maximum number of interfaces with the XDP data path.
const XDP_INTERFACES_MAX: usize = 8;

/// The maximum number of NATS servers in the configuration.
const NATS_SERVERS_MAX: usize = 16;

/// Maximum of `store.completed_retained_days`: five years.
pub const COMPLETED_RETAINED_DAYS_MAX: u32 = 1825;

/// The upper bound of `scrape.hashes_max`. A request with 100 hashes takes 2016 bytes, more than an Ethernet frame.
pub const SCRAPE_HASHES_MAX: u32 = 100;

/// The datagram that every host must be able to receive, less headers: 576 - 20 - 8 (RFC 791, section 3.1).
const REPLY_BYTES_MIN: u32 = 548;

/// The size of the reply buffers. The assertion makes the cast safe.
const REPLY_BYTES_LIMIT: u32 = {
    assert!(REPLY_BYTES_MAX <= 65_507, "a datagram over IPv4 carries at most 65,507 bytes");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let limit = REPLY_BYTES_MAX as u32;
    limit
};

settings! {
    /// The UDP tracker protocol (BEP 15), which most clients prefer.
    section udp: UdpConfig {
        /// Addresses and ports to serve. IPv4 and IPv6 use separate sockets, so list an address of each family. On a host
        /// with several addresses, each reply leaves from the address that received the request. Port 0 selects any free
        /// port, and the log names it. [] disables UDP.
        listen: Vec<SocketAddr> = vec![
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
        ], in 0..=LISTEN_ADDRESSES_MAX => Reload;

        /// How the tracker receives and sends datagrams. "mmsg" uses recvmmsg and sendmmsg, which work everywhere.
        /// "uring" uses io_uring, which many containers forbid. "auto" selects the cheapest back end that works (by
        /// measurement, mmsg) and logs the choice.
        io: DatagramBackend = DatagramBackend::Auto => Restart;

        /// Kernel buffer of each socket for requests that wait to be processed. Every worker has one socket for each
        /// address. A larger buffer absorbs longer bursts. The sysctl net.core.rmem_max caps the size; the log warns if
        /// the kernel grants less.
        receive_buffer: ByteSize = ByteSize::mib(4), in ByteSize::kib(64)..=ByteSize::gib(1) => Reload;

        /// Kernel buffer of each socket for replies that wait for the network card. The sysctl net.core.wmem_max caps the
        /// size.
        send_buffer: ByteSize = ByteSize::mib(1), in ByteSize::kib(64)..=ByteSize::gib(1) => Reload;

        /// Maximum size of a reply over IPv4 in bytes, without headers. A reply that is too large for the network path is
        /// lost, or split into fragments that many firewalls drop. 1232 fits all paths in use today, tunnels included,
        /// and holds 202 peers.
        reply_bytes_max_v4: u32 = 1232, in REPLY_BYTES_MIN..=REPLY_BYTES_LIMIT => Reload;

        /// Maximum size of a reply over IPv6 in bytes, without headers. 1232 fits the smallest packet size that IPv6
        /// allows (1280 with headers) and holds 67 peers, because an IPv6 peer takes three times the space of an IPv4
        /// peer.
        reply_bytes_max_v6: u32 = 1232, in REPLY_BYTES_MIN..=REPLY_BYTES_LIMIT => Reload;
    }

    /// The XDP data path: an eBPF program at the driver of a network interface answers requests for connection ids, and
    /// hands announces and scrapes to the workers without the kernel's socket path (docs/xdp.md). Firewall rules do not
    /// see these datagrams. It serves the addresses of udp.listen beside their sockets, which take what else arrives.
    section xdp = "udp.xdp": XdpConfig {
        /// Network interfaces with the data path, such as ["eth0"]. [] is none. It needs Linux 6.4, and at the start the
        /// capabilities CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW and, unless "ulimit -l" permits the memory, CAP_IPC_LOCK.
        interfaces: Vec<InterfaceName> = Vec::new(), in 0..=XDP_INTERFACES_MAX => Restart;

        /// Start without the data path on an interface where it does not work, with a warning. Otherwise, the tracker
        /// refuses to start and tells what is missing.
        optional: bool = false => Restart;

        /// Where the program runs: "native" is in the driver, "generic" in the kernel before its socket path, which every
        /// interface permits and which gains little. "auto" is native if the driver has it.
        mode: XdpMode = XdpMode::Auto => Restart;

        /// Whether frames are shared with the network card or copied once: "on" demands a driver that shares them, "off"
        /// copies them. "auto" shares them if the driver can.
        zero_copy: Toggle = Toggle::Auto => Restart;

        /// Number of frames of 4 KiB for each receive queue of an interface, which is rounded up to a power of two. They are
        /// part of memory.max.
        frames: u32 = 4096, in 1024..=65_536 => Restart;

        /// Poll the network card from the worker instead of by interrupts while there is much traffic. Some cards gain by it.
        busy_poll: bool = false => Restart;

        /// Number of sources whose rates the program remembers, if limits.udp_connects_per_s is set, or
        /// limits.udp_requests_per_s with limits.udp_silent. Each takes 32 bytes of the kernel's memory. If more sources than
        /// these ask as often as they may, forged ones among them, some get less than their rate.
        sources_max: u32 = 1_048_576, in 1024..=1_048_576 => Restart;
    }

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
        ], in 0..=LISTEN_ADDRESSES_MAX => Reload;

        /// How the tracker serves connections, plain and TLS. "epoll" is the only back end at present, and "auto" selects
        /// it.
        io: StreamBackend = StreamBackend::Auto => Restart;

        /// Keep a connection open for further requests, as HTTP/1.1 clients expect. Proxies benefit most. An idle
        /// connection takes a few hundred bytes, or a few KiB with TLS.
        keep_alive: bool = true => Reload;

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
        /// one. If the source of the new connection has as many itself, the new one is refused instead. "auto" is the
        /// most that the limit on open files allows; the log tells the number.
        connections_max: Auto<u32> = Auto::Auto, in 1..=100_000_000 => Reload;

        /// Maximum number of connections from one source: an IPv4 address or an IPv6 /64 network. A /56 network may have
        /// twice as many, and a /48 network eight times as many. Carriers put many clients behind one address, so leave
        /// some margin. Connections from proxy.trusted do not count, except that a connection counts towards the client
        /// that a PROXY header names. For WebSockets, webtorrent.connections_per_source_max applies instead.
        connections_per_source_max: u32 = 256, in 1..=100_000_000 => Reload;

        /// Answer a scrape without info_hash with the counts of all torrents. The reply tells every client which torrents
        /// exist, and its cost in time and traffic is proportional to their number.
        full_scrape: bool = false => Reload;

        /// Maximum number of full scrapes, and downloads of a published blocklist, that each worker answers at the same
        /// time. Further clients are told to retry later.
        full_scrapes_max: u32 = 1, in 1..=64 => Reload;

        /// Seconds within which a client must read a whole full scrape or blocklist, or any series of replies during which its
        /// connection is never idle. Only the time that the tracker spends waiting for the client counts.
        full_scrape_timeout_s: u32 = 300, in 1..=86_400 => Reload;
    }

    /// The same as HTTP, over TLS 1.2 and 1.3 without a proxy in front. Clients use the URL
    /// https://HOST:PORT/announce.
    section tls: TlsConfig {
        /// Where to accept TLS, in the format of http.listen. Clients and firewalls expect port 443. If there was no address at
        /// the start, the first one takes "shoal upgrade" or a restart.
        listen: Vec<Listen> = Vec::new(), in 0..=LISTEN_ADDRESSES_MAX => Reload;

        /// Certificate files in PEM format, each with its whole chain. If there are several, a client gets the one that
        /// matches the server name it asks for, or the first if none matches. SIGHUP reloads the files without dropping a
        /// connection. "shoal tls self-signed" makes a certificate for testing.
        certificates: Vec<PathBuf> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// The private key file of each certificate, in the same order, in PEM format (PKCS#8, SEC1 or PKCS#1). ECDSA
        /// P-256 keys cost the least processor time. Leave this [] if each certificate file also contains its key.
        keys: Vec<PathBuf> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Whether a worker uses the same X25519 key pair for all handshakes of a second. This saves about a twentieth of
        /// the processor time of a handshake. The price is forward secrecy: an attacker that reads the memory of
        /// the tracker before the next key pair replaces this one can decrypt all connections that began with it.
        key_share_reuse: bool = false => Restart;
    }

    /// WebTorrent: browsers announce over WebSockets and reach each other through the tracker. Every path on the
    /// addresses of http.listen and tls.listen accepts WebSockets (ws://HOST:6969/announce, wss://...). WebTorrent
    /// has swarms of its own, since no client can reach a browser by address and port.
    section webtorrent: WebTorrentConfig {
        /// Serve WebTorrent.
        enabled: bool = true => Restart;

        /// Seconds until a client should announce again. Each announce brings new offers, with which a browser finds more
        /// peers, so this is shorter than announce.interval_s.
        interval_s: u32 = 120, in 1..=21_600 => Reload;

        /// Maximum interval under load, as announce.interval_s_max. 0 always leaves it at interval_s.
        interval_s_max: u32 = 0, in 0..=21_600 => Reload;

        /// Maximum number of seconds that are added at random to each interval.
        interval_jitter_s: u32 = 30, in 0..=21_600 => Reload;

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

        /// Maximum size of a message. A client that sends a larger one is disconnected. An announce contains all offers
        /// of a client, of 0.5 to 4 KiB each.
        message_max: ByteSize = ByteSize::kib(256), in ByteSize::kib(4)..=ByteSize::mib(16) => Restart;

        /// Maximum size of a single offer or answer. Larger ones are dropped.
        offer_max: ByteSize = ByteSize::kib(16), in ByteSize::kib(1)..=ByteSize::kib(512) => Reload;

        /// Maximum size of the replies that wait for a client that does not read them. Beyond it, the client is
        /// disconnected. Messages of other clients count towards webtorrent.queue_max instead.
        unsent_max: ByteSize = ByteSize::kib(256), in ByteSize::kib(16)..=ByteSize::mib(64) => Restart;

        /// Maximum number of WebSockets from one source, as defined at http.connections_per_source_max. The default is
        /// higher than there because WebSockets stay open and carriers put many browsers behind one address. A WebSocket
        /// that a trusted proxy requests counts towards the client that the proxy names.
        connections_per_source_max: u32 = 4096, in 1..=100_000_000 => Reload;

        /// Maximum size of the messages of other clients that wait for a client: answers to its offers, and offers up to
        /// half of this. Messages beyond the limit are dropped and counted, and the client stays connected. One more
        /// message always fits.
        queue_max: ByteSize = ByteSize::kib(128), in ByteSize::kib(16)..=ByteSize::mib(16) => Restart;

        /// Maximum rate in bytes per second at which the offers of one connection are relayed, including the messages
        /// around them, averaged over eight seconds. One source (an IPv4 address or an IPv6 /64) may use eight times as
        /// much. Announces are answered regardless. 0 means no limit.
        relay_rate_max: ByteSize = ByteSize::kib(256), in ByteSize(0)..=ByteSize::gib(1) => Restart;

        /// Maximum number of torrents that a client may announce on one connection.
        torrents_per_connection_max: u32 = 1000, in 1..=1_000_000 => Reload;

        /// Maximum number of peers in all WebTorrent swarms together. At the limit, new peers are refused. Above half of
        /// it, new peers are refused if their source (an IPv4 address, or an IPv6 /64 or /48) has more than its share.
        /// Each peer takes 200 to 360 bytes, and up to 768 more for offers without an answer. "auto" is the number that
        /// fits in an eighth of memory.max, or fewer if memory.max is small.
        peers_max: Auto<u32> = Auto::Auto, in 1..=1_000_000_000 => Restart;

        /// Maximum size, for each worker, of the messages from other workers that wait until the worker next polls.
        /// Messages that do not fit are dropped and counted. The share of the mailboxes in memory.max also limits this.
        mailbox_max: ByteSize = ByteSize::mib(16), in ByteSize::mib(1)..=ByteSize::gib(1) => Restart;

        /// Origins of the web pages that may use the tracker. Browsers send the origin in the Origin header, and pages
        /// cannot change it. [] allows all origins.
        origins_allow: Vec<Origin> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Origins of the web pages that may not use the tracker. This list takes precedence over origins_allow.
        origins_deny: Vec<Origin> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Serve clients that send no Origin header. These are not browsers but desktop clients, servers and tools.
        origin_missing: bool = true => Reload;
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

    /// The threads that serve requests.
    section workers: WorkersConfig {
        /// Number of workers. "auto" starts one for each processor that CPU affinity and the cgroup quota allow the
        /// tracker to use.
        count: Auto<u32> = Auto::Auto, in 1..=1024 => Restart;

        /// Bind each worker to a processor of its own. This gains a little on a dedicated machine. It hurts where other
        /// programs share the processors, since a pinned worker cannot move to a free one.
        pin: bool = false => Restart;

        /// Give each datagram to the worker on the processor that received it, which saves its way through another cache.
        /// Only for pinned workers, and only where the network card spreads its work over all their processors (as
        /// many receive queues as workers): a worker gets no more than its processor receives.
        steer: bool = false => Restart;
    }

    /// The replies to announces. Unless a key says otherwise, it applies to every protocol.
    section announce: AnnounceConfig {
        /// Seconds until a client should announce again. The load on the tracker is inversely proportional to this.
        /// Public trackers use 900 to 3600. Intervals of a few seconds are suitable only for testing.
        interval_s: u32 = 1800, in 1..=21_600 => Reload;

        /// Maximum interval under load. A worker that is busy for 85 % of the time raises its interval from interval_s to
        /// this within a minute, and min_interval_s in proportion. When it is busy for less than 65 %, it goes back
        /// within ten minutes. 0 always leaves it at interval_s. announce.peer_timeout_s must exceed this as well.
        interval_s_max: u32 = 0, in 0..=21_600 => Reload;

        /// Maximum number of seconds that are added at random to each interval, so that clients do not all announce at
        /// the same time. After a start without peers, and under overload, intervals are spread wider. 0 gives all
        /// clients the same interval, always.
        interval_jitter_s: u32 = 300, in 0..=21_600 => Reload;

        /// Seconds that a client must wait between announces even if it has a reason to announce early. Only HTTP replies
        /// contain this. The tracker never sends more than interval_s. 0 omits it.
        min_interval_s: u32 = 300, in 0..=21_600 => Reload;

        /// Seconds without an announce after which the tracker forgets a peer. This must exceed interval_s +
        /// interval_jitter_s; a few minutes more tolerate a lost announce. With larger values, replies contain more dead
        /// peers.
        peer_timeout_s: u32 = 2700, in 2..=86_400 => Restart;

        /// Number of peers for a client that does not say how many it wants.
        numwant_default: u32 = 50, in 0..=1000 => Reload;

        /// Maximum number of peers with one IPv4 address, or in one IPv6 /48 network, in one torrent. Peers beyond it get
        /// normal replies, but no reply contains them. Without a limit, one address could fill a torrent, because it has
        /// 65,535 ports. If an address has three or more peers in a torrent, a reply contains at most two of them,
        /// provided there are enough others. 0 disables both rules, which suits testing. NAT and VPN exits of carriers
        /// put many clients behind one address; a tracker that serves those may set some hundreds. The limit is
        /// approximate: in a large torrent an address may exceed it by half.
        peers_per_address_max: u32 = 64, in 0..=65_535 => Restart;

        /// Maximum number of peers for any client. A UDP reply must have space for them (udp.reply_bytes_max_v4); over
        /// IPv6 it may hold fewer. HTTP replies contain all of them.
        numwant_max: u32 = 200, in 1..=1000 => Reload;
    }

    /// Scrapes, the requests for the counts of swarms.
    section scrape: ScrapeConfig {
        /// Maximum number of info hashes in one UDP request. BEP 15 lets clients send "about 74". Over HTTP the size of
        /// the request is the limit, at about 130.
        hashes_max: u32 = 74, in 1..=SCRAPE_HASHES_MAX => Reload;
    }

    /// UDP has no connections, so the tracker sends each client a connection id with which the client proves its
    /// address (BEP 15).
    section connection_id: ConnectionIdConfig {
        /// Secret key from which the tracker derives connection ids. "" generates a random key at each start. Trackers
        /// that share a key accept each other's ids, and a key that stays the same keeps ids valid across restarts.
        /// "openssl rand -hex 16" generates one. The key is never logged.
        key: SecretKey = SecretKey(None) => Restart;

        /// Seconds for which the tracker accepts an id beyond the two minutes of BEP 15. Some clients keep theirs too
        /// long.
        grace_s: u32 = 120, in 0..=3600 => Reload;

        /// Answer an announce or a scrape with an invalid id with an error instead of silence. This saves clients a timeout,
        /// but lets anyone make the tracker send (small) datagrams to a forged address.
        answer_wrong: bool = false => Reload;
    }

    /// Which client addresses the tracker serves.
    section address: AddressConfig {
        /// How clients with private addresses are served, which are those of private networks, loopback, link-local addresses
        /// and the shared addresses of carriers. "refuse" suits a public tracker, where other clients cannot reach such
        /// peers. "apart" hands out their peers only to clients in the same block, such as 192.168.0.0/16 or fc00::/7; these
        /// clients get public peers as well. Browsers find their own addresses, so over WebTorrent, "apart" changes
        /// nothing. "serve" makes no difference between addresses, which suits a local network.
        private: PrivateAddresses = PrivateAddresses::Serve => Reload;
    }

    /// Which torrents, networks and clients the tracker serves, for all protocols alike. A change of a file applies at
    /// once. URLs are fetched at an interval, see the section fetch.
    section access: AccessConfig {
        /// Files with the torrents that are served, directories of .torrent files, or URLs; all other torrents are refused. []
        /// serves all torrents. Each line of a file begins with an info hash (40 hexadecimal digits, 32 characters of
        /// base32, or the 64 digits of a v2 torrent) or a magnet link. A date (2026-01-31), a reference in square brackets,
        /// and a reason may follow. Empty lines, and everything from a # on, are ignored. JSON arrays, and feeds (RSS, Atom,
        /// OPDS) that link torrents are read as well; gzip is recognised.
        torrents_allow: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Files, directories or URLs with the torrents that are refused, in the same formats. This list takes precedence
        /// over torrents_allow. Clients show the reason of an entry to their users.
        torrents_deny: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Publish the list of refused torrents at /blocklist.txt and /blocklist.json, on the addresses of http.listen and
        /// tls.listen. Anyone can then read it, in the format of torrents_deny or as JSON. http.full_scrapes_max limits the
        /// number of downloads at the same time.
        blocklist_publish: bool = false => Reload;

        /// The parts of each entry that are published with its info hash: "date", "reason" and "reference". References often
        /// name cases or people, so they are left out by default.
        blocklist_fields: Vec<BlocklistField> = vec![BlocklistField::Date, BlocklistField::Reason], in 0..=3 => Reload;

        /// File to which "shoal access add" and "shoal access remove" append a line of JSON for each change: who, when, what
        /// and why. The tracker does so for each change through its control listener. "" writes none.
        audit_file: Option<PathBuf> = None => Reload;

        /// File of the bans that are set through the control listener, which the tracker writes after each change and reads
        /// at its start. "" permits no bans.
        bans_file: Option<PathBuf> = None => Reload;

        /// Files or URLs with the networks that are served; all others are refused. [] serves all networks. Each line of a file is
        /// a network (192.0.2.0/24, 2001:db8::/32), an address, or a range of addresses, also in the formats of eMule and
        /// PeerGuardian; gzip is recognised. If networks of both lists contain an address, the longest prefix applies, and
        /// networks_deny if they are equal. Behind a trusted proxy, the address is that of the client.
        networks_allow: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Files or URLs with the networks that are refused, in the same formats.
        networks_deny: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Peer ids of the clients that are served; all others are refused. [] serves all clients. An entry is the
        /// beginning of peer ids, such as "-qB" (%hh is a byte in hexadecimal), or the versions of a client, such as
        /// "qB>=4.6" or "qB>=4.0&<4.6" with the two letters of the Azureus style or the letter of another one. Clients
        /// choose their peer ids, so this keeps out software but no attacker.
        clients_allow: Vec<ClientRule> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Peer ids of the clients that are refused, in the same format. A reason may follow, which clients show to their
        /// users: "qB<4.6 please update". This list takes precedence over clients_allow.
        clients_deny: Vec<ClientRule> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Ports that are never handed out, such as "1-1023" or "25". Otherwise a client could make others connect to a
        /// mail server at its own address. Such a client is served, but no reply contains it, as with port 0.
        ports_deny: Vec<Ports> = Vec::new(), in 0..=FILES_MAX => Reload;
    }

    /// Tokens in the URLs of clients, for private trackers: JSON Web Tokens (JWT) that a site signs for its users. A client
    /// shows its token with each announce, in a parameter (/announce?jwt=TOKEN) or in the path (/announce/TOKEN,
    /// /TOKEN/announce). UDP clients repeat the URL in their announces (BEP 41); WebTorrent clients show it when they
    /// connect. A token has the claim exp, and may have nbf, iss, aud, and infohash, a hash or a list of hashes in
    /// the formats of access.torrents_allow, to which it is bound. A client without a valid token may only leave.
    section tokens: TokensConfig {
        /// The file or URL of the public keys, as a JWK set: keys for RS256 (RSA of 2048 to 4096 bits), ES256 (P-256) and
        /// EdDSA (Ed25519). A change of the file applies within a second; tokens by keys that it no longer contains are
        /// refused. A set that cannot be read leaves the keys as they were. "" serves clients without tokens.
        jwks: Option<ListSource> = None => Reload;

        /// Seconds between two fetches of the keys, if jwks is a URL. The other limits are those of the section fetch.
        refresh_s: u32 = 300, in 10..=604_800 => Reload;

        /// The issuer that the claim iss of a token must name. "" accepts all tokens that the keys have signed.
        issuer: Option<Name> = None => Reload;

        /// The audience that the claim aud of a token must name. "" accepts only tokens without this claim.
        audience: Option<Name> = None => Reload;

        /// The name of the parameter with the token.
        parameter: Name = Name::from_static("jwt") => Reload;

        /// Refuse clients without a token. With false, these are served, and only tokens that are not valid are refused,
        /// which suits the time before all users have one.
        required: bool = true => Reload;

        /// Whether scrapes need a token, too. UDP clients cannot show one in a scrape, so all their scrapes are refused
        /// then. A full scrape (http.full_scrape) always needs one that is bound to no torrent.
        scrapes: bool = false => Reload;

        /// Seconds by which the clocks of the issuer and of this tracker may differ. Tokens are accepted for so much longer
        /// and earlier.
        leeway_s: u32 = 30, in 0..=300 => Reload;

        /// Memory for the tokens that were verified lately, whose signatures are not verified again. Each takes 32 bytes,
        /// or as much for each of its torrents if it is bound to some. Twice the memory of all tokens in use suffices. It is
        /// taken if jwks is set, together with 32 MiB that it shares with the section limits.
        cache_max: ByteSize = ByteSize::mib(32), in ByteSize::kib(64)..=ByteSize::gib(64) => Reload;

        /// Maximum number of signatures that are verified for each second, of all clients together, for each worker:
        /// all workers share this number times their number. One takes 20 to 100 µs. Clients with new tokens beyond it
        /// are told to try again later; those with tokens in the cache are served. A source that sends tokens with
        /// wrong signatures may send 30 of them, and then one for each second.
        signatures_per_s: u32 = 3000, in 10..=1_000_000 => Reload;
    }

    /// How the URLs in this configuration are fetched. Between fetches, and while a server is away, the last good copy of
    /// each content applies, also after a restart.
    section fetch: FetchConfig {
        /// The folder of the copies. It is created if it does not exist, and the tracker must be able to write to it. URLs
        /// need it.
        folder: Option<PathBuf> = None => Reload;

        /// Seconds between two fetches of a URL, a tenth more or less by chance. A content that has not changed is not
        /// sent again if the server supports that (ETag, Last-Modified). After a failure, the next attempt comes earlier.
        interval_s: u32 = 900, in 10..=604_800 => Reload;

        /// Maximum time in seconds until a content has arrived as a whole.
        timeout_s: u32 = 60, in 1..=3600 => Reload;

        /// Maximum size of a content, compressed as well as decompressed. A list of ten million info hashes has 410 MB.
        size_max: ByteSize = ByteSize::mib(512), in ByteSize(1024)..=ByteSize::gib(16) => Reload;
    }

    /// How often one source may ask, and how much it may hold. A source is an IPv4 address or an IPv6 /64 network; a
    /// /56 network may ask twice as often as one source, and a /48 network eight times. Behind a trusted proxy, the
    /// source is the client that the proxy names. A source that asks too often is served at its rate, and refused
    /// beyond it; it is never banned. The limits on requests and connections take 32 MiB in all, however many sources
    /// there are, and nothing if none is set. 0 means no limit.
    section limits: LimitsConfig {
        /// Maximum number of announces and scrapes over UDP for each second. A client announces each of its torrents once
        /// in announce.interval_s, so 1 is enough for some thousand torrents. Carriers put many clients behind one
        /// address.
        udp_requests_per_s: u32 = 0, in 0..=1_000_000 => Reload;

        /// Maximum number of announces and scrapes over HTTP for each second.
        http_requests_per_s: u32 = 0, in 0..=1_000_000 => Reload;

        /// Maximum number of announces, scrapes and new WebSockets of WebTorrent for each second. Browsers announce more
        /// often; see webtorrent.interval_s.
        webtorrent_requests_per_s: u32 = 0, in 0..=1_000_000 => Reload;

        /// Maximum number of connection ids over UDP for each second. Requests beyond it get no reply. Anyone can send
        /// such a request with the address of another host and so use up the limit of that host. Set this only
        /// against a flood.
        udp_connects_per_s: u32 = 0, in 0..=1_000_000 => Reload;

        /// Maximum number of new connections over TCP for each second, plain and TLS. Further ones get the status 503,
        /// or are closed if they would begin with TLS. Connections from proxy.trusted do not count, except that a
        /// connection counts towards the client that a PROXY header names.
        tcp_connects_per_s: u32 = 0, in 0..=1_000_000 => Reload;

        /// How many requests may come at once, as the number of seconds of the rate. A client that starts announces
        /// all of its torrents, and a source that has asked little has all of these in hand.
        burst_s: u32 = 60, in 1..=3600 => Reload;

        /// Give no reply to UDP requests beyond the limit. This saves processor time and traffic. Clients then show a
        /// timeout instead of the reason, and try again after 15 seconds.
        udp_silent: bool = false => Reload;

        /// Maximum number of peers of one source in all torrents at a time, over all protocols together. A /56 network has
        /// no limit of its own here. Peers leave by their stopped event, or after announce.peer_timeout_s. A client
        /// needs one for each of its torrents. Peers beyond the limit get normal replies, but no reply contains them. The
        /// counts take 16 MiB.
        peers_per_source_max: u32 = 0, in 0..=10_000_000 => Restart;

        /// Maximum number of torrents in which one source has peers at a time, over all protocols together. In a torrent of
        /// more than about a hundred peers, several clients of a source may count as several torrents, up to one for each
        /// four of announce.peers_per_address_max; over WebTorrent, each client counts. The counts take 16 MiB.
        torrents_per_source_max: u32 = 0, in 0..=10_000_000 => Restart;

        /// Maximum share of the peers of one torrent, in per cent, that have one IPv4 address or are in one IPv6 /48. Four
        /// of them are admitted in any case, so with 10 the share holds in torrents of 40 peers or more. It is
        /// checked when a peer joins; a torrent that shrinks keeps its peers. If announce.peers_per_address_max exceeds
        /// 64, a source that chooses its ports may have four peers for each 64 of it, whatever the share. 0 means no
        /// limit other than announce.peers_per_address_max.
        swarm_share_max: u32 = 0, in 0..=100 => Restart;

        /// Refuse new peers beyond a limit on peers or torrents, or beyond announce.peers_per_address_max, with the reason.
        /// Otherwise they get normal replies, but no reply contains them.
        refuse_excess: bool = false => Reload;

        /// Networks without limits, such as those of your own clients or monitoring. They have none on their peers and
        /// torrents either, and announce.peers_per_address_max does not apply to them.
        exempt: Vec<IpNet> = Vec::new(), in 0..=FILES_MAX => Reload;
    }

    /// The memory of the whole process.
    section memory: MemoryConfig {
        /// Memory limit of the whole process: swarms and peers, connections and their buffers, queues, and the program
        /// itself. The tracker divides it at start and logs the shares. "auto" is three quarters of the machine's memory
        /// or of the cgroup limit, whichever is less; the rest remains for the kernel's socket buffers. The minimum is 26
        /// MiB plus 6 MiB for each worker.
        max: Auto<ByteSize> = Auto::Auto, in ByteSize::mib(24)..=ByteSize::gib(16_384) => Restart;
    }

    /// The memory that holds swarms and peers.
    section store: StoreConfig {
        /// Memory limit for swarms and peers, a part of memory.max. At the limit, new peers are refused with a reason,
        /// and nothing else changes. "auto" is the part of memory.max that connections and queues leave, half of it or
        /// more; the log tells the size. A million torrents with one peer each take about 40 MiB.
        memory_max: Auto<ByteSize> = Auto::Auto, in ByteSize::mib(8)..=ByteSize::gib(16_384) => Restart;

        /// The part of an info hash that the store holds. "whole" is all of its 20 bytes. "fingerprint" is a hash of 12 bytes
        /// under a random key, which saves a quarter of the memory of torrents with one peer. The store then cannot tell
        /// which torrents it has, so http.full_scrape must be false. Two torrents with the same fingerprint would share
        /// their peers; with a billion torrents, the chance that any two do is 6 in 10^12.
        info_hashes: StoredInfoHashes = StoredInfoHashes::Whole => Restart;

        /// Number of torrents that keep their count of completed downloads when their last peer leaves, for IPv4 and for IPv6
        /// each. Scrapes then answer with the count, and it returns with the next peer. Only torrents with at least one
        /// download count. In excess of the number, those with the fewest downloads go first, and the oldest among these. Each takes
        /// up to 32 bytes of memory_max. 0 keeps none.
        completed_retained_max: u32 = 0, in 0..=1_000_000_000 => Reload;

        /// Days after which such a count is forgotten.
        completed_retained_days: u32 = 365, in 1..=COMPLETED_RETAINED_DAYS_MAX => Reload;
    }

    /// The privileges of the process once it serves: the user that it runs as, and the sandbox.
    section process: ProcessConfig {
        /// The user, by name or number, that the tracker runs as once it has bound its sockets. Only root can change to
        /// another user. Everything but the configuration file is read after the change, so that what can be read at start
        /// can also be read at a reload. "" stays the user that starts the tracker, which suits systemd and containers.
        user: Option<Name> = None => Restart;

        /// The group, by name or number. "" is the primary group of the user. All other groups are given up.
        group: Option<Name> = None => Restart;

        /// Forbid files, directories and TCP ports other than those of this configuration, with Landlock, where the
        /// kernel has it (Linux 5.13 for files, 6.7 for ports). The log tells what holds. A reload that names a file
        /// elsewhere is refused.
        landlock: bool = true => Restart;

        /// Forbid system calls that the tracker does not need, with seccomp: it can start no other program, and its
        /// workers can open no file and no connection.
        seccomp: bool = true => Restart;

        /// Permit core dumps and debuggers. They contain the memory of the process, and with it the private keys of
        /// certificates and the addresses of peers.
        core_dumps: bool = false => Restart;
    }

    /// The state that outlives a run: swarms with their peers, and secret keys.
    section state: StateConfig {
        /// Directory of the state, which the tracker creates for its own user; "" keeps none. The tracker reads it before
        /// it serves, so that a restart loses no peers, and writes a snapshot when it stops. It takes about as much
        /// space as the swarms take memory, twice that while a snapshot is being written. One tracker uses it at a time.
        path: Option<PathBuf> = None => Restart;

        /// Time between two snapshots that are written beside the traffic, in seconds. A crash loses what changed since
        /// the last one. 0 writes one only on request (shoal ctl snapshot) and when the tracker stops.
        interval_s: u32 = 300, in 0..=86_400 => Restart;

        /// Keep the secret keys there too, in a file that only the owner may read. Connection ids then stay valid over a
        /// restart, and swarms of private networks and of store.info_hashes = "fingerprint" return. If false, the tracker has
        /// new keys at each start.
        keys: bool = true => Restart;
    }

    /// The cluster: several trackers that behave as one over NATS, a message bus (docs/cluster.md). Each node serves from its
    /// own memory, so that it goes on alone while NATS is away.
    section cluster: ClusterConfig {
        /// NATS servers, to one of which the tracker connects; when that one fails, to another. It connects to no servers
        /// but these. "tls://HOST" demands encryption; otherwise, the server decides. The default port is 4222. Users and
        /// passwords have keys of their own. [] is no cluster.
        servers: Vec<NatsServer> = Vec::new(), in 0..=NATS_SERVERS_MAX => Restart;

        /// Name of the cluster. Trackers with the same name, on the same NATS, share their swarms; so the name tells a cluster
        /// from others that use the same servers.
        name: ClusterName = ClusterName::from_static("shoal") => Restart;

        /// Name of this node in the log and the status of all nodes. "" is the host name.
        node: Option<Name> = None => Restart;

        /// Share lists, bans, limits and keys with the other nodes, in a bucket of JetStream. false leaves each node its own.
        shared_state: bool = true => Restart;

        /// JetStream domain of the bucket, for trackers at leaf nodes that have a JetStream of their own. "" is that of the
        /// server.
        jetstream_domain: Option<Name> = None => Restart;

        /// JetStream stream that takes the announces of users, from which another program can credit them (docs/cluster.md). A
        /// user is the claim "sub" of a token, so tokens.jwks must be set. The first node creates the stream. "" is none.
        credit_stream: Option<StreamName> = None => Restart;

        /// File of the credentials of a NATS user, as nsc makes it (".creds"), or of the seed of an nkey. Read again at each
        /// connection, as are the files of the password and the token.
        credentials: Option<PathBuf> = None => Restart;

        /// User for NATS servers with passwords, and the file of the password.
        user: Option<Name> = None => Restart;

        /// File whose first line is the password of cluster.user.
        password_file: Option<PathBuf> = None => Restart;

        /// File whose first line is the token, for NATS servers with a token.
        token_file: Option<PathBuf> = None => Restart;

        /// File of certificate authorities (PEM) that may vouch for the NATS servers, instead of those of the system. All
        /// connections are then encrypted.
        tls_ca: Option<PathBuf> = None => Restart;

        /// File of the certificate (PEM) that the tracker shows to NATS servers which ask for one.
        tls_certificate: Option<PathBuf> = None => Restart;

        /// File of its private key (PEM); "" if the key is in the file of the certificate.
        tls_key: Option<PathBuf> = None => Restart;
    }

    /// The listener for operators, which serves /health, /metrics (Prometheus) and the API over HTTP.
    section control: ControlConfig {
        /// Address of the control listener; "" disables it. Without tokens, everything that can reach it may read all of
        /// it; so configure tokens, and a certificate, before you use an address that others can reach.
        listen: Option<SocketAddr> = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, CONTROL_PORT))) => Restart;

        /// Host names that requests may use, as in http://NAME:6970/metrics, in addition to IP addresses and localhost.
        /// All other names are refused, because a web page could point a name of its own at this address. "*" allows all
        /// names.
        hosts: Vec<HostName> = Vec::new(), in 0..=FILES_MAX => Restart;

        /// File of the certificate (PEM) with which the listener serves HTTPS instead of HTTP; "" serves HTTP. SIGHUP reads
        /// it again.
        certificate: Option<PathBuf> = None => Restart;

        /// File of its private key (PEM); "" if the key is in the file of the certificate.
        private_key: Option<PathBuf> = None => Restart;

        /// File of the tokens that clients of the listener show ("Authorization: Bearer TOKEN"). Each line is
        /// "ROLE NAME sha256:HEX", where ROLE is "read" or "admin"; "shoal ctl token" makes a token and prints its line.
        /// SIGHUP reads it again. With tokens, here or in the environment variables SHOAL_CONTROL_READ_TOKEN and
        /// SHOAL_CONTROL_ADMIN_TOKEN, everything needs one but /health, /health/live, /health/ready and the status page
        /// without its figures. Without any, everything can be read, and nothing can be changed.
        tokens: Option<PathBuf> = None => Reload;
    }

    /// Observations of torrents and clients, beside the counters of the tracker. All of it together costs less than 2 %
    /// of the processor time.
    section insight: InsightConfig {
        /// Count the software of clients, as their peer ids name it, in samples of the announces. No address is part of it.
        clients: bool = true => Restart;

        /// Find the largest swarms, from samples of the announces.
        top_swarms: bool = true => Restart;

        /// Measure how long the tracker takes from the receipt of requests until it has handed the replies to the kernel, in
        /// samples of the batches.
        latency: bool = true => Restart;

        /// Maximum number of changed torrents that the feed of changes remembers for readers that fall behind; those that
        /// fall further behind start over. It takes up to 51 bytes for each, and up to 7 MiB beside, while there is a
        /// reader. 0 turns the feed off.
        changes_max: u32 = 262_144, in 0..=16_777_216 => Restart;
    }

    /// Statistics for everyone, at the addresses of http.listen and tls.listen. They tell numbers of torrents, peers and
    /// requests, never addresses, and are five seconds old at most.
    section statistics: StatisticsConfig {
        /// Serve a page at /stats.
        page: bool = false => Reload;

        /// Serve /stats.json, in the shape that docs/monitoring.md describes.
        json: bool = false => Reload;

        /// Serve /stats.json in the shape of bittorrent-tracker instead, for tools that read that one.
        bittorrent_tracker: bool = false => Reload;

        /// Serve /stats?mode=MODE in the shapes of opentracker, for the modes in this list: "everything" (XML), "peer",
        /// "torr", "conn", "scrp", "udp4" and "tcp4" (for MRTG), "top10" and "top100", which tell the info hashes of the
        /// largest torrents and need insight.top_swarms, and "tpbs", which tells all info hashes with their counts, needs
        /// http.full_scrape and has its limits.
        opentracker: Vec<OpentrackerMode> = Vec::new(), in 0..=OpentrackerMode::ALL.len() => Reload;
    }

    /// The log, which goes to standard error, and the access log.
    section log: LogConfig {
        /// Minimum level of the messages that are logged. "info" and the more severe levels log nothing for each request.
        level: LogLevel = LogLevel::Info => Reload;

        /// "human" is plain text, with colours on a terminal unless NO_COLOR is set. "json" writes one object per line.
        format: LogFormat = LogFormat::Human => Restart;

        /// Where each request is logged, as one JSON object per line: a file (an absolute path), "stderr" or "journald".
        /// "" logs none. SIGUSR1 makes the tracker open the file anew, for rotation; it also does so within a second
        /// after the file was renamed or removed. "journald:/run/systemd/journal.NAME/socket" names the socket of a
        /// journal namespace. If the target is too slow or fails, records are lost and counted, and clients are
        /// served as before.
        access: AccessLogTarget = AccessLogTarget::Off => Restart;

        /// The access log has one of so many requests, at random; 1 logs all. A line takes about 300 bytes, and a tracker
        /// that serves 100,000 requests a second would write 2.6 TB a day.
        access_sample: u32 = 1, in 1..=1_000_000 => Reload;

        /// How the access log names clients: "full" logs their addresses, "network" only their networks (an IPv4 /24 or an
        /// IPv6 /48), and "none" leaves them out. In many countries, addresses are personal data. The port and the peer id
        /// of an announce are logged in any case, and can identify a client, too.
        access_addresses: LoggedAddresses = LoggedAddresses::Network => Reload;
    }
}
