//! The state that all nodes of a cluster share: real trackers, real NATS servers with JetStream, and clients.

use std::path::Path;
use std::time::UNIX_EPOCH;

use async_nats::HeaderMap;
use serde_json::{Value, json};
use shoal_base::InfoHash;
use shoal_testkit::nats::{Access, Cluster, Options, Server, write_secret};

use crate::cluster::start;
use crate::control::api::{ADMIN, READ, ask};
use crate::http::{Way, certificate};
use crate::kit::client::{Announce, Client, STOPPED, connect_packet};
use crate::kit::harness::{Tracker, eventually, run};
use crate::kit::page::Page;
use crate::kit::web::{self, Resumer};

const TORRENT: [u8; 20] = [0x5d; 20];

/// The subject of the keys of TLS tickets in the bucket.
const TICKET_KEYS: &str = "$KV.shoal_shoal.keys.tickets";

const TOKENS: [(&str, &str); 2] = [("SHOAL_CONTROL_READ_TOKEN", READ), ("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)];

fn nats() -> Server {
    Server::start(&Options::default()).expect("the server starts")
}

/// Starts a node whose API takes changes, and does not wait for the shared state.
fn start_alone(node: &str, servers: &str, settings: &[(&str, &str)]) -> Tracker {
    start(node, servers, &[&TOKENS, settings].concat())
}

/// Starts a node likewise, and waits until it follows the shared state.
fn start_node(node: &str, servers: &str, settings: &[(&str, &str)]) -> Tracker {
    let tracker = start_alone(node, servers, settings);
    wait_for_state(&tracker, "followed");
    tracker
}

/// Sends a request to the API, which limits how often a client may ask.
fn request_api(tracker: &Tracker, method: &str, path: &str, token: &str, body: Option<&Value>) -> Page {
    eventually("the API replies", || {
        let page = ask(tracker, method, path, Some(token), body);
        (page.status != 429).then_some(page)
    })
}

fn shared(tracker: &Tracker) -> Value {
    let page = request_api(tracker, "GET", "/api/v1/stats", READ, None);
    let stats: Value = serde_json::from_str(&page.body).unwrap_or_else(|error| panic!("{error}: {page:?}"));
    stats["cluster"]["shared"].clone()
}

fn wait_for_state(tracker: &Tracker, state: &str) {
    eventually(&format!("the shared state is {state}"), || (shared(tracker)["state"] == state).then_some(()));
}

fn admin(tracker: &Tracker, method: &str, path: &str, body: Option<&Value>) -> Value {
    let page = request_api(tracker, method, path, ADMIN, body);
    assert_eq!(page.status, 200, "{method} {path}: {page:?}\n{}", tracker.log());
    serde_json::from_str(&page.body).expect("it is JSON")
}

fn hex(info_hash: [u8; 20]) -> String {
    format!("{:?}", InfoHash(info_hash))
}

/// Adds a torrent to the deny list of the cluster, or removes it.
fn change_deny(tracker: &Tracker, change: &str, info_hash: [u8; 20]) -> Value {
    let body = json!({ "torrents": [hex(info_hash)] });
    admin(tracker, "POST", &format!("/api/v1/lists/deny/{change}"), Some(&body))
}

/// Whether a node accepts a connection id. It answers a request with another one by silence.
fn accepts(tracker: &Tracker, id: u64) -> bool {
    let client = Client::new(tracker.udp[0]);
    client.send(&Announce::leecher([0x78; 20], 1001).packet(id, 2));
    client.send(&connect_packet(3));
    let is_accepted = client.receive()[3] == 1;
    if is_accepted {
        client.receive();
    }
    is_accepted
}

/// The words with which an announce over UDP is refused, if it is.
fn refusal(tracker: &Tracker, info_hash: [u8; 20]) -> Option<String> {
    let client = Client::new(tracker.udp[0]);
    let packet = Announce::leecher(info_hash, 4000).packet(client.connect(), 7);
    let reply = client.ask(&packet);
    (reply[3] == 3).then(|| String::from_utf8_lossy(&reply[8..]).into_owned())
}

fn is_refused_over_http(tracker: &Tracker, info_hash: [u8; 20]) -> bool {
    let answer = Way::PLAIN.connect(tracker).get(&web::announce(info_hash, 4001, "&left=5"));
    String::from_utf8_lossy(&answer.body).contains("failure reason")
}

fn wait_for_refusal(tracker: &Tracker, info_hash: [u8; 20], is_expected: bool) {
    eventually("the node follows the lists of the cluster", || {
        let udp = refusal(tracker, info_hash).is_some();
        (udp == is_expected && is_refused_over_http(tracker, info_hash) == is_expected).then_some(())
    });
}

/// The interval that a node tells its clients.
fn interval_s(tracker: &Tracker) -> u32 {
    let visitor = Announce { event: STOPPED, ..Announce::leecher([0x77; 20], 9) };
    Client::new(tracker.udp[0]).announce(&visitor).interval_s
}

/// Runs `shoal cluster` as an administrator. Returns its output, its errors and its exit code.
fn cluster(tracker: &Tracker, arguments: &[&str]) -> (String, String, Option<i32>) {
    let url = format!("http://{}", tracker.control);
    let settings = [("SHOAL_CONTROL_URL", &*url), ("SHOAL_CONTROL_TOKEN", ADMIN)];
    let output = run(&[&["cluster"], arguments].concat(), &settings);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Publishes messages as another program would, and waits until NATS has them.
fn publish(nats: &Server, messages: &[(String, HeaderMap, &str)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("the server is there");
        for (subject, headers, payload) in messages {
            let payload = (*payload).to_owned().into();
            client.publish_with_headers(subject.clone(), headers.clone(), payload).await.expect("it is sent");
        }
        client.flush().await.expect("it is sent");
    });
}

/// Sends a request without content to the API of JetStream.
fn request(nats: &Server, subject: &str) -> Value {
    request_with(nats, subject, "")
}

fn request_with(nats: &Server, subject: &str, content: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("the server is there");
        let reply = client.request(subject.to_owned(), content.to_owned().into()).await.expect("it replies");
        serde_json::from_slice(&reply.payload).expect("it is JSON")
    })
}

