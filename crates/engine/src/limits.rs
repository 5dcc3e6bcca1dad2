//! How often the sources of requests may ask.
//!
//! A source is an IPv4 address or an IPv6 /64, the least that a customer gets. A /56 or a /48 may be several
//! customers or one attacker, so these have wider limits ([`shoal_base::source::Width`]). All of them have buckets in
//! one table of a fixed size ([`shoal_base::source::Rates`]), which all workers share and a reload keeps.
//!
//! Without limits, a request costs one branch. With limits of large bursts, a random sample of the requests counts for all
//! ([`crate::policy::Gate`]), except those of sources near their limit ([`Limits::weight`]). With smaller ones each request
//! counts, and the lines of a batch of datagrams are prefetched.

mod exact;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use shoal_access::networks::{Network, NetworkTable};
use shoal_base::source::{Level, Rate, Rates, Taken, Width};
use shoal_config::LimitsConfig;

use crate::Now;
use crate::limits::exact::ExactSources;
use crate::policy::Protocol;

/// The smallest burst that is counted by samples. Half of it is, the other half exactly. A sampled count of half of this
/// burst is wrong by 2 % of the burst, as a standard deviation; larger bursts by less.
const SAMPLED_BURST_MIN: u64 = 32_768;

/// The networks of an IPv6 address that have limits.
const WIDTHS_V6: [Width; Width::OF_CUSTOMER] = [Width::Source, Width::Home, Width::Site];

/// The activities of a source with separate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// An announce, a scrape or an upgrade to a WebSocket.
    Request(Protocol),
    /// A request for a connection id.
    UdpConnect,
    /// A new connection.
    TcpConnect,
    /// A token with a wrong signature.
    BadToken,
}

impl Activity {
    const COUNT: usize = Protocol::ALL.len() + 3;

    const fn index(self) -> usize {
        match self {
            Self::Request(protocol) => protocol as usize,
            Self::UdpConnect => Protocol::ALL.len(),
            Self::TcpConnect => Protocol::ALL.len() + 1,
            Self::BadToken => Protocol::ALL.len() + 2,
        }
    }
}

/// The recent activity of all sources, hashed with a secret key: an attacker cannot choose a source that shares
/// another one's buckets.
pub struct SourceRates {
    key: [u64; 4],
    rates: Rates,
    exact: Arc<ExactSources>,
}

impl fmt::Debug for SourceRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceRates").finish_non_exhaustive()
    }
}

impl SourceRates {
    /// Creates full buckets for all sources. They take at most [`Limits::BYTES_MAX`].
    pub fn new(key: [u64; 4]) -> Self {
        Self::with_bytes(key, Limits::BYTES_MAX)
    }

    /// Creates full buckets for all sources that take at most this much memory, see [`Limits::bytes`].
    pub fn with_bytes(key: [u64; 4], bytes: usize) -> Self {
        let rates = Rates::with_bytes(bytes.saturating_sub(ExactSources::BYTES));
        Self { key, rates, exact: Arc::new(ExactSources::new(key[3])) }
    }

    /// Takes a token from the buckets of the client at a canonical address. Returns false if one is empty.
    #[inline]
    pub(crate) fn take(&self, ip: IpAddr, activity: Activity, rate: Rate, now: Now) -> bool {
        self.take_several(ip, activity, rate, 1, now).is_admitted
    }

    #[inline]
    fn take_several(&self, ip: IpAddr, activity: Activity, rate: Rate, tokens: u32, now: Now) -> Taken {
        let now_ns = now.monotonic_ns();
        match ip {
            IpAddr::V4(ip) => self.rates.take(self.buckets_v4(ip, activity, rate), tokens, now_ns),
            IpAddr::V6(ip) => self.rates.take(self.buckets_v6(ip, activity, rate), tokens, now_ns),
        }
    }

    /// Returns the fill level of the buckets of the client at a canonical address.
    pub(crate) fn level(&self, ip: IpAddr, activity: Activity, rate: Rate, now: Now) -> Level {
        match ip {
            IpAddr::V4(ip) => self.rates.level(self.buckets_v4(ip, activity, rate), now.monotonic_ns()),
            IpAddr::V6(ip) => self.rates.level(self.buckets_v6(ip, activity, rate), now.monotonic_ns()),
        }
    }

