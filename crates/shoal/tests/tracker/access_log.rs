//! The access log, over every protocol and family, and with targets that fail.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, STARTED};
use crate::kit::harness::{PATIENCE, Tracker, eventually, run};
use crate::kit::web::{self, Web};

over_every_way!(requests_over_http_are_logged, messages_over_webtorrent_are_logged);

/// A tracker that logs to a file in a folder of its own.
struct Logged {
    tracker: Tracker,
    folder: TempDir,
}

impl Logged {
    fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_by(settings, Tracker::start)
    }

    /// The same, started by a function.
    fn start_by(settings: &[(&str, &str)], start: impl FnOnce(&[(&str, &str)]) -> Tracker) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        let usual = [("SHOAL_LOG_ACCESS", file.to_str().unwrap()), ("SHOAL_LOG_ACCESS_ADDRESSES", "full")];
        let tracker = start(&[&usual, settings].concat());
        Self { tracker, folder }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("access.log")
    }

    /// Waits until the file has this many lines, and returns them without their times.
    fn lines(&self, count: usize) -> Vec<Value> {
        eventually("all requests are in the log", || {
            let lines = read_lines(&self.file());
            (lines.len() >= count).then_some(lines)
        })
    }

    fn records(&self, outcome: &str) -> u64 {
        records(&self.tracker, outcome)
    }
}

/// The number of records with this outcome.
fn records(tracker: &Tracker, outcome: &str) -> u64 {
    tracker.metric("shoal_access_log_records_total", &[&format!("outcome=\"{outcome}\"")])
}

/// Reads whole lines without their times, whose form it checks.
fn read_lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(without_time).collect()
}

fn without_time(line: &str) -> Value {
    let mut line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    let time = line.as_object_mut().unwrap().remove("time").unwrap();
    let time = time.as_str().unwrap();
    assert!(time.len() == "2026-01-31T12:00:00.250Z".len() && time.ends_with('Z'), "{time}");
    line
}

#[test]
fn requests_over_udp_are_logged() {
    for (family, ip, peer_bytes) in [("v4", "127.0.0.1", 6), ("v6", "::1", 18)] {
        let logged = Logged::start(&[]);
        let tracker = &logged.tracker;
        let client = Client::new(tracker.udp[usize::from(family == "v6")]);
        client.announce(&Announce { event: STARTED, ..Announce::seeder([1; 20], 1001) });
        client.announce(&Announce::leecher([1; 20], 1002));
        client.scrape(&[[1; 20], [2; 20]]);
        client.send(&Announce::leecher([3; 20], 1003).packet(7, 5));
        client.assert_silence("a wrong connection id");
        let connect = json!({
            "protocol": "udp", "family": family, "client": ip, "kind": "connect", "outcome": "ok", "bytes": 16,
        });
        let announce = json!({
            "protocol": "udp", "family": family, "client": ip, "kind": "announce", "outcome": "ok",
            "info_hash": "01".repeat(20), "event": "started", "port": 1001, "peer_id": "-XX0001-abcdefghijkl",
            "software": "Xtorrent", "version": "0.0.0.1", "seeders": 1, "leechers": 0, "peers": 0, "bytes": 20,
        });
        let mut second = announce.clone();
        second["event"] = json!("update");
        second["port"] = json!(1002);
        second["leechers"] = json!(1);
        second["peers"] = json!(1);
        second["bytes"] = json!(20 + peer_bytes);
        let scrape = json!({
            "protocol": "udp", "family": family, "client": ip, "kind": "scrape", "outcome": "ok",
            "info_hash": "01".repeat(20), "torrents": 2, "bytes": 32,
        });
        let silent = json!({
            "protocol": "udp", "family": family, "client": ip, "kind": "announce",
            "outcome": "wrong_connection_id", "info_hash": "03".repeat(20), "event": "update", "port": 1003,
            "peer_id": "-XX0001-abcdefghijkl", "software": "Xtorrent", "version": "0.0.0.1", "bytes": 0,
        });
        let expected =
            [connect.clone(), announce, connect.clone(), second, connect.clone(), scrape, silent, connect];
        assert_eq!(logged.lines(8), expected);
    }
}

