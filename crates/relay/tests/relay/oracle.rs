//! Random sequences of operations have the same effect on the swarms and on a naive model of them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, InfoHash, PeerChange, PeerId};
use shoal_relay::{
    Address, Announce, Announced, AnswerMatch, Left, OfferKey, OfferTarget, Rejection, Settings, Source,
    Swarms,
};

const LIFETIME_S: u32 = 400;
/// The length of a period, in which one announce of a peer is news.
const PERIOD_S: u32 = LIFETIME_S / 4;
const PENDING_OFFER_S: u32 = 120;
const PENDING_OFFERS_MAX: usize = 64;
/// Those of a peer that is not the first with its peer id.
const PENDING_OFFERS_OF_OTHERS_MAX: usize = 16;
const PEERS_MAX: usize = 700;

/// A sweep takes an eighth of the lifetime. If one misses a peer, the next one does not.
const FORGOTTEN_S: u32 = LIFETIME_S + 2 * LIFETIME_S / 8 + 10;

/// Peer n announces from connection n, and from two others.
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

/// Some connections come from the same address, each other one from its own.
fn is_greedy(connection: u32) -> bool {
    connection.is_multiple_of(7)
}

#[derive(Clone, Debug)]
enum Step {
    Announce { swarm: u8, peer: u32, by: u32, action: Action, offers: usize },
    Many { swarm: u8, first: u32, count: u32, action: Action },
    Leave { swarm: u8, peer: u32, by: u32 },
    ManyLeave { swarm: u8, first: u32, count: u32 },
    Answer { offer: usize, by: u32, as_another: bool },
    Scrape { swarm: u8 },
    Remove { swarm: u8 },
    Pass { seconds: u32 },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![3 => Just(Action::Leech), 2 => Just(Action::Seed), 1 => Just(Action::Complete)]
}

fn by() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(0), 2 => Just(ANOTHER), 2 => Just(A_THIRD)]
}

