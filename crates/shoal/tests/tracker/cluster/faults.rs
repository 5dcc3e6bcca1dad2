//! Faults of a cluster and bad input to it: real trackers, real NATS servers, and clients that go on meanwhile.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use shoal_cluster::protocol::message::{Message, encode};
use shoal_cluster::protocol::{NodeId, SHARDS};
use shoal_testkit::nats::{Access, Options, Server, write_secret};

use crate::cluster::swarms::{Nodes, TORRENT, ports, wait_for_ports};
use crate::cluster::{start, status, wait_for_nodes};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::eventually;
use crate::kit::web::{self, Web};

/// Announces without a pause over UDP and HTTP until the end. Panics if one is not answered. Returns the number of replies.
fn announce_until(end: &AtomicBool, [udp, http]: [SocketAddr; 2]) -> u64 {
    let (client, mut web) = (Client::new(udp), Web::connect(http, false));
    let mut replies = 0;
    while !end.load(Ordering::Acquire) {
        client.announce(&Announce::seeder([0x71; 20], 2001));
        assert_eq!(web.get(&web::announce([0x72; 20], 2002, "&left=5")).status, 200);
        replies += 2;
    }
    replies
}

#[test]
fn every_request_is_answered_while_nats_servers_and_another_node_are_killed() {
    let mut nodes = Nodes::start(&[]);
    let lost = nodes.trackers.pop();
    let nats = &mut nodes.nats;
    let [one, two] = &nodes.trackers[..] else { panic!("two nodes are left") };
    let (end, replies) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for addresses in [one, two].map(|tracker| [tracker.udp[0], tracker.http[0]]) {
            let (end, replies) = (&end, &replies);
            scope.spawn(move || replies.fetch_add(announce_until(end, addresses), Ordering::Relaxed));
        }
        for index in 0..nats.servers.len() {
            nats.servers[index].kill();
            nats.servers[index].restart().expect("its port is free");
        }
        drop(lost);
        wait_for_nodes(one, &["three"], "ready");
        end.store(true, Ordering::Release);
    });
    assert!(replies.into_inner() > 100);
    wait_for_nodes(two, &["one"], "ready");
    Client::new(one.udp[0]).announce(&Announce::seeder(TORRENT, 1001));
    wait_for_ports(two, &[1001]);
}

#[test]
fn a_node_that_stands_still_holds_up_no_other_and_catches_up() {
    let nats = Server::start(&Options::default()).expect("the server starts");
    let [one, two, three] = ["one", "two", "three"].map(|name| start(name, &nats.url(), &[]));
    wait_for_nodes(&one, &["three", "two"], "ready");
    wait_for_nodes(&three, &["one", "two"], "ready");
    two.signal(Signal::SIGSTOP);
    let client = Client::new(one.udp[0]);
    client.announce_all((1..=500).map(|port| Announce::seeder([0x73; 20], 3000 + port)));
    client.announce(&Announce::seeder(TORRENT, 1001));
    wait_for_ports(&three, &[1001]);
    eventually("the others notice it", || {
        let nodes = status(&one)["nodes"].clone();
        let two = nodes.as_array()?.iter().find(|node| node["name"] == "two")?.clone();
        (two["state"] == "lost").then_some(())
    });
    two.signal(Signal::SIGCONT);
    wait_for_nodes(&one, &["three", "two"], "ready");
    wait_for_ports(&two, &[1001]);
    Client::new(two.udp[0]).announce(&Announce::seeder(TORRENT, 1002));
    wait_for_ports(&one, &[1001, 1002]);
}

/// Each client of NATS that may publish chooses the header of a message, and its subjects.
#[test]
fn a_header_costs_neither_memory_nor_the_connection() {
    let nats = Server::start(&Options::default()).expect("the server starts");
    let [one, two] = ["one", "two"].map(|name| start(name, &nats.url(), &[]));
    wait_for_nodes(&one, &["two"], "ready");
    wait_for_nodes(&two, &["one"], "ready");
    let mut bomb = b"NATS/1.0\r\n".to_vec();
    (0..100_000).for_each(|number| bomb.extend_from_slice(format!("{number:x}:\r\n").as_bytes()));
    let bad: [&[u8]; 6] = [
        b"XXXX",
        b"\0",
        b"NATS/1.0 abc\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n\xff: x\r\n\r\n",
        &bomb,
    ];
    let mut client = TcpStream::connect(("127.0.0.1", nats.port())).expect("the server listens");
    let mut text = b"CONNECT {\"verbose\":false,\"headers\":true}\r\n".to_vec();
    for header in bad {
        for subject in
            [b"shoal.shoal.hello \xff".as_slice(), b"shoal.shoal.delta.\xfe a\x0cb", b"shoal.shoal.delta.3"]
        {
            text.extend_from_slice(&[b"HPUB ", subject].concat());
            text.extend_from_slice(format!(" {0} {0}\r\n", header.len()).as_bytes());
            text.extend_from_slice(&[header, b"\r\nPUB ", subject, b" 1\r\nx\r\n"].concat());
        }
    }
    client.write_all(&text).expect("the server reads");
    for node in [&one, &two] {
        eventually("each header is left out and counted", || {
            let metrics = node.page("/metrics").body;
            metrics.contains("\nshoal_cluster_headers_ignored_total 18\n").then_some(())
        });
        assert_eq!(status(node)["connects"], 1);
    }
    // They receive from each other as before.
    Client::new(one.udp[0]).announce(&Announce::seeder(TORRENT, 1001));
    wait_for_ports(&two, &[1001]);
}

