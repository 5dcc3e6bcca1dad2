//! The credit of users: real trackers, real NATS servers with JetStream, and clients with tokens. The oracle is the number of
//! bytes that each announce claims to have uploaded, which is another one for each.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use futures_util::StreamExt;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shoal_base::{CreditProtocol, Event, InfoHash, PeerId, Transfer};
use shoal_cluster::protocol::{CreditRecord, NodeId, decode_credits};
use shoal_testkit::nats::{Access, Options, Server, write_secret};
use shoal_testkit::tokens::{Issuer, jwks};
use tempfile::TempDir;

use crate::cluster::{cluster_status, start, status};
use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, ERROR, word};
use crate::kit::harness::{PATIENCE, Tracker, eventually, run};
use crate::kit::web;
use crate::state::Place;
use crate::tokens::{now_s, with_url};
use crate::udp::hash;

const STREAM: &str = "CREDIT";

/// The places of the numbers in an announce over UDP (BEP 15).
const DOWNLOADED: usize = 56;
const UPLOADED: usize = 72;
const EVENT: usize = 80;

/// The keys of tokens, in a file.
struct Site {
    issuer: Issuer,
    _folder: TempDir,
    keys: String,
}

/// A batch of the stream.
#[derive(Debug)]
struct Stored {
    id: String,
    run: NodeId,
    sequence: u64,
    node: String,
    records: Vec<CreditRecord>,
}

impl Site {
    fn new() -> Self {
        let (issuer, folder) = (Issuer::ed25519("site"), tempfile::tempdir().unwrap());
        let keys = folder.path().join("jwks.json");
        fs::write(&keys, jwks(&[issuer.jwk()])).unwrap();
        Self { issuer, keys: keys.display().to_string(), _folder: folder }
    }

    fn start(&self, node: &str, servers: &str, settings: &[(&str, &str)]) -> Tracker {
        let own = [("SHOAL_TOKENS_JWKS", &*self.keys), ("SHOAL_CLUSTER_CREDIT_STREAM", STREAM)];
        start(node, servers, &[&own, settings].concat())
    }

    fn token(&self, subject: &str) -> String {
        self.issuer.token(&json!({ "sub": subject, "exp": now_s() + 3600 }))
    }

    /// Announces over UDP with this number of uploaded bytes, and is served.
    fn upload(&self, client: &Client, id: u64, subject: &str, uploaded: u64) {
        let packet = packet(id, uploaded, 0, &format!("/announce?jwt={}", self.token(subject)));
        let reply = client.ask(&packet);
        assert_ne!(word(&reply, 0), ERROR, "{}", String::from_utf8_lossy(&reply));
    }

    /// Announces so many times, with as many different numbers of uploaded bytes from `first` on.
    fn upload_all(&self, tracker: &Tracker, numbers: std::ops::Range<u64>) {
        let client = Client::new(tracker.udp[0]);
        let id = client.connect();
        numbers.for_each(|number| self.upload(&client, id, "user-1", number));
    }
}

fn packet(id: u64, uploaded: u64, event: u32, url: &str) -> Vec<u8> {
    let mut packet = Announce::leecher(hash(1), 6881).packet(id, 5);
    packet[UPLOADED..UPLOADED + 8].copy_from_slice(&uploaded.to_be_bytes());
    packet[EVENT..EVENT + 4].copy_from_slice(&event.to_be_bytes());
    with_url(packet, url, 255)
}

fn nats() -> Server {
    Server::start(&Options::default()).expect("the server starts")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Sends a request to the API of JetStream.
fn request(nats: &Server, subject: &str, content: &Value) -> Value {
    runtime().block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("the server is there");
        let content = content.to_string().into();
        let reply = client.request(format!("$JS.API.{subject}"), content).await.expect("it replies");
        serde_json::from_slice(&reply.payload).expect("it is JSON")
    })
}