    #[inline]
    fn buckets_v4(&self, ip: Ipv4Addr, activity: Activity, rate: Rate) -> [(u64, Rate); 1] {
        [(self.hash(u32::from(ip).into(), u32::BITS, activity), rate)]
    }

    #[inline]
    fn buckets_v6(&self, ip: Ipv6Addr, activity: Activity, rate: Rate) -> [(u64, Rate); WIDTHS_V6.len()] {
        WIDTHS_V6.map(|width| {
            let bits = width.prefix_v6();
            (self.hash(network(u128::from(ip), bits), bits, activity), rate.times(width.shares()))
        })
    }

    #[inline]
    fn hash(&self, network: u64, bits: u32, activity: Activity) -> u64 {
        let [k0, k1, k2, k3] = self.key;
        let kind = u64::from(bits) << 8 | activity.index() as u64;
        fold(fold(network ^ k0, k1 | 1) ^ fold(kind ^ k2, k3 | 1), k2 | 1)
    }
}

/// Returns the widest network around a client that has a limit.
#[inline]
fn widest(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        // No /48 of IPv6 unicast looks like an IPv4 address.
        IpAddr::V6(ip) => network(u128::from(ip), Width::Site.prefix_v6()),
    }
}

/// Combines the two halves of a product.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let folded = (product ^ product >> u64::BITS) as u64;
    folded
}

/// The limits of an operator.
#[derive(Clone, Debug)]
pub struct Limits {
    sources: Arc<SourceRates>,
    rates: [Option<Rate>; Activity::COUNT],
    /// Whether requests of each protocol may be counted by samples.
    is_sampled: [bool; Protocol::ALL.len()],
    /// The sources of which each request counts nevertheless.
    exact: Arc<ExactSources>,
    /// Serves the networks without limits.
    exempt: Option<Arc<NetworkTable>>,
    /// Whether UDP requests beyond the limit get no reply.
    udp_silent: bool,
}

impl Limits {
    /// The largest memory of the limits of all sources, in bytes. Any set limit takes all of it.
    pub const BYTES_MAX: usize = Rates::BYTES_MAX + ExactSources::BYTES;

    /// Returns the memory of the limits in a process that may take `memory_bytes_max`: the largest, or else a 32nd of
    /// the process, but at least 1 MiB. With less memory, more sources near their limits share their buckets.
    pub const fn bytes(memory_bytes_max: u64) -> usize {
        const PART: u64 = 32;
        let mut of_rates = Rates::BYTES_MAX;
        while of_rates > 1 << 20 && of_rates as u64 > memory_bytes_max / PART {
            of_rates /= 2;
        }
        of_rates + ExactSources::BYTES
    }

    /// Returns whether any limit is set.
    pub fn are_set(config: &LimitsConfig) -> bool {
        rates(config).iter().any(Option::is_some)
    }

    /// Returns the limits of a configuration on the shared `sources`, or `None` if none is set.
    pub fn of(config: &LimitsConfig, sources: &Arc<SourceRates>) -> Option<Self> {
        Self::are_set(config).then(|| Self::new(config, Arc::clone(sources)))
    }

    fn new(config: &LimitsConfig, sources: Arc<SourceRates>) -> Self {
        let rates = rates(config);
        let is_sampled = Protocol::ALL
            .map(|protocol| rates[protocol as usize].is_none_or(|rate| rate.burst() >= SAMPLED_BURST_MIN));
        let exact = Arc::clone(&sources.exact);
        let (exempt, udp_silent) = (exempt(config), config.udp_silent);
        Self { sources, rates, is_sampled, exact, exempt, udp_silent }
    }

    /// Returns the recent activity of the sources.
    pub const fn sources(&self) -> &Arc<SourceRates> {
        &self.sources
    }

    /// Returns whether UDP requests beyond the limit get no reply.
    pub const fn udp_silent(&self) -> bool {
        self.udp_silent
    }

