//! Several workers at the same time.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, mpsc};
use std::thread;

use shoal_base::transport::stream::Handle;
use shoal_base::{Action, InfoHash, PeerId};
use shoal_relay::{
    Address, Announce, AnswerMatch, Dispatcher, Losses, Mailboxes, MessageKind, Settings, Swarms,
};

const WORKERS: u16 = 4;

fn handle(index: u32) -> Handle {
    Handle { index, generation: 1 }
}

#[test]
fn concurrent_changes_leave_consistent_totals() {
    let settings = Settings::new(400, 40, [3, 9]);
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
        assert!(now_s < 1500, "all peers expire in time: {:?}", swarms.totals());
        while swarms.expire(now_s, 100).behind {}
    }
    let totals = swarms.totals();
    assert_eq!((totals.swarms, totals.seeders, totals.leechers), (0, 0, 0));
    // The count of peers is exact: precisely the maximum number fits.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut joined = 0;
    while announce(&swarms, &mut rng, now_s, 0, joined, 0).is_some() {
        joined += 1;
    }
    assert_eq!(joined, 400);
}

/// Announces a peer of the worker. Returns the receivers of its offers, or `None` if the peer is refused.
fn announce(
    swarms: &Swarms,
    rng: &mut fastrand::Rng,
    now_s: u32,
    worker: u16,
    peer: u32,
    offers: usize,
) -> Option<Vec<Address>> {
    let offers: Vec<_> = (0..offers).map(|offer| swarms.offer_key(&offer.to_be_bytes())).collect();
    let announce = Announce {
        address: Address { worker, handle: handle(peer) },
        source: swarms.source(Ipv4Addr::from(peer).into()),
        peer_id: peer_id(worker, peer),
        action: [Action::Leech, Action::Seed, Action::Complete][rng.usize(..3)],
        may_join: true,
        is_exempt: false,
        offers: &offers,
    };
    let mut targets = Vec::new();
    swarms
        .announce(&swarms.swarm_key(&InfoHash([1; 20])), &announce, now_s, rng, &mut targets)
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
    let key = swarms.swarm_key(&InfoHash([1; 20]));
    for round in 0..2000_u32 {
        let now_s = 1000 + round / 10 + u32::from(worker % 2);
        for _ in 0..10 {
            let peer = rng.u32(..150);
            let own = Address { worker, handle: handle(peer) };
            for target in announce(swarms, &mut rng, now_s, worker, peer, 5).into_iter().flatten() {
                assert!(target != own && target.worker < WORKERS && target.handle.index < 150);
            }
            let offer = swarms.offer_key(&0_usize.to_be_bytes());
            let offerer = peer_id(rng.u16(..WORKERS), rng.u32(..150));
            let answerer = peer_id(worker, peer);
            let matched = swarms.match_answer(&key, &offerer, (own, &answerer), offer, now_s);
            assert!(matched != AnswerMatch::Offerer(own), "no peer receives its own offer");
            let leaver = rng.u32(..150);
            let address = Address { worker, handle: handle(leaver) };
            let left = swarms.leave(&key, &peer_id(worker, leaver), address);
            assert!(left.counts.seeders + left.counts.leechers < 400 || !left.was_present);
        }
        swarms.expire(now_s, 30);
    }
}

/// Number of messages that each worker sends to each connection.
const MESSAGES: u32 = 3000;
const CONNECTIONS: u32 = 5;

/// Every message arrives whole and in order, and a worker that sleeps until it is woken does not sleep too long.
#[test]
fn messages_pass_between_workers() {
    let mailboxes = Mailboxes::new(WORKERS);
    let (wakers, wake_ups): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for (worker, wake_ups) in (0..).zip(wake_ups) {
            let dispatcher = Dispatcher::new(worker, Arc::clone(&mailboxes));
            let wakers = wakers.clone();
            scope.spawn(move || Worker::new(dispatcher, wakers, wake_ups).work());
        }
    });
}

struct Worker {
    dispatcher: Dispatcher,
    wakers: Vec<mpsc::Sender<()>>,
    wake_ups: mpsc::Receiver<()>,
    /// The number of messages received from each worker for each connection of this one.
    received: BTreeMap<(u16, u32), u32>,
}

impl Worker {
    fn new(dispatcher: Dispatcher, wakers: Vec<mpsc::Sender<()>>, wake_ups: mpsc::Receiver<()>) -> Self {
        Self { dispatcher, wakers, wake_ups, received: BTreeMap::new() }
    }

    fn work(mut self) {
        let (mut messages, mut sent) = (0, 0);
        while messages < u32::from(WORKERS) * CONNECTIONS * MESSAGES {
            self.dispatcher.collect();
            messages += self.read();
            // It reads its messages to itself in the next round, without being woken.
            let wrote = sent < MESSAGES;
            if wrote {
                self.write(sent);
                sent += 1;
            }
            let wakes: Vec<u16> = self.dispatcher.dispatch().collect();
            for worker in &wakes {
                // A worker that has received everything has ended.
                let _ = self.wakers[usize::from(*worker)].send(());
            }
            let has_received_all = messages == u32::from(WORKERS) * CONNECTIONS * MESSAGES;
            if sent == MESSAGES && !has_received_all && !wrote {
                self.wake_ups.recv().unwrap();
            }
        }
        assert_eq!(sent, MESSAGES);
        assert_eq!(self.dispatcher.take_losses(), Losses::default());
    }

    fn read(&mut self) -> u32 {
        let mut messages = 0;
        while let Some(own) = self.dispatcher.next_to_flush() {
            let mut out = Vec::new();
            self.dispatcher.drain(own, |bytes| out.extend_from_slice(bytes));
            for message in out.chunks_exact(10) {
                let sender = u16::from_be_bytes([message[0], message[1]]);
                let to = u32::from_be_bytes(message[2..6].try_into().unwrap());
                let number = u32::from_be_bytes(message[6..].try_into().unwrap());
                assert_eq!(to, own.index, "it is for this connection");
                let next = self.received.entry((sender, to)).or_default();
                assert_eq!(number, *next, "in order and complete");
                *next += 1;
                messages += 1;
            }
        }
        messages
    }

    fn write(&mut self, number: u32) {
        let sender = self.dispatcher.worker();
        for to in 0..WORKERS {
            for index in 0..CONNECTIONS {
                let message = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&sender.to_be_bytes());
                    out.extend_from_slice(&index.to_be_bytes());
                    out.extend_from_slice(&number.to_be_bytes());
                };
                self.dispatcher
                    .write(Address { worker: to, handle: handle(index) }, MessageKind::Reply, message)
                    .unwrap();
            }
        }
    }
}