fn requests_over_http_are_logged(way: Way) {
    let folder = tempfile::tempdir().unwrap();
    let deny = folder.path().join("deny");
    fs::write(&deny, format!("{} not here\n", "02".repeat(20))).unwrap();
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", deny.to_str().unwrap())];
    let logged = Logged::start_by(&settings, |settings| way.start(settings));
    let mut web = way.connect(&logged.tracker);
    let mut bytes = vec![web.get(&web::announce([1; 20], 1001, "&event=started")).body.len()];
    bytes.push(web.get(&web::announce([2; 20], 1002, "")).body.len());
    bytes.push(web.get("/announce?info_hash=short").body.len());
    let scraped = format!("/scrape?info_hash={}", "%01".repeat(20));
    bytes.push(web.get(&scraped).body.len());
    let (family, ip) = if way.is_v6() { ("v6", "::1") } else { ("v4", "127.0.0.1") };
    let line = |kind: &str, outcome: &str, bytes: usize| {
        json!({
            "protocol": "http", "family": family, "client": ip, "kind": kind, "outcome": outcome, "bytes": bytes,
        })
    };
    let announced = |outcome: &str, hash: &str, event: &str, port: u16, bytes: usize| {
        let mut line = line("announce", outcome, bytes);
        line["info_hash"] = json!(hash.repeat(20));
        line["event"] = json!(event);
        line["port"] = json!(port);
        line["peer_id"] = json!("-TT0001-abcdefghijkl");
        line["software"] = json!("TuoTu");
        line["version"] = json!("0.0.0.1");
        line
    };
    let mut first = announced("ok", "01", "started", 1001, bytes[0]);
    first["seeders"] = json!(0);
    first["leechers"] = json!(1);
    first["peers"] = json!(0);
    let denied = announced("torrent_denied", "02", "update", 1002, bytes[1]);
    let mut scrape = line("scrape", "ok", bytes[3]);
    scrape["info_hash"] = json!("01".repeat(20));
    scrape["torrents"] = json!(1);
    assert_eq!(logged.lines(4), [first, denied, line("announce", "bad_query", bytes[2]), scrape]);
}

fn messages_over_webtorrent_are_logged(way: Way) {
    let logged = Logged::start_by(&[], |settings| way.start(settings));
    let mut browser = Browser::open(way, &logged.tracker);
    browser.ask(&browser::announce('t', 'p', 0));
    browser.ask(&json!({ "action": "scrape", "info_hash": browser::name('t') }));
    browser.ask(&json!({ "action": "announce" }));
    let lines = logged.lines(3);
    let (family, ip) = if way.is_v6() { ("v6", "::1") } else { ("v4", "127.0.0.1") };
    for (line, (kind, outcome)) in
        lines.iter().zip([("announce", "ok"), ("scrape", "ok"), ("announce", "bad_message")])
    {
        assert_eq!(line["protocol"], "webtorrent", "{line}");
        assert_eq!((line["family"].as_str(), line["client"].as_str()), (Some(family), Some(ip)), "{line}");
        assert_eq!((line["kind"].as_str(), line["outcome"].as_str()), (Some(kind), Some(outcome)), "{line}");
        assert!(line["bytes"].as_u64().unwrap() > 0, "{line}");
    }
    let hash = |line: &Value| line["info_hash"].as_str().map(str::len);
    assert_eq!((hash(&lines[0]), hash(&lines[1]), hash(&lines[2])), (Some(40), Some(40), None));
    assert_eq!(lines[0]["peer_id"], browser::name('p'), "{}", lines[0]);
    assert_eq!(lines[0]["seeders"].as_u64().unwrap() + lines[0]["leechers"].as_u64().unwrap(), 1);
    assert_eq!(lines[1]["torrents"], 1);
}

#[test]
fn clients_are_named_as_far_as_the_operator_wants() {
    for (addresses, expected) in [("network", json!("127.0.0.0/24")), ("none", Value::Null)] {
        let logged = Logged::start(&[("SHOAL_LOG_ACCESS_ADDRESSES", addresses)]);
        Client::new(logged.tracker.udp[0]).connect();
        assert_eq!(logged.lines(1)[0]["client"], expected);
    }
    let logged = Logged::start(&[("SHOAL_LOG_ACCESS_ADDRESSES", "network")]);
    Client::new(logged.tracker.udp[1]).connect();
    assert_eq!(logged.lines(1)[0]["client"], "::/48");
}

