//! The load: lanes that send requests on a schedule of their own, each on a thread, whatever the tracker does.
//!
//! The load announces to torrents with even numbers only. The peers of the others come from the fill alone, and are the
//! ones that are counted before and after an event.
//!
//! This load is not the driver of `shoal-load`. The driver repeats a fill until it succeeds, gives up on a silent
//! tracker, and forgets a request when its time is over, so it could not recognise a second answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shoal_load::{Arrivals, Clock, nanoseconds};

use crate::chaos::http::HttpLane;
use crate::chaos::record::{Lane, Ledger};
use crate::chaos::udp::{SOCKETS, UdpLane};

/// Most peers of the load.
const LOAD_PEERS_MAX: usize = 1 << 20;

/// The load on a tracker.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The tracker.
    pub target: SocketAddr,
    /// The number of torrents.
    pub torrents: u32,
    /// The seed of the torrents.
    pub seed: u64,
    /// The number of peers of the load, which announce again and again. [`LoadPlan::load_peers_for`] computes it.
    pub load_peers: usize,
    /// Requests a second of each lane. A lane without requests is not opened.
    pub rates: Vec<(Lane, f64)>,
    /// The number of connections of the lane with keep-alive.
    pub connections: usize,
    /// A request counts as lost after this time without an answer.
    pub timeout: Duration,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<(Lane, JoinHandle<Ledger>)>,
    udp_ports: Vec<u16>,
}

impl LoadPlan {
    /// Returns how many peers announce again and again to `torrents` torrents. They divide evenly among the sockets.
    pub fn load_peers_for(torrents: u32) -> usize {
        let peers = usize::try_from(torrents / 2).unwrap_or(LOAD_PEERS_MAX).clamp(SOCKETS, LOAD_PEERS_MAX);
        peers / SOCKETS * SOCKETS
    }
}

/// Returns the torrent of a peer of the load: an even number, spread over all of them.
pub(crate) fn torrent_of_peer(index: usize, plan: &LoadPlan) -> u32 {
    let peer = u64::try_from(index % plan.load_peers).unwrap_or(0);
    let halves = u64::from((plan.torrents / 2).max(1));
    let peers = u64::try_from(plan.load_peers).unwrap_or(1);
    u32::try_from(peer * halves / peers * 2).unwrap_or(0)
}

impl Load {
    /// Starts the lanes.
    ///
    /// # Errors
    /// Returns an error if this host refuses a socket or a thread.
    pub fn start(plan: &LoadPlan) -> io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let mut load = Self { shared: Arc::clone(&shared), threads: Vec::new(), udp_ports: Vec::new() };
        for &(lane, rate) in plan.rates.iter().filter(|(_, rate)| *rate > 0.0) {
            let shared = Arc::clone(&shared);
            let body: Box<dyn FnOnce() -> Ledger + Send> = match lane {
                Lane::Udp => {
                    let lane = UdpLane::open(plan)?;
                    load.udp_ports = lane.ports()?;
                    Box::new(move || lane.run(rate, &shared))
                }
                Lane::HttpKeepAlive | Lane::HttpConnections => {
                    let lane = HttpLane::open(plan, lane == Lane::HttpKeepAlive)?;
                    Box::new(move || lane.run(rate, &shared))
                }
            };
            load.threads.push((lane, thread::Builder::new().name("chaos-load".into()).spawn(body)?));
        }
        Ok(load)
    }

    /// Returns the time since the load began, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    /// Returns a clock that any thread can read as [`Load::now_ns`].
    pub(crate) fn clock(&self) -> impl Fn() -> u64 + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.clock.now_ns()
    }

    /// Returns when the last request was due that has an answer, or 0.
    pub fn last_answered_due_ns(&self) -> u64 {
        self.shared.last_answered_due_ns.load(Ordering::Relaxed)
    }

    /// Returns the ports of its UDP sockets.
    pub fn udp_ports(&self) -> &[u16] {
        &self.udp_ports
    }

    /// Ends the schedule, waits for the last answers, and returns the records of all lanes.
    ///
    /// # Panics
    /// Panics if a lane has panicked.
    #[must_use]
    pub fn end(mut self) -> Vec<(Lane, Ledger)> {
        self.shared.end();
        let threads = std::mem::take(&mut self.threads).into_iter();
        threads.map(|(lane, thread)| (lane, thread.join().expect("a lane does not panic"))).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.cancel();
    }
}

/// The state that the threads of a load share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// When the last request was due that has an answer, on any lane.
    pub(crate) last_answered_due_ns: AtomicU64,
    /// The time after which no request is due any more; [`u64::MAX`] while the load goes on.
    end_ns: AtomicU64,
    /// Ends the load at once.
    cancel: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::start(),
            last_answered_due_ns: AtomicU64::new(0),
            end_ns: AtomicU64::new(u64::MAX),
            cancel: AtomicBool::new(false),
        }
    }

    /// Records that a request has an answer.
    pub(crate) fn answered(&self, due_ns: u64) {
        self.last_answered_due_ns.fetch_max(due_ns, Ordering::Relaxed);
    }

    /// Ends the schedule now; requests in flight may still be answered.
    pub(crate) fn end(&self) {
        self.end_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    /// Ends the load at once.
    pub(crate) fn cancel(&self) {
        self.end();
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Returns when the schedule ended, if it has.
    pub(crate) fn ended_ns(&self) -> Option<u64> {
        Some(self.end_ns.load(Ordering::Relaxed)).filter(|end_ns| *end_ns != u64::MAX)
    }

    /// Returns whether a thread of the load has nothing left to do: the schedule has ended, and either nothing is in
    /// flight or the grace time is over.
    pub(crate) fn is_over(&self, now_ns: u64, grace: Duration, in_flight: bool) -> bool {
        let Some(ended_ns) = self.ended_ns() else { return false };
        let grace_is_over = now_ns >= ended_ns.saturating_add(nanoseconds(grace));
        !in_flight || grace_is_over || self.cancel.load(Ordering::Relaxed)
    }
}

/// Takes the next request if it is due, and returns when it was due. Nothing is due from `ended_ns` on.
pub(crate) fn take(arrivals: &mut Arrivals, now_ns: u64, ended_ns: Option<u64>) -> Option<u64> {
    let due_ns = arrivals.at(0);
    let is_due = due_ns <= now_ns && ended_ns.is_none_or(|ended_ns| due_ns < ended_ns);
    is_due.then(|| {
        arrivals.pass(1);
        due_ns
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_makes_up_for_a_stall_and_ends() {
        let mut arrivals = Arrivals::new(1000, 1e6);
        assert_eq!(take(&mut arrivals, 999, None), None);
        assert_eq!(take(&mut arrivals, 1000, None), Some(1000));
        let after_a_stall: Vec<u64> = std::iter::from_fn(|| take(&mut arrivals, 4500, None)).collect();
        assert_eq!(after_a_stall, [2000, 3000, 4000]);
        assert_eq!(take(&mut arrivals, 9000, Some(5000)), None, "it has ended");
    }
}
