//! Load for trackers.
//!
//! Owns the population of simulated peers, the requests that they send, the check of the replies, and the report.
//! It shares the codecs and the I/O back ends with the tracker, never its decisions; and it draws nothing on a
//! terminal, which is the business of whoever calls it.

mod clock;
mod connection;
mod crew;
mod hash;
pub mod http;
mod pace;
mod plan;
mod poll;
mod popularity;
mod population;
mod preset;
mod progress;
mod report;
mod rules;
mod silence;
mod tally;
mod tls;
pub mod udp;
pub mod ws;

pub use crew::OpenError;
pub use hash::info_hash;
pub use plan::{Mix, Pace, Plan, PlanError, Popularity, Population, Sources, Stop};
pub use preset::{PRESETS, Preset, UnknownPreset};
pub use progress::{Progress, Watch};
pub use report::{
    ConnectionFailures, Connections, Kinds, LatencySummary, Percentile, Relays, Report, SCHEMA_VERSION,
    Verdict, WrongRelays, WrongReplies,
};
pub use tls::{TlsSettings, TlsVersion};