/// Everything that the stream has.
fn stored(nats: &Server) -> Vec<Stored> {
    let state = request(nats, &format!("STREAM.INFO.{STREAM}"), &json!({}))["state"].clone();
    let number = |name: &str| state[name].as_u64().unwrap_or(0);
    let numbers = number("first_seq").max(1)..=number("last_seq");
    runtime().block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("the server is there");
        let mut batches = Vec::new();
        for number in numbers {
            let content = json!({ "seq": number }).to_string().into();
            let reply =
                client.request(format!("$JS.API.DIRECT.GET.{STREAM}"), content).await.expect("it replies");
            let headers = reply.headers.as_ref().expect("a batch has headers");
            let id = headers.get("Nats-Msg-Id").expect("a batch has an id").to_string();
            let mut records = Vec::new();
            let head = decode_credits(&reply.payload, &mut records).expect("it is a batch");
            let (run, sequence, node) = (head.run, head.sequence, head.node.to_owned());
            batches.push(Stored { id, run, sequence, node, records });
        }
        batches
    })
}

fn uploads(batches: &[Stored]) -> Vec<u64> {
    let records = batches.iter().flat_map(|batch| &batch.records);
    records.filter_map(|record| record.credit.transfer.uploaded).collect()
}

/// Waits until the stream has so many records.
fn wait_for(nats: &Server, records: usize) -> Vec<Stored> {
    eventually("the records are in the stream", || {
        let info = request(nats, &format!("STREAM.INFO.{STREAM}"), &json!({}));
        let batches = if info["state"].is_object() { stored(nats) } else { Vec::new() };
        (batches.iter().map(|batch| batch.records.len()).sum::<usize>() >= records).then_some(batches)
    })
}

/// Asserts that the stream has exactly these numbers, each once and in order, and that batches follow each other without gaps.
fn assert_exact(nats: &Server, numbers: std::ops::Range<u64>) -> Vec<Stored> {
    let batches = wait_for(nats, usize::try_from(numbers.end - numbers.start).unwrap());
    assert_eq!(uploads(&batches), numbers.collect::<Vec<_>>());
    let ids: BTreeSet<&str> = batches.iter().map(|batch| &*batch.id).collect();
    assert_eq!(ids.len(), batches.len(), "an id belongs to one batch: {batches:?}");
    for pair in batches.windows(2) {
        let expected = if pair[0].run == pair[1].run { pair[0].sequence + 1 } else { 1 };
        assert_eq!(pair[1].sequence, expected, "{pair:?}");
    }
    for batch in &batches {
        assert_eq!(batch.id, format!("{}.{}", batch.run, batch.sequence));
    }
    batches
}

fn credit(tracker: &Tracker) -> Value {
    status(tracker)["credit"].clone()
}

fn wait_for_state(tracker: &Tracker, state: &str) -> Value {
    eventually(&format!("the credit is {state}"), || {
        Some(credit(tracker)).filter(|credit| credit["state"] == state)
    })
}

fn wait_for_waiting(tracker: &Tracker, records: u64) -> Value {
    eventually("the records wait", || Some(credit(tracker)).filter(|credit| credit["waiting"] == records))
}