#[test]
fn markup_and_control_characters_of_clients_are_escaped() {
    let logged = Logged::start(&[]);
    let hash = "%01".repeat(20);
    let peer_id = "%3cscript%3e%0a%0d%00%1b%5b31m%22%5c%ff-";
    let target = format!("/announce?info_hash={hash}&peer_id={peer_id}&port=1&left=0");
    Way::PLAIN.connect(&logged.tracker).get(&target);
    let line = &logged.lines(1)[0];
    assert_eq!(line["peer_id"], "%3cscript%3e%0a%0d%00%1b%5b31m%22%5c%ff-", "{line}");
    assert!(fs::read(logged.file()).unwrap().iter().all(|&byte| byte == b'\n' || (32..127).contains(&byte)));
}

#[test]
fn software_is_named_as_in_the_metrics() {
    let logged = Logged::start(&[]);
    let mut web = Way::PLAIN.connect(&logged.tracker);
    let peer_ids = ["-qB4650-abcdefghijkl", "-TR%01%0a%22%3c-abcdefghijkl", "-%3cb%3e000-abcdefghijkl"];
    let ask =
        |peer_id: &str| format!("/announce?info_hash={}&peer_id={peer_id}&port=1&left=0", "%01".repeat(20));
    peer_ids.iter().for_each(|peer_id| drop(web.get(&ask(peer_id))));
    let lines = logged.lines(3);
    let told = |line: &Value| (line["software"].clone(), line["version"].clone());
    assert_eq!(told(&lines[0]), (json!("qBittorrent"), json!("4.6.5")));
    assert_eq!(told(&lines[1]), (json!("Transmission"), Value::Null));
    assert_eq!(told(&lines[2]), (json!("other"), Value::Null));
    eventually("the metric names them, too", || {
        let metrics = logged.tracker.page("/metrics").body;
        ["qBittorrent", "Transmission", "other"]
            .iter()
            .all(|name| metrics.contains(&format!("shoal_clients{{software=\"{name}\"}}")))
            .then_some(())
    });
}

#[test]
fn over_a_unix_socket_the_client_is_the_one_that_the_proxy_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let listen = format!("unix:{}", path.display());
    let settings = [
        ("SHOAL_HTTP_LISTEN", &*listen),
        ("SHOAL_PROXY_TRUSTED", "unix"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
    ];
    for (addresses, named) in
        [("full", ["192.0.2.77", "2001:db8:7:8::9"]), ("network", ["192.0.2.0/24", "2001:db8:7::/48"])]
    {
        let logged = Logged::start(&[&settings[..], &[("SHOAL_LOG_ACCESS_ADDRESSES", addresses)]].concat());
        let mut web = Web::connect_unix(&path);
        let target = web::announce([1; 20], 1001, "");
        for header in ["X-Real-IP: 192.0.2.77\r\n", "X-Real-IP: 2001:db8:7:8::9\r\n", ""] {
            web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{header}\r\n").as_bytes());
            web.answer();
        }
        let lines = logged.lines(3);
        let clients: Vec<_> = lines.iter().map(|line| (&line["client"], &line["outcome"])).collect();
        let (ok, unnamed) = (json!("ok"), json!("proxy_without_client"));
        let [v4, v6] = named.map(|named| json!(named));
        // The socket itself has no address that could be logged.
        assert_eq!(clients, [(&v4, &ok), (&v6, &ok), (&Value::Null, &unnamed)]);
    }
}

#[test]
fn a_sample_has_about_one_of_so_many_requests() {
    let logged = Logged::start(&[("SHOAL_LOG_ACCESS_SAMPLE", "10")]);
    let client = Client::new(logged.tracker.udp[0]);
    client.announce_all((0..3000_u16).map(|port| Announce::leecher([1; 20], 1000 + port)));
    // On average 300, and the bounds are thirty standard deviations away.
    logged.lines(100);
    assert!(read_lines(&logged.file()).len() < 700);
    assert_eq!(logged.records("queue_full"), 0);
}

