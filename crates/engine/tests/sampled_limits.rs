//! The limits of sources as a tracker has them by default: real profiles of clients against the real policy, in simulated
//! time. Announces are drawn by the gate, as the responders draw them.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use shoal_base::InfoHash;
use shoal_config::{Config, LimitsConfig};
use shoal_engine::Now;
use shoal_engine::limits::{Activity, Limits, SourceRates};
use shoal_engine::pace::Pace;
use shoal_engine::policy::{Gate, Policy, Protocol, Request};

/// The secret of the sources. As in production, its bits are random.
const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

const INFO_HASH: InfoHash = InfoHash([1; 20]);

/// When the simulated tracker starts, on its clock.
const START_S: u32 = 1000;

/// A worker of a tracker, without its store.
struct Worker {
    policy: Policy,
    gate: Gate,
}

impl Worker {
    fn new(limits: LimitsConfig, seed: u64) -> Self {
        let limits_of = Limits::of(&limits, &Arc::new(SourceRates::new(SECRET)));
        let policy = Policy::new(Config { limits, ..Config::default() }).with_limits(limits_of);
        Self { policy, gate: Gate::new(fastrand::Rng::with_seed(seed)) }
    }

    /// Returns whether an announce of a client is admitted.
    fn announce(&mut self, protocol: Protocol, ip: IpAddr, now: Now) -> bool {
        let drawn = self.gate.draw();
        self.policy.admit(&Request { drawn, ..Request::new(protocol, ip, &INFO_HASH) }, now).is_ok()
    }

    /// The same, where each request counts.
    fn announce_exactly(&mut self, protocol: Protocol, ip: IpAddr, now: Now) -> bool {
        self.policy.admit(&Request::new(protocol, ip, &INFO_HASH), now).is_ok()
    }
}

fn at_ms(ms: u64) -> Now {
    let monotonic_s = START_S + u32::try_from(ms / 1000).unwrap();
    Now { monotonic_s, monotonic_ms: u64::from(START_S) * 1000 + ms, unix_s: 0 }
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, last).into()
}

/// How 5,000 clients behind one address of a carrier announce: each its torrents at its own times.
struct Clients {
    protocol: Protocol,
    torrents_min: usize,
    torrents_max: usize,
    /// Whether each announce takes a new connection.
    connects: bool,
    hours: u32,
}

/// Runs the clients from a restart of the tracker on, after which all of them come within ten seconds. Returns how many
/// announces and connections were refused, and the number of announces.
fn run(clients: &Clients) -> (u32, u32) {
    let &Clients { protocol, torrents_min, torrents_max, connects, hours } = clients;
    let mut worker = Worker::new(LimitsConfig::default(), 7);
    let (mut rng, address) = (fastrand::Rng::with_seed(8), ip(1));
    let mut due_in_s: Vec<u32> = vec![0; usize::try_from(hours * 3600).unwrap()];
    for _ in 0..5000 {
        for _ in 0..rng.usize(torrents_min..=torrents_max) {
            due_in_s[rng.usize(..10)] += 1;
        }
    }
    let (mut refused, mut announces) = (0, 0);
    for second in 0..due_in_s.len() {
        // Intervals are drawn from a wide range for ten minutes (`docs/overload.md`).
        let pace = if second < 600 { Pace::cold() } else { Pace::default() };
        let interval = worker.policy.interval(protocol, pace);
        for number in 0..due_in_s[second] {
            let now = at_ms(second as u64 * 1000 + u64::from(number) * 1000 / u64::from(due_in_s[second]));
            let is_connected = !connects || worker.policy.limit(address, Activity::TcpConnect, now).is_ok();
            refused += u32::from(!(is_connected && worker.announce(protocol, address, now)));
            announces += 1;
            let next = second + usize::try_from(interval.draw_s(&mut rng)).unwrap();
            if let Some(due) = due_in_s.get_mut(next) {
                *due += 1;
            }
        }
    }
    (refused, announces)
}

#[test]
fn five_thousand_clients_behind_one_address_are_never_refused() {
    let (torrents_min, torrents_max) = (20, 50);
    let over = |protocol, connects| Clients { protocol, torrents_min, torrents_max, connects, hours: 2 };
    for clients in [over(Protocol::Udp, false), over(Protocol::Http, true)] {
        let (refused, announces) = run(&clients);
        assert!(refused == 0 && announces > 600_000, "{refused} of {announces}");
    }
    // A page plays a few torrents, and comes back every two minutes.
    let browsers = Clients {
        protocol: Protocol::WebTorrent,
        torrents_min: 1,
        torrents_max: 20,
        connects: false,
        hours: 1,
    };
    let (refused, announces) = run(&browsers);
    assert!(refused == 0 && announces > 1_000_000, "{refused} of {announces}");
}

