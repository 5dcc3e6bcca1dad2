//! A flood of sources against the limits of sources: the memory of the limits, the share of honest requests that are
//! refused, and the CPU time of a flooded request.
//!
//! `cargo bench -p shoal-engine --bench limits -- [--json]`; without `--bench` (as under `cargo test`) the flood is tiny.
//! Exit code 1 if the limits take more memory than they state, or more than one honest request in 10,000 is refused.
//!
//! All limits are on: requests, peers and torrents. Announces go through the whole responder and a store. In `many`, each
//! of 10 million IPv6 /64 networks and a million IPv4 addresses announces once, a million in each second. In `greedy`, 20,000
//! sources announce at twice their rate. Beside both, 2,000 honest sources announce at half of theirs. The time is an
//! argument of the responder; CPU time is that of the thread, without the making of requests.
#![forbid(unsafe_code)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use shoal_base::source::{HoldingLimits, Holdings};
use shoal_base::transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_base::{Event, InfoHash, PeerId};
use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey};
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::limits::{Limits, SourceRates};
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::udp::Responder;
use shoal_store::Store;
use shoal_wire::udp::{Announce, Options, Request, TransactionId};

const KEY: ConnectionKey = ConnectionKey::new(*b"fedcba9876543210");
const UNIX_S: u64 = 1_700_000_000;

/// The secret of the sources. As in production, its bits are random: small numbers would not hash.
const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

/// Size of an announce (BEP 15), with room for the end of its options.
const PACKET_BYTES: usize = 100;

/// Limits of a source.
const REQUESTS_PER_S: u32 = 20;
const HOLDINGS: HoldingLimits = HoldingLimits { peers_max: 1000, torrents_max: 1000 };

const HONEST_SOURCES: u32 = 2000;

/// Honest requests in each second, half of what their sources may send.
const HONEST_PER_S: u32 = HONEST_SOURCES * REQUESTS_PER_S / 2;

/// Number of torrents that the flood announces.
const TORRENTS: u32 = 1000;

/// The extent of a run.
struct Size {
    v6_sources: u32,
    v4_sources: u32,
    greedy_sources: u32,
    greedy_s: u32,
    /// Requests of `many` in each second.
    many_per_s: u32,
}

const FULL: Size = Size {
    v6_sources: 10_000_000,
    v4_sources: 1_000_000,
    greedy_sources: 20_000,
    greedy_s: 5,
    many_per_s: 1_000_000,
};

const TINY: Size =
    Size { v6_sources: 20_000, v4_sources: 2000, greedy_sources: 50, greedy_s: 2, many_per_s: 20_000 };

/// A tracker, and what it took.
struct World {
    responder: Responder,
    ids: ConnectionIds,
    rng: fastrand::Rng,
    now_ms: u64,
    /// Number of the next honest request.
    next_honest: u32,
}

/// Requests of one kind, and their replies.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    requests: u64,
    refused: u64,
    cpu_ns: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let size = if has("--bench") { FULL } else { TINY };
    let print = |name: &str, value: f64, unit: &str| {
        if has("--json") {
            println!("{{\"name\":\"limits/{name}\",\"value\":{value:.4},\"unit\":\"{unit}\"}}");
        } else {
            println!("limits/{name:<28} {value:>12.4} {unit}");
        }
    };
    let mut config = Config::default();
    config.limits.udp_requests_per_s = REQUESTS_PER_S;
    config.limits.burst_s = 2;
    // Otherwise, peers beyond their limits would look like the others.
    config.limits.refuse_excess = true;
    let stated = Limits::BYTES_MAX + HOLDINGS.bytes(u64::MAX);
    let before = resident_bytes();
    let rates = Arc::new(SourceRates::new(SECRET));
    let holdings = Holdings::new(HOLDINGS, [SECRET[0], SECRET[1]]).map(Arc::new);
    let limits = Limits::of(&config.limits, &rates);
    flood_alone(&limits, holdings.as_deref(), &size);
    let resident = resident_bytes().saturating_sub(before);
    print("memory/stated", stated as f64 / f64::from(1 << 20), "MiB");
    print("memory/resident", resident as f64 / f64::from(1 << 20), "MiB");
    let mut world = World::new(Policy::new(config).with_limits(limits), holdings);
    let mut is_good = resident <= stated + (4 << 20);
    for (name, (flood, honest)) in [("many", world.many(&size)), ("greedy", world.greedy(&size))] {
        let share = |served: Served| served.refused as f64 / served.requests as f64 * 100.0;
        print(&format!("{name}/requests"), flood.requests as f64, "flooded");
        print(&format!("{name}/refused"), share(flood), "% of the flood");
        print(&format!("{name}/honest-refused"), share(honest), "% of honest requests");
        print(&format!("{name}/cpu"), flood.cpu_ns as f64 / flood.requests as f64, "ns a flooded request");
        print(&format!("{name}/honest-cpu"), honest.cpu_ns as f64 / honest.requests as f64, "ns");
        is_good &= honest.requests > 0 && honest.refused * 10_000 <= honest.requests;
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the CPU time that the thread has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// Returns the resident memory of the process (proc(5), "VmRSS").
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_or(0, |kib: usize| kib << 10)
}

