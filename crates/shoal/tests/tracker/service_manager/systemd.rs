//! The unit that the project ships, under a real systemd.

mod machine;
mod package;
mod page;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use shoal_testkit::client::http::get_and_close;
use shoal_xdp::route::permit_lookups;

use crate::kit::client::{Announce, Client, connect_packet};
use crate::kit::harness::eventually;
use crate::kit::page::send;
use crate::kit::web::Web;
use crate::state::{assert_filled, fill};
use crate::udp::hash;

use self::machine::Machine;

/// Where the tracker serves UDP and HTTP.
const TRACKER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6969);

/// Where the control listener is.
const CONTROL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6970);

/// The sockets of two workers: two of UDP and two of TCP, a Unix socket, and the control listener.
const SOCKETS: &str = "6";

/// The program, within the machine.
const SHOAL: &str = "/usr/bin/shoal";

/// Returns the file with this comment at its beginning that a page of the documentation lists.
fn documented(page: &str, beginning: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(page).unwrap();
    let is_it = |block: &&str| block.contains(&format!("\n# {beginning}\n"));
    let block = text.split("```").skip(1).step_by(2).find(is_it).expect("the page lists the file");
    block.split_once('\n').unwrap().1.to_owned()
}

/// Makes a token of an administrator, and configures the tracker to accept it.
fn make_token(machine: &Machine) {
    let token = machine.run(SHOAL, &["ctl", "token", "--role", "admin", "--name", "test"]);
    let lines: Vec<&str> = token.lines().collect();
    fs::write(machine.etc("shoal/token"), lines[1]).unwrap();
    fs::write(machine.etc("shoal/tokens"), lines[4]).unwrap();
    machine.configure("127.0.0.1:6970\"", "127.0.0.1:6970\"\ncontrol.tokens = \"/etc/shoal/tokens\"");
}

/// Upgrades the tracker, and waits until systemd follows.
fn upgrade(machine: &Machine) {
    let first = machine.show("MainPID");
    machine.run(SHOAL, &["upgrade", "--token-file", "/etc/shoal/token"]);
    eventually("systemd follows", || (machine.show("MainPID") != first).then_some(()));
}

/// Checks that the tracker has given up its capabilities.
fn assert_unprivileged(machine: &Machine) {
    let status = machine.run("cat", &[&format!("/proc/{}/status", machine.show("MainPID"))]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t{:016x}\n", 0)), "{status}");
    }
}

/// Requests that are sent while no process of the tracker runs.
struct Waiting {
    udp: Client,
    http: Web,
}

impl Waiting {
    /// Ends the tracker by `systemctl`, and sends them before it is started again.
    fn send(machine: &Machine, end: &[&str]) -> Self {
        let held = machine.hold_starts();
        machine.systemctl(end);
        machine.wait_for("SubState", "start-pre");
        let udp = Client::new(TRACKER);
        udp.send(&connect_packet(7));
        let mut http = Web::connect(TRACKER, false);
        http.send(&get_and_close("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"));
        drop(held);
        Self { udp, http }
    }

    fn receive(mut self) {
        assert_eq!(self.udp.receive().len(), 16, "a connect reply");
        assert_eq!(self.http.answer().status, 200);
    }
}

#[test]
fn the_service_starts_reloads_restarts_and_stops() {
    let machine = Machine::boot("");
    machine.systemctl(&["start", "shoal"]);
    // `Type=notify`: the start has waited for the tracker.
    assert_eq!(machine.show("ActiveState"), "active");
    assert!(machine.show("StatusText").starts_with("serving"));
    machine.wait_for("NFileDescriptorStore", SOCKETS);
    fill(&Client::new(TRACKER));
    machine.systemctl(&["reload", "shoal"]);
    machine.wait_for_log("the configuration was read again", 1);
    eventually("the status tells the peers", || {
        machine.show("StatusText").starts_with("serving: 3 peers in 2 swarms, ").then_some(())
    });
    let first = machine.show("MainPID");
    Waiting::send(&machine, &["restart", "--no-block", "shoal"]).receive();
    machine.wait_for("ActiveState", "active");
    assert_ne!(machine.show("MainPID"), first);
    machine.wait_for_log("continuing with the swarms that the service manager has kept", 1);
    assert_filled(&Client::new(TRACKER));
    // The swarms are not kept any longer: they have changed.
    machine.wait_for("NFileDescriptorStore", SOCKETS);
    assert_eq!(machine.show("NRestarts"), "0");
    machine.systemctl(&["stop", "shoal"]);
    machine.wait_for("NFileDescriptorStore", "0");
    assert_eq!((&*machine.show("ActiveState"), &*machine.show("Result")), ("inactive", "success"));
    // Nothing was kept, so the snapshot is read.
    machine.systemctl(&["start", "shoal"]);
    machine.wait_for_log("the peers of the last run are back", 1);
    assert_eq!(Client::new(TRACKER).scrape(&[hash(2)])[0].leechers, 1);
}

