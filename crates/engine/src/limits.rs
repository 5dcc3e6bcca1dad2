//! How often the sources of requests may ask.
//!
//! A source is an IPv4 address or an IPv6 /64, the least that a customer gets. A /56 or a /48 may be several
//! customers or one attacker, so these have wider limits ([`shoal_base::source::Width`]). All of them have buckets in
//! one table of a fixed size ([`shoal_base::source::Rates`]), which all workers share and a reload keeps.
//!
//! Without limits, a request costs one branch. With limits of large bursts, a random sample of the requests counts for all
//! ([`crate::policy::Gate`]), except those of sources near their limit (`Limits::weight`). With smaller ones each request
//! counts, and the lines of a batch of datagrams are prefetched.

mod exact;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use shoal_access::networks::{Network, NetworkTable};
use shoal_base::source::{Level, Rate, Rates, Taken, Width};
use shoal_base::{InfoHash, PeerId};
use shoal_config::LimitsConfig;

use crate::Now;
use crate::limits::exact::ExactSources;
use crate::policy::Protocol;
use crate::watch::{Cause, PeerIds, Suspect, Suspects};

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
    /// Something that earns a ban if it is done too often.
    Earns(Cause),
    /// The record that a source has earned a ban.
    Suspected,
}

/// The time in which a source is recorded once that has earned a ban. By then, it usually has the ban.
const TOLD_NS: u64 = 500_000_000;

impl Activity {
    const COUNT: usize = Protocol::ALL.len() + 4 + Cause::ALL.len();

    const fn index(self) -> usize {
        match self {
            Self::Request(protocol) => protocol as usize,
            Self::UdpConnect => Protocol::ALL.len(),
            Self::TcpConnect => Protocol::ALL.len() + 1,
            Self::BadToken => Protocol::ALL.len() + 2,
            Self::Suspected => Protocol::ALL.len() + 3,
            Self::Earns(cause) => Protocol::ALL.len() + 4 + cause as usize,
        }
    }
}

