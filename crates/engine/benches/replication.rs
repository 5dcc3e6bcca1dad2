//! Replication: the CPU time of a delta of another node that is applied to a large store, and that of recording an announce
//! for other nodes.
//!
//! `cargo bench -p shoal-engine --bench replication -- [--json]`; without `--bench` (as under `cargo test`) everything runs once
//! at a tiny size. Exit code 1 if applying a delta takes more than 150 ns.
//!
//! The store has ten million peers in four million torrents, of which a few are popular. Deltas come in pieces of 585, as many
//! as a message of 16 KiB has. In `renew`, all are of peers that are in the store; in `churn`, a fifth of them join,
//! complete or leave. Announces to be recorded come over UDP in batches of 64, and each is recorded: the first of its peer in a period.
//! CPU time is that of the thread, without the making of deltas and requests.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use shoal_base::transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_base::{Action, Delta, Event, InfoHash, PeerId};
use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey};
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::replication::{Applier, RecordedDeltas, ring};
use shoal_engine::udp::Responder;
use shoal_store::{Settings, Store};
use shoal_wire::udp::{Announce, Options, Request, TransactionId};

const KEY: ConnectionKey = ConnectionKey::new(*b"fedcba9876543210");

/// Number of deltas in a message of 16 KiB, at 28 bytes each.
const DELTAS_PER_MESSAGE: usize = 585;

const TIMEOUT_S: u32 = 2700;

/// Longer than a period of renewals, which is about a quarter of the timeout.
const PERIOD_S: u32 = TIMEOUT_S / 3;

/// Maximum CPU time of a delta in nanoseconds.
const APPLIED_NS_MAX: f64 = 150.0;

/// Size of an announce with room for the end of its options (BEP 15).
const PACKET_BYTES: usize = 100;

/// The extent of a run.
#[derive(Clone, Copy)]
struct Size {
    torrents: u32,
    peers: u32,
    messages: u32,
    /// Peers that announce over UDP.
    announcers: u32,
    /// Times that each of them announces.
    rounds: u32,
}

const FULL: Size =
    Size { torrents: 4_000_000, peers: 10_000_000, messages: 4000, announcers: 400_000, rounds: 4 };

