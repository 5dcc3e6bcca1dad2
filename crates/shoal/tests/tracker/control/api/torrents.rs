//! Torrents and the feed of changes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{ADMIN, Controlled, READ};
use crate::kit::client::{Announce, Client};
use crate::kit::web::tcp;
use crate::udp::hash;

fn hex(number: u32) -> String {
    hash(number).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn announce(controlled: &Controlled, number: u32) {
    Client::new(controlled.tracker.udp[0]).announce(&Announce::seeder(hash(number), 1001));
}

#[test]
fn one_torrent_is_told_and_its_peers_to_administrators() {
    let controlled = Controlled::start(&[]);
    announce(&controlled, 1);
    let path = format!("/api/v1/torrents/{}", hex(1));
    let told = controlled.admin("GET", &path, None);
    assert_eq!(told["torrent"]["v4"], json!({ "seeders": 1, "leechers": 0, "completed": 0 }), "{told}");
    assert_eq!((&told["torrent"]["total"]["seeders"], &told["peers"]), (&json!(1), &Value::Null));
    let age_s = told["age_s"]["v4"].as_u64().unwrap();
    assert!(age_s <= 225, "a young swarm is exact to half of a sixth of the timeout: {told}");
    assert_eq!((&told["age_s"]["v6"], &told["age_s"]["webtorrent"]), (&Value::Null, &Value::Null));
    let peers = format!("{path}?peers=10");
    let told = controlled.admin("GET", &peers, None);
    assert_eq!(told["peers"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(
        (&told["peers"][0]["address"], &told["peers"][0]["seeds"]),
        (&json!("127.0.0.1:1001"), &json!(true))
    );
    let refused = controlled.ask("GET", &peers, Some(READ), None);
    assert!(refused.status == 403 && !refused.body.contains("1001"), "{refused:?}");
    for wrong in [
        "xyz",
        "01",
        &format!("{}00", hex(1)),
        &format!("{}?peers=1001", hex(1)),
        &format!("{}?other=1", hex(1)),
    ] {
        let page = controlled.ask("GET", &format!("/api/v1/torrents/{wrong}"), Some(ADMIN), None);
        assert_eq!(page.status, 400, "{wrong}: {page:?}");
    }
}

#[test]
fn ten_thousand_torrents_are_told_in_the_order_of_the_request() {
    let controlled = Controlled::start(&[]);
    announce(&controlled, 7);
    let ask = |count: u32| {
        let info_hashes: Vec<String> = (0..count).map(hex).collect();
        controlled.ask("POST", "/api/v1/torrents", Some(READ), Some(&json!({ "info_hashes": info_hashes })))
    };
    let page = ask(10_000);
    assert_eq!(page.status, 200, "{}", page.head);
    assert!(page.head.contains("application/x-ndjson"), "{}", page.head);
    let told: Vec<Value> = page
        .body
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told.len(), 10_000);
    for (number, torrent) in (0..).zip(&told) {
        assert_eq!(torrent["info_hash"], hex(number));
        assert_eq!(torrent["total"]["seeders"], u32::from(number == 7), "{torrent}");
    }
    assert_eq!(ask(10_001).status, 400);
    assert_eq!(ask(0).status, 200);
}

#[test]
fn the_feed_is_followed_by_its_cursor_and_starts_over_after_a_gap() {
    let controlled = Controlled::start(&[]);
    let read = |query: &str| controlled.admin("GET", &format!("/api/v1/changes{query}"), None);
    let first = read("");
    assert_eq!((&first["start_over"], &first["torrents"]), (&json!(true), &json!([])), "{first}");
    let mut cursor = first["cursor"].as_str().unwrap().to_owned();
    announce(&controlled, 1);
    announce(&controlled, 2);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let next = read(&format!("?cursor={cursor}&wait_s=10"));
        assert_eq!(next["start_over"], false, "{next}");
        for torrent in next["torrents"].as_array().unwrap() {
            assert_eq!(torrent["total"]["seeders"], 1, "{torrent}");
            seen.push(torrent["info_hash"].as_str().unwrap().to_owned());
        }
        cursor = next["cursor"].as_str().unwrap().to_owned();
    }
    seen.sort();
    let mut expected = [hex(1), hex(2)];
    expected.sort();
    assert_eq!(seen, expected);
    assert_eq!(read(&format!("?cursor={cursor}"))["torrents"], json!([]));
    // The cursor of another process.
    let other = read("?cursor=0000000000000001-5");
    assert_eq!((&other["start_over"], &other["torrents"]), (&json!(true), &json!([])), "{other}");
    for wrong in ["?cursor=x", "?max=0", "?max=1001", "?wait_s=11", "?other=1"] {
        let page = controlled.ask("GET", &format!("/api/v1/changes{wrong}"), Some(ADMIN), None);
        assert_eq!(page.status, 400, "{wrong}: {page:?}");
    }
}

/// Reads the data of the next event of a stream.
fn next_event(reader: &mut impl BufRead) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

fn open_stream(controlled: &Controlled, fields: &str) -> BufReader<TcpStream> {
    let mut stream = tcp(controlled.tracker.control);
    let request = format!(
        "GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READ}\r\n\
         Accept: text/event-stream\r\n{fields}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

#[test]
fn the_feed_streams_events_and_is_resumed_by_the_id_of_the_last_one() {
    let controlled = Controlled::start(&[]);
    let mut stream = open_stream(&controlled, "");
    let first = next_event(&mut stream);
    assert_eq!(first["start_over"], true, "{first}");
    announce(&controlled, 1);
    let second = next_event(&mut stream);
    assert_eq!(second["torrents"][0]["info_hash"], hex(1), "{second}");
    drop(stream);
    announce(&controlled, 2);
    let resumed = format!("Last-Event-ID: {}\r\n", second["cursor"].as_str().unwrap());
    let third = next_event(&mut open_stream(&controlled, &resumed));
    assert_eq!((&third["start_over"], third["torrents"].as_array().unwrap().len()), (&json!(false), 1));
    assert_eq!(third["torrents"][0]["info_hash"], hex(2), "{third}");
}

/// Streams have connections of their own, and a number.
#[test]
fn streams_keep_out_no_request_and_too_many_are_refused() {
    let controlled = Controlled::start(&[]);
    let mut streams = Vec::new();
    let refused = (0..100).any(|_| {
        let mut stream = open_stream(&controlled, "");
        let mut status = String::new();
        stream.read_line(&mut status).unwrap();
        let is_refused = status.contains(" 503 ");
        assert!(is_refused || status.contains(" 200 "), "{status}");
        streams.push(stream);
        is_refused
    });
    assert!(refused, "no stream was refused");
    assert_eq!(controlled.tracker.page("/health").status, 200);
    assert_eq!(controlled.admin("GET", "/api/v1/log", None)["level"], "info");
    let mut last = String::new();
    streams.pop().unwrap().read_to_string(&mut last).unwrap();
    assert!(last.contains("retry-after"), "{last}");
}
