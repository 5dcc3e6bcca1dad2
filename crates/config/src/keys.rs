//! Every key of the tracker, declared once.
//!
//! The comments become the documentation of `shoal config`, so they speak to operators: what the key decides, when
//! to change it, and what the default is good for.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use shoal_wire::datagram::REPLY_BYTES_MAX;

use crate::declare::settings;
use crate::values::{
    Auto, ByteSize, ClientHeader, DatagramBackend, HostName, Listen, LogFormat, LogLevel, Origin, SecretKey,
    StreamBackend, Trusted,
};

/// The port that BitTorrent trackers have by custom.
const PORT: u16 = 6969;

/// The port of the control listener.
const CONTROL_PORT: u16 = 6970;

/// Most addresses of each list of listeners: each worker has a socket for each.
pub const LISTEN_ADDRESSES_MAX: usize = 16;

/// Most entries of a list of files or networks.
const FILES_MAX: usize = 256;

/// Most that `scrape.hashes_max` can be. A request of 100 hashes has 2016 bytes, more than an Ethernet frame.
pub const SCRAPE_HASHES_MAX: u32 = 100;

/// What every host must be able to receive in one piece, less headers: 576 - 20 - 8 (RFC 791, section 3.1).
const REPLY_BYTES_MIN: u32 = 548;

/// The room that the buffers have for a reply. The assertion makes the cast safe.
const REPLY_BYTES_LIMIT: u32 = {
    assert!(REPLY_BYTES_MAX <= 65_507, "no datagram over IPv4 is larger");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let limit = REPLY_BYTES_MAX as u32;
    limit
};

