//! The rules of the tracker in the terms of its programs: endpoints, connection ids, limits and networks.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use shoal_access::networks::{Answer, NetworkTable, prefixes};
use shoal_config::LimitsConfig;
use shoal_engine::connection_id::SharedIds;
use shoal_engine::limits::{self, Activity};
use shoal_xdp::program::{Ids, Network, NetworkRule, Rate};

use shoal_runtime::clock;
use shoal_runtime::live::Live;

pub(super) const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    access: Option<Arc<NetworkTable>>,
    bans: Option<Arc<NetworkTable>>,
    exempt: Vec<IpNet>,
}

impl Lists {
    pub(super) fn of(live: &Live) -> Self {
        let access = live.policy.access().and_then(|access| access.networks.clone());
        let bans = live.policy.access().and_then(|access| access.bans.clone());
        Self { access, bans, exempt: live.policy.config().limits.exempt.clone() }
    }

    /// Returns whether the lists are the same.
    pub(super) fn are(&self, other: &Self) -> bool {
        let tables = |lists: &Self| [&lists.access, &lists.bans].map(|table| table.as_ref().map(Arc::as_ptr));
        tables(self) == tables(other) && self.exempt == other.exempt
    }
}

/// Returns the tracker's addresses on this host with their ports. `bound` are the addresses that it listens on, and
/// `locals` all addresses of this host. Loopback addresses never occur in a network card's frames.
pub(super) fn endpoints(
    bound: impl IntoIterator<Item = SocketAddr>,
    locals: &[IpAddr],
) -> BTreeSet<SocketAddr> {
    let expand = |address: SocketAddr| {
        let of_family = locals.iter().filter(move |ip| ip.is_ipv4() == address.is_ipv4());
        let all: Vec<IpAddr> = match address.ip().is_unspecified() {
            true => of_family.copied().collect(),
            false => vec![address.ip()],
        };
        all.into_iter().filter(|ip| !ip.is_loopback()).map(move |ip| SocketAddr::new(ip, address.port()))
    };
    bound.into_iter().flat_map(expand).collect()
}

/// Returns the values with which programs make and check connection ids.
pub(super) fn ids(shared: &SharedIds, now_ms: (u64, u64)) -> Ids {
    let former = shared.former.map(|(keyed, until_s)| (keyed, monotonic_ns_at(until_s, now_ms)));
    Ids { keyed: shared.keyed, former, valid_ns: shared.valid_s.saturating_mul(NS_PER_S) }
}

/// Returns the present by the wall clock and by the monotonic clock, in milliseconds.
pub(super) fn now_ms() -> (u64, u64) {
    (clock::unix_ms(), clock::monotonic_ms())
}

/// Converts a time of the wall clock to the monotonic clock, in nanoseconds. `now` is the present by both clocks, in
/// milliseconds.
pub(super) fn monotonic_ns_at(unix_s: u64, (now_unix_ms, now_ms): (u64, u64)) -> u64 {
    let (now_ns, unix_ms) = (now_ms.saturating_mul(NS_PER_MS), unix_s.saturating_mul(1000));
    let later = unix_ms.saturating_sub(now_unix_ms).saturating_mul(NS_PER_MS);
    let earlier = now_unix_ms.saturating_sub(unix_ms).saturating_mul(NS_PER_MS);
    now_ns.saturating_add(later).saturating_sub(earlier)
}

pub(super) fn rate(config: &LimitsConfig, activity: Activity) -> Option<Rate> {
    let rate = limits::rate_of(config, activity)?;
    Some(Rate { token_ns: rate.token_ns(), full_ns: rate.full_ns() })
}

/// Returns the rule for all other addresses, and the networks with a different rule.
pub(super) fn networks(live: &Live) -> (Vec<Network>, NetworkRule) {
    let all = Arc::new(NetworkTable::default());
    let access = live.policy.access().and_then(|access| access.networks.as_ref()).unwrap_or(&all);
    let bans = live.policy.access().and_then(|access| access.bans.as_ref()).unwrap_or(&all);
    let none = Arc::new(NetworkTable::new(Some(&[]), &[]));
    let exempt = limits::exempt(&live.policy.config().limits).unwrap_or(none);
    let rules = live.policy.access().and_then(|access| access.rules.as_ref());
    let judge = |[answer, exempt, banned]: [Answer; 3]| {
        let exempt = exempt == Answer::Served;
        // Rules do not apply to exempt networks, and a refusal by a rule is a reply.
        let is_dropped = !exempt && rules.is_some_and(|rules| rules.drops_network(answer));
        NetworkRule { denied: answer == Answer::Denied || banned == Answer::Denied || is_dropped, exempt }
    };
    let usual = NetworkRule { denied: !access.serves_others(), exempt: false };
    let network = |(network, rule): (shoal_access::networks::Network, NetworkRule)| Network {
        ip: network.first(),
        bits: network.prefix_length(),
        rule,
    };
    (prefixes([access, &exempt, bans], usual, judge).into_iter().map(network).collect(), usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_of_a_network_card_is_for_a_loopback_address() {
        let locals = ["127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let endpoints_of = |bound: &[&str]| -> Vec<String> {
            let bound = bound.iter().map(|address| address.parse().unwrap());
            endpoints(bound, &locals).iter().map(SocketAddr::to_string).collect()
        };
        assert_eq!(endpoints_of(&["0.0.0.0:1", "[::]:2"]), ["192.0.2.1:1", "[2001:db8::1]:2"]);
        assert_eq!(endpoints_of(&["127.0.0.1:1", "[::1]:2", "192.0.2.9:3"]), ["192.0.2.9:3"]);
    }

    #[test]
    fn times_of_one_clock_are_those_of_another() {
        let now = (1_700_000_000_250, 5000);
        assert_eq!(monotonic_ns_at(1_700_000_001, now), 5_750_000_000);
        assert_eq!(monotonic_ns_at(1_699_999_999, now), 3_750_000_000);
        assert_eq!(monotonic_ns_at(0, now), 0);
    }
}
