//! Draws the receivers of a peer's offers.
//!
//! A source with a thousand peers receives as many offers from others as a source with one: no source gets more than its
//! representative's part of them. Siege attacks this promise in `relay/swarm`; `shoal_store` keeps it for peers in replies.
//!
//! A draw is uniform over the representatives of other sources and all peers of the announcer's own source, without
//! repetition, and never draws the announcer. The first sample is drawn from all peers. Surplus peers of other sources
//! in it are replaced by further draws, at most 64 for each place, so the rule costs nothing in ordinary swarms. For a
//! seeder, leechers come first and seeders get the remaining offers, since in some applications all browsers have
//! everything.
//!
//! If a draw hits a peer of another node, twice as many are drawn, and those of this node go first.

use core::ops::Range;

use super::{LEECHERS, Peer, SEEDERS, SURPLUS_LEECHERS, SURPLUS_SEEDERS, Swarm, as_u32, as_usize};
use crate::api::OfferTarget;

/// Maximum number of draws for a receiver, when most draws hit surplus peers of other sources.
const DRAWS_MAX: usize = 64;

impl Swarm {
    /// Draws up to `wanted` receivers for the offers of the peer at `own`: other peers, each at most once, and none
    /// with the same peer id. All peers of its own source and the representatives of others have the same probability;
    /// the other peers get the remaining offers. A seeder's offers go to leechers first, and the rest to seeders. Peers
    /// of this node are preferred to those of other nodes: twice as many are drawn, and these go first.
    pub(crate) fn draw(
        &self,
        own: usize,
        wanted: usize,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) {
        self.draw_any(own, wanted, rng, targets);
        let own_id = self.peers[own].peer_id;
        let is_own = |target: &OfferTarget| target.peer_id == own_id;
        if targets.iter().any(is_own) {
            // A client has no use for its own offers.
            targets.clear();
            self.draw_any(own, 2 * wanted, rng, targets);
            targets.retain(|target| !is_own(target));
            targets.truncate(wanted);
        }
    }

    /// Draws up to `wanted` receivers, regardless of their peer ids.
    fn draw_any(&self, own: usize, wanted: usize, rng: &mut fastrand::Rng, targets: &mut Vec<OfferTarget>) {
        if self.is_seeder(own) {
            for zones in [[SURPLUS_LEECHERS, LEECHERS], [SURPLUS_SEEDERS, SEEDERS]] {
                self.draw_from(zones.map(|zone| self.range(zone)), own, wanted, rng, targets);
            }
        } else {
            let first = self.representatives();
            self.draw_from([0..first, first..self.len()], own, wanted, rng, targets);
        }
        if targets.len() < wanted && self.representatives() > 0 {
            self.fill(own, wanted, rng, targets);
        }
    }

    /// Draws receivers from a zone of representatives and the zone of other peers with the same role, until there are
    /// `wanted`. Peers of this node are preferred.
    fn draw_from(
        &self,
        zones: [Range<usize>; 2],
        own: usize,
        wanted: usize,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) {
        let (start, wanted) = (targets.len(), wanted.saturating_sub(targets.len()));
        self.draw_fairly(&zones, own, wanted, rng, targets);
        if targets[start..].iter().any(|target| target.address.is_remote()) {
            targets.truncate(start);
            self.draw_fairly(&zones, own, 2 * wanted, rng, targets);
            // If all were drawn, they are in the order of the list.
            rng.shuffle(&mut targets[start..]);
            targets[start..].sort_by_key(|target| target.address.is_remote());
            targets.truncate(start + wanted);
        }
    }