const TINY: Size = Size { torrents: 400, peers: 1000, messages: 4, announcers: 500, rounds: 1 };

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let (size, json) = (if flag("--bench") { FULL } else { TINY }, flag("--json"));
    let print = |name: &str, value: f64, unit: &str| {
        if json {
            println!(r#"{{"name":"replication/{name}","value":{value:.1},"unit":"{unit}"}}"#);
        } else {
            println!("replication/{name:<24} {value:>12.1} {unit}");
        }
    };
    let applied = apply(size, print);
    record(size, print);
    if flag("--bench") && applied > APPLIED_NS_MAX {
        eprintln!("a delta takes more than {APPLIED_NS_MAX} ns");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The state of a peer.
#[derive(Clone, Copy)]
struct Peer {
    torrent: u32,
    number: u32,
    action: Action,
}

/// Fills a store and measures both kinds of messages. Returns the higher time of a delta in nanoseconds.
fn apply(size: Size, print: impl Fn(&str, f64, &str)) -> f64 {
    let store = store();
    let mut applier = Applier::new(Arc::new(Policy::new(Config::default())), store.clone());
    let mut rng = fastrand::Rng::with_seed(1);
    let mut peers: Vec<Peer> = (0..size.peers).map(|number| peer(&mut rng, size, number)).collect();
    let mut now = at(100_000);
    let mut deltas = Vec::with_capacity(DELTAS_PER_MESSAGE);
    let begin_ns = cpu_ns();
    for peers in peers.chunks(DELTAS_PER_MESSAGE) {
        deltas.clear();
        deltas.extend(peers.iter().map(delta));
        applier.apply(&deltas, 0, now);
        // As the tracker does all the time: it asks for huge pages.
        store.make_ready();
    }
    print("fill", per(cpu_ns() - begin_ns, size.peers), "ns a delta, with the making of it");
    print("store", store.totals().iter().map(|totals| totals.bytes).sum::<u64>() as f64 / 1e6, "MB");
    let mut slowest_ns = 0.0_f64;
    for (name, changes) in [("apply/renew", false), ("apply/churn", true)] {
        now = at(now.monotonic_s + PERIOD_S);
        let mut took_ns = 0;
        for _ in 0..size.messages {
            deltas.clear();
            while deltas.len() < DELTAS_PER_MESSAGE {
                let index = rng.usize(..peers.len());
                if changes && rng.u8(..5) == 0 {
                    change(&mut peers[index], &mut rng);
                }
                deltas.push(delta(&peers[index]));
            }
            let begin_ns = cpu_ns();
            applier.apply(&deltas, 0, now);
            took_ns += cpu_ns() - begin_ns;
        }
        let each_ns = per(took_ns, size.messages * 585_u32);
        print(name, each_ns, "ns a delta");
        slowest_ns = slowest_ns.max(each_ns);
    }
    slowest_ns
}

/// Measures announces over UDP without and with a recorder, in turns.
fn record(size: Size, print: impl Fn(&str, f64, &str)) {
    let mut sides = [Side::new(false), Side::new(true)];
    for side in &mut sides {
        side.round(size, at(100_000));
        side.took_ns = 0;
    }
    for round in 1..=size.rounds {
        for side in &mut sides {
            side.round(size, at(100_000 + round * PERIOD_S));
        }
    }
    let announces = size.announcers / 64 * 64 * size.rounds;
    let [without_ns, with_ns] = [&sides[0], &sides[1]].map(|side| per(side.took_ns, announces));
    let recorded = sides[1].recorded;
    assert_eq!(recorded, u64::from(announces + size.announcers / 64 * 64), "every announce is recorded");
    print("announce", without_ns, "ns an announce");
    print("announce/recorded", with_ns, "ns an announce");
    print("announce/recorded/more", with_ns - without_ns, "ns an announce");
    print("take", per(sides[1].drained_ns, announces), "ns a delta");
}

/// A tracker that answers announces.
struct Side {
    responder: Responder,
    deltas: Option<RecordedDeltas>,
    ids: ConnectionIds,
    took_ns: u64,
    drained_ns: u64,
    recorded: u64,
}

impl Side {
    fn new(records: bool) -> Self {
        let policy = Arc::new(Policy::new(Config::default()));
        let rng = fastrand::Rng::with_seed(3);
        let mut context = Context::new(Protocol::Udp, policy, Tally::default(), rng);
        let deltas = records.then(|| {
            let (recorder, deltas) = ring();
            context.recorder = Some(recorder);
            deltas
        });
        let responder = Responder::new(context, &KEY, store());
        let ids = ConnectionIds::new(&KEY);
        Self { responder, deltas, ids, took_ns: 0, drained_ns: 0, recorded: 0 }
    }

    /// Lets every peer announce once.
    fn round(&mut self, size: Size, now: Now) {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut requests = [[0; PACKET_BYTES]; BATCH_MAX];
        let mut replies = vec![[0; REPLY_BYTES_MAX]; BATCH_MAX];
        for batch in 0..size.announcers / 64 {
            let mut exchanges: Vec<Exchange<'_>> = Vec::with_capacity(BATCH_MAX);
            for (index, (packet, reply)) in (0..).zip(requests.iter_mut().zip(&mut replies)) {
                let Delta { info_hash, action, ip, port } = delta(&peer(&mut rng, size, batch * 64 + index));
                let bytes = self.request(&info_hash, action, (ip, port), now, packet);
                let source = SocketAddr::new(ip, port);
                exchanges.push(Exchange { source, request: &packet[..bytes], reply, reply_len: 0 });
            }
            let begin_ns = cpu_ns();
            self.responder.serve(&mut exchanges, now);
            let served_ns = cpu_ns();
            self.took_ns += served_ns - begin_ns;
            assert!(exchanges.iter().all(|exchange| exchange.reply_len >= 20), "every announce has a reply");
            if let Some(deltas) = &mut self.deltas {
                let begin_ns = cpu_ns();
                let mut ports = 0_u64;
                self.recorded += deltas.drain(usize::MAX, |delta| ports += u64::from(delta.port)) as u64;
                self.drained_ns += cpu_ns() - begin_ns;
                std::hint::black_box(ports);
            }
        }
    }

    fn request(
        &self,
        info_hash: &InfoHash,
        action: Action,
        (ip, port): (IpAddr, u16),
        now: Now,
        packet: &mut [u8],
    ) -> usize {
        let announce = Announce {
            info_hash: *info_hash,
            peer_id: PeerId([b'-'; 20]),
            downloaded_bytes: 0.into(),
            left_bytes: i64::from(action == Action::Leech).into(),
            uploaded_bytes: 0.into(),
            event: Announce::event_number(Event::Update),
            ip: [0; 4],
            key: 0.into(),
            num_want: 50.into(),
            port: port.into(),
        };
        let connection_id = self.ids.issue(ip, now.unix_s);
        let (transaction_id, options) = (TransactionId(7), Options::default());
        let request = Request::Announce { connection_id, transaction_id, announce: &announce, options };
        request.encode(packet).expect("there is room")
    }
}

fn at(monotonic_s: u32) -> Now {
    let unix_s = 1_700_000_000 + u64::from(monotonic_s);
    Now { monotonic_s, monotonic_ms: u64::from(monotonic_s) * 1000, unix_s }
}

fn store() -> Arc<Store> {
    let settings = Settings {
        peers_per_source_max: 64,
        ..Settings::new(
            4 << 30,
            TIMEOUT_S,
            [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
        )
    };
    Arc::new(Store::with_shards(&settings, 8).expect("address space"))
}

/// Draws a peer. A quarter of them are in popular torrents, from 200,000 peers of ten million downwards.
fn peer(rng: &mut fastrand::Rng, size: Size, number: u32) -> Peer {
    let torrent = rng.u32(..size.torrents) >> if rng.u8(..4) == 0 { rng.u32(..24) } else { 0 };
    let action = if rng.u8(..3) == 0 { Action::Leech } else { Action::Seed };
    Peer { torrent, number, action }
}

/// Changes the state of a peer: a leecher completes or leaves, a seeder leaves, and one that has left returns.
fn change(peer: &mut Peer, rng: &mut fastrand::Rng) {
    peer.action = match peer.action {
        Action::Leech if rng.bool() => Action::Complete,
        Action::Leech | Action::Seed | Action::Complete => Action::Stop,
        Action::Stop => Action::Leech,
    };
}

/// Returns the delta of a peer, of which a fifth have IPv6.
fn delta(peer: &Peer) -> Delta {
    let mut rng = fastrand::Rng::with_seed(peer.torrent.into());
    let mut info_hash = InfoHash([0; 20]);
    rng.fill(&mut info_hash.0);
    // Addresses of peers that follow each other are far apart.
    let bits = peer.number.wrapping_mul(0x9e37_79b1);
    let ip: IpAddr = if peer.number.is_multiple_of(5) {
        Ipv6Addr::from_bits(0x2001 << 112 | u128::from(bits) << 64 | u128::from(bits)).into()
    } else {
        Ipv4Addr::from_bits(0x0100_0000 + (bits >> 1)).into()
    };
    Delta { info_hash, action: peer.action, ip, port: 6881 }
}

fn per(ns: u64, count: u32) -> f64 {
    ns as f64 / f64::from(count.max(1))
}

/// Returns the CPU time that the thread has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}
