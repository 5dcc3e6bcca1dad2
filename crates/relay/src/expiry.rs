//! Forgetting peers that are silent though their connections stand, and those of sources that have more than their share
//! when room is short, a little at a time.
//!
//! A sweep walks over all swarms of a shard in an eighth of the lifetime of a peer, in step with the clock. One call
//! does no more than its budget, also in the middle of a big swarm, so that nobody notices. Swarms that move while the
//! sweep is under way, because their table grows, may be met twice or not at all; the next sweep meets them in time.

use crate::pressure::Pressure;
use crate::shard::{Shard, Torrent};
use crate::swarm::Peer;

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

/// By what the sweep decides which peers are to be forgotten.
#[derive(Debug)]
pub(crate) struct Dues<'a> {
    pub(crate) pressure: &'a Pressure,
    pub(crate) now_s: u32,
    pub(crate) lifetime_s: u32,
    /// How many peers an address may have, if that is limited at the moment.
    allowance: Option<u64>,
}

impl<'a> Dues<'a> {
    /// As things stand now.
    pub(crate) fn new(pressure: &'a Pressure, now_s: u32, lifetime_s: u32) -> Self {
        Self { pressure, now_s, lifetime_s, allowance: pressure.allowance() }
    }

    fn is_overdue(&self, peer: &Peer) -> bool {
        self.now_s.saturating_sub(peer.heard_s) > self.lifetime_s
    }

    fn is_over_share(&self, peer: &Peer) -> bool {
        self.allowance.is_some_and(|allowance| self.pressure.exceeds(peer.source, allowance))
    }
}

impl Shard {
    /// Carries the sweep on to where it should be now; every peer or empty place that it looks at takes one of the
    /// budget. Returns whether the budget ended before that.
    pub(crate) fn expire(&mut self, dues: &Dues<'_>, budget: &mut usize) -> bool {
        let &Dues { now_s, lifetime_s, .. } = dues;
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
            self.expire_bucket(dues, budget);
        }
        false
    }

    /// Forgets the peers that are due of the swarm at which the sweep is, and goes on to the next if the budget allows.
    fn expire_bucket(&mut self, dues: &Dues<'_>, budget: &mut usize) {
        let Self { swarms, sweep, tally, .. } = self;
        if let Ok(mut torrent) = swarms.get_bucket_entry(sweep.bucket) {
            let Torrent { swarm, .. } = torrent.get_mut();
            while sweep.position < swarm.len() {
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                let peer = swarm.peer_mut(sweep.position);
                let is_overdue = dues.is_overdue(peer);
                if is_overdue || dues.is_over_share(peer) {
                    // Another comes to its position, from behind it.
                    *tally.of(swarm.seeds(sweep.position)) -= 1;
                    *(if is_overdue { &mut tally.expired } else { &mut tally.evicted }) += 1;
                    if let Some(peer) = swarm.remove(sweep.position) {
                        tally.debt_bytes -= peer.debts.memory_bytes();
                        dues.pressure.release(peer.source);
                    }
                } else {
                    let before = peer.debts.memory_bytes();
                    peer.debts.relax(dues.now_s);
                    tally.debt_bytes -= before - peer.debts.memory_bytes();
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

#[cfg(test)]
mod tests {
    use shoal_types::{InfoHash, PeerId};
    use shoal_wire::stream::Handle;

    use super::*;
    use crate::address::Address;
    use crate::api::{Announce, Settings, Stance};
    use crate::key::{Keys, Source};
    use crate::shard::Call;

    const LIFETIME_S: u32 = 80;

    fn expire((shard, pressure): &mut (Shard, Pressure), now_s: u32, budget: &mut usize) -> bool {
        shard.expire(&Dues::new(pressure, now_s, LIFETIME_S), budget)
    }

    fn pressure() -> Pressure {
        Pressure::new(&Settings {
            peers_max: 1 << 20,
            memory_bytes_max: u64::MAX,
            relay_rate_max: 0,
            peer_lifetime_s: LIFETIME_S,
            hash_key: [1, 2],
        })
    }

    fn join((shard, pressure): &mut (Shard, Pressure), torrent: u32, peer: u32, now_s: u32) {
        let keys = Keys::new([1, 2]);
        let (mut info_hash, mut peer_id) = (InfoHash([1; 20]), PeerId([2; 20]));
        info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
        peer_id.0[..4].copy_from_slice(&peer.to_be_bytes());
        let address = Address { worker: 0, handle: Handle { index: peer, generation: 0 } };
        let source = Source::of_hash(peer);
        let announce =
            Announce { address, source, peer_id, stance: Stance::Leech, may_join: true, offers: &[] };
        let (place, name) = (keys.place(&info_hash), keys.name(&peer_id));
        let call = Call { place: &place, name, announce: &announce, may_grow: true, now_s };
        let mut rng = fastrand::Rng::with_seed(1);
        shard.announce(&call, pressure, &mut rng, &mut Vec::new()).unwrap();
    }

    #[test]
    fn a_step_does_no_more_than_its_budget_also_within_a_swarm() {
        let mut both = (Shard::new(LIFETIME_S), pressure());
        (0..1000).for_each(|peer| join(&mut both, 1, peer, 0));
        let mut steps = 0;
        let mut is_behind = true;
        while is_behind {
            let (mut budget, before) = (10, both.0.tally.leechers);
            is_behind = expire(&mut both, LIFETIME_S + 1, &mut budget);
            assert!(before - both.0.tally.leechers <= 10);
            steps += 1;
        }
        assert_eq!((both.0.tally.leechers, both.0.tally.expired, both.0.swarms.len()), (0, 1000, 0));
        assert!((100..120).contains(&steps), "{steps} steps");
    }

    #[test]
    fn who_announces_stays() {
        let mut both = (Shard::new(LIFETIME_S), pressure());
        for now_s in 0..LIFETIME_S * 5 {
            if now_s % LIFETIME_S == 0 {
                (0..50).for_each(|peer| join(&mut both, peer % 7, peer, now_s));
            }
            while expire(&mut both, now_s, &mut 5) {}
            assert_eq!((both.0.tally.leechers, both.0.swarms.len()), (50, 7));
        }
    }

    #[test]
    fn the_table_becomes_smaller_again() {
        let mut both = (Shard::new(LIFETIME_S), pressure());
        (0..5000).for_each(|torrent| join(&mut both, torrent, 1, 0));
        let most = both.0.swarms.num_buckets();
        for now_s in 0..LIFETIME_S * 2 {
            (0..20).for_each(|torrent| join(&mut both, torrent, 1, now_s));
            while expire(&mut both, now_s, &mut 1000) {}
        }
        assert_eq!(both.0.swarms.len(), 20);
        assert!(both.0.swarms.num_buckets() < most / 16);
        join(&mut both, 3, 2, LIFETIME_S * 2);
        assert_eq!(
            (both.0.swarms.len(), both.0.tally.leechers),
            (20, 21),
            "they are found where they are now"
        );
    }
}