#[test]
fn announces_of_every_protocol_are_in_the_stream_once() {
    let (site, nats) = (Site::new(), nats());
    let tracker = site.start("a", &nats.url(), &[]);
    let token = site.token("user-1");
    let client = Client::new(tracker.udp[0]);
    let id = client.connect();
    let url = format!("/announce?jwt={token}");
    client.ask(&packet(id, 11, 2, &url));
    let mut with_all = packet(id, 12, 1, &url);
    with_all[DOWNLOADED..DOWNLOADED + 8].copy_from_slice(&5_u64.to_be_bytes());
    client.ask(&with_all);
    client.ask(&packet(id, u64::MAX, 0, &url));
    client.ask(&packet(id, 13, 3, &url));
    let mut http = Way::PLAIN.connect(&tracker);
    http.get(&web::announce(
        hash(2),
        1,
        &format!("&jwt={}&uploaded=21&downloaded=9&left=3", site.token("ü")),
    ));
    http.get(&web::announce(
        hash(2),
        1,
        &format!("&jwt={token}&uploaded=x&downloaded=-1&left=-1&event=stopped"),
    ));
    let mut page = Browser::open_at(Way::PLAIN, &tracker, &format!("/announce?jwt={token}"));
    let mut message = browser::announce('t', 'a', 0);
    (message["uploaded"], message["downloaded"]) = (json!(31), json!(7));
    assert!(page.ask(&message)["interval"].is_number());
    // None of these counts for a user.
    http.get(&web::announce(hash(2), 1, ""));
    http.get(&web::announce(hash(2), 1, "&event=stopped"));
    http.get(&web::announce(hash(2), 1, "&jwt=nonsense"));
    http.get(&web::announce(hash(2), 1, "&jwt=nonsense&event=stopped"));
    let nameless = site.issuer.token(&json!({ "exp": now_s() + 3600 }));
    http.get(&web::announce(hash(2), 1, &format!("&jwt={nameless}")));

    let batches = wait_for(&nats, 7);
    let credit = eventually("all are counted", || {
        Some(credit(&tracker)).filter(|credit| credit["stored"] == 7 && credit["waiting"] == 0)
    });
    assert_eq!(credit["skipped"], json!({ "without_subject": 1, "invalid_token": 1 }));
    assert_eq!(credit["lost"], json!({ "ring_full": 0, "spool_full": 0, "unreadable": 0 }));
    assert!(batches.iter().all(|batch| batch.node == "a"));
    let records: Vec<_> =
        batches.iter().flat_map(|batch| &batch.records).map(|record| record.credit).collect();
    let of = |protocol| {
        let of_protocol = records.iter().filter(move |record| record.protocol == protocol);
        let facts = |record: &&shoal_base::Credit| {
            let Transfer { uploaded, downloaded, left } = record.transfer;
            (record.subject.as_str().to_owned(), record.event, [uploaded, downloaded, left])
        };
        of_protocol.map(|record| facts(&record)).collect::<Vec<_>>()
    };
    let (user, left) = (|| "user-1".to_owned(), Some(1 << 20));
    assert_eq!(
        of(CreditProtocol::Udp),
        [
            (user(), Event::Started, [Some(11), Some(0), left]),
            (user(), Event::Completed, [Some(12), Some(5), left]),
            (user(), Event::Update, [None, Some(0), left]),
            (user(), Event::Stopped, [Some(13), Some(0), left]),
        ]
    );
    assert_eq!(
        of(CreditProtocol::Http),
        [
            ("ü".to_owned(), Event::Update, [Some(21), Some(9), Some(3)]),
            (user(), Event::Stopped, [None, None, None]),
        ]
    );
    assert_eq!(of(CreditProtocol::WebTorrent), [(user(), Event::Started, [Some(31), Some(7), Some(1)])]);
    let over_udp =
        records.iter().find(|record| record.protocol == CreditProtocol::Udp).expect("there are some");
    assert_eq!(over_udp.peer_id, Some(PeerId(*b"-XX0001-abcdefghijkl")));
    assert_eq!(over_udp.info_hash, InfoHash(hash(1)));
    let now_ms = now_s() * 1000;
    let times = batches.iter().flat_map(|batch| &batch.records).map(|record| record.unix_ms);
    assert!(times.clone().all(|ms| ms.abs_diff(now_ms) < 600_000), "{:?}", times.collect::<Vec<_>>());
    let (shown, code) = cluster_status(&tracker, &[]);
    assert!(shown.contains("credit: accepted (7 stored, 0 waiting)\n") && code == Some(0), "{shown}");
    assert_eq!(tracker.metric("shoal_cluster_credit_stored_total", &[]), 7);
    assert_eq!(tracker.metric("shoal_cluster_credit_skipped_total", &["reason=\"without_subject\""]), 1);
    assert_eq!(tracker.metric("shoal_cluster_credit_lost_total", &["reason=\"spool_full\""]), 0);
}

