//! Applies the deltas of other nodes to the store, in batches whose cache misses overlap, like the batches of
//! datagrams.
//!
//! A peer was admitted at its own node, so the limits of its source count it here, but do not refuse it. Lists,
//! networks and the ceiling of memory also hold here.
//!
//! A message has enough deltas for each shard that all passes over up to 64 of them share one lock. A completed
//! download is counted by the rule for local ones. A delta that was sent again after a loss is older than the traffic
//! beside it. It yields to a peer that has announced here since, by the stamps.

use core::net::IpAddr;
use std::sync::Arc;

use shoal_base::transport::datagram::BATCH_MAX;
use shoal_base::{Action, Delta, PeerV4, PeerV6};
use shoal_store::{Announce, LockedShard, PeerChange, Place, PrivateNetwork, Store, Swarms};

use super::admission::{RefusedPeer, ReplicationCounters, check_peer, check_torrent};
use crate::Now;
use crate::batch::{Batch, Work};
use crate::policy::Policy;
use crate::udp::prefetch_lists;

/// Maximum number of deltas that are grouped by shard: one message, so that each shard has many whose cache misses
/// overlap.
const DELTAS_MAX: usize = 640;

/// Applies the deltas of other nodes. One thread owns it.
#[derive(Debug)]
pub struct Applier {
    store: Arc<Store>,
    front: Front,
    /// The deltas that wait for their swarms.
    v4: Box<Batch<PeerV4, (), DELTAS_MAX>>,
    v6: Box<Batch<PeerV6, (), DELTAS_MAX>>,
}

/// The data for decisions, except the store.
#[derive(Debug)]
struct Front {
    policy: Arc<Policy>,
    counters: Arc<ReplicationCounters>,
    /// No reply has peers, so nothing is drawn from it.
    rng: fastrand::Rng,
}

/// When the announces of a batch took place.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The time in seconds on the clock of this store.
    at_s: u32,
    /// Whether peers may have announced here since then.
    is_late: bool,
}

impl Applier {
    /// Creates an applier on the shared `store`.
    pub fn new(policy: Arc<Policy>, store: Arc<Store>) -> Self {
        let front = Front { policy, counters: Arc::default(), rng: fastrand::Rng::with_seed(0) };
        Self { store, front, v4: Box::new(Batch::new()), v6: Box::new(Batch::new()) }
    }

    /// Replaces the policy for all later deltas. The applier must have a list before swarms are removed because the
    /// list forbids their torrents; see [`Policy::with_permitted_swarms`].
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.front.policy = policy;
    }

    /// Returns the policy.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.front.policy
    }

    /// Returns the store.
    pub const fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the counts, for an exporter.
    pub const fn counters(&self) -> &Arc<ReplicationCounters> {
        &self.front.counters
    }

    /// Applies deltas in their order within each swarm. Their announces took place `age_ms` ago. A delta older than a
    /// second does not change a peer that has announced here since.
    pub fn apply(&mut self, deltas: &[Delta], age_ms: u64, now: Now) {
        const LATE_MS_MIN: u64 = 1000;
        let age_s = u32::try_from(age_ms / 1000).unwrap_or(u32::MAX);
        let is_late = age_ms > LATE_MS_MIN;
        if is_late && age_s > self.front.policy.config().announce.peer_timeout_s {
            return self.front.counters.superseded.add(deltas.len() as u64);
        }
        let moment = Moment { at_s: now.monotonic_s.saturating_sub(age_s), is_late };
        for chunk in deltas.chunks(DELTAS_MAX) {
            self.apply_chunk(chunk, moment);
        }
    }

    fn apply_chunk(&mut self, chunk: &[Delta], moment: Moment) {
        let Self { store, front, v4, v6 } = self;
        if let Some(lists) = front.policy.access().and_then(|access| access.torrents.as_deref()) {
            for chunk in chunk.chunks(BATCH_MAX) {
                prefetch_lists(lists, chunk.iter().map(|delta| delta.info_hash));
            }
        }
        for (index, delta) in chunk.iter().enumerate() {
            let delta = Delta { ip: delta.ip.to_canonical(), ..*delta };
            match front.check(&delta) {
                Err(reason) => front.counters.refused.of(reason).increment(),
                Ok(Some(network)) => front.apply_apart(store, network, &delta, moment),
                Ok(None) => {
                    let (place, Delta { action, port, .. }) = (store.locate(&delta.info_hash), delta);
                    match delta.ip {
                        IpAddr::V4(ip) => v4.push(place, index, (), work(PeerV4::new(ip, port), action)),
                        IpAddr::V6(ip) => v6.push(place, index, (), work(PeerV6::new(ip, port), action)),
                    }
                }
            }
        }
        front.apply(store, v4, v6, moment);
    }
}

