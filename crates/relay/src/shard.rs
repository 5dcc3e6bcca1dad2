//! A shard: the part of the swarms that one lock guards.

use core::num::NonZeroU32;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use shoal_insight::ChangeBuffer;
use shoal_source::{Download, Excess, Recent, Source};
use shoal_transport::stream::Handle;
use shoal_types::{Action, Counts, InfoHash, PeerChange, PeerId, Presence};

use crate::api::{
    Address, Announce, Announced, AnswerMatch, ConnectedPeer, Left, Membership, OfferTarget, Rejection,
    RemoteAnnounce,
};
use crate::expiry::Sweep;
use crate::key::{KeyHasher, OfferKey, PeerKey, SwarmKey};
use crate::pressure::Pressure;
use crate::swarm::{Peer, Swarm};

/// Seconds after which a peer is given away if its connection has not answered a challenge.
pub const CHALLENGE_S: u32 = 5;

/// The swarms of one shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) swarms: HashTable<Torrent>,
    pub(crate) sweep: Sweep,
    pub(crate) totals: ShardTotals,
    /// The torrents whose counts have changed, while they are watched.
    pub(crate) changes: Option<ChangeBuffer>,
    /// The downloads that were completed within the last lifetime of a peer.
    downloads: Recent,
}

/// A swarm and its torrent.
#[derive(Debug)]
pub(crate) struct Torrent {
    pub(crate) info_hash: InfoHash,
    pub(crate) hash: u64,
    pub(crate) swarm: Swarm,
}

/// Totals of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardTotals {
    pub(crate) seeders: u64,
    pub(crate) leechers: u64,
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    /// Memory of the pending offers of all peers.
    pub(crate) pending_offer_bytes: u64,
}

/// An announce and everything that is computed before the lock is taken.
#[derive(Debug)]
pub(crate) struct PreparedAnnounce<'a, 'o> {
    pub(crate) swarm: &'a SwarmKey,
    pub(crate) peer: PeerKey,
    pub(crate) announce: &'a Announce<'o>,
    /// Whether memory may be allocated for more pending offers.
    pub(crate) may_grow: bool,
    /// Maximum share of the swarm that the source may have, in per cent; zero if there is no limit.
    pub(crate) share_max: u32,
    pub(crate) now_s: u32,
    /// The length of a period, see [`PeerChange`].
    pub(crate) period_s: u32,
}

impl PreparedAnnounce<'_, '_> {
    /// Returns the change of a peer whose role stays the same.
    fn change_since(&self, announced_s: u32) -> PeerChange {
        // The periods of different peers begin at different times.
        let period_s = u64::from(self.period_s);
        let offset_s = self.peer.hash % period_s;
        let period = |time_s: u32| (u64::from(time_s) + offset_s) / period_s;
        if period(announced_s) == period(self.now_s) { PeerChange::Unchanged } else { PeerChange::Renewed }
    }
}

/// An answer to an offer, before it is known whether the offer is pending.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) answerer: Address,
    pub(crate) answerer_id: &'a PeerId,
    pub(crate) offer: OfferKey,
}

impl ShardTotals {
    /// Returns the number of peers that the sweep has removed, for any reason.
    pub(crate) const fn removed(&self) -> u64 {
        self.expired + self.evicted
    }

    pub(crate) fn role_mut(&mut self, seeds: bool) -> &mut u64 {
        if seeds { &mut self.seeders } else { &mut self.leechers }
    }
}

impl Torrent {
    fn new(key: &SwarmKey, now_s: u32) -> Self {
        Self { info_hash: key.info_hash, hash: key.hash, swarm: Swarm::new(now_s) }
    }

    fn is(&self, key: &SwarmKey) -> bool {
        self.hash == key.hash && self.info_hash == key.info_hash
    }
}

impl Shard {
    pub(crate) fn new(peer_lifetime_s: u32) -> Self {
        Self {
            swarms: HashTable::new(),
            sweep: Sweep::default(),
            totals: ShardTotals::default(),
            changes: None,
            downloads: Recent::new(peer_lifetime_s),
        }
    }

