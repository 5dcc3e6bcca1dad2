//! The configuration of the tracker: every key, its meaning, its default and what it accepts.
//!
//! Each key is declared once, in `keys`. The typed structs, the defaults, the commented default file, the names
//! of the environment variables and the validation all come from that declaration, so they cannot drift apart.
//!
//! This crate turns text into a [`Config`] or into everything that is wrong with the text. It must not read files,
//! the environment or the machine itself (the caller hands both in), so that every refusal can be tested.
#![forbid(unsafe_code)]

mod declare;
mod keys;
mod print;
mod problem;
mod raw;
mod read;
mod rules;
mod suggest;
mod value;
mod values;

pub use keys::{
    Address, Announce, Config, ConnectionId, Control, Http, LISTEN_ADDRESSES_MAX, Log, Proxy,
    SCRAPE_HASHES_MAX, Scrape, Store, Tls, Udp, WebTorrent, Workers,
};
pub use print::{default_toml, environment_names};
pub use problem::{Problem, Problems};
pub use read::{ConfigFile, read};
pub use values::{
    Auto, ByteSize, ClientHeader, DatagramBackend, HostName, Listen, LogFormat, LogLevel, Origin, Place,
    SecretKey, StreamBackend, Trusted,
};

/// How the name of every environment variable of the tracker begins.
pub const ENVIRONMENT_PREFIX: &str = "SHOAL_";
