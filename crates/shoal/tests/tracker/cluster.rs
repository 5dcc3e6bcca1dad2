//! The cluster: real trackers and real NATS servers.

pub(crate) mod credit;
pub(crate) mod faults;
pub(crate) mod shared;
pub(crate) mod swarms;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use shoal_testkit::nats::{Access, Cluster, Operator, Options, Server, Tls, write_secret};

use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually, run, run_locally};
use crate::udp::hash;

/// The statistics of the cluster, from the control listener. It limits how often a client may ask.
pub(crate) fn status(tracker: &Tracker) -> Value {
    let url = format!("http://{}", tracker.control);
    eventually("the tracker replies", || {
        let output = run(&["ctl", "stats", "--json", "--url", &url], &[]);
        let stats: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        stats.map(|stats| stats["cluster"].clone())
    })
}

/// The output of `shoal cluster status`, and its exit code.
pub(crate) fn cluster_status(tracker: &Tracker, options: &[&str]) -> (String, Option<i32>) {
    let url = format!("http://{}", tracker.control);
    eventually("the tracker replies", || {
        let output = run(&[&["cluster", "status", "--url", &url], options].concat(), &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_limited = String::from_utf8_lossy(&output.stderr).contains("too many requests");
        (!is_limited).then_some((text, output.status.code()))
    })
}

/// Starts a node with this name.
pub(crate) fn start(node: &str, servers: &str, settings: &[(&str, &str)]) -> Tracker {
    let own = [("SHOAL_CLUSTER_SERVERS", servers), ("SHOAL_CLUSTER_NODE", node)];
    Tracker::start(&[&own, settings].concat())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// Waits until a node knows others with these names in this state.
pub(crate) fn wait_for_nodes(tracker: &Tracker, expected: &[&str], state: &str) {
    eventually("the nodes know each other", || {
        let nodes = status(tracker)["nodes"].as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = nodes
            .iter()
            .filter(|node| node["state"] == state)
            .filter_map(|node| node["name"].as_str())
            .collect();
        (names == expected).then_some(())
    });
}

#[test]
fn a_tracker_without_servers_is_not_part_of_a_cluster() {
    let tracker = Tracker::start(&[]);
    assert_eq!(status(&tracker), Value::Null);
    assert_eq!(cluster_status(&tracker, &[]).1, Some(3));
    assert!(!tracker.log().contains("NATS"));
}

#[test]
fn nodes_at_three_servers_know_each_other() {
    let nats = Cluster::start(&Options::default()).expect("the servers start");
    let names = ["one", "three", "two"];
    let trackers: Vec<Tracker> =
        names.iter().zip(&nats.servers).map(|(name, server)| start(name, &server.url(), &[])).collect();
    for (tracker, name) in trackers.iter().zip(names) {
        tracker.wait_for_line("connected to NATS");
        let others: Vec<&str> = names.into_iter().filter(|other| *other != name).collect();
        wait_for_nodes(tracker, &others, "ready");
    }
    let (text, code) = cluster_status(&trackers[0], &[]);
    assert_eq!(code, Some(0), "{text}");
    for part in
        ["cluster: shoal\n", "node: one (", "state: ready\n", "NATS: connected to server-0\n", "\nthree "]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let (json, _) = cluster_status(&trackers[0], &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&json["connected"], &json["connects"]), (&true.into(), &1.into()));
    assert!(json["messages"]["in"].as_u64() > Some(0), "{json}");
    let metrics = trackers[0].page("/metrics").body;
    assert!(metrics.contains("shoal_cluster_connected 1\n"), "{metrics}");
    assert!(metrics.contains("shoal_cluster_nodes{state=\"ready\"} 2\n"), "{metrics}");
    assert!(metrics.contains("shoal_cluster_ready 1\n"), "{metrics}");
    for metric in [
        "shoal_cluster_lag_seconds ",
        "shoal_cluster_deltas_unrecorded_total 0\n",
        "shoal_cluster_messages_refused_total{reason=\"forged\"} 0\n",
        "shoal_replication_refused_total{reason=\"torrent_denied\"} 0\n",
        "shoal_cluster_forwarded_total{outcome=\"delivered\"} 0\n",
    ] {
        assert!(metrics.contains(&format!("\n{metric}")), "{metric} in {metrics}");
    }
}

#[test]
fn clusters_with_other_names_are_apart() {
    let nats = Server::start(&Options::default()).expect("the server starts");
    let one = start("one", &nats.url(), &[("SHOAL_CLUSTER_NAME", "eu")]);
    let two = start("two", &nats.url(), &[("SHOAL_CLUSTER_NAME", "eu")]);
    let other = start("other", &nats.url(), &[("SHOAL_CLUSTER_NAME", "us")]);
    wait_for_nodes(&one, &["two"], "ready");
    wait_for_nodes(&two, &["one"], "ready");
    assert_eq!(status(&other)["nodes"], Value::Array(Vec::new()));
}

#[test]
fn a_tracker_starts_without_nats_and_connects_when_it_is_there() {
    let mut nats = Server::start(&Options::default()).expect("the server starts");
    nats.kill();
    let tracker = start("one", &nats.url(), &[]);
    let away = tracker.wait_for_line("NATS is away");
    assert!(away["reason"].as_str().is_some_and(|reason| reason.contains("IO error")), "{away}");
    let (text, code) = cluster_status(&tracker, &[]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("NATS: away: ") && text.contains("state: alone\n"), "{text}");
    nats.restart().expect("its port is free");
    tracker.wait_for_line("NATS is back");
    eventually("the status tells it", || (cluster_status(&tracker, &[]).1 == Some(0)).then_some(()));
}

#[test]
fn nats_that_is_killed_and_back_is_in_the_log_and_a_node_that_stops_says_goodbye() {
    let mut nats = Server::start(&Options::default()).expect("the server starts");
    let one = start("one", &nats.url(), &[]);
    let mut two = start("two", &nats.url(), &[]);
    wait_for_nodes(&one, &["two"], "ready");
    nats.kill();
    one.wait_for_line("NATS is away");
    eventually("the node is alone", || (status(&one)["state"] == "alone").then_some(()));
    nats.restart().expect("its port is free");
    for tracker in [&one, &two] {
        tracker.wait_for_line("NATS is back");
    }
    wait_for_nodes(&one, &["two"], "ready");
    eventually("it counts both connections", || (status(&one)["connects"] == 2).then_some(()));
    assert!(two.stop().success());
    wait_for_nodes(&one, &[], "ready");
}

#[test]
fn a_node_goes_on_at_another_server_when_its_own_is_killed() {
    let mut nats = Cluster::start(&Options::default()).expect("the servers start");
    let tracker = start("one", &nats.urls(), &[]);
    tracker.wait_for_line("connected to NATS");
    let server = eventually("it tells its server", || status(&tracker)["server"].as_str().map(str::to_owned));
    let index: usize = server.trim_start_matches("server-").parse().expect("servers have numbers");
    nats.servers[index].kill();
    tracker.wait_for_line("NATS is back");
    let other = eventually("it tells its server", || {
        status(&tracker)["server"].as_str().filter(|other| **other != server).map(str::to_owned)
    });
    assert!(other.starts_with("server-"), "{other}");
}

#[test]
fn wrong_credentials_are_in_the_log() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let file = directory.path().join("password");
    let access = Access::User { user: "shoal".to_owned(), password: "right".to_owned() };
    let nats = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    write_secret(&file, "wrong-password\n").expect("there is room for a file");
    let settings = [("SHOAL_CLUSTER_USER", "shoal"), ("SHOAL_CLUSTER_PASSWORD_FILE", path(&file))];
    let tracker = start("one", &nats.url(), &settings);
    let away = tracker.wait_for_line("NATS is away");
    assert!(
        away["reason"].as_str().is_some_and(|reason| reason.contains("authorization violation")),
        "{away}"
    );
    assert!(!tracker.log().contains("wrong-password"));
    // The file is read at each connection.
    write_secret(&file, "right\n").expect("there is room for a file");
    tracker.wait_for_line("NATS is back");
}

