//! A worker: one thread that carries requests from bytes in to bytes out, and looks after the store in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shoal_engine::udp::Responder;
use shoal_net::{DatagramIo, Service};
use shoal_store::Store;
use shoal_wire::datagram::Exchange;

use crate::clock;
use crate::pulse::Pulse;

/// Longest wait for traffic: so often a worker without any looks after the store and shows that it lives.
const IDLE_TIME_MAX: Duration = Duration::from_millis(100);

/// How often a worker with traffic looks after the store, unless there is more to do than it managed last time.
/// Each look touches every part of the store, which a request that comes alone should not have to pay for.
const HOUSEKEEPING_MS: u64 = 10;

/// Cache lines that one look spends on each family: about 50 µs if all of them miss the cache. Fifty thousand lines
/// a second and worker keep up with hundreds of millions of peers.
const EXPIRY_LINES: usize = 512;

/// Longest time for which a worker that stops answers what is queued: half of the second that an operator is promised.
const DRAIN_MS_MAX: u64 = 500;

/// What a worker needs beside its sockets.
pub(crate) struct Worker {
    pub(crate) responder: Responder,
    pub(crate) store: Arc<Store>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Worker {
    /// Serves until it is told to stop, then answers what is queued.
    ///
    /// # Errors
    /// For faults of this host, with which it cannot go on.
    pub(crate) fn serve(self, io: &mut impl DatagramIo) -> io::Result<()> {
        let mut desk = Desk { responder: self.responder };
        let mut housekeeping = Housekeeping { store: self.store, last_ms: 0, behind: true };
        while !self.stopping.load(Ordering::Acquire) {
            let wait = if housekeeping.behind { Duration::ZERO } else { IDLE_TIME_MAX };
            io.turn(wait, &mut desk)?;
            let now_ms = clock::monotonic_ms();
            self.pulse.beat(now_ms);
            // Whatever the traffic: a turn is bounded, so that this has its share under saturation too.
            housekeeping.carry_on(now_ms);
        }
        let end_ms = clock::monotonic_ms() + DRAIN_MS_MAX;
        io.drain(&mut desk, || clock::monotonic_ms() < end_ms)
    }
}

/// Where the datagrams of a back end meet the engine.
struct Desk {
    responder: Responder,
}

impl Service for Desk {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.responder.serve(batch, clock::now());
    }
}

/// The worker's share in looking after the store.
struct Housekeeping {
    store: Arc<Store>,
    last_ms: u64,
    /// Whether more is due already than was done.
    behind: bool,
}

impl Housekeeping {
    /// Does a bounded piece of what is due, if it is time for that.
    fn carry_on(&mut self, now_ms: u64) {
        if !self.behind && now_ms < self.last_ms + HOUSEKEEPING_MS {
            return;
        }
        let now_s = clock::whole_seconds(now_ms);
        let v4 = self.store.v4.expire(now_s, EXPIRY_LINES);
        let v6 = self.store.v6.expire(now_s, EXPIRY_LINES);
        self.behind = v4.behind || v6.behind;
        self.last_ms = now_ms;
    }
}
