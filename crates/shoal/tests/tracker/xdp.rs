//! The XDP data path of a tracker, on a pair of virtual interfaces between two network namespaces. The tests need root.
//!
//! The tracker and its control listener are in the namespace of the server, clients in the other one.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shoal_conform::{Target, random_seed, udp};
use shoal_testkit::nats::{Options, Server};
use shoal_testkit::network::vlan::Vlan;
use shoal_testkit::network::{Side, between_two, join, ping};
use shoal_xdp::interface::Interface;
use shoal_xdp::program::{Link, Mode, Program, Sizes};

use crate::kit::client::{ANNOUNCE, Announce, Client, connect_packet, word};
use crate::kit::conformance::assert_kept;
use crate::kit::harness::{Tracker, eventually, run};
use crate::udp::hash;

/// The addresses of the tracker and of its clients.
const TRACKER: [&str; 2] = ["192.0.2.1", "2001:db8:1::1"];
const CLIENTS: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];

/// The addresses of both where a relay of the client adds tags, of each family.
const BEHIND_RELAY: [[&str; 2]; 2] = [["198.51.100.1", "198.51.100.2"], ["2001:db8:2::1", "2001:db8:2::2"]];

/// Further addresses of the clients.
const OTHERS: [&str; 2] = ["192.0.2.66", "2001:db8:1::66"];

const PORT: u16 = 6969;
const OTHER_PORT: u16 = 7070;

/// The value of `udp.listen` in a file.
const LISTEN: &str = r#"["0.0.0.0:6969", "[::]:6969"]"#;

const ON_SERVER: (&str, &str) = ("SHOAL_UDP_XDP_INTERFACES", "server");

/// Runs a test of a tracker between two namespaces.
fn over_xdp(settings: &[(&str, &str)], test: impl FnOnce(&Tracker, &Side, &Side) + Send) {
    between_two(|server, client| serve(server, client, settings, |tracker| test(tracker, server, client)));
}

/// Sets both sides up, and runs a test of a tracker at the server's.
fn serve(server: &Side, client: &Side, settings: &[(&str, &str)], test: impl FnOnce(&Tracker) + Send) {
    let _passing = configure(server, client);
    let start = || {
        let listen = "0.0.0.0:6969,[::]:6969";
        let own = [ON_SERVER, ("SHOAL_UDP_LISTEN", listen), ("SHOAL_HTTP_LISTEN", "127.0.0.1:0")];
        let tracker = Tracker::start(&[&own[..], settings].concat());
        // It follows the addresses of the host.
        wait_until_it_answers(&tracker, client);
        test(&tracker);
    };
    server.run(start);
}

/// Sets both sides up. Returns the program of the client's end: a veth passes on what an XDP program sends only if its other end
/// has one as well.
fn configure(server: &Side, client: &Side) -> Link {
    for (side, addresses) in [(server, &TRACKER), (client, &CLIENTS)] {
        let device = side.device;
        // Tags stay in frames, where a program can see them.
        for option in ["txvlan off", "rxvlan off", "tx off"] {
            side.command(&format!("ethtool -K {device} {option}"));
        }
        addresses.iter().for_each(|address| add_address(side, device, address));
        side.command(&format!("ip link set {device} up"));
    }
    OTHERS.iter().for_each(|address| add_address(client, client.device, address));
    // As the kernel finds them out itself before its first reply; what comes before that reply is the kernel's.
    let mac = client.run(|| Interface::find(client.device).unwrap().mac);
    CLIENTS.iter().chain(&OTHERS).for_each(|address| add_neighbour(server, server.device, address, mac));
    let sizes = Sizes { queues: 1, networks_max: 1, sources_max: 1, endpoints_max: 1 };
    // It passes everything on, as it has no endpoints.
    client.run(|| {
        let index = Interface::find(client.device).unwrap().index;
        Program::load(&sizes).unwrap().0.attach(index, Mode::Native).unwrap()
    })
}

fn add_address(side: &Side, device: &str, address: &str) {
    let rest = if address.contains(':') { "/64 nodad" } else { "/24" };
    side.command(&format!("ip addr add {address}{rest} dev {device}"));
}

