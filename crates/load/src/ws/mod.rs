//! Load of WebTorrent: JSON over WebSockets (RFC 6455), plain or by TLS.
//!
//! A [`Session`] owns the threads of the generator, the connections, and the peers that speak on them. Every connection
//! stands before anything is measured. A peer announces itself with offers, which the tracker relays to other peers, all
//! of which are this generator's: so it is seen what became of each of them.

mod ask;
mod course;
mod description;
mod hear;
mod open;
mod pen;
mod preset;
mod seat;
mod stamp;
mod worker;

use std::num::NonZeroUsize;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::connection;
use crate::crew::{Crew, OpenError, Shared};
use crate::plan::{PlanError, demand};
use crate::tls::Client;
use crate::{Pace, Plan, Report, Stop, TlsSettings, Watch};
use description::{SDP_BYTES_MAX, SDP_BYTES_MIN};
pub use preset::{PRESETS, Preset};
use worker::Worker;

/// What a plan of load over WebSockets has besides. Of the [`Plan`] itself, the weight of connects and what moves
/// datagrams mean nothing here, and a socket of a worker is one of its addresses: its connections spread over these.
/// Peers spread over the connections, and those of one connection call themselves by one peer id.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the tracker, with its port where that is not the usual one: what `Host` says.
    pub host: String,
    /// The path, such as `/announce`.
    pub path: String,
    /// What `Origin` says, if anything.
    pub origin: Option<String>,
    /// TLS, where it is to be spoken.
    pub tls: Option<TlsSettings>,
    /// Connections on which peers announce themselves again and again, of all workers together.
    pub connections: NonZeroUsize,
    /// Connections opened in a second, of all workers together, handshakes included; without, as many as there can be.
    pub ramp: Option<f64>,
    /// Offers of each announce.
    pub offers: usize,
    /// Bytes of the session description of an offer or answer.
    pub sdp_bytes: usize,
    /// Share of the relayed offers that are answered, 0 to 1.
    pub answer_share: f64,
    /// Connections beside these that do nothing, of all workers together. At the end of a run they are pinged.
    pub held: usize,
    /// Whether on each of them a peer announces itself once, and so takes offers.
    pub held_announce: bool,
    /// Connections beside these on which a peer announces itself once, and which are never read again.
    pub deaf: usize,
}

/// The generator, with its connections and peers at hand.
#[derive(Debug)]
pub struct Session {
    crew: Crew,
    /// Of all workers.
    seats: usize,
    /// Whether its connections stand.
    stands: bool,
}

/// Most connections of a worker.
pub const CONNECTIONS_MAX: usize = stamp::SLOTS_MAX;

/// Most offers of an announce.
pub const OFFERS_MAX: usize = stamp::OFFERS_MAX;

/// Descriptors for all but connections.
const DESCRIPTORS_BESIDES: u64 = 64;

impl Session {
    /// Makes the peers and opens one connection for each worker, to find out whether the tracker is there.
    ///
    /// # Errors
    /// Where the plan is impossible, this host lacks something, or the tracker cannot be spoken to.
    pub fn open(plan: &Plan, settings: &Settings) -> Result<Self, OpenError> {
        plan.check()?;
        settings.check(plan)?;
        let seats = settings.connections.get() + settings.held + settings.deaf;
        let (own, settings) = (plan.clone(), settings.clone());
        let crew = Crew::start(plan, move |index, shared| open_worker(&own, &settings, shared, index))?;
        Ok(Self { crew, seats, stands: false })
    }

    /// Opens all connections and has every peer announce that it starts, without offers, so that the tracker knows all of
    /// them. What is lost is said again.
    pub fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        let stood = self.crew.stand(self.seats, watch);
        self.stands = true;
        if stood.failure.is_some() || stood.ended_early { stood } else { self.crew.fill(watch) }
    }

    /// Puts load on the tracker, once all connections stand. A closed loop has no more requests in flight than one for
    /// each connection.
    pub fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        if !self.stands {
            let stood = self.crew.stand(self.seats, watch);
            self.stands = true;
            if stood.failure.is_some() || stood.ended_early {
                return stood;
            }
        }
        self.crew.run(pace, stop, watch)
    }
}

impl Settings {
    fn check(&self, plan: &Plan) -> Result<(), OpenError> {
        let (connections, workers) = (self.connections.get(), plan.workers.len());
        let seats = connections.saturating_add(self.held).saturating_add(self.deaf);
        let most = workers.saturating_mul(CONNECTIONS_MAX).saturating_sub(2 * workers);
        demand(seats <= most, "connections", seats, &format!("at most {CONNECTIONS_MAX} for each worker"))?;
        demand(workers <= stamp::WORKERS_MAX, "workers", workers, "at most 1024")?;
        demand(connections >= workers, "connections", connections, "at least one for each worker")?;
        let peers = plan.population.peers as usize;
        demand(peers >= connections, "peers", peers, "at least one for each connection")?;
        let torrents = plan.population.torrents;
        demand(torrents <= stamp::TORRENTS_MAX, "torrents", torrents, "at most 67,108,864")?;
        demand(
            plan.mix.announce > 0 || plan.mix.scrape > 0,
            "mix",
            "only connects",
            "one with announces or scrapes, since WebTorrent has no connects",
        )?;
        demand(self.offers <= OFFERS_MAX, "offers", self.offers, &format!("at most {OFFERS_MAX}"))?;
        let accepted = format!("{SDP_BYTES_MIN} to {SDP_BYTES_MAX}");
        let fits = (SDP_BYTES_MIN..=SDP_BYTES_MAX).contains(&self.sdp_bytes);
        demand(fits, "size of a session description", self.sdp_bytes, &accepted)?;
        let share = self.answer_share;
        demand((0.0..=1.0).contains(&share), "share of answers", share, "a share from 0 to 1")?;
        let ramp = self.ramp.unwrap_or(1.0);
        demand(ramp > 0.0 && ramp.is_finite(), "ramp", ramp, "connections a second, above 0")?;
        self.check_words()?;
        let needed = seats as u64 + DESCRIPTORS_BESIDES;
        let granted = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if needed > granted {
            return Err(OpenError::Host(format!(
                "so many connections need {needed} file descriptors, but this process may have {granted}: raise the \
                 limit (ulimit -n), or take fewer"
            )));
        }
        Ok(())
    }

    /// Whether the request for a WebSocket can be written.
    fn check_words(&self) -> Result<(), PlanError> {
        let is_printable = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_path = self.path.starts_with('/') && is_printable(&self.path) && !self.path.contains('#');
        demand(
            is_path,
            "path",
            &self.path,
            "one that begins with a slash, in printable ASCII without spaces",
        )?;
        demand(is_printable(&self.host), "host", &self.host, "printable ASCII without spaces")?;
        let origin = self.origin.as_deref().unwrap_or("null");
        demand(is_printable(origin), "origin", origin, "printable ASCII without spaces")
    }
}

/// Opens worker `index`, on its own thread.
fn open_worker(
    plan: &Plan,
    settings: &Settings,
    shared: Arc<Shared>,
    index: usize,
) -> Result<Worker, OpenError> {
    let lines = plan.sources.sockets_per_worker.get();
    let locals: Vec<_> = (0..lines).map(|line| plan.local(index, line)).collect();
    locals.iter().try_for_each(|local| connection::probe(*local))?;
    let tls = settings.tls.as_ref().map(Client::new).transpose()?;
    Worker::new(plan, settings, shared, index, locals, tls)
}
