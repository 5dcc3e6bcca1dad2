//! Every key of the tracker, declared once: each module has the sections of one subject, and this one orders them.
//!
//! `shoal config --all` prints the comments of sections and keys, so they address operators. Each says what the key decides,
//! when to change it and why the default is sensible.

mod access;
mod acme;
mod announce;
mod bans;
mod cluster;
mod http;
mod limits;
mod operator;
mod process;
mod store;
mod udp;
mod webtorrent;

pub use access::{AccessConfig, FetchConfig, TokensConfig};
pub use acme::AcmeConfig;
pub use announce::{AddressConfig, AnnounceConfig, ConnectionIdConfig};
pub use bans::BansConfig;
pub use cluster::ClusterConfig;
pub use http::{HttpConfig, ProxyConfig, TlsConfig};
pub use limits::LimitsConfig;
pub use operator::{ControlConfig, HomeConfig, LogConfig, StatisticsConfig};
pub use process::{MemoryConfig, ProcessConfig, WorkersConfig};
pub use store::{StateConfig, StoreConfig};
pub use udp::{UdpConfig, XdpConfig};
pub use webtorrent::WebTorrentConfig;

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::declare::sections;
use crate::values::Listen;

/// The port that BitTorrent trackers use by convention.
const PORT: u16 = 6969;

/// The port of HTTPS, which certificate authorities connect to.
const TLS_PORT: u16 = 443;

/// The directory of the state of a tracker that obtains certificates, as packages create it.
const STATE_PATH: &str = "/var/lib/shoal";

/// The name of the file of bans among the files of the state.
const BANS_FILE: &str = "bans";

/// The maximum number of addresses in each list of listeners. Each worker opens a socket for each address.
pub const LISTEN_ADDRESSES_MAX: usize = 16;

/// The maximum number of entries in a list of files or networks.
const FILES_MAX: usize = 256;

sections! {
    udp: UdpConfig,
    xdp: XdpConfig,
    http: HttpConfig,
    tls: TlsConfig,
    acme: AcmeConfig,
    webtorrent: WebTorrentConfig,
    proxy: ProxyConfig,
    workers: WorkersConfig,
    announce: AnnounceConfig,
    connection_id: ConnectionIdConfig,
    address: AddressConfig,
    access: AccessConfig,
    tokens: TokensConfig,
    fetch: FetchConfig,
    limits: LimitsConfig,
    bans: BansConfig,
    memory: MemoryConfig,
    store: StoreConfig,
    process: ProcessConfig,
    state: StateConfig,
    cluster: ClusterConfig,
    control: ControlConfig,
    statistics: StatisticsConfig,
    home: HomeConfig,
    log: LogConfig,
}

impl Config {
    /// Returns whether the tracker is a node of a cluster.
    pub const fn is_node(&self) -> bool {
        !self.cluster.servers.is_empty()
    }

    /// Returns whether the tracker shares lists, bans, limits and keys with the other nodes of its cluster.
    pub const fn shares_state(&self) -> bool {
        self.is_node() && self.cluster.shared_state
    }

    /// Returns the file of the bans: `access.bans_file`, or else the one among the files of the state.
    pub fn bans_file(&self) -> Option<PathBuf> {
        let of_state = || self.state.path.as_ref().map(|state| state.join(BANS_FILE));
        self.access.bans_file.clone().or_else(of_state)
    }

    /// Returns whether the tracker obtains a certificate by itself.
    pub const fn has_acme(&self) -> bool {
        !self.acme.domains.is_empty()
    }

    /// Sets the keys without which there is no use for a certificate that the tracker obtains, unless they are written.
    pub(crate) fn complete_for_acme(&mut self, is_written: impl Fn(&str) -> bool) {
        if !self.has_acme() {
            return;
        }
        if !is_written("tls.listen") {
            let everywhere =
                [(Ipv4Addr::UNSPECIFIED, TLS_PORT).into(), (Ipv6Addr::UNSPECIFIED, TLS_PORT).into()];
            self.tls.listen = everywhere.map(|address: SocketAddr| Listen::tcp(address)).into();
        }
        if !is_written("state.path") {
            self.state.path = Some(PathBuf::from(STATE_PATH));
        }
    }

    /// Returns the maximum number of seconds that are added at random to an interval of WebTorrent: the same share as
    /// in other protocols, up to a quarter.
    pub fn webtorrent_jitter_s(&self) -> u32 {
        let usual_s = self.webtorrent.interval_s;
        self.as_announce(usual_s, self.announce.interval_jitter_s).min(usual_s / 4)
    }

    /// Returns the maximum interval of WebTorrent under load: the same multiple of the usual one as in other protocols,
    /// but limited so that no peer times out.
    pub fn webtorrent_interval_s_max(&self) -> u32 {
        let (announce, webtorrent) = (&self.announce, &self.webtorrent);
        let raised_s = self.as_announce(webtorrent.interval_s, announce.interval_s_max);
        let least_timeout_s = self.webtorrent_jitter_s() + 1;
        raised_s.min(webtorrent.peer_timeout_s.saturating_sub(least_timeout_s)).max(webtorrent.interval_s)
    }

    /// Returns a time in the same proportion to `usual_s` as `announce_s` to `announce.interval_s`.
    fn as_announce(&self, usual_s: u32, announce_s: u32) -> u32 {
        let scaled = u64::from(usual_s) * u64::from(announce_s) / u64::from(self.announce.interval_s.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX)
    }
}
