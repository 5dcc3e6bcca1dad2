//! Rules about what requests say, and about who owns the networks that they come from.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;

use nix::sys::signal::Signal;
use shoal_testkit::client::websocket::upgrade;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, STOPPED, connect_packet, word};
use crate::kit::harness::{Tracker, eventually, run};
use crate::kit::web::{Web, announce, tcp_from};
use crate::udp::hash;

over_every_way!(
    a_user_agent_is_refused_dropped_or_told_another_interval,
    a_foreign_host_is_refused_with_the_right_names,
);

/// Loopback is exempt from rules unless a test says otherwise.
const NONE_EXEMPT: (&str, &str) = ("SHOAL_LIMITS_EXEMPT", "");

/// Intervals are exact.
const NO_JITTER: (&str, &str) = ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0");

/// Sends a GET with these header fields.
fn send(web: &mut Web, target: &str, fields: &str) {
    web.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n").as_bytes());
}

fn body(web: &mut Web, target: &str, fields: &str) -> String {
    send(web, target, fields);
    String::from_utf8_lossy(&web.answer().body).into_owned()
}

fn hits(tracker: &Tracker, rule: &str) -> u64 {
    tracker.metric("shoal_rule_hits_total", &[&format!("rule=\"{rule}\"")])
}

fn a_user_agent_is_refused_dropped_or_told_another_interval(way: Way) {
    let rules =
        "user-agent Bad* drop,user-agent 'Old Client/*' refuse please update,user-agent *slow* interval 7200";
    let tracker = way.start(&[("SHOAL_ACCESS_RULES", rules), NONE_EXEMPT, NO_JITTER]);
    let target = announce(hash(1), 1, "");
    let scrape = target.replace("/announce", "/scrape");
    let mut web = way.connect(&tracker);
    let long = format!("User-Agent: OLD client/{}\r\n", "x".repeat(7 << 10));
    for fields in ["User-Agent: Old Client/1.2\r\n", &long] {
        for target in [&target, &scrape] {
            assert!(body(&mut web, target, fields).contains("14:failure reason13:please update"));
        }
    }
    assert!(body(&mut web, &target, "User-Agent: a Slow one\r\n").contains("8:intervali7200e"));
    for fields in ["", "User-Agent: Good\r\n"] {
        let usual = body(&mut web, &target, fields);
        assert!(usual.contains("8:interval") && !usual.contains("8:intervali7200e"), "{usual}");
    }
    // No User-Agent takes more than a head may have.
    let mut longest = way.connect(&tracker);
    send(&mut longest, &target, &format!("User-Agent: Old Client/{}\r\n", "x".repeat(8 << 10)));
    assert_eq!(longest.answer().status, 431);
    for target in [&target, &scrape] {
        let mut web = way.connect(&tracker);
        send(&mut web, target, "User-Agent: BadBot\r\n");
        assert_eq!(web.until_closed().unwrap_or_default(), b"", "{target}");
    }
    // The opening request decides for a WebSocket.
    let mut dropped = way.connect(&tracker);
    let request = String::from_utf8(upgrade("/announce", "dGhlIHNhbXBsZSBub25jZQ==")).unwrap();
    dropped.send(request.replace("\r\n\r\n", "\r\nUser-Agent: BadBot\r\n\r\n").as_bytes());
    assert_eq!(dropped.until_closed().unwrap_or_default(), b"");
    let knock = |agent| Browser::knock(way.address(&tracker), way.tls(), &[("User-Agent", agent)]).unwrap();
    let mut old = knock("Old Client/1");
    for message in [browser::announce('t', 'a', 0), serde_json::json!({"action": "scrape"})] {
        assert_eq!(old.ask(&message)["failure reason"], "please update");
    }
    assert_eq!(knock("slow").ask(&browser::announce('t', 'a', 0))["interval"], 7200);
    assert_eq!(hits(&tracker, "user-agent Bad* drop"), 3);
    assert_eq!(hits(&tracker, "user-agent 'Old Client/*' refuse"), 6);
    assert_eq!(hits(&tracker, "user-agent *slow* interval 7200"), 2);
    let of = |outcome: &str| {
        tracker.metric("shoal_replies_total", &["protocol=\"http\"", &format!("outcome=\"{outcome}\"")])
    };
    assert_eq!((of("user_agent_denied"), of("dropped")), (4, 2));
}

