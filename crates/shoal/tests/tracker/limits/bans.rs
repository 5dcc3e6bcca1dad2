//! Bans that sources earn, over every protocol and both families.
//!
//! Private addresses are never banned, so the clients have public ones, on the loopback interface of a network namespace.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use shoal_testkit::client::http::{Client as Http, get};
use shoal_testkit::client::tls::{self, Tls};
use shoal_testkit::client::websocket::WebSocket;
use shoal_testkit::client::{Stream, tcp};
use shoal_testkit::namespace::Namespace;
use shoal_testkit::nats::{Options, Server};
use shoal_testkit::tokens::{Issuer, encode, jwks, message};

use crate::http::certificate;
use crate::kit::browser;
use crate::kit::client::{Announce, Client, connect_packet};
use crate::kit::harness::{PATIENCE, Tracker, eventually, run_locally};
use crate::kit::web::announce;
use crate::udp::hash;
use crate::upgrade::Upgraded;

// These addresses are for benchmarks (RFC 2544, RFC 5180).
const PROXY: &str = "198.18.0.9";

/// Far more than the settings permit.
const TIMES: u8 = 60;

/// The causes begin at small numbers. A limit of 50 a second is exceeded by what comes at once.
const SETTINGS: [(&str, &str); 14] = [
    ("SHOAL_UDP_LISTEN", "198.18.0.1:0,[2001:2::1]:0"),
    ("SHOAL_HTTP_LISTEN", "198.18.0.1:0,[2001:2::1]:0"),
    ("SHOAL_TLS_LISTEN", "198.18.0.1:0,[2001:2::1]:0"),
    ("SHOAL_BANS_MALFORMED_PER_MIN", "20"),
    ("SHOAL_BANS_TORRENTS_PER_H", "20"),
    ("SHOAL_BANS_PEER_IDS_PER_H", "20"),
    ("SHOAL_BANS_OVER_LIMIT_S", "1"),
    ("SHOAL_LIMITS_UDP_REQUESTS_PER_S", "100"),
    ("SHOAL_LIMITS_HTTP_REQUESTS_PER_S", "100"),
    ("SHOAL_LIMITS_WEBTORRENT_REQUESTS_PER_S", "100"),
    ("SHOAL_LIMITS_BURST_S", "1"),
    ("SHOAL_LIMITS_EXEMPT", "198.18.0.77"),
    ("SHOAL_PROXY_TRUSTED", PROXY),
    ("SHOAL_PROXY_HEADER", "x-forwarded-for"),
];

/// A number of requests at once that is beyond the limit for longer than is forgiven.
const FLOOD: u16 = 400;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Number of /56 of one /48, in each of which a client has an address.
const CUSTOMERS: u16 = 24;

/// Returns the address of a client in one of these /56.
fn customer(number: u16) -> String {
    format!("2001:2:1:{:x}::1", number << 8)
}

/// Runs a test with addresses of both families for clients.
fn with_addresses(test: impl FnOnce() + Send) {
    let network = Namespace::new().unwrap();
    let mut lines = "link set lo up\n".to_owned();
    let v4 = ["198.18.0.0/24", "198.18.1.0/24"];
    let v6 = ["2001:2::1/128", "2001:2:0:1::1/128", "2001:2:0:2::1/128"];
    v4.iter().for_each(|network| lines += &format!("route add local {network} dev lo\n"));
    v6.iter().for_each(|address| lines += &format!("addr add {address} dev lo nodad\n"));
    (0..CUSTOMERS).for_each(|number| lines += &format!("addr add {}/128 dev lo nodad\n", customer(number)));
    network.ip(&lines).unwrap();
    network.run(test);
}

fn start(more: &[(&str, &str)]) -> Tracker {
    let (certificate, key) = certificate();
    let tls = [("SHOAL_TLS_CERTIFICATES", certificate), ("SHOAL_TLS_KEYS", key)];
    Tracker::start(&[&SETTINGS, &tls[..], more].concat())
}

fn of_family(addresses: &[SocketAddr], from: IpAddr) -> SocketAddr {
    *addresses.iter().find(|address| address.is_ipv4() == from.is_ipv4()).unwrap()
}

fn http(tracker: &Tracker, from: IpAddr) -> Http {
    Http::over(tcp(from, of_family(&tracker.http, from), PATIENCE).unwrap())
}

