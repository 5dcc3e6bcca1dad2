//! `shoal doctor` on this machine, in a network of its own.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use shoal_testkit::namespace::Namespace;
use shoal_testkit::process::remove_settings;

use crate::kit::harness::{Tracker, run};

/// The findings of the command, as JSON.
struct Examined {
    code: Option<i32>,
    findings: Vec<Value>,
}

impl Examined {
    fn read(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let told: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Self { code: output.status.code(), findings: told["findings"].as_array().unwrap().clone() }
    }

    /// Asserts that there is a finding of this level whose text begins so.
    fn assert_has(&self, level: &str, subject: &str, found: &str) {
        let is_it = |finding: &&Value| {
            finding["level"] == level
                && finding["subject"] == subject
                && finding["found"].as_str().is_some_and(|text| text.starts_with(found))
        };
        let finding = self.findings.iter().find(is_it);
        let finding =
            finding.unwrap_or_else(|| panic!("no {level} {subject} {found:?} in {:#?}", self.findings));
        assert_eq!(finding.get("action").is_some(), level != "ok", "{finding}");
    }
}

fn examine(namespace: &Namespace) -> Examined {
    let mut command = namespace.command(Path::new(env!("CARGO_BIN_EXE_shoal"))).unwrap();
    remove_settings(&mut command);
    Examined::read(&command.args(["doctor", "--json"]).output().unwrap())
}

#[test]
fn ports_addresses_and_the_firewall_of_a_host_are_seen() {
    let host = Namespace::new().unwrap();
    host.ip("link set lo up\n").unwrap();
    let alone = examine(&host);
    assert_eq!(alone.code, Some(0), "{:#?}", alone.findings);
    alone.assert_has("advice", "addresses", "no IPv4 address but local ones");
    alone.assert_has("ok", "ports", "free: udp 0.0.0.0:6969");
    alone.assert_has("ok", "firewall", "open: tcp port 6969, udp port 6969");

    let network = "link add s0 type veth peer name s1\nlink set s1 up\nlink set s0 up\n\
                   address add 192.0.2.7/24 dev s0\nroute add default via 192.0.2.1\n";
    host.ip(network).unwrap();
    let other = host.run(|| UdpSocket::bind("0.0.0.0:6969").unwrap());
    let chain = "add table inet t; add chain inet t in { type filter hook input priority 0; policy drop; }; \
                 add rule inet t in ct state established,related accept; add rule inet t in tcp dport { 22, 6969 } accept";
    host.run_program("nft", &[chain]).unwrap();
    let busy = examine(&host);
    assert_eq!(busy.code, Some(1));
    busy.assert_has("ok", "addresses", "IPv4: 192.0.2.7, with a default route");
    busy.assert_has("problem", "ports", "udp 0.0.0.0:6969 (udp.listen) is held by ");
    busy.assert_has(
        "problem",
        "firewall",
        "the firewall drops what comes to udp port 6969 over IPv4 (chain in of table inet t)",
    );
    busy.assert_has("ok", "firewall", "open: tcp port 6969;");

    drop(other);
    host.run_program("nft", &["insert rule inet t in udp dport 6969 accept"]).unwrap();
    let open = examine(&host);
    assert_eq!(open.code, Some(0), "{:#?}", open.findings);
    open.assert_has("ok", "firewall", "open: tcp port 6969, udp port 6969;");
}

#[test]
fn the_running_tracker_is_no_stranger() {
    let tracker = Tracker::start(&[]);
    let (udp, control) = (tracker.udp[0].to_string(), tracker.control.to_string());
    let settings =
        [("SHOAL_UDP_LISTEN", &*udp), ("SHOAL_HTTP_LISTEN", ""), ("SHOAL_CONTROL_LISTEN", &*control)];
    let examined = Examined::read(&run(&["doctor", "--json"], &settings));
    let found = format!("the tracker runs (process {}) at udp {udp}, tcp {control}", tracker.pid());
    examined.assert_has("ok", "ports", &found);
}

#[test]
fn the_findings_are_lines_with_what_to_do_below() {
    let output = run(&["doctor"], &[("SHOAL_MEMORY_MAX", "16384GiB")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let (_, rest) = text.split_once("PROBLEM  memory: memory.max = ").expect("no machine has so much memory");
    assert!(rest.lines().nth(1).unwrap().starts_with("         -> set memory.max to "), "{text}");
    assert_eq!(run(&["doctor"], &[("SHOAL_UDP_IO", "epoll")]).status.code(), Some(2));
}
