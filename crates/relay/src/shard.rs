//! A part of the swarms: what one lock guards.

use core::num::NonZeroU32;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use shoal_source::Recent;
use shoal_types::{InfoHash, PeerId};

use crate::address::Address;
use crate::api::{Announce, Announced, Counts, Left, Rejection, Settlement, Stance, Target};
use crate::expiry::Sweep;
use crate::key::{Keys, Name, OfferKey, Place};
use crate::pressure::Pressure;
use crate::swarm::{Peer, Swarm};

/// Seconds after which a peer is given away whose connection has left a challenge unanswered.
pub const CHALLENGE_S: u32 = 5;

/// Completed downloads of a torrent that one source is counted in the time of one lifetime of a peer. Behind one address
/// there may be several that download the same.
const DOWNLOADS_PER_SOURCE_MAX: u32 = 8;

/// Some of the swarms.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) swarms: HashTable<Torrent>,
    pub(crate) sweep: Sweep,
    pub(crate) tally: Tally,
    /// Who completed what in the last lifetime of a peer.
    completions: Recent,
}

/// A swarm, and of which torrent it is.
#[derive(Debug)]
pub(crate) struct Torrent {
    info_hash: InfoHash,
    pub(crate) hash: u64,
    pub(crate) swarm: Swarm,
}

/// Sums over a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seeders: u64,
    pub(crate) leechers: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    /// Memory of what is owed to the peers.
    pub(crate) debt_bytes: u64,
}

/// An announce with all that was made of it before the lock was taken.
#[derive(Debug)]
pub(crate) struct Call<'a, 'o> {
    pub(crate) place: &'a Place,
    pub(crate) name: Name,
    pub(crate) announce: &'a Announce<'o>,
    /// Whether there is memory for more offers to be remembered.
    pub(crate) may_grow: bool,
    pub(crate) now_s: u32,
}

/// An answer, as its sender tells of it.
#[derive(Debug)]
pub(crate) struct Payment<'a> {
    pub(crate) debtor: Address,
    pub(crate) debtor_id: &'a PeerId,
    pub(crate) offer: OfferKey,
}

impl Tally {
    /// Peers that the sweep has forgotten, for whatever reason.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.expired + self.evicted
    }

    pub(crate) fn of(&mut self, seeds: bool) -> &mut u64 {
        if seeds { &mut self.seeders } else { &mut self.leechers }
    }
}

impl Torrent {
    fn new(place: &Place) -> Self {
        Self { info_hash: place.info_hash, hash: place.hash, swarm: Swarm::default() }
    }

    fn is_at(&self, place: &Place) -> bool {
        self.hash == place.hash && self.info_hash == place.info_hash
    }
}

impl Shard {
    pub(crate) fn new(peer_lifetime_s: u32) -> Self {
        Self {
            swarms: HashTable::new(),
            sweep: Sweep::default(),
            tally: Tally::default(),
            completions: Recent::new(peer_lifetime_s),
        }
    }

    /// Applies an announce, draws whom its offers go to, and notes what is owed for them. Before a peer is taken in that
    /// is new, `pressure` reserves the room.
    pub(crate) fn announce(
        &mut self,
        call: &Call<'_, '_>,
        pressure: &Pressure,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<Target>,
    ) -> Result<Announced, Rejection> {
        let Call { place, name, announce, now_s, .. } = call;
        let Self { swarms, tally, completions, .. } = self;
        let admit = || {
            if !announce.may_join {
                return Err(Rejection::MayNotJoin);
            }
            pressure.admit(announce.source)
        };
        let (swarm, found) =
            match swarms.entry(place.hash, |torrent| torrent.is_at(place), |torrent| torrent.hash) {
                Entry::Occupied(torrent) => {
                    let swarm = &mut torrent.into_mut().swarm;
                    let found = swarm.find(name);
                    if found.is_none() {
                        admit()?;
                    }
                    (swarm, found)
                }
                Entry::Vacant(torrent) => {
                    admit()?;
                    (&mut torrent.insert(Torrent::new(place)).into_mut().swarm, None)
                }
            };
        let seeds = announce.stance != Stance::Leech;
        let (position, joined) = match found {
            Some(position) => {
                let joined = claim(swarm.peer_mut(position), announce, pressure, *now_s)?;
                *tally.of(swarm.seeds(position)) -= 1;
                (swarm.set_role(position, seeds), joined)
            }
            None => (swarm.insert(Peer::new(name, announce.address, announce.source), seeds), true),
        };
        *tally.of(seeds) += 1;
        swarm.peer_mut(position).heard_s = *now_s;
        if announce.stance == Stance::Complete {
            swarm.complete(position, || counts_download(completions, call));
        }
        tally.debt_bytes -= swarm.peer(position).debts.memory_bytes();
        send_offers(swarm, position, call, rng, targets);
        tally.debt_bytes += swarm.peer(position).debts.memory_bytes();
        Ok(Announced { counts: swarm.counts(), joined })
    }

    /// Takes out a peer of the connection `address`.
    pub(crate) fn leave(
        &mut self,
        place: &Place,
        name: &Name,
        address: Address,
        pressure: &Pressure,
    ) -> Left {
        let Ok(mut torrent) = self.swarms.find_entry(place.hash, |torrent| torrent.is_at(place)) else {
            return Left::default();
        };
        let swarm = &mut torrent.get_mut().swarm;
        let Some(position) = owned(swarm, name, address) else {
            return Left { counts: swarm.counts(), was_there: false };
        };
        *self.tally.of(swarm.seeds(position)) -= 1;
        if let Some(peer) = swarm.remove(position) {
            self.tally.debt_bytes -= peer.debts.memory_bytes();
            pressure.release(peer.source);
        }
        if swarm.is_empty() {
            // With its count of downloads, or anybody could fill the tables with swarms of nobody.
            torrent.remove();
            return Left { counts: Counts::default(), was_there: true };
        }
        Left { counts: swarm.counts(), was_there: true }
    }