#[test]
fn what_waits_while_nats_is_away_is_stored_once_and_in_order() {
    let (site, mut nats) = (Site::new(), nats());
    let tracker = site.start("a", &nats.url(), &[]);
    site.upload_all(&tracker, 0..20);
    assert_exact(&nats, 0..20);
    for round in 1..4_u64 {
        nats.kill();
        site.upload_all(&tracker, round * 40 - 20..round * 40);
        nats.restart().expect("it starts again");
        site.upload_all(&tracker, round * 40..round * 40 + 20);
        assert_exact(&nats, 0..round * 40 + 20);
    }
    let credit = wait_for_waiting(&tracker, 0);
    assert_eq!((&credit["stored"], &credit["state"]), (&json!(140), &json!("accepted")));
}

#[test]
fn a_tracker_that_is_killed_sends_its_files_after_the_restart() {
    let (site, mut nats, place) = (Site::new(), nats(), Place::new());
    let settings = place.settings(&[]);
    let mut tracker = site.start("a", &nats.url(), &settings);
    site.upload_all(&tracker, 0..5);
    assert_exact(&nats, 0..5);
    for round in 1..4_u64 {
        nats.kill();
        site.upload_all(&tracker, round * 10 - 5..round * 10 + 5);
        // A batch is in its file a second after its first record at the latest. A record takes more than 50 bytes.
        eventually("the records are in a file", || {
            let credit = credit(&tracker);
            (credit["waiting"] == 10 && credit["spool_bytes"].as_u64() >= Some(500)).then_some(())
        });
        tracker.signal(Signal::SIGKILL);
        tracker.wait(PATIENCE);
        if round == 2 {
            // Another run that ends before it has sent anything.
            let mut between = site.start("a", &nats.url(), &settings);
            eventually("it has found the file", || (credit(&between)["waiting"] == 10).then_some(()));
            between.signal(Signal::SIGKILL);
            between.wait(PATIENCE);
        }
        nats.restart().expect("it starts again");
        tracker = site.start("a", &nats.url(), &settings);
        assert_exact(&nats, 0..round * 10 + 5);
        wait_for_waiting(&tracker, 0);
    }
    assert!(tracker.stop().success());
    assert_eq!(files(&place), Vec::<PathBuf>::new());
}

/// The files of credit in the directory of the state.
fn files(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(&place.path).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.display().to_string().contains("credit")).collect()
}

#[test]
fn a_tracker_that_stops_leaves_nothing_behind() {
    let (site, nats) = (Site::new(), nats());
    for round in 0..3 {
        let mut tracker = site.start("a", &nats.url(), &[]);
        wait_for_state(&tracker, "accepted");
        site.upload_all(&tracker, round * 7..round * 7 + 7);
        assert!(tracker.stop().success());
        assert_exact(&nats, 0..round * 7 + 7);
    }
}

#[test]
fn an_upgrade_loses_nothing_and_stores_nothing_twice() {
    let (site, nats, place) = (Site::new(), nats(), Place::new());
    let tracker = site.start("a", &nats.url(), &place.settings(&[]));
    site.upload_all(&tracker, 0..50);
    tracker.signal(Signal::SIGUSR2);
    tracker.wait_for_line("the new process serves");
    site.upload_all(&tracker, 50..100);
    let mut numbers = uploads(&wait_for(&nats, 100));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

#[test]
fn an_upgrade_while_nats_is_away_loses_nothing_and_stores_nothing_twice() {
    let (site, mut nats, place) = (Site::new(), nats(), Place::new());
    let mut tracker = site.start("a", &nats.url(), &place.settings(&[]));
    wait_for_state(&tracker, "accepted");
    nats.kill();
    site.upload_all(&tracker, 0..50);
    tracker.signal(Signal::SIGUSR2);
    tracker.wait_for_line("the new process serves");
    site.upload_all(&tracker, 50..100);
    assert!(tracker.wait(PATIENCE).success(), "the old process ends");
    eventually("the new process has the files of the old one", || {
        (credit(&tracker)["waiting"] == 100).then_some(())
    });
    nats.restart().expect("it starts again");
    wait_for(&nats, 100);
    wait_for_waiting(&tracker, 0);
    let mut numbers = uploads(&stored(&nats));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_stream_that_is_there_and_takes_nothing_is_not_accepted() {
    let (site, nats) = (Site::new(), nats());
    let config = json!({
        "name": STREAM, "subjects": ["shoal.shoal.credit"], "storage": "memory", "no_ack": true,
    });
    let created = request(&nats, &format!("STREAM.CREATE.{STREAM}"), &config);
    assert_eq!(created["error"], Value::Null, "{created}");
    let tracker = site.start("a", &nats.url(), &[]);
    site.upload_all(&tracker, 0..3);
    // Before the first attempt it is away without a reason.
    eventually("the acknowledgement is missed", || {
        let fault = credit(&tracker)["fault"].as_str().map(str::to_owned);
        fault.filter(|fault| fault.starts_with("no reply to shoal.shoal.credit"))
    });
    runtime().block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("the server is there");
        let mut published = client.subscribe("shoal.shoal.credit").await.expect("a subscription");
        for _ in 0..3 {
            // The stream was found again before this, and its acknowledgement is awaited now.
            published.next().await.expect("a batch");
            assert_eq!(credit(&tracker)["state"], "away");
        }
    });
    assert_eq!(tracker.metric("shoal_cluster_credit_accepted", &[]), 0);
}

