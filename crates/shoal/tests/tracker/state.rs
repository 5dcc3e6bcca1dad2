//! A restart keeps peers, counts and connection ids, whatever happens to the tracker and to its files.

pub(crate) mod faults;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::kit::client::{Announce, COMPLETED, Client, Counts, STOPPED, scrape_packet, word};
use crate::kit::harness::{Tracker, command, run};
use crate::udp::hash;

/// A directory for the state, and the settings for it.
pub(crate) struct Place {
    pub(crate) parent: tempfile::TempDir,
    pub(crate) path: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state").display().to_string();
        Self { parent, path }
    }

    pub(crate) fn settings<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [&[("SHOAL_STATE_PATH", self.path.as_str())], more].concat()
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        Path::new(&self.path).join(name)
    }
}

fn clients(tracker: &Tracker) -> [Client; 2] {
    [0, 1].map(|family| Client::new(tracker.udp[family]))
}

/// Announces a seeder that has just completed and two leechers.
pub(crate) fn fill(client: &Client) {
    client.announce(&Announce::leecher(hash(1), 1001));
    client.announce(&Announce { event: COMPLETED, ..Announce::seeder(hash(1), 1001) });
    client.announce(&Announce::leecher(hash(1), 1002));
    client.announce(&Announce::leecher(hash(2), 1003));
}

pub(crate) fn assert_filled(client: &Client) {
    assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 1, leechers: 1 });
    assert_eq!(client.scrape(&[hash(2)])[0], Counts { seeders: 0, completed: 0, leechers: 1 });
    let reply = client.announce(&Announce::leecher(hash(1), 1004));
    let mut ports: Vec<_> = reply.peers.iter().map(std::net::SocketAddr::port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [1001, 1002]);
}

#[test]
fn a_restart_keeps_peers_counts_and_connection_ids() {
    let place = Place::new();
    let mut tracker = Tracker::start(&place.settings(&[]));
    let ids = clients(&tracker).map(|client| {
        fill(&client);
        client.connect()
    });
    assert!(tracker.stop().success());
    let tracker = Tracker::start(&place.settings(&[]));
    assert!(tracker.log().contains("the peers of the last run are back"), "{}", tracker.log());
    for (client, connection_id) in clients(&tracker).iter().zip(ids) {
        // The id from before is good.
        let reply = client.ask(&scrape_packet(connection_id, 9, &[hash(1)]));
        assert_eq!((word(&reply, 0), word(&reply, 8)), (2, 1));
        assert_filled(client);
    }
    for (name, mode) in [("keys", 0o600), ("swarms", 0o600), ("", 0o700)] {
        let found = fs::metadata(place.file(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name}");
    }
}

#[test]
fn a_kill_loses_only_what_came_after_the_last_snapshot() {
    let place = Place::new();
    let tracker = Tracker::start(&place.settings(&[("SHOAL_STATE_INTERVAL_S", "1")]));
    clients(&tracker).iter().for_each(fill);
    // The first one may have begun before the last announce.
    tracker.wait_for_line("snapshot");
    tracker.wait_for_line("snapshot");
    assert!(tracker.metric("shoal_snapshots_total", &["outcome=\"written\""]) >= 2);
    drop(tracker);
    let tracker = Tracker::start(&place.settings(&[]));
    clients(&tracker).iter().for_each(assert_filled);
}

#[test]
fn without_a_directory_nothing_is_kept() {
    let mut tracker = Tracker::start(&[]);
    fill(&Client::new(tracker.udp[0]));
    assert!(tracker.stop().success());
    assert!(!tracker.log().contains("snapshot"));
}

#[test]
fn an_operator_asks_for_a_snapshot() {
    let place = Place::new();
    let tracker = Tracker::start(&place.settings(&[("SHOAL_CONTROL_ADMIN_TOKEN", "secret-of-the-admin")]));
    fill(&Client::new(tracker.udp[0]));
    let url = format!("http://{}", tracker.control);
    let token = [("SHOAL_CONTROL_TOKEN", "secret-of-the-admin")];
    let printed = run(&["ctl", "--json", "--url", &url, "snapshot"], &token);
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let saved: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!((&saved["peers"], &saved["swarms"]), (&json!(3), &json!(2)));
    assert_eq!(saved["bytes"], json!(fs::metadata(place.file("swarms")).unwrap().len()));
    let without = Tracker::start(&[("SHOAL_CONTROL_ADMIN_TOKEN", "secret-of-the-admin")]);
    let refused = run(&["ctl", "--url", &format!("http://{}", without.control), "snapshot"], &token);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("state.path"), "{refused:?}");
}

