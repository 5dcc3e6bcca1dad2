//! A shard: the part of the swarms that one lock guards.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use shoal_base::change_buffer::ChangeBuffer;
use shoal_base::source::{Download, Excess, Recent, Source};
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, InfoHash, PeerChange, PeerId, Presence};

use crate::api::{
    Address, Announce, Announced, AnswerMatch, ConnectedPeer, Left, Membership, OfferTarget, ReceivedOffer,
    Rejection, RemoteAnnounce,
};
use crate::expiry::Sweep;
use crate::key::{KeyHasher, OfferKey, PeerKey, SwarmKey};
use crate::namesake::NamesakeOffers;
use crate::pending_offer;
use crate::pressure::Pressure;
use crate::swarm::{Peer, Swarm};

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) swarms: HashTable<Torrent>,
    pub(crate) sweep: Sweep,
    pub(crate) totals: ShardTotals,
    /// The torrents whose counts have changed, while they are watched.
    pub(crate) changes: Option<ChangeBuffer>,
    /// The pending offers that are not found by the peer ids of their offerers.
    pub(crate) namesake_offers: NamesakeOffers,
    /// The downloads that were completed within the last lifetime of a peer.
    downloads: Recent,
}

/// A swarm and the keyed hash of its info hash.
#[derive(Debug)]
pub(crate) struct Torrent {
    pub(crate) hash: u64,
    pub(crate) swarm: Swarm,
}

const _: () = assert!(size_of::<Torrent>() == 80, "as `PEER_BYTES` assumes");

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

/// An offer, by the peer id of its sender, and the peer that has received it or receives it now.
#[derive(Debug)]
pub(crate) struct RelayedOffer<'a> {
    pub(crate) offerer: PeerKey,
    pub(crate) offer: OfferKey,
    pub(crate) receiver: Address,
    pub(crate) receiver_id: &'a PeerId,
}

impl RelayedOffer<'_> {
    fn key(&self) -> u64 {
        pending_offer::key(self.offer.of(&self.offerer), self.receiver_id, self.receiver)
    }
}

impl ShardTotals {
    /// Returns the number of peers that the sweep has removed, for any reason.
    pub(crate) const fn removed(&self) -> u64 {
        self.expired + self.evicted
    }

    pub(crate) fn role_mut(&mut self, seeds: bool) -> &mut u64 {
        if seeds { &mut self.seeders } else { &mut self.leechers }
    }

    /// Removes a peer of a swarm, with all its counts and index entries.
    pub(crate) fn remove(
        &mut self,
        swarm: &mut Swarm,
        position: usize,
        namesake_offers: &mut NamesakeOffers,
        pressure: &Pressure,
    ) {
        *self.role_mut(swarm.is_seeder(position)) -= 1;
        if let Some(peer) = swarm.remove(position) {
            self.pending_offer_bytes -= peer.offer_bytes();
            namesake_offers.remove_all(&peer);
            pressure.release(peer.source);
        }
    }
}

impl Torrent {
    fn new(key: &SwarmKey, now_s: u32) -> Self {
        Self { hash: key.hash, swarm: Swarm::new(key.info_hash, now_s) }
    }

    fn is(&self, key: &SwarmKey) -> bool {
        self.hash == key.hash && self.swarm.info_hash == key.info_hash
    }
}

impl Shard {
    pub(crate) fn new(peer_lifetime_s: u32) -> Self {
        Self {
            swarms: HashTable::new(),
            sweep: Sweep::default(),
            totals: ShardTotals::default(),
            changes: None,
            namesake_offers: NamesakeOffers::default(),
            downloads: Recent::new(peer_lifetime_s),
        }
    }

