//! Whether the tracker itself is reachable from its own network only.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use shoal_engine::address::private_network;

/// Returns whether all addresses at which the tracker listens are private. An unspecified one stands for all addresses of its
/// family that the interfaces of this host have. A host without an address, or whose addresses cannot be read, is not
/// private.
pub(super) fn is_private(listening: impl Iterator<Item = IpAddr>) -> bool {
    let mut addresses = listening.map(|ip| ip.to_canonical()).peekable();
    addresses.peek().is_some() && are_private(addresses, of_interfaces)
}

fn are_private(listening: impl Iterator<Item = IpAddr>, of_host: fn() -> Vec<IpAddr>) -> bool {
    let is_private = |ip: IpAddr| private_network(ip).is_some();
    let mut listening: Vec<IpAddr> = listening.collect();
    listening.sort_unstable();
    listening.dedup();
    let (unspecified, named): (Vec<IpAddr>, Vec<IpAddr>) =
        listening.into_iter().partition(IpAddr::is_unspecified);
    if unspecified.is_empty() {
        return named.into_iter().all(is_private);
    }
    // A socket at [::] serves one family; IPv4 has its own.
    let served = |ip: &IpAddr| unspecified.iter().any(|any| any.is_ipv4() == ip.is_ipv4());
    let own: Vec<IpAddr> = of_host().into_iter().filter(served).collect();
    !own.is_empty() && named.into_iter().chain(own).all(is_private)
}

/// Returns the addresses of this host's interfaces.
fn of_interfaces() -> Vec<IpAddr> {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!(%error, "the addresses of this host cannot be read: address.private = \"auto\" takes it for a public one");
            return Vec::new();
        }
    };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listening: &[&str], of_host: fn() -> Vec<IpAddr>) -> bool {
        are_private(listening.iter().map(|ip| ip.parse().unwrap()), of_host)
    }

    fn at_home() -> Vec<IpAddr> {
        ["127.0.0.1", "192.168.1.2", "::1", "fe80::1"].map(|ip| ip.parse().unwrap()).to_vec()
    }

    fn public_over_ipv6() -> Vec<IpAddr> {
        ["127.0.0.1", "10.0.0.2", "::1", "2606:4700::1"].map(|ip| ip.parse().unwrap()).to_vec()
    }

    #[test]
    fn named_addresses_decide_by_themselves() {
        assert!(of(&["127.0.0.1", "10.0.0.1", "fd00::1"], public_over_ipv6));
        assert!(!of(&["127.0.0.1", "1.1.1.1"], at_home));
    }

    #[test]
    fn an_unspecified_address_stands_for_those_of_the_host() {
        assert!(of(&["0.0.0.0", "::"], at_home));
        assert!(!of(&["0.0.0.0", "::"], public_over_ipv6));
        assert!(of(&["0.0.0.0"], public_over_ipv6), "IPv6 is not served");
        assert!(!of(&["0.0.0.0", "1.1.1.1"], at_home));
        assert!(!of(&["0.0.0.0"], Vec::new), "nothing is known");
    }

    #[test]
    fn the_interfaces_of_this_host_have_its_loopback_address() {
        assert!(of_interfaces().iter().any(IpAddr::is_loopback));
    }
}
