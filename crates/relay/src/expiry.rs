//! Forgetting peers that are silent though their connections stand, a little at a time.
//!
//! A sweep walks over all swarms of a shard in an eighth of the lifetime of a peer, in step with the clock. One call
//! does no more than its budget, also in the middle of a big swarm, so that nobody notices. Swarms that move while the
//! sweep is under way, because their table grows, may be met twice or not at all; the next sweep meets them in time.

use crate::shard::{Shard, Torrent};

/// Sweeps in the lifetime of a peer.
const SWEEPS_PER_LIFETIME: u32 = 8;

/// Room of a table that is never given back.
const SWARMS_KEPT: usize = 64;

/// How far the sweep of a shard has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    started_s: u32,
    bucket: usize,
    /// Where to go on in the swarm of that bucket.
    position: usize,
}

impl Shard {
    /// Carries the sweep on to where it should be at `now_s`; every peer or empty place that it looks at takes one of the
    /// budget. Returns whether the budget ended before that.
    pub(crate) fn expire(&mut self, now_s: u32, lifetime_s: u32, budget: &mut usize) -> bool {
        let sweep_s = (lifetime_s / SWEEPS_PER_LIFETIME).max(1);
        let is_through = self.sweep.bucket >= self.swarms.num_buckets();
        if is_through && now_s.saturating_sub(self.sweep.started_s) >= sweep_s {
            self.shrink();
            self.sweep = Sweep { started_s: now_s, ..Sweep::default() };
        }
        let elapsed_s = now_s.saturating_sub(self.sweep.started_s).min(sweep_s);
        // Nobody has so many buckets that this would be inexact.
        let due = self.swarms.num_buckets().saturating_mul(elapsed_s as usize) / sweep_s as usize;
        while self.sweep.bucket < due {
            if *budget == 0 {
                return true;
            }
            *budget -= 1;
            self.expire_bucket(now_s, lifetime_s, budget);
        }
        false
    }

    /// Forgets the overdue peers of the swarm at which the sweep is, and goes on to the next if the budget allows.
    fn expire_bucket(&mut self, now_s: u32, lifetime_s: u32, budget: &mut usize) {
        let Self { swarms, sweep, tally } = self;
        if let Ok(mut torrent) = swarms.get_bucket_entry(sweep.bucket) {
            let Torrent { swarm, .. } = torrent.get_mut();
            while sweep.position < swarm.len() {
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                let peer = swarm.peer_mut(sweep.position);
                if now_s.saturating_sub(peer.heard_s) > lifetime_s {
                    // Another comes to its position, from behind it.
                    *tally.of(swarm.seeds(sweep.position)) -= 1;
                    tally.expired += 1;
                    swarm.remove(sweep.position);
                } else {
                    peer.debts.relax(now_s);
                    sweep.position += 1;
                }
            }
            if swarm.is_empty() {
                torrent.remove();
            }
        }
        sweep.bucket += 1;
        sweep.position = 0;
    }

    /// Lets the table adapt to what is left.
    fn shrink(&mut self) {
        let swarms = self.swarms.len().max(SWARMS_KEPT);
        if swarms < self.swarms.num_buckets() / 8 {
            self.swarms.shrink_to(swarms * 2, |torrent| torrent.hash);
        }
    }
}