    /// Returns the number of requests for which a request of the client at a canonical address counts: the `drawn` one, or 1 if
    /// each request of its source has to count. That holds for small bursts, and for any source that has used half of a
    /// burst. A limit is therefore exact where it refuses, and an honest source meets none by an unlucky draw.
    #[inline]
    pub(crate) fn weight(&self, ip: IpAddr, protocol: Protocol, drawn: u32, now: Now) -> u32 {
        let is_sampled = self.is_sampled[protocol as usize];
        if is_sampled && !self.exact.contain(widest(ip), now.monotonic_s) { drawn } else { 1 }
    }

    /// Returns whether an activity has a limit.
    #[inline]
    pub(crate) const fn has(&self, activity: Activity) -> bool {
        self.rates[activity.index()].is_some()
    }

    /// Returns whether each request of a protocol counts.
    pub(crate) const fn is_exact(&self, protocol: Protocol) -> bool {
        !self.is_sampled[protocol as usize]
    }

    /// Returns whether the client at a canonical address may do something now, and if so, counts it as often as `weight` says.
    /// Not inlined, so that trackers without limits pay nothing for it.
    #[inline(never)]
    pub fn admit(&self, ip: IpAddr, activity: Activity, weight: u32, now: Now) -> bool {
        let Some(rate) = self.rates[activity.index()] else { return true };
        if self.exempt.as_ref().is_some_and(|exempt| exempt.serves(ip)) {
            return true;
        }
        let taken = self.sources.take_several(ip, activity, rate, weight, now);
        if matches!(activity, Activity::Request(protocol) if self.is_sampled[protocol as usize])
            && taken.half_full_ns > now.monotonic_ns()
        {
            self.exact.add(widest(ip), taken.half_full_ns);
        }
        taken.is_admitted
    }

    /// Returns the rest of the client's rate at a canonical address, or `None` if it has no limit.
    pub fn level(&self, ip: IpAddr, activity: Activity, now: Now) -> Option<Level> {
        let is_exempt = self.exempt.as_ref().is_some_and(|exempt| exempt.serves(ip));
        let rate = self.rates[activity.index()].filter(|_| !is_exempt)?;
        Some(self.sources.level(ip, activity, rate, now))
    }

    /// Prefetches the buckets of a client.
    pub fn prefetch(&self, ip: IpAddr, activity: Activity) {
        if self.rates[activity.index()].is_none() {
            return;
        }
        match ip {
            IpAddr::V4(ip) => {
                self.sources.rates.prefetch(self.sources.hash(u32::from(ip).into(), u32::BITS, activity));
            }
            IpAddr::V6(ip) => {
                for bits in WIDTHS_V6.map(Width::prefix_v6) {
                    self.sources.rates.prefetch(self.sources.hash(
                        network(u128::from(ip), bits),
                        bits,
                        activity,
                    ));
                }
            }
        }
    }
}

/// Returns a table that serves the networks without limits, if there are any.
pub fn exempt(config: &LimitsConfig) -> Option<Arc<NetworkTable>> {
    let exempt =
        config.exempt.iter().filter_map(|network| Network::new(network.addr(), network.prefix_len()));
    let exempt: Vec<Network> = exempt.collect();
    (!exempt.is_empty()).then(|| Arc::new(NetworkTable::new(Some(&exempt), &[])))
}

/// Returns the rate of an activity, if it has a limit.
pub fn rate_of(config: &LimitsConfig, activity: Activity) -> Option<Rate> {
    rates(config)[activity.index()]
}

/// Returns the first `bits` bits of an address, at most 64.
#[expect(clippy::cast_possible_truncation, reason = "a prefix of at most 64 bits remains")]
const fn network(address: u128, bits: u32) -> u64 {
    (address >> (u128::BITS - bits)) as u64
}

