//! All swarms, in shards behind small locks.

use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use shoal_types::{InfoHash, PeerId};

use crate::address::Address;
use crate::allowance::{Allowances, Bucket};
use crate::api::{
    Announce, Announced, Counts, Expired, Left, Rejection, Settings, Settlement, Target, Totals,
};
use crate::expiry::Dues;
use crate::key::{Keys, OfferKey, Place, Source};
use crate::pressure::Pressure;
use crate::shard::{Call, Payment, Shard};

/// More than any machine has workers, so that two seldom want the same lock.
const SHARDS: usize = 64;

/// Most budget that is spent under one hold of a lock.
const BUDGET_PER_LOCK: usize = 64;

/// The swarms of connected peers. Shared between threads: all methods take `&self`, and lock once for as long as it
/// takes to look a few peers up.
pub struct Swarms {
    keys: Keys,
    peer_lifetime_s: u32,
    allowances: Allowances,
    pressure: Pressure,
    /// The shard at which the next call of `expire` begins.
    turn: AtomicUsize,
    shards: Box<[Cell]>,
}

/// A shard with its sums beside the lock, where they can be read without it. Lines of their own: no two shards share
/// one.
#[derive(Debug)]
#[repr(align(128))]
struct Cell {
    shard: Mutex<Shard>,
    swarms: AtomicU64,
    seeders: AtomicU64,
    leechers: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
}