fn a_foreign_host_is_refused_with_the_right_names(way: Way) {
    let rules = "host old.example drop,host *.slow.example interval 7200";
    let hosts = "tracker.test,old.example,a.slow.example,[2001:DB8::7],192.0.2.7";
    let tracker = way.start(&[
        ("SHOAL_ACCESS_RULES", rules),
        ("SHOAL_ACCESS_HOSTS_ALLOW", hosts),
        NONE_EXEMPT,
        NO_JITTER,
    ]);
    let words = "this tracker is not served under that name; it is served as tracker.test, old.example, a.slow.example, \
                 [2001:db8::7], 192.0.2.7";
    let target = announce(hash(1), 1, "");
    let mut web = way.connect(&tracker);
    let names = ["tracker.test", "TRACKER.Test", "tracker.test.", "tracker.test:6969", "Tracker.test.:80"];
    let addresses = ["[2001:db8::7]", "[2001:DB8:0::7]:6969", "192.0.2.7", "192.0.2.7:6969"];
    for host in names.into_iter().chain(addresses) {
        let body = body(&mut web, &target, &format!("Host: {host}\r\n"));
        assert!(body.contains("8:interval"), "{host}: {body}");
    }
    for host in ["foreign.example", "a.tracker.test", "192.0.2.1:6969", "[2001:db8::1]:80", ""] {
        let body = body(&mut web, &target, &format!("Host: {host}\r\n"));
        assert!(body.contains(words), "{host}: {body}");
    }
    assert!(body(&mut web, &target, "Host: a.slow.example:1\r\n").contains("8:intervali7200e"));
    // A client that names no host came by no foreign one.
    assert!(body(&mut web, &target, "").contains("8:interval"));
    send(&mut web, &target, "Host: OLD.example\r\n");
    assert_eq!(web.until_closed().unwrap_or_default(), b"");
    // The name of the handshake does not count, and may differ in each request.
    if way.tls() {
        let mut web = Web::connect_by_name(way.address(&tracker), "foreign.example").0;
        assert!(body(&mut web, &target, "Host: tracker.test\r\n").contains("8:interval"));
        assert!(body(&mut web, &target, "Host: foreign.example\r\n").contains(words));
    }
    // A WebSocket opens, and its announces get the words.
    let mut page = Browser::open(way, &tracker);
    assert!(page.ask(&browser::announce('t', 'a', 0))["interval"].is_number());
    let request = String::from_utf8(upgrade("/", "dGhlIHNhbXBsZSBub25jZQ==")).unwrap();
    let mut dropped = way.connect(&tracker);
    dropped.send(request.replace("tracker.test", "old.example").as_bytes());
    assert_eq!(dropped.until_closed().unwrap_or_default(), b"");
    // UDP names no host.
    let udp = Client::new(tracker.udp[usize::from(way.is_v6())]);
    assert_eq!(udp.announce(&Announce::leecher(hash(2), 6881)).leechers, 1);
}