/// The last value of a subject of the bucket.
fn request_last(nats: &Server, subject: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("the server is there");
        let direct = format!("$JS.API.DIRECT.GET.KV_shoal_shoal.{subject}");
        let reply = client.request(direct, "".into()).await.expect("it replies");
        String::from_utf8_lossy(&reply.payload).into_owned()
    })
}

fn state_path(directory: &Path) -> &str {
    directory.to_str().expect("temporary paths are text")
}

#[test]
fn connection_ids_of_one_node_are_accepted_by_all() {
    let nats = nats();
    let one = start_alone("one", &nats.url(), &[]);
    // Given before the node adopts the key of the cluster, perhaps.
    let client = Client::new(one.udp[0]);
    let early = client.connect();
    wait_for_state(&one, "followed");
    let two = start_node("two", &nats.url(), &[]);
    assert!(accepts(&one, early));
    for (from, to) in [(&one, &two), (&two, &one)] {
        eventually("a worker has adopted the key", || {
            accepts(to, Client::new(from.udp[0]).connect()).then_some(())
        });
    }
}

#[test]
fn a_takedown_at_one_node_holds_at_all_and_ends_at_all() {
    let nats = Cluster::start(&Options::default()).expect("the servers start");
    let trackers: Vec<Tracker> = ["one", "two", "three"]
        .iter()
        .zip(&nats.servers)
        .map(|(name, server)| start_node(name, &server.url(), &[]))
        .collect();
    let [one, two, three] = &trackers[..] else { panic!("three nodes") };
    assert_eq!(refusal(three, TORRENT), None);
    let added = change_deny(one, "add", TORRENT);
    assert_eq!((&added["source"], &added["changed"]), (&json!("cluster"), &json!([hex(TORRENT)])));
    // It applies at the node of the request before the reply.
    assert!(refusal(one, TORRENT).is_some());
    for tracker in [two, three] {
        wait_for_refusal(tracker, TORRENT, true);
    }
    // The swarm is gone, and does not come back with the deltas of others.
    eventually("the swarm is gone", || {
        (Client::new(three.udp[0]).scrape(&[TORRENT])[0].leechers == 0).then_some(())
    });
    let found = admin(two, "GET", &format!("/api/v1/lists/deny/torrents?info_hash={}", hex(TORRENT)), None);
    assert_eq!(found["entries"][0]["source"], "cluster", "{found}");
    assert_eq!(change_deny(two, "add", TORRENT)["unchanged"], json!([hex(TORRENT)]));
    assert_eq!(change_deny(two, "remove", TORRENT)["changed"], json!([hex(TORRENT)]));
    for tracker in &trackers {
        wait_for_refusal(tracker, TORRENT, false);
    }
    assert_eq!(shared(one)["entries"]["torrents"], 0);
}

