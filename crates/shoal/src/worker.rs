//! A worker: one thread that carries requests from bytes in to bytes out, and looks after the store in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shoal_net::DatagramIo;
use shoal_net::stream::StreamIo;
use shoal_store::Store;

use crate::clock;
use crate::desk::Desk;
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

/// How long a worker that stops waits for datagrams at a time, while connections end.
const STOP_WAIT: Duration = Duration::from_millis(10);

/// What a worker needs beside its back ends.
pub(crate) struct Worker {
    pub(crate) desk: Desk,
    pub(crate) store: Arc<Store>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Worker {
    /// Serves until it is told to stop, then answers what is queued. The datagram back end is the one that waits, for
    /// `streams` as well.
    ///
    /// # Errors
    /// For faults of this host, with which it cannot go on.
    pub(crate) fn serve(
        self,
        datagrams: &mut impl DatagramIo,
        mut streams: Option<impl StreamIo<Desk>>,
    ) -> io::Result<()> {
        let mut desk = self.desk;
        let mut housekeeping = Housekeeping { store: self.store, last_ms: 0, behind: true };
        let mut streams_busy = true;
        while !self.stopping.load(Ordering::Acquire) {
            let busy = housekeeping.behind || streams_busy;
            datagrams.turn(if busy { Duration::ZERO } else { IDLE_TIME_MAX }, &mut desk)?;
            let now_ms = clock::monotonic_ms();
            if let Some(streams) = &mut streams {
                streams_busy = streams.turn(now_ms, &mut desk)? > 0;
            } else {
                streams_busy = false;
            }
            self.pulse.beat(now_ms);
            // Whatever the traffic: turns are bounded, so that this has its share under saturation too.
            housekeeping.carry_on(now_ms);
        }
        let end_ms = clock::monotonic_ms() + DRAIN_MS_MAX;
        let goes_on = || clock::monotonic_ms() < end_ms;
        datagrams.drain(&mut desk, goes_on)?;
        let Some(mut streams) = streams else { return Ok(()) };
        while streams.turn(clock::monotonic_ms(), &mut desk)? > 0 && goes_on() {}
        streams.retire(clock::monotonic_ms(), &mut desk)?;
        while streams.connections() > 0 && goes_on() {
            datagrams.turn(STOP_WAIT, &mut desk)?;
            streams.turn(clock::monotonic_ms(), &mut desk)?;
        }
        Ok(())
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