    /// Applies an announce, draws the receivers of its offers, and records these as pending. Before a new peer is
    /// added, `pressure` reserves room for it.
    pub(crate) fn announce(
        &mut self,
        call: &PreparedAnnounce<'_, '_>,
        pressure: &Pressure,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<OfferTarget>,
    ) -> Result<Announced, Rejection> {
        let PreparedAnnounce { swarm: key, peer, announce, now_s, .. } = call;
        let Self { swarms, totals, downloads, changes, namesake_offers, .. } = self;
        let admit = || {
            if !announce.may_join {
                return Err(Rejection::MayNotJoin);
            }
            pressure.admit(announce.source, announce.is_exempt)
        };
        let (swarm, found) = match swarms.entry(key.hash, |torrent| torrent.is(key), |torrent| torrent.hash) {
            Entry::Occupied(torrent) => {
                let swarm = &mut torrent.into_mut().swarm;
                let found = swarm.find(peer, announce.address);
                if found.is_none() {
                    if announce.may_join
                        && call.share_max > 0
                        && swarm.exceeds_share(announce.source, call.share_max, rng)
                    {
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
        let mut older = None;
        let (position, mut change) = match found {
            Some(position) => {
                let was_seeder = swarm.is_seeder(position);
                *totals.role_mut(was_seeder) -= 1;
                let change = if take_first_place(swarm, position, peer, totals, namesake_offers)
                    || was_seeder != seeds
                {
                    PeerChange::Joined
                } else {
                    call.change_since(swarm.peer(position).announced_s)
                };
                (swarm.set_role(position, seeds), change)
            }
            None => {
                older = swarm.first(peer).map(|position| swarm.peer(position).address);
                let mut new = Peer::new(peer, announce.address, announce.source, older.is_some());
                new.is_download_decided = announce.action == Action::Seed;
                (swarm.insert(new, seeds), PeerChange::Joined)
            }
        };
        let position = swarm.represent(position);
        *totals.role_mut(seeds) += 1;
        swarm.peer_mut(position).announced_s = *now_s;
        if announce.action == Action::Complete {
            let is_counted =
                swarm.complete(position, || is_download_counted(downloads, call, before.completed));
            totals.completed += u64::from(is_counted);
            change = if is_counted { PeerChange::Completed } else { change };
        }
        if swarm.peer(position).is_by_address && change != PeerChange::Completed {
            change = PeerChange::Nothing;
        }
        totals.pending_offer_bytes -= swarm.peer(position).offer_bytes();
        draw_receivers(swarm, position, call, namesake_offers, rng, targets);
        totals.pending_offer_bytes += swarm.peer(position).offer_bytes();
        let counts = swarm.counts();
        if counts != before {
            note_change(changes, key.hash, &key.info_hash);
        }
        Ok(Announced { counts, joined: found.is_none(), change, older })
    }

    /// Applies a change of a peer that is connected to another node. That node admitted it, so the limits of its source
    /// count it and do not refuse it. Returns the first connection of this node with the same peer id, if the peer has
    /// just joined.
    pub(crate) fn announce_remote(
        &mut self,
        key: &SwarmKey,
        peer: &PeerKey,
        announce: &RemoteAnnounce,
        pressure: &Pressure,
        now_s: u32,
    ) -> Result<Option<Address>, Rejection> {
        let address = Address::of_node(announce.node);
        if announce.action == Action::Stop {
            self.leave(key, peer, address, pressure);
            return Ok(None);
        }
        let Self { swarms, totals, changes, .. } = self;
        let seeds = announce.action != Action::Leech;
        let admit = || pressure.admit(announce.source, true);
        let (swarm, found) = match swarms.entry(key.hash, |torrent| torrent.is(key), |torrent| torrent.hash) {
            Entry::Occupied(torrent) => {
                let swarm = &mut torrent.into_mut().swarm;
                let found = swarm.find(peer, address);
                if found.is_none() {
                    admit()?;
                }
                (swarm, found)
            }
            Entry::Vacant(torrent) => {
                admit()?;
                (&mut torrent.insert(Torrent::new(key, now_s)).into_mut().swarm, None)
            }
        };
        let (before, mut older) = (swarm.counts(), None);
        let position = match found {
            Some(position) => {
                *totals.role_mut(swarm.is_seeder(position)) -= 1;
                swarm.set_role(position, seeds)
            }
            None => {
                older = swarm.first(peer).map(|position| swarm.peer(position).address);
                let mut new = Peer::new(peer, address, announce.source, true);
                new.is_download_decided = announce.action == Action::Seed;
                swarm.insert(new, seeds)
            }
        };
        let position = swarm.represent(position);
        *totals.role_mut(seeds) += 1;
        swarm.peer_mut(position).announced_s = now_s;
        let is_download = announce.action == Action::Complete && swarm.complete(position, || true);
        totals.completed += u64::from(is_download);
        if swarm.counts() != before {
            note_change(changes, key.hash, &key.info_hash);
        }
        Ok(older)
    }

    /// Removes all peers that are connected to another node.
    pub(crate) fn forget_node(&mut self, node: Handle, pressure: &Pressure) {
        let Self { swarms, totals, changes, namesake_offers, .. } = self;
        let address = Address::of_node(node);
        swarms.retain(|Torrent { hash, swarm }| {
            // Backwards, since removing a peer moves only later peers.
            for position in (0..swarm.len()).rev() {
                if swarm.peer(position).address == address {
                    note_change(changes, *hash, &swarm.info_hash);
                    totals.remove(swarm, position, namesake_offers, pressure);
                }
            }
            !swarm.is_empty()
        });
    }

    /// Appends the peers that are connected to this node, one of each peer id.
    pub(crate) fn connected(&self, presences: &mut Vec<Presence>) {
        for Torrent { swarm, .. } in &self.swarms {
            for position in 0..swarm.len() {
                let peer = swarm.peer(position);
                if !peer.is_by_address {
                    let action = if swarm.is_seeder(position) { Action::Seed } else { Action::Leech };
                    let source = peer.source.to_bytes();
                    let (info_hash, peer_id) = (swarm.info_hash, peer.peer_id);
                    presences.push(Presence { info_hash, action, peer_id, source });
                }
            }
        }
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
        let Some(position) = swarm.find(peer, address) else {
            return Left { counts: swarm.counts(), ..Left::default() };
        };
        let was_first = !swarm.peer(position).is_by_address;
        self.totals.remove(swarm, position, &mut self.namesake_offers, pressure);
        note_change(&mut self.changes, key.hash, &key.info_hash);
        let counts = if swarm.is_empty() {
            // Its count of downloads is lost. Otherwise any client could fill the tables with empty swarms.
            torrent.remove();
            Counts::default()
        } else {
            swarm.counts()
        };
        Left { counts, was_present: true, was_first }
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
        let position = swarm.find(peer, address)?;
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

    /// Adds a peer that comes from another process.
    pub(crate) fn resume(
        &mut self,
        key: &SwarmKey,
        peer: &PeerKey,
        (address, source): (Address, Source),
        membership: &Membership,
        pressure: &Pressure,
        now_s: u32,
    ) -> Result<(), Rejection> {
        pressure.admit(source, true)?;
        let entry = self.swarms.entry(key.hash, |torrent| torrent.is(key), |torrent| torrent.hash);
        let swarm = &mut entry.or_insert_with(|| Torrent::new(key, now_s)).into_mut().swarm;
        let is_by_address = swarm.first(peer).is_some();
        let position = swarm.insert(Peer::new(peer, address, source, is_by_address), membership.seeds);
        let peer = swarm.peer_mut(position);
        peer.announced_s = now_s.saturating_sub(membership.age_s);
        peer.is_download_decided = membership.is_download_decided;
        if pressure.may_grow(source) {
            peer.pending_offers.resume(&membership.pending_offers, peer.offers_max(), now_s);
            self.totals.pending_offer_bytes += peer.offer_bytes();
            if is_by_address {
                peer.pending_offers.keys().for_each(|key| self.namesake_offers.insert(key, peer.hash()));
            }
        }
        swarm.resume(membership.swarm_completed, membership.swarm_age_s, now_s);
        *self.totals.role_mut(membership.seeds) += 1;
        note_change(&mut self.changes, key.hash, &key.info_hash);
        Ok(())
    }

    /// Removes up to `budget` peers of a swarm, and the swarm itself when it is empty. Returns whether peers are left.
    pub(crate) fn remove_peers(&mut self, key: &SwarmKey, budget: usize, pressure: &Pressure) -> bool {
        let Ok(mut torrent) = self.swarms.find_entry(key.hash, |torrent| torrent.is(key)) else {
            return false;
        };
        note_change(&mut self.changes, key.hash, &key.info_hash);
        let swarm = &mut torrent.get_mut().swarm;
        for position in (0..swarm.len()).rev().take(budget) {
            self.totals.remove(swarm, position, &mut self.namesake_offers, pressure);
        }
        if swarm.is_empty() {
            torrent.remove();
            return false;
        }
        true
    }

    pub(crate) fn sources(&self, sources: &mut Vec<Source>) {
        for Torrent { swarm, .. } in &self.swarms {
            sources.extend((0..swarm.len()).map(|position| swarm.peer(position).source));
        }
    }

    pub(crate) fn torrents(&self) -> Vec<InfoHash> {
        self.swarms.iter().map(|torrent| torrent.swarm.info_hash).collect()
    }

    /// Matches an answer to a pending offer. The sender of the answer is the receiver of the offer.
    pub(crate) fn match_answer(
        &mut self,
        key: &SwarmKey,
        answered: &RelayedOffer<'_>,
        now_s: u32,
    ) -> AnswerMatch {
        let Some(torrent) = self.swarms.find_mut(key.hash, |torrent| torrent.is(key)) else {
            return AnswerMatch::PeerGone;
        };
        let (swarm, offer_key) = (&mut torrent.swarm, answered.key());
        let first = swarm.first(&answered.offerer);
        if let Some(position) = first {
            let peer = swarm.peer_mut(position);
            if peer.pending_offers.take(offer_key, now_s) {
                return AnswerMatch::Offerer(peer.address);
            }
        }
        if let Some(offerer) = self.namesake_offers.find(offer_key)
            && let Some(position) = swarm.find_hash(offerer, |peer| peer.is_by_address)
        {
            let peer = swarm.peer_mut(position);
            if peer.pending_offers.take(offer_key, now_s) {
                self.namesake_offers.remove(offer_key, offerer);
                return AnswerMatch::Offerer(peer.address);
            }
        }
        if first.is_some() { AnswerMatch::NotPending } else { AnswerMatch::PeerGone }
    }

    /// Records an offer of a peer of another node as pending. Its receiver is the first peer of this node with that id.
    pub(crate) fn receive_offer(
        &mut self,
        key: &SwarmKey,
        node: Handle,
        (offerer, receiver): (&PeerKey, &PeerKey),
        offer: OfferKey,
        pressure: &Pressure,
        now_s: u32,
    ) -> ReceivedOffer {
        let Self { swarms, totals, namesake_offers, .. } = self;
        let torrent = swarms.find_mut(key.hash, |torrent| torrent.is(key));
        let swarm = torrent.and_then(|torrent| {
            let first = torrent.swarm.first(receiver)?;
            Some((torrent.swarm.peer(first).address, &mut torrent.swarm))
        });
        let Some((to, swarm)) = swarm else { return ReceivedOffer::Refused };
        let Some(position) = swarm.find(offerer, Address::of_node(node)) else {
            return ReceivedOffer::UnknownOfferer;
        };
        let offer = RelayedOffer { offerer: *offerer, offer, receiver: to, receiver_id: &receiver.peer_id };
        let peer = swarm.peer_mut(position);
        let may_grow = pressure.may_grow(peer.source);
        totals.pending_offer_bytes -= peer.offer_bytes();
        let room = reserve(peer, namesake_offers, 1, may_grow, now_s);
        if room > 0 {
            push(peer, namesake_offers, offer.key(), now_s);
        }
        totals.pending_offer_bytes += peer.offer_bytes();
        if room > 0 { ReceivedOffer::For(to) } else { ReceivedOffer::Refused }
    }

    pub(crate) fn has_peer(&self, key: &SwarmKey, peer: &PeerKey, address: Address) -> bool {
        self.swarm(key).is_some_and(|swarm| swarm.find(peer, address).is_some())
    }

    pub(crate) fn counts(&self, key: &SwarmKey) -> Counts {
        self.swarm(key).map_or_else(Counts::default, Swarm::counts)
    }

    pub(crate) fn age_s(&self, key: &SwarmKey, now_s: u32) -> Option<u32> {
        self.swarm(key).map(|swarm| swarm.age_s(now_s))
    }

    /// Sets the age of a swarm. Returns whether there is one.
    pub(crate) fn set_age_s(&mut self, key: &SwarmKey, age_s: u32, now_s: u32) -> bool {
        let torrent = self.swarms.find_mut(key.hash, |torrent| torrent.is(key));
        torrent.map(|torrent| torrent.swarm.set_age_s(age_s, now_s)).is_some()
    }

    /// Appends up to `max` peers of a swarm: up to half as many seeders, then leechers.
    pub(crate) fn peers(&self, key: &SwarmKey, max: usize, now_s: u32, peers: &mut Vec<ConnectedPeer>) {
        let Some(swarm) = self.swarm(key) else { return };
        let leechers = swarm.positions(false).count();
        let seeders = max.div_ceil(2).max(max.saturating_sub(leechers));
        let positions = swarm.positions(true).take(seeders).chain(swarm.positions(false)).take(max);
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

/// Records that the counts of a torrent have changed, if changes are watched.
pub(crate) fn note_change(changes: &mut Option<ChangeBuffer>, hash: u64, info_hash: &InfoHash) {
    if let Some(changes) = changes {
        changes.note(hash, info_hash);
    }
}

/// Makes the announcing peer the first of this node with its peer id, if there is no first one now. Returns whether it
/// did.
fn take_first_place(
    swarm: &mut Swarm,
    position: usize,
    key: &PeerKey,
    totals: &mut ShardTotals,
    namesake_offers: &mut NamesakeOffers,
) -> bool {
    if !swarm.peer(position).is_by_address || swarm.first(key).is_some() {
        return false;
    }
    let peer = swarm.peer(position);
    totals.pending_offer_bytes -= peer.offer_bytes();
    namesake_offers.remove_all(peer);
    swarm.make_first(position, key);
    totals.pending_offer_bytes += swarm.peer(position).offer_bytes();
    true
}

/// Returns whether the completed download of the announcer counts, as number `completed + 1`.
#[cold]
fn is_download_counted(downloads: &mut Recent, call: &PreparedAnnounce<'_, '_>, completed: u32) -> bool {
    let of_peer = KeyHasher::download(call.swarm, &call.peer);
    let of_source = Some(KeyHasher::downloads(call.swarm, call.announce.source));
    let download = Download { torrent: call.swarm.hash, completed, of_peer, of_source };
    downloads.counts_download(&download, call.now_s)
}

/// Draws a receiver for each offer, while there are peers, and records the offers as pending.
fn draw_receivers(
    swarm: &mut Swarm,
    own: usize,
    call: &PreparedAnnounce<'_, '_>,
    namesake_offers: &mut NamesakeOffers,
    rng: &mut fastrand::Rng,
    targets: &mut Vec<OfferTarget>,
) {
    let offers = call.announce.offers;
    swarm.draw(own, offers.len(), rng, targets);
    if targets.is_empty() {
        return;
    }
    let peer = swarm.peer_mut(own);
    let room = reserve(peer, namesake_offers, targets.len(), call.may_grow, call.now_s);
    targets.truncate(room);
    for (target, &offer) in targets.iter().zip(offers) {
        let key = pending_offer::key(offer.of(&call.peer), &target.peer_id, target.address);
        push(peer, namesake_offers, key, call.now_s);
    }
}

/// Makes room for more pending offers of a peer, see [`PendingOffers::reserve`](pending_offer::PendingOffers::reserve).
fn reserve(
    peer: &mut Peer,
    namesake_offers: &mut NamesakeOffers,
    more: usize,
    may_grow: bool,
    now_s: u32,
) -> usize {
    let (is_by_address, hash, offers_max) = (peer.is_by_address, peer.hash(), peer.offers_max());
    peer.pending_offers.reserve(more, offers_max, may_grow, now_s, |key| {
        if is_by_address {
            namesake_offers.remove(key, hash);
        }
    })
}

/// Records a pending offer of a peer. There must be room for it.
fn push(peer: &mut Peer, namesake_offers: &mut NamesakeOffers, key: u64, now_s: u32) {
    peer.pending_offers.push(key, now_s);
    if peer.is_by_address {
        namesake_offers.insert(key, peer.hash());
    }
}
