//! Lists of networks.

use core::net::IpAddr;

use shoal_access::networks::{LIST_BYTES_MAX, Network, NetworkTable, parse};

/// Reads the input as a list of networks. A table of them refuses the ends of each network, and those of networks that
/// are written as prefixes are read back as the same networks.
///
/// # Panics
/// Panics if a property does not hold.
pub fn access_networks(list: &[u8]) {
    let mut networks = Vec::new();
    if parse(list, LIST_BYTES_MAX, &mut networks).is_err() || networks.len() > 1000 {
        return;
    }
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
        let mut again = Vec::new();
        assert_eq!(parse(network.to_string().as_bytes(), LIST_BYTES_MAX, &mut again), Ok(()));
        assert_eq!(again, [*network]);
    }
    for ip in ["192.0.2.1", "2001:db8::1", "::"].map(|ip| ip.parse::<IpAddr>().expect("these are addresses"))
    {
        let contained = networks.iter().any(|network| network.contains(ip));
        assert_eq!((denied.serves(ip), allowed.serves(ip)), (!contained, contained));
    }
}