#[test]
fn autonomous_systems_and_countries_hold_over_every_protocol_and_follow_their_table() {
    let directory = tempfile::tempdir().unwrap();
    let (table, file) = (directory.path().join("table"), directory.path().join("shoal.toml"));
    let others = "network,autonomous_system_number\n10.0.0.0/8,64511,x\n";
    fs::write(&table, format!("{others}127.0.0.8,127.0.0.8,64512,x\n127.0.0.9/32,64513,x\n::1,::1,ZZ\n"))
        .unwrap();
    let text = "[access]\nrules = [\"client -GO interval 60\", \"as 64513 interval 7200\", \"country ZZ refuse not here\", \
                \"as 64512 refuse\", \"client -BD drop\"]\n";
    let text = format!("{text}geoip = [\"{}\"]\n", table.display());
    fs::write(&file, &text).unwrap();
    let tracker = Tracker::start_with_path(&file, &[NONE_EXEMPT, NO_JITTER]);
    let [refused, slow, usual] = ["127.0.0.8", "127.0.0.9", "127.0.0.10"]
        .map(|ip| Client::from_ip(ip.parse().unwrap(), tracker.udp[0]));
    let v6 = Client::new(tracker.udp[1]);
    let peer = Announce::leecher(hash(1), 6881);
    let good = Announce { peer_id: *b"-GO12345678901234567", ..peer };
    let bad = Announce { peer_id: *b"-BD12345678901234567", ..peer };
    let words = "your network is not served by this tracker";
    assert_eq!(refused.refusal(&peer.packet(refused.connect(), 5)), words);
    assert_eq!(v6.refusal(&peer.packet(v6.connect(), 5)), "not here");
    assert_eq!(slow.announce(&peer).interval_s, 7200);
    assert_ne!(usual.announce(&peer).interval_s, 7200);
    // The first rule that matches applies, whatever it is about.
    assert_eq!(refused.announce(&good).interval_s, 60);
    usual.send(&bad.packet(usual.connect(), 5));
    usual.assert_silence("a client that is dropped");
    assert_eq!(tracker.metric("shoal_drops_total", &["family=\"v4\"", "reason=\"rule\""]), 1);
    let body = |from: [u8; 4], address: SocketAddr| {
        let mut web = Web::over(tcp_from(from, address));
        String::from_utf8_lossy(&web.get(&announce(hash(1), 1, "")).body).into_owned()
    };
    assert!(body([127, 0, 0, 8], tracker.http[0]).contains(words));
    assert!(body([127, 0, 0, 9], tracker.http[0]).contains("8:intervali7200e"));
    let web = Web::connect(tracker.http[1], false).get(&announce(hash(1), 1, ""));
    assert!(String::from_utf8_lossy(&web.body).contains("not here"));
    let mut page = Browser::open(Way::new(true, false), &tracker);
    assert_eq!(page.ask(&browser::announce('t', 'a', 0))["failure reason"], "not here");
    let mut page = Browser::knock_from([127, 0, 0, 9], tracker.http[0], &[]).unwrap();
    assert_eq!(page.ask(&browser::announce('t', 'a', 0))["interval"], 7200);
    // The table is followed, and a damaged one changes nothing.
    let replace = |bytes: &[u8]| {
        fs::write(directory.path().join("new"), bytes).unwrap();
        fs::rename(directory.path().join("new"), &table).unwrap();
    };
    replace(format!("{others}127.0.0.9,127.0.0.9,64512,x\n::1,::1,YY\n").as_bytes());
    let packet = peer.packet(slow.connect(), 5);
    eventually("the table is followed", || (word(&slow.ask(&packet), 0) == 3).then_some(()));
    assert_eq!(v6.announce(&peer).leechers, 1);
    assert_ne!(refused.announce(&peer).interval_s, 7200);
    replace(b"\0\0\x01 damaged \xab\xcd\xefMaxMind.com");
    let line = tracker.wait_for_line("a list cannot be read and keeps its entries");
    assert!(line["error"].as_str().unwrap().contains("an intact MaxMind DB"), "{line}");
    assert_eq!(tracker.metric("shoal_list_sources_faulty", &["list=\"geoip\""]), 1);
    assert_eq!(slow.refusal(&packet), words);
    let checked = run(&["access", "check", "--config", file.to_str().unwrap()], &[]);
    let printed = String::from_utf8(checked.stderr).unwrap();
    assert!(printed.contains("an intact MaxMind DB"), "{printed}");
}

