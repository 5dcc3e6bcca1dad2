//! The address families: whether this host has addresses of both, and a way to clients from elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shoal_config::Config;

use super::Listener;
use super::machine::Machine;
use crate::finding::Finding;

const SUBJECT: &str = "addresses";

/// The scope of global addresses in `/proc/net/if_inet6`.
const SCOPE_GLOBAL: &str = "00";

/// `RTF_UP` of `linux/route.h`, and `RTF_REJECT` of routes that lead nowhere.
const ROUTE_UP: u32 = 0x0001;
const ROUTE_REJECT: u32 = 0x0200;

/// The addresses and routes that the host has of a family.
struct Family {
    name: &'static str,
    all: &'static str,
    addresses: Vec<IpAddr>,
    has_route: bool,
}

pub(super) fn examine(machine: &Machine, listeners: &[Listener]) -> Vec<Finding> {
    let families = [v4(machine), v6(machine)];
    let mut findings = Vec::new();
    for family in families.iter().flatten() {
        let is_v4 = family.all == "0.0.0.0";
        let listens = |listener: &&Listener| listener.is_for_others() && listener.address.is_ipv4() == is_v4;
        if listeners.iter().any(|listener| listens(&listener)) {
            findings.push(family.judge());
        }
    }
    if !(machine.has_ipv6)() {
        findings.extend(without_ipv6(listeners));
    }
    findings.extend(foreign(&families, listeners));
    findings
}

/// Returns the keys that list IPv6 addresses, on a host without IPv6. Only a list that is the default starts there.
fn without_ipv6(listeners: &[Listener]) -> Vec<Finding> {
    let defaults = super::listeners(&Config::default());
    let of_key = |all: &[Listener], key: &str| {
        let addresses = all.iter().filter(|listener| listener.key == key).map(|listener| listener.address);
        addresses.collect::<Vec<_>>()
    };
    let mut keys: Vec<_> = listeners.iter().filter(|listener| listener.address.is_ipv6()).collect();
    keys.dedup_by_key(|listener| listener.key);
    keys.iter()
        .map(|Listener { key, address, .. }| {
            let found = format!("this host has no IPv6, and {key} lists {address}");
            let action = format!("leave the IPv6 addresses out of {key}, or boot without ipv6.disable=1");
            if of_key(listeners, key) == of_key(&defaults, key) {
                Finding::advice(SUBJECT, found, action)
            } else {
                Finding::problem(SUBJECT, found, action)
            }
        })
        .collect()
}

/// Returns the listeners whose addresses this host does not have.
fn foreign(families: &[Option<Family>], listeners: &[Listener]) -> Vec<Finding> {
    let is_own = |ip: IpAddr| {
        let family = families.iter().flatten().find(|family| (family.all == "0.0.0.0") == ip.is_ipv4());
        ip.is_unspecified() || ip.is_loopback() || family.is_none_or(|family| family.addresses.contains(&ip))
    };
    let foreign = listeners.iter().filter(|listener| !is_own(listener.address.ip()));
    foreign
        .map(|Listener { key, address, .. }| {
            let found = format!("{key} names {}, which is no address of this host", address.ip());
            Finding::problem(
                SUBJECT,
                found,
                format!("`ip address` lists the available addresses; set {key} to some of them"),
            )
        })
        .collect()
}

impl Family {
    fn judge(&self) -> Finding {
        let Self { name, all, addresses, has_route } = self;
        let outside: Vec<String> =
            addresses.iter().filter(|ip| is_outside(**ip)).map(ToString::to_string).collect();
        let leave = format!("if clients of {name} do not matter, leave {all} out of the listeners");
        if outside.is_empty() {
            let found = format!("no {name} address but local ones: no client from elsewhere comes by {name}");
            return Finding::advice(
                SUBJECT,
                found,
                format!("ip address; ask your provider for one, or {leave}"),
            );
        }
        let shown = outside.join(", ");
        if !has_route {
            let found =
                format!("{name} has an address ({shown}) and no default route: replies may not leave");
            return Finding::advice(SUBJECT, found, format!("ip route; add one, or {leave}"));
        }
        let is_private = |ip: &&IpAddr| {
            matches!(ip, IpAddr::V4(ip) if ip.is_private())
                || matches!(ip, IpAddr::V6(ip) if ip.is_unique_local())
        };
        let behind = if addresses.iter().filter(|ip| is_outside(**ip)).all(|ip| is_private(&ip)) {
            "; all are private, so clients from elsewhere need a forwarded port"
        } else {
            ""
        };
        Finding::ok(SUBJECT, format!("{name}: {shown}, with a default route{behind}"))
    }
}

