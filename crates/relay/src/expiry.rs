//! Expiry: removes peers that stopped announcing although their connections are open. When room is short, it also
//! removes peers of sources that hold more than their share.
//!
//! A sweep visits all swarms of a shard within an eighth of the lifetime of a peer, in step with the clock. One call
//! does no more than its budget, even in the middle of a large swarm, so that it does not delay requests noticeably. If
//! a table grows during a sweep, swarms that move may be visited twice or not at all; the next sweep visits them in
//! time.

use crate::pending_offer::PendingOffers;
use crate::pressure::Pressure;
use crate::shard::{Shard, Torrent, note_change};
use crate::swarm::Peer;

/// Number of sweeps within the lifetime of a peer.
const SWEEPS_PER_LIFETIME: u32 = 8;

/// Capacity of a table that is never freed.
const SWARMS_RETAINED: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    started_s: u32,
    bucket: usize,
    /// The next position in the swarm of the current bucket.
    position: usize,
}

/// The rules that decide which peers a sweep removes.
#[derive(Debug)]
pub(crate) struct ExpiryRules<'a> {
    pub(crate) pressure: &'a Pressure,
    pub(crate) now_s: u32,
    pub(crate) lifetime_s: u32,
    /// The number of peers that an address may have, if there is a limit at present.
    allowance: Option<u64>,
}

impl<'a> ExpiryRules<'a> {
    pub(crate) fn new(pressure: &'a Pressure, now_s: u32, lifetime_s: u32) -> Self {
        Self { pressure, now_s, lifetime_s, allowance: pressure.allowance() }
    }

    fn is_silent(&self, peer: &Peer) -> bool {
        self.now_s.saturating_sub(peer.announced_s) > self.lifetime_s
    }

    fn is_over_share(&self, peer: &Peer) -> bool {
        self.allowance.is_some_and(|allowance| self.pressure.exceeds(peer.source, allowance))
    }
}

impl Shard {
    /// Advances the sweep to its target for the current time. Every visited peer and bucket takes one from the budget.
    /// Returns whether the budget ran out before.
    pub(crate) fn expire(&mut self, rules: &ExpiryRules<'_>, budget: &mut usize) -> bool {
        let &ExpiryRules { now_s, lifetime_s, .. } = rules;
        let sweep_s = (lifetime_s / SWEEPS_PER_LIFETIME).max(1);
        let is_complete = self.sweep.bucket >= self.swarms.num_buckets();
        if is_complete && now_s.saturating_sub(self.sweep.started_s) >= sweep_s {
            self.shrink();
            self.sweep = Sweep { started_s: now_s, ..Sweep::default() };
        }
        let elapsed_s = now_s.saturating_sub(self.sweep.started_s).min(sweep_s);
        // No table has enough buckets to saturate the product.
        let due = self.swarms.num_buckets().saturating_mul(elapsed_s as usize) / sweep_s as usize;
        while self.sweep.bucket < due {
            if *budget == 0 {
                return true;
            }
            *budget -= 1;
            self.expire_bucket(rules, budget);
        }
        false
    }

