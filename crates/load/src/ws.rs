//! Load of WebTorrent: JSON over WebSockets (RFC 6455), plain or with TLS.
//!
//! All connections are open before anything is measured. Peers announce themselves with offers, which the tracker
//! relays to other peers of this generator. So it sees what becomes of each offer.

mod client;
mod description;
mod encoder;
mod messages;
mod preset;
mod request;
mod slow_reader;
mod stamp;

use std::num::NonZeroUsize;

pub use preset::{PRESETS, Preset};
use serde::Serialize;

use crate::driver::Driver;
use crate::plan::require;
use crate::session::{OpenError, Session};
use crate::stream::{check_descriptors, require_path, require_printable, require_requests};
use crate::{Plan, TlsSettings};
use client::Client;
use description::{SDP_BYTES_MAX, SDP_BYTES_MIN};

/// The settings of a load over WebSockets. The connects and the I/O back end of the [`Plan`] have no meaning here. A
/// socket of a worker is one of its source addresses, over which its connections spread. The peers of a connection
/// share a peer id.
#[derive(Clone, Debug, Serialize)]
pub struct WsSettings {
    /// The name of the tracker, with its port unless that is the default: the value of `Host`.
    #[serde(skip)]
    pub host: String,
    /// The path of the upgrade.
    pub path: String,
    /// The value of `Origin`, if it is sent.
    pub origin: Option<String>,
    /// The settings of TLS. `None`: plain WebSocket.
    #[serde(flatten, serialize_with = "crate::tls::serialize")]
    pub tls: Option<TlsSettings>,
    /// The number of connections of all workers on which peers announce themselves again and again.
    pub connections: NonZeroUsize,
    /// The number of connections that all workers open per second, including handshakes. `None`: as many as possible.
    pub ramp: Option<f64>,
    /// The number of offers in an announce, at most [`OFFERS_MAX`].
    pub offers: usize,
    /// The length of the session description in an offer or answer.
    pub sdp_bytes: usize,
    /// The share of relayed offers that are answered, 0 to 1.
    pub answer_share: f64,
    /// The average number of announces on a connection of a run, after which it is closed and opened again. 0: only the tracker
    /// closes connections.
    pub announces_per_connection: u32,
    /// Additional connections of all workers that are held open and idle, and pinged at the end of a run.
    pub held: usize,
    /// Whether a peer announces itself once on each held connection, and so receives offers.
    pub held_announce: bool,
    /// Additional connections of all workers on which a peer announces itself once, and which are never read again.
    pub slow_readers: usize,
}

/// Most connections of a worker.
pub const CONNECTIONS_MAX: usize = stamp::SLOTS_MAX;

/// Most offers in an announce.
pub const OFFERS_MAX: usize = stamp::OFFERS_MAX;

/// Creates the peers, and opens one connection for each worker to find out whether the tracker is there.
pub fn open(plan: &Plan, settings: &WsSettings) -> Result<Session, OpenError> {
    plan.check()?;
    settings.check(plan)?;
    let connections = settings.connections.get() + settings.held + settings.slow_readers;
    let (own, settings) = (plan.clone(), settings.clone());
    Session::start(plan, connections, move |index, shared| {
        let (client, run) = Client::open(&own, &settings, shared, index)?;
        Ok(Driver::new(client, run))
    })
}

impl WsSettings {
    fn check(&self, plan: &Plan) -> Result<(), OpenError> {
        let (connections, workers) = (self.connections.get(), plan.workers.len());
        let slots = connections.saturating_add(self.held).saturating_add(self.slow_readers);
        let most = workers.saturating_mul(CONNECTIONS_MAX).saturating_sub(2 * workers);
        require(slots <= most, "connections", slots, &format!("at most {CONNECTIONS_MAX} for each worker"))?;
        require(workers <= stamp::WORKERS_MAX, "workers", workers, "at most 1024")?;
        require(connections >= workers, "connections", connections, "at least one for each worker")?;
        let peers = plan.population.peers as usize;
        require(peers >= connections, "peers", peers, "at least one for each connection")?;
        let torrents = plan.population.torrents;
        require(torrents <= stamp::TORRENTS_MAX, "torrents", torrents, "at most 67,108,864")?;
        require_requests(plan, "WebTorrent")?;
        require(self.offers <= OFFERS_MAX, "offers", self.offers, &format!("at most {OFFERS_MAX}"))?;
        let accepted = format!("{SDP_BYTES_MIN} to {SDP_BYTES_MAX}");
        let fits = (SDP_BYTES_MIN..=SDP_BYTES_MAX).contains(&self.sdp_bytes);
        require(fits, "size of a session description", self.sdp_bytes, &accepted)?;
        let share = self.answer_share;
        require((0.0..=1.0).contains(&share), "share of answers", share, "a share from 0 to 1")?;
        let ramp = self.ramp.unwrap_or(1.0);
        require(ramp > 0.0 && ramp.is_finite(), "ramp", ramp, "connections a second, above 0")?;
        require_path(&self.path)?;
        require_printable("host", &self.host)?;
        require_printable("origin", self.origin.as_deref().unwrap_or("null"))?;
        check_descriptors(slots)
    }
}