/// Returns the address of a flooded source, which none of the honest ones has.
fn flooded(number: u32, size: &Size, rng: &mut fastrand::Rng) -> IpAddr {
    if number.is_multiple_of(11) && number / 11 < size.v4_sources {
        Ipv4Addr::from_bits(rng.u32(0x0b00_0000..0x5f00_0000)).into()
    } else {
        Ipv6Addr::from_bits(rng.u128(0x2a00 << 112..0x2c00 << 112)).into()
    }
}

fn honest(number: u32) -> IpAddr {
    let number = number % HONEST_SOURCES;
    if number.is_multiple_of(2) {
        Ipv4Addr::from_bits(0xc633_0000 + number).into()
    } else {
        Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(number) << 80 | 1).into()
    }
}

/// Shows the limits a source after the other, without a store.
fn flood_alone(limits: &Option<Limits>, holdings: Option<&Holdings>, size: &Size) {
    let mut rng = fastrand::Rng::with_seed(4);
    let activity = shoal_engine::limits::Activity::Request(Protocol::Udp);
    for number in 0..size.v6_sources + size.v4_sources {
        let ip = flooded(number, size, &mut rng);
        let now = at(u64::from(number) * 1000 / u64::from(size.many_per_s));
        std::hint::black_box(limits.as_ref().is_some_and(|limits| limits.admit(ip, activity, 1, now)));
        if let Some(holdings) = holdings {
            let source = holdings.hasher().source(ip);
            holdings.add_peer(source);
            holdings.remove_peer(source);
        }
    }
}

fn at(ms: u64) -> Now {
    let monotonic_s = 1000 + u32::try_from(ms / 1000).unwrap_or(0);
    Now { monotonic_s, monotonic_ms: 1_000_000 + ms, unix_s: UNIX_S }
}

impl World {
    fn new(policy: Policy, holdings: Option<Arc<Holdings>>) -> Self {
        let settings = shoal_store::Settings {
            memory_bytes_max: 1 << 30,
            peer_timeout_s: 2700,
            peers_per_source_max: 64,
            swarm_share_max: 0,
            holdings,
            hash_key: SECRET,
        };
        let store = Arc::new(Store::new(&settings).expect("address space"));
        let rng = fastrand::Rng::with_seed(3);
        let responder =
            Responder::new(Context::new(Protocol::Udp, Arc::new(policy), Tally::default(), rng), &KEY, store);
        let ids = ConnectionIds::new(&KEY);
        // The limits have seen the flood without a store before; by now, all their buckets are full again.
        Self { responder, ids, rng: fastrand::Rng::with_seed(5), now_ms: 1_000_000, next_honest: 0 }
    }

    /// Each of very many sources announces once. Returns what became of the flood and of the honest requests.
    fn many(&mut self, size: &Size) -> (Served, Served) {
        let requests = size.v6_sources + size.v4_sources;
        self.flood(requests, size.many_per_s, |world, number| flooded(number, size, &mut world.rng))
    }

