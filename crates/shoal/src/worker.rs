//! A worker: one thread that carries requests from bytes in to bytes out, and looks after the store in between.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shoal_net::stream::StreamIo;
use shoal_net::{DatagramIo, Waker};
use shoal_relay::Swarms;
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

/// Peers of WebTorrent that one look passes over, which takes about as long.
const EXPIRY_PEERS: usize = 1024;

/// How often it gives back memory that is kept for later and was not needed.
const TRIM_MS: u64 = 2_000;

/// How a worker that stops divides the time, of which an operator is promised a second: from its beginning on, so long
/// it answers the datagrams that are queued, then the requests on connections; a flood of either would never end.
const DRAIN_MS_MAX: u64 = 150;
const ANSWER_MS_MAX: u64 = 300;

/// ... until then answers and requests that are half done may come to their end,
const RETIRE_MS_MAX: u64 = 500;

/// ... and until then those who did not are told so.
const FINISH_MS_MAX: u64 = 600;

/// How long a worker that stops waits at a time for what is to come.
const STOP_WAIT: Duration = Duration::from_millis(10);

/// What a worker needs beside its I/O.
pub(crate) struct Worker {
    pub(crate) desk: Desk,
    pub(crate) store: Arc<Store>,
    /// The swarms of WebTorrent, if that is served.
    pub(crate) swarms: Option<Arc<Swarms>>,
    /// By which all workers are woken, in their order: for those to whom this one has handed something.
    pub(crate) wakers: Arc<[Waker]>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Worker {
    /// Serves until it is told to stop, then answers what has arrived. The datagram back end is the one that waits, for
    /// `streams` as well.
    ///
    /// # Errors
    /// For faults of this host, with which it cannot go on.
    pub(crate) fn serve(
        self,
        datagrams: &mut impl DatagramIo,
        mut streams: Option<StreamIo<Desk>>,
    ) -> io::Result<()> {
        let (mut desk, wakers) = (self.desk, self.wakers);
        let mut housekeeping =
            Housekeeping { store: self.store, swarms: self.swarms, last_ms: 0, behind: true };
        let mut streams_busy = true;
        let mut trimmed_ms = 0;
        while !self.stopping.load(Ordering::Acquire) {
            let busy = housekeeping.behind || streams_busy;
            datagrams.turn(if busy { Duration::ZERO } else { IDLE_TIME_MAX }, &mut desk)?;
            let now_ms = clock::monotonic_ms();
            if let Some(streams) = &mut streams {
                streams_busy = turn(streams, now_ms, &mut desk, &wakers)? > 0;
                if now_ms >= trimmed_ms + TRIM_MS {
                    streams.trim();
                    desk.connections.trim();
                    trimmed_ms = now_ms;
                }
            } else {
                streams_busy = false;
            }
            self.pulse.beat(now_ms);
            // Whatever the traffic: turns are bounded, so that this has its share under saturation too.
            housekeeping.carry_on(now_ms);
        }
        stop(datagrams, streams, &mut desk, &wakers)
    }
}

/// A turn of the connections, with what other workers have handed to this one, and what it hands to them.
fn turn(streams: &mut StreamIo<Desk>, now_ms: u64, desk: &mut Desk, wakers: &[Waker]) -> io::Result<usize> {
    desk.connections.collect(clock::now());
    let seen = streams.turn(now_ms, desk)?;
    for worker in desk.connections.dispatch() {
        if let Some(waker) = wakers.get(usize::from(worker)) {
            waker.wake();
        }
    }
    Ok(seen)
}

/// Answers what has arrived, and ends connections in good order, as far as there is time.
fn stop(
    datagrams: &mut impl DatagramIo,
    streams: Option<StreamIo<Desk>>,
    desk: &mut Desk,
    wakers: &[Waker],
) -> io::Result<()> {
    let begin_ms = clock::monotonic_ms();
    let is_within = |limit_ms: u64| clock::monotonic_ms() < begin_ms + limit_ms;
    datagrams.drain(desk, || is_within(DRAIN_MS_MAX))?;
    let Some(mut streams) = streams else { return Ok(()) };
    while turn(&mut streams, clock::monotonic_ms(), desk, wakers)? > 0 && is_within(ANSWER_MS_MAX) {}
    streams.retire(clock::monotonic_ms(), desk)?;
    while streams.connections() > 0 && is_within(RETIRE_MS_MAX) {
        let is_busy = streams.turn(clock::monotonic_ms(), desk)? > 0;
        datagrams.turn(if is_busy { Duration::ZERO } else { STOP_WAIT }, desk)?;
    }
    while streams.finish(desk) > 0 && is_within(FINISH_MS_MAX) {}
    if streams.connections() > 0 {
        // To close some hundred thousand more takes longer than there is time. The kernel does it when the process ends.
        mem::forget(streams);
    }
    Ok(())
}

/// The worker's share in looking after the store.
struct Housekeeping {
    store: Arc<Store>,
    swarms: Option<Arc<Swarms>>,
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
        let webtorrent = self.swarms.as_ref().map(|swarms| swarms.expire(now_s, EXPIRY_PEERS));
        self.behind = v4.behind || v6.behind || webtorrent.is_some_and(|expired| expired.behind);
        self.last_ms = now_ms;
    }
}
