//! Random sequences of operations on the swarms and on a naive model of them must agree.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use shoal_relay::{
    Address, Announce, Announced, CHALLENGE_S, Counts, Left, OfferKey, Rejection, Settings, Settlement,
    Source, Stance, Swarms, Target,
};
use shoal_types::{InfoHash, PeerId};
use shoal_wire::stream::Handle;

const LIFETIME_S: u32 = 400;
const DEBT_S: u32 = 120;
const DEBTS_MAX: usize = 64;
const PEERS_MAX: usize = 700;

/// A sweep takes an eighth of the lifetime, and one that misses a peer is followed by one that does not.
const FORGOTTEN_S: u32 = LIFETIME_S + 2 * LIFETIME_S / 8 + 10;

/// Connections of peer n are n, and two more.
const ANOTHER: u32 = 1000;
const A_THIRD: u32 = 2000;

fn info_hash(swarm: u8) -> InfoHash {
    InfoHash([swarm; 20])
}

fn peer_id(peer: u32) -> PeerId {
    let mut id = *b"-XX0001-abcdefgh....";
    id[16..].copy_from_slice(&peer.to_be_bytes());
    PeerId(id)
}

fn at(connection: u32) -> Address {
    Address { worker: 3, handle: Handle { index: connection, generation: 7 } }
}

/// Some connections come from one address, all others from one of their own.
fn is_greedy(connection: u32) -> bool {
    connection.is_multiple_of(7)
}

#[derive(Clone, Debug)]
enum Step {
    Announce { swarm: u8, peer: u32, by: u32, stance: Stance, offers: usize },
    Many { swarm: u8, first: u32, count: u32, stance: Stance },
    Leave { swarm: u8, peer: u32, by: u32 },
    ManyLeave { swarm: u8, first: u32, count: u32 },
    Challenge { swarm: u8, peer: u32, by: u32, is_answered: bool },
    Settle { debt: usize, by: u32, as_another: bool },
    Scrape { swarm: u8 },
    Pass { seconds: u32 },
}

fn stance() -> impl Strategy<Value = Stance> {
    prop_oneof![3 => Just(Stance::Leech), 2 => Just(Stance::Seed), 1 => Just(Stance::Complete)]
}

fn by() -> impl Strategy<Value = u32> {
    prop_oneof![8 => Just(0), 1 => Just(ANOTHER), 1 => Just(A_THIRD)]
}

