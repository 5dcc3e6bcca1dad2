//! Load for trackers.
//!
//! Owns the simulated peers, their requests, the check of the replies, and the report. It shares the codecs and the
//! I/O back ends with the tracker, but none of its decisions. It prints nothing: output is the task of the caller.
//!
//! A [`Session`] is opened by [`udp::open`], [`http::open`] or [`ws::open`]. Its loops exist once, in `driver`, and the
//! protocols implement its trait `Protocol`. The protocols over TCP share `stream`.
//!
//! A session has one thread for each processor that it may use. Each thread has its own sockets, connected to the
//! tracker from different addresses and ports, and simulates the peers behind them. Requests are encoded once, as
//! templates, and then patched.
//!
//! # Example
//! ```
#![doc = include_str!("../examples/load_udp.rs")]
//! ```

mod clock;
mod connection;
mod driver;
pub mod http;
mod limit;
mod pace;
mod plan;
mod poll;
mod popularity;
mod population;
mod preset;
mod progress;
mod report;
mod session;
mod stream;
mod tally;
mod tls;
pub mod udp;
pub mod ws;

pub use clock::{Clock, nanoseconds};
pub use limit::Limit;
pub use pace::Arrivals;
pub use plan::{Mix, Pace, Plan, PlanError, Popularity, Population, Sources, Stop};
pub use population::info_hash;
pub use preset::{PRESETS, Preset, UnknownPreset};
pub use progress::{Progress, Watch};
pub use report::{
    Bottleneck, ConnectionFailures, Connections, Kinds, LatencySummary, Percentile, Relays, Report,
    SCHEMA_VERSION, WrongRelays, WrongReplies,
};
pub use session::{OpenError, Session};
pub use tls::{TlsSettings, TlsVersion};