#[test]
fn counts_of_torrents_without_peers_outlive_peers_and_restarts_as_configured() {
    let place = Place::new();
    let retained = [("SHOAL_STORE_COMPLETED_RETAINED_MAX", "1000")];
    let completed = |client: &Client| client.scrape(&[hash(1)])[0];
    let mut tracker = Tracker::start(&place.settings(&retained));
    let client = Client::new(tracker.udp[0]);
    for port in [1001, 1002] {
        client.announce(&Announce { event: COMPLETED, ..Announce::seeder(hash(1), port) });
        client.announce(&Announce { event: STOPPED, ..Announce::seeder(hash(1), port) });
    }
    assert_eq!(completed(&client), Counts { completed: 2, ..Counts::default() });
    assert_eq!(tracker.metric("shoal_completed_retained", &["family=\"v4\""]), 1);
    assert!(tracker.stop().success());
    let exported = run(&["state", "export", &place.path], &[]);
    assert!(String::from_utf8_lossy(&exported.stdout).contains("\"completed\":2"), "{exported:?}");
    let mut tracker = Tracker::start(&place.settings(&retained));
    let client = Client::new(tracker.udp[0]);
    assert_eq!(completed(&client), Counts { completed: 2, ..Counts::default() });
    client.announce(&Announce::leecher(hash(1), 1003));
    assert_eq!(completed(&client), Counts { completed: 2, leechers: 1, seeders: 0 });
    client.announce(&Announce { event: STOPPED, ..Announce::leecher(hash(1), 1003) });
    assert!(tracker.stop().success());
    let tracker = Tracker::start(&place.settings(&[]));
    assert_eq!(completed(&Client::new(tracker.udp[0])), Counts::default(), "0 is the default");
}

/// Leaves a snapshot of a tracker with peers.
pub(crate) fn leave(place: &Place) {
    let mut tracker = Tracker::start(&place.settings(&[]));
    fill(&Client::new(tracker.udp[0]));
    assert!(tracker.stop().success());
}

