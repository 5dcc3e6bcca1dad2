//! The loops of a worker: how connections come to stand, how a tracker is filled, loaded, and heard out.

use crate::crew::Order;
use crate::pace::{Arrivals, Nap, Timing};

use super::worker::{TURN_NS_MAX, Worker};

/// Connections that fail so many times their number before all stand are given up; and so is a fill.
const LOSSES_MAX: usize = 3;

/// Requests in flight while the tracker is filled.
const FILL_WINDOW: usize = 64;

/// A window of fewer requests is looked after without naps.
const NAP_WINDOW_MIN: usize = 16;

/// Longest wait for the last replies once the user has asked for an end.
const PARTING_NS_MAX: u64 = 1_000_000_000;

/// Once nothing has come for so long, nothing more is relayed.
const QUIET_NS: u64 = 300_000_000;

/// Below this time the loop does not go to sleep before the next arrival, because the kernel rounds it up.
const SPIN_NS_MAX: u64 = 1_200_000;

impl Worker {
    /// Opens every connection.
    pub(super) fn stand(&mut self) -> Result<(), String> {
        let losses_max = (LOSSES_MAX * self.seats.len() + 1000) as u64;
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.has_to_stop() {
                return Ok(());
            }
            let failures = self.counts().failures.total();
            if failures > losses_max {
                let count = self.seats.len();
                return Err(format!("{failures} attempts to open {count} connections failed"));
            }
            if self.waiting.is_empty() && self.resting.is_empty() && self.shaking + self.in_flight == 0 {
                return Ok(());
            }
            let wait_ns = if self.waiting.is_empty() { TURN_NS_MAX } else { self.until_next_dial(now_ns) };
            self.turn(wait_ns)?;
        }
    }

    /// How long the next connection has to wait for its time, or for another one that is under way.
    fn until_next_dial(&self, now_ns: u64) -> u64 {
        let due_ns = self.ramp.as_ref().map_or(now_ns, |ramp| ramp.at(0));
        if self.shaking < self.shaking_max {
            due_ns.saturating_sub(now_ns).min(TURN_NS_MAX)
        } else {
            TURN_NS_MAX
        }
    }

    /// Has every peer announce that it starts.
    pub(super) fn fill(&mut self) -> Result<(), String> {
        let losses_max = LOSSES_MAX * self.peers.len() + 1000;
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.has_to_stop() {
                return Ok(());
            }
            if usize::try_from(self.tally.lost).is_ok_and(|lost| lost > losses_max) {
                return Err(format!("{} of {} announces got no answer", self.tally.lost, self.peers.len()));
            }
            while self.in_flight < FILL_WINDOW
                && let Some(slot) = self.idle.pop_front()
            {
                self.seats[slot].connection.is_queued = false;
                // Where all its peers are known, it has nothing to do.
                let peer = slot + self.seats[slot].filled * self.traders;
                if peer < self.peers.len() {
                    let say = self.peers.start(u32::try_from(peer).expect("there are at most 2^32 peers"));
                    self.with_buffers(slot, |worker| worker.ask_say(slot, &say, 0, now_ns, now_ns));
                }
            }
            let filled: usize = self.seats[..self.traders].iter().map(|seat| seat.filled).sum();
            if filled == self.peers.len() {
                return Ok(());
            }
            self.turn(TURN_NS_MAX)?;
        }
    }

    /// Asks again as soon as replies have come.
    pub(super) fn closed(&mut self, window: usize, timing: Timing) -> Result<(), String> {
        let window = window.min(self.traders);
        let mut nap = (window >= NAP_WINDOW_MIN).then(|| Nap::new(window));
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_over(&timing, now_ns) {
                return Ok(());
            }
            while self.in_flight < window
                && timing.left(self.tally.asked()) > 0
                && let Some(slot) = self.idle.pop_front()
            {
                self.seats[slot].connection.is_queued = false;
                let now_ns = self.shared.clock.now_ns();
                self.with_buffers(slot, |worker| worker.ask(slot, now_ns, now_ns));
            }
            if let Some(nap) = &nap
                && self.in_flight >= window / 2
            {
                nap.take();
            }
            let seen = self.turn(TURN_NS_MAX.min(timing.end_ns.saturating_sub(now_ns)))?;
            if let Some(nap) = &mut nap {
                nap.learn(seen);
            }
        }
    }

    /// Asks at a fixed rate.
    pub(super) fn open(&mut self, rate: f64, timing: Timing) -> Result<(), String> {
        let mut arrivals = Arrivals::new(self.shared.clock.now_ns(), rate);
        // When requests last had to wait for a connection, which is the tracker's doing.
        let mut short_ns = 0;
        loop {
            let now_ns = self.shared.clock.now_ns();
            self.sweep(now_ns);
            if self.is_over(&timing, now_ns) {
                return Ok(());
            }
            let mut due = arrivals.due(now_ns).min(timing.left(self.tally.asked()));
            while due > 0
                && let Some(slot) = self.idle.pop_front()
            {
                self.seats[slot].connection.is_queued = false;
                let (now_ns, due_ns) = (self.shared.clock.now_ns(), arrivals.at(0));
                if due_ns >= short_ns {
                    self.tally.send_delay.saturating_record(now_ns.saturating_sub(due_ns));
                }
                self.with_buffers(slot, |worker| worker.ask(slot, due_ns, now_ns));
                arrivals.pass(1);
                due -= 1;
            }
            if due > 0 {
                short_ns = now_ns;
            }
            // What had to wait for too long is not even sent; to a client that is the same.
            while due > 0 && now_ns.saturating_sub(arrivals.at(0)) > self.rules.timeout_ns {
                self.tally.lost += 1;
                self.tally.unsent += 1;
                arrivals.pass(1);
                due -= 1;
            }
            let wait_ns =
                if due > 0 { TURN_NS_MAX } else { arrivals.at(0).saturating_sub(self.shared.clock.now_ns()) };
            self.turn(wait_ns.saturating_sub(SPIN_NS_MAX).min(TURN_NS_MAX))?;
        }
    }

    /// Waits for the answers to what was asked before the run ended, for what is still relayed, and for a sign of life of
    /// those that are held.
    pub(super) fn drain(&mut self, order: Order) -> Result<(), String> {
        if matches!(order, Order::Stand | Order::Fill) {
            return Ok(());
        }
        let (began_ns, timeout_ns) = (self.shared.clock.now_ns(), self.rules.timeout_ns);
        let patience_ns = if self.is_cancelled() { timeout_ns.min(PARTING_NS_MAX) } else { timeout_ns };
        let relays = self.offers > 0;
        let is_done = move |worker: &Self, now_ns: u64| {
            worker.in_flight == 0 && (!relays || now_ns - worker.heard_ns.max(began_ns) >= QUIET_NS)
        };
        let (was_waiting, heard_ns) = (self.in_flight > 0, self.heard_ns);
        self.wait_until(patience_ns, is_done)?;
        let is_silent = was_waiting && self.heard_ns == heard_ns && self.in_flight > 0;
        if is_silent && self.tally.replies() > 0 && !self.is_cancelled() {
            return Err(self.why_silent());
        }
        // A ping is no request, and what comes back no message.
        let heard_ns = self.heard_ns;
        self.ping_held(self.shared.clock.now_ns());
        let is_done = |worker: &Self, _now_ns: u64| {
            let (there, alive) = worker.held();
            there == alive
        };
        let outcome = self.wait_until(patience_ns, is_done);
        self.heard_ns = heard_ns;
        self.relays().deaf_closed = self.hear_out_deaf();
        outcome
    }

    /// Sees to what happens until `is_done`, or for so long.
    fn wait_until(&mut self, patience_ns: u64, is_done: impl Fn(&Self, u64) -> bool) -> Result<(), String> {
        let began_ns = self.shared.clock.now_ns();
        loop {
            let now_ns = self.shared.clock.now_ns();
            if is_done(self, now_ns) || now_ns - began_ns >= patience_ns {
                return Ok(());
            }
            self.look(TURN_NS_MAX)?;
            self.sweep(self.shared.clock.now_ns());
        }
    }
}