    /// Some sources announce at twice their rate.
    fn greedy(&mut self, size: &Size) -> (Served, Served) {
        let per_s = size.greedy_sources * REQUESTS_PER_S * 2;
        let sources = size.greedy_sources;
        self.flood(per_s * size.greedy_s, per_s, |_, number| {
            let number = number % sources;
            if number.is_multiple_of(2) {
                Ipv4Addr::from_bits(0x6000_0000 + number).into()
            } else {
                Ipv6Addr::from_bits(0x2600 << 112 | u128::from(number) << 80 | 1).into()
            }
        })
    }

    /// Sends `requests` at a rate, with honest ones between them.
    fn flood(
        &mut self,
        requests: u32,
        per_s: u32,
        mut source: impl FnMut(&mut Self, u32) -> IpAddr,
    ) -> (Served, Served) {
        let (mut of_flood, mut of_honest) = (Served::default(), Served::default());
        let begin_ms = self.now_ms + 60_000;
        let batch = u32::try_from(BATCH_MAX).expect("a batch is small");
        let mut honest_sent = 0;
        let mut sent = 0;
        while sent < requests {
            self.now_ms = begin_ms + u64::from(sent) * 1000 / u64::from(per_s);
            let count = (requests - sent).min(batch);
            let sources: Vec<IpAddr> = (sent..sent + count).map(|number| source(self, number)).collect();
            self.serve(&sources, &mut of_flood);
            sent += count;
            let honest_due = u64::from(sent) * u64::from(HONEST_PER_S) / u64::from(per_s);
            while honest_sent < honest_due {
                let first = self.next_honest;
                let count = u32::try_from(honest_due - honest_sent).unwrap_or(batch).min(batch);
                let sources: Vec<IpAddr> = (first..first + count).map(honest).collect();
                self.next_honest = first.wrapping_add(count) % (HONEST_SOURCES * 1000);
                self.serve(&sources, &mut of_honest);
                honest_sent += u64::from(count);
            }
        }
        (of_flood, of_honest)
    }

    /// Serves an announce of each source.
    fn serve(&mut self, sources: &[IpAddr], served: &mut Served) {
        let mut requests = [[0; PACKET_BYTES]; BATCH_MAX];
        let mut replies = [[0; REPLY_BYTES_MAX]; BATCH_MAX];
        let mut batch = Vec::with_capacity(sources.len());
        for ((&ip, request), reply) in sources.iter().zip(&mut requests).zip(&mut replies) {
            let mut info_hash = InfoHash([7; 20]);
            info_hash.0[..4].copy_from_slice(&self.rng.u32(..TORRENTS).to_be_bytes());
            let announce = Announce {
                info_hash,
                peer_id: PeerId(*b"-XX0001-floodfloodfl"),
                downloaded_bytes: 0.into(),
                left_bytes: 1.into(),
                uploaded_bytes: 0.into(),
                event: Announce::event_number(Event::Started),
                ip: [0; 4],
                key: 0.into(),
                num_want: 30.into(),
                port: 6881.into(),
            };
            let packet = Request::Announce {
                connection_id: self.ids.issue(ip, UNIX_S),
                transaction_id: TransactionId(1),
                announce: &announce,
                options: Options::new(&[]),
            };
            let bytes = packet.encode(request).expect("an announce fits");
            let source = SocketAddr::new(ip, 6881);
            batch.push(Exchange { source, request: &request[..bytes], reply, reply_len: 0 });
        }
        let begin = cpu_ns();
        self.responder.serve(&mut batch, at(self.now_ms));
        served.cpu_ns += cpu_ns() - begin;
        served.requests += batch.len() as u64;
        // An error message begins with action 3 (BEP 15).
        let is_refused = |exchange: &&Exchange<'_>| exchange.reply_len == 0 || exchange.reply[3] == 3;
        served.refused += batch.iter().filter(is_refused).count() as u64;
    }
}