    /// Applies an announce, draws the receivers of its offers, and records these as pending. Before a new peer is added,
    /// `pressure` reserves room for it.
    pub(crate) fn announce(
        &mut self,
        call: &PreparedAnnounce<'_, '_>,
        pressure: &Pressure,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) -> Result<Announced, Rejection> {
        let PreparedAnnounce { swarm: key, peer, announce, now_s, .. } = call;
        let Self { swarms, totals, downloads, changes, .. } = self;
        let admit = || {
            if !announce.may_join {
                return Err(Rejection::MayNotJoin);
            }
            pressure.admit(announce.source, announce.is_exempt)
        };
        let (swarm, found) = match swarms.entry(key.hash, |torrent| torrent.is(key), |torrent| torrent.hash) {
            Entry::Occupied(torrent) => {
                let swarm = &mut torrent.into_mut().swarm;
                let found = swarm.find(peer);
                if found.is_none() {
                    if call.share_max > 0 && swarm.exceeds_share(announce.source, call.share_max, rng) {
                        return Err(Rejection::Excess(Excess::ShareOfSwarm));
                    }
                    admit()?;
                }
                (swarm, found)
            }
            Entry::Vacant(torrent) => {
                admit()?;
                (&mut torrent.insert(Torrent::new(key, *now_s)).into_mut().swarm, None)
            }
        };
        let before = swarm.counts();
        let seeds = matches!(announce.action, Action::Seed | Action::Complete);
        let (position, joined, mut change) = match found {
            Some(position) => {
                let joined = claim(swarm, position, announce, pressure, *now_s)?;
                let was_seeder = swarm.is_seeder(position);
                *totals.role_mut(was_seeder) -= 1;
                let change = if joined || was_seeder != seeds {
                    PeerChange::Joined
                } else {
                    call.change_since(swarm.peer(position).announced_s)
                };
                (swarm.set_role(position, seeds), joined, change)
            }
            None => {
                let mut new = Peer::new(peer, announce.address, announce.source);
                new.is_download_decided = announce.action == Action::Seed;
                (swarm.insert(new, seeds), true, PeerChange::Joined)
            }
        };
        *totals.role_mut(seeds) += 1;
        swarm.peer_mut(position).announced_s = *now_s;
        if announce.action == Action::Complete {
            let is_counted =
                swarm.complete(position, || is_download_counted(downloads, call, before.completed));
            totals.completed += u64::from(is_counted);
            change = if is_counted { PeerChange::Completed } else { change };
        }
        totals.pending_offer_bytes -= swarm.peer(position).pending_offers.memory_bytes();
        draw_receivers(swarm, position, call, rng, targets);
        totals.pending_offer_bytes += swarm.peer(position).pending_offers.memory_bytes();
        let counts = swarm.counts();
        if counts != before {
            note_change(changes, key.hash, &key.info_hash);
        }
        Ok(Announced { counts, joined, change })
    }

    /// Applies a change of a peer that is connected to another node. It was admitted there, so the limits of its source count it
    /// and do not refuse it. A peer of a connection of this node stays with that, unless it is given away.
    pub(crate) fn announce_remote(
        &mut self,
        key: &SwarmKey,
        peer: &PeerKey,
        announce: &RemoteAnnounce,
        pressure: &Pressure,
        now_s: u32,
    ) -> Result<(), Rejection> {
        let address = Address::of_node(announce.node);
        if announce.action == Action::Stop {
            self.leave(key, peer, address, pressure);
            return Ok(());
        }
        let seeds = announce.action != Action::Leech;
        let (swarm, found) =
            self.find_or_create(key, peer, now_s, || pressure.admit(announce.source, true))?;
        let before = swarm.counts();
        let (position, was_seeder) = match found {
            Some(position) => {
                let &Peer { address: present, source, challenged_s, .. } = swarm.peer(position);
                if !present.is_remote() && !is_given_away(challenged_s, now_s) {
                    return Err(Rejection::PeerIdTaken(present));
                }
                if present != address {
                    pressure.transfer(source, announce.source);
                    swarm.transfer(position, address, announce.source);
                }
                let was_seeder = swarm.is_seeder(position);
                (swarm.set_role(position, seeds), Some(was_seeder))
            }
            None => {
                let mut new = Peer::new(peer, address, announce.source);
                new.is_download_decided = announce.action == Action::Seed;
                (swarm.insert(new, seeds), None)
            }
        };
        swarm.peer_mut(position).announced_s = now_s;
        let is_download = announce.action == Action::Complete && swarm.complete(position, || true);
        let is_changed = swarm.counts() != before;
        if let Some(was_seeder) = was_seeder {
            *self.totals.role_mut(was_seeder) -= 1;
        }
        *self.totals.role_mut(seeds) += 1;
        self.totals.completed += u64::from(is_download);
        if is_changed {
            note_change(&mut self.changes, key.hash, &key.info_hash);
        }
        Ok(())
    }

