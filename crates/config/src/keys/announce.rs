//! The keys that decide how announces and scrapes of all protocols are answered.

use crate::declare::settings;
use crate::values::{Auto, PrivateAddresses, SecretKey};

settings! {
    /// The replies to announces. Unless a key says otherwise, it applies to every protocol.
    section announce: AnnounceConfig {
        /// Seconds until a client should announce again. The load on the tracker is inversely proportional to this.
        /// Public trackers use 900 to 3600. Intervals of a few seconds are suitable only for testing.
        interval_s: u32 = 1800, in 1..=21_600 => Reload, essential;

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

        /// Maximum number of peers for any client. A UDP reply must have space for them (udp.reply_bytes_max); over
        /// IPv6 it may hold fewer. HTTP replies contain all of them.
        numwant_max: u32 = 200, in 1..=1000 => Reload;
    }

    /// UDP has no connections, so the tracker sends each client a connection id with which the client proves its
    /// address (BEP 15).
    section connection_id: ConnectionIdConfig {
        /// Secret key from which the tracker derives connection ids. "" generates a random key at each start. Trackers
        /// that share a key accept each other's ids, and a key that stays the same keeps ids valid across restarts.
        /// "openssl rand -hex 16" generates one. The key is never logged.
        key: SecretKey = SecretKey(None) => Restart;

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
        /// nothing. "serve" makes no difference between addresses, which suits a local network. "auto" is "serve" if the
        /// addresses of the tracker are all private themselves when it starts, and otherwise "apart"; the log tells which.
        private: Auto<PrivateAddresses> = Auto::Auto => Reload, essential;
    }
}
