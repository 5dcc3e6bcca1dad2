//! Several workers at once.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, mpsc};
use std::thread;

use shoal_relay::{
    Address, Announce, Class, Losses, Mailboxes, Postroom, Settings, Settlement, Stance, Swarms,
};
use shoal_types::{InfoHash, PeerId};
use shoal_wire::stream::Handle;

const WORKERS: u16 = 4;

fn handle(index: u32) -> Handle {
    Handle { index, generation: 1 }
}

#[test]
fn workers_that_announce_settle_leave_and_expire_agree_in_the_end() {
    let settings = Settings {
        peers_max: 400,
        memory_bytes_max: u64::MAX,
        relay_rate_max: 0,
        peer_lifetime_s: 40,
        hash_key: [3, 9],
    };
    let swarms = Swarms::new(&settings);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let swarms = &swarms;
            scope.spawn(move || work(swarms, worker));
        }
    });
    let mut now_s = 1300;
    while swarms.totals().swarms > 0 {
        now_s += 1;
        assert!(now_s < 1500, "everybody goes in time: {:?}", swarms.totals());
        while swarms.expire(now_s, 100).behind {}
    }
    let totals = swarms.totals();
    assert_eq!((totals.swarms, totals.seeders, totals.leechers), (0, 0, 0));
    // Not one too few or too many has been counted: there is room for exactly as many as there may be.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut joined = 0;
    while announce(&swarms, &mut rng, now_s, 0, joined, 0).is_some() {
        joined += 1;
    }
    assert_eq!(joined, 400);
}

/// Announces as a peer of its own of the worker, in one of a few swarms, and returns how many targets there were.
fn announce(
    swarms: &Swarms,
    rng: &mut fastrand::Rng,
    now_s: u32,
    worker: u16,
    peer: u32,
    offers: usize,
) -> Option<Vec<Address>> {
    let offers: Vec<_> = (0..offers).map(|offer| swarms.offer(&offer.to_be_bytes())).collect();
    let announce = Announce {
        address: Address { worker, handle: handle(peer) },
        source: swarms.source(Ipv4Addr::from(peer).into()),
        peer_id: peer_id(worker, peer),
        stance: [Stance::Leech, Stance::Seed, Stance::Complete][rng.usize(..3)],
        may_join: true,
        offers: &offers,
    };
    let mut targets = Vec::new();
    swarms
        .announce(&swarms.locate(&InfoHash([1; 20])), &announce, now_s, rng, &mut targets)
        .ok()
        .map(|_| targets.iter().map(|target| target.address).collect())
}

fn peer_id(worker: u16, peer: u32) -> PeerId {
    let mut peer_id = [0; 20];
    peer_id[..2].copy_from_slice(&worker.to_be_bytes());
    peer_id[2..6].copy_from_slice(&peer.to_be_bytes());
    PeerId(peer_id)
}

fn work(swarms: &Swarms, worker: u16) {
    let mut rng = fastrand::Rng::with_seed(u64::from(worker));
    let place = swarms.locate(&InfoHash([1; 20]));
    for round in 0..2000_u32 {
        let now_s = 1000 + round / 10 + u32::from(worker % 2);
        for _ in 0..10 {
            let peer = rng.u32(..150);
            let own = Address { worker, handle: handle(peer) };
            for target in announce(swarms, &mut rng, now_s, worker, peer, 5).into_iter().flatten() {
                assert!(target != own && target.worker < WORKERS && target.handle.index < 150);
            }
            let offer = swarms.offer(&0_usize.to_be_bytes());
            let creditor = peer_id(rng.u16(..WORKERS), rng.u32(..150));
            let debtor = peer_id(worker, peer);
            let settlement = swarms.settle(&place, &creditor, (own, &debtor), offer, now_s);
            assert!(settlement != Settlement::Owed(own), "nobody owes to itself");
            let leaver = rng.u32(..150);
            let address = Address { worker, handle: handle(leaver) };
            let left = swarms.leave(&place, &peer_id(worker, leaver), address);
            assert!(left.counts.seeders + left.counts.leechers < 400 || !left.was_there);
        }
        swarms.expire(now_s, 30);
    }
}

/// Letters that each worker sends to each connection of the others.
const LETTERS: u32 = 3000;
const CONNECTIONS: u32 = 5;

/// Every letter arrives, whole and in the order in which it was written, and a worker that sleeps until it is woken does
/// not oversleep.
#[test]
fn letters_cross_between_workers() {
    let mailboxes = Mailboxes::new(WORKERS);
    let (wakers, alarms): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for (worker, alarm) in (0..).zip(alarms) {
            let postroom = Postroom::new(worker, Arc::clone(&mailboxes));
            let wakers = wakers.clone();
            scope.spawn(move || Correspondent::new(postroom, wakers, alarm).work());
        }
    });
}

struct Correspondent {
    postroom: Postroom,
    wakers: Vec<mpsc::Sender<()>>,
    alarm: mpsc::Receiver<()>,
    /// How many letters have come from each worker to each own connection.
    heard: BTreeMap<(u16, u32), u32>,
}

impl Correspondent {
    fn new(postroom: Postroom, wakers: Vec<mpsc::Sender<()>>, alarm: mpsc::Receiver<()>) -> Self {
        Self { postroom, wakers, alarm, heard: BTreeMap::new() }
    }

    fn work(mut self) {
        let (mut letters, mut sent) = (0, 0);
        while letters < u32::from(WORKERS) * CONNECTIONS * LETTERS {
            self.postroom.collect();
            letters += self.read();
            // What it says to itself, it reads next time without being woken.
            let wrote = sent < LETTERS;
            if wrote {
                self.write(sent);
                sent += 1;
            }
            let wakes: Vec<u16> = self.postroom.dispatch().collect();
            for worker in &wakes {
                // Who has heard everything is not there any more.
                let _ = self.wakers[usize::from(*worker)].send(());
            }
            let has_heard_all = letters == u32::from(WORKERS) * CONNECTIONS * LETTERS;
            if sent == LETTERS && !has_heard_all && !wrote {
                self.alarm.recv().unwrap();
            }
        }
        assert_eq!(sent, LETTERS);
        assert_eq!(self.postroom.losses(), Losses::default());
    }

    fn read(&mut self) -> u32 {
        let mut letters = 0;
        while let Some(own) = self.postroom.speaker() {
            let mut out = Vec::new();
            self.postroom.fetch(own, |bytes| out.extend_from_slice(bytes));
            for letter in out.chunks_exact(10) {
                let sender = u16::from_be_bytes([letter[0], letter[1]]);
                let to = u32::from_be_bytes(letter[2..6].try_into().unwrap());
                let number = u32::from_be_bytes(letter[6..].try_into().unwrap());
                assert_eq!(to, own.index, "it is for this connection");
                let next = self.heard.entry((sender, to)).or_default();
                assert_eq!(number, *next, "in order, and nothing is missing");
                *next += 1;
                letters += 1;
            }
        }
        letters
    }

    fn write(&mut self, number: u32) {
        let sender = self.postroom.worker();
        for to in 0..WORKERS {
            for index in 0..CONNECTIONS {
                let letter = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&sender.to_be_bytes());
                    out.extend_from_slice(&index.to_be_bytes());
                    out.extend_from_slice(&number.to_be_bytes());
                };
                self.postroom
                    .write(Address { worker: to, handle: handle(index) }, Class::Reply, letter)
                    .unwrap();
            }
        }
    }
}