    /// Removes the expired peers from the swarm in the current bucket, and advances to the next bucket if the budget
    /// allows.
    fn expire_bucket(&mut self, rules: &ExpiryRules<'_>, budget: &mut usize) {
        let Self { swarms, sweep, totals, changes, namesake_offers, .. } = self;
        if let Ok(mut torrent) = swarms.get_bucket_entry(sweep.bucket) {
            let Torrent { swarm, hash } = torrent.get_mut();
            while sweep.position < swarm.len() {
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                let peer = swarm.peer_mut(sweep.position);
                let is_silent = rules.is_silent(peer);
                if is_silent || rules.is_over_share(peer) {
                    note_change(changes, *hash, &swarm.info_hash);
                    // A later peer moves to its position.
                    *(if is_silent { &mut totals.expired } else { &mut totals.evicted }) += 1;
                    totals.remove(swarm, sweep.position, namesake_offers, rules.pressure);
                } else {
                    if peer.pending_offers.is_outdated(rules.now_s) {
                        totals.pending_offer_bytes -= peer.offer_bytes();
                        namesake_offers.remove_all(peer);
                        peer.pending_offers = PendingOffers::default();
                    }
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

    /// Shrinks the table if it has become sparse.
    fn shrink(&mut self) {
        let swarms = self.swarms.len().max(SWARMS_RETAINED);
        if swarms < self.swarms.num_buckets() / 8 {
            self.swarms.shrink_to(swarms * 2, |torrent| torrent.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::transport::stream::Handle;
    use shoal_base::{Action, InfoHash, PeerId};

    use super::*;
    use crate::api::{Address, Announce, Settings};
    use crate::key::KeyHasher;
    use crate::shard::PreparedAnnounce;
    use shoal_base::source::Source;

    const LIFETIME_S: u32 = 80;

    fn expire((shard, pressure): &mut (Shard, Pressure), now_s: u32, budget: &mut usize) -> bool {
        shard.expire(&ExpiryRules::new(pressure, now_s, LIFETIME_S), budget)
    }

    fn pressure() -> Pressure {
        Pressure::new(&Settings::new(1 << 20, LIFETIME_S, [1, 2]))
    }

    fn join((shard, pressure): &mut (Shard, Pressure), torrent: u32, peer: u32, now_s: u32) {
        let hasher = KeyHasher::new([1, 2]);
        let (mut info_hash, mut peer_id) = (InfoHash([1; 20]), PeerId([2; 20]));
        info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
        peer_id.0[..4].copy_from_slice(&peer.to_be_bytes());
        let address = Address { worker: 0, handle: Handle { index: peer, generation: 0 } };
        let source = Source::of_hash(peer);
        let announce = Announce {
            address,
            source,
            peer_id,
            action: Action::Leech,
            may_join: true,
            is_exempt: false,
            offers: &[],
        };
        let (swarm, peer) = (hasher.swarm(&info_hash), hasher.peer(&peer_id));
        let call = PreparedAnnounce {
            swarm: &swarm,
            peer,
            announce: &announce,
            may_grow: true,
            share_max: 0,
            now_s,
            period_s: LIFETIME_S / 4,
        };
        let mut rng = fastrand::Rng::with_seed(1);
        shard.announce(&call, pressure, &mut rng, &mut Vec::new()).unwrap();
    }

    #[test]
    fn a_step_keeps_to_its_budget_even_within_a_swarm() {
        let mut both = (Shard::new(LIFETIME_S), pressure());
        (0..1000).for_each(|peer| join(&mut both, 1, peer, 0));
        let mut steps = 0;
        let mut is_behind = true;
        while is_behind {
            let (mut budget, before) = (10, both.0.totals.leechers);
            is_behind = expire(&mut both, LIFETIME_S + 1, &mut budget);
            assert!(before - both.0.totals.leechers <= 10);
            steps += 1;
        }
        assert_eq!((both.0.totals.leechers, both.0.totals.expired, both.0.swarms.len()), (0, 1000, 0));
        assert!((100..120).contains(&steps), "{steps} steps");
    }

    #[test]
    fn peers_that_announce_stay() {
        let mut both = (Shard::new(LIFETIME_S), pressure());
        for now_s in 0..LIFETIME_S * 5 {
            if now_s % LIFETIME_S == 0 {
                (0..50).for_each(|peer| join(&mut both, peer % 7, peer, now_s));
            }
            while expire(&mut both, now_s, &mut 5) {}
            assert_eq!((both.0.totals.leechers, both.0.swarms.len()), (50, 7));
        }
    }

    #[test]
    fn the_table_shrinks() {
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
            (both.0.swarms.len(), both.0.totals.leechers),
            (20, 21),
            "the swarms are found after the move"
        );
    }
}