#[test]
fn a_full_stream_makes_records_wait_and_delays_no_announce() {
    let (site, nats) = (Site::new(), nats());
    let config = |bytes: u32| {
        json!({
            "name": STREAM, "subjects": ["shoal.shoal.credit"], "storage": "file", "discard": "new", "max_bytes": bytes,
            "allow_direct": true, "max_age": 0, "duplicate_window": 120_000_000_000_u64,
        })
    };
    let created = request(&nats, &format!("STREAM.CREATE.{STREAM}"), &config(100));
    assert_eq!(created["error"], Value::Null, "{created}");
    let tracker = site.start("a", &nats.url(), &[]);
    site.upload_all(&tracker, 0..30);
    let credit = wait_for_state(&tracker, "refused");
    assert_eq!(credit["fault"], "the stream is full");
    site.upload_all(&tracker, 30..60);
    wait_for_waiting(&tracker, 60);
    let (shown, _) = cluster_status(&tracker, &[]);
    assert!(shown.contains("credit: refused (0 stored, 60 waiting); the stream is full\n"), "{shown}");
    assert_eq!(tracker.metric("shoal_cluster_credit_accepted", &[]), 0);
    let updated = request(&nats, &format!("STREAM.UPDATE.{STREAM}"), &config(1 << 20));
    assert_eq!(updated["error"], Value::Null, "{updated}");
    assert_exact(&nats, 0..60);
    wait_for_state(&tracker, "accepted");
}

#[test]
fn a_stream_of_other_subjects_and_a_server_without_jetstream_are_named() {
    let (site, nats) = (Site::new(), nats());
    let config = json!({ "name": STREAM, "subjects": ["other"], "storage": "memory" });
    request(&nats, &format!("STREAM.CREATE.{STREAM}"), &config);
    let tracker = site.start("a", &nats.url(), &[]);
    site.upload_all(&tracker, 0..3);
    let credit = wait_for_state(&tracker, "refused");
    assert_eq!(credit["fault"], "no stream takes shoal.shoal.credit");

    let plain = Server::start(&Options { without_jetstream: true, ..Options::default() }).expect("it starts");
    let tracker = site.start("b", &plain.url(), &[]);
    site.upload_all(&tracker, 0..3);
    let credit = wait_for_state(&tracker, "refused");
    assert_eq!(credit["fault"], "the NATS server has no JetStream for this account");
    wait_for_waiting(&tracker, 3);
}

