//! The ports of the configuration: free, held by the running tracker, or held by another program.

use std::net::{Ipv6Addr, SocketAddr};

use super::Listener;
use super::machine::Machine;
use super::sockets::{Process, Sockets};
use crate::finding::Finding;
use shoal_runtime::advice;

const SUBJECT: &str = "ports";

/// `CAP_NET_BIND_SERVICE` of `linux/capability.h`.
const BIND_SERVICE: u32 = 10;

/// The running tracker, if it has one of the ports, and the findings.
pub(super) struct Tracker {
    pub(super) process: Option<Process>,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn examine(machine: &Machine, sockets: &Sockets, listeners: &[Listener]) -> Tracker {
    let (mut free, mut held, mut process, mut findings) = (Vec::new(), Vec::new(), None, Vec::new());
    for listener in listeners {
        let Listener { key, is_udp, address } = *listener;
        let shown = format!("{} {address}", listener.transport());
        let way = || {
            format!(
                "`{}` shows what it is; stop it, or change {key}",
                advice::show_holder(is_udp, address.port())
            )
        };
        match sockets.at(is_udp, address).next().map(|socket| sockets.owner(socket)) {
            None => match dual_stack(sockets, is_udp, address) {
                Some(holder) => {
                    let found = format!("{shown} ({key}) may be held by {holder}, which has [::]");
                    findings.push(Finding::advice(SUBJECT, found, way()));
                }
                None => free.push((shown, address.port())),
            },
            Some(Some(owner)) if owner.is_tracker() => {
                held.push(shown);
                process = Some(owner);
            }
            Some(Some(Process { number, name })) => {
                let found = format!("{shown} ({key}) is held by {name} (process {number})");
                findings.push(Finding::problem(SUBJECT, found, way()));
            }
            Some(None) if machine.is_root => {
                let found = format!("{shown} ({key}) is held outside of this container or by the kernel");
                findings.push(Finding::problem(SUBJECT, found, way()));
            }
            Some(None) => {
                let found = format!("{shown} ({key}) is held by a process that this user cannot see");
                findings.push(Finding::advice(SUBJECT, found, "sudo shoal doctor"));
            }
        }
    }
    if let Some(Process { number, .. }) = &process {
        findings.push(Finding::ok(
            SUBJECT,
            format!("the tracker runs (process {number}) at {}", held.join(", ")),
        ));
    }
    if !free.is_empty() {
        let shown: Vec<&str> = free.iter().map(|(shown, _)| &**shown).collect();
        findings.push(Finding::ok(SUBJECT, format!("free: {}", shown.join(", "))));
    }
    findings.extend(privileged(machine, free.iter().map(|(_, port)| *port)));
    findings.extend(ephemeral(machine, listeners));
    Tracker { process, findings }
}

/// Returns the other program whose socket at `[::]` may have an IPv4 address as well. The files of the kernel do not tell
/// whether the socket has `IPV6_V6ONLY`.
fn dual_stack(sockets: &Sockets, is_udp: bool, address: SocketAddr) -> Option<String> {
    if address.is_ipv6() {
        return None;
    }
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    let socket = sockets.at(is_udp, everywhere).find(|socket| socket.address.ip().is_unspecified())?;
    match sockets.owner(socket) {
        Some(owner) if owner.is_tracker() => None,
        Some(Process { number, name }) => Some(format!("{name} (process {number})")),
        None => Some("a process that cannot be seen from here".to_owned()),
    }
}

/// Returns what is missing for a port below 1024. An operator who is root decides about the tracker's user elsewhere.
fn privileged(machine: &Machine, mut ports: impl Iterator<Item = u16>) -> Option<Finding> {
    let first = machine.sysctl("net.ipv4.ip_unprivileged_port_start").unwrap_or(1024);
    let port = ports.find(|port| u64::from(*port) < first)?;
    if machine.has_capability(BIND_SERVICE)? {
        return None;
    }
    let found = format!("this user may not bind ports below {first}, such as {port}");
    Some(Finding::advice(
        SUBJECT,
        found,
        format!("start the tracker as root with process.user, or {}", advice::PERMIT_PORTS),
    ))
}

/// Returns a port that the kernel may give to another program's connection while the tracker is stopped.
fn ephemeral(machine: &Machine, listeners: &[Listener]) -> Option<Finding> {
    let range = machine.text("proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u16>().ok());
    let range = ends.next()?..=ends.next()?;
    let reserved = machine.text("proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let is_reserved = |port: u16| {
        reserved
            .split(',')
            .filter_map(|part| shoal_access::ports::Ports::parse(part.trim()))
            .any(|part| part.0.contains(&port))
    };
    let ports = listeners.iter().map(|listener| listener.address.port());
    let port = { ports }.find(|port| range.contains(port) && !is_reserved(*port))?;
    let found = format!(
        "port {port} is among those that the kernel gives to outgoing connections, and may be taken at a restart"
    );
    // The command replaces the list.
    let all = if reserved.is_empty() { port.to_string() } else { format!("{reserved},{port}") };
    Some(Finding::advice(SUBJECT, found, advice::set_sysctl("net.ipv4.ip_local_reserved_ports", all)))
}

#[cfg(test)]
mod tests {
    use super::super::listeners;
    use super::super::machine::tests::{MadeUp, config, made_up};
    use super::*;
    use crate::finding::Level;

    /// A machine whose socket with the inode 41 has UDP port 6969.
    fn with_socket() -> MadeUp {
        let table = "head\n 1: 00000000:1B39 00000000:0000 07 0:0 00:0 0 0 0 41 2 0 0\n";
        made_up(&[("proc/net/udp", table)])
    }

    fn examined(made: &MadeUp, variables: &[(&str, &str)]) -> Tracker {
        examine(&made.machine, &Sockets::read(&made.machine), &listeners(&config(variables)))
    }

    #[test]
    fn a_free_port_is_told_and_so_is_the_running_tracker() {
        let tracker = examined(&made_up(&[]), &[]);
        assert!(tracker.process.is_none() && tracker.findings.len() == 1);
        assert!(
            tracker.findings[0].found.starts_with("free: udp 0.0.0.0:6969, udp [::]:6969, tcp 0.0.0.0:6969")
        );
        let made = with_socket();
        made.add_process(7, "shoal", 41);
        let tracker = examined(&made, &[]);
        assert_eq!(tracker.process.unwrap().number, 7);
        assert_eq!(tracker.findings[0].found, "the tracker runs (process 7) at udp 0.0.0.0:6969");
        assert!(tracker.findings.iter().all(|finding| finding.level == Level::Ok));
    }

    #[test]
    fn a_port_of_another_program_is_a_problem_and_one_of_an_unseen_process_is_not() {
        let mut made = with_socket();
        let finding = &examined(&made, &[]).findings[0];
        assert!(finding.level == Level::Problem && finding.found.contains("container"), "{finding:?}");
        made.machine.is_root = false;
        let finding = &examined(&made, &[]).findings[0];
        assert!(finding.level == Level::Advice && finding.found.contains("cannot see"), "{finding:?}");
        made.add_process(9, "opentracker", 41);
        let finding = &examined(&made, &[]).findings[0];
        assert!(
            finding.level == Level::Problem && finding.found.contains("opentracker (process 9)"),
            "{finding:?}"
        );
        assert!(finding.action.as_ref().unwrap().contains("ss -lunp 'sport = :6969'"));
    }

    #[test]
    fn a_socket_for_both_families_may_hold_an_address_of_ipv4() {
        let everywhere = "0".repeat(32);
        let table = format!("head\n 0: {everywhere}:1B39 {everywhere}:0000 0A 0:0 00:0 0 0 0 42 1\n");
        let made = made_up(&[("proc/net/tcp6", &table)]);
        made.add_process(9, "caddy", 42);
        let listen = [("SHOAL_UDP_LISTEN", ""), ("SHOAL_HTTP_LISTEN", "0.0.0.0:6969")];
        let finding = &examined(&made, &listen).findings[0];
        let found = "tcp 0.0.0.0:6969 (http.listen) may be held by caddy (process 9), which has [::]";
        assert_eq!((finding.level, &*finding.found), (Level::Advice, found));
        made.write("proc/9/comm", "shoal");
        assert!(examined(&made, &listen).findings[0].found.starts_with("free: tcp 0.0.0.0:6969"));
    }

    #[test]
    fn ports_that_need_a_privilege_or_may_be_taken_are_told() {
        let made = made_up(&[
            ("proc/self/status", "CapEff:\t0\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
            ("proc/sys/net/ipv4/ip_local_reserved_ports", ""),
        ]);
        let listen = [("SHOAL_HTTP_LISTEN", "0.0.0.0:80,0.0.0.0:40000")];
        let findings = examined(&made, &listen).findings;
        assert!(findings[1].action.as_ref().unwrap().contains("CAP_NET_BIND_SERVICE"), "{findings:?}");
        assert!(
            findings[2].action.as_ref().unwrap().ends_with("ip_local_reserved_ports=40000"),
            "{findings:?}"
        );
        made.write("proc/self/status", "CapEff:\t400\n");
        made.write("proc/sys/net/ipv4/ip_local_reserved_ports", "8080,9000-9100\n");
        let findings = examined(&made, &listen).findings;
        assert!(findings[1].action.as_ref().unwrap().ends_with("=8080,9000-9100,40000"), "{findings:?}");
        made.write("proc/sys/net/ipv4/ip_local_reserved_ports", "39000-41000");
        assert_eq!(examined(&made, &listen).findings.len(), 1);
    }
}
