//! Announces with keys that were chosen by an attacker that knows the order of a table, next to announces with random
//! keys: the mean time of a call and the longest. The time to learn the order, which takes as many announces again, is
//! not counted.

use std::time::Instant;

use shoal_base::{Action, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, Store, Swarms, Walk};

use crate::data::{self, Random};
use crate::report::{Case, Figure};

const OWN: InfoHash = InfoHash([0x31; 20]);
const FIXED: InfoHash = InfoHash([0x32; 20]);

/// Number of rounds in which peers leave and join again.
const ROUNDS: usize = 40;

pub(crate) fn cases(tiny: bool) -> Vec<Case> {
    let (networks, swarms) = if tiny { (2000, 2000) } else { (65_000, 1_000_000) };
    vec![
        Case::new("attack/v4/peers", move || repeated(tiny, || peers::<PeerV4>(networks))),
        Case::new("attack/v6/peers", move || repeated(tiny, || peers::<PeerV6>(networks))),
        Case::new("attack/v4/swarms", move || repeated(tiny, || swarms_of_many_torrents(swarms))),
    ]
}

/// Number of repetitions. The machine may interrupt a process at any time, but the store does the same work at the same
/// call of each run; so for every stretch of calls the minimum of the maxima counts, see `pause`.
const RUNS: usize = 4;

/// Number of calls in a stretch.
const STRETCH: u64 = 256;

/// Calls of one kind.
struct Calls {
    name: String,
    count: u64,
    total_ns: u64,
    longest_ns: Vec<u64>,
}

impl Calls {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), count: 0, total_ns: 0, longest_ns: Vec::new() }
    }

    fn time(&mut self, call: impl FnOnce()) {
        let start = Instant::now();
        call();
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.count.is_multiple_of(STRETCH) {
            self.longest_ns.push(0);
        }
        self.count += 1;
        self.total_ns += ns;
        if let Some(longest) = self.longest_ns.last_mut() {
            *longest = ns.max(*longest);
        }
    }

    fn announce<P: Random>(&mut self, swarms: &Swarms<P>, info_hash: &InfoHash, peer: P, action: Action) {
        let announce = Announce { peer, action, peers_wanted: 0 };
        let mut rng = fastrand::Rng::with_seed(1);
        self.time(|| {
            let answer = swarms.announce(&swarms.locate(info_hash), &announce, 1000, &mut rng, &mut []);
            assert!(answer.is_ok(), "the store has room");
        });
    }

    /// Keeps the better of two runs of the same calls.
    fn merge(&mut self, other: &Self) {
        self.total_ns = self.total_ns.min(other.total_ns);
        self.longest_ns.iter_mut().zip(&other.longest_ns).for_each(|(ns, other)| *ns = (*ns).min(*other));
    }

    fn figures(&self) -> [Figure; 2] {
        let mean = self.total_ns as f64 / self.count.max(1) as f64;
        let longest = self.longest_ns.iter().max().copied().unwrap_or(0);
        [
            Figure::new(&self.name, mean, "ns each"),
            Figure::new(
                format!("{}/longest", self.name),
                longest as f64 / 1e3,
                "us, longest call of its own doing",
            ),
        ]
    }
}

/// Repeats an attack, and merges its runs.
fn repeated(tiny: bool, attack: impl Fn() -> Vec<Calls>) -> Vec<Figure> {
    let mut merged = attack();
    for _ in 1..if tiny { 1 } else { RUNS } {
        merged.iter_mut().zip(attack()).for_each(|(merged, run)| merged.merge(&run));
    }
    merged.iter().flat_map(Calls::figures).collect()
}

/// Returns the peer of the network with this number: of one source, only a few peers would be stored.
fn peer_of_network<P: Random>(number: u16) -> P {
    let mut bytes = vec![10; size_of::<P>()];
    // In the second and third byte of an IPv4 address, and in the last ones of an IPv6 /48.
    let at = bytes.len() / 4;
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
    P::from_compact(&bytes)
}

/// All peers join in this order, then the last hundred leave and join repeatedly, then all leave.
fn join_and_leave<P: Random>(name: String, swarms: &Swarms<P>, info_hash: &InfoHash, peers: &[P]) -> Calls {
    let mut calls = Calls::new(name);
    peers.iter().for_each(|&peer| calls.announce(swarms, info_hash, peer, Action::Leech));
    for _ in 0..ROUNDS {
        for action in [Action::Stop, Action::Leech] {
            let last = peers.iter().rev().take(100);
            last.for_each(|&peer| calls.announce(swarms, info_hash, peer, action));
        }
    }
    peers.iter().for_each(|&peer| calls.announce(swarms, info_hash, peer, Action::Stop));
    calls
}

fn peers<P: Random>(networks: u16) -> Vec<Calls> {
    let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(3));
    let swarms = P::swarms(&store);
    for number in 0..networks {
        data::put(swarms, &OWN, peer_of_network::<P>(number), Action::Leech, &mut rng);
    }
    let order = swarms.learned_order(&swarms.locate(&OWN));
    assert_eq!(order.len(), usize::from(networks), "every peer is stored");
    let run = &order[..order.len() / 3];
    let mut random = run.to_vec();
    rng.shuffle(&mut random);
    let name = |kind: &str| format!("attack/{}/peers/{kind}", P::NAME);
    let shuffled = join_and_leave(name("random"), swarms, &FIXED, &random);
    let elsewhere = join_and_leave(name("learned elsewhere"), swarms, &FIXED, run);
    // In the same swarm in which the order was learned: all peers but the run leave, then the run leaves and joins.
    let mut leaving = Calls::new(name("all but neighbours leave"));
    order[run.len()..].iter().for_each(|&peer| leaving.announce(swarms, &OWN, peer, Action::Stop));
    let here = join_and_leave(name("learned here"), swarms, &OWN, run);
    vec![shuffled, elsewhere, leaving, here]
}

/// Returns all info hashes in the order of a full scrape, which is that of the tables.
fn full_scrape(store: &Store) -> Vec<InfoHash> {
    let (mut walk, mut listed, mut all) = (Walk::default(), Vec::new(), Vec::new());
    let mut has_more = true;
    while has_more {
        has_more = store.list(&mut walk, &mut listed);
        all.extend(listed.iter().map(|torrent| torrent.info_hash));
    }
    all
}

fn swarms_of_many_torrents(count: usize) -> Vec<Calls> {
    let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(3));
    let peer = PeerV4::random(&mut rng);
    for _ in 0..count {
        data::put(&store.v4, &data::info_hash(&mut rng), peer, Action::Leech, &mut rng);
    }
    let order = full_scrape(&store);
    // Neighbours in one shard: an eighth of the swarms in the first one.
    let run = &order[..order.len() / data::SHARDS / 8];
    let mut random: Vec<InfoHash> = order.iter().copied().step_by(data::SHARDS * 8).collect();
    rng.shuffle(&mut random);
    let pass = |name: &str, hashes: &[InfoHash]| {
        let mut calls = Calls::new(name);
        for _ in 0..4 {
            for action in [Action::Stop, Action::Leech] {
                hashes.iter().for_each(|hash| calls.announce(&store.v4, hash, peer, action));
            }
        }
        calls
    };
    let shuffled = pass("attack/v4/swarms/random", &random);
    let mut leaving = Calls::new("attack/v4/swarms/all but neighbours leave");
    order[run.len()..].iter().for_each(|hash| leaving.announce(&store.v4, hash, peer, Action::Stop));
    let here = pass("attack/v4/swarms/learned here", run);
    vec![shuffled, leaving, here]
}