fn add_neighbour(side: &Side, device: &str, address: &str, mac: [u8; 6]) {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    side.command(&format!("ip neigh replace {address} lladdr {mac} nud permanent dev {device}"));
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A client with one of the addresses, which is of the family of the tracker's.
fn client_at(address: &str, tracker: &str) -> Client {
    Client::from_ip(ip(address), SocketAddr::new(ip(tracker), PORT))
}

/// A client of another port.
fn client_of_other_port() -> Client {
    Client::from_ip(ip(CLIENTS[0]), SocketAddr::new(ip(TRACKER[0]), OTHER_PORT))
}

/// Returns how many packets took a path.
fn packets(tracker: &Tracker, path: &str) -> u64 {
    tracker.metric("shoal_xdp_packets_total", &[&format!("path=\"{path}\"")])
}

/// Waits until the program answers over both families, which takes some periods of the thread that follows.
fn wait_until_it_answers(tracker: &Tracker, client: &Side) {
    for (own, other) in CLIENTS.into_iter().zip(TRACKER) {
        wait_until_it_answers_at(tracker, client, own, other);
    }
}

/// Waits until the program answers a client at `own` that asks at `other`.
fn wait_until_it_answers_at(tracker: &Tracker, client: &Side, own: &str, other: &str) {
    eventually("the program answers", || {
        let before = packets(tracker, "answered");
        client.run(|| client_at(own, other).connect());
        (packets(tracker, "answered") > before).then_some(())
    });
}

/// Makes sure that the tracker keeps every rule at an address, through the data path alone. `other` is its address of the other
/// family, if it has one.
fn assert_rules_kept(tracker: &Tracker, client: &Side, address: &str, other: Option<&str>) {
    let paths = || ["answered", "worker"].map(|path| packets(tracker, path));
    let before = paths();
    let mut target = Target::new(SocketAddr::new(ip(address), PORT), random_seed());
    target.other_family = other.map(|address| SocketAddr::new(ip(address), PORT));
    target.timing.reply = Duration::from_secs(5);
    // The client is on this host, whatever its address.
    target.timing.quiet = Duration::from_millis(100);
    // The suite takes other sources from the loopback network.
    let mut unsupported =
        vec!["udp-connection-id-of-another-address-is-refused", "udp-peer-of-another-host-is-out-of-reach"];
    if other.is_none() {
        unsupported.insert(1, "udp-families-are-apart");
    }
    client.run(|| assert_kept(udp::cases(), &target, &unsupported));
    let after = paths();
    assert!(after.iter().zip(before).all(|(after, before)| *after > before + 20), "{before:?} {after:?}");
    assert_eq!(packets(tracker, "no_socket") + packets(tracker, "backlog"), 0);
}

#[test]
fn every_rule_is_kept_over_ipv4() {
    over_xdp(&[], |tracker, _, client| assert_rules_kept(tracker, client, TRACKER[0], Some(TRACKER[1])));
}

#[test]
fn every_rule_is_kept_over_ipv6() {
    over_xdp(&[], |tracker, _, client| assert_rules_kept(tracker, client, TRACKER[1], Some(TRACKER[0])));
}

#[test]
fn every_rule_is_kept_with_a_tag() {
    assert_rules_kept_with_tags(BEHIND_RELAY[0]);
}

#[test]
fn every_rule_is_kept_with_a_tag_over_ipv6() {
    assert_rules_kept_with_tags(BEHIND_RELAY[1]);
}

/// The tags have the number 0, and so a priority alone: not every kernel knows VLANs.
fn assert_rules_kept_with_tags([own, other]: [&str; 2]) {
    over_xdp(&[], |tracker, server, client| {
        let _relay = connect_relay(server, client, 0, [own, other]);
        eventually("the program answers", || {
            let before = packets(tracker, "answered");
            client.run(|| client_at(other, own).send(&connect_packet(1)));
            (packets(tracker, "answered") > before).then_some(())
        });
        assert_rules_kept(tracker, client, own, None);
    });
}

/// Gives the server another address, and connects a device of the client to it whose frames have a tag of this number.
fn connect_relay(server: &Side, client: &Side, number: u16, [own, other]: [&str; 2]) -> Vlan {
    add_address(server, server.device, own);
    let relay = Vlan::connect(client, "relay", number);
    // The largest scrapes would arrive as fragments, which are left to the kernel.
    for (side, device) in [(server, server.device), (client, client.device), (client, "relay")] {
        side.command(&format!("ip link set {device} mtu 2100"));
    }
    add_address(client, "relay", other);
    let [mac, relay_mac] = [(server, server.device), (client, "relay")]
        .map(|(side, device)| side.run(|| Interface::find(device).unwrap().mac));
    add_neighbour(client, "relay", own, mac);
    add_neighbour(server, server.device, other, relay_mac);
    relay
}

/// The host has no part in the VLAN, so neither the program nor the kernel answers.
#[test]
fn a_vlan_that_is_none_of_the_host_is_left_to_the_kernel() {
    over_xdp(&[], |tracker, server, client| {
        let [own, other] = BEHIND_RELAY[0];
        let _relay = connect_relay(server, client, 7, [own, other]);
        let answered = packets(tracker, "answered");
        eventually("the frames are left to the kernel", || {
            client.run(|| client_at(other, own).send(&connect_packet(1)));
            (packets(tracker, "other_vlan") >= 3).then_some(())
        });
        assert_eq!(packets(tracker, "answered"), answered);
    });
}

/// A client takes the address of another one, whose MAC address the host knows, and one of the internet.
#[test]
fn a_forged_source_is_left_to_the_kernel() {
    over_xdp(&[], |tracker, server, client| {
        let mac = [2, 0, 0, 0, 0, 9];
        OTHERS.iter().for_each(|address| add_neighbour(server, server.device, address, mac));
        let paths = || ["answered", "no_route_back"].map(|path| packets(tracker, path));
        let before = paths();
        for (other, own) in OTHERS.into_iter().zip(TRACKER) {
            client.run(|| client_at(other, own).send(&connect_packet(1)));
        }
        eventually("the frames are left to the kernel", || (paths()[1] >= before[1] + 2).then_some(()));
        assert_eq!(paths(), [before[0], before[1] + 2]);
    });
}

#[test]
fn requests_that_the_program_answers_are_counted_as_others() {
    over_xdp(&[], |tracker, _, client| {
        let labels = ["protocol=\"udp\"", "family=\"v6\"", "kind=\"connect\""];
        let requests = || tracker.metric("shoal_requests_total", &labels);
        let before = requests();
        client.run(|| {
            for _ in 0..10 {
                client_at(CLIENTS[1], TRACKER[1]).connect();
            }
        });
        // The ones before may be counted only now.
        eventually("they are counted", || (requests() >= before + 10).then_some(()));
        assert_eq!(tracker.metric("shoal_xdp_attached", &["interface=\"server\"", "mode=\"native\""]), 1);
    });
}

#[test]
fn other_services_of_the_interface_are_unharmed() {
    over_xdp(&[("SHOAL_CONTROL_LISTEN", "0.0.0.0:6970")], |tracker, server, client| {
        for address in [TRACKER[0], TRACKER[1]] {
            client.run(|| ping(ip(address)));
        }
        // TCP, and UDP on another port.
        let control = (ip(TRACKER[0]), tracker.control.port());
        client.run(|| TcpStream::connect(control).unwrap());
        let name_server = server.run(|| std::net::UdpSocket::bind((ip(TRACKER[0]), 53)).unwrap());
        let asked = client.run(|| {
            let socket = std::net::UdpSocket::bind((ip(CLIENTS[0]), 0)).unwrap();
            socket.send_to(&connect_packet(1), (ip(TRACKER[0]), 53)).unwrap();
            socket.local_addr().unwrap()
        });
        let mut buffer = [0; 64];
        assert_eq!(name_server.recv_from(&mut buffer).unwrap(), (16, asked));
    });
}

#[test]
fn a_refused_network_gets_nothing_and_a_ban_holds_too() {
    let directory = tempfile::tempdir().unwrap();
    let networks = directory.path().join("networks");
    std::fs::write(&networks, "192.0.2.66\n").unwrap();
    let settings = [("SHOAL_ACCESS_NETWORKS_DENY", networks.to_str().unwrap())];
    over_xdp(&settings, |tracker, _, client| {
        assert_denied(tracker, client, OTHERS[0], TRACKER[0]);
        client.run(|| client_at(OTHERS[1], TRACKER[1]).connect());
        std::fs::write(&networks, "2001:db8:1::66/128\n").unwrap();
        tracker.signal(Signal::SIGHUP);
        assert_denied(tracker, client, OTHERS[1], TRACKER[1]);
        client.run(|| client_at(OTHERS[0], TRACKER[0]).connect());
        client.run(|| client_at(CLIENTS[1], TRACKER[1]).connect());
    });
}

#[test]
fn a_ban_that_a_source_has_earned_holds_in_the_driver() {
    let settings = [("SHOAL_BANS_MALFORMED_PER_MIN", "5"), ("SHOAL_LIMITS_UDP_REQUESTS_PER_S", "1000")];
    over_xdp(&settings, |tracker, _, client| {
        client.run(|| {
            let banned = client_at(OTHERS[0], TRACKER[0]);
            let id = banned.connect();
            for _ in 0..20 {
                banned.send(&[&id.to_be_bytes()[..], &9_u32.to_be_bytes(), &5_u32.to_be_bytes()].concat());
            }
        });
        assert_denied(tracker, client, OTHERS[0], TRACKER[0]);
        client.run(|| client_at(CLIENTS[0], TRACKER[0]).connect());
    });
}

#[test]
fn a_rule_that_drops_a_network_holds_in_the_driver_and_one_that_serves_it_does_not() {
    let rules = "network 192.0.2.66/32 drop,network 2001:db8:1::66/128 interval 60";
    let settings = [("SHOAL_ACCESS_RULES", rules), ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0")];
    over_xdp(&settings, |tracker, _, client| {
        assert_denied(tracker, client, OTHERS[0], TRACKER[0]);
        let peer = Announce::leecher(hash(1), 1);
        assert_eq!(client.run(|| client_at(OTHERS[1], TRACKER[1]).announce(&peer)).interval_s, 60);
    });
}

/// Asserts that the program drops what comes from an address.
fn assert_denied(tracker: &Tracker, client: &Side, from: &str, to: &str) {
    eventually("its datagrams are dropped", || {
        let before = packets(tracker, "denied");
        client.run(|| client_at(from, to).send(&connect_packet(1)));
        (packets(tracker, "denied") > before).then_some(())
    });
}

#[test]
fn an_allow_list_holds_in_the_driver_and_ends_there() {
    let directory = tempfile::tempdir().unwrap();
    let networks = directory.path().join("networks");
    std::fs::write(&networks, format!("{}\n{}\n", CLIENTS[0], CLIENTS[1])).unwrap();
    let settings = [("SHOAL_ACCESS_NETWORKS_ALLOW", networks.to_str().unwrap())];
    over_xdp(&settings, |tracker, _, client| {
        for (other, own) in OTHERS.into_iter().zip(TRACKER) {
            assert_denied(tracker, client, other, own);
        }
        std::fs::write(&networks, "192.0.2.0/24\n2001:db8:1::/48\n").unwrap();
        tracker.signal(Signal::SIGHUP);
        for (other, own) in OTHERS.into_iter().zip(TRACKER) {
            eventually("its datagrams are answered", || {
                let before = packets(tracker, "answered");
                client.run(|| client_at(other, own).send(&connect_packet(1)));
                (packets(tracker, "answered") > before).then_some(())
            });
        }
    });
}

/// The kernel would drop what the socket of the second receive queue sends.
#[test]
fn a_receive_queue_without_a_transmit_queue_is_left_to_the_sockets() {
    with_two_queues(1, |tracker, client| {
        assert!(tracker.log().contains("receive queues beyond"), "{}", tracker.log());
        eventually("both queues have served", || {
            // Each socket has a port of its own, and so another queue.
            client.run(|| client_at(CLIENTS[0], TRACKER[0]).announce(&Announce::leecher(hash(1), 1)));
            (packets(tracker, "worker") > 0 && packets(tracker, "no_socket") > 0).then_some(())
        });
        assert_eq!(tracker.metric("shoal_xdp_sockets", &[]), 1);
    });
}

/// Runs a test of a tracker whose interface has two receive queues, and `transmit` transmit queues.
fn with_two_queues(transmit: u32, test: impl FnOnce(&Tracker, &Side) + Send) {
    between_two(|server, client| {
        server.command("ip link del server");
        join(server, client, &format!("numrxqueues 2 numtxqueues {transmit}"));
        client.command(&format!("ethtool -L client rx {transmit} tx 2"));
        let interface = server.run(|| Interface::find("server").unwrap());
        assert_eq!((interface.queues, interface.transmit_queues), (2, transmit));
        serve(server, client, &[], |tracker| test(tracker, client));
    });
}

#[test]
fn two_workers_have_a_queue_each_and_hand_both_over() {
    with_two_queues(2, |tracker, client| {
        under_requests(client, |_| {
            wait_for_both_workers(tracker, batches(tracker));
            upgrade(tracker);
            wait_for_both_workers(tracker, [0; 2]);
        });
        assert!(!tracker.log().contains("another one takes its place"), "{}", tracker.log());
    });
}

/// Returns how many batches each worker has served.
fn batches(tracker: &Tracker) -> [u64; 2] {
    [r#"worker="0""#, r#"worker="1""#].map(|worker| tracker.metric("shoal_worker_batches_total", &[worker]))
}

/// Waits until both workers have served more batches than before, and more after that, each through a socket of the data path. A
/// worker that has just started may not use its socket yet, so a few packets before that go to the kernel.
fn wait_for_both_workers(tracker: &Tracker, before: [u64; 2]) {
    wait_for_batches(tracker, before);
    // The counts of the program are published from time to time.
    let known = packets(tracker, "worker");
    eventually("the counts are newer", || (packets(tracker, "worker") > known).then_some(()));
    let to_kernel = || ["no_socket", "backlog"].map(|path| packets(tracker, path));
    let (early, served) = (to_kernel(), batches(tracker));
    wait_for_batches(tracker, served);
    assert_eq!(tracker.metric("shoal_xdp_sockets", &[]), 2);
    assert_eq!(to_kernel(), early);
}

/// Waits until both workers have served more batches than before.
fn wait_for_batches(tracker: &Tracker, before: [u64; 2]) {
    eventually("both workers serve", || {
        batches(tracker).iter().zip(before).all(|(now, before)| *now > before).then_some(())
    });
}

#[test]
fn a_limit_on_connection_ids_holds_in_the_driver() {
    let settings = [("SHOAL_LIMITS_UDP_CONNECTS_PER_S", "1"), ("SHOAL_LIMITS_BURST_S", "5")];
    over_xdp(&settings, |tracker, _, client| {
        client.run(|| {
            let greedy = client_at(OTHERS[0], TRACKER[0]);
            (0..50).for_each(|number| greedy.send(&connect_packet(number)));
        });
        eventually("the excess is dropped", || (packets(tracker, "rate_limited") >= 40).then_some(()));
        let dropped = || tracker.metric("shoal_drops_total", &["family=\"v4\"", "reason=\"rate_limited\""]);
        eventually("the excess is part of all drops", || (dropped() >= 40).then_some(()));
        client.run(|| client_at(CLIENTS[1], TRACKER[1]).connect());
    });
}

#[test]
fn the_sockets_serve_when_the_interface_goes_down_or_vanishes() {
    over_xdp(&[], |tracker, server, client| {
        let announce = |client: &Side| {
            client.run(|| client_at(CLIENTS[0], TRACKER[0]).announce(&Announce::seeder(hash(1), 1001)))
        };
        announce(client);
        server.command("ip link set server down");
        server.command("ip link set server up");
        wait_until_it_answers_again(tracker, client);
        server.command("ip link del server");
        let line = tracker.wait_for_line("the interface is gone");
        assert_eq!(line["interface"], "server");
        let losses =
            || tracker.log().lines().filter(|line| line.contains("given up")).collect::<Vec<_>>().join("\n");
        let loss = eventually("the loss is logged", || Some(losses()).filter(|loss| !loss.is_empty()));
        assert!(loss.contains(r#""queues":"[0]""#) && loss.contains("has vanished"), "{loss}");
        let local = Client::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
        assert_eq!(local.announce(&Announce::leecher(hash(1), 1002)).seeders, 1);
        assert_eq!(tracker.metric("shoal_xdp_detached", &[]), 1);
        assert_eq!(losses(), loss);
    });
}

/// Waits until the program answers over IPv4. The kernel forgets neighbours and IPv6 addresses of an interface that goes down.
fn wait_until_it_answers_again(tracker: &Tracker, client: &Side) {
    eventually("the program answers again", || {
        let before = packets(tracker, "answered");
        client.run(|| client_at(CLIENTS[0], TRACKER[0]).send(&connect_packet(1)));
        (packets(tracker, "answered") > before).then_some(())
    });
}

#[test]
fn a_tracker_that_stops_or_dies_leaves_no_program() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        over_xdp(&[], |tracker, server, _| {
            assert!(has_program(server));
            tracker.signal(signal);
            eventually("the program is gone", || (!has_program(server)).then_some(()));
        });
    }
}

fn has_program(server: &Side) -> bool {
    let shown = server.run(|| Command::new("ip").args(["link", "show", "server"]).output()).unwrap();
    String::from_utf8(shown.stdout).unwrap().contains("xdp")
}

#[test]
fn a_reload_changes_the_ports_and_keeps_the_data_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    between_two(|server, client| {
        let _passing = configure(server, client);
        write_config(&file, LISTEN, r#"["server"]"#);
        server.run(|| {
            let tracker = Tracker::start_where_file_says(&file);
            wait_until_it_answers(&tracker, client);
            let before = client.run(|| client_at(CLIENTS[0], TRACKER[0]).connect());
            write_config(&file, r#"["0.0.0.0:6969", "[::]:6969", "0.0.0.0:7070"]"#, r#"["server"]"#);
            tracker.signal(Signal::SIGHUP);
            tracker.wait_for_line("listening");
            eventually("the program answers at the new port", || {
                let answered = packets(&tracker, "answered");
                client.run(|| client_of_other_port().connect());
                (packets(&tracker, "answered") > answered).then_some(())
            });
            let workers = packets(&tracker, "worker");
            client.run(|| {
                let reply = client_of_other_port().ask(&Announce::seeder(hash(1), 1).packet(before, 9));
                assert_eq!(word(&reply, 4), 9);
            });
            eventually("a worker serves at the new port", || {
                (packets(&tracker, "worker") > workers).then_some(())
            });
        });
    });
}

/// Writes the configuration of a tracker.
fn write_config(file: &Path, listen: &str, interfaces: &str) {
    let text = format!("[udp]\nlisten = {listen}\nxdp.interfaces = {interfaces}\n[http]\nlisten = []\n");
    std::fs::write(file, text).unwrap();
}

#[test]
fn an_upgrade_without_the_interface_turns_the_data_path_off() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    between_two(|server, client| {
        let _passing = configure(server, client);
        write_config(&file, LISTEN, r#"["server"]"#);
        server.run(|| {
            let tracker = Tracker::start_where_file_says(&file);
            wait_until_it_answers(&tracker, client);
            let announce = |announce| client.run(|| client_at(CLIENTS[0], TRACKER[0]).announce(&announce));
            announce(Announce::seeder(hash(1), 1));
            write_config(&file, LISTEN, "[]");
            upgrade(&tracker);
            eventually("the program is gone", || (!has_program(server)).then_some(()));
            assert_eq!(announce(Announce::leecher(hash(1), 2)).seeders, 1);
            client.run(|| client_at(CLIENTS[1], TRACKER[1]).connect());
            let metrics = tracker.page("/metrics").body;
            assert!(!metrics.contains("shoal_xdp_packets"), "{metrics}");
        });
    });
}

/// Another tracker, whose configuration has the key, tells which ids come from it.
#[test]
fn the_program_makes_ids_from_a_key_that_the_tracker_adopts() {
    const KEY: &str = "000102030405060708090a0b0c0d0e0f";
    const ANSWER_WRONG: (&str, &str) = ("SHOAL_CONNECTION_ID_ANSWER_WRONG", "true");
    let follow = |server: &Side, client: &Side| {
        let nats = Server::start(&Options::default()).unwrap();
        let _other = Tracker::start(&[
            ("SHOAL_UDP_LISTEN", "0.0.0.0:7070"),
            ("SHOAL_CONNECTION_ID_KEY", KEY),
            ANSWER_WRONG,
        ]);
        let url = nats.url();
        let settings = [("SHOAL_CLUSTER_SERVERS", &*url), ("SHOAL_CLUSTER_NODE", "one"), ANSWER_WRONG];
        serve(server, client, &settings, |tracker| {
            tracker.wait_for_line("this node has the shared state of the cluster");
            let own = || client_at(CLIENTS[0], TRACKER[0]);
            let issue = || client.run(|| own().connect());
            let is_of_other = |id| client.run(|| accepts(&client_of_other_port(), id));
            let before = issue();
            assert!(!is_of_other(before));
            under_requests(client, |_| {
                write_key(&nats, KEY);
                eventually("the program has the key", || is_of_other(issue()).then_some(()));
            });
            let paths = || ["answered", "worker"].map(|path| packets(tracker, path));
            let [answered, worker] = paths();
            let after = issue();
            assert!(is_of_other(after));
            assert_eq!(client.run(|| [before, after].map(|id| accepts(&own(), id))), [true; 2]);
            assert_eq!(paths(), [answered + 1, worker + 2]);
        });
    };
    // NATS ends with the thread that starts it.
    between_two(|server, client| server.run(|| follow(server, client)));
}

/// Whether the tracker of a client accepts a connection id. It answers a wrong one as well.
fn accepts(client: &Client, id: u64) -> bool {
    word(&client.ask(&Announce::leecher(hash(1), 1).packet(id, 2)), 0) == ANNOUNCE
}

/// Writes the key of connection ids into the bucket of a cluster.
fn write_key(nats: &Server, key: &str) {
    let value = format!(r#"{{"key":"{key}"}}"#);
    let subject = "$KV.shoal_shoal.keys.connection";
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, nats.port())).unwrap();
    write!(connection, "CONNECT {{}}\r\nPUB {subject} {}\r\n{value}\r\nPING\r\n", value.len()).unwrap();
    assert!(BufReader::new(connection).lines().map_while(Result::ok).any(|line| line == "PONG"));
}

#[test]
fn an_upgrade_loses_no_datagram() {
    over_xdp(&[], |tracker, server, client| {
        let pid = under_requests(client, |asked| upgrade_twice(tracker, asked));
        assert!(has_program(server));
        kill(pid, Signal::SIGKILL).unwrap();
        eventually("the program is gone with the last process", || (!has_program(server)).then_some(()));
    });
}

/// Does some work while a client announces from one source port after the other, and counts the replies.
fn under_requests<R>(client: &Side, work: impl FnOnce(&AtomicU64) -> R) -> R {
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let load = || {
            client.run(|| {
                let mut port = 1;
                while !stop.load(Ordering::Relaxed) {
                    // Each panics without a reply.
                    client_at(CLIENTS[0], TRACKER[0]).announce(&Announce::leecher(hash(1), port));
                    port = port % 60_000 + 1;
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        let load = scope.spawn(load);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| work(&asked)));
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        outcome.unwrap()
    })
}

/// The sockets and the link of the running tracker are those of an interface that exists no more.
#[test]
fn an_upgrade_attaches_to_an_interface_that_has_come_back() {
    over_xdp(&[], |tracker, server, client| {
        server.command("ip link del server");
        tracker.wait_for_line("the interface is gone");
        assert_eq!(tracker.metric("shoal_xdp_detached", &[]), 1);
        join(server, client, "");
        let _passing = configure(server, client);
        upgrade(tracker);
        wait_until_it_answers(tracker, client);
        wait_for_a_worker(tracker, client);
        assert_eq!(tracker.metric("shoal_xdp_detached", &[]), 0);
    });
}

/// Announces, and waits until a worker has served that.
fn wait_for_a_worker(tracker: &Tracker, client: &Side) {
    let before = packets(tracker, "worker");
    client.run(|| client_at(CLIENTS[0], TRACKER[0]).announce(&Announce::seeder(hash(1), 1)));
    eventually("a worker serves", || (packets(tracker, "worker") > before).then_some(()));
}

/// Upgrades, and returns the new process.
fn upgrade(tracker: &Tracker) -> Pid {
    let old = tracker.successors().last().copied().unwrap_or_else(|| tracker.pid());
    kill(old, Signal::SIGUSR2).unwrap();
    tracker.wait_for_line("the new process serves");
    *tracker.successors().last().unwrap()
}

/// Upgrades, while requests go on. Returns the last process.
fn upgrade_twice(tracker: &Tracker, asked: &AtomicU64) -> Pid {
    for _ in 0..2 {
        upgrade(tracker);
        let before = asked.load(Ordering::Relaxed);
        eventually("requests go on", || (asked.load(Ordering::Relaxed) > before + 20).then_some(()));
        eventually("the program serves", || (packets(tracker, "answered") > 0).then_some(()));
    }
    *tracker.successors().last().unwrap()
}

#[test]
fn without_privileges_the_tracker_serves_on() {
    over_xdp(&[("SHOAL_PROCESS_USER", "daemon")], |tracker, server, client| {
        assert_serves_without_privileges(tracker, tracker.pid(), client);
        assert_follows(tracker, server, client, "192.0.2.3");
        let pid = upgrade(tracker);
        assert_serves_without_privileges(tracker, pid, client);
        assert_follows(tracker, server, client, "192.0.2.4");
    });
}

/// Asserts that the process of the tracker has no capabilities, and that the data path serves.
fn assert_serves_without_privileges(tracker: &Tracker, pid: Pid, client: &Side) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.lines().any(|line| line == "CapEff:\t0000000000000000"), "{status}");
    wait_until_it_answers(tracker, client);
    wait_for_a_worker(tracker, client);
}

/// Asserts that the program serves an address that comes later.
fn assert_follows(tracker: &Tracker, server: &Side, client: &Side, later: &str) {
    add_address(server, server.device, later);
    wait_until_it_answers_at(tracker, client, CLIENTS[0], later);
}

#[test]
fn an_interface_that_cannot_have_it_is_refused_unless_it_is_optional() {
    let no_interface = ("SHOAL_UDP_XDP_INTERFACES", "nosuch0");
    let any_port = [("SHOAL_UDP_LISTEN", "127.0.0.1:0"), ("SHOAL_CONTROL_LISTEN", "")];
    let output = run(&[], &[no_interface, any_port[0], any_port[1]]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{log}");
    for part in ["udp.xdp.interfaces", "nosuch0", "udp.xdp.optional = true"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let tracker = Tracker::start(&[no_interface, ("SHOAL_UDP_XDP_OPTIONAL", "true")]);
    assert!(tracker.log().contains("no XDP data path on this interface"), "{}", tracker.log());
    Client::new(tracker.udp[0]).connect();
}

#[test]
fn an_interface_that_another_tracker_uses_is_refused() {
    over_xdp(&[], |_, server, _| {
        let settings = [ON_SERVER, ("SHOAL_UDP_LISTEN", "127.0.0.1:0"), ("SHOAL_HTTP_LISTEN", "127.0.0.1:0")];
        let output = server.run(|| run(&[], &settings));
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && log.contains("another AF_XDP socket"), "{log}");
    });
}
