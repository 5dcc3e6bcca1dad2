//! The Debian package, under a real systemd.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use shoal_testkit::debian::Package;

use crate::kit::client::{Announce, Client};
use crate::udp::hash;
use crate::upgrade::Load;

use super::machine::{Machine, PUBLIC};

/// Where the tracker of the package serves UDP and HTTP.
const TRACKER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(PUBLIC), 6969);

/// The directories in which a package, the service manager and the tracker write.
const WRITTEN: [&str; 4] = ["/etc", "/usr", "/var", "/run"];

/// Makes the package of a version, and puts it into the machine. Returns its path there.
pub(super) fn package(machine: &Machine, version: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_shoal"));
    let manual = program.with_file_name("examples").join("manual");
    assert!(manual.is_file(), "cargo build --package shoal --example manual");
    let licences = "of a test\n";
    let package =
        Package { program, manual: &manual, licences, version, time_s: 1_800_000_000, for_release: false };
    let made = package.make(&machine.path("/tmp")).unwrap();
    format!("/tmp/{}", made.file_name().unwrap().to_str().unwrap())
}

/// Lets dpkg do something. Returns what it and the scripts of the package print. Only the page uses apt, which takes longer.
fn dpkg(machine: &Machine, arguments: &[&str]) -> String {
    let arguments = [&["--force-unsafe-io"][..], arguments].concat();
    let output = machine.command_within("150", "dpkg", &arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

fn install(machine: &Machine, package: &str) -> String {
    dpkg(machine, &["--install", package])
}

/// Returns what belongs to the package and the tracker.
fn traces(machine: &Machine) -> String {
    let find = [&WRITTEN[..], &["-path", "*shoal*"]].concat();
    let users = machine.run("sh", &["-c", "grep shoal /etc/passwd /etc/group /etc/shadow || true"]);
    machine.run("find", &find) + &users
}

#[test]
fn the_package_serves_at_once_and_leaves_no_trace() {
    let machine = Machine::boot_without_shoal();
    let before = traces(&machine);
    let package = package(&machine, "0.1.0");
    let content = machine.run("dpkg", &["--contents", &package]);
    assert!(content.contains(" usr/share/doc/shoal/THIRD-PARTY-LICENCES"), "{content}");
    install(&machine, &package);
    let client = Client::from_ip(PUBLIC.into(), TRACKER);
    client.announce(&Announce::leecher(hash(1), 1001));
    assert_eq!(machine.systemctl(&["is-enabled", "shoal"]), "enabled");
    let modes = machine.run("stat", &["--format=%U %G %a", "/etc/shoal", "/etc/shoal/shoal.toml"]);
    assert_eq!(modes, "root shoal 750\nroot shoal 640");
    // It is the operator's to change.
    let file = machine.etc("shoal/shoal.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "# changed\n").unwrap();
    dpkg(&machine, &["--remove", "shoal"]);
    assert_eq!(machine.show("ActiveState"), "inactive");
    assert!(traces(&machine).contains("/swarms"), "what the operator may want again stays");
    dpkg(&machine, &["--purge", "shoal"]);
    // This host may have the tracker as well.
    let after = traces(&machine);
    let left: Vec<_> = after.lines().filter(|trace| !before.lines().any(|other| other == *trace)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_upgrade_of_the_package_loses_no_request() {
    let machine = Machine::boot_without_shoal();
    install(&machine, &package(&machine, "0.1.0"));
    machine.configure("[announce]", "[announce]\npeers_per_address_max = 0");
    machine.configure("[limits]", "[limits]\nexempt = [\"0.0.0.0/0\", \"::/0\"]");
    machine.systemctl(&["restart", "shoal"]);
    let load = Load::start([TRACKER; 2], [TRACKER; 2]);
    load.wait_for_replies();
    let first = machine.show("MainPID");
    let said = install(&machine, &package(&machine, "0.1.1"));
    assert!(said.contains("shoal: the new version has taken over"), "{said}");
    machine.wait_for("ActiveState", "active");
    assert_ne!(machine.show("MainPID"), first);
    load.wait_for_replies();
    load.end();
    assert_eq!(machine.show("NRestarts"), "0");
    // It is the new file, not the one that was removed.
    let program = machine.run("readlink", &[&format!("/proc/{}/exe", machine.show("MainPID"))]);
    assert_eq!(program, "/usr/bin/shoal");
}

#[test]
fn a_configuration_that_the_new_version_refuses_stops_nothing() {
    let machine = Machine::boot_without_shoal();
    install(&machine, &package(&machine, "0.1.0"));
    let client = Client::from_ip(PUBLIC.into(), TRACKER);
    client.announce(&Announce::leecher(hash(1), 1001));
    let first = machine.show("MainPID");
    machine.configure("[state]", "[state]\nnonsense = 1");
    let said = install(&machine, &package(&machine, "0.1.1"));
    assert!(said.contains("state.nonsense (/etc/shoal/shoal.toml, line "), "{said}");
    assert!(said.contains("goes on with the version before"), "{said}");
    assert_eq!(machine.show("MainPID"), first);
    assert_eq!(client.scrape(&[hash(1)])[0].leechers, 1);
    // The message says how to go on.
    machine.configure("nonsense = 1\n", "");
    machine.run("shoal", &["upgrade"]);
    machine.wait_for_log("the new process serves", 1);
    assert_eq!(client.scrape(&[hash(1)])[0].leechers, 1);
}

#[test]
fn a_tracker_without_a_control_listener_hands_over_or_is_restarted() {
    let machine = Machine::boot_without_shoal();
    install(&machine, &package(&machine, "0.1.0"));
    machine.configure("[state]", "[control]\nlisten = \"\"\n\n[state]");
    machine.systemctl(&["restart", "shoal"]);
    let client = Client::from_ip(PUBLIC.into(), TRACKER);
    client.announce(&Announce::leecher(hash(1), 1001));
    let said = install(&machine, &package(&machine, "0.1.1"));
    assert!(said.contains("shoal: the new version has taken over"), "{said}");
    assert_eq!(client.scrape(&[hash(1)])[0].leechers, 1);
    // Its broker would start the new program.
    machine.run("pkill", &["--signal", "KILL", "--parent", &machine.show("MainPID")]);
    let said = install(&machine, &package(&machine, "0.1.2"));
    assert!(said.contains("could not hand over, and is restarted"), "{said}");
    assert!(said.contains("not handed over; this process goes on"), "{said}");
    machine.wait_for("ActiveState", "active");
    assert_eq!(client.scrape(&[hash(1)])[0].leechers, 1);
}

#[test]
fn an_installation_beside_another_tracker_says_what_is_wrong() {
    let machine = Machine::boot_without_shoal();
    let other = UdpSocket::bind(TRACKER).unwrap();
    let said = install(&machine, &package(&machine, "0.1.0"));
    assert!(said.contains("shoal: the service does not run; see: journalctl -u shoal"), "{said}");
    machine.wait_for_log("port 6969 is in use by another program", 1);
    drop(other);
    machine.systemctl(&["reset-failed", "shoal"]);
    machine.systemctl(&["start", "shoal"]);
    Client::from_ip(PUBLIC.into(), TRACKER).announce(&Announce::leecher(hash(1), 1001));
}