    /// Draws up to `wanted` receivers, at this or other nodes.
    fn draw_fairly(
        &self,
        [surplus, representatives]: &[Range<usize>; 2],
        own: usize,
        wanted: usize,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) {
        let start = targets.len();
        self.sample([surplus, representatives], own, wanted, rng, targets);
        let (first, source) = (self.representatives(), self.peers[own].source);
        let is_foreign_surplus =
            |position: usize| position < first && !self.peers[position].source.is_same_site(source);
        let sampled = targets.len();
        for drawn in (start..sampled).rev() {
            if is_foreign_surplus(as_usize(targets[drawn].position)) {
                targets.swap_remove(drawn);
            }
        }
        if targets.len() == sampled || sampled - start < wanted {
            return;
        }
        // Further draws replace the surplus of other sources. An attacker whose surplus is hundreds of times as large
        // as the rest makes these fail; then representatives fill the places.
        let others = surplus.len() + representatives.len();
        let missing = sampled - targets.len();
        for _ in 0..(DRAWS_MAX * missing).min(4 * others) {
            if targets.len() - start == wanted {
                return;
            }
            let position = position_in([surplus, representatives], rng.usize(..others));
            let is_drawn = |target: &OfferTarget| as_usize(target.position) == position;
            if position != own && !is_foreign_surplus(position) && !targets[start..].iter().any(is_drawn) {
                targets.push(self.target(position));
            }
        }
        self.add([&(0..0), representatives], own, start + wanted, rng, targets);
    }

    /// Draws more receivers among the non-representatives, until there are `wanted`.
    #[cold]
    fn fill(&self, own: usize, wanted: usize, rng: &mut fastrand::Rng, targets: &mut Vec<OfferTarget>) {
        let zones = [SURPLUS_LEECHERS, SURPLUS_SEEDERS].map(|zone| self.range(zone));
        let rounds: &[[&Range<usize>; 2]] = if self.is_seeder(own) {
            &[[&zones[0], &(0..0)], [&zones[1], &(0..0)]]
        } else {
            &[[&zones[1], &zones[0]]]
        };
        for &zones in rounds {
            self.add(zones, own, wanted, rng, targets);
        }
    }

    /// Draws more receivers from two zones, until there are `wanted`. Some peers of the zones may be receivers already.
    fn add(
        &self,
        zones: [&Range<usize>; 2],
        own: usize,
        wanted: usize,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) {
        let start = targets.len();
        self.sample(zones, own, wanted, rng, targets);
        for drawn in (start..targets.len()).rev() {
            if targets[..start].iter().any(|target| target.position == targets[drawn].position) {
                targets.swap_remove(drawn);
            }
        }
        targets.truncate(wanted.max(start));
    }

    /// Draws up to `wanted` peers of two zones, other than the one at `own`, each at most once.
    fn sample(
        &self,
        [front, back]: [&Range<usize>; 2],
        own: usize,
        wanted: usize,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) {
        // The number of the peer in both zones together.
        let own = if front.contains(&own) {
            Some(own - front.start)
        } else {
            back.contains(&own).then(|| front.len() + own - back.start)
        };
        let others = front.len() + back.len() - usize::from(own.is_some());
        let position = |drawn: usize| {
            position_in([front, back], drawn + usize::from(own.is_some_and(|own| drawn >= own)))
        };
        if wanted >= others {
            targets.extend((0..others).map(|drawn| self.target(position(drawn))));
            return;
        }
        let start = targets.len();
        // Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987): one draw for each, without rejections.
        for last in others - wanted..others {
            let drawn = position(rng.usize(0..=last));
            let is_new = targets[start..].iter().all(|target| as_usize(target.position) != drawn);
            targets.push(self.target(if is_new { drawn } else { position(last) }));
        }
    }

    fn target(&self, position: usize) -> OfferTarget {
        let Peer { address, peer_id, .. } = self.peers[position];
        OfferTarget { address, peer_id, position: as_u32(position) }
    }
}

/// Returns the position of a peer by its number in both ranges together.
const fn position_in([front, back]: [&Range<usize>; 2], number: usize) -> usize {
    let front_len = front.end - front.start;
    if number < front_len { front.start + number } else { back.start + number - front_len }
}