    /// Returns a swarm and the position of a peer in it. The swarm is created if it does not exist and `admit` permits a peer.
    fn find_or_create(
        &mut self,
        key: &SwarmKey,
        peer: &PeerKey,
        now_s: u32,
        admit: impl FnOnce() -> Result<(), Rejection>,
    ) -> Result<(&mut Swarm, Option<usize>), Rejection> {
        match self.swarms.entry(key.hash, |torrent| torrent.is(key), |torrent| torrent.hash) {
            Entry::Occupied(torrent) => {
                let swarm = &mut torrent.into_mut().swarm;
                let found = swarm.find(peer);
                if found.is_none() {
                    admit()?;
                }
                Ok((swarm, found))
            }
            Entry::Vacant(torrent) => {
                admit()?;
                Ok((&mut torrent.insert(Torrent::new(key, now_s)).into_mut().swarm, None))
            }
        }
    }

    /// Removes all peers that are connected to another node.
    pub(crate) fn forget_node(&mut self, node: Handle, pressure: &Pressure) {
        let Self { swarms, totals, changes, .. } = self;
        let address = Address::of_node(node);
        swarms.retain(|Torrent { info_hash, hash, swarm }| {
            let positions = if swarm.has_remote() { 0..swarm.len() } else { 0..0 };
            // From the end, since a peer from behind takes the position of one that is removed.
            for position in positions.rev() {
                if swarm.peer(position).address == address {
                    note_change(changes, *hash, info_hash);
                    *totals.role_mut(swarm.is_seeder(position)) -= 1;
                    if let Some(peer) = swarm.remove(position) {
                        pressure.release(peer.source);
                    }
                }
            }
            !swarm.is_empty()
        });
    }

    /// Appends the peers that are connected to this node.
    pub(crate) fn connected(&self, presences: &mut Vec<Presence>) {
        for Torrent { info_hash, swarm, .. } in &self.swarms {
            for position in 0..swarm.len() {
                let peer = swarm.peer(position);
                if !peer.address.is_remote() {
                    let action = if swarm.is_seeder(position) { Action::Seed } else { Action::Leech };
                    let source = peer.source.to_bytes();
                    presences.push(Presence { info_hash: *info_hash, action, peer_id: peer.peer_id, source });
                }
            }
        }
    }

    /// Returns whether the connection of a peer of this node is challenged.
    pub(crate) fn is_challenged(&self, key: &SwarmKey, peer: &PeerKey) -> Option<bool> {
        let swarm = self.swarm(key)?;
        let peer = swarm.peer(swarm.find(peer)?);
        (!peer.address.is_remote()).then_some(peer.challenged_s.is_some())
    }

    /// Returns the connection or the node of a peer.
    pub(crate) fn address_of(&self, key: &SwarmKey, peer: &PeerKey) -> Option<Address> {
        let swarm = self.swarm(key)?;
        Some(swarm.peer(swarm.find(peer)?).address)
    }