#[test]
fn a_rotation_under_load_loses_no_line() {
    const ANNOUNCES: u16 = 6400;
    let mut logged = Logged::start(&[]);
    let (tracker, file) = (&logged.tracker, logged.file());
    let rotated = |number: usize| file.with_extension(number.to_string());
    let address = tracker.udp[0];
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let client = Client::new(address);
            client.announce_all((0..ANNOUNCES).map(|port| Announce::leecher([1; 20], 1000 + port)));
        });
        for number in 0..5 {
            eventually("the log has lines", || (!read_lines(&file).is_empty()).then_some(()));
            fs::rename(&file, rotated(number)).unwrap();
            tracker.signal(Signal::SIGUSR1);
            eventually("the file is opened anew", || file.exists().then_some(()));
            Client::new(tracker.udp[0]).connect();
        }
        load.join().unwrap();
    });
    // One connection id for the announces, and one after each rotation.
    let requests = u64::from(ANNOUNCES) + 1 + 5;
    assert_eq!(logged.tracker.metric("shoal_requests_total", &["protocol=\"udp\""]), requests);
    eventually("all of them are written or lost", || {
        let all = ["written", "queue_full", "write_failed"].map(|outcome| logged.records(outcome));
        (all.iter().sum::<u64>() == requests).then_some(())
    });
    let written = logged.records("written");
    assert_eq!(logged.records("write_failed"), 0);
    assert!(logged.tracker.stop().success());
    let files = (0..5).map(rotated).chain([file.clone()]);
    assert_eq!(files.map(|file| read_lines(&file).len() as u64).sum::<u64>(), written);
}

#[test]
fn the_last_requests_are_written_before_the_end() {
    let mut logged = Logged::start(&[]);
    Client::new(logged.tracker.udp[0]).connect();
    assert!(logged.tracker.stop().success());
    assert_eq!(read_lines(&logged.file()).len(), 1);
}

#[test]
fn a_full_disk_loses_records_and_nothing_else() {
    let tracker = Tracker::start(&[("SHOAL_LOG_ACCESS", "/dev/full")]);
    let client = Client::new(tracker.udp[0]);
    client.announce_all((0..200).map(|port| Announce::leecher([1; 20], 1000 + port)));
    eventually("all records are lost", || (records(&tracker, "write_failed") == 201).then_some(()));
    assert_eq!(records(&tracker, "written"), 0);
    let line = tracker.wait_for_line("records of the access log could not be written");
    assert!(line["error"].as_str().unwrap().contains("No space left"), "{line}");
    // One line a minute for all of them.
    assert!(tracker.log().matches("records of the access log could not be written").count() < 10);
}

#[test]
fn the_journal_gets_an_entry_for_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let journal = UnixDatagram::bind(&path).unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let target = format!("journald:{}", path.display());
    let tracker = Tracker::start(&[("SHOAL_LOG_ACCESS", &target)]);
    Client::new(tracker.udp[0]).connect();
    let mut entry = [0; 4096];
    let bytes = journal.recv(&mut entry).unwrap();
    let entry = str::from_utf8(&entry[..bytes]).unwrap();
    let message = entry.strip_prefix("PRIORITY=6\nSYSLOG_IDENTIFIER=shoal-access\nMESSAGE=").unwrap();
    assert_eq!(without_time(message)["kind"], "connect");
}

#[test]
fn a_journal_that_does_not_read_holds_up_no_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _never_read = UnixDatagram::bind(&path).unwrap();
    let target = format!("journald:{}", path.display());
    let mut tracker = Tracker::start(&[("SHOAL_LOG_ACCESS", &target)]);
    let client = Client::new(tracker.udp[0]);
    // More than the ring of a worker and the queue of the socket hold, all of them answered.
    let answered = client.announce_all((0..12_000).map(|port| Announce::leecher([1; 20], 1000 + port)));
    assert_eq!(answered.len(), 12_000);
    eventually("records are lost", || (records(&tracker, "queue_full") > 0).then_some(()));
    tracker.wait_for_line("records of the access log were lost");
    assert!(tracker.stop().success());
}

#[test]
fn records_may_go_to_standard_error() {
    let mut tracker = Tracker::start(&[("SHOAL_LOG_ACCESS", "stderr")]);
    Client::new(tracker.udp[0]).connect();
    eventually("the record is logged", || tracker.log().contains("\"kind\":\"connect\"").then_some(()));
    assert!(tracker.stop().success());
}

#[test]
fn a_target_that_cannot_be_used_is_refused_at_the_start() {
    for target in ["access.log", "/", "journald:socket", "syslog"] {
        let refused = run(&[], &[("SHOAL_LOG_ACCESS", target)]);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains("SHOAL_LOG_ACCESS") && text.contains("journald"), "{text}");
    }
    for target in ["/no/such/folder/access.log", "journald:/no/such/socket"] {
        let refused = run(&[], &[("SHOAL_LOG_ACCESS", target), ("SHOAL_CONTROL_LISTEN", "127.0.0.1:0")]);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains(&format!("log.access = \"{target}\"")), "{text}");
    }
}