#[test]
fn the_sockets_survive_a_crash_and_go_when_they_are_listed_no_more() {
    let machine = Machine::boot("");
    machine.systemctl(&["start", "shoal"]);
    for crashes in ["1", "2"] {
        Waiting::send(&machine, &["kill", "--kill-who=main", "--signal=KILL", "shoal"]).receive();
        machine.wait_for("SubState", "running");
        assert_eq!((&*machine.show("NRestarts"), &*machine.show("NFileDescriptorStore")), (crashes, SOCKETS));
    }
    assert!(!machine.log().contains("continuing with the swarms"), "{}", machine.log());
    machine.configure(", \"unix:/run/shoal/http proxy-protocol\"]", "]");
    machine.configure("workers.count = 2", "workers.count = 1");
    machine.systemctl(&["restart", "shoal"]);
    machine.wait_for("NFileDescriptorStore", "3");
    machine.wait_for_log("closed a socket of the last process", 3);
    Client::new(TRACKER).connect();
}

#[test]
fn a_reload_changes_the_sockets_that_survive_a_crash() {
    let machine = Machine::boot("");
    machine.systemctl(&["start", "shoal"]);
    machine.wait_for("NFileDescriptorStore", SOCKETS);
    machine.configure("unix:/run/shoal/http", "unix:/run/shoal/other");
    machine.configure("udp.listen = [", "udp.listen = [\"127.0.0.2:6969\", ");
    machine.systemctl(&["reload", "shoal"]);
    machine.wait_for("NFileDescriptorStore", "8");
    machine.systemctl(&["kill", "--kill-who=main", "--signal=KILL", "shoal"]);
    machine.wait_for("NRestarts", "1");
    machine.wait_for("SubState", "running");
    assert_eq!(machine.show("NFileDescriptorStore"), "8");
    assert!(!machine.log().contains("closed a socket"), "{}", machine.log());
    Client::new(TRACKER).connect();
    Client::new(SocketAddr::new([127, 0, 0, 2].into(), 6969)).connect();
    machine.configure("workers.count = 2", "workers.count = \"two\"");
    let refused = machine.command("systemctl", &["reload", "shoal"]).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(machine.show("ActiveState"), "active");
}

#[test]
fn a_takedown_needs_no_restart() {
    let machine = Machine::boot("");
    machine.systemctl(&["start", "shoal"]);
    let client = Client::new(TRACKER);
    fill(&client);
    fs::write(machine.etc("shoal/denied"), "").unwrap();
    let lists = "\
access.torrents_deny = [\"/etc/shoal/denied\"]
access.audit_file = \"/var/log/shoal/audit.jsonl\"
workers.count";
    machine.configure("workers.count", lists);
    machine.systemctl(&["reload", "shoal"]);
    machine.wait_for_log("the configuration was read again", 1);
    let torrent: String = hash(2).iter().map(|byte| format!("{byte:02x}")).collect();
    let check = || machine.command(SHOAL, &["access", "check", &torrent]).output().unwrap().status.code();
    assert_eq!(check(), Some(0));
    let add = ["access", "add", "--deny", &torrent, "--reason", "removed", "--config"];
    machine.run(SHOAL, &[&add[..], &["/etc/shoal/shoal.toml"]].concat());
    eventually("its peers are removed", || (client.scrape(&[hash(2)])[0].leechers == 0).then_some(()));
    assert_eq!(check(), Some(3));
    // The tracker appends to the file that the command of root has created.
    machine.run(SHOAL, &["ctl", "log", "info"]);
    let audit = machine.run("cat", &["/var/log/shoal/audit.jsonl"]);
    assert_eq!((audit.lines().count(), audit.matches("uid 0").count()), (2, 2), "{audit}");
}

