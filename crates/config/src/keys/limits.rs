//! The keys of the limits on sources.

use core::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::FILES_MAX;
use crate::declare::settings;

settings! {
    /// How often one source may ask, and how much it may hold. A source is an IPv4 address or an IPv6 /64 network; a
    /// /56 network may ask twice as often as one source, and a /48 network eight times. Behind a trusted proxy, the
    /// source is the client that the proxy names. A source that asks too often is served at its rate, and refused
    /// beyond it; see bans for what follows. The limits on requests and connections take 32 MiB in all, however many sources
    /// there are, less if memory.max is below 512 MiB, and nothing if none is set. 0 means no limit. The defaults are
    /// enough for 5,000 clients with 20 to 50 torrents each behind one address of a carrier.
    section limits: LimitsConfig {
        /// Maximum number of announces and scrapes over UDP for each second. A client announces each of its torrents once
        /// in announce.interval_s, so 1 is enough for some thousand torrents. Carriers put many clients behind one
        /// address.
        udp_requests_per_s: u32 = 200, in 0..=1_000_000 => Reload;

        /// Maximum number of announces and scrapes over HTTP for each second.
        http_requests_per_s: u32 = 200, in 0..=1_000_000 => Reload;

        /// Maximum number of announces, scrapes and new WebSockets of WebTorrent for each second. Browsers announce more
        /// often; see webtorrent.interval_s.
        webtorrent_requests_per_s: u32 = 500, in 0..=1_000_000 => Reload;

        /// Maximum number of connection ids over UDP for each second. Requests beyond it get no reply. Anyone can send
        /// such a request with the address of another host and so use up the limit of that host. Set this only
        /// against a flood.
        udp_connects_per_s: u32 = 0, in 0..=1_000_000 => Reload;

        /// Maximum number of new connections over TCP for each second, plain and TLS. Further ones get the status 503,
        /// or are closed if they would begin with TLS. Connections from proxy.trusted do not count, except that a
        /// connection counts towards the client that a PROXY header names.
        tcp_connects_per_s: u32 = 200, in 0..=1_000_000 => Reload;

        /// How many requests may come at once, as the number of seconds of the rate. A client that starts announces
        /// all of its torrents, and all clients behind an address come at once after a restart of the tracker. A source that
        /// has asked little has all of these in hand.
        burst_s: u32 = 1000, in 1..=3600 => Reload;

        /// Give no reply to UDP requests beyond the limit. This saves processor time and traffic. Clients then show a
        /// timeout instead of the reason, and try again after 15 seconds.
        udp_silent: bool = false => Reload;

        /// Maximum number of peers of one source in all torrents at a time, over all protocols together. A /56 network has
        /// no limit of its own here. Peers leave by their stopped event, or after announce.peer_timeout_s. A client
        /// needs one for each of its torrents, so this limits the torrents of a source as well. Peers beyond the limit get
        /// normal replies, but no reply contains them. The counts take 16 MiB, less if memory.max is below 512 MiB.
        peers_per_source_max: u32 = 250_000, in 0..=10_000_000 => Restart;

        /// Maximum number of torrents in which one source has peers at a time, over all protocols together. In a torrent of
        /// more than about a hundred peers, several clients of a source may count as several torrents, up to one for each
        /// four of announce.peers_per_address_max; over WebTorrent, each client counts. The counts take as much memory as those
        /// of the peers.
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
        /// torrents either, and announce.peers_per_address_max does not apply to them. A value replaces the default, which is
        /// this host itself.
        exempt: Vec<IpNet> = loopback(), in 0..=FILES_MAX => Reload;
    }
}

fn loopback() -> Vec<IpNet> {
    let v4 = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
    vec![v4.into(), Ipv6Net::from(Ipv6Addr::LOCALHOST).into()]
}