#[test]
fn a_ban_holds_at_all_nodes() {
    let nats = nats();
    let (one, two) = (start_node("one", &nats.url(), &[]), start_node("two", &nats.url(), &[]));
    let ban = json!({ "network": "127.0.0.0/8", "reason": "floods", "duration_s": 3600 });
    let set = admin(&one, "POST", "/api/v1/bans", Some(&ban));
    wait_for_refusal(&two, TORRENT, true);
    assert_eq!(admin(&two, "GET", "/api/v1/bans", None), json!({ "bans": [], "cluster": [set] }));
    assert_eq!(admin(&two, "DELETE", "/api/v1/bans/127.0.0.0%2F8", None), set);
    wait_for_refusal(&one, TORRENT, false);
    let short = json!({ "network": "127.0.0.0/8", "reason": "", "duration_s": 1 });
    admin(&one, "POST", "/api/v1/bans", Some(&short));
    wait_for_refusal(&two, TORRENT, false);
}

#[test]
fn limits_are_set_at_all_nodes_and_unset() {
    let nats = nats();
    let settings = [("SHOAL_ANNOUNCE_INTERVAL_S", "1000"), ("SHOAL_ANNOUNCE_INTERVAL_JITTER_S", "0")];
    let (one, two) = (start_node("one", &nats.url(), &settings), start_node("two", &nats.url(), &settings));
    let (text, errors, code) = cluster(&one, &["set", "announce.interval_s=900", "limits.burst_s=30"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.contains("announce.interval_s") && text.contains("900"), "{text}");
    for tracker in [&one, &two] {
        eventually("the value applies", || (interval_s(tracker) == 900).then_some(()));
    }
    let (text, ..) = cluster(&two, &["show"]);
    assert!(text.contains("limits.burst_s") && text.contains("SHOAL_CONTROL_ADMIN_TOKEN"), "{text}");
    // A node that joins has it as well.
    let three = start_node("three", &nats.url(), &settings);
    eventually("the value applies", || (interval_s(&three) == 900).then_some(()));
    for (refused, part) in [
        ("announce.interval_s=soon", "accepts"),
        ("announce.interval_s=0", "accepts"),
        ("workers.count=2", "not a key that a cluster shares"),
        ("announce.peer_timeout_s=900", "not a key that a cluster shares"),
        ("announce.intervals=9", "not a key that a cluster shares"),
        ("announce.interval_s=21600", "announce."),
        ("announce.interval_s", "KEY=VALUE"),
    ] {
        let (_, errors, code) = cluster(&one, &["set", refused]);
        assert!(code == Some(2) && errors.contains(part), "{refused}: {code:?} {errors}");
    }
    let (_, errors, code) = cluster(&two, &["unset", "announce.interval_s"]);
    assert_eq!(code, Some(0), "{errors}");
    for tracker in [&one, &two, &three] {
        eventually("the node has its own value", || (interval_s(tracker) == 1000).then_some(()));
    }
    assert_eq!(cluster(&two, &["unset", "announce.interval_s"]).2, Some(3));
}

#[test]
fn a_restart_while_nats_is_away_knows_what_was_denied_and_the_key() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let mut nats = nats();
    let settings = [("SHOAL_STATE_PATH", state_path(directory.path()))];
    let mut one = start_node("one", &nats.url(), &settings);
    let two = start_node("two", &nats.url(), &[]);
    change_deny(&two, "add", TORRENT);
    wait_for_refusal(&one, TORRENT, true);
    let id = eventually("a worker has adopted the key", || {
        let id = Client::new(two.udp[0]).connect();
        accepts(&one, id).then_some(id)
    });
    nats.kill();
    assert!(one.stop().success());
    let one = start_alone("one", &nats.url(), &settings);
    assert!(refusal(&one, TORRENT).is_some());
    assert!(accepts(&one, id));
    // Nothing is changed here alone.
    let addition = json!({ "torrents": [hex([2; 20])] });
    let refused = request_api(&one, "POST", "/api/v1/lists/deny/add", ADMIN, Some(&addition));
    assert!(refused.status == 503 && refused.body.contains("nothing was changed"), "{refused:?}");
    assert_eq!(refusal(&one, [2; 20]), None);
    nats.restart().expect("its port is free");
    wait_for_state(&one, "followed");
    wait_for_state(&two, "followed");
    change_deny(&one, "remove", TORRENT);
    wait_for_refusal(&two, TORRENT, false);
}