fn step() -> impl Strategy<Value = Step> {
    let (swarm, peer) = (0..3_u8, 0..300_u32);
    prop_oneof![
        20 => (swarm.clone(), peer.clone(), by(), stance(), 0..20_usize)
            .prop_map(|(swarm, peer, by, stance, offers)| Step::Announce { swarm, peer, by, stance, offers }),
        4 => (swarm.clone(), peer.clone(), 1..300_u32, stance())
            .prop_map(|(swarm, first, count, stance)| Step::Many { swarm, first, count, stance }),
        10 => (swarm.clone(), peer.clone(), by(), any::<bool>())
            .prop_map(|(swarm, peer, by, is_answered)| Step::Challenge { swarm, peer, by, is_answered }),
        6 => (swarm.clone(), peer.clone(), by()).prop_map(|(swarm, peer, by)| Step::Leave { swarm, peer, by }),
        2 => (swarm.clone(), peer, 1..300_u32)
            .prop_map(|(swarm, first, count)| Step::ManyLeave { swarm, first, count }),
        20 => (any::<usize>(), by(), prop::bool::weighted(0.1))
            .prop_map(|(debt, by, as_another)| Step::Settle { debt, by, as_another }),
        2 => swarm.prop_map(|swarm| Step::Scrape { swarm }),
        2 => (1..150_u32).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// What was owed once, in the model and in the log of what may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debt {
    offer: u32,
    debtor: u32,
    connection: u32,
    until_s: u32,
}

#[derive(Clone, Debug)]
struct ModelPeer {
    connection: u32,
    seeds: bool,
    counted: bool,
    heard_s: u32,
    challenged_s: Option<u32>,
    debts: Vec<Debt>,
}

#[derive(Debug, Default)]
struct ModelSwarm {
    peers: BTreeMap<u32, ModelPeer>,
    completed: u32,
}

struct World {
    swarms: Swarms,
    model: BTreeMap<u8, ModelSwarm>,
    rng: fastrand::Rng,
    now_s: u32,
    offers: u32,
    /// Swarm and creditor of everything that was ever owed.
    log: Vec<(u8, u32, Debt)>,
}

impl ModelSwarm {
    fn counts(&self) -> Counts {
        let seeders = u32::try_from(self.peers.values().filter(|peer| peer.seeds).count()).unwrap();
        let leechers = u32::try_from(self.peers.len()).unwrap() - seeders;
        Counts { seeders, leechers, completed: self.completed }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let settings = Settings {
            peers_max: PEERS_MAX as u64,
            memory_bytes_max: u64::MAX,
            relay_rate_max: 0,
            peer_lifetime_s: LIFETIME_S,
            hash_key: [seed, 5],
        };
        Self {
            swarms: Swarms::new(&settings),
            model: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            now_s: 0,
            offers: 0,
            log: Vec::new(),
        }
    }

    fn counts(&self, swarm: u8) -> Counts {
        self.model.get(&swarm).map_or_else(Counts::default, ModelSwarm::counts)
    }

    fn source(&self, connection: u32) -> Source {
        self.swarms.source(Ipv4Addr::from(if is_greedy(connection) { 0 } else { connection }).into())
    }

    /// Whether one more peer of the connection would be too many of its source.
    fn is_over_share(&self, connection: u32) -> bool {
        let peers = || self.model.values().flat_map(|swarm| swarm.peers.values());
        let greedy = peers().filter(|peer| is_greedy(peer.connection)).count() as u64;
        let allowance = shoal_source::allowance(peers().count() as u64, PEERS_MAX as u64, PEERS_MAX as u64);
        is_greedy(connection) && allowance.is_some_and(|allowance| greedy >= allowance)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Announce { swarm, peer, by, stance, offers } => {
                let connection = peer + by;
                self.announce(swarm, peer, connection, stance, offers);
            }
            Step::Many { swarm, first, count, stance } => {
                (first..first + count).for_each(|peer| self.announce(swarm, peer, peer, stance, 2));
            }
            Step::Leave { swarm, peer, by } => self.leave(swarm, peer, peer + by),
            Step::ManyLeave { swarm, first, count } => {
                (first..first + count).for_each(|peer| self.leave(swarm, peer, peer));
            }
            Step::Challenge { swarm, peer, by, is_answered } => {
                self.challenge(swarm, peer, peer + by, is_answered)
            }
            Step::Settle { debt, by, as_another } => self.settle(debt, by, as_another),
            Step::Scrape { swarm } => {
                let counts = self.swarms.scrape(&self.swarms.locate(&info_hash(swarm)));
                assert_eq!(counts, self.counts(swarm));
            }
            Step::Pass { seconds } => self.pass(seconds),
        }
        self.check_totals();
    }

    fn announce(&mut self, swarm: u8, peer: u32, connection: u32, stance: Stance, offers: usize) {
        let names: Vec<u32> = (self.offers..).take(offers).collect();
        self.offers += u32::try_from(offers).unwrap();
        let keys: Vec<OfferKey> = names.iter().map(|name| self.swarms.offer(&name.to_be_bytes())).collect();
        let may_join = self.rng.u32(0..20) != 0;
        let address = at(connection);
        let source = self.source(connection);
        let announce = Announce { address, source, peer_id: peer_id(peer), stance, may_join, offers: &keys };
        let place = self.swarms.locate(&info_hash(swarm));
        let mut targets = Vec::new();
        let answer = self.swarms.announce(&place, &announce, self.now_s, &mut self.rng, &mut targets);

        let known = self.model.get(&swarm).and_then(|swarm| swarm.peers.get(&peer));
        let joined = known.is_none_or(|known| known.connection != connection);
        let is_dead = |since_s: u32| self.now_s - since_s >= CHALLENGE_S;
        let holder = known.filter(|known| joined && !known.challenged_s.is_some_and(is_dead));
        let peers: usize = self.model.values().map(|swarm| swarm.peers.len()).sum();
        let rejection = match (joined, holder, may_join, known) {
            (true, Some(holder), ..) => Some(Rejection::PeerIdTaken(at(holder.connection))),
            (true, None, false, _) => Some(Rejection::MayNotJoin),
            (true, _, _, None) if self.is_over_share(connection) => Some(Rejection::OverShare),
            (true, _, _, None) if peers == PEERS_MAX => Some(Rejection::Full),
            _ => None,
        };
        if let Some(rejection) = rejection {
            assert_eq!(answer, Err(rejection));
            assert_eq!(targets, []);
            return;
        }
        let known = self.model.entry(swarm).or_default();
        let entry = known.peers.entry(peer).or_insert_with(|| ModelPeer {
            connection,
            seeds: false,
            counted: false,
            heard_s: 0,
            challenged_s: None,
            debts: Vec::new(),
        });
        entry.connection = connection;
        entry.challenged_s = None;
        entry.seeds = stance != Stance::Leech;
        entry.heard_s = self.now_s;
        if stance == Stance::Complete && !entry.counted {
            entry.counted = true;
            // One that came back, or whose source has had many, is not counted again.
            let completed = answer.as_ref().map_or(0, |answer| answer.counts.completed);
            assert!((known.completed..=known.completed + 1).contains(&completed));
            known.completed = completed;
        }
        assert_eq!(answer, Ok(Announced { counts: known.counts(), joined }));
        self.check_targets(swarm, peer, &names, &targets);
    }

    /// The targets are other peers, each once, as many as there are; and they now owe an answer.
    fn check_targets(&mut self, swarm: u8, peer: u32, names: &[u32], targets: &[Target]) {
        let peers = &mut self.model.get_mut(&swarm).unwrap().peers;
        let seeds = peers[&peer].seeds;
        let may_be_chosen = |(id, other): &(&u32, &ModelPeer)| **id != peer && !(seeds && other.seeds);
        let chosen = peers.iter().filter(may_be_chosen);
        // No connection has two peers in a swarm here, so that its number tells who was chosen.
        let mut candidates: BTreeMap<u32, u32> = chosen.map(|(id, other)| (other.connection, *id)).collect();
        assert_eq!(targets.len(), names.len().min(candidates.len()));
        let debts = &mut peers.get_mut(&peer).unwrap().debts;
        if !targets.is_empty() {
            let now_s = self.now_s;
            debts.retain(|debt| debt.until_s >= now_s);
            let excess = (debts.len() + targets.len()).saturating_sub(DEBTS_MAX);
            debts.drain(..excess);
        }
        for (target, &offer) in targets.iter().zip(names) {
            let connection = target.address.handle.index;
            assert_eq!(target.address, at(connection));
            let debtor = candidates.remove(&connection).expect("another peer, and only once");
            let debt = Debt { offer, debtor, connection, until_s: self.now_s + DEBT_S };
            debts.push(debt);
            self.log.push((swarm, peer, debt));
        }
    }

    fn leave(&mut self, swarm: u8, peer: u32, connection: u32) {
        let place = self.swarms.locate(&info_hash(swarm));
        let left = self.swarms.leave(&place, &peer_id(peer), at(connection));
        let mut was_there = false;
        if let Some(known) = self.model.get_mut(&swarm) {
            was_there = known.peers.get(&peer).is_some_and(|peer| peer.connection == connection);
            if was_there {
                known.peers.remove(&peer);
            }
        }
        self.model.retain(|_, swarm| !swarm.peers.is_empty());
        assert_eq!(left, Left { counts: self.counts(swarm), was_there });
        assert!(!self.swarms.has(&place, &peer_id(peer), at(connection)));
    }

    /// A connection is asked whether it lives, and answers at once or not.
    fn challenge(&mut self, swarm: u8, peer: u32, connection: u32, is_answered: bool) {
        let (place, id) = (self.swarms.locate(&info_hash(swarm)), peer_id(peer));
        let is_asked = self.swarms.challenge(&place, &id, at(connection), self.now_s);
        let known = self.model.get_mut(&swarm).and_then(|swarm| swarm.peers.get_mut(&peer));
        let known = known.filter(|known| known.connection == connection);
        assert_eq!(is_asked, known.as_ref().is_some_and(|known| known.challenged_s.is_none()));
        if is_answered {
            self.swarms.vouch(&place, &id, at(connection));
        }
        if let Some(known) = known {
            let since_s = known.challenged_s.or(Some(self.now_s.max(1)));
            known.challenged_s = since_s.filter(|_| !is_answered);
        }
    }

    /// Somebody answers what was offered at some time, perhaps not the right one, perhaps not the first time.
    fn settle(&mut self, debt: usize, by: u32, as_another: bool) {
        if self.log.is_empty() {
            return;
        }
        // Mostly one of the last, which are still awaited.
        let debt =
            if debt.is_multiple_of(4) { debt } else { self.log.len() - 1 - debt % self.log.len().min(40) };
        let (swarm, creditor, debt) = self.log[debt % self.log.len()];
        // By the connection to which the offer went, if it is not said otherwise.
        let connection = if by == 0 { debt.connection } else { debt.debtor + by };
        let debtor = debt.debtor + u32::from(as_another);
        let place = self.swarms.locate(&info_hash(swarm));
        let offer = self.swarms.offer(&debt.offer.to_be_bytes());
        let settlement = self.swarms.settle(
            &place,
            &peer_id(creditor),
            (at(connection), &peer_id(debtor)),
            offer,
            self.now_s,
        );
        let known = self.model.get_mut(&swarm).and_then(|swarm| swarm.peers.get_mut(&creditor));
        let Some(known) = known else {
            assert_eq!(settlement, Settlement::Gone);
            return;
        };
        let now_s = self.now_s;
        let owed = known.debts.iter().position(|owed| *owed == debt && owed.until_s >= now_s);
        match owed.filter(|_| connection == debt.connection && !as_another) {
            Some(owed) => {
                assert_eq!(settlement, Settlement::Owed(at(known.connection)));
                known.debts.remove(owed);
            }
            None => assert_eq!(settlement, Settlement::Unawaited),
        }
    }

    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now_s += 1;
            while self.swarms.expire(self.now_s, 50).behind {}
        }
        let (swarms, now_s) = (&self.swarms, self.now_s);
        for (&swarm, known) in &mut self.model {
            let place = swarms.locate(&info_hash(swarm));
            known.peers.retain(|&peer, known| {
                let is_there = swarms.has(&place, &peer_id(peer), at(known.connection));
                let silent_s = now_s - known.heard_s;
                let may_go = silent_s > LIFETIME_S || is_greedy(known.connection);
                assert!(is_there || may_go, "{silent_s} seconds are no time");
                assert!(!is_there || silent_s <= FORGOTTEN_S, "{silent_s} seconds are too long");
                is_there
            });
        }
        self.model.retain(|_, swarm| !swarm.peers.is_empty());
    }

    fn check_totals(&self) {
        let (totals, known) = (self.swarms.totals(), self.model.values().map(ModelSwarm::counts));
        assert_eq!(totals.swarms, self.model.len() as u64);
        assert_eq!(totals.seeders, known.clone().map(|counts| u64::from(counts.seeders)).sum());
        assert_eq!(totals.leechers, known.map(|counts| u64::from(counts.leechers)).sum());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_swarms_agree_with_the_model(seed: u64, steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new(seed);
        steps.into_iter().for_each(|step| world.apply(step));
        // In the end everybody is forgotten, and the room can be taken anew.
        world.pass(FORGOTTEN_S + 1);
        prop_assert_eq!(world.swarms.totals().swarms, 0);
        for peer in 0..u32::try_from(PEERS_MAX * 2).unwrap() {
            world.announce(9, peer, peer, Stance::Leech, 0);
        }
        prop_assert_eq!(world.swarms.totals().leechers, PEERS_MAX as u64);
    }
}