/// The nodes at a leaf node see each other, and the one at the hub does not see them.
#[test]
fn both_sides_of_a_partition_go_on_and_have_all_peers_afterwards() {
    let options = Options::default();
    let mut hub = Server::start(&options).expect("the server starts");
    let leaf = Server::start_leaf(&hub, &options).expect("the leaf node starts");
    let one = start("one", &hub.url(), &[]);
    let [two, three] = ["two", "three"].map(|name| start(name, &leaf.url(), &[]));
    wait_for_nodes(&one, &["three", "two"], "ready");
    wait_for_nodes(&two, &["one", "three"], "ready");
    wait_for_nodes(&three, &["one", "two"], "ready");
    hub.kill();
    one.wait_for_line("NATS is away");
    Client::new(one.udp[0]).announce(&Announce::seeder(TORRENT, 1001));
    Client::new(two.udp[0]).announce(&Announce::seeder(TORRENT, 1002));
    wait_for_ports(&three, &[1002]);
    assert_eq!(ports(&one), BTreeSet::from([1001]));
    hub.restart().expect("its port is free");
    for tracker in [&one, &two, &three] {
        wait_for_ports(tracker, &[1001, 1002]);
    }
}

/// Publishes messages as another program would. Returns whether NATS let it connect.
fn publish(url: &str, (user, password): (&str, &str), messages: &[(String, Vec<u8>)]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options =
            async_nats::ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned());
        let Ok(client) = options.connect(url).await else { return false };
        for (subject, payload) in messages {
            client.publish(subject.clone(), payload.clone().into()).await.expect("it is sent");
        }
        client.flush().await.is_ok()
    })
}

/// The checksum at the end of a message (CRC-32, ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}

/// A message of a node whose protocol has another version.
fn of_other_version(id: NodeId) -> Vec<u8> {
    let mut bytes = encode(id, &Message::Goodbye).to_vec();
    let end = bytes.len() - 4;
    assert_eq!(crc32(&bytes[..end]).to_le_bytes(), bytes[end..]);
    bytes[0] += 1;
    let checksum = crc32(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn a_node_with_another_version_and_garbage_on_every_subject_are_counted_and_harmless() {
    let nats = Server::start(&Options::default()).expect("the server starts");
    let [one, two] = ["one", "two"].map(|name| start(name, &nats.url(), &[]));
    wait_for_nodes(&one, &["two"], "ready");
    let id = status(&one)["id"].as_str().expect("it has one").to_owned();
    let shards = (0..SHARDS).map(|shard| format!("shoal.shoal.delta.{shard:x}"));
    let others = ["hello".to_owned(), format!("node.{id}"), "credit".to_owned(), "inbox.a.b".to_owned()];
    let subjects: Vec<String> =
        shards.chain(others.map(|subject| format!("shoal.shoal.{subject}"))).collect();
    let garbage = [&b""[..], b"\0", b"garbage", &[0xff; 20_000]];
    let mut messages: Vec<(String, Vec<u8>)> =
        subjects.iter().flat_map(|subject| garbage.map(|bytes| (subject.clone(), bytes.to_vec()))).collect();
    let hello = [("shoal.shoal.hello".to_owned(), of_other_version(NodeId(0x17)))];
    messages.extend_from_slice(&hello);
    assert!(publish(&nats.url(), ("", ""), &messages));
    let refused =
        |reason| one.metric("shoal_cluster_messages_refused_total", &[&*format!("reason=\"{reason}\"")]);
    eventually("it is counted", || {
        // Of each shard, of the hellos, and of the messages to this node.
        let expected = (SHARDS + 2) * garbage.len();
        (refused("other_version") == 1 && refused("malformed") == expected as u64).then_some(())
    });
    eventually("the status shows it for as long as its messages arrive", || {
        assert!(publish(&nats.url(), ("", ""), &hello));
        let nodes = status(&one)["nodes"].clone();
        let mut states = nodes.as_array()?.iter().map(|node| node["state"].clone());
        states.any(|state| state == "other-version").then_some(())
    });
    Client::new(one.udp[0]).announce(&Announce::seeder(TORRENT, 1001));
    wait_for_ports(&two, &[1001]);
}

#[test]
fn a_program_without_credentials_reaches_no_node() {
    let directory = tempfile::tempdir().expect("there is room for files");
    let password = directory.path().join("password");
    write_secret(&password, "right\n").expect("there is room for a file");
    let access = Access::User { user: "shoal".to_owned(), password: "right".to_owned() };
    let nats = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    let settings = [("SHOAL_CLUSTER_USER", "shoal"), ("SHOAL_CLUSTER_PASSWORD_FILE", text(&password))];
    let [one, two] = ["one", "two"].map(|name| start(name, &nats.url(), &settings));
    wait_for_nodes(&one, &["two"], "ready");
    let named = status(&two)["id"].as_str().and_then(|id| u64::from_str_radix(id, 16).ok());
    let forged = encode(NodeId(named.expect("it has an identity")), &Message::Goodbye).to_vec();
    let messages = [("shoal.shoal.hello".to_owned(), forged), ("shoal.shoal.delta.0".to_owned(), vec![0; 9])];
    for credentials in [("", ""), ("shoal", "wrong"), ("other", "right")] {
        assert!(!publish(&nats.url(), credentials, &messages), "{credentials:?}");
    }
    assert!(publish(&nats.url(), ("shoal", "right"), &messages[1..]), "the password is right");
    let malformed = || one.metric("shoal_cluster_messages_refused_total", &["reason=\"malformed\""]);
    eventually("only the last message arrives", || (malformed() == 1).then_some(()));
    wait_for_nodes(&one, &["two"], "ready");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}