#[test]
fn a_bucket_that_is_deleted_comes_back_with_what_the_nodes_know() {
    let nats = nats();
    let (one, two) = (start_node("one", &nats.url(), &[]), start_node("two", &nats.url(), &[]));
    change_deny(&one, "add", TORRENT);
    change_deny(&one, "add", [3; 20]);
    change_deny(&one, "remove", [3; 20]);
    wait_for_refusal(&two, TORRENT, true);
    assert_eq!(request(&nats, "$JS.API.STREAM.DELETE.KV_shoal_shoal")["success"], true);
    eventually("the bucket is there again", || {
        let info = request(&nats, "$JS.API.STREAM.INFO.KV_shoal_shoal");
        (info["state"]["messages"].as_u64() >= Some(2)).then_some(())
    });
    let three = start_node("three", &nats.url(), &[]);
    wait_for_refusal(&three, TORRENT, true);
    assert_eq!(refusal(&three, [3; 20]), None);
    eventually("the bucket is marked", || {
        request_last(&nats, "$KV.shoal_shoal.bucket.filled").contains("revision").then_some(())
    });
    wait_for_state(&one, "followed");
    change_deny(&one, "remove", TORRENT);
    for tracker in [&one, &two, &three] {
        wait_for_refusal(tracker, TORRENT, false);
    }
}

/// Creates the bucket as an operator would, or changes its size.
fn configure_bucket(nats: &Server, operation: &str, bytes_max: u64) -> Value {
    let config = json!({
        "name": "KV_shoal_shoal", "subjects": ["$KV.shoal_shoal.>"], "storage": "file", "discard": "new",
        "max_bytes": bytes_max, "max_msgs_per_subject": 1, "allow_rollup_hdrs": true, "allow_direct": true,
    });
    request_with(nats, &format!("$JS.API.STREAM.{operation}.KV_shoal_shoal"), &config.to_string())
}

#[test]
fn a_fill_that_is_interrupted_loses_no_entry() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let settings = [("SHOAL_STATE_PATH", state_path(directory.path()))];
    let mut nats = nats();
    let mut one = start_node("one", &nats.url(), &settings);
    let two = start_node("two", &nats.url(), &[]);
    let torrents: Vec<[u8; 20]> = (1..=60).map(|number| [number; 20]).collect();
    let denied: Vec<String> = torrents.iter().copied().map(hex).collect();
    let body = json!({ "torrents": denied, "reason": "r".repeat(100) });
    admin(&one, "POST", "/api/v1/lists/deny/add", Some(&body));
    let wait_for = |tracker: &Tracker, what: &str, is_so: &dyn Fn(&Value) -> bool| {
        eventually(what, || Some(shared(tracker)).filter(|shared| is_so(shared)))
    };
    let has_all = |shared: &Value| shared["entries"]["torrents"] == 60;
    wait_for(&two, "the nodes have the entries", &has_all);
    // The next bucket has no room for all of them, so that its fill stops halfway.
    eventually("the bucket is a small one", || {
        request(&nats, "$JS.API.STREAM.DELETE.KV_shoal_shoal");
        (configure_bucket(&nats, "CREATE", 8000)["config"]["max_bytes"] == 8000).then_some(())
    });
    let is_stuck = |shared: &Value| {
        let is_full = shared["fault"].as_str().is_some_and(|fault| fault.contains("no room"));
        shared["state"] == "followed" && is_full && shared["unwritten"].as_u64() > Some(0)
    };
    let assert_stuck = |trackers: [&Tracker; 2]| {
        for tracker in trackers {
            let shared = wait_for(tracker, "the bucket lacks entries", &is_stuck);
            assert!(has_all(&shared), "{shared}");
            assert_eq!(torrents.iter().find(|torrent| refusal(tracker, **torrent).is_none()), None);
        }
    };
    assert_stuck([&one, &two]);
    nats.kill();
    wait_for_state(&one, "away");
    nats.restart().expect("its port is free");
    assert_stuck([&one, &two]);
    assert!(one.stop().success());
    one = start_node("one", &nats.url(), &settings);
    assert_stuck([&one, &two]);
    assert_eq!(configure_bucket(&nats, "UPDATE", 1 << 20)["error"], Value::Null);
    for tracker in [&one, &two] {
        let shared = wait_for(tracker, "the bucket has everything", &|shared| shared["unwritten"] == 0);
        assert!(has_all(&shared), "{shared}");
    }
    let three = start_node("three", &nats.url(), &[]);
    assert!(has_all(&shared(&three)));
    // A removal outlives the next start.
    change_deny(&two, "remove", [7; 20]);
    assert!(one.stop().success());
    one = start_node("one", &nats.url(), &settings);
    for tracker in [&one, &two, &three] {
        wait_for_refusal(tracker, [7; 20], false);
        assert_eq!(shared(tracker)["entries"]["torrents"], 59);
    }
}

