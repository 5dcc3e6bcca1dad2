//! Load over HTTP (BEP 3, 23, 48), plain or by TLS.
//!
//! A [`Session`] owns the threads of the generator and the peers that it plays, as that of UDP does. Its connections
//! are opened when they are needed, and live as long as both sides want.

mod answer;
mod ask;
mod check;
mod form;
mod preset;
mod reply;
mod worker;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::connection::{self, Connection};
use crate::crew::{Crew, OpenError, Shared};
use crate::plan::{PlanError, demand};
use crate::poll::Poll;
use crate::population::Peers;
use crate::rules::Rules;
use crate::tally::Tally;
use crate::tls::Client;
pub use crate::tls::{TlsSettings, TlsVersion};
use crate::{Pace, Plan, Report, Stop, Watch};
use form::{Forms, Letterhead};
pub use preset::{PRESETS, Preset};
use worker::Worker;

/// What a plan of load over HTTP has besides. Of the [`Plan`] itself, the weight of connects and what moves datagrams
/// mean nothing here, and a socket of a worker is one of its addresses: its connections spread over these.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the tracker, with its port where that is not the usual one: what `Host` says.
    pub host: String,
    /// The path of announces, such as `/announce`.
    pub announce_path: String,
    /// The path of scrapes.
    pub scrape_path: String,
    /// TLS, where it is to be spoken.
    pub tls: Option<TlsSettings>,
    /// Connections of each worker.
    pub connections: NonZeroUsize,
    /// Requests that are under way on a connection at once.
    pub pipelining: NonZeroUsize,
    /// What a connection is used for.
    pub reuse: Reuse,
    /// Connections are ended by a reset and not in good order, which spares both hosts the memory of them.
    pub reset: bool,
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// All requests, one after the other (keep-alive).
    Kept,
    /// A single request. Only to fill the tracker, connections are kept.
    PerRequest,
    /// A single request, and then it is held open until the run ends.
    Held,
}

/// The generator, with its peers at hand.
#[derive(Debug)]
pub struct Session {
    crew: Crew,
}

/// Most connections of a worker: more than this host has ports on its loopback addresses for one tracker are of no use.
pub const CONNECTIONS_MAX: usize = 1 << 20;

/// Most requests under way on a connection.
pub const PIPELINING_MAX: usize = 1024;

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
        let (own, settings) = (plan.clone(), settings.clone());
        let crew = Crew::start(plan, move |index, shared| open_worker(&own, &settings, shared, index))?;
        Ok(Self { crew })
    }

    /// Has every peer announce that it starts, so that the tracker knows all of them. What is lost is said again.
    pub fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        self.crew.fill(watch)
    }

    /// Puts load on the tracker. A closed loop has no more requests in flight than connections can carry.
    pub fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        self.crew.run(pace, stop, watch)
    }
}

impl Settings {
    fn check(&self, plan: &Plan) -> Result<(), OpenError> {
        let connections = self.connections.get();
        let most = format!("at most {CONNECTIONS_MAX}");
        demand(connections <= CONNECTIONS_MAX, "connections of a worker", connections, &most)?;
        let (depth, single) = (self.pipelining.get(), self.reuse != Reuse::Kept);
        let most = if single { 1 } else { PIPELINING_MAX };
        let accepted = match single {
            true => "1, where a connection carries a single request".to_owned(),
            false => format!("at most {PIPELINING_MAX}"),
        };
        demand(depth <= most, "pipelining depth", depth, &accepted)?;
        demand(
            plan.mix.announce > 0 || plan.mix.scrape > 0,
            "mix",
            "only connects",
            "one with announces or scrapes, since HTTP has no connects",
        )?;
        demand_paths([&self.announce_path, &self.scrape_path])?;
        demand(is_printable(&self.host), "host", &self.host, "printable ASCII without spaces")?;
        let needed = (plan.workers.len() * connections) as u64 + DESCRIPTORS_BESIDES;
        let granted = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if needed > granted {
            return Err(OpenError::Host(format!(
                "so many connections need {needed} file descriptors, but this process may have {granted}: raise the \
                 limit (ulimit -n), or take fewer"
            )));
        }
        Ok(())
    }
}

fn demand_paths(paths: [&str; 2]) -> Result<(), PlanError> {
    paths.into_iter().try_for_each(|path| {
        let holds = path.starts_with('/') && is_printable(path) && !path.contains('#');
        demand(holds, "path", path, "one that begins with a slash, in printable ASCII without spaces")
    })
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Opens worker `index`, on its own thread.
fn open_worker(
    plan: &Plan,
    settings: &Settings,
    shared: Arc<Shared>,
    index: usize,
) -> Result<Worker, OpenError> {
    let lines = plan.sources.sockets_per_worker.get();
    let locals: Vec<SocketAddr> = (0..lines).map(|line| plan.local(index, line)).collect();
    locals.iter().try_for_each(|local| connection::probe(*local))?;
    let letterhead = Letterhead {
        host: &settings.host,
        announce_path: &settings.announce_path,
        scrape_path: &settings.scrape_path,
        numwant: plan.numwant,
        scrape_hashes_max: plan.scrape_hashes_max,
    };
    let (connections, depth) = (settings.connections.get(), settings.pipelining.get());
    Ok(Worker {
        poll: Poll::open()?,
        shared,
        index,
        server: plan.target,
        tls: settings.tls.as_ref().map(Client::new).transpose()?,
        rules: Rules::of(plan),
        mix: plan.mix,
        scrape_hashes_max: u8::try_from(plan.scrape_hashes_max).expect("the plan was checked"),
        peers: Peers::new(
            &plan.population,
            plan.peers_of(index),
            lines,
            plan.seed.wrapping_add(index as u64),
        ),
        forms: Forms::new(&letterhead, plan.seed, index),
        connections: (0..connections).map(|slot| Connection::vacant(slot % lines, depth)).collect(),
        reuse: settings.reuse,
        is_filling: false,
        depth,
        reset: settings.reset,
        idle: VecDeque::with_capacity(connections),
        resting: VecDeque::with_capacity(connections),
        in_flight: 0,
        next_line: 0,
        locals,
        request: Vec::new(),
        room: vec![0; worker::ROOM_BYTES].into(),
        chunks: Vec::new(),
        tally: Tally::new(),
        random: plan.random(index),
        next_sweep_ns: 0,
        heard_ns: 0,
        is_troubled: false,
        unheard: None,
    })
}