#[test]
fn a_firm_with_a_thousand_requests_a_second_is_served_at_the_rate_of_a_source() {
    for protocol in [Protocol::Udp, Protocol::Http] {
        let mut worker = Worker::new(LimitsConfig::default(), 3);
        let mut in_minute = [0_u32; 20];
        for ms in 0..20 * 60_000_u64 {
            let minute = usize::try_from(ms / 60_000).unwrap();
            in_minute[minute] += u32::from(worker.announce(protocol, ip(1), at_ms(ms)));
        }
        assert_eq!(in_minute[0], 60_000, "it has a burst");
        assert!(in_minute[6..].iter().all(|admitted| admitted.abs_diff(12_000) <= 1), "{in_minute:?}");
        // An address beside it is not harmed.
        assert!((0..1000).all(|number| worker.announce(protocol, ip(2), at_ms(20 * 60_000 + number))));
    }
}

#[test]
fn a_seedbox_with_ten_thousand_torrents_starts_at_once() {
    for protocol in Protocol::ALL {
        let mut worker = Worker::new(LimitsConfig::default(), 4);
        assert!(
            (0..100_000).all(|_| worker.announce(protocol, ip(1), at_ms(0))),
            "ten times as many are fine"
        );
    }
}

/// A source that asks at a rate, in bursts of some requests each.
struct Load {
    per_s: u64,
    burst: u64,
}

/// Returns how many of the requests of three sources are admitted, by samples and exactly.
fn admitted(limits: &LimitsConfig, loads: &[Load; 3], seed: u64) -> ([u64; 3], [u64; 3], [u64; 3]) {
    let (mut sampled, mut exact) = (Worker::new(limits.clone(), seed), Worker::new(limits.clone(), seed));
    let (mut sent, mut of_sampled, mut of_exact) = ([0; 3], [0; 3], [0; 3]);
    let mut order: Vec<usize> = Vec::new();
    for second in 0..u64::from(limits.burst_s) * 4 {
        order.clear();
        for (source, load) in loads.iter().enumerate() {
            let due = (second + 1) * load.per_s / load.burst - second * load.per_s / load.burst;
            order.extend(std::iter::repeat_n(source, usize::try_from(due * load.burst).unwrap()));
        }
        fastrand::Rng::with_seed(seed ^ second).shuffle(&mut order);
        for (number, &source) in order.iter().enumerate() {
            let now = at_ms(second * 1000 + number as u64 * 1000 / order.len() as u64);
            let address = ip(u8::try_from(source).unwrap());
            sent[source] += 1;
            of_sampled[source] += u64::from(sampled.announce(Protocol::Udp, address, now));
            of_exact[source] += u64::from(exact.announce_exactly(Protocol::Udp, address, now));
        }
    }
    (sent, of_sampled, of_exact)
}

#[test]
fn samples_admit_what_exact_counts_admit() {
    let mut rng = fastrand::Rng::with_seed(11);
    for seed in 0..4 {
        // From the smallest burst that is counted by samples on.
        let (udp_requests_per_s, burst_s) = (rng.u32(350..500), 100);
        let limits = LimitsConfig { udp_requests_per_s, burst_s, ..LimitsConfig::default() };
        let per_s = u64::from(udp_requests_per_s);
        let below = per_s * rng.u64(50..=95) / 100;
        let above = per_s * rng.u64(110..=300) / 100;
        let loads = [
            Load { per_s: below, burst: 1 },
            Load { per_s: below, burst: per_s * u64::from(burst_s) / 4 },
            Load { per_s: above, burst: 1 },
        ];
        let (sent, sampled, exact) = admitted(&limits, &loads, seed);
        assert_eq!(exact[..2], sent[..2], "below the limit");
        assert_eq!(sampled[..2], sent[..2], "no honest source is refused");
        let most = exact[2] / 25;
        assert!(sampled[2].abs_diff(exact[2]) <= most, "{sampled:?} {exact:?} of {sent:?}");
    }
}

#[test]
fn small_bursts_are_counted_exactly() {
    let limits = LimitsConfig { udp_requests_per_s: 10, burst_s: 60, ..LimitsConfig::default() };
    let mut worker = Worker::new(limits, 5);
    let admitted = (0..10_000).filter(|_| worker.announce(Protocol::Udp, ip(1), at_ms(0))).count();
    assert_eq!(admitted, 600);
}

#[test]
fn a_source_of_ipv6_is_watched_by_its_widest_network() {
    let limits = LimitsConfig { udp_requests_per_s: 100, burst_s: 400, ..LimitsConfig::default() };
    let mut worker = Worker::new(limits, 6);
    let host =
        |subnet: u16, host: u16| -> IpAddr { format!("2001:db8:1:{subnet:x}::{host:x}").parse().unwrap() };
    let mut admitted = |ip: &dyn Fn(u16) -> IpAddr| {
        (0..100_000_u32)
            .filter(|number| {
                worker.announce(Protocol::Udp, ip(u16::try_from(number % 60_000).unwrap()), at_ms(0))
            })
            .count()
    };
    let one = admitted(&|number| host(0x100, number));
    assert!(one.abs_diff(40_000) < 1600, "a /64: {one}");
    let of_site = admitted(&|number| host(number, 1))
        + admitted(&|number| host(number, 1))
        + admitted(&|number| host(number, 1))
        + one;
    assert!(of_site.abs_diff(320_000) < 1600, "a /48: {of_site}");
}
