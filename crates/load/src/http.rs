//! Load over HTTP (BEP 3, 23, 48), plain or with TLS.
//!
//! Connections are opened when they are needed, and stay open as long as both sides want.

mod check;
mod client;
mod preset;
mod reply;
mod template;

use std::num::NonZeroUsize;

pub use preset::{PRESETS, Preset};
use serde::Serialize;

pub use crate::tls::{TlsSettings, TlsVersion};

use crate::Plan;
use crate::driver::Driver;
use crate::plan::require;
use crate::session::{OpenError, Session};
use crate::stream::{check_descriptors, require_path, require_printable, require_requests};
use client::Client;

/// The settings of a load over HTTP. The connects and the I/O back end of the [`Plan`] have no meaning here. A socket
/// of a worker is one of its source addresses, over which its connections spread.
#[derive(Clone, Debug, Serialize)]
pub struct HttpSettings {
    /// The name of the tracker, with its port unless that is the default: the value of `Host`.
    #[serde(skip)]
    pub host: String,
    /// The path of announces. Parameters are appended to it.
    pub announce_path: String,
    /// The path of scrapes.
    #[serde(skip)]
    pub scrape_path: String,
    /// The settings of TLS. `None`: plain HTTP.
    #[serde(flatten, serialize_with = "crate::tls::serialize")]
    pub tls: Option<TlsSettings>,
    /// The number of connections of each worker.
    #[serde(rename = "connections_per_worker")]
    pub connections: NonZeroUsize,
    /// The number of requests in flight on a connection, at most [`PIPELINING_MAX`].
    pub pipelining: NonZeroUsize,
    /// How many requests a connection carries.
    #[serde(skip)]
    pub reuse: Reuse,
    /// Whether connections are reset instead of closed properly, which frees the memory of both hosts at once.
    pub reset: bool,
}

/// How many requests a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// For all requests, one after the other (keep-alive).
    KeepAlive,
    /// For a single request. Connections are kept open only while the tracker is filled.
    PerRequest,
    /// For a single request, after which it is held open until the run ends.
    Held,
}

/// Most connections of a worker. This host does not have more ports on its loopback addresses for one tracker.
pub const CONNECTIONS_MAX: usize = 1 << 20;

/// Most requests in flight on a connection.
pub const PIPELINING_MAX: usize = 1024;

/// Creates the peers, and opens one connection for each worker to find out whether the tracker is there.
pub fn open(plan: &Plan, settings: &HttpSettings) -> Result<Session, OpenError> {
    plan.check()?;
    settings.check(plan)?;
    let (own, settings) = (plan.clone(), settings.clone());
    Session::start(plan, 0, move |index, shared| {
        let (client, run) = Client::open(&own, &settings, shared, index)?;
        Ok(Driver::new(client, run))
    })
}

impl HttpSettings {
    fn check(&self, plan: &Plan) -> Result<(), OpenError> {
        let connections = self.connections.get();
        let most = format!("at most {CONNECTIONS_MAX}");
        require(connections <= CONNECTIONS_MAX, "connections of a worker", connections, &most)?;
        let (depth, is_single) = (self.pipelining.get(), self.reuse != Reuse::KeepAlive);
        let most = if is_single { 1 } else { PIPELINING_MAX };
        let accepted = match is_single {
            true => "1, where a connection carries a single request".to_owned(),
            false => format!("at most {PIPELINING_MAX}"),
        };
        require(depth <= most, "pipelining depth", depth, &accepted)?;
        require_requests(plan, "HTTP")?;
        require_path(&self.announce_path)?;
        require_path(&self.scrape_path)?;
        require_printable("host", &self.host)?;
        check_descriptors(plan.workers.len() * connections)
    }
}