/// Returns whether packets of an address leave the segment.
fn is_outside(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

/// Reads the addresses of IPv4 from the table of routes to this host, and the default route.
fn v4(machine: &Machine) -> Option<Family> {
    let trie = machine.text("proc/net/fib_trie")?;
    let (mut addresses, mut last) = (Vec::new(), None);
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last
            && !addresses.contains(&IpAddr::V4(address))
        {
            addresses.push(IpAddr::V4(address));
        }
    }
    // Iface, destination, gateway, flags, and more (proc(5)).
    let is_default = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let has = |place: usize, text: &str| fields.get(place).is_some_and(|field| *field == text);
        has(1, "00000000")
            && has(7, "00000000")
            && flags(fields.get(3)) & (ROUTE_UP | ROUTE_REJECT) == ROUTE_UP
    };
    let has_route = machine.text("proc/net/route").is_some_and(|routes| routes.lines().any(is_default));
    Some(Family { name: "IPv4", all: "0.0.0.0", addresses, has_route })
}

fn v6(machine: &Machine) -> Option<Family> {
    let table = machine.text("proc/net/if_inet6")?;
    // Address, index, length of the prefix, scope, flags, interface (proc(5)).
    let address = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let address = Ipv6Addr::from(u128::from_str_radix(fields.first()?, 16).ok()?);
        (*fields.get(3)? == SCOPE_GLOBAL).then_some(IpAddr::V6(address))
    };
    // Destination, length of its prefix, …, flags as the ninth, interface.
    let is_default = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_all = fields.first().is_some_and(|to| to.bytes().all(|digit| digit == b'0'));
        is_all
            && fields.get(1) == Some(&"00")
            && fields.last() != Some(&"lo")
            && flags(fields.get(8)) & (ROUTE_UP | ROUTE_REJECT) == ROUTE_UP
    };
    let has_route = machine.text("proc/net/ipv6_route").is_some_and(|routes| routes.lines().any(is_default));
    Some(Family {
        name: "IPv6",
        all: "[::]",
        addresses: table.lines().filter_map(address).collect(),
        has_route,
    })
}

fn flags(field: Option<&&str>) -> u32 {
    field.and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::listeners;
    use super::super::machine::tests::{MadeUp, config, made_up};
    use super::*;
    use crate::finding::Level;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.7\n        /32 host LOCAL\n\
                        |-- 192.0.2.255\n        /32 link BROADCAST\n";
    const ROUTE: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\n";
    const INET6: &str = "20010db8000000000000000000000007 02 40 00 80 eth0\nfe800000000000000000000000000001 02 40 20 80 eth0\n";
    const ZERO: &str = "00000000000000000000000000000000";

    fn found(made: &MadeUp, variables: &[(&str, &str)]) -> Vec<(Level, String)> {
        let findings = examine(&made.machine, &listeners(&config(variables)));
        findings.into_iter().map(|finding| (finding.level, finding.found)).collect()
    }

    #[test]
    fn both_families_are_told_with_their_addresses_and_routes() {
        let route6 = |flags: &str, to: &str| format!("{ZERO} 00 {ZERO} 00 {ZERO} 0 0 0 {flags} {to}\n");
        let made = made_up(&[
            ("proc/net/fib_trie", TRIE),
            ("proc/net/route", ROUTE),
            ("proc/net/if_inet6", INET6),
            ("proc/net/ipv6_route", &route6("00000003", "eth0")),
        ]);
        let expected = ["IPv4: 192.0.2.7, with a default route", "IPv6: 2001:db8::7, with a default route"];
        assert_eq!(found(&made, &[]), expected.map(|text| (Level::Ok, text.to_owned())));
        made.write("proc/net/ipv6_route", &route6("00200200", "lo"));
        made.write("proc/net/fib_trie", "|-- 127.0.0.1\n/32 host LOCAL\n");
        let [v4, v6] = found(&made, &[]).try_into().unwrap();
        assert!(v4.0 == Level::Advice && v4.1.starts_with("no IPv4 address but local ones"), "{v4:?}");
        assert!(v6.0 == Level::Advice && v6.1.contains("2001:db8::7) and no default route"), "{v6:?}");
    }

    #[test]
    fn private_addresses_and_addresses_of_others_are_told() {
        let mut made = made_up(&[
            ("proc/net/fib_trie", &TRIE.replace("192.0.2.7", "10.0.0.7")),
            ("proc/net/route", ROUTE),
        ]);
        made.machine.has_ipv6 = || false;
        let all = found(
            &made,
            &[("SHOAL_UDP_LISTEN", "10.0.0.7:6969,192.0.2.8:6969"), ("SHOAL_HTTP_LISTEN", "[::]:6969")],
        );
        assert!(all[0].1.contains("all are private"), "{all:?}");
        let missing = "this host has no IPv6, and http.listen lists [::]:6969";
        assert_eq!(all[1], (Level::Problem, missing.to_owned()));
        assert_eq!(
            all[2],
            (Level::Problem, "udp.listen names 192.0.2.8, which is no address of this host".to_owned())
        );
        // The tracker starts with the default, and says what it leaves out.
        let by_default = found(&made, &[]);
        let missing: Vec<_> = by_default.iter().filter(|(_, found)| found.contains("no IPv6")).collect();
        assert_eq!(missing.len(), 2, "{by_default:?}");
        assert!(missing.iter().all(|(level, _)| *level == Level::Advice), "{by_default:?}");
    }
}
