//! Networks that an operator serves or refuses.
//!
//! For an address, a [`NetworkTable`] returns the answer of the longest prefix that contains it. If an allow list and a
//! deny list name the same network, the deny list wins. With an allow list, addresses outside of all networks are
//! refused; without one, they are served.
//!
//! The table is immutable. It holds only the sorted addresses at which the answer changes, so their number up to and
//! including an address gives its answer. A static search tree with a cache line for each node counts them (`search`).
//!
//! Rules about networks ([`rules`](crate::rules)) add a byte to each change: the answer from there on. An address that
//! the lists refuse stays refused. Elsewhere, the first of the rules whose networks contain the address counts, whatever the
//! lengths of their prefixes.

mod list;
mod owners;
mod parse;
mod prefix;
mod search;
mod steps;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::list::NetworkList;
#[cfg(test)]
use self::list::V4_NETWORK_BYTES;
pub use self::owners::{Owners, read_owners};
pub use self::parse::{LINE_BYTES_MAX, NETWORKS_MAX, read_networks};
pub use self::prefix::prefixes;
use self::search::{Indexed, Sorted};
use self::steps::{ByFamily, byte, merge};

const V4_BITS: u8 = 32;

const V6_BITS: u8 = 128;

/// A network of either family. Networks of IPv4-mapped IPv6 addresses count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    is_v6: bool,
    /// The address, aligned right. All bits after the prefix are 0.
    first: u128,
    /// The length of the prefix, in bits of its family.
    length: u8,
}

impl Network {
    /// Returns the network of a prefix, or `None` if the prefix is too long for the family. Ignores bits of the address
    /// after the prefix.
    pub fn new(ip: IpAddr, length: u8) -> Option<Self> {
        match (ip, ip.to_canonical()) {
            // ::ffff:0:0/96 and longer.
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if length >= V6_BITS - V4_BITS => {
                Self::new(v4, length - (V6_BITS - V4_BITS))
            }
            (IpAddr::V4(ip), _) if length <= V4_BITS => {
                Some(Self::masked(false, u32::from(ip).into(), length))
            }
            (IpAddr::V6(ip), _) if length <= V6_BITS => Some(Self::masked(true, ip.into(), length)),
            _ => None,
        }
    }

    /// Returns the network of a single address.
    pub fn single(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::masked(false, u32::from(ip).into(), V4_BITS),
            IpAddr::V6(ip) => Self::masked(true, ip.into(), V6_BITS),
        }
    }

    /// Returns the networks that make up the range from `first` to `last`, at most 254, or `None` if the addresses are
    /// of different families or not in this order.
    pub fn range(first: IpAddr, last: IpAddr) -> Option<impl Iterator<Item = Self>> {
        let (is_v6, mut next, last) = match (first.to_canonical(), last.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (false, u32::from(first).into(), u32::from(last).into()),
            (IpAddr::V6(first), IpAddr::V6(last)) => (true, u128::from(first), u128::from(last)),
            _ => return None,
        };
        let mut is_done = next > last;
        (!is_done).then(|| {
            core::iter::from_fn(move || {
                if is_done {
                    return None;
                }
                // The largest network that begins here and does not pass the end.
                let fitting = match (last - next).checked_add(1) {
                    Some(addresses) => addresses.ilog2(),
                    None => u128::BITS,
                };
                let host_bits = u8::try_from(next.trailing_zeros().min(fitting)).unwrap_or(V6_BITS);
                let host_bits = host_bits.min(bits(is_v6));
                let network = Self { is_v6, first: next, length: bits(is_v6) - host_bits };
                match network.last_address().checked_add(1) {
                    Some(after) if network.last_address() < last => next = after,
                    _ => is_done = true,
                }
                Some(network)
            })
        })
    }

    fn masked(is_v6: bool, address: u128, length: u8) -> Self {
        let host_bits = u32::from(bits(is_v6) - length);
        let first = address.checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0);
        Self { is_v6, first, length }
    }

    fn last_address(&self) -> u128 {
        let host_bits = u32::from(bits(self.is_v6) - self.length);
        self.first | u128::MAX.checked_shr(u128::BITS - host_bits).unwrap_or(0)
    }

    /// Returns whether the network contains an address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let single = Self::single(ip);
        single.is_v6 == self.is_v6 && (self.first..=self.last_address()).contains(&single.first)
    }

    /// Returns the first address.
    pub fn first(&self) -> IpAddr {
        self.ip(self.first)
    }

    /// Returns the last address.
    pub fn last(&self) -> IpAddr {
        self.ip(self.last_address())
    }

    /// Returns the length of the prefix.
    pub const fn prefix_length(&self) -> u8 {
        self.length
    }

    fn ip(&self, address: u128) -> IpAddr {
        match u32::try_from(address) {
            Ok(address) if !self.is_v6 => Ipv4Addr::from(address).into(),
            _ => Ipv6Addr::from(address).into(),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.length)
    }
}

