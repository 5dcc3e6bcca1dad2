//! The XDP data path: whether the interfaces of udp.xdp can have it.

use serde_json::Value;
use shoal_config::Config;
use shoal_xdp::interface::Interface;
use shoal_xdp::route::SWITCHES;

use super::machine::Machine;
use super::workers;
use crate::finding::Finding;
use shoal_runtime::advice;

const SUBJECT: &str = "xdp";

/// The kernel that lets an upgraded tracker go on with the sockets of the running one.
const LINUX: (u32, u32) = (6, 4);

/// The limit of many drivers for XDP.
const MTU_MAX: u32 = 3498;

/// The capabilities of `linux/capability.h` that the data path takes at the start.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

pub(super) fn examine(machine: &Machine, config: &Config) -> Vec<Finding> {
    let interfaces = &config.xdp.interfaces;
    if interfaces.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if machine.kernel().is_some_and(|version| version < LINUX) {
        findings.push(Finding::problem(
            SUBJECT,
            "the data path takes Linux 6.4",
            "use a newer kernel, or empty udp.xdp.interfaces",
        ));
    }
    let missing: Vec<&str> = CAPABILITIES
        .into_iter()
        .filter(|(_, number)| machine.has_capability(*number) == Some(false))
        .map(|(name, _)| name)
        .collect();
    if !missing.is_empty() {
        let found = format!("this user lacks {}", missing.join(", "));
        findings.push(Finding::advice(
            SUBJECT,
            found,
            "start the tracker as root, or give it the capabilities (docs/xdp.md, \"In systemd\")",
        ));
    }
    let off = SWITCHES.into_iter().filter(|switch| machine.sysctl(switch) == Some(0));
    findings.extend(off.map(|switch| {
        let found = format!(
            "{switch} is off; the tracker turns it on if it can write to /proc/sys, which the unit forbids"
        );
        Finding::advice(
            SUBJECT,
            found,
            format!("{}, and a file in /etc/sysctl.d", advice::set_sysctl(switch, 1)),
        )
    }));
    findings.extend(interfaces.iter().flat_map(|name| of_interface(machine, config, name.as_str())));
    findings
}

fn of_interface(machine: &Machine, config: &Config, name: &str) -> Vec<Finding> {
    let interface = match (machine.interface)(name) {
        Ok(interface) => interface,
        Err(error) => {
            return vec![Finding::problem(
                SUBJECT,
                error.to_string(),
                "`ip link` lists the interfaces; set udp.xdp.interfaces",
            )];
        }
    };
    if let Some(obstacle) = interface.obstacle() {
        return vec![Finding::problem(SUBJECT, format!("{name} cannot have the data path"), obstacle)];
    }
    let sockets = interface.sockets();
    let Interface { queues, transmit_queues, driver, mtu, is_up, .. } = interface;
    let workers = workers(config);
    let driver = if driver.is_empty() { "none".to_owned() } else { driver };
    let mut findings = vec![Finding::ok(
        SUBJECT,
        format!("{name}: driver {driver}, {sockets} queues for {workers} workers, MTU {mtu}"),
    )];
    let mut advise = |found: String, action: String| findings.push(Finding::advice(SUBJECT, found, action));
    if !is_up {
        advise(format!("{name} is down"), format!("ip link set {name} up"));
    }
    if mtu > MTU_MAX {
        advise(
            format!("{name} has an MTU of {mtu}, and many drivers permit at most {MTU_MAX} for XDP"),
            format!("ip link set {name} mtu 1500"),
        );
    }
    if sockets == 0 || !(sockets as usize).is_multiple_of(workers) {
        let found = format!(
            "{name} has {sockets} queues for {workers} workers, so some workers get more than others"
        );
        advise(found, format!("ethtool -L {name} combined {workers}"));
    }
    if transmit_queues < queues {
        let found = format!(
            "{name} has more receive queues ({queues}) than transmit queues ({transmit_queues}); the sockets serve the others"
        );
        advise(found, format!("ethtool -L {name} rx {transmit_queues}"));
    }
    if let Some(program) = attached(machine, name) {
        let found = format!(
            "another XDP program ({program}) may be attached to {name}, unless it is the running tracker's"
        );
        advise(found, format!("ip link show {name}; ip link set {name} xdp off"));
    }
    findings
}

/// Returns the number of the XDP program on an interface.
fn attached(machine: &Machine, name: &str) -> Option<u64> {
    let text = (machine.run)("ip", &["-json", "-details", "link", "show", "dev", name]).ok()?;
    let links: Value = serde_json::from_str(&text).ok()?;
    links[0]["xdp"]["prog"]["id"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    fn card() -> Interface {
        Interface {
            name: "eth0".to_owned(),
            index: 2,
            queues: 4,
            transmit_queues: 4,
            driver: "ice".to_owned(),
            mac: [2; 6],
            mtu: 1500,
            is_up: true,
            strips_vlan: false,
            vlans: Vec::new(),
        }
    }

    const ON: [(&str, &str); 2] = [("SHOAL_UDP_XDP_INTERFACES", "eth0"), ("SHOAL_WORKERS_COUNT", "4")];

    #[test]
    fn nothing_is_said_unless_it_is_configured_and_a_good_card_is_praised() {
        let mut made = made_up(&[("proc/sys/kernel/osrelease", "6.12.1")]);
        assert!(examine(&made.machine, &config(&[])).is_empty());
        made.machine.interface = |_| Ok(card());
        let [finding] = examine(&made.machine, &config(&ON)).try_into().unwrap();
        assert_eq!(finding.found, "eth0: driver ice, 4 queues for 4 workers, MTU 1500");
    }

    #[test]
    fn what_stands_in_the_way_is_told() {
        let mut made = made_up(&[
            ("proc/sys/kernel/osrelease", "6.1.0"),
            ("proc/self/status", "CapEff:\t0000000000003000\n"),
            ("proc/sys/net/ipv4/conf/lo/forwarding", "0"),
        ]);
        let found = |made: &super::super::machine::tests::MadeUp| {
            let all = examine(&made.machine, &config(&ON));
            all.into_iter().map(|finding| (finding.level, finding.found)).collect::<Vec<_>>()
        };
        let all = found(&made);
        assert_eq!(all[0].0, Level::Problem);
        assert_eq!(all[1].1, "this user lacks CAP_PERFMON, CAP_BPF");
        assert!(all[2].1.starts_with("net.ipv4.conf.lo.forwarding is off"));
        assert_eq!(all[3], (Level::Problem, "there is no network interface \"eth0\"".to_owned()));
        made.machine.interface = |_| Ok(Interface { driver: "bonding".to_owned(), ..card() });
        assert_eq!(found(&made)[3].0, Level::Problem);
        made.machine.interface =
            |_| Ok(Interface { queues: 6, mtu: 9000, is_up: false, transmit_queues: 3, ..card() });
        made.machine.run = Box::new(|_, _| Ok("[{\"xdp\": {\"prog\": {\"id\": 9}}}]".to_owned()));
        let all = found(&made);
        let parts =
            ["3 queues for 4", "is down", "9000", "3 queues for 4", "more receive queues (6)", "program (9)"];
        assert_eq!(all.len(), 3 + parts.len(), "{all:?}");
        for ((_, found), part) in all[3..].iter().zip(parts) {
            assert!(found.contains(part), "{part:?} is not in {found}");
        }
    }
}
