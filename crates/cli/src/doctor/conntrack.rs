//! Connection tracking, whose table a tracker with many clients fills first.

use super::firewall::{Packet, Rules};
use super::machine::Machine;
use super::{Listener, ports_for_others};
use crate::finding::Finding;
use shoal_runtime::advice;

const SUBJECT: &str = "conntrack";

/// A table that is fuller than this, in per cent, soon drops packets.
const FULL_PERCENT: u64 = 80;

pub(super) fn examine(machine: &Machine, rules: &Rules, listeners: &[Listener]) -> Vec<Finding> {
    let file = |name: &str| machine.sysctl(&format!("net.netfilter.nf_conntrack_{name}"));
    let (Some(used), Some(max)) = (file("count"), file("max")) else {
        let is_visible = machine.text("proc/net/dev").is_some();
        return is_visible.then(|| Finding::ok(SUBJECT, "connections are not tracked")).into_iter().collect();
    };
    let found = match max {
        0 => format!("the table has {used} entries and no limit"),
        _ => format!("the table has {used} of {max} entries"),
    };
    let table = if max > 0 && used.saturating_mul(100) >= max.saturating_mul(FULL_PERCENT) {
        let action = format!(
            "{}, and exempt the ports of the tracker",
            advice::set_sysctl("net.netfilter.nf_conntrack_max", max.saturating_mul(4))
        );
        Finding::problem(
            SUBJECT,
            format!("{found}: when it is full, the kernel drops packets of new clients"),
            action,
        )
    } else {
        Finding::ok(SUBJECT, found)
    };
    let mut findings = vec![table];
    // Each UDP client has an entry for minutes, and comes again with another port.
    let ports = ports_for_others(listeners).into_iter().filter(|(is_udp, _)| *is_udp);
    for (_, port) in ports {
        let packet = Packet { is_udp: true, port, is_v6: false };
        match rules.is_exempt(&packet) {
            Some(true) => findings.push(Finding::ok(SUBJECT, format!("udp port {port} is exempt"))),
            Some(false) if used > 0 => findings.push(Finding::advice(
                SUBJECT,
                format!("udp port {port} is tracked: each client takes an entry, and the table often overflows first"),
                exempt(port),
            )),
            _ => {}
        }
    }
    findings
}

/// Returns the command that exempts a port.
fn exempt(port: u16) -> String {
    format!(
        "nft 'table inet shoal {{ chain in {{ type filter hook prerouting priority raw; udp dport {port} notrack; }}; \
         chain out {{ type filter hook output priority raw; udp sport {port} notrack; }}; }}'"
    )
}

#[cfg(test)]
mod tests {
    use super::super::listeners;
    use super::super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_full_table_is_a_problem_and_a_tracked_port_is_advice() {
        let mut made = made_up(&[("proc/net/dev", "")]);
        let rules = |text: &'static str| {
            let mut made = made_up(&[]);
            made.machine.run = Box::new(move |program, _| match program {
                "nft" => Ok(text.to_owned()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            });
            Rules::read(&made.machine)
        };
        let listeners = listeners(&config(&[]));
        let untracked = examine(&made.machine, &rules("{\"nftables\": []}"), &listeners);
        assert!(untracked.len() == 1 && untracked[0].level == Level::Ok);
        made.write("proc/sys/net/netfilter/nf_conntrack_max", "1000");
        made.write("proc/sys/net/netfilter/nf_conntrack_count", "799");
        let levels = |made: &super::super::machine::tests::MadeUp, rules: &Rules| {
            examine(&made.machine, rules, &listeners).iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(&made, &rules("{\"nftables\": []}")), [Level::Ok, Level::Advice]);
        made.write("proc/sys/net/netfilter/nf_conntrack_count", "800");
        let exempt = "{\"nftables\": [
            {\"chain\": {\"family\": \"inet\", \"table\": \"t\", \"name\": \"c\", \"type\": \"filter\", \"hook\": \"prerouting\"}},
            {\"rule\": {\"family\": \"inet\", \"table\": \"t\", \"chain\": \"c\", \"expr\": [
                {\"match\": {\"op\": \"==\", \"left\": {\"payload\": {\"protocol\": \"udp\", \"field\": \"dport\"}}, \"right\": 6969}},
                {\"notrack\": null}]}}]}";
        assert_eq!(levels(&made, &rules(exempt)), [Level::Problem, Level::Ok]);
        made.machine.run = Box::new(|_, _| Err(std::io::ErrorKind::NotFound.into()));
        // Without the rules, nothing is known of the port.
        assert_eq!(levels(&made, &Rules::read(&made.machine)), [Level::Problem]);
        made.write("proc/sys/net/netfilter/nf_conntrack_max", "0");
        assert_eq!(levels(&made, &Rules::read(&made.machine)), [Level::Ok]);
    }
}