    /// Removes a peer of the connection `address`.
    pub(crate) fn leave(
        &mut self,
        key: &SwarmKey,
        peer: &PeerKey,
        address: Address,
        pressure: &Pressure,
    ) -> Left {
        let Ok(mut torrent) = self.swarms.find_entry(key.hash, |torrent| torrent.is(key)) else {
            return Left::default();
        };
        let swarm = &mut torrent.get_mut().swarm;
        let Some(position) = owned(swarm, peer, address) else {
            return Left { counts: swarm.counts(), was_present: false };
        };
        *self.totals.role_mut(swarm.is_seeder(position)) -= 1;
        if let Some(peer) = swarm.remove(position) {
            self.totals.pending_offer_bytes -= peer.pending_offers.memory_bytes();
            pressure.release(peer.source);
        }
        note_change(&mut self.changes, key.hash, &key.info_hash);
        if swarm.is_empty() {
            // Its count of downloads is lost. Otherwise any client could fill the tables with empty swarms.
            torrent.remove();
            return Left { counts: Counts::default(), was_present: true };
        }
        Left { counts: swarm.counts(), was_present: true }
    }

    /// Returns the membership of a peer of the connection `address`.
    pub(crate) fn membership(
        &self,
        key: &SwarmKey,
        peer: &PeerKey,
        address: Address,
        now_s: u32,
    ) -> Option<Membership> {
        let swarm = self.swarm(key)?;
        let position = owned(swarm, peer, address)?;
        let peer = swarm.peer(position);
        Some(Membership {
            seeds: swarm.is_seeder(position),
            age_s: now_s.saturating_sub(peer.announced_s),
            is_download_decided: peer.is_download_decided,
            swarm_completed: swarm.counts().completed,
            swarm_age_s: swarm.age_s(now_s),
            pending_offers: peer.pending_offers.state(now_s),
        })
    }

    /// Adds a peer that was a member of the swarm in another process.
    pub(crate) fn resume(
        &mut self,
        key: &SwarmKey,
        peer: &PeerKey,
        (address, source): (Address, Source),
        membership: &Membership,
        pressure: &Pressure,
        now_s: u32,
    ) -> Result<(), Rejection> {
        if let Some(swarm) = self.swarm(key)
            && let Some(position) = swarm.find(peer)
        {
            return Err(Rejection::PeerIdTaken(swarm.peer(position).address));
        }
        pressure.admit(source, true)?;
        let entry = self.swarms.entry(key.hash, |torrent| torrent.is(key), |torrent| torrent.hash);
        let swarm = &mut entry.or_insert_with(|| Torrent::new(key, now_s)).into_mut().swarm;
        let position = swarm.insert(Peer::new(peer, address, source), membership.seeds);
        let peer = swarm.peer_mut(position);
        peer.announced_s = now_s.saturating_sub(membership.age_s);
        peer.is_download_decided = membership.is_download_decided;
        if pressure.may_grow(source) {
            peer.pending_offers.resume(&membership.pending_offers, now_s);
            self.totals.pending_offer_bytes += peer.pending_offers.memory_bytes();
        }
        swarm.resume(membership.swarm_completed, membership.swarm_age_s, now_s);
        *self.totals.role_mut(membership.seeds) += 1;
        note_change(&mut self.changes, key.hash, &key.info_hash);
        Ok(())
    }

    /// Removes up to `budget` peers of a swarm, and in the end the swarm itself. Returns whether peers are left.
    pub(crate) fn remove_peers(&mut self, key: &SwarmKey, budget: usize, pressure: &Pressure) -> bool {
        let Ok(mut torrent) = self.swarms.find_entry(key.hash, |torrent| torrent.is(key)) else {
            return false;
        };
        note_change(&mut self.changes, key.hash, &key.info_hash);
        let swarm = &mut torrent.get_mut().swarm;
        for position in (0..swarm.len()).rev().take(budget) {
            *self.totals.role_mut(swarm.is_seeder(position)) -= 1;
            if let Some(peer) = swarm.remove(position) {
                self.totals.pending_offer_bytes -= peer.pending_offers.memory_bytes();
                pressure.release(peer.source);
            }
        }
        if swarm.is_empty() {
            torrent.remove();
            return false;
        }
        true
    }