settings! {
    /// The UDP tracker protocol (BEP 15), which most clients prefer.
    section udp: Udp {
        /// Addresses and ports to serve. IPv4 and IPv6 are separate sockets, so list both families.
        /// On a host with several addresses, replies leave from the address that was asked.
        /// Port 0 takes any free port; the log tells which. [] turns UDP off.
        listen: Vec<SocketAddr> = vec![
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
        ], in 0..=LISTEN_ADDRESSES_MAX;

        /// How datagrams are moved. "mmsg" is recvmmsg/sendmmsg, which works everywhere; "uring" is io_uring, which
        /// containers often forbid. "auto" takes the one that costs less of those that work, which by measurement
        /// is mmsg, and logs the choice.
        io: DatagramBackend = DatagramBackend::Auto;

        /// Kernel buffer for requests that wait, for each socket (every worker has one for each address).
        /// Larger buffers ride out longer bursts. The kernel caps it at the sysctl net.core.rmem_max; the log
        /// warns if it grants less.
        receive_buffer: ByteSize = ByteSize::mib(4), in ByteSize::kib(64)..=ByteSize::gib(1);

        /// Kernel buffer for replies that wait for the network card, for each socket. Capped at the sysctl
        /// net.core.wmem_max.
        send_buffer: ByteSize = ByteSize::mib(1), in ByteSize::kib(64)..=ByteSize::gib(1);

        /// Largest reply over IPv4 in bytes, without headers. Replies that do not fit the path are lost or cut
        /// in fragments that many firewalls drop. 1232 fits every path of today, tunnels included, and holds
        /// 202 peers.
        reply_bytes_max_v4: u32 = 1232, in REPLY_BYTES_MIN..=REPLY_BYTES_LIMIT;

        /// The same over IPv6. 1232 fits the smallest path that IPv6 allows (1280 with headers) and holds 67 peers,
        /// each of which takes three times the room of an IPv4 peer.
        reply_bytes_max_v6: u32 = 1232, in REPLY_BYTES_MIN..=REPLY_BYTES_LIMIT;
    }

    /// Announces and scrapes over HTTP (BEP 3), on the same swarms as UDP. Clients reach them as
    /// http://HOST:6969/announce.
    section http: Http {
        /// Where to accept plain HTTP: addresses with ports, and Unix sockets ("unix:/run/shoal/http.sock") for a proxy
        /// on this host. Behind either, " proxy-protocol" says that each connection begins with a PROXY header
        /// (version 1 or 2), as haproxy, hitch and nginx can send it; then nobody but proxy.trusted may connect there.
        /// [] turns plain HTTP off.
        listen: Vec<Listen> = vec![
            Listen::tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))),
            Listen::tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))),
        ], in 0..=LISTEN_ADDRESSES_MAX;

        /// How connections are served, plain and TLS. "epoll" is the only way at present, and "auto" takes it.
        io: StreamBackend = StreamBackend::Auto;

        /// Leave a connection open for further requests, as HTTP/1.1 clients expect. Proxies gain most by it. An idle
        /// connection takes a few hundred bytes here, and some KiB with TLS.
        keep_alive: bool = true;

        /// Serve announces and scrapes that web pages of other sites make. BitTorrent clients are no web pages, but any page
        /// could enter the addresses of its visitors in swarms. For WebTorrent see webtorrent.origins_allow.
        cross_site: bool = false;

        /// Seconds for which a connection may idle between two requests.
        idle_timeout_s: u32 = 60, in 1..=86_400;

        /// Seconds in which a request must have arrived whole, from its first byte or from the start of the
        /// connection; a TLS handshake, too.
        request_timeout_s: u32 = 10, in 1..=3600;

        /// Seconds in which a client must take its answer (of a full scrape, each piece).
        send_timeout_s: u32 = 10, in 1..=3600;

        /// Most connections, plain and TLS, of all workers together, of which each has an equal share. When it is
        /// reached, a connection of the source that has most of them makes room, the one that has been idle longest first;
        /// a source that has as many itself is refused instead. "auto" is as many as the limit on open files allows, and
        /// the log tells how many.
        connections_max: Auto<u32> = Auto::Auto, in 1..=100_000_000;

        /// Most connections of one source: a client address, or of IPv6 a /64 network. A /56 may have twice as many, and a
        /// /48 eight times. Carriers put many clients behind one address, so do not be too strict. Connections from
        /// proxy.trusted are not counted, but those of a client that a proxy names by the PROXY protocol are.
        /// WebSockets have webtorrent.connections_per_source_max instead.
        connections_per_source_max: u32 = 256, in 1..=100_000_000;

        /// Answer a scrape without info_hash with the counts of all torrents. That tells everybody which torrents there
        /// are, and takes time and traffic in proportion.
        full_scrape: bool = false;

        /// Most full scrapes that a worker answers at a time; others are told to come back later.
        full_scrapes_max: u32 = 1, in 1..=64;

        /// Seconds in which a client must take the whole of a full scrape, or of any answers between which its connection
        /// is never idle. The times in which the tracker waits for the client add up to this.
        full_scrape_timeout_s: u32 = 300, in 1..=86_400;
    }

    /// The same over TLS 1.2 and 1.3 (https://HOST:PORT/announce), without a proxy in front.
    section tls: Tls {
        /// Where to accept TLS, written as in http.listen. Port 443 is where clients and firewalls expect it.
        listen: Vec<Listen> = Vec::new(), in 0..=LISTEN_ADDRESSES_MAX;

        /// Certificates in PEM, each file with its whole chain. With several, a client gets the one whose names match
        /// the name that it asks for, and the first if none does. SIGHUP has them read again without dropping a
        /// connection. "shoal tls self-signed" makes one for trials.
        certificates: Vec<PathBuf> = Vec::new(), in 0..=FILES_MAX;

        /// The private key of each certificate, in the same order, in PEM (PKCS#8, SEC1 or PKCS#1; ECDSA P-256 costs
        /// least). [] where each certificate file holds its key as well.
        keys: Vec<PathBuf> = Vec::new(), in 0..=FILES_MAX;
    }

    /// WebTorrent: browsers announce over WebSockets, on any path of the addresses of http.listen and tls.listen, and
    /// reach each other through the tracker (ws://HOST:6969/announce, wss://...). Their swarms are their own, since a
    /// browser cannot be reached by address and port.
    section webtorrent: WebTorrent {
        /// Serve it.
        enabled: bool = true;

        /// Seconds until a client should announce again. Each announce brings new offers, by which a browser finds more
        /// peers, so this is shorter than announce.interval_s.
        interval_s: u32 = 120, in 1..=21_600;

        /// Up to so many seconds are added to each interval at random.
        interval_jitter_s: u32 = 30, in 0..=21_600;

        /// Seconds without an announce after which a peer is forgotten although its connection stands. One whose
        /// connection ends is forgotten at once.
        peer_timeout_s: u32 = 600, in 2..=86_400;

        /// Seconds of silence after which a client is asked for a sign of life; after as many more without one its
        /// connection is closed. Proxies in front may close what is silent for a minute.
        ping_interval_s: u32 = 50, in 1..=86_400;

        /// Most offers of one announce that are handed on, each to another peer. Clients send 5 to 50.
        offers_max: u32 = 10, in 0..=100;

        /// Largest message. A client that sends a larger one is disconnected. An announce holds all offers of a client,
        /// each of 0.5 to 4 KiB.
        message_max: ByteSize = ByteSize::kib(256), in ByteSize::kib(4)..=ByteSize::mib(16);

        /// Largest single offer or answer. A larger one is left out.
        offer_max: ByteSize = ByteSize::kib(16), in ByteSize::kib(1)..=ByteSize::kib(512);

        /// Most replies to its own messages that wait for a client that does not take them; then it is disconnected.
        unsent_max: ByteSize = ByteSize::kib(256), in ByteSize::kib(16)..=ByteSize::mib(64);

        /// Most WebSockets of one source, as http.connections_per_source_max counts sources. It is higher because
        /// WebSockets stay, and carriers put many browsers behind one address. A WebSocket that a trusted proxy asks for
        /// counts towards the client that the proxy names.
        connections_per_source_max: u32 = 4096, in 1..=100_000_000;

        /// Most that others have for a client that waits for it, answers to its offers; of offers half as much. What comes
        /// beyond is dropped, and counted; the client stays connected. One more always fits.
        queue_max: ByteSize = ByteSize::kib(128), in ByteSize::kib(16)..=ByteSize::mib(16);

        /// Most bytes a second of offers that are handed on for one connection, with the messages around them, averaged over
        /// eight seconds; of one source (an IPv4 address or an IPv6 /64) eight times as many. Its announces are answered all
        /// the same. 0 is no limit.
        relay_rate_max: ByteSize = ByteSize::kib(256), in ByteSize(0)..=ByteSize::gib(1);

        /// Most torrents that a client may announce on one connection.
        torrents_per_connection_max: u32 = 1000, in 1..=1_000_000;

        /// Most peers of all its swarms together; beyond it new ones are refused, and above half of it those of a source (an
        /// IPv4 address, an IPv6 /64 or /48) that has more than its share. Each takes 200 to 360 bytes, and up to 768
        /// more for offers that are not answered yet. "auto" is as many as an eighth of memory.max holds, or less where
        /// memory.max is small.
        peers_max: Auto<u32> = Auto::Auto, in 1..=1_000_000_000;

        /// Most that waits between two looks of a worker for what other workers hand to it, for each worker. What does
        /// not fit is lost, and counted. Never more than its part of memory.max.
        mailbox_max: ByteSize = ByteSize::mib(16), in ByteSize::mib(1)..=ByteSize::gib(1);

        /// Pages that may use the tracker, by their origin (the Origin header, which browsers send and pages cannot
        /// change). [] lets all.
        origins_allow: Vec<Origin> = Vec::new(), in 0..=FILES_MAX;

        /// Pages that may not, whatever origins_allow says.
        origins_deny: Vec<Origin> = Vec::new(), in 0..=FILES_MAX;

        /// Serve clients that send no Origin header, which are no browsers: desktop clients, servers, tools.
        origin_missing: bool = true;
    }

    /// Proxies in front of HTTP. Only what is listed here is believed about the addresses of clients.
    section proxy: Proxy {
        /// Networks from which only proxies connect, and "unix" for the Unix sockets of http.listen. Whoever connects
        /// from there can announce any address.
        trusted: Vec<Trusted> = Vec::new(), in 0..=FILES_MAX;

        /// The header in which they name the client. Of "x-forwarded-for" and "forwarded", which are lists, the last
        /// address that is not itself a trusted proxy counts. Set the one that your proxy overwrites or appends to:
        /// any other could come from the client. A PROXY header needs no key here, see http.listen.
        header: ClientHeader = ClientHeader::None;
    }

    /// The threads that serve requests.
    section workers: Workers {
        /// How many. "auto" is one for each processor that the tracker may use, as CPU affinity and cgroup quota say.
        count: Auto<u32> = Auto::Auto, in 1..=1024;

        /// Bind each worker to a processor of its own. It gains a little on a machine that does nothing else. It
        /// hurts where other programs share the processors, since a pinned worker cannot step aside.
        pin: bool = false;
    }

    /// What clients are told when they announce themselves, for every protocol.
    section announce: Announce {
        /// Seconds until a client should announce again. The load of a tracker is inverse to this. Public trackers use
        /// 900 to 3600; a few seconds are good for laboratories only.
        interval_s: u32 = 1800, in 1..=21_600;

        /// Up to so many seconds are added to each interval at random, so that a restart does not synchronise
        /// the announces of the whole world.
        interval_jitter_s: u32 = 300, in 0..=21_600;

        /// Seconds that a client must let pass in any case, also when it has a reason to ask early (over HTTP, which can
        /// say so). Never more than interval_s is sent; 0 sends none.
        min_interval_s: u32 = 300, in 0..=21_600;

        /// Seconds of silence after which a peer is forgotten. Must exceed interval_s + interval_jitter_s, and some
        /// minutes more forgive a lost announce. Larger values hand out more dead peers.
        peer_timeout_s: u32 = 2700, in 2..=86_400;

        /// Peers for a client that does not say how many it wants.
        numwant_default: u32 = 50, in 0..=1000;

        /// Most peers of one address in one torrent; of IPv6, of one /48 network. Further ones are answered like any
        /// other, but handed to nobody. An address has 65,535 ports, and could otherwise take all places. Where an address
        /// has three peers or more in a torrent, a reply holds two of them at most, if there are enough others. 0 turns
        /// both off, as a laboratory may need it. Carriers' NAT and VPN exits put many clients behind one address: a
        /// tracker for those may set some hundreds. It is not exact: in a large torrent it may be half more.
        peers_per_address_max: u32 = 64, in 0..=65_535;

        /// Most peers for any client. A UDP reply must have room for them (udp.reply_bytes_max_v4); over IPv6 it may
        /// hold fewer. Over HTTP all are sent.
        numwant_max: u32 = 200, in 1..=1000;
    }

    /// Questions for counts of swarms.
    section scrape: Scrape {
        /// Most info hashes in one request over UDP. BEP 15 lets clients send "about 74". Over HTTP the size of a request
        /// is the limit, at about 130.
        hashes_max: u32 = 74, in 1..=SCRAPE_HASHES_MAX;
    }

    /// UDP has no connections, so a client proves its address by a connection id that it was sent (BEP 15).
    section connection_id: ConnectionId {
        /// Secret from which ids are made. "" takes a random one at each start. Set the same key on several
        /// trackers, or keep it over restarts, and they accept each other's ids. Made for example by
        /// "openssl rand -hex 16". It is never logged.
        key: SecretKey = SecretKey(None);

        /// Seconds for which an id is accepted beyond the two minutes of BEP 15; some clients keep theirs too long.
        grace_s: u32 = 120, in 0..=3600;

        /// Answer a wrong id with an error rather than silence. Friendlier to clients that would wait, but then
        /// anyone can make the tracker send (small) datagrams to a forged address.
        answer_wrong: bool = false;
    }

    /// Which clients are served.
    section address: Address {
        /// Refuse clients with private or loopback addresses. Right for a public tracker, where such peers are of
        /// no use to others; wrong for a tracker at home.
        refuse_private: bool = false;
    }

    /// The memory of the whole process.
    section memory: Memory {
        /// Ceiling for all of it: swarms and peers, what connections hold, what waits for them, the program itself. At
        /// start it is divided, and the log tells how. "auto" is three quarters of the machine's memory or of the cgroup
        /// limit, whichever is less; the rest is for what the kernel keeps of sockets. It takes 26 MiB and 6 MiB for
        /// each worker at the least.
        max: Auto<ByteSize> = Auto::Auto, in ByteSize::mib(24)..=ByteSize::gib(16_384);
    }

    /// The memory in which swarms live.
    section store: Store {
        /// Ceiling for swarms and peers, a part of memory.max. At the ceiling new peers are refused with a reason, and
        /// nothing else changes. "auto" is what memory.max leaves beside connections and queues, half of it or more; the
        /// log tells how much. A million torrents of one peer take about 40 MiB.
        memory_max: Auto<ByteSize> = Auto::Auto, in ByteSize::mib(8)..=ByteSize::gib(16_384);
    }

    /// The listener for operators: /health and /metrics (Prometheus) over HTTP.
    section control: Control {
        /// Its address; "" turns it off. It has no password, so keep it on an address that only you can reach.
        listen: Option<SocketAddr> = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, CONTROL_PORT)));

        /// Names by which it may be asked, as in http://NAME:6970/metrics, besides IP addresses and localhost. All others are
        /// refused, because a web page could lead a name of its own to this address. "*" stands for all names.
        hosts: Vec<HostName> = Vec::new(), in 0..=FILES_MAX;
    }

    /// The log, which goes to standard error.
    section log: Log {
        /// How much is logged. At "info" and above nothing is logged per request.
        level: LogLevel = LogLevel::Info;

        /// "human" is text, in colour on a terminal unless NO_COLOR is set. "json" is an object for each line.
        format: LogFormat = LogFormat::Human;
    }
}