#[test]
fn tokens_and_keys_are_accepted() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let file = directory.path().join("secret");
    let access = Access::Token("a-token".to_owned());
    let nats = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    write_secret(&file, "a-token\n").expect("there is room for a file");
    start("one", &nats.url(), &[("SHOAL_CLUSTER_TOKEN_FILE", path(&file))])
        .wait_for_line("connected to NATS");

    let key = nkeys::KeyPair::new_user();
    let nats = Server::start(&Options { access: Access::NKey(key.public_key()), ..Options::default() });
    let nats = nats.expect("the server starts");
    write_secret(&file, &key.seed().expect("it is new")).expect("there is room for a file");
    start("one", &nats.url(), &[("SHOAL_CLUSTER_CREDENTIALS", path(&file))])
        .wait_for_line("connected to NATS");
}

#[test]
fn a_user_with_credentials_needs_the_subjects_of_the_cluster_only() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let operator = Operator::create().expect("the keys are made");
    let nats =
        Server::start(&Options { access: Access::Credentials(operator.clone()), ..Options::default() });
    let nats = nats.expect("the server starts");
    let file = |name: &str, subjects: &str| {
        let file = directory.path().join(name);
        write_secret(&file, &operator.credentials(subjects).expect("the keys are made"))
            .expect("there is room");
        file
    };
    let (permitted, other) = (file("permitted", "shoal.eu.>"), file("other", "shoal.us.>"));
    let start = |node: &str, file: &Path| {
        let settings = [("SHOAL_CLUSTER_NAME", "eu"), ("SHOAL_CLUSTER_CREDENTIALS", path(file))];
        start(node, &nats.url(), &settings)
    };
    let (one, two) = (start("one", &permitted), start("two", &permitted));
    wait_for_nodes(&one, &["two"], "ready");
    wait_for_nodes(&two, &["one"], "ready");
    assert!(!one.log().contains("NATS has refused"), "{}", one.log());
    let refused = start("three", &other).wait_for_line("NATS has refused something");
    assert!(
        refused["error"].as_str().is_some_and(|error| error.contains("Permissions Violation")),
        "{refused}"
    );
}