    /// Appends the sources of all peers.
    pub(crate) fn sources(&self, sources: &mut Vec<Source>) {
        for Torrent { swarm, .. } in &self.swarms {
            sources.extend((0..swarm.len()).map(|position| swarm.peer(position).source));
        }
    }

    /// Returns the torrents of all swarms.
    pub(crate) fn torrents(&self) -> Vec<InfoHash> {
        self.swarms.iter().map(|torrent| torrent.info_hash).collect()
    }

    /// Matches an answer to a pending offer of the peer `offerer`.
    pub(crate) fn match_answer(
        &mut self,
        key: &SwarmKey,
        offerer: &PeerKey,
        answer: &Answer<'_>,
        now_s: u32,
    ) -> AnswerMatch {
        let Some(torrent) = self.swarms.find_mut(key.hash, |torrent| torrent.is(key)) else {
            return AnswerMatch::PeerGone;
        };
        let Some(position) = torrent.swarm.find(offerer) else { return AnswerMatch::PeerGone };
        let peer = torrent.swarm.peer_mut(position);
        if peer.address.is_remote() {
            return AnswerMatch::Remote(peer.address.handle);
        }
        if peer.pending_offers.take(answer.offer, answer.answerer_id, answer.answerer, now_s) {
            AnswerMatch::Offerer(peer.address)
        } else {
            AnswerMatch::NotPending
        }
    }

    /// Records that the connection `address` is challenged on account of a peer. Returns false if the connection does
    /// not have the peer, or is challenged already.
    pub(crate) fn challenge(&mut self, key: &SwarmKey, peer: &PeerKey, address: Address, now_s: u32) -> bool {
        let peer = self.peer_mut(key, peer, address).filter(|peer| peer.challenged_s.is_none());
        peer.is_some_and(|peer| {
            peer.challenged_s = NonZeroU32::new(now_s.max(1));
            true
        })
    }

    /// Cancels the challenge of the connection `address` on account of a peer.
    pub(crate) fn confirm_alive(&mut self, key: &SwarmKey, peer: &PeerKey, address: Address) {
        if let Some(peer) = self.peer_mut(key, peer, address) {
            peer.challenged_s = None;
        }
    }

    fn peer_mut(&mut self, key: &SwarmKey, peer: &PeerKey, address: Address) -> Option<&mut Peer> {
        let torrent = self.swarms.find_mut(key.hash, |torrent| torrent.is(key))?;
        let position = owned(&torrent.swarm, peer, address)?;
        Some(torrent.swarm.peer_mut(position))
    }

    /// Returns whether the connection `address` has the peer.
    pub(crate) fn has_peer(&self, key: &SwarmKey, peer: &PeerKey, address: Address) -> bool {
        self.swarm(key).is_some_and(|swarm| owned(swarm, peer, address).is_some())
    }

    pub(crate) fn counts(&self, key: &SwarmKey) -> Counts {
        self.swarm(key).map_or_else(Counts::default, Swarm::counts)
    }

    pub(crate) fn age_s(&self, key: &SwarmKey, now_s: u32) -> Option<u32> {
        self.swarm(key).map(|swarm| swarm.age_s(now_s))
    }

    /// Makes a swarm as old as this. Returns whether there is one.
    pub(crate) fn set_age_s(&mut self, key: &SwarmKey, age_s: u32, now_s: u32) -> bool {
        let torrent = self.swarms.find_mut(key.hash, |torrent| torrent.is(key));
        torrent.map(|torrent| torrent.swarm.set_age_s(age_s, now_s)).is_some()
    }

