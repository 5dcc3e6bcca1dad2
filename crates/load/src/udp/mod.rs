//! Load over UDP (BEP 15).
//!
//! A [`Session`] owns the threads of the generator and the peers that it plays. Its runs follow each other on the same
//! peers: fill, then measure as often as one likes.

mod ask;
mod check;
mod echo;
mod flight;
mod press;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_net::{ClientSettings, Sockets};

pub use crate::crew::OpenError;
use crate::crew::{Crew, Shared};
use crate::population::Peers;
use crate::rules::Rules;
use crate::tally::Tally;
use crate::{Pace, Plan, Report, Stop, Watch};
use check::Line;
pub use echo::Echo;
use flight::Flight;
pub use flight::IN_FLIGHT_MAX as WINDOW_MAX;
use press::Press;
use worker::Worker;

/// The generator, with its sockets open and its peers at hand.
#[derive(Debug)]
pub struct Session {
    crew: Crew,
}

/// For replies that wait; as with trackers, the kernel may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

impl Session {
    /// Opens the sockets, makes the peers, and gets a connection id for each socket.
    ///
    /// # Errors
    /// Where the plan is impossible, this host lacks something, or the tracker does not answer.
    pub fn open(plan: &Plan) -> Result<Self, OpenError> {
        plan.check()?;
        let own = plan.clone();
        let crew = Crew::start(plan, move |index, shared| open_worker(&own, shared, index))?;
        Ok(Self { crew })
    }

    /// Has every peer announce that it starts, so that the tracker knows all of them. What is lost is said again.
    pub fn fill(&mut self, watch: &mut Watch<'_>) -> Report {
        self.crew.fill(watch)
    }

    /// Puts load on the tracker.
    pub fn run(&mut self, pace: Pace, stop: Stop, watch: &mut Watch<'_>) -> Report {
        self.crew.run(pace, stop, watch)
    }
}

/// Opens worker `index`, on its own thread.
fn open_worker(plan: &Plan, shared: Arc<Shared>, index: usize) -> Result<Worker, OpenError> {
    let locals: Vec<SocketAddr> =
        (0..plan.sources.sockets_per_worker.get()).map(|socket| plan.local(index, socket)).collect();
    let settings = ClientSettings {
        locals: &locals,
        server: plan.target,
        recv_buffer_bytes: SOCKET_BUFFER_BYTES,
        send_buffer_bytes: SOCKET_BUFFER_BYTES,
    };
    let sockets = Sockets::connect(&settings).map_err(|error| OpenError::Host(error.to_string()))?;
    let (bundler, counters, probes) = (sockets.bundler(), sockets.counters(), sockets.probes().collect());
    let line = |local: SocketAddr| Line { ip: local.ip(), connection_id: None, connected_ns: 0 };
    let lines: Vec<Line> = sockets.local_addrs().map(line).collect();
    let open = plan.io.open(sockets);
    let io =
        open.map_err(|error| OpenError::Host(format!("cannot open the back end {}: {error}", plan.io)))?;
    let count = plan.peers_of(index);
    Ok(Worker {
        io,
        bundler,
        counters,
        probes,
        shared,
        index,
        server: plan.target,
        rules: Rules::of(plan),
        mix: plan.mix,
        scrape_hashes_max: u8::try_from(plan.scrape_hashes_max).expect("the plan was checked"),
        peers: Peers::new(&plan.population, count, lines.len(), plan.seed.wrapping_add(index as u64)),
        press: Press::new(plan.seed, index, plan.numwant, plan.scrape_hashes_max),
        flight: Flight::new(lines.len(), 0),
        lines,
        tally: Tally::new(),
        random: plan.random(index),
        next_socket: 0,
        next_sweep_ns: 0,
        heard_ns: 0,
        refusals_before: 0,
        unheard: None,
    })
}