/// Returns the work for a peer. Most announces renew, so the peer probably has the announced role already.
#[inline]
fn work<P>(peer: P, action: Action) -> Work<P> {
    let announce = Announce { peer, action, peers_wanted: 0 };
    let (registers, is_plain) = (true, true);
    Work::Announce { announce, registers, joins: false, is_plain, is_ruled: false, drawn: 0, sample_seed: 0 }
}

impl Front {
    /// Decides whether a delta applies. Returns the private network of its peer if that is kept apart. A peer may
    /// always leave.
    #[inline]
    fn check(&self, delta: &Delta) -> Result<Option<PrivateNetwork>, RefusedPeer> {
        let network = check_peer(&self.policy, delta.ip, delta.port, delta.action)?;
        if delta.action != Action::Stop {
            check_torrent(&self.policy, &delta.info_hash)?;
        }
        Ok(network)
    }

    fn apply(
        &mut self,
        store: &Store,
        v4: &mut Batch<PeerV4, (), DELTAS_MAX>,
        v6: &mut Batch<PeerV6, (), DELTAS_MAX>,
        moment: Moment,
    ) {
        v4.apply_by_shard(&store.v4, |shard, item| self.announce(shard, &item.place, &item.work, moment));
        v6.apply_by_shard(&store.v6, |shard, item| self.announce(shard, &item.place, &item.work, moment));
    }

    #[cold]
    fn apply_apart(&mut self, store: &Store, network: PrivateNetwork, delta: &Delta, moment: Moment) {
        let place = store.private.locate(&delta.info_hash, network);
        match delta.ip {
            IpAddr::V4(ip) => {
                let work = work(PeerV4::new(ip, delta.port), delta.action);
                self.announce(&mut lock(&store.private.v4, &place), &place, &work, moment);
            }
            IpAddr::V6(ip) => {
                let work = work(PeerV6::new(ip, delta.port), delta.action);
                self.announce(&mut lock(&store.private.v6, &place), &place, &work, moment);
            }
        }
    }

    /// Announces for a peer of another node.
    #[inline]
    fn announce<P: shoal_store::Family>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        place: &Place,
        work: &Work<P>,
        moment: Moment,
    ) {
        let Work::Announce { announce, .. } = work else { return };
        let announced = if moment.is_late {
            shard.announce_late(place, announce, moment.at_s, &mut self.rng)
        } else {
            shard.announce_exempt(place, announce, moment.at_s, &mut self.rng, &mut [])
        };
        match announced {
            // A peer that stays is a member afterwards, unless it has announced here since.
            Ok(announced) if announced.change == PeerChange::Nothing && announce.action != Action::Stop => {
                self.counters.superseded.increment();
            }
            Ok(_) => self.counters.applied.increment(),
            // Limits of sources do not apply, so memory is lacking.
            Err(_rejection) => self.counters.refused.of(RefusedPeer::Memory).increment(),
        }
    }
}

fn lock<'s, P: shoal_store::Family>(swarms: &'s Swarms<P>, place: &Place) -> LockedShard<'s, P> {
    swarms.lock(place.shard())
}