#[test]
fn the_documented_hook_of_certbot_hands_over_what_it_renews() {
    let machine = Machine::boot("");
    let hook = machine.etc("hook");
    fs::write(&hook, documented("tls.md", "/etc/letsencrypt/renewal-hooks/deploy/shoal")).unwrap();
    let renew = |name| {
        let folder = "/etc/letsencrypt/live/tracker.example";
        machine.run("mkdir", &["-p", "-m", "700", "/etc/letsencrypt/live", folder]);
        let [certificate, key] = ["fullchain", "privkey"].map(|file| format!("{folder}/{file}.pem"));
        let made = ["tls", "self-signed", "--force", "--name", name, "--cert", &certificate, "--key", &key];
        machine.run(SHOAL, &made);
        machine.run("sh", &["/etc/hook"]);
    };
    renew("old.example");
    let tls = "\
tls.listen = [\"127.0.0.1:6443\"]
tls.certificates = [\"/etc/shoal/tls/fullchain.pem\"]
tls.keys = [\"/etc/shoal/tls/privkey.pem\"]
workers.count";
    machine.configure("workers.count", tls);
    machine.systemctl(&["start", "shoal"]);
    let names = || {
        let stats = machine.run(SHOAL, &["ctl", "stats", "--json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        stats["certificates"][0]["names"].clone()
    };
    assert_eq!(names(), serde_json::json!(["old.example"]));
    renew("new.example");
    eventually("the tracker has the new one", || {
        (names() == serde_json::json!(["new.example"])).then_some(())
    });
}

#[test]
fn a_tracker_that_hangs_is_started_anew() {
    let machine = Machine::boot("WatchdogSec=3\n");
    machine.systemctl(&["start", "shoal"]);
    machine.wait_for_log("watchdog of the service manager", 1);
    Waiting::send(&machine, &["kill", "--kill-who=main", "--signal=STOP", "shoal"]).receive();
    machine.wait_for("SubState", "running");
    assert_eq!(machine.show("NRestarts"), "1");
}

#[test]
fn an_upgrade_leaves_the_service_as_it_was() {
    let machine = Machine::boot("");
    make_token(&machine);
    machine.systemctl(&["start", "shoal"]);
    machine.wait_for("NFileDescriptorStore", SOCKETS);
    fill(&Client::new(TRACKER));
    // The new process gives up a socket that the old one has, and has one of its own.
    machine.configure("unix:/run/shoal/http", "unix:/run/shoal/other");
    machine.configure("udp.listen = [", "udp.listen = [\"127.0.0.2:6969\", ");
    let first = machine.show("MainPID");
    upgrade(&machine);
    machine.wait_for("NFileDescriptorStore", "8");
    assert_eq!((&*machine.show("ActiveState"), &*machine.show("NRestarts")), ("active", "0"));
    assert_filled(&Client::new(TRACKER));
    eventually("the old process has ended", || {
        let asked = machine.command("kill", &["-0", &first]).output().unwrap();
        (!asked.status.success()).then_some(())
    });
    // systemd has the sockets of the new process.
    machine.systemctl(&["kill", "--kill-who=main", "--signal=KILL", "shoal"]);
    machine.wait_for("NRestarts", "1");
    machine.wait_for("SubState", "running");
    assert_eq!(machine.show("NFileDescriptorStore"), "8");
    machine.systemctl(&["stop", "shoal"]);
    assert_eq!(machine.show("Result"), "success");
}

#[test]
fn the_first_request_starts_the_service() {
    let machine = Machine::boot("");
    let sockets = "\
[Socket]
ListenDatagram=127.0.0.1:6969
BindIPv6Only=ipv6-only
FileDescriptorName=udp
Service=shoal.service
";
    fs::write(machine.etc("systemd/system/shoal-udp.socket"), sockets).unwrap();
    machine.systemctl(&["daemon-reload"]);
    machine.systemctl(&["start", "shoal-udp.socket"]);
    assert_eq!(machine.show("ActiveState"), "inactive");
    let client = Client::new(TRACKER);
    client.announce(&Announce::leecher(hash(1), 1001));
    machine.wait_for("ActiveState", "active");
    machine.systemctl(&["restart", "shoal"]);
    assert_eq!(client.scrape(&[hash(1)])[0].leechers, 1);
}

#[test]
fn the_unit_permits_ports_below_1024() {
    let machine = Machine::boot("");
    machine.configure("http.listen = [\"127.0.0.1:6969\"", "http.listen = [\"127.0.0.1:80\"");
    machine.systemctl(&["start", "shoal"]);
    TcpStream::connect("127.0.0.1:80").unwrap();
    assert_unprivileged(&machine);
    machine.configure("http.listen = [", "http.listen = [\"127.0.0.1:81\", ");
    machine.systemctl(&["reload", "shoal"]);
    machine.wait_for_log("the configuration was read again", 1);
    TcpStream::connect("127.0.0.1:81").unwrap();
}

#[test]
fn the_documented_file_permits_the_xdp_data_path() {
    let machine = Machine::boot(&documented("xdp.md", "/etc/systemd/system/shoal.service.d/xdp.conf"));
    for line in ["link add server type veth peer name client", "link set client up", "link set server up"] {
        machine.run("ip", &line.split(' ').collect::<Vec<_>>());
    }
    // The unit cannot write there, so the operator does. This thread is in the network of the machine.
    assert_eq!(permit_lookups().unwrap().len(), 2);
    make_token(&machine);
    machine.configure("workers.count", "udp.xdp.interfaces = [\"server\"]\nworkers.count");
    let token = fs::read_to_string(machine.etc("shoal/token")).unwrap();
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {CONTROL}\r\nAuthorization: Bearer {token}\r\n\r\n");
    machine.systemctl(&["start", "shoal"]);
    for change in [None, Some("restart"), Some("upgrade")] {
        match change {
            Some("upgrade") => upgrade(&machine),
            Some(change) => drop(machine.systemctl(&[change, "shoal"])),
            None => {}
        }
        assert_unprivileged(&machine);
        eventually("the program is attached", || {
            let page = send(CONTROL, request.as_bytes());
            page.body.contains("shoal_xdp_attached{interface=\"server\",mode=\"native\"} 1\n").then_some(())
        });
    }
    assert_eq!(machine.log().matches("XDP data path").count(), 3, "{}", machine.log());
    assert!(!machine.log().contains("cannot be updated"), "{}", machine.log());
}