#[test]
fn without_jetstream_each_node_has_its_own_lists_and_keys() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let file = directory.path().join("deny");
    let options = Options { without_jetstream: true, ..Options::default() };
    let nats = Server::start(&options).expect("the server starts");
    let one = start_alone("one", &nats.url(), &[("SHOAL_ACCESS_TORRENTS_DENY", state_path(&file))]);
    wait_for_state(&one, "unavailable");
    let away = one.wait_for_line("the shared state of the cluster is away");
    assert!(away["reason"].as_str().is_some_and(|reason| reason.contains("no JetStream")), "{away}");
    let added = change_deny(&one, "add", TORRENT);
    assert_eq!(added["source"], state_path(&file));
    wait_for_refusal(&one, TORRENT, true);
    let (text, ..) = cluster(&one, &["status"]);
    assert!(text.contains("shared state: unavailable ("), "{text}");
    let metrics = request_api(&one, "GET", "/metrics", READ, None).body;
    assert!(metrics.contains("shoal_cluster_shared_followed 0\n"), "{metrics}");
    let off = start_alone("two", &nats.url(), &[("SHOAL_CLUSTER_SHARED_STATE", "false")]);
    assert_eq!(shared(&off), Value::Null);
    assert_eq!(cluster(&off, &["set", "limits.burst_s=30"]).2, Some(2));
}

#[test]
fn a_user_needs_few_permissions_and_without_them_nodes_go_on() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let password = directory.path().join("password");
    write_secret(&password, "secret\n").expect("there is room for a file");
    let cluster_subjects = vec!["shoal.eu.>".to_owned()];
    let bucket = [
        "$JS.API.STREAM.INFO.KV_shoal_eu",
        "$JS.API.STREAM.CREATE.KV_shoal_eu",
        "$JS.API.STREAM.PURGE.KV_shoal_eu",
        "$JS.API.CONSUMER.CREATE.KV_shoal_eu",
        "$JS.API.CONSUMER.MSG.NEXT.KV_shoal_eu.*",
        "$KV.shoal_eu.>",
    ];
    let all = [&cluster_subjects[..], &bucket.map(str::to_owned)].concat();
    for (publish, state) in [(all, "followed"), (cluster_subjects.clone(), "unavailable")] {
        let (user, subscribe) = ("shoal".to_owned(), cluster_subjects.clone());
        let access = Access::Permitted { user, password: "secret".to_owned(), publish, subscribe };
        let nats = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
        let settings = [
            ("SHOAL_CLUSTER_NAME", "eu"),
            ("SHOAL_CLUSTER_USER", "shoal"),
            ("SHOAL_CLUSTER_PASSWORD_FILE", state_path(&password)),
        ];
        let (one, two) =
            (start_alone("one", &nats.url(), &settings), start_alone("two", &nats.url(), &settings));
        wait_for_state(&one, state);
        wait_for_state(&two, state);
        if state == "followed" {
            change_deny(&one, "add", TORRENT);
            wait_for_refusal(&two, TORRENT, true);
            assert!(!one.log().contains("NATS has refused something"), "{}", one.log());
        } else {
            let fault = shared(&one)["fault"].to_string();
            assert!(fault.contains("may not publish to $JS.API.STREAM.INFO.KV_shoal_eu"), "{fault}");
        }
    }
}