const fn bits(is_v6: bool) -> u8 {
    if is_v6 { V6_BITS } else { V4_BITS }
}

/// The answer of a table for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is refused by a list.
    Denied,
    /// It is served.
    Served,
    /// The rule with this number is the first about its network.
    Rule(u8),
}

/// Which addresses are served. The default serves all.
#[derive(Debug)]
pub struct NetworkTable {
    /// Whether an address before the first change is served.
    serves_first: bool,
    /// The answers after each number of changes, from none on. Empty if they alternate between served and refused.
    answers_v4: Box<[u8]>,
    answers_v6: Box<[u8]>,
    v4: Indexed,
    /// The upper halves of the IPv6 addresses at which the answer changes and whose lower half is 0. Few networks are
    /// narrower than a /64.
    v6: Sorted<u64, 8>,
    /// All other IPv6 addresses at which the answer changes.
    v6_fine: Sorted<u128, 4>,
}

impl Default for NetworkTable {
    fn default() -> Self {
        Self::new(None, &[])
    }
}

impl NetworkTable {
    /// Creates the table of a deny list and an optional allow list.
    pub fn new(allow: Option<&[Network]>, deny: &[Network]) -> Self {
        Self::of(allow.map(|allow| allow.iter().copied()), deny.iter().copied())
    }

    /// Creates the table of a deny list and an optional allow list.
    pub fn of(allow: Option<impl Iterator<Item = Network>>, deny: impl Iterator<Item = Network>) -> Self {
        Self::with_rules(allow, deny, core::iter::empty())
    }

    /// Creates the table of a deny list, an optional allow list, and networks with the numbers of rules about them.
    pub fn with_rules(
        allow: Option<impl Iterator<Item = Network>>,
        deny: impl Iterator<Item = Network>,
        rules: impl Iterator<Item = (Network, u8)>,
    ) -> Self {
        let serves_first = allow.is_none();
        let others = if serves_first { byte::SERVED } else { byte::DENIED };
        let allowed = allow.into_iter().flatten().map(|network| (network, byte::SERVED));
        let lists = ByFamily::new(allowed.chain(deny.map(|network| (network, byte::DENIED))));
        let rules = ByFamily::new(rules.map(|(network, rule)| (network, byte::RULE.saturating_add(rule))));
        let (mut v4, mut answers_v4) = (Vec::new(), rules.first_answer(others));
        merge::<u32>(lists.v4(), rules.v4(), others, u32::MAX.into(), |address, answer| {
            v4.extend(u32::try_from(address));
            answers_v4.iter_mut().for_each(|answers| answers.push(answer));
        });
        let (mut coarse, mut fine, mut answers_v6) = (Vec::new(), Vec::new(), rules.first_answer(others));
        merge::<u128>(lists.v6(), rules.v6(), others, u128::MAX, |address, answer| {
            if address.trailing_zeros() >= u64::BITS {
                coarse.push(upper_half(address));
            } else {
                fine.push(address);
            }
            answers_v6.iter_mut().for_each(|answers| answers.push(answer));
        });
        Self {
            serves_first,
            answers_v4: answers_v4.unwrap_or_default().into(),
            answers_v6: answers_v6.unwrap_or_default().into(),
            v4: Indexed::new(v4),
            v6: Sorted::new(coarse),
            v6_fine: Sorted::new(fine),
        }
    }

    /// Returns the answer for a canonical address. An IPv4-mapped one would count as IPv6.
    #[inline]
    pub fn answer(&self, ip: IpAddr) -> Answer {
        let (changes, answers) = match ip {
            IpAddr::V4(ip) => (self.v4.count_to(u32::from(ip)), &self.answers_v4),
            IpAddr::V6(ip) => (self.changes_to_v6(ip), &self.answers_v6),
        };
        match answers.get(changes) {
            Some(&byte::DENIED) => Answer::Denied,
            Some(&byte::SERVED) => Answer::Served,
            Some(&rule) => Answer::Rule(rule - byte::RULE),
            None if self.serves_first == changes.is_multiple_of(2) => Answer::Served,
            None => Answer::Denied,
        }
    }

    /// Returns whether the lists serve a canonical address.
    #[inline]
    pub fn serves(&self, ip: IpAddr) -> bool {
        self.answer(ip) != Answer::Denied
    }

    fn changes_to_v6(&self, ip: Ipv6Addr) -> usize {
        let address = u128::from(ip);
        let coarse = self.v6.count_to(upper_half(address));
        if self.v6_fine.is_empty() { coarse } else { coarse + self.v6_fine.count_to(address) }
    }

