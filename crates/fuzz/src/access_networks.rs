//! Lists of networks.

use core::net::IpAddr;

use shoal_access::budget::Budget;
use shoal_access::faults::Faults;
use shoal_access::networks::{Network, NetworkList, NetworkTable, read_networks};

/// Maximum size of a text. A compressed one may be long.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Reads a list, if all of its lines can be read.
fn read(mut list: &[u8]) -> Option<Vec<Network>> {
    let (mut networks, mut faults) = (NetworkList::within(&Budget::default()), Faults::default());
    read_networks(&mut list, TEXT_BYTES_MAX, &mut networks, &mut faults).ok()?;
    assert!(faults.faulty <= faults.lines && faults.named.len() as u64 <= faults.faulty);
    (faults.faulty == 0).then(|| networks.iter().collect())
}

/// Reads the input as a list of networks. A table of them refuses both ends of each, and prefixes are read back the
/// same.
pub fn access_networks(list: &[u8]) {
    let Some(networks) = read(list).filter(|networks| networks.len() <= 1000) else { return };
    let (denied, allowed) = (NetworkTable::new(None, &networks), NetworkTable::new(Some(&networks), &[]));
    for network in &networks {
        let (first, last) = (network.first(), network.last());
        if [first, last].iter().any(|ip| ip.to_canonical() != *ip) {
            // An end among the v4-mapped addresses stands for an IPv4 address, which is in no IPv6 network.
            continue;
        }
        for ip in [first, last] {
            assert!(network.contains(ip) && !denied.serves(ip) && allowed.serves(ip));
        }
        assert_eq!(Network::range(first, last).map(|range| range.collect::<Vec<_>>()), Some(vec![*network]));
        assert_eq!(read(network.to_string().as_bytes()), Some(vec![*network]));
    }
    for ip in ["192.0.2.1", "2001:db8::1", "::"].map(|ip| ip.parse::<IpAddr>().expect("these are addresses"))
    {
        let contained = networks.iter().any(|network| network.contains(ip));
        assert_eq!((denied.serves(ip), allowed.serves(ip)), (!contained, contained));
    }
}