#[test]
fn a_damaged_snapshot_is_used_as_far_as_it_is_whole() {
    let place = Place::new();
    leave(&place);
    let mut bytes = fs::read(place.file("swarms")).unwrap();
    let middle = 128 + 32 + 10;
    bytes[middle] ^= 1;
    fs::write(place.file("swarms"), &bytes).unwrap();
    let verified = run(&["state", "verify", &place.path], &[]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&verified.stderr).contains("damaged"), "{verified:?}");
    let tracker = Tracker::start(&place.settings(&[]));
    assert!(tracker.log().contains("the snapshot is damaged"), "{}", tracker.log());
    assert_eq!(Client::new(tracker.udp[0]).scrape(&[hash(1)])[0], Counts::default());
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_the_reason() {
    let place = Place::new();
    let _tracker = Tracker::start(&place.settings(&[]));
    let any_port = [("SHOAL_UDP_LISTEN", "127.0.0.1:0"), ("SHOAL_CONTROL_LISTEN", "")];
    let refused = run(&[], &place.settings(&any_port));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another tracker uses it"), "{refused:?}");
    let file = place.parent.path().join("file");
    fs::write(&file, "").unwrap();
    for path in
        [file.display().to_string(), file.join("state").display().to_string(), "/proc/state".to_owned()]
    {
        let refused = run(&[], &[("SHOAL_STATE_PATH", path.as_str()), ("SHOAL_CONTROL_LISTEN", "")]);
        assert_eq!(refused.status.code(), Some(2), "{path}: {refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("state.path") && text.contains(&path) && text.contains("expected"), "{text}");
    }
}

#[test]
fn a_torrent_that_became_forbidden_does_not_return() {
    let place = Place::new();
    leave(&place);
    let denied = place.parent.path().join("denied");
    let hex: String = hash(1).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(&denied, hex).unwrap();
    let denied = denied.display().to_string();
    let tracker = Tracker::start(&place.settings(&[("SHOAL_ACCESS_TORRENTS_DENY", &denied)]));
    let peers = ["leecher", "seeder"]
        .map(|role| tracker.metric("shoal_peers", &["family=\"v4\"", &format!("role=\"{role}\"")]));
    assert_eq!(peers, [1, 0], "the other torrent is back");
}

#[test]
fn a_snapshot_becomes_lines_of_json_and_returns_from_them() {
    let place = Place::new();
    let lines = [
        json!({ "info_hash": "0123456789abcdef0123456789abcdef01234567", "completed": 7, "age_s": 5000, "peers": [
            { "address": "192.0.2.1:6881", "seeds": true, "age_s": 43 },
            { "address": "192.0.2.2:6881", "seeds": false, "age_s": 0 },
            { "address": "[2001:db8::1]:6881", "seeds": false, "age_s": 86 },
        ] }),
        json!({ "info_hash": "ffffffffffffffffffffffffffffffffffffffff", "peers": [{ "address": "198.51.100.1:1" }] }),
        json!({ "info_hash": "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee", "completed": 5 }),
    ];
    let text = lines.map(|line| line.to_string() + "\n").concat();
    let printed = with_input(&["state", "import", &place.path], &text);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("4 swarms, 4 peers"), "{printed:?}");
    let again = with_input(&["state", "import", &place.path], &text);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--replace"), "{again:?}");
    let exported = run(&["state", "export", &place.path], &[]);
    let exported: Vec<Value> = String::from_utf8(exported.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(exported.len(), 4);
    assert_eq!(
        exported[0]["peers"],
        json!([lines_peer("192.0.2.1:6881", true, 43), lines_peer("192.0.2.2:6881", false, 0)])
    );
    assert_eq!((&exported[0]["completed"], &exported[0]["age_s"]), (&json!(7), &json!(5000)));
    let info = run(&["state", "info", "--json", &place.path], &[]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["timeout_s"], 2700);
    // A tracker reads it.
    let tracker = Tracker::start(&place.settings(&[]));
    let [leechers, seeders] = ["leecher", "seeder"].map(|role| {
        let role = format!("role=\"{role}\"");
        ["v4", "v6"].map(|family| tracker.metric("shoal_peers", &[&format!("family=\"{family}\""), &role]))
    });
    assert_eq!((leechers, seeders), ([2, 1], [1, 0]));
}

fn lines_peer(address: &str, seeds: bool, age_s: u32) -> Value {
    json!({ "address": address, "seeds": seeds, "age_s": age_s })
}

#[test]
fn a_line_that_cannot_be_imported_is_named() {
    let place = Place::new();
    for (line, fault) in [
        ("{}", "info_hash"),
        ("nonsense", "line 2"),
        (r#"{"info_hash":"12"}"#, "expected 40"),
        (
            r#"{"info_hash":"0123456789abcdef0123456789abcdef01234567","peers":[{"address":"here"}]}"#,
            "line 2",
        ),
    ] {
        let refused = with_input(&["state", "import", &place.path], &format!("\n{line}\n"));
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(fault), "{line}: {refused:?}");
        assert!(!place.file("swarms").exists() && !place.file("swarms.new").exists());
    }
}

/// Runs the program with this standard input.
fn with_input(arguments: &[&str], input: &str) -> std::process::Output {
    use std::io::Write;

    let mut command = command(&[]);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_state_that_others_can_use_is_a_warning() {
    let place = tempfile::tempdir().unwrap();
    let (path, keys) = (place.path().join("state"), place.path().join("state/keys"));
    fs::create_dir(&path).unwrap();
    fs::write(&keys, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    let tracker = Tracker::start(&[("SHOAL_STATE_PATH", path.to_str().unwrap())]);
    let log = tracker.log();
    for (path, mode) in [(&path, "chmod 750"), (&keys, "chmod 600")] {
        let shown = format!("\"path\":\"{}\"", path.display());
        assert!(log.lines().any(|line| line.contains(&shown) && line.contains(mode)), "{log}");
    }
}