    /// Returns the addresses of a family, aligned right, at which the answer changes.
    fn changes(&self, is_v6: bool) -> Vec<u128> {
        if !is_v6 {
            return self.v4.iter().map(u128::from).collect();
        }
        let coarse = self.v6.iter().map(|upper| u128::from(upper) << u64::BITS);
        coarse.chain(self.v6_fine.iter()).collect()
    }

    /// Returns whether addresses outside of all networks are served, which means that there is no allow list.
    pub fn serves_others(&self) -> bool {
        self.serves_first
    }

    /// Returns whether the table serves every address.
    pub fn serves_all(&self) -> bool {
        self.serves_first && self.v4.is_empty() && self.v6.is_empty() && self.v6_fine.is_empty()
    }

    /// Returns the size of the table in bytes.
    pub fn memory_bytes(&self) -> usize {
        let numbers = self.v4.memory_bytes() + self.v6.memory_bytes() + self.v6_fine.memory_bytes();
        numbers + self.answers_v4.len() + self.answers_v6.len()
    }
}

/// Returns the first 64 bits of an address.
const fn upper_half(address: u128) -> u64 {
    (address >> u64::BITS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts
            .iter()
            .map(|text| {
                let (ip, length) = text.split_once('/').unwrap();
                Network::new(ip.parse().unwrap(), length.parse().unwrap()).unwrap()
            })
            .collect()
    }

    fn served(table: &NetworkTable, ip: &str) -> bool {
        table.serves(ip.parse().unwrap())
    }

    #[test]
    fn nothing_configured_serves_all() {
        let table = NetworkTable::default();
        assert!(served(&table, "0.0.0.0") && served(&table, "::1"));
        assert!(table.serves_all() && table.memory_bytes() == 0);
    }

    #[test]
    fn the_longest_prefix_wins() {
        let table = NetworkTable::new(None, &networks(&["10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32"]));
        assert!(
            !served(&table, "10.1.2.3") && !served(&table, "10.255.255.255") && served(&table, "11.0.0.0")
        );
        assert!(
            served(&table, "9.255.255.255") && !served(&table, "2001:db8::1") && served(&table, "2001:db9::")
        );
        let allow = networks(&["10.1.0.0/16", "10.1.2.3/32", "2001:db8:1::/48"]);
        let table =
            NetworkTable::new(Some(&allow), &networks(&["10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32"]));
        for (ip, expected) in [
            ("10.0.255.255", false),
            ("10.1.0.0", true),
            ("10.1.1.255", true),
            ("10.1.2.2", false),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("10.1.3.0", true),
            ("10.2.0.0", false),
            ("192.0.2.1", false),
            ("2001:db8:1::1", true),
            ("2001:db8:2::1", false),
            ("::1", false),
        ] {
            assert_eq!(served(&table, ip), expected, "{ip}");
        }
    }

    #[test]
    fn a_network_on_both_lists_is_refused() {
        let both = networks(&["192.0.2.0/24", "2001:db8::/64"]);
        let table = NetworkTable::new(Some(&both), &both);
        assert!(!served(&table, "192.0.2.1") && !served(&table, "2001:db8::1"));
    }

    #[test]
    fn an_empty_allow_list_serves_nobody() {
        let table = NetworkTable::new(Some(&[]), &[]);
        assert!(!served(&table, "192.0.2.1") && !served(&table, "::1") && !table.serves_all());
    }

    #[test]
    fn whole_families_and_the_ends_of_the_address_space() {
        let table = NetworkTable::new(None, &networks(&["0.0.0.0/0"]));
        assert!(!served(&table, "0.0.0.0") && !served(&table, "255.255.255.255") && served(&table, "::"));
        let table = NetworkTable::new(Some(&networks(&["::/0"])), &networks(&["ffff::/16", "::/128"]));
        assert!(!served(&table, "::") && served(&table, "::1") && served(&table, "fffe:ffff::"));
        assert!(!served(&table, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff") && !served(&table, "10.0.0.1"));
        let table = NetworkTable::new(None, &networks(&["255.255.255.255/32"]));
        assert!(!served(&table, "255.255.255.255") && served(&table, "255.255.255.254"));
    }

    #[test]
    fn mapped_networks_are_those_of_ipv4() {
        let mapped = Network::new("::ffff:192.0.2.0".parse().unwrap(), 120).unwrap();
        assert_eq!(mapped, Network::new("192.0.2.77".parse().unwrap(), 24).unwrap());
        assert_eq!(Network::single("::ffff:192.0.2.1".parse().unwrap()).prefix_length(), 32);
        assert_eq!(Network::new("192.0.2.0".parse().unwrap(), 33), None);
        assert_eq!(Network::new("2001:db8::".parse().unwrap(), 129), None);
    }

    #[test]
    fn ranges_become_the_fewest_networks() {
        let lengths = |first: &str, last: &str| {
            let range = Network::range(first.parse().unwrap(), last.parse().unwrap());
            range.map(|networks| networks.map(|network| network.length).collect::<Vec<_>>())
        };
        assert_eq!(lengths("192.0.2.0", "192.0.2.255"), Some(vec![24]));
        assert_eq!(lengths("192.0.2.5", "192.0.2.9"), Some(vec![32, 31, 31]));
        assert_eq!(lengths("0.0.0.0", "255.255.255.255"), Some(vec![0]));
        assert_eq!(lengths("255.255.255.255", "255.255.255.255"), Some(vec![32]));
        assert_eq!(lengths("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), Some(vec![0]));
        assert_eq!(lengths("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").unwrap().len(), 254);
        assert_eq!(lengths("192.0.2.2", "192.0.2.1"), None);
        assert_eq!(lengths("192.0.2.2", "2001:db8::"), None);
    }

    /// Returns what the longest prefix says, by looking at every rule.
    fn naive(allow: Option<&[Network]>, deny: &[Network], ip: IpAddr) -> bool {
        let longest = |networks: &[Network]| {
            let containing = networks.iter().filter(|network| network.contains(ip));
            containing.map(|network| i32::from(network.length)).max().unwrap_or(-1)
        };
        match allow {
            None => longest(deny) < 0,
            Some(allow) => longest(allow) > longest(deny),
        }
    }

    #[test]
    fn random_tables_answer_like_naive_ones() {
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..300 {
            // Few distinct bits, so that networks are nested and adjacent.
            let mut network = |_| {
                let is_v6 = rng.bool();
                let address = rng.u128(..) & rng.u128(..) & rng.u128(..);
                let ip: IpAddr = if is_v6 {
                    Ipv6Addr::from(address).into()
                } else {
                    Ipv4Addr::from(u32::try_from(address >> 96).unwrap()).into()
                };
                Network::new(ip, rng.u8(..=bits(is_v6)).max(rng.u8(..=bits(is_v6))))
                    .unwrap_or(Network::single(ip))
            };
            let allow: Vec<Network> = (0..round).map(&mut network).collect();
            let deny: Vec<Network> = (0..round).map(&mut network).collect();
            let allow = (round % 3 > 0).then_some(&allow[..]);
            let table = NetworkTable::new(allow, &deny);
            for network in allow.unwrap_or_default().iter().chain(&deny) {
                for address in [
                    network.first.wrapping_sub(1),
                    network.first,
                    network.first.wrapping_add(1),
                    network.last_address().wrapping_sub(1),
                    network.last_address(),
                    network.last_address().wrapping_add(1),
                ] {
                    let ip = network.ip(address & (u128::MAX >> (V6_BITS - bits(network.is_v6))));
                    assert_eq!(table.serves(ip), naive(allow, &deny, ip.to_canonical()), "{ip}");
                }
            }
        }
    }
    #[test]
    fn rules_answer_where_the_lists_serve_and_the_first_rule_counts() {
        let mut rng = fastrand::Rng::with_seed(2);
        for round in 1..100_u8 {
            let mut network = |_| {
                let address = u32::from_be_bytes([10, rng.u8(..4), rng.u8(..4) << 6, rng.u8(..)]);
                let ip = Ipv4Addr::from(address);
                match rng.bool() {
                    true => Network::new(ip.into(), rng.u8(8..=32)).unwrap(),
                    false => {
                        Network::new(IpAddr::V6(Ipv6Addr::from(u128::from(address) << 64)), rng.u8(72..=80))
                            .unwrap()
                    }
                }
            };
            let allow: Vec<Network> = (0..round).map(&mut network).collect();
            let deny: Vec<Network> = (0..round).map(&mut network).collect();
            let rules: Vec<(Network, u8)> = (0..round).map(|rule| (network(rule), rule % 5)).collect();
            let allow = (round % 3 > 0).then_some(&allow[..]);
            let (allowed, denied) = (allow.map(|allow| allow.iter().copied()), deny.iter().copied());
            let table = NetworkTable::with_rules(allowed, denied, rules.iter().copied());
            for network in allow.unwrap_or_default().iter().chain(&deny).chain(rules.iter().map(|(n, _)| n)) {
                let (first, last) = (network.first, network.last_address());
                for address in [first.wrapping_sub(1), first, last, last.wrapping_add(1)] {
                    let ip = network.ip(address & (u128::MAX >> (V6_BITS - bits(network.is_v6))));
                    let matching = rules.iter().filter(|(network, _)| network.contains(ip));
                    let expected = match matching.map(|(_, rule)| *rule).min() {
                        _ if !naive(allow, &deny, ip) => Answer::Denied,
                        Some(rule) => Answer::Rule(rule),
                        None => Answer::Served,
                    };
                    assert_eq!(table.answer(ip), expected, "{ip}");
                }
            }
        }
    }
}
