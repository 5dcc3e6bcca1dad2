//! Limits of the kernel on files, buffers and queues.

use shoal_config::{Auto, Config};
use shoal_net::SocketSettings;
use shoal_net::stream::BACKLOG;

use super::machine::Machine;
use super::sockets::Process;
use super::{listeners, workers};
use crate::finding::Finding;
use shoal_runtime::{advice, descriptors};

const FILES: &str = "files";
const SYSCTL: &str = "sysctl";

/// With fewer connections, a tracker for HTTP or browsers turns clients away.
const CONNECTIONS_FEW: u64 = 10_000;

pub(super) fn examine(machine: &Machine, config: &Config, tracker: Option<&Process>) -> Vec<Finding> {
    let mut all: Vec<Finding> = files(machine, config, tracker).into_iter().collect();
    all.extend(parameters(machine, config));
    all.extend(softnet(machine));
    all
}

/// Judges the limit on open files, of the running tracker if there is one.
fn files(machine: &Machine, config: &Config, tracker: Option<&Process>) -> Option<Finding> {
    let (path, whose) = match tracker {
        Some(Process { number, .. }) => (format!("proc/{number}/limits"), "the running tracker"),
        None => ("proc/self/limits".to_owned(), "this user; a unit has its own"),
    };
    let text = machine.text(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // The soft limit, which the tracker raises to the hard one, comes first.
    let hard = line.split_whitespace().nth(1)?;
    let limit = if hard == "unlimited" { u64::MAX } else { hard.parse().ok()? };
    let of_a_worker = listeners(config).len();
    let possible = descriptors::for_connections(limit, workers(config), of_a_worker);
    let found = format!("up to {possible} connections by the limit on open files ({hard}) of {whose}");
    let wanted = match config.http.connections_max {
        Auto::Set(wanted) => u64::from(wanted),
        Auto::Auto => CONNECTIONS_FEW,
    };
    Some(if possible < wanted {
        Finding::advice(FILES, format!("{found}, and {wanted} or more are wanted"), advice::RAISE_OPEN_FILES)
    } else {
        Finding::ok(FILES, found)
    })
}

/// Compares the parameters of the kernel with what the configuration needs.
fn parameters(machine: &Machine, config: &Config) -> Vec<Finding> {
    let has_udp = !config.udp.listen.is_empty();
    let has_tcp = !(config.http.listen.is_empty() && config.tls.listen.is_empty());
    let queue = u64::from(BACKLOG.unsigned_abs());
    let waiting = "connections are refused when many clients come at once, as after a restart";
    let wanted = [
        (has_udp, "net.core.rmem_max", config.udp.receive_buffer.0, advice::BUFFERS_SMALL),
        (has_udp, "net.core.wmem_max", SocketSettings::SEND_BUFFER_BYTES as u64, advice::BUFFERS_SMALL),
        (has_tcp, "net.core.somaxconn", queue, waiting),
        (has_tcp, "net.ipv4.tcp_max_syn_backlog", queue, waiting),
        (has_tcp, "net.ipv4.tcp_syncookies", 1, "half-open connections of an attacker keep clients out"),
    ];
    let (mut findings, mut enough) = (Vec::new(), Vec::new());
    for (_, name, least, why) in wanted.into_iter().filter(|(is_used, ..)| *is_used) {
        match machine.sysctl(name) {
            Some(value) if value >= least => enough.push(name),
            Some(value) => {
                let found = format!("{name} is {value}, less than {least}: {why}");
                let action = format!(
                    "{}; the line `{name} = {least}` in /etc/sysctl.d/60-shoal.conf keeps it",
                    advice::set_sysctl(name, least)
                );
                findings.push(Finding::advice(SYSCTL, found, action));
            }
            // A container may not show it.
            None => {}
        }
    }
    if !enough.is_empty() {
        findings.push(Finding::ok(SYSCTL, format!("enough: {}", enough.join(", "))));
    }
    findings
}

/// Returns whether the kernel has dropped packets before they reached a socket (`/proc/net/softnet_stat`).
fn softnet(machine: &Machine) -> Option<Finding> {
    let table = machine.text("proc/net/softnet_stat")?;
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    let dropped: u64 = table.lines().filter_map(column).sum();
    if dropped == 0 {
        return None;
    }
    let name = "net.core.netdev_max_backlog";
    let larger = machine.sysctl(name)?.saturating_mul(4);
    let found = format!(
        "{dropped} packets since the boot were dropped because a processor did not keep up with its network card"
    );
    Some(Finding::advice(
        SYSCTL,
        found,
        format!("{}, or more receive queues (`ethtool -l DEV`)", advice::set_sysctl(name, larger)),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    #[test]
    fn the_limit_of_the_running_tracker_counts() {
        let line = |hard: &str| {
            format!(
                "Limit   Soft Limit  Hard Limit Units\nMax open files            1024                 {hard}               files\n"
            )
        };
        let made = made_up(&[("proc/self/limits", &line("4096")), ("proc/7/limits", &line("1000000"))]);
        let judged = |tracker, variables: &[_]| files(&made.machine, &config(variables), tracker).unwrap();
        let own = judged(None, &[("SHOAL_WORKERS_COUNT", "2")]);
        assert!(own.level == Level::Advice && own.action.unwrap().contains("LimitNOFILE="));
        let tracker = Process { number: 7, name: "shoal".to_owned() };
        let of_tracker = judged(Some(&tracker), &[]);
        assert!(
            of_tracker.level == Level::Ok && of_tracker.found.contains("(1000000) of the running tracker")
        );
        assert_eq!(judged(Some(&tracker), &[("SHOAL_HTTP_CONNECTIONS_MAX", "2000000")]).level, Level::Advice);
    }

    #[test]
    fn a_parameter_that_is_too_small_comes_with_its_command() {
        let made =
            made_up(&[("proc/sys/net/core/rmem_max", "212992"), ("proc/sys/net/core/somaxconn", "4096")]);
        let [small, enough] = parameters(&made.machine, &config(&[])).try_into().unwrap();
        assert_eq!(small.level, Level::Advice);
        assert!(small.found.starts_with("net.core.rmem_max is 212992, less than 4194304"), "{small:?}");
        assert!(small.action.unwrap().starts_with("sysctl -w net.core.rmem_max=4194304;"));
        assert_eq!(enough.found, "enough: net.core.somaxconn");
        let without_udp = parameters(&made.machine, &config(&[("SHOAL_UDP_LISTEN", "")]));
        assert_eq!(without_udp.len(), 1);
    }

    #[test]
    fn packets_that_no_processor_took_are_counted() {
        let made = made_up(&[("proc/sys/net/core/netdev_max_backlog", "1000")]);
        for (table, expected) in [
            ("0001 00000000 0\n0002 00000000 0", None),
            ("0001 0000000a 0\n0002 00000001 0", Some("11 packets")),
        ] {
            made.write("proc/net/softnet_stat", table);
            let finding = softnet(&made.machine);
            assert_eq!(finding.is_some(), expected.is_some());
            assert!(expected.is_none_or(|text| finding.unwrap().found.starts_with(text)));
        }
    }
}