/// Returns a MaxMind DB of the year 2021 (https://maxmind.github.io/MaxMind-DB), in which one autonomous system owns the lower half
/// of all IPv4 addresses.
fn old_database(system: u32) -> Vec<u8> {
    let text = |text: &str| [&[0x40 | u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // One node: its left branch is the record behind sixteen bytes of zeros, its right one leads nowhere.
    let tree = [0, 0, 17, 0, 0, 1];
    let record =
        [vec![0xe1], text("autonomous_system_number"), vec![0xc4], system.to_be_bytes().to_vec()].concat();
    let mut database = [&tree[..], &[0; 16], &record, b"\xab\xcd\xefMaxMind.com\xe9"].concat();
    let built_unix_s = 1_610_612_736_u32.to_be_bytes();
    for (key, value) in [
        ("binary_format_major_version", vec![0xa1, 2]),
        ("binary_format_minor_version", vec![0xa1, 0]),
        ("build_epoch", [&[0x04, 0x02], &built_unix_s[..]].concat()),
        ("database_type", text("Test")),
        ("description", vec![0xe0]),
        ("ip_version", vec![0xa1, 4]),
        ("languages", vec![0x00, 0x04]),
        ("node_count", vec![0xc1, 1]),
        ("record_size", vec![0xa1, 24]),
    ] {
        database.extend([text(key), value].concat());
    }
    database
}

#[test]
fn an_ancient_database_applies_with_a_warning_and_a_reload_keeps_what_a_damaged_one_said() {
    let directory = tempfile::tempdir().unwrap();
    let (table, file) = (directory.path().join("table.mmdb"), directory.path().join("shoal.toml"));
    let whole = old_database(64512);
    fs::write(&table, &whole).unwrap();
    let configure = |rules: &str| {
        fs::write(&file, format!("[access]\nrules = [{rules}]\ngeoip = [\"{}\"]\n", table.display()))
            .unwrap();
    };
    configure("\"as 64512 refuse\"");
    let tracker = Tracker::start_with_path(&file, &[NONE_EXEMPT, NO_JITTER]);
    let log = tracker.log();
    assert!(
        log.contains("a table of access.geoip is old; networks have changed their owners since"),
        "{log}"
    );
    let client = Client::new(tracker.udp[0]);
    let packet = Announce::leecher(hash(1), 6881).packet(client.connect(), 5);
    assert_eq!(client.refusal(&packet), "your network is not served by this tracker");
    // The file is cut off, and the rules name another system and have other numbers and words.
    fs::write(&table, &whole[..whole.len() - 40]).unwrap();
    tracker.wait_for_line("a list cannot be read and keeps its entries");
    configure("\"user-agent x drop\", \"as 64513 drop\", \"as 64512 refuse in other words\"");
    tracker.signal(Signal::SIGHUP);
    eventually("the rules are read again", || (client.refusal(&packet) == "in other words").then_some(()));
    assert_eq!(tracker.metric("shoal_list_sources_faulty", &["list=\"geoip\""]), 1);
    // Rules that no longer name the system leave it alone.
    configure("\"as 64513 drop\"");
    tracker.signal(Signal::SIGHUP);
    eventually("the rule is gone", || (word(&client.ask(&packet), 0) == 1).then_some(()));
}

#[test]
fn a_reloaded_rule_applies_to_few_networks_of_a_table_with_a_faulty_line() {
    let directory = tempfile::tempdir().unwrap();
    let (table, file) = (directory.path().join("table.csv"), directory.path().join("shoal.toml"));
    let many: String = (0..198).map(|number| format!("10.{number}.0.0/24,64512,x\n")).collect();
    fs::write(&table, format!("{many}127.0.0.9/32,64513,x\nnonsense\n")).unwrap();
    let configure = |rule: &str| {
        fs::write(&file, format!("[access]\nrules = [\"{rule}\"]\ngeoip = [\"{}\"]\n", table.display()))
            .unwrap();
    };
    configure("as 64512 drop");
    let tracker = Tracker::start_with_path(&file, &[NONE_EXEMPT, NO_JITTER]);
    let client = Client::from_ip("127.0.0.9".parse().unwrap(), tracker.udp[0]);
    let packet = Announce::leecher(hash(1), 6881).packet(client.connect(), 5);
    assert_eq!(word(&client.ask(&packet), 0), 1);
    configure("as 64513 refuse not here");
    tracker.signal(Signal::SIGHUP);
    eventually("the rule applies", || (word(&client.ask(&packet), 0) == 3).then_some(()));
    assert_eq!(client.refusal(&packet), "not here");
}

#[test]
fn a_dropped_network_gets_nothing_from_any_protocol() {
    let rules = "network 127.0.0.8/32 drop,network ::1 drop";
    let tracker = Tracker::start(&[("SHOAL_ACCESS_RULES", rules), NONE_EXEMPT]);
    let v4 = Client::from_ip("127.0.0.8".parse().unwrap(), tracker.udp[0]);
    let v6 = Client::new(tracker.udp[1]);
    for (client, family) in [(&v4, "v4"), (&v6, "v6")] {
        client.send(&connect_packet(1));
        let family = format!("family=\"{family}\"");
        eventually("a connect request is dropped", || {
            (tracker.metric("shoal_drops_total", &[&family, "reason=\"rule\""]) == 1).then_some(())
        });
    }
    for (from, to) in [([127, 0, 0, 8], tracker.http[0]), ([127, 0, 0, 9], tracker.http[0])] {
        let mut stream = tcp_from(from, to);
        let request = format!("GET {} HTTP/1.1\r\n\r\n", announce(hash(1), 1, "&event=stopped"));
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = [0; 9];
        let read = stream.read(&mut reply).unwrap_or_default();
        assert_eq!(&reply[..read], if from[3] == 8 { &b""[..] } else { b"HTTP/1.1 " }, "{from:?}");
    }
}

#[test]
fn a_rule_does_not_touch_exempt_networks() {
    let rules = "user-agent * drop,network 127.0.0.0/8 drop,client - drop";
    let tracker = Tracker::start(&[
        ("SHOAL_ACCESS_RULES", rules),
        ("SHOAL_ACCESS_HOSTS_ALLOW", "other.example"),
        ("SHOAL_LIMITS_EXEMPT", "127.0.0.8"),
    ]);
    let monitor = Client::from_ip("127.0.0.8".parse().unwrap(), tracker.udp[0]);
    let peer = Announce { peer_id: *b"-BD12345678901234567", ..Announce::leecher(hash(1), 6881) };
    assert_eq!(monitor.announce(&peer).leechers, 1);
    assert_eq!(monitor.announce(&Announce { event: STOPPED, ..peer }).leechers, 0);
    let mut web = Web::over(tcp_from([127, 0, 0, 8], tracker.http[0]));
    assert_eq!(web.get(&announce(hash(1), 1, "")).status, 200);
    assert_eq!(hits(&tracker, "user-agent * drop"), 0);
}