fn step() -> impl Strategy<Value = Step> {
    let (swarm, peer) = (0..3_u8, 0..300_u32);
    prop_oneof![
        20 => (swarm.clone(), peer.clone(), by(), action(), 0..20_usize)
            .prop_map(|(swarm, peer, by, action, offers)| Step::Announce { swarm, peer, by, action, offers }),
        4 => (swarm.clone(), peer.clone(), 1..300_u32, action())
            .prop_map(|(swarm, first, count, action)| Step::Many { swarm, first, count, action }),
        6 => (swarm.clone(), peer.clone(), by()).prop_map(|(swarm, peer, by)| Step::Leave { swarm, peer, by }),
        2 => (swarm.clone(), peer, 1..300_u32)
            .prop_map(|(swarm, first, count)| Step::ManyLeave { swarm, first, count }),
        20 => (any::<usize>(), by(), prop::bool::weighted(0.1))
            .prop_map(|(offer, by, as_another)| Step::Answer { offer, by, as_another }),
        2 => swarm.clone().prop_map(|swarm| Step::Scrape { swarm }),
        1 => swarm.prop_map(|swarm| Step::Remove { swarm }),
        2 => (1..150_u32).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// An offer that was relayed: pending in the model, and in the log of offers to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingOffer {
    offer: u32,
    answerer: u32,
    connection: u32,
    until_s: u32,
}

#[derive(Clone, Debug)]
struct ModelPeer {
    /// Whether it was the first with its peer id when it last announced.
    is_first: bool,
    seeds: bool,
    is_download_decided: bool,
    announced_s: u32,
    pending_offers: Vec<PendingOffer>,
}

#[derive(Debug, Default)]
struct ModelSwarm {
    /// By peer id and connection.
    peers: BTreeMap<(u32, u32), ModelPeer>,
    completed: u32,
}

struct World {
    swarms: Swarms,
    model: BTreeMap<u8, ModelSwarm>,
    rng: fastrand::Rng,
    now_s: u32,
    offers: u32,
    /// Downloads that were counted.
    completed: u64,
    /// Swarm, and peer id and connection of the offerer, of every offer that was ever relayed.
    log: Vec<(u8, (u32, u32), PendingOffer)>,
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
        let settings = Settings::new(PEERS_MAX as u64, LIFETIME_S, [seed, 5]);
        Self {
            swarms: Swarms::new(&settings),
            model: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            now_s: 0,
            offers: 0,
            completed: 0,
            log: Vec::new(),
        }
    }

    fn counts(&self, swarm: u8) -> Counts {
        self.model.get(&swarm).map_or_else(Counts::default, ModelSwarm::counts)
    }

    fn source(&self, connection: u32) -> Source {
        self.swarms.source(Ipv4Addr::from(if is_greedy(connection) { 0 } else { connection }).into())
    }

    /// Returns whether one more peer of the connection would exceed the share of its source.
    fn is_over_share(&self, connection: u32) -> bool {
        let peers = || self.model.values().flat_map(|swarm| swarm.peers.keys());
        let greedy = peers().filter(|(_, connection)| is_greedy(*connection)).count() as u64;
        let allowance =
            shoal_base::source::allowance(peers().count() as u64, PEERS_MAX as u64, PEERS_MAX as u64);
        is_greedy(connection) && allowance.is_some_and(|allowance| greedy >= allowance)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Announce { swarm, peer, by, action, offers } => {
                let connection = peer + by;
                self.announce(swarm, peer, connection, action, offers);
            }
            Step::Many { swarm, first, count, action } => {
                (first..first + count).for_each(|peer| self.announce(swarm, peer, peer, action, 2));
            }
            Step::Leave { swarm, peer, by } => self.leave(swarm, peer, peer + by),
            Step::ManyLeave { swarm, first, count } => {
                (first..first + count).for_each(|peer| self.leave(swarm, peer, peer));
            }
            Step::Answer { offer, by, as_another } => self.answer(offer, by, as_another),
            Step::Scrape { swarm } => {
                let counts = self.swarms.scrape(&self.swarms.swarm_key(&info_hash(swarm)));
                assert_eq!(counts, self.counts(swarm));
            }
            Step::Remove { swarm } => {
                let key = self.swarms.swarm_key(&info_hash(swarm));
                assert_eq!(self.swarms.remove(&key), self.model.remove(&swarm).is_some());
                assert!(!self.swarms.torrents().any(|torrent| torrent == info_hash(swarm)));
                assert_eq!(self.swarms.torrents().count(), self.model.len());
            }
            Step::Pass { seconds } => self.pass(seconds),
        }
        self.check_totals();
    }

    fn announce(&mut self, swarm: u8, peer: u32, connection: u32, action: Action, offers: usize) {
        let first = self.offers;
        self.offers += u32::try_from(offers).unwrap();
        let offers: Vec<u32> = (first..self.offers).collect();
        let keys: Vec<OfferKey> =
            offers.iter().map(|offer| self.swarms.offer_key(&offer.to_be_bytes())).collect();
        let may_join = self.rng.u32(0..20) != 0;
        let address = at(connection);
        let source = self.source(connection);
        let announce = Announce {
            address,
            source,
            peer_id: peer_id(peer),
            action,
            may_join,
            is_exempt: false,
            offers: &keys,
        };
        let key = self.swarms.swarm_key(&info_hash(swarm));
        let mut targets = Vec::new();
        let answer = self.swarms.announce(&key, &announce, self.now_s, &mut self.rng, &mut targets);

        let identity = (peer, connection);
        let peers_of_swarm = self.model.get(&swarm).map(|swarm| &swarm.peers);
        let known = peers_of_swarm.and_then(|peers| peers.get(&identity));
        let joined = known.is_none();
        let first = peers_of_swarm.and_then(|peers| {
            let mut namesakes = peers.range((peer, 0)..=(peer, u32::MAX));
            namesakes.find(|(_, known)| known.is_first).map(|((_, connection), _)| *connection)
        });
        let peers: usize = self.model.values().map(|swarm| swarm.peers.len()).sum();
        let rejection = match (joined, may_join) {
            (true, false) => Some(Rejection::MayNotJoin),
            (true, true) if self.is_over_share(connection) => Some(Rejection::OverShare),
            (true, true) if peers == PEERS_MAX => Some(Rejection::Full),
            _ => None,
        };
        if let Some(rejection) = rejection {
            assert_eq!(answer, Err(rejection));
            assert_eq!(targets, []);
            return;
        }
        let before = known.map(|known| (known.seeds, known.announced_s));
        let known = self.model.entry(swarm).or_default();
        let completed_before = known.completed;
        let entry = known.peers.entry(identity).or_insert_with(|| ModelPeer {
            is_first: false,
            seeds: false,
            // One that joins as a seeder has downloaded nothing.
            is_download_decided: action == Action::Seed,
            announced_s: 0,
            pending_offers: Vec::new(),
        });
        let was_first = entry.is_first;
        entry.is_first |= first.is_none();
        let is_first = entry.is_first;
        entry.seeds = action != Action::Leech;
        entry.announced_s = self.now_s;
        if action == Action::Complete && !entry.is_download_decided {
            entry.is_download_decided = true;
            // A peer that returned, or whose source has completed many, is not counted again.
            let completed = answer.as_ref().map_or(0, |answer| answer.counts.completed);
            assert!((known.completed..=known.completed + 1).contains(&completed));
            self.completed += u64::from(completed - known.completed);
            known.completed = completed;
        }
        let Ok(Announced { change, .. }) = answer else { panic!("{answer:?}") };
        let older = first.filter(|_| joined).map(at);
        assert_eq!(answer, Ok(Announced { counts: known.counts(), joined, change, older }));
        match before.filter(|(seeds, _)| was_first && *seeds == (action != Action::Leech)) {
            _ if known.completed > completed_before => assert_eq!(change, PeerChange::Completed),
            _ if !is_first => assert_eq!(change, PeerChange::Nothing),
            None => assert_eq!(change, PeerChange::Joined),
            Some((_, announced_s)) => match self.now_s - announced_s {
                0 => assert_eq!(change, PeerChange::Unchanged),
                PERIOD_S.. => assert_eq!(change, PeerChange::Renewed),
                _ => assert!(matches!(change, PeerChange::Unchanged | PeerChange::Renewed), "{change:?}"),
            },
        }
        self.check_targets(swarm, identity, &offers, &targets);
    }

    /// Checks that the targets are peers with other ids, each once and as many as possible, and records the offers as pending.
    fn check_targets(&mut self, swarm: u8, own: (u32, u32), offers: &[u32], targets: &[OfferTarget]) {
        let peers = &mut self.model.get_mut(&swarm).unwrap().peers;
        // No connection has two peers in a swarm here, so its number identifies the peer.
        let mut candidates: BTreeMap<u32, u32> =
            peers.keys().filter(|id| id.0 != own.0).map(|(id, connection)| (*connection, *id)).collect();
        let namesakes = peers.len() - 1 - candidates.len();
        let expected = offers.len().min(candidates.len());
        assert!((expected.saturating_sub(namesakes)..=expected).contains(&targets.len()));
        let known = peers.get_mut(&own).unwrap();
        let offers_max = if known.is_first { PENDING_OFFERS_MAX } else { PENDING_OFFERS_OF_OTHERS_MAX };
        let pending = &mut known.pending_offers;
        if !targets.is_empty() {
            let now_s = self.now_s;
            pending.retain(|offer| offer.until_s >= now_s);
            let excess = (pending.len() + targets.len()).saturating_sub(offers_max);
            pending.drain(..excess.min(pending.len()));
        }
        for (target, &offer) in targets.iter().zip(offers) {
            let connection = target.address.handle.index;
            assert_eq!(target.address, at(connection));
            let answerer =
                candidates.remove(&connection).expect("the target is another peer, and occurs once");
            let offer = PendingOffer { offer, answerer, connection, until_s: self.now_s + PENDING_OFFER_S };
            pending.push(offer);
            self.log.push((swarm, own, offer));
        }
    }

    fn leave(&mut self, swarm: u8, peer: u32, connection: u32) {
        let key = self.swarms.swarm_key(&info_hash(swarm));
        // An announce that stops does the same, but does not say whether the peer was present.
        let stopped = self.rng.bool().then(|| {
            let announce = Announce {
                address: at(connection),
                source: self.source(connection),
                peer_id: peer_id(peer),
                action: Action::Stop,
                may_join: true,
                is_exempt: false,
                offers: &[],
            };
            let mut rng = fastrand::Rng::with_seed(0);
            self.swarms.announce(&key, &announce, self.now_s, &mut rng, &mut Vec::new()).unwrap()
        });
        let left = self.swarms.leave(&key, &peer_id(peer), at(connection));
        let (mut was_present, mut was_first) = (false, false);
        if let Some(known) = self.model.get_mut(&swarm)
            && let Some(removed) = known.peers.remove(&(peer, connection))
        {
            (was_present, was_first) = (true, removed.is_first);
        }
        self.model.retain(|_, swarm| !swarm.peers.is_empty());
        let counts = self.counts(swarm);
        let is_told = stopped.is_none();
        let expected = Left { counts, was_present: was_present && is_told, was_first: was_first && is_told };
        assert_eq!(left, expected);
        let change = if was_first { PeerChange::Left } else { PeerChange::Nothing };
        let expected = Announced { counts, joined: false, change, older: None };
        assert!(stopped.is_none_or(|stopped| stopped == expected));
        assert!(!self.swarms.has_peer(&key, &peer_id(peer), at(connection)));
    }

    /// Answers an earlier offer, perhaps as the wrong peer, perhaps not for the first time.
    fn answer(&mut self, number: usize, by: u32, as_another: bool) {
        if self.log.is_empty() {
            return;
        }
        // Mostly one of the latest, which are still pending.
        let number = if number.is_multiple_of(4) {
            number
        } else {
            self.log.len() - 1 - number % self.log.len().min(40)
        };
        let (swarm, offerer, offer) = self.log[number % self.log.len()];
        // From the connection to which the offer went, unless `by` says otherwise.
        let connection = if by == 0 { offer.connection } else { offer.answerer + by };
        let answerer = offer.answerer + u32::from(as_another);
        let key = self.swarms.swarm_key(&info_hash(swarm));
        let offer_key = self.swarms.offer_key(&offer.offer.to_be_bytes());
        let matched = self.swarms.match_answer(
            &key,
            &peer_id(offerer.0),
            (at(connection), &peer_id(answerer)),
            offer_key,
            self.now_s,
        );
        let now_s = self.now_s;
        let known = self.model.get_mut(&swarm).and_then(|swarm| swarm.peers.get_mut(&offerer));
        let pending = known.map(|known| &mut known.pending_offers);
        let is_it = |pending: &PendingOffer| *pending == offer && pending.until_s >= now_s;
        let found = pending.and_then(|pending| Some((pending.iter().position(is_it)?, pending)));
        match found.filter(|_| connection == offer.connection && !as_another) {
            Some((position, pending)) => {
                assert_eq!(matched, AnswerMatch::Offerer(at(offerer.1)), "to the connection that made it");
                pending.remove(position);
            }
            None => {
                assert!(matches!(matched, AnswerMatch::NotPending | AnswerMatch::PeerGone), "{matched:?}")
            }
        }
    }

    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now_s += 1;
            while self.swarms.expire(self.now_s, 50).behind {}
        }
        let (swarms, now_s) = (&self.swarms, self.now_s);
        for (&swarm, known) in &mut self.model {
            let key = swarms.swarm_key(&info_hash(swarm));
            known.peers.retain(|&(peer, connection), known| {
                let is_present = swarms.has_peer(&key, &peer_id(peer), at(connection));
                let silent_s = now_s - known.announced_s;
                let may_go = silent_s > LIFETIME_S || is_greedy(connection);
                assert!(is_present || may_go, "removed after {silent_s} seconds");
                assert!(!is_present || silent_s <= FORGOTTEN_S, "still present after {silent_s} seconds");
                is_present
            });
        }
        self.model.retain(|_, swarm| !swarm.peers.is_empty());
    }

    fn check_totals(&self) {
        let (totals, known) = (self.swarms.totals(), self.model.values().map(ModelSwarm::counts));
        assert_eq!(totals.swarms, self.model.len() as u64);
        assert_eq!(totals.seeders, known.clone().map(|counts| u64::from(counts.seeders)).sum());
        assert_eq!(totals.leechers, known.map(|counts| u64::from(counts.leechers)).sum());
        assert_eq!(totals.completed, self.completed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_swarms_agree_with_the_model(seed: u64, steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new(seed);
        steps.into_iter().for_each(|step| world.apply(step));
        // In the end all peers are forgotten, and there is room again.
        world.pass(FORGOTTEN_S + 1);
        prop_assert_eq!(world.swarms.totals().swarms, 0);
        for peer in 0..u32::try_from(PEERS_MAX * 2).unwrap() {
            world.announce(9, peer, peer, Action::Leech, 0);
        }
        prop_assert_eq!(world.swarms.totals().leechers, PEERS_MAX as u64);
    }
}