/// Returns the bans, as `198.18.1.1/32 malformed requests (bans.malformed_per_min)`.
fn bans(tracker: &Tracker) -> Vec<String> {
    let bans: Value = serde_json::from_str(&tracker.page("/api/v1/bans").body).unwrap();
    let text = |ban: &Value| {
        assert_eq!(ban["by"], "automatic");
        format!("{} {}", ban["network"].as_str().unwrap(), ban["reason"].as_str().unwrap())
    };
    bans["bans"].as_array().unwrap().iter().map(text).collect()
}

fn wait_for_ban(tracker: &Tracker, network: &str, key: &str) {
    eventually(&format!("{network} is banned"), || {
        bans(tracker).into_iter().find(|ban| ban.starts_with(&format!("{network} ")) && ban.contains(key))
    });
}

/// Sends requests that cannot be understood, until the last one or a close.
fn malformed(tracker: &Tracker, from: &str) -> Http {
    over_http(tracker, ip(from), (0..TIMES).map(|_| "/announce?x".to_owned()))
}

/// Runs `shoal ctl` as the user of the tracker.
fn ctl(tracker: &Tracker, arguments: &[&str]) -> String {
    let output = run_locally(tracker, &[&["ctl"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends datagrams from a client that has proved its address.
fn over_udp(tracker: &Tracker, from: IpAddr, packets: impl IntoIterator<Item = Announce>) -> Client {
    let client = Client::from_ip(from, of_family(&tracker.udp, from));
    let id = client.connect();
    packets.into_iter().for_each(|announce| client.send(&announce.packet(id, 5)));
    client
}

fn unknown_action(connection_id: u64) -> Vec<u8> {
    [&connection_id.to_be_bytes()[..], &9_u32.to_be_bytes(), &5_u32.to_be_bytes()].concat()
}

/// Sends requests over one connection, each after the answer to the one before, until the last one or a close.
fn over_http(tracker: &Tracker, from: IpAddr, targets: impl Iterator<Item = String>) -> Http {
    let mut client = http(tracker, from);
    for target in targets {
        let answer = client.send(&get(&target)).and_then(|()| client.receive());
        if !matches!(answer, Ok(Some(_))) {
            break;
        }
    }
    client
}

fn socket(tracker: &Tracker, from: IpAddr) -> WebSocket {
    WebSocket::over(tcp(from, of_family(&tracker.http, from), PATIENCE).unwrap()).unwrap()
}

fn is_served(tracker: &Tracker, from: IpAddr) -> bool {
    let client = Client::from_ip(from, of_family(&tracker.udp, from));
    let reply = client.ask(&Announce::seeder(hash(200), 1).packet(client.connect(), 5));
    let web = http(tracker, from).request(&get(&announce(hash(200), 1, "")));
    reply[3] == 1 && web.is_ok_and(|answer| answer.status == 200)
}

/// Waits until a source whose ban is lifted is served again, over HTTP first: a datagram that is dropped gets no reply.
fn wait_until_served(tracker: &Tracker, from: IpAddr) {
    eventually("it is served again", || {
        let web = http(tracker, from).request(&get(&announce(hash(200), 1, "")));
        web.is_ok_and(|answer| answer.status == 200).then_some(())
    });
}

/// Returns what a connection answers to an announce before it closes.
fn answer_of(mut stream: Box<dyn Stream>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The tracker closes without reading, so both may fail.
    let _ = stream.write_all(&get("/announce")).and_then(|()| stream.read_to_end(&mut bytes));
    bytes
}

/// Asserts that a banned source gets nothing, over any protocol.
fn assert_banned(tracker: &Tracker, from: IpAddr) {
    let family = if from.is_ipv4() { "family=\"v4\"" } else { "family=\"v6\"" };
    let dropped = |protocol| tracker.metric("shoal_drops_total", &[protocol, family, "reason=\"banned\""]);
    // The workers take the ban over before their next batches.
    let client = Client::from_ip(from, of_family(&tracker.udp, from));
    eventually("datagrams are dropped", || {
        let before = dropped("protocol=\"udp\"");
        client.send(&connect_packet(1));
        (dropped("protocol=\"udp\"") > before).then_some(())
    });
    eventually("connections are closed without a word", || {
        let stream = tcp(from, of_family(&tracker.http, from), PATIENCE).unwrap();
        answer_of(Box::new(stream)).is_empty().then_some(())
    });
    eventually("connections with TLS, too", || {
        let before = dropped("protocol=\"http\"");
        let stream = tls::open(from, of_family(&tracker.tls, from), Some(&Tls::new().unwrap()), PATIENCE);
        let is_silent = stream.map_or(true, |stream| answer_of(stream).is_empty());
        (is_silent && dropped("protocol=\"http\"") > before).then_some(())
    });
}

#[test]
fn each_cause_earns_a_ban_over_udp() {
    with_addresses(|| {
        let tracker = start(&[]);
        let seeder = |torrent: u8, id: u8| {
            let mut announce = Announce::seeder(hash(torrent.into()), 6881);
            announce.peer_id[19] = id;
            announce
        };
        over_udp(&tracker, ip("198.18.1.1"), (0..TIMES).map(|number| seeder(number, 0)));
        wait_for_ban(&tracker, "198.18.1.1/32", "torrents_per_h");
        over_udp(&tracker, ip("198.18.1.2"), (0..TIMES).map(|number| seeder(0, number)));
        wait_for_ban(&tracker, "198.18.1.2/32", "peer_ids_per_h");
        over_udp(&tracker, ip("198.18.1.3"), (0..FLOOD).map(|_| seeder(0, 0)));
        wait_for_ban(&tracker, "198.18.1.3/32", "over_limit_s");
        for (address, network) in [("198.18.1.4", "198.18.1.4/32"), ("2001:2:0:1::1", "2001:2:0:1::/64")] {
            let client = over_udp(&tracker, ip(address), []);
            let id = client.connect();
            (0..TIMES).for_each(|_| client.send(&unknown_action(id)));
            wait_for_ban(&tracker, network, "malformed_per_min");
            assert_banned(&tracker, ip(address));
        }
        for neighbour in ["198.18.1.5", "2001:2:0:2::1"] {
            assert!(is_served(&tracker, ip(neighbour)), "{neighbour}");
        }
        assert_eq!(bans(&tracker).len(), 5);
        assert_eq!(tracker.metric("shoal_bans", &[]), 5);
        assert_eq!(tracker.metric("shoal_bans_earned_total", &["cause=\"malformed\""]), 2);
    });
}

#[test]
fn each_cause_earns_a_ban_over_http() {
    with_addresses(|| {
        let tracker = start(&[]);
        let target = |torrent: u8, id: u8| {
            announce(hash(torrent.into()), 6881, "").replace("abcdefghijkl", &format!("abcdefghij{id:02}"))
        };
        over_http(&tracker, ip("198.18.1.1"), (0..TIMES).map(|number| target(number, 0)));
        wait_for_ban(&tracker, "198.18.1.1/32", "torrents_per_h");
        over_http(&tracker, ip("198.18.1.2"), (0..TIMES).map(|number| target(0, number)));
        wait_for_ban(&tracker, "198.18.1.2/32", "peer_ids_per_h");
        over_http(&tracker, ip("198.18.1.3"), (0..FLOOD).map(|_| target(0, 0)));
        wait_for_ban(&tracker, "198.18.1.3/32", "over_limit_s");
        let mut live = malformed(&tracker, "2001:2:0:1::1");
        wait_for_ban(&tracker, "2001:2:0:1::/64", "malformed_per_min");
        assert_banned(&tracker, ip("2001:2:0:1::1"));
        let _ = live.send(&get("/announce"));
        assert!(!matches!(live.receive(), Ok(Some(_))), "the open connection is closed");
        // Bytes that are no request, each time on a new connection.
        for _ in 0..TIMES {
            // The last ones may find it banned already.
            let Ok(stream) = tcp(ip("198.18.1.4"), of_family(&tracker.http, ip("198.18.1.4")), PATIENCE)
            else {
                break;
            };
            let mut client = Http::over(stream);
            let _ = client.send(b"nonsense\r\n\r\n").and_then(|()| client.receive());
        }
        wait_for_ban(&tracker, "198.18.1.4/32", "malformed_per_min");
        assert!(is_served(&tracker, ip("198.18.1.5")) && is_served(&tracker, ip("2001:2:0:2::1")));
    });
}

type Message = fn(u8) -> Value;

/// Returns an announce of one of 64 torrents.
fn torrent(number: u8) -> Value {
    browser::announce(char::from(b'0' + number), 'a', 0)
}

#[test]
fn each_cause_earns_a_ban_over_webtorrent_and_closes_the_socket() {
    with_addresses(|| {
        let tracker = start(&[]);
        let messages: [(&str, &str, Message); 2] =
            [("198.18.1.1", "torrents_per_h", torrent), ("198.18.1.3", "over_limit_s", |_| torrent(0))];
        for (address, key, message) in messages {
            let mut client = socket(&tracker, ip(address));
            let times = if key == "over_limit_s" { FLOOD } else { TIMES.into() };
            for number in 0..times {
                if client.send(&message(u8::try_from(number % 64).unwrap())).is_err() {
                    break;
                }
            }
            wait_for_ban(&tracker, &format!("{address}/32"), key);
            eventually("the socket is closed", || {
                let _ = client.send(&torrent(1));
                client.receive().is_err().then_some(())
            });
            assert_banned(&tracker, ip(address));
        }
        let mut neighbour = socket(&tracker, ip("198.18.1.4"));
        neighbour.send(&torrent(0)).unwrap();
        assert!(neighbour.receive().unwrap()["interval"].is_u64());
    });
}

#[test]
fn no_source_is_banned_for_what_a_forged_address_sends() {
    with_addresses(|| {
        let tracker = start(&[]);
        let from = ip("198.18.1.1");
        let forged = Client::from_ip(from, of_family(&tracker.udp, from));
        let wrong_id = 0x1234_5678_9abc_def0;
        for number in 0..FLOOD {
            forged.send(&unknown_action(wrong_id));
            forged.send(&Announce::seeder(hash(number.into()), 6881).packet(wrong_id, 5));
            forged.send(&connect_packet(7));
            forged.send(b"short");
        }
        // Exempt networks never are, and what comes after all of that shows that it was looked at.
        malformed(&tracker, "198.18.0.77");
        malformed(&tracker, "198.18.1.2");
        wait_for_ban(&tracker, "198.18.1.2/32", "malformed_per_min");
        assert_eq!(bans(&tracker).len(), 1, "{:?}", bans(&tracker));
        assert!(is_served(&tracker, from) && is_served(&tracker, ip("198.18.0.77")));
    });
}

#[test]
fn the_client_of_a_proxy_is_refused_and_the_proxy_goes_on() {
    with_addresses(|| {
        let tracker = start(&[]);
        let mut proxy = http(&tracker, ip(PROXY));
        let mut status = |client: &str, target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: {client}\r\n\r\n");
            proxy.request(request.as_bytes()).unwrap().status
        };
        (0..TIMES).for_each(|_| {
            status("198.18.1.1", "/announce?x");
        });
        wait_for_ban(&tracker, "198.18.1.1/32", "malformed_per_min");
        eventually("the client is refused", || (status("198.18.1.1", "/announce?x") == 403).then_some(()));
        assert_eq!(status("198.18.1.2", &announce(hash(1), 1, "")), 200);
        assert_eq!(bans(&tracker).len(), 1);
    });
}

#[test]
fn a_ban_survives_a_restart_and_is_lifted_by_one_command() {
    with_addresses(|| {
        let directory = tempfile::tempdir().unwrap();
        let [file, audit] = ["bans", "audit"].map(|name| directory.path().join(name));
        let settings = [
            ("SHOAL_ACCESS_BANS_FILE", file.to_str().unwrap()),
            ("SHOAL_ACCESS_AUDIT_FILE", audit.to_str().unwrap()),
        ];
        let mut tracker = start(&settings);
        malformed(&tracker, "2001:2:0:1::1");
        malformed(&tracker, "198.18.1.1");
        eventually("the bans are written", || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            (text.lines().count() == 2).then_some(())
        });
        assert_eq!(fs::read_to_string(&audit).unwrap().matches("\"by\":\"the tracker\"").count(), 2);
        assert_eq!(tracker.stop().code(), Some(0));
        let tracker = start(&settings);
        assert_eq!(bans(&tracker).len(), 2);
        assert_banned(&tracker, ip("2001:2:0:1::1"));
        assert!(ctl(&tracker, &["source", "2001:2:0:1::1"]).contains("malformed_per_min"));
        let lifted = ctl(&tracker, &["bans", "remove", "2001:2:0:1::1"]);
        assert_eq!(lifted, "the ban of 2001:2:0:1::/64 is lifted\n");
        wait_until_served(&tracker, ip("2001:2:0:1::1"));
        assert_eq!(ctl(&tracker, &["bans", "clear"]), "lifted: 1\n");
        assert!(bans(&tracker).is_empty());
    });
}

#[test]
fn what_is_earned_in_the_last_moment_survives_a_stop() {
    with_addresses(|| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bans");
        let settings = [("SHOAL_ACCESS_BANS_FILE", file.to_str().unwrap())];
        let mut tracker = start(&settings);
        malformed(&tracker, "198.18.1.1");
        assert_eq!(tracker.stop().code(), Some(0));
        let tracker = start(&settings);
        assert_eq!(bans(&tracker), ["198.18.1.1/32 malformed requests (bans.malformed_per_min)"]);
        assert_banned(&tracker, ip("198.18.1.1"));
    });
}

#[test]
fn bans_and_lifts_that_are_not_in_the_file_survive_an_upgrade_and_then_a_restart() {
    with_addresses(|| {
        let directory = tempfile::tempdir().unwrap();
        let [file, new] = ["bans", "bans.new"].map(|name| directory.path().join(name));
        let settings = [("SHOAL_ACCESS_BANS_FILE", file.to_str().unwrap())];
        // The tracker writes this file first, and cannot while there is a directory in its place.
        fs::create_dir(&new).unwrap();
        let upgraded = Upgraded::new(start(&settings));
        for (address, network) in [("198.18.1.1", "198.18.1.1/32"), ("2001:2:0:1::1", "2001:2:0:1::/64")] {
            malformed(&upgraded.tracker, address);
            wait_for_ban(&upgraded.tracker, network, "malformed_per_min");
            upgraded.upgrade();
            eventually("the new process knows the ban", || {
                bans(&upgraded.tracker).iter().any(|ban| ban.starts_with(network)).then_some(())
            });
            assert_banned(&upgraded.tracker, ip(address));
        }
        assert!(!file.exists());
        let wait_for_lines = |lines: usize| {
            eventually("the process that serves writes the file", || {
                (fs::read_to_string(&file).unwrap_or_default().lines().count() == lines).then_some(())
            });
        };
        fs::remove_dir(&new).unwrap();
        wait_for_lines(2);
        fs::create_dir(&new).unwrap();
        ctl(&upgraded.tracker, &["bans", "remove", "198.18.1.1"]);
        // The new process reads the lifted ban in the file.
        wait_for_lines(2);
        upgraded.upgrade();
        wait_until_served(&upgraded.tracker, ip("198.18.1.1"));
        fs::remove_dir(&new).unwrap();
        wait_for_lines(1);
        drop(upgraded);
        let tracker = start(&settings);
        assert_eq!(bans(&tracker), ["2001:2:0:1::/64 malformed requests (bans.malformed_per_min)"]);
        assert_banned(&tracker, ip("2001:2:0:1::1"));
        assert!(is_served(&tracker, ip("198.18.1.1")));
    });
}

#[test]
fn tokens_with_wrong_signatures_earn_a_ban_over_http() {
    with_addresses(|| {
        let issuer = Issuer::ed25519("ed");
        let directory = tempfile::tempdir().unwrap();
        let keys = directory.path().join("jwks.json");
        fs::write(&keys, jwks(&[issuer.jwk()])).unwrap();
        let settings =
            [("SHOAL_TOKENS_JWKS", keys.to_str().unwrap()), ("SHOAL_BANS_BAD_TOKENS_PER_MIN", "20")];
        let tracker = start(&settings);
        let claims = |number: u8| json!({ "exp": u32::MAX, "jti": number });
        let with = |token: String| announce(hash(1), 6881, &format!("&jwt={token}"));
        let forged = |number| {
            let signed = message(&json!({ "alg": "EdDSA", "kid": "ed" }), &claims(number));
            with(format!("{signed}.{}", encode(&[7; 64])))
        };
        over_http(&tracker, ip("198.18.1.1"), (0..TIMES).map(forged));
        wait_for_ban(&tracker, "198.18.1.1/32", "bad_tokens_per_min");
        assert_banned(&tracker, ip("198.18.1.1"));
        // Neither good tokens nor none earn any.
        let good = |number| with(issuer.token(&claims(number)));
        over_http(&tracker, ip("198.18.1.2"), (0..TIMES).map(good));
        over_http(&tracker, ip("198.18.1.3"), (0..TIMES).map(|_| announce(hash(1), 6881, "")));
        over_http(&tracker, ip("2001:2:0:1::1"), (0..TIMES).map(forged));
        wait_for_ban(&tracker, "2001:2:0:1::/64", "bad_tokens_per_min");
        assert_eq!(bans(&tracker).len(), 2, "{:?}", bans(&tracker));
        assert_eq!(tracker.metric("shoal_bans_earned_total", &["cause=\"bad_token\""]), 2);
    });
}

#[test]
fn a_full_table_of_bans_loses_the_one_that_ends_first() {
    with_addresses(|| {
        let tracker = start(&[("SHOAL_BANS_SOURCES_MAX", "2")]);
        for (address, network) in [
            ("198.18.1.1", "198.18.1.1/32"),
            ("2001:2:0:1::1", "2001:2:0:1::/64"),
            ("198.18.1.3", "198.18.1.3/32"),
        ] {
            malformed(&tracker, address);
            wait_for_ban(&tracker, network, "malformed_per_min");
        }
        assert_eq!((bans(&tracker).len(), tracker.metric("shoal_bans", &[])), (2, 2));
        assert!(bans(&tracker).iter().all(|ban| !ban.starts_with("198.18.1.1/32")));
        wait_until_served(&tracker, ip("198.18.1.1"));
        assert_banned(&tracker, ip("198.18.1.3"));
    });
}

#[test]
fn a_flood_of_ipv6_prefixes_ends_with_a_ban_of_the_site_and_is_bounded() {
    with_addresses(|| {
        let tracker = start(&[("SHOAL_BANS_SOURCES_MAX", "4")]);
        for number in 0..CUSTOMERS {
            malformed(&tracker, &customer(number));
        }
        wait_for_ban(&tracker, "2001:2:1::/48", "malformed_per_min");
        assert!(bans(&tracker).len() <= 4, "{:?}", bans(&tracker));
        assert!(tracker.metric("shoal_bans_earned_total", &["cause=\"malformed\""]) > 4);
        // Its ban holds for those as well whose own bans have made room.
        assert_banned(&tracker, ip(&customer(0)));
        assert!(is_served(&tracker, ip("2001:2:0:1::1")) && is_served(&tracker, ip("198.18.1.5")));
    });
}

/// Returns the networks that all nodes of a cluster ban, as one of them knows them.
fn shared_bans(tracker: &Tracker) -> Vec<String> {
    let bans: Value = serde_json::from_str(&tracker.page("/api/v1/bans").body).unwrap();
    let shared = bans["cluster"].as_array().cloned().unwrap_or_default();
    shared
        .iter()
        .map(|ban| format!("{} {}", ban["network"].as_str().unwrap(), ban["by"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_ban_that_a_source_earns_at_one_node_holds_at_all_and_is_lifted_at_all() {
    with_addresses(|| {
        let nats = Server::start(&Options::default()).expect("the server starts");
        let [one, two] = ["one", "two"]
            .map(|node| start(&[("SHOAL_CLUSTER_SERVERS", &nats.url()), ("SHOAL_CLUSTER_NODE", node)]));
        // A ban that is earned before a node follows the shared state is not shared.
        for node in [&one, &two] {
            eventually("the node follows the shared state", || {
                (node.metric("shoal_cluster_shared_followed", &[]) == 1).then_some(())
            });
        }
        for (address, network) in
            [("198.18.1.1", "198.18.1.1/32 automatic"), ("2001:2:0:1::1", "2001:2:0:1::/64 automatic")]
        {
            malformed(&one, address);
            // A ban that is earned while another is being shared is not shared.
            for node in [&one, &two] {
                eventually("the node knows the ban", || {
                    shared_bans(node).iter().any(|ban| ban == network).then_some(())
                });
            }
        }
        assert!(bans(&two).is_empty(), "nothing was earned there");
        assert_banned(&two, ip("198.18.1.1"));
        assert_banned(&two, ip("2001:2:0:1::1"));
        assert!(is_served(&two, ip("198.18.1.5")));
        // The node at which it was earned forgets it as well.
        ctl(&two, &["bans", "remove", "198.18.1.1"]);
        for node in [&one, &two] {
            wait_until_served(node, ip("198.18.1.1"));
        }
        assert_banned(&one, ip("2001:2:0:1::1"));
    });
}