/// The recent activity of all sources, hashed with a secret key: an attacker cannot choose a source that shares
/// another one's buckets.
pub struct SourceRates {
    key: [u64; 4],
    rates: Rates,
    exact: Arc<ExactSources>,
    peer_ids: PeerIds,
    suspects: Suspects,
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
        let rates = Rates::with_bytes(bytes.saturating_sub(ExactSources::BYTES + PeerIds::BYTES));
        let (peer_ids, suspects) = (PeerIds::default(), Suspects::default());
        Self { key, rates, exact: Arc::new(ExactSources::new(key[3])), peer_ids, suspects }
    }

    /// Takes a token from the buckets of the client at a canonical address. Returns false if one is empty.
    #[inline]
    pub(crate) fn take(&self, ip: IpAddr, activity: Activity, rate: Rate, now: Now) -> bool {
        self.take_several(ip, activity, rate, 1, now).is_admitted
    }

    #[inline]
    pub(crate) fn take_several(
        &self,
        ip: IpAddr,
        activity: Activity,
        rate: Rate,
        tokens: u32,
        now: Now,
    ) -> Taken {
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

    /// Records that a bucket of the client at a canonical address is empty: the source, or the wider network whose sources
    /// have emptied it together, has earned a ban. The bucket stays empty, so what the source does until it is banned
    /// takes nothing from wider networks. Records a network at most once in [`TOLD_NS`].
    pub(crate) fn suspect(&self, ip: IpAddr, cause: Cause, (rate, weight): (Rate, u32), now: Now) {
        let (activity, now_ns) = (Activity::Earns(cause), now.monotonic_ns());
        let is_empty = |(hash, rate): (u64, Rate)| {
            self.rates.level([(hash, rate.weighted(weight))], now_ns) == Level::Empty
        };
        let (bits, network) = match ip {
            IpAddr::V4(ip) => (u32::BITS, u32::from(ip).into()),
            IpAddr::V6(ip) => {
                let widths =
                    WIDTHS_V6.map(Width::prefix_v6).into_iter().zip(self.buckets_v6(ip, activity, rate));
                let Some((bits, _)) = widths.rev().find(|(_, bucket)| is_empty(*bucket)) else { return };
                (bits, network(u128::from(ip), bits))
            }
        };
        let told = (self.hash(network, bits, Activity::Suspected), Rate::per(1, TOLD_NS));
        if self.rates.take([told], 1, now_ns).is_admitted {
            self.suspects.add(Suspect::new(ip, bits, cause));
        }
    }

    /// Fills the buckets by which a network has earned a ban, so that it does not earn the next one at once.
    pub fn forgive(&self, ip: IpAddr, prefix_length: u8) {
        let bits = u32::from(prefix_length);
        let network = match ip {
            IpAddr::V4(ip) => u32::from(ip).into(),
            IpAddr::V6(_) if !(1..=u64::BITS).contains(&bits) => return,
            IpAddr::V6(ip) => network(u128::from(ip), bits),
        };
        for cause in Cause::ALL {
            self.rates.refill(self.hash(network, bits, Activity::Earns(cause)));
        }
    }

    /// Takes the sources that have earned a ban since the last call.
    pub fn take_suspects(&self) -> Vec<Suspect> {
        self.suspects.take()
    }

    /// Returns whether there are any.
    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Records the peer id of a client in a torrent. Returns whether the client had another one.
    pub(crate) fn changes_peer_id(
        &self,
        client: (IpAddr, u16),
        info_hash: &InfoHash,
        peer_id: &PeerId,
    ) -> bool {
        let (ip, port) = client;
        let [k0, k1, k2, k3] = self.key;
        let (upper, lower) = match ip {
            IpAddr::V4(ip) => (0, u32::from(ip).into()),
            #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
            IpAddr::V6(ip) => ((u128::from(ip) >> 64) as u64, u128::from(ip) as u64),
        };
        let [a, b] = words(&info_hash.0);
        let of_client = fold(upper ^ k0, k1 | 1) ^ fold(lower ^ k2, k3 | 1) ^ u64::from(port);
        let key = fold(of_client ^ a, k1 | 1) ^ fold(b ^ k3, k0 | 1);
        let [a, b] = words(&peer_id.0);
        let of_id = fold(a ^ k2, k1 | 1) ^ fold(b ^ k0, k3 | 1);
        self.peer_ids.replace(fold(key ^ k1, k2 | 1), fold(of_id ^ k3, k0 | 1))
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

/// Returns the bytes of a hash or an id as two numbers that differ if the bytes differ in their first or last eight bytes,
/// or in the four between.
fn words(bytes: &[u8; 20]) -> [u64; 2] {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let number = |index: usize| chunks.get(index).map_or(0, |chunk| u64::from_le_bytes(*chunk));
    let rest = rest.first_chunk::<4>().map_or(0, |rest| u32::from_le_bytes(*rest));
    [number(0) ^ u64::from(rest).rotate_left(17), number(1) ^ u64::from(rest).rotate_left(40)]
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
    pub const BYTES_MAX: usize = Rates::BYTES_MAX + ExactSources::BYTES + PeerIds::BYTES;

    /// Returns the memory of the limits in a process that may take `memory_bytes_max`: the largest, or else a 32nd of
    /// the process, but at least 1 MiB. With less memory, more sources near their limits share their buckets.
    pub const fn bytes(memory_bytes_max: u64) -> usize {
        const PART: u64 = 32;
        let mut of_rates = Rates::BYTES_MAX;
        while of_rates > 1 << 20 && of_rates as u64 > memory_bytes_max / PART {
            of_rates /= 2;
        }
        of_rates + ExactSources::BYTES + PeerIds::BYTES
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

    /// Returns the rate of an activity, if it has a limit.
    pub(crate) const fn rate(&self, activity: Activity) -> Option<Rate> {
        self.rates[activity.index()]
    }

    /// Returns the number of requests for which a request of the client at a canonical address counts: the `drawn` one, or 1 if
    /// each request of its source has to count. That holds for small bursts, and for any source that has used half of a
    /// burst. A limit is therefore exact where it refuses, and an honest source meets none by an unlucky draw.
    #[inline]
    pub(crate) fn weight(&self, ip: IpAddr, protocol: Protocol, drawn: u32, now: Now) -> u32 {
        let is_sampled = self.is_sampled[protocol as usize];
        let is_exact = self.exact.are_any(now.monotonic_s) && self.exact.contain(widest(ip), now.monotonic_s);
        if is_sampled && !is_exact { drawn } else { 1 }
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