#[test]
fn a_user_that_may_not_use_the_stream_delays_no_announce() {
    let permitted = |more: &[&str]| Access::Permitted {
        user: "shoal".to_owned(),
        password: "secret".to_owned(),
        publish: ["shoal.shoal.>"].iter().chain(more).map(ToString::to_string).collect(),
        subscribe: vec!["shoal.shoal.>".to_owned()],
    };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("password");
    write_secret(&secret, "secret\n").expect("a file");
    let settings = [
        ("SHOAL_CLUSTER_USER", "shoal"),
        ("SHOAL_CLUSTER_PASSWORD_FILE", secret.to_str().unwrap()),
        ("SHOAL_CLUSTER_SHARED_STATE", "false"),
    ];
    let site = Site::new();
    let nats = Server::start(&Options { access: permitted(&[]), ..Options::default() }).expect("it starts");
    let tracker = site.start("a", &nats.url(), &settings);
    site.upload_all(&tracker, 0..3);
    let credit = wait_for_state(&tracker, "refused");
    assert_eq!(credit["fault"], "the NATS user may not publish to $JS.API.STREAM.INFO.CREDIT");
    wait_for_waiting(&tracker, 3);

    let enough = ["$JS.API.STREAM.INFO.CREDIT", "$JS.API.STREAM.CREATE.CREDIT"];
    let nats =
        Server::start(&Options { access: permitted(&enough), ..Options::default() }).expect("it starts");
    let tracker = site.start("a", &nats.url(), &settings);
    site.upload_all(&tracker, 0..3);
    eventually("the records are stored", || (credit_stored(&tracker) == 3).then_some(()));
}

fn credit_stored(tracker: &Tracker) -> u64 {
    credit(tracker)["stored"].as_u64().unwrap_or(0)
}

#[test]
fn two_nodes_fill_one_stream() {
    let (site, nats) = (Site::new(), nats());
    let trackers = ["a", "b"].map(|node| site.start(node, &nats.url(), &[]));
    for round in 0..5 {
        for (first, tracker) in [0, 100].into_iter().zip(&trackers) {
            site.upload_all(tracker, first + round * 4..first + round * 4 + 4);
        }
    }
    let batches = wait_for(&nats, 40);
    for (first, node) in [(0, "a"), (100, "b")] {
        let of_node = batches.iter().filter(|batch| batch.node == node);
        let records = of_node.flat_map(|batch| &batch.records);
        let numbers = records.filter_map(|record| record.credit.transfer.uploaded);
        // Several workers of a node may have served them in the same millisecond.
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (first..first + 20).collect::<Vec<_>>());
    }
}

#[test]
fn a_node_at_a_leaf_uses_the_stream_and_the_bucket_of_the_domain_that_it_names() {
    let (site, options) = (Site::new(), Options { domain: Some("hub".to_owned()), ..Options::default() });
    let hub = Server::start(&options).expect("the server starts");
    let leaf = Server::start_leaf(&hub, &options).expect("the leaf node starts");
    let domain = [("SHOAL_CLUSTER_JETSTREAM_DOMAIN", "hub")];
    let two = site.start("two", &leaf.url(), &domain);
    wait_for_state(&two, "accepted");
    site.upload_all(&two, 0..10);
    assert_exact(&hub, 0..10);
    let one = site.start("one", &hub.url(), &[]);
    for node in [&one, &two] {
        eventually("the bucket is followed", || {
            (status(node)["shared"]["state"] == "followed").then_some(())
        });
    }
    wait_for_state(&one, "accepted");
    site.upload_all(&one, 10..20);
    wait_for(&hub, 20);
    let names = |nats: &Server| request(nats, "STREAM.NAMES", &json!({}))["streams"].clone();
    assert_eq!((names(&hub), names(&leaf)), (json!([STREAM, "KV_shoal_shoal"]), Value::Null));
}

#[test]
fn credit_needs_a_cluster_and_the_keys_of_tokens() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let stream = ("SHOAL_CLUSTER_CREDIT_STREAM", "CREDIT");
    for (settings, expected) in [
        (vec![stream], "cluster.servers"),
        (vec![stream, ("SHOAL_CLUSTER_SERVERS", &*unused)], "tokens.jwks"),
        (vec![("SHOAL_CLUSTER_CREDIT_STREAM", "a b")], "cluster.credit_stream = \"a b\""),
    ] {
        let output = run(&[], &settings);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected), "{expected} is not in\n{errors}");
    }
}
