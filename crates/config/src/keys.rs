//! Every key of the tracker, declared once: each module has the sections of one subject, and this one has their order.
//!
//! `shoal config` prints the comments of sections and keys, so they address operators. Each says what the key decides, when to
//! change it and why the default is sensible.

mod access;
mod announce;
mod cluster;
mod http;
mod limits;
mod operator;
mod process;
mod store;
mod udp;
mod webtorrent;

pub use access::{AccessConfig, FetchConfig, TokensConfig};
pub use announce::{AddressConfig, AnnounceConfig, ConnectionIdConfig, SCRAPE_HASHES_MAX, ScrapeConfig};
pub use cluster::ClusterConfig;
pub use http::{HttpConfig, ProxyConfig, TlsConfig};
pub use limits::LimitsConfig;
pub use operator::{ControlConfig, InsightConfig, LogConfig, StatisticsConfig};
pub use process::{MemoryConfig, ProcessConfig, WorkersConfig};
pub use store::{COMPLETED_RETAINED_DAYS_MAX, StateConfig, StoreConfig};
pub use udp::{UdpConfig, XdpConfig};
pub use webtorrent::WebTorrentConfig;

use crate::declare::sections;

/// The port that BitTorrent trackers use by convention.
const PORT: u16 = 6969;

/// The maximum number of addresses in each list of listeners. Each worker opens a socket for each address.
pub const LISTEN_ADDRESSES_MAX: usize = 16;

/// The maximum number of entries in a list of files or networks.
const FILES_MAX: usize = 256;

sections! {
    udp: UdpConfig,
    xdp: XdpConfig,
    http: HttpConfig,
    tls: TlsConfig,
    webtorrent: WebTorrentConfig,
    proxy: ProxyConfig,
    workers: WorkersConfig,
    announce: AnnounceConfig,
    scrape: ScrapeConfig,
    connection_id: ConnectionIdConfig,
    address: AddressConfig,
    access: AccessConfig,
    tokens: TokensConfig,
    fetch: FetchConfig,
    limits: LimitsConfig,
    memory: MemoryConfig,
    store: StoreConfig,
    process: ProcessConfig,
    state: StateConfig,
    cluster: ClusterConfig,
    control: ControlConfig,
    insight: InsightConfig,
    statistics: StatisticsConfig,
    log: LogConfig,
}

impl Config {
    /// Returns whether the tracker is a node of a cluster.
    #[must_use]
    pub const fn is_node(&self) -> bool {
        !self.cluster.servers.is_empty()
    }

    /// Returns whether the tracker shares lists, bans, limits and keys with the other nodes of its cluster.
    #[must_use]
    pub const fn shares_state(&self) -> bool {
        self.is_node() && self.cluster.shared_state
    }
}
