//! Tables of the owners of networks.

use shoal_access::budget::Budget;
use shoal_access::networks::{Answer, Network, NetworkTable, read_owners};
use shoal_access::rules::{NamedNetworks, Rule};

/// Maximum size of a table. A compressed one may be long.
const TABLE_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of networks that are looked up.
const NETWORKS_MAX: usize = 1000;

/// Reads the input as a table of owners. Both ends of each network have its rule, or an earlier one.
pub fn access_owners(mut table: &[u8]) {
    let rules = ["as 64512 drop", "country ZZ refuse", "as 7 interval 60"];
    let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect("it is a rule")).collect();
    let named = NamedNetworks::of(&rules);
    let Ok(owners) = read_owners(&mut table, TABLE_BYTES_MAX, &named, &Budget::default()) else { return };
    assert!(owners.faults.faulty <= owners.faults.lines);
    let ruled: Vec<(Network, u8)> = owners.networks.ruled().take(NETWORKS_MAX).collect();
    let none = None::<core::iter::Empty<Network>>;
    let table = NetworkTable::with_rules(none, core::iter::empty(), ruled.iter().copied());
    for (network, rule) in ruled {
        for ip in [network.first(), network.last()] {
            // An end among the v4-mapped addresses stands for an IPv4 address, which is in no IPv6 network.
            let answer = table.answer(ip);
            assert!(
                ip.to_canonical() != ip || matches!(answer, Answer::Rule(first) if first <= rule),
                "{network} {ip} {answer:?}"
            );
        }
    }
}