/// Returns the rate of each activity, by its index.
fn rates(config: &LimitsConfig) -> [Option<Rate>; Activity::COUNT] {
    let rate = |per_s: u32| (per_s > 0).then(|| Rate::new(per_s, per_s.saturating_mul(config.burst_s)));
    let mut rates = [None; Activity::COUNT];
    for (activity, per_s) in [
        (Activity::Request(Protocol::Udp), config.udp_requests_per_s),
        (Activity::Request(Protocol::Http), config.http_requests_per_s),
        (Activity::Request(Protocol::WebTorrent), config.webtorrent_requests_per_s),
        (Activity::UdpConnect, config.udp_connects_per_s),
        (Activity::TcpConnect, config.tcp_connects_per_s),
    ] {
        rates[activity.index()] = rate(per_s);
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Activity = Activity::Request(Protocol::Udp);

    fn limits(change: impl FnOnce(&mut LimitsConfig)) -> Limits {
        let mut config = LimitsConfig { udp_requests_per_s: 1, burst_s: 4, ..LimitsConfig::default() };
        change(&mut config);
        Limits::new(&config, Arc::new(SourceRates::new([1, 2, 3, 4])))
    }

    fn at_ms(monotonic_ms: u64) -> Now {
        Now { monotonic_ms, ..Now::default() }
    }

    /// Returns how many of 100 requests are admitted, each from the next address.
    fn admitted(limits: &Limits, activity: Activity, ip: impl Fn(u16) -> String) -> usize {
        (0..100).filter(|&number| limits.admit(ip(number).parse().unwrap(), activity, 1, at_ms(5000))).count()
    }

    #[test]
    fn a_rate_of_0_is_no_limit() {
        let mut none =
            LimitsConfig { udp_requests_per_s: 0, http_requests_per_s: 0, ..LimitsConfig::default() };
        (none.webtorrent_requests_per_s, none.tcp_connects_per_s) = (0, 0);
        assert!(!Limits::are_set(&none));
        assert!(Limits::are_set(&LimitsConfig { tcp_connects_per_s: 1, ..none }));
        let limits = limits(|config| config.udp_requests_per_s = 0);
        assert_eq!(admitted(&limits, UDP, |_| "192.0.2.1".to_owned()), 100);
    }

    #[test]
    fn a_source_is_an_address_or_a_network() {
        let limits = limits(|_| {});
        assert_eq!(admitted(&limits, UDP, |_| "192.0.2.1".to_owned()), 4);
        assert_eq!(admitted(&limits, UDP, |number| format!("198.51.100.{number}")), 100);
        assert_eq!(admitted(&limits, UDP, |number| format!("2001:db8::{number:x}")), 4);
        assert_eq!(admitted(&limits, UDP, |number| format!("2001:db8:1:{number:x}::1")), 8, "a /56");
        assert_eq!(admitted(&limits, UDP, |number| format!("2001:db8:2:{number:x}00::1")), 32, "a /48");
        assert_eq!(admitted(&limits, UDP, |number| format!("2001:db8:{:x}::1", 0x100 + number)), 100);
    }

    #[test]
    fn activities_do_not_count_towards_each_other() {
        let limits = limits(|config| {
            config.http_requests_per_s = 2;
            config.udp_connects_per_s = 3;
        });
        let ip = |_| "192.0.2.1".to_owned();
        assert_eq!(admitted(&limits, UDP, ip), 4);
        assert_eq!(admitted(&limits, Activity::Request(Protocol::Http), ip), 8);
        assert_eq!(admitted(&limits, Activity::Request(Protocol::WebTorrent), ip), 100);
        assert_eq!(admitted(&limits, Activity::UdpConnect, ip), 12);
        assert_eq!(admitted(&limits, Activity::TcpConnect, ip), 100);
    }

    #[test]
    fn a_source_is_served_at_its_rate_and_recovers() {
        let limits = limits(|_| {});
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(admitted(&limits, UDP, |_| ip.to_string()), 4);
        assert!(!limits.admit(ip, UDP, 1, at_ms(5999)));
        assert!(limits.admit(ip, UDP, 1, at_ms(6000)) && !limits.admit(ip, UDP, 1, at_ms(6000)));
        let later = (0..100).filter(|_| limits.admit(ip, UDP, 1, at_ms(60_000))).count();
        assert_eq!(later, 4);
    }

    #[test]
    fn exempt_networks_have_no_limits() {
        let limits = limits(|config| config.exempt = vec!["192.0.2.0/24".parse().unwrap()]);
        assert_eq!(admitted(&limits, UDP, |_| "192.0.2.1".to_owned()), 100);
        assert_eq!(admitted(&limits, UDP, |_| "192.0.3.1".to_owned()), 4);
    }
}