#[test]
fn a_leaf_node_reaches_the_nodes_at_its_hub() {
    let options = Options::default();
    let hub = Server::start(&options).expect("the server starts");
    let leaf = Server::start_leaf(&hub, &options).expect("the leaf node starts");
    let (one, two) = (start("one", &hub.url(), &[]), start("two", &leaf.url(), &[]));
    wait_for_nodes(&one, &["two"], "ready");
    wait_for_nodes(&two, &["one"], "ready");
}

#[test]
fn a_tracker_that_is_upgraded_leaves_the_cluster_to_the_new_one() {
    let nats = Server::start(&Options::default()).expect("the server starts");
    let one = start("one", &nats.url(), &[]);
    let two = start("two", &nats.url(), &[]);
    wait_for_nodes(&one, &["two"], "ready");
    let before = status(&one)["nodes"][0]["id"].clone();
    // The node gets changes of swarms while the store stands still.
    let (address, is_over) = (one.udp[0], Arc::new(AtomicBool::new(false)));
    let ends = Arc::clone(&is_over);
    let load = thread::spawn(move || {
        let client = Client::new(address);
        for port in (1000..1050).cycle().take_while(|_| !ends.load(Ordering::Relaxed)) {
            client.announce(&Announce::leecher(hash(1), port));
            thread::sleep(Duration::from_millis(5));
        }
    });
    let output = run_locally(&two, &["upgrade"]);
    assert!(output.status.success(), "{output:?}");
    two.wait_for_line("the new process serves");
    let after = eventually("the new process is the only one of its name", || {
        let nodes = status(&one)["nodes"].clone();
        let is_alone = nodes.as_array().is_some_and(|nodes| nodes.len() == 1) && nodes[0]["state"] == "ready";
        (is_alone && nodes[0]["id"] != before).then(|| nodes[0]["name"].clone())
    });
    assert_eq!(after, "two");
    is_over.store(true, Ordering::Relaxed);
    load.join().unwrap();
}

/// Accepts a client as a NATS server does.
fn accept(listener: &TcpListener) -> TcpStream {
    let (mut client, _) = eventually("the node connects", || listener.accept().ok());
    client.set_nonblocking(false).expect("it is a socket");
    let greeting = r#"INFO {"server_id":"x","server_name":"x","version":"2.10.0","proto":1,"max_payload":1048576,"headers":true}"#;
    write!(client, "{greeting}\r\n").expect("the client reads");
    let lines = BufReader::new(client.try_clone().expect("there are descriptors")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "PING"));
    client.write_all(b"PONG\r\n").expect("the client reads");
    client
}

