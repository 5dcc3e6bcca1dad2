//! Nothing is allocated per WebTorrent message once all clients have joined. This is a separate binary, because
//! it replaces the allocator.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use shoal_access::rules::HeaderMatch;
use shoal_base::transport::stream::Handle;
use shoal_engine::Now;
use shoal_engine::context::Context;
use shoal_engine::counter::{Counters, Family, Kind, Outcome, Relay, Tally};
use shoal_engine::policy::Protocol;
use shoal_engine::refusal::Refusal;
use shoal_engine::tokens::SocketToken;
use shoal_engine::webtorrent::{Member, Responder};
use shoal_relay::{Dispatcher, Mailboxes, Swarms};
use shoal_testkit::allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const WORKERS: u16 = 2;
const CLIENTS: u32 = 60;
const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

/// Capacity for everything that one connection receives in a round, so that only the responder's own allocations
/// are seen.
const OUTPUT_BYTES: usize = 1 << 20;

struct Worker {
    responder: Responder,
    members: Vec<(Member, IpAddr)>,
    counters: Arc<Counters>,
}

struct World {
    workers: Vec<Worker>,
    swarms: Arc<Swarms>,
    rng: fastrand::Rng,
    output: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let relay = shoal_relay::Settings::new(10_000, 400, [1, 2]);
        let (swarms, mailboxes) = (Arc::new(Swarms::new(&relay)), Mailboxes::new(WORKERS));
        let worker = |number: u16| {
            let tally = Tally::default();
            let counters = tally.counters();
            let dispatcher = Dispatcher::new(number, Arc::clone(&mailboxes));
            let rng = fastrand::Rng::with_seed(number.into());
            let responder = Responder::new(
                Context::new(Protocol::WebTorrent, Arc::default(), tally, rng),
                Arc::clone(&swarms),
                dispatcher,
            );
            let before = shoal_testkit::allocator::allocations();
            let enter = |index| {
                let ip = IpAddr::V4(Ipv4Addr::from_bits(u32::from(number) << 16 | 0x4d00_0001 | index << 4));
                {
                    let (token, headers) = (SocketToken::default(), HeaderMatch::default());
                    (responder.enter(Handle { index, generation: 0 }, ip, token, headers), ip)
                }
            };
            let mut members = Vec::with_capacity(CLIENTS as usize);
            members.extend((0..CLIENTS).map(enter));
            assert_eq!(
                shoal_testkit::allocator::allocations() - before,
                1,
                "none for who has not said anything"
            );
            Worker { responder, members, counters }
        };
        let workers = (0..WORKERS).map(worker).collect();
        Self { workers, swarms, rng: fastrand::Rng::with_seed(7), output: Vec::with_capacity(OUTPUT_BYTES) }
    }

    /// Sends a message of one client and delivers all results. Returns how much was allocated.
    fn step(&mut self) -> u64 {
        let (number, index) = (self.rng.usize(..self.workers.len()), self.rng.u32(..CLIENTS));
        let message = message(&mut self.rng, number, index);
        let before = shoal_testkit::allocator::allocations();
        let Worker { responder, members, .. } = &mut self.workers[number];
        let (member, ip) = &mut members[index as usize];
        responder.receive(member, *ip, message.as_bytes(), NOW).unwrap();
        for worker in [number, 1 - number] {
            let responder = &mut self.workers[worker].responder;
            responder.collect(NOW);
            while let Some(handle) = responder.next_to_flush() {
                self.output.clear();
                responder.drain(handle, |bytes| self.output.extend_from_slice(bytes));
                assert!(!self.output.is_empty());
            }
            assert!(responder.dispatch().count() < 2);
        }
        shoal_testkit::allocator::allocations() - before
    }

    fn count(&self, read: impl Fn(&Counters) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(&worker.counters)).sum()
    }
}

fn name(worker: usize, index: u32) -> String {
    format!("-WW0103-{worker}{index:011}")
}

/// Returns a random message: an announce with offers, an answer (which may be awaited), a scrape, or an invalid
/// one. Offers have few ids, so that answers match.
fn message(rng: &mut fastrand::Rng, worker: usize, index: u32) -> String {
    // Each client is in one small swarm and in a big one.
    let info_hash = if rng.bool() { "a".repeat(20) } else { format!("{:020}", index % 20) };
    let peer_id = name(worker, index);
    let start = format!(r#"{{"action":"announce","info_hash":"{info_hash}","peer_id":"{peer_id}""#);
    let sdp = "x".repeat(1000);
    match rng.u32(..20) {
        0 => format!(r#"{{"action":"scrape","info_hash":["{info_hash}","{}"]}}"#, "a".repeat(20)),
        1 => "{{".to_owned(),
        2 => format!(r#"{start},"event":"dance","numwant":0}}"#),
        3..10 => {
            let to = name(rng.usize(..2), rng.u32(..CLIENTS / 20) * 20 + index % 20);
            let offer_id = rng.u32(..3);
            format!(
                r#"{start},"to_peer_id":"{to}","offer_id":"{offer_id}","answer":{{"type":"answer","sdp":"{sdp}"}}}}"#
            )
        }
        _ => {
            let offer = format!(r#"{{"type":"offer","sdp":"{sdp}"}}"#);
            let offers: Vec<String> =
                (0..3).map(|id| format!(r#"{{"offer":{offer},"offer_id":"{id}"}}"#)).collect();
            let left = u32::from(!index.is_multiple_of(3));
            format!(r#"{start},"left":{left},"offers":[{}]}}"#, offers.join(","))
        }
    }
}

#[test]
fn the_settled_state_allocates_nothing() {
    let mut world = World::new();
    for _ in 0..60_000 {
        world.step();
    }
    let totals = world.swarms.totals();
    assert_eq!(totals.seeders + totals.leechers, u64::from(CLIENTS) * u64::from(WORKERS) * 2);
    let allocations: u64 = (0..20_000).map(|_| world.step()).sum();
    assert_eq!(allocations, 0);
    for relay in Relay::ALL {
        assert!(world.count(|counters| counters.relays(relay)) > 1000, "{}", relay.name());
    }
    for kind in [Kind::Announce, Kind::Scrape] {
        assert!(world.count(|counters| counters.replies(Family::V4, kind, Outcome::Ok)) > 1000);
    }
    let bad = Outcome::Refused(Refusal::BadMessage);
    assert!(world.count(|counters| counters.replies(Family::V4, Kind::Other, bad)) > 1000);
}