impl Cell {
    fn new(peer_lifetime_s: u32) -> Self {
        Self {
            shard: Mutex::new(Shard::new(peer_lifetime_s)),
            swarms: AtomicU64::new(0),
            seeders: AtomicU64::new(0),
            leechers: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Writes the sums beside the lock. Called by who holds it.
    fn publish(&self, shard: &Shard) {
        self.swarms.store(shard.swarms.len() as u64, Ordering::Relaxed);
        self.seeders.store(shard.tally.seeders, Ordering::Relaxed);
        self.leechers.store(shard.tally.leechers, Ordering::Relaxed);
        self.expired.store(shard.tally.expired, Ordering::Relaxed);
        self.evicted.store(shard.tally.evicted, Ordering::Relaxed);
    }
}

impl fmt::Debug for Swarms {
    /// Sums only: who is in the swarms is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals().fmt(f)
    }
}

impl Swarms {
    /// No swarms yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            keys: Keys::new(settings.hash_key),
            peer_lifetime_s: settings.peer_lifetime_s,
            allowances: Allowances::new(settings.relay_rate_max),
            pressure: Pressure::new(settings),
            turn: AtomicUsize::new(0),
            shards: (0..SHARDS).map(|_| Cell::new(settings.peer_lifetime_s)).collect(),
        }
    }

    /// Hashes an info hash, once for all steps of a request.
    #[must_use]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        self.keys.place(info_hash)
    }

    /// Hashes where a client comes from, once for all its requests. The address is to be canonical.
    #[must_use]
    pub fn source(&self, ip: IpAddr) -> Source {
        self.keys.source(ip)
    }

    /// Hashes the name of an offer.
    #[must_use]
    pub fn offer(&self, offer_id: &[u8]) -> OfferKey {
        self.keys.offer(offer_id)
    }

    /// Applies an announce at `now_s` (seconds of any clock that never goes back): the peer joins or is refreshed, and
    /// `targets` is left with whom its offers go to, the first to the first and so on; each of the peers that may be
    /// chosen is equally likely, and comes once at most.
    ///
    /// # Errors
    /// [`Rejection`] where the peer does not enter the swarm; there are no targets then.
    pub fn announce(
        &self,
        place: &Place,
        announce: &Announce<'_>,
        now_s: u32,
        rng: &mut fastrand::Rng,
        targets: &mut Vec<Target>,
    ) -> Result<Announced, Rejection> {
        targets.clear();
        let may_grow = self.pressure.may_grow(announce.source);
        let call = Call { place, name: self.keys.name(&announce.peer_id), announce, may_grow, now_s };
        let cell = self.cell(place);
        let mut shard = cell.shard.lock();
        let debt_bytes = shard.tally.debt_bytes;
        let announced = shard.announce(&call, &self.pressure, rng, targets);
        self.pressure.note_debts(debt_bytes, shard.tally.debt_bytes);
        cell.publish(&shard);
        announced
    }

    /// Takes a peer out, if it is one of the connection `address`.
    pub fn leave(&self, place: &Place, peer_id: &PeerId, address: Address) -> Left {
        let name = self.keys.name(peer_id);
        let cell = self.cell(place);
        let mut shard = cell.shard.lock();
        let debt_bytes = shard.tally.debt_bytes;
        let left = shard.leave(place, &name, address, &self.pressure);
        if left.was_there {
            self.pressure.note_debts(debt_bytes, shard.tally.debt_bytes);
            cell.publish(&shard);
        }
        left
    }

    /// Takes note of an answer by the peer `debtor_id` of the connection `debtor` to an offer of the peer `creditor`, and
    /// says where it is to go.
    pub fn settle(
        &self,
        place: &Place,
        creditor: &PeerId,
        (debtor, debtor_id): (Address, &PeerId),
        offer: OfferKey,
        now_s: u32,
    ) -> Settlement {
        let creditor = self.keys.name(creditor);
        let payment = Payment { debtor, debtor_id, offer };
        self.cell(place).shard.lock().settle(place, &creditor, &payment, now_s)
    }

    /// Another connection has announced a peer of the connection `address`, which may be dead. Returns whether it is to be
    /// asked for a sign of life, after [`CHALLENGE_S`](crate::CHALLENGE_S) without which the peer is given away: not where
    /// it has no such peer, nor where it has been asked already.
    #[must_use]
    pub fn challenge(&self, place: &Place, peer_id: &PeerId, address: Address, now_s: u32) -> bool {
        let name = self.keys.name(peer_id);
        self.cell(place).shard.lock().challenge(place, &name, address, now_s)
    }

    /// The connection `address` has given a sign of life when it was asked for one on account of that peer.
    pub fn vouch(&self, place: &Place, peer_id: &PeerId, address: Address) {
        let name = self.keys.name(peer_id);
        self.cell(place).shard.lock().vouch(place, &name, address);
    }

    /// How many bytes of offers a connection of this source may have relayed now; one that is larger may be the last.
    #[must_use]
    pub fn relay_room_bytes(&self, source: Source, bucket: Bucket, now_s: u32) -> u64 {
        self.allowances.room_bytes(source, bucket, now_s)
    }

    /// Takes note that so many bytes of offers were relayed for a connection of this source.
    pub fn charge_relay(&self, source: Source, bucket: &mut Bucket, bytes: u64, now_s: u32) {
        self.allowances.charge(source, bucket, bytes, now_s);
    }

    /// The memory that all peers take, at the most, see [`Settings::memory_bytes_max`].
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.pressure.memory_bytes()
    }

    /// Whether the connection `address` has that peer.
    #[must_use]
    pub fn has(&self, place: &Place, peer_id: &PeerId, address: Address) -> bool {
        let name = self.keys.name(peer_id);
        self.cell(place).shard.lock().has(place, &name, address)
    }

    /// The counts of one swarm.
    #[must_use]
    pub fn scrape(&self, place: &Place) -> Counts {
        self.cell(place).shard.lock().counts(place)
    }

    /// Carries expiry on to where it should be at `now_s`, looking at `budget` peers at most. To be called some times a
    /// second beside the traffic, by any number of threads.
    pub fn expire(&self, now_s: u32, budget: usize) -> Expired {
        let mut left = budget;
        let mut expired = Expired::default();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for index in 0..SHARDS {
            let cell = &self.shards[first.wrapping_add(index) % SHARDS];
            let mut is_behind = true;
            while is_behind && left > 0 {
                // Whoever holds it will let it go before the next turn comes round.
                let Some(mut shard) = cell.shard.try_lock() else { break };
                let mut share = left.min(BUDGET_PER_LOCK);
                let (before, given) = (shard.tally, share);
                is_behind = shard.expire(&Dues::new(&self.pressure, now_s, self.peer_lifetime_s), &mut share);
                expired.peers += shard.tally.forgotten() - before.forgotten();
                self.pressure.note_debts(before.debt_bytes, shard.tally.debt_bytes);
                cell.publish(&shard);
                left -= given - share;
            }
            if left == 0 {
                expired.behind = true;
                break;
            }
        }
        expired
    }

    /// Sums over all swarms, without disturbing the traffic.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shards.iter().fold(Totals::default(), |sum, cell| Totals {
            swarms: sum.swarms + cell.swarms.load(Ordering::Relaxed),
            seeders: sum.seeders + cell.seeders.load(Ordering::Relaxed),
            leechers: sum.leechers + cell.leechers.load(Ordering::Relaxed),
            expired: sum.expired + cell.expired.load(Ordering::Relaxed),
            evicted: sum.evicted + cell.evicted.load(Ordering::Relaxed),
        })
    }

    fn cell(&self, place: &Place) -> &Cell {
        // Other bits of the hash than those by which a table finds its buckets, and those by which it tells entries apart.
        let bits = (place.hash >> 32) % SHARDS as u64;
        &self.shards[usize::try_from(bits).unwrap_or(0)]
    }
}