    /// Takes note of an answer to the peer `creditor`.
    pub(crate) fn settle(
        &mut self,
        place: &Place,
        creditor: &Name,
        payment: &Payment<'_>,
        now_s: u32,
    ) -> Settlement {
        let Some(torrent) = self.swarms.find_mut(place.hash, |torrent| torrent.is_at(place)) else {
            return Settlement::Gone;
        };
        let Some(position) = torrent.swarm.find(creditor) else { return Settlement::Gone };
        let peer = torrent.swarm.peer_mut(position);
        if peer.debts.settle(payment.offer, payment.debtor_id, payment.debtor, now_s) {
            Settlement::Owed(peer.address)
        } else {
            Settlement::Unawaited
        }
    }

    /// Notes that the connection `address` is asked for a sign of life on account of that peer, unless it is not its own,
    /// or is asked already. Returns whether it is to be asked.
    pub(crate) fn challenge(&mut self, place: &Place, name: &Name, address: Address, now_s: u32) -> bool {
        let peer = self.peer_mut(place, name, address).filter(|peer| peer.challenged_s.is_none());
        let is_asked = peer.is_some();
        if let Some(peer) = peer {
            peer.challenged_s = NonZeroU32::new(now_s.max(1));
        }
        is_asked
    }

    /// Notes that the connection `address` has given a sign of life on account of that peer.
    pub(crate) fn vouch(&mut self, place: &Place, name: &Name, address: Address) {
        if let Some(peer) = self.peer_mut(place, name, address) {
            peer.challenged_s = None;
        }
    }

    fn peer_mut(&mut self, place: &Place, name: &Name, address: Address) -> Option<&mut Peer> {
        let torrent = self.swarms.find_mut(place.hash, |torrent| torrent.is_at(place))?;
        let position = owned(&torrent.swarm, name, address)?;
        Some(torrent.swarm.peer_mut(position))
    }

    /// Whether the connection `address` has that peer.
    pub(crate) fn has(&self, place: &Place, name: &Name, address: Address) -> bool {
        self.swarm(place).is_some_and(|swarm| owned(swarm, name, address).is_some())
    }

    pub(crate) fn counts(&self, place: &Place) -> Counts {
        self.swarm(place).map_or_else(Counts::default, Swarm::counts)
    }

    fn swarm(&self, place: &Place) -> Option<&Swarm> {
        self.swarms.find(place.hash, |torrent| torrent.is_at(place)).map(|torrent| &torrent.swarm)
    }
}

/// Where the peer is, if the connection `address` has it.
fn owned(swarm: &Swarm, name: &Name, address: Address) -> Option<usize> {
    swarm.find(name).filter(|&position| swarm.peer(position).address == address)
}

/// Checks that the peer is the announcer's, or makes it so. Returns whether it was another's: one that has left a
/// challenge unanswered, and so is dead without our knowledge. Where it comes from is no matter, since neighbours share
/// addresses, and the owner of a peer id moves from one to another.
fn claim(
    peer: &mut Peer,
    announce: &Announce<'_>,
    pressure: &Pressure,
    now_s: u32,
) -> Result<bool, Rejection> {
    if peer.address == announce.address {
        peer.challenged_s = None;
        return Ok(false);
    }
    if peer.challenged_s.is_none_or(|since_s| now_s.saturating_sub(since_s.get()) < CHALLENGE_S) {
        return Err(Rejection::PeerIdTaken(peer.address));
    }
    if !announce.may_join {
        return Err(Rejection::MayNotJoin);
    }
    // The number of peers stays the same, so the claim is granted whatever share the announcer has.
    pressure.hand_over(peer.source, announce.source);
    (peer.address, peer.source, peer.challenged_s) = (announce.address, announce.source, None);
    Ok(true)
}

/// Whether the download that the announcer has completed is to be counted.
#[cold]
fn counts_download(completions: &mut Recent, call: &Call<'_, '_>) -> bool {
    let of_peer = Keys::completion(call.place, &call.name);
    if completions.is_known(of_peer, call.now_s) {
        return false;
    }
    // First the source: one that is turned away takes no more room of others.
    let of_source = Keys::completions(call.place, call.announce.source);
    completions.admit(of_source, DOWNLOADS_PER_SOURCE_MAX, call.now_s)
        && completions.admit(of_peer, 1, call.now_s)
}

/// Finds a peer for each offer, as far as there are as many, and notes what they then owe.
fn send_offers(
    swarm: &mut Swarm,
    own: usize,
    call: &Call<'_, '_>,
    rng: &mut fastrand::Rng,
    targets: &mut Vec<Target>,
) {
    let offers = call.announce.offers;
    swarm.draw(own, offers.len(), rng, targets);
    if targets.is_empty() {
        return;
    }
    // Taken out for a moment, since those who owe stand in the same list.
    let mut debts = core::mem::take(&mut swarm.peer_mut(own).debts);
    let room = debts.expect(targets.len(), call.may_grow, call.now_s);
    targets.truncate(room);
    for (target, &offer) in targets.iter().zip(offers) {
        let debtor_id = &swarm.peer(target.position()).peer_id;
        debts.record(offer, debtor_id, target.address, call.now_s);
    }
    swarm.peer_mut(own).debts = debts;
}