    /// Appends up to `max` peers of a swarm: up to half as many seeders, then leechers.
    pub(crate) fn peers(&self, key: &SwarmKey, max: usize, now_s: u32, peers: &mut Vec<ConnectedPeer>) {
        let Some(swarm) = self.swarm(key) else { return };
        let counts = swarm.counts();
        let leechers = usize::try_from(counts.leechers).unwrap_or(usize::MAX);
        let seeders = max.div_ceil(2).max(max.saturating_sub(leechers));
        let positions = (leechers..swarm.len()).take(seeders).chain(0..leechers).take(max);
        peers.extend(positions.map(|position| {
            let peer = swarm.peer(position);
            ConnectedPeer {
                peer_id: peer.peer_id,
                seeds: swarm.is_seeder(position),
                age_s: now_s.saturating_sub(peer.announced_s),
            }
        }));
    }

    fn swarm(&self, key: &SwarmKey) -> Option<&Swarm> {
        self.swarms.find(key.hash, |torrent| torrent.is(key)).map(|torrent| &torrent.swarm)
    }
}

/// Notes that the counts of a torrent have changed, if changes are watched.
pub(crate) fn note_change(changes: &mut Option<ChangeBuffer>, hash: u64, info_hash: &InfoHash) {
    if let Some(changes) = changes {
        changes.note(hash, info_hash);
    }
}

/// Returns the position of a peer, if it belongs to the connection `address`.
fn owned(swarm: &Swarm, peer: &PeerKey, address: Address) -> Option<usize> {
    swarm.find(peer).filter(|&position| swarm.peer(position).address == address)
}

/// Returns whether a peer whose connection was challenged then is given away, since that has not answered.
fn is_given_away(challenged_s: Option<NonZeroU32>, now_s: u32) -> bool {
    challenged_s.is_some_and(|since_s| now_s.saturating_sub(since_s.get()) >= CHALLENGE_S)
}

/// Checks that the peer belongs to the announcer, or transfers it from a connection that has not answered a challenge
/// and is therefore considered dead. Returns whether it was transferred. The address of the announcer is irrelevant:
/// neighbours share one, and a client that moves to another network has a new one.
fn claim(
    swarm: &mut Swarm,
    position: usize,
    announce: &Announce<'_>,
    pressure: &Pressure,
    now_s: u32,
) -> Result<bool, Rejection> {
    let peer = swarm.peer_mut(position);
    if peer.address == announce.address {
        peer.challenged_s = None;
        return Ok(false);
    }
    if !is_given_away(peer.challenged_s, now_s) {
        return Err(Rejection::PeerIdTaken(peer.address));
    }
    if !announce.may_join {
        return Err(Rejection::MayNotJoin);
    }
    // The number of peers stays the same, so the claim is granted whatever share the announcer holds.
    pressure.transfer(peer.source, announce.source);
    swarm.transfer(position, announce.address, announce.source);
    Ok(true)
}

/// Returns whether the completed download of the announcer is counted, as one more than `completed`.
#[cold]
fn is_download_counted(downloads: &mut Recent, call: &PreparedAnnounce<'_, '_>, completed: u32) -> bool {
    let of_peer = KeyHasher::download(call.swarm, &call.peer);
    let of_source = Some(KeyHasher::downloads(call.swarm, call.announce.source));
    let download = Download { torrent: call.swarm.hash, completed, of_peer, of_source };
    downloads.counts_download(&download, call.now_s)
}

/// Draws a receiver for each offer, as far as there are enough peers, and records the offers as pending.
fn draw_receivers(
    swarm: &mut Swarm,
    own: usize,
    call: &PreparedAnnounce<'_, '_>,
    rng: &mut fastrand::Rng,
    targets: &mut Vec<OfferTarget>,
) {
    let offers = call.announce.offers;
    swarm.draw(own, offers.len(), rng, targets);
    if targets.is_empty() {
        return;
    }
    // Taken out for a moment, since the receivers are in the same list of peers.
    let mut pending_offers = core::mem::take(&mut swarm.peer_mut(own).pending_offers);
    let room = pending_offers.reserve(targets.len(), call.may_grow, call.now_s);
    targets.truncate(room);
    for (target, &offer) in targets.iter().zip(offers) {
        let peer_id = &swarm.peer(target.position as usize).peer_id;
        pending_offers.push(offer, peer_id, target.address, call.now_s);
    }
    swarm.peer_mut(own).pending_offers = pending_offers;
}