#[test]
fn a_client_of_nats_that_ends_is_started_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    listener.set_nonblocking(true).expect("it is a socket");
    let servers = format!("nats://{}", listener.local_addr().expect("it is bound"));
    let one = start("one", &servers, &[]);
    let mut server = accept(&listener);
    one.wait_for_line("connected to NATS");
    // The client library panics on an error without a text.
    server.write_all(b"-ERR\r\n").expect("the client reads");
    let away = one.wait_for_line("NATS is away");
    assert!(away["reason"].as_str().is_some_and(|reason| reason.contains("has ended")), "{away}");
    let shown = status(&one);
    assert_eq!((&shown["connected"], &shown["fault"]), (&false.into(), &away["reason"]));
    let _server = accept(&listener);
    one.wait_for_line("NATS is back");
    assert_eq!(status(&one)["connected"], true);
}

#[test]
fn a_server_that_permits_only_small_messages_is_told() {
    let small = Options { payload_bytes_max: Some(8192), ..Options::default() };
    let nats = Server::start(&small).expect("the server starts");
    let one = start("one", &nats.url(), &[]);
    let told = one.wait_for_line("the NATS server does not suffice");
    assert_eq!((&told["max_payload"], &told["needed"]), (&8192.into(), &(512 * 1024).into()));
    let (text, _) = cluster_status(&one, &[]);
    assert!(text.contains("max_payload is 8192") && text.contains("524288 bytes"), "{text}");
    let nats = Server::start(&Options::default()).expect("the server starts");
    let two = start("two", &nats.url(), &[]);
    two.wait_for_line("this node has the shared state of the cluster");
    assert!(!two.log().contains("suffice"), "{}", two.log());
}

#[test]
fn tls_with_a_private_authority_works_in_the_sandbox() {
    let mut tls = Tls::create().expect("there is room for files");
    tls.verifies_clients = true;
    let nats = Server::start(&Options { access: Access::Open, tls: Some(tls.clone()), ..Options::default() });
    let nats = nats.expect("the server starts");
    let (authority, [certificate, key]) = (tls.authority(), tls.client());
    let settings = [
        ("SHOAL_CLUSTER_TLS_CA", path(&authority)),
        ("SHOAL_CLUSTER_TLS_CERTIFICATE", path(&certificate)),
        ("SHOAL_CLUSTER_TLS_KEY", path(&key)),
    ];
    // The name of the server is looked up, too.
    assert!(nats.url().starts_with("tls://localhost:"));
    let tracker = start("one", &nats.url(), &settings);
    tracker.wait_for_line("connected to NATS");
    assert!(tracker.log().contains("\"seccomp\":\"control plane and workers\""), "{}", tracker.log());
    assert!(!tracker.log().contains("\"landlock\":\"off\""), "{}", tracker.log());

    // The system knows no such authority.
    let stranger = start("two", &nats.url(), &[]);
    let away = stranger.wait_for_line("NATS is away");
    assert!(away["reason"].as_str().is_some_and(|reason| reason.contains("certificate")), "{away}");
}

#[test]
fn files_that_cannot_be_used_refuse_the_start() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let file = directory.path().join("empty");
    write_secret(&file, "").expect("there is room for a file");
    let (empty, missing) = (path(&file).to_owned(), format!("{}/missing", directory.path().display()));
    for (key, value, accepted) in [
        ("TOKEN_FILE", &missing, "cannot be read"),
        ("TOKEN_FILE", &empty, "accepts a file with the secret in its first line"),
        ("CREDENTIALS", &empty, "accepts NATS credentials"),
        ("TLS_CA", &empty, "accepts certificates in PEM format"),
        ("TLS_CA", &missing, "accepts certificates in PEM format"),
        ("TLS_CERTIFICATE", &empty, "accepts certificates in PEM format"),
    ] {
        let name = format!("SHOAL_CLUSTER_{key}");
        let settings = [
            ("SHOAL_CLUSTER_SERVERS", "nats://127.0.0.1:4222"),
            (name.as_str(), value.as_str()),
            ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
            ("SHOAL_HTTP_LISTEN", "127.0.0.1:0"),
            ("SHOAL_CONTROL_LISTEN", "127.0.0.1:0"),
        ];
        let output = run(&[], &settings);
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{log}");
        let expected = format!("cluster.{}: {value}: ", key.to_lowercase());
        assert!(log.contains(&expected) && log.contains(accepted), "{expected}{accepted} is not in\n{log}");
    }
}
