//! The configuration of the tracker: every key with its meaning, its default and the values it accepts.
//!
//! The modules in `keys` declare each key once. The typed structs, the defaults, the commented default file, the names
//! of the environment variables and the validation all come from that declaration, so they cannot drift apart.
//!
//! This crate turns text into a [`Config`], or into a list of all its problems. It does not read files, the environment
//! or the machine itself. The caller passes these in, so tests can cover every refusal.
#![forbid(unsafe_code)]

mod declare;
mod draft;
mod keys;
mod print;
mod problem;
mod raw;
mod read;
mod reload;
mod rules;
mod uses;
mod value;
mod values;

pub use draft::{Contradiction, Draft, Setting};
pub use keys::{
    AccessConfig, AcmeConfig, AddressConfig, AnnounceConfig, BansConfig, ClusterConfig, Config,
    ConnectionIdConfig, ControlConfig, FetchConfig, HomeConfig, HttpConfig, LISTEN_ADDRESSES_MAX,
    LimitsConfig, LogConfig, MemoryConfig, ProcessConfig, ProxyConfig, StateConfig, StatisticsConfig,
    StoreConfig, TlsConfig, TokensConfig, UdpConfig, WebTorrentConfig, WorkersConfig, XdpConfig,
};
pub use print::{default_toml, environment_names, page_markdown, section_toml, short_toml};
pub use problem::{Problem, Problems, Provenance};
pub use read::{ConfigFile, Overrides, is_shared, nearest, read, read_with, reread, reread_with};
pub use reload::{Differences, Reloaded};
pub use uses::Use;
pub use values::{
    AccessLogTarget, AnnounceUrl, Auto, BlocklistField, ByteSize, CLUSTER_NAME_BYTES_MAX, ClientHeader,
    ClusterName, DatagramBackend, HostName, InterfaceName, ListSource, Listen, LogFormat, LogLevel,
    LoggedAddresses, Name, NatsServer, OpentrackerMode, Origin, PageText, PrivateAddresses, SecretKey,
    SourceUrl, StreamName, Trusted, XdpMode,
};

/// The prefix of the tracker's environment variables.
pub const ENVIRONMENT_PREFIX: &str = "SHOAL_";