#[test]
fn garbage_in_the_bucket_is_ignored_and_counted() {
    let nats = nats();
    let one = start_node("one", &nats.url(), &[]);
    change_deny(&one, "add", TORRENT);
    let of = |key: &str| format!("$KV.shoal_shoal.{key}");
    let listed = of(&format!("deny.{}", hex(TORRENT)));
    let garbage = [
        (of("keys.connection"), HeaderMap::new(), r#"{"key":"00"}"#),
        (of("keys.tickets"), HeaderMap::new(), r#"{"keys":"zz"}"#),
        (listed, HeaderMap::new(), "{"),
        (of("deny.nonsense"), HeaderMap::new(), "{}"),
        (of("bans.7f000000-8"), HeaderMap::new(), "[]"),
        (of("bans.7f000000-0"), HeaderMap::new(), r#"{"reason":"","by":"","since_unix_s":1}"#),
        (of("config.announce.interval_s"), HeaderMap::new(), "900"),
        (of("later.thing"), HeaderMap::new(), "{}"),
    ];
    publish(&nats, &garbage);
    eventually("all of it is counted", || {
        (shared(&one)["ignored"]["unreadable"] == garbage.len()).then_some(())
    });
    assert_eq!(one.log().matches("in the bucket of the cluster was ignored").count(), 1, "{}", one.log());
    // A value that does not apply here, and members and keys of a later version, do no harm.
    let later = [
        (of("config.later.key"), HeaderMap::new(), r#"{"value":"1"}"#),
        (of("config.announce.interval_s"), HeaderMap::new(), r#"{"value":"never","later":1}"#),
        (of(&format!("deny.{}", hex([6; 20]))), HeaderMap::new(), r#"{"reason":"r","later":[1]}"#),
    ];
    publish(&nats, &later);
    wait_for_refusal(&one, [6; 20], true);
    eventually("the fault is told", || {
        shared(&one)["values_fault"].as_str().filter(|fault| fault.contains("\"never\"")).map(drop)
    });
    wait_for_refusal(&one, TORRENT, true);
    // The keys that were garbage are there again.
    eventually("a node writes its key again", || {
        let two = Client::new(one.udp[0]).connect();
        let key = request_last(&nats, &of("keys.connection"));
        (key.len() == r#"{"key":""}"#.len() + 32 && accepts(&one, two)).then_some(())
    });
    // The next node does not know the torrent, whose value is garbage now, and has the rest.
    let two = start_node("two", &nats.url(), &[]);
    assert!(refusal(&two, [6; 20]).is_some());
    change_deny(&one, "remove", [6; 20]);
    wait_for_refusal(&two, [6; 20], false);
}

/// Another program may write to the bucket, or an operator may give it a wrong list.
#[test]
fn a_flood_of_entries_takes_bounded_memory_and_none_of_the_room_of_earlier_ones() {
    let nats = nats();
    let one = start_node("one", &nats.url(), &[]);
    change_deny(&one, "add", TORRENT);
    let before = memory_bytes(&one, "VmRSS");
    let text = "x".repeat(250);
    let entry = json!({ "date": "2026-01-31", "reason": text, "reference": text, "by": text }).to_string();
    let flood: Vec<_> = (0..25_000_u32)
        .map(|number| (format!("$KV.shoal_shoal.deny.{number:040x}"), HeaderMap::new(), &*entry))
        .collect();
    publish(&nats, &flood);
    // The bucket has them all, and 64 MiB are enough for about 17,500.
    let known = |tracker: &Tracker| {
        let shared = shared(tracker);
        (shared["entries"]["torrents"].as_u64().unwrap(), shared["ignored"]["full"].as_u64().unwrap())
    };
    eventually("the node has seen all of them", || {
        let (torrents, full) = known(&one);
        (torrents + full == 25_001).then_some(())
    });
    let (torrents, full) = known(&one);
    assert!((15_000..20_000).contains(&torrents) && full > 5000, "{torrents} {full}");
    let full_log = "the bucket of the cluster has more entries than a node keeps";
    assert_eq!(one.log().matches(full_log).count(), 1);
    let metrics = request_api(&one, "GET", "/metrics", READ, None).body;
    let metric = format!("shoal_cluster_shared_ignored_total{{reason=\"full\"}} {full}\n");
    assert!(metrics.contains(&metric), "{metric} in {metrics}");
    let (text, ..) = cluster(&one, &["status"]);
    assert!(text.contains(" ignored: full)"), "{text}");
    let after = memory_bytes(&one, "VmHWM");
    assert!(after < before + (80 << 20), "{before} {after}");
    // The entries of before still apply, also at a node that joins, and none can be added.
    let two = start_node("two", &nats.url(), &[]);
    for tracker in [&one, &two] {
        wait_for_refusal(tracker, TORRENT, true);
        wait_for_refusal(tracker, [0; 20], true);
    }
    let addition = json!({ "torrents": [hex([2; 20])] });
    let refused = request_api(&one, "POST", "/api/v1/lists/deny/add", ADMIN, Some(&addition));
    assert!(refused.status == 409 && refused.body.contains("more than 63 MiB of memory"), "{refused:?}");
    // A removal leaves room, and those that were ignored apply.
    let mut removal = HeaderMap::new();
    removal.insert("KV-Operation", "DEL");
    let (known_ones, ignored) = flood.split_at(20_000);
    let removals: Vec<_> =
        known_ones.iter().map(|(subject, ..)| (subject.clone(), removal.clone(), "")).collect();
    publish(&nats, &removals);
    eventually("the node has the others", || (known(&one).0 == 1 + ignored.len() as u64).then_some(()));
    change_deny(&one, "add", [2; 20]);
    wait_for_refusal(&two, [2; 20], true);
    wait_for_refusal(&two, [0; 20], false);
}

/// A figure of `/proc/PID/status`, in bytes.
fn memory_bytes(tracker: &Tracker, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", tracker.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel tells it");
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    1024 * kib.parse::<u64>().expect("it is a number")
}

#[test]
fn a_key_of_the_operator_is_not_shared() {
    let nats = nats();
    let one = start_node("one", &nats.url(), &[("SHOAL_CONNECTION_ID_KEY", &"07".repeat(16))]);
    let two = start_node("two", &nats.url(), &[]);
    let id = Client::new(one.udp[0]).connect();
    assert!(!accepts(&two, id));
    let three = start_node("three", &nats.url(), &[("SHOAL_CONNECTION_ID_KEY", &"08".repeat(16))]);
    for tracker in [&one, &three] {
        tracker.wait_for_line("connection_id.key is not the key of the cluster");
        let log = tracker.log();
        assert!(!log.contains(&"07".repeat(16)) && !log.contains(&"08".repeat(16)));
    }
}

/// The settings of a node with TLS.
fn tls() -> [(&'static str, &'static str); 3] {
    let (certificate, key) = certificate();
    [("SHOAL_TLS_LISTEN", "127.0.0.1:0"), ("SHOAL_TLS_CERTIFICATES", certificate), ("SHOAL_TLS_KEYS", key)]
}

/// The keys of TLS tickets in the bucket: the time of the next change in seconds since 1970, and those in use, the newest first.
fn ticket_keys(nats: &Server) -> (u64, Vec<Vec<u8>>) {
    let value: Value = serde_json::from_str(&request_last(nats, TICKET_KEYS)).expect("it is JSON");
    let digits = value["keys"].as_str().expect("it is text").as_bytes();
    let byte =
        |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("digits");
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    let (until, keys) = bytes.split_first_chunk().expect("there is a time");
    // The name of a key has 16 bytes, and its secret 32.
    (u64::from_le_bytes(*until), keys.chunks(48).map(<[u8]>::to_vec).collect())
}

#[expect(clippy::disallowed_methods, reason = "keys change by the clock of this host")]
fn now_unix_s() -> u64 {
    UNIX_EPOCH.elapsed().expect("it is later").as_secs()
}

/// Ends the time of the newest key of TLS tickets in the bucket, and waits until a client has made a node change it.
fn rotate_ticket_keys(nats: &Server, client_of: &Tracker) {
    let (_, before) = ticket_keys(nats);
    let until = now_unix_s() - 1;
    let bytes = [&until.to_le_bytes()[..], &before.concat()].concat();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let value = json!({ "keys": digits }).to_string();
    publish(nats, &[(TICKET_KEYS.to_owned(), HeaderMap::new(), &value)]);
    let (until, after) = eventually("a node has changed the keys", || {
        Resumer::new().announce(client_of.tls[0]);
        Some(ticket_keys(nats)).filter(|(_, after)| after[0] != before[0])
    });
    assert_eq!(after[1..], before[..1], "the key before is the second one");
    let now = now_unix_s();
    assert!((now + 21_000..=now + 21_600).contains(&until), "{until}");
}

#[test]
fn a_tls_session_is_resumed_at_another_node_until_the_keys_have_changed_twice() {
    let nats = nats();
    let (one, two) = (start_node("one", &nats.url(), &tls()), start_node("two", &nats.url(), &tls()));
    let resumes = |from: &Tracker, to: &Tracker| {
        let client = Resumer::new();
        client.announce(from.tls[0]);
        client.announce(to.tls[0])
    };
    let wait_for_both = || {
        eventually("both nodes have the same keys", || {
            (resumes(&one, &two) && resumes(&two, &one)).then_some(())
        });
    };
    wait_for_both();
    // A ticket of a session is used once, and each new session brings others.
    let [of_one, late_of_one, of_two, late_of_two] = [&one, &one, &two, &two].map(|tracker| {
        let client = Resumer::new();
        client.announce(tracker.tls[0]);
        client
    });
    rotate_ticket_keys(&nats, &one);
    assert!(of_one.announce(two.tls[0]), "the key before still opens tickets");
    assert!(of_two.announce(one.tls[0]), "the key before still opens tickets");
    wait_for_both();
    rotate_ticket_keys(&nats, &two);
    wait_for_both();
    assert!(!late_of_one.announce(two.tls[0]), "the key before the last one is gone");
    assert!(!late_of_two.announce(one.tls[0]), "the key before the last one is gone");
}

#[test]
fn ticket_keys_that_cannot_be_read_are_replaced() {
    let nats = nats();
    let one = start_node("one", &nats.url(), &tls());
    let client = Resumer::new();
    client.announce(one.tls[0]);
    let before = eventually("the node has written its keys", || {
        Some(request_last(&nats, TICKET_KEYS)).filter(|value| value.contains("keys"))
    });
    publish(&nats, &[(TICKET_KEYS.to_owned(), HeaderMap::new(), r#"{"keys":"0011"}"#)]);
    one.wait_for_line("the cluster's keys of TLS tickets cannot be read");
    eventually("they are there again", || (request_last(&nats, TICKET_KEYS) == before).then_some(()));
    assert!(client.announce(one.tls[0]));
    assert_eq!(one.log().matches("keys of TLS tickets cannot be read").count(), 1);
}

#[test]
fn changes_survive_the_loss_of_a_nats_server() {
    let mut nats = Cluster::start(&Options::default()).expect("the servers start");
    let urls = nats.urls();
    let (one, two) = (start_node("one", &urls, &[]), start_node("two", &urls, &[]));
    change_deny(&one, "add", TORRENT);
    wait_for_refusal(&two, TORRENT, true);
    for (number, index) in [(10_u8, 0), (11, 1)] {
        nats.servers[index].kill();
        let addition = json!({ "torrents": [hex([number; 20])] });
        // The two that are left elect a leader first.
        eventually("the change is stored", || {
            let page = request_api(&one, "POST", "/api/v1/lists/deny/add", ADMIN, Some(&addition));
            (page.status == 200).then_some(())
        });
        wait_for_refusal(&two, [number; 20], true);
        nats.servers[index].restart().expect("its port is free");
        nats.wait_until_complete().expect("it is back");
    }
    assert!(refusal(&two, TORRENT).is_some());
}

#[test]
fn a_full_bucket_refuses_a_change_and_stays_in_use() {
    let nats = nats();
    assert_eq!(configure_bucket(&nats, "CREATE", 8000)["error"], Value::Null);
    let nodes = ["a", "b"].map(|name| start_node(name, &nats.url(), &[]));
    let add = |number: u8| {
        let body = json!({ "torrents": [hex([number; 20])], "reason": "r".repeat(100) });
        request_api(&nodes[0], "POST", "/api/v1/lists/deny/add", ADMIN, Some(&body))
    };
    let refused = (1..100).map(|number| (number, add(number))).find(|(_, page)| page.status != 200);
    let (number, page) = refused.expect("8000 bytes hold no hundred torrents");
    assert!(page.body.contains("the bucket of the cluster is full; 0 of 1 changes were stored"), "{page:?}");
    assert!(number > 2, "{number}");
    for node in &nodes {
        wait_for_state(node, "followed");
        wait_for_refusal(node, [number - 1; 20], true);
        wait_for_refusal(node, [number; 20], false);
    }
}
