//! The scrape of all torrents: in pieces, framed by version, compressed on request, and limited in number.

use std::io::Read;

use flate2::read::GzDecoder;
use shoal_base::transport::stream::{Next, StreamService};
use shoal_config::{Config, OpentrackerMode};
use shoal_engine::counter::{Family, Kind};

use crate::harness::{PLAIN, Received, Tracker, announce, request};

const TORRENTS: usize = 4000;
/// An info hash and its counts: `20:` and 20 bytes, `d8:completei0e10:downloadedi0e10:incompletei1ee`.
const ENTRY_BYTES: usize = 3 + 20 + 48;

/// A tracker of many torrents, one peer each, that allows one full scrape at a time.
fn tracker() -> Tracker {
    tracker_with(|_| {})
}

/// The same, with other settings.
fn tracker_with(change: impl FnOnce(&mut Config)) -> Tracker {
    let full_scrape = |config: &mut Config| {
        config.http.full_scrape = true;
        change(config);
    };
    let mut tracker = Tracker::with(|_| {}, full_scrape, None);
    let target = String::from_utf8(announce("")).unwrap();
    for torrent in 0..TORRENTS {
        let one = target.replace("info_hash=aaaaaaaaaaaaaaaaaaaa", &format!("info_hash={torrent:020}"));
        assert_eq!(tracker.ask(one.as_bytes()).statuses(), [200]);
    }
    tracker
}

fn scrape(version: &str, fields: &str) -> Vec<u8> {
    request("GET", "/scrape", version, fields)
}

#[track_caller]
fn assert_all_torrents(body: &[u8]) {
    assert!(body.starts_with(b"d5:filesd20:") && body.ends_with(b"ee"));
    for torrent in [0, 1, TORRENTS / 2, TORRENTS - 1] {
        let key = format!("20:{torrent:020}d");
        assert_eq!(
            body.windows(key.len()).filter(|window| *window == key.as_bytes()).count(),
            1,
            "{torrent}"
        );
    }
    let entries = body.windows(12).filter(|window| *window == b"d8:completei").count();
    assert_eq!(entries, TORRENTS);
}

fn unzip(body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(body).read_to_end(&mut plain).unwrap();
    plain
}

/// Returns each output separately, until the connection has nothing more to send.
fn pieces(tracker: &mut Tracker, bytes: &[u8]) -> (Vec<Vec<u8>>, Next) {
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    let (mut pieces, mut input) = (Vec::new(), bytes.to_vec());
    loop {
        let mut output = Vec::new();
        let next = tracker.service.receive(&mut session, &mut input, &mut output);
        pieces.push(output);
        input.clear();
        if next != Next::More {
            tracker.service.close(session);
            return (pieces, next);
        }
    }
}

#[test]
fn it_comes_in_pieces() {
    let (pieces, next) = pieces(&mut tracker(), &scrape("HTTP/1.1", ""));
    assert_eq!(next, Next::Idle);
    assert!(pieces.len() > TORRENTS * ENTRY_BYTES / (64 * 1024), "{}", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 64 * 1024));
    let received = Received { output: pieces.concat(), next };
    let response = &received.responses()[0];
    assert_eq!(response.field("transfer-encoding"), Some("chunked"));
    assert_eq!(response.field("content-encoding"), None);
    assert_eq!(response.field("vary"), Some("Accept-Encoding"));
    assert_all_torrents(&response.body);
}

#[test]
fn it_is_compressed_for_those_who_can_read_it() {
    for fields in ["Accept-Encoding: gzip, deflate\r\n", "accept-encoding: br, GZIP;q=0.5\r\n"] {
        let mut tracker = tracker();
        let (pieces, next) = pieces(&mut tracker, &scrape("HTTP/1.1", fields));
        let received = Received { output: pieces.concat(), next };
        let response = &received.responses()[0];
        assert_eq!(response.field("content-encoding"), Some("gzip"));
        assert_eq!(response.field("vary"), Some("Accept-Encoding"));
        assert!(response.body.len() < TORRENTS * ENTRY_BYTES);
        assert_all_torrents(&unzip(&response.body));
    }
    let received = tracker().ask(&scrape("HTTP/1.1", "Accept-Encoding: gzip;q=0, br\r\n"));
    assert_eq!(received.responses()[0].field("content-encoding"), None);
}

#[test]
fn before_http_1_1_it_ends_with_the_connection() {
    for fields in ["", "Connection: keep-alive\r\n"] {
        let received = tracker().ask(&scrape("HTTP/1.0", fields));
        assert_eq!(received.next, Next::Close);
        let response = &received.responses()[0];
        assert_eq!((response.field("transfer-encoding"), response.field("content-length")), (None, None));
        assert_eq!(response.field("connection"), Some("close"));
        assert_all_torrents(&response.body);
    }
    let received = tracker().ask(&scrape("HTTP/1.0", "Accept-Encoding: gzip\r\n"));
    assert_all_torrents(&unzip(&received.responses()[0].body));
}

#[test]
fn requests_behind_it_wait_for_its_end() {
    let bytes =
        [scrape("HTTP/1.1", ""), announce(""), scrape("HTTP/1.1", ""), announce("Connection: close\r\n")];
    let received = tracker().ask(&bytes.concat());
    assert_eq!((received.statuses(), received.next), (vec![200; 4], Next::Close));
    let responses = received.responses();
    assert_all_torrents(&responses[0].body);
    assert!(responses[1].is_bencoded() && responses[1].body.len() < 1024);
    assert!(responses[2].body.len() > responses[0].body.len(), "it knows of the announce before it");
}

#[test]
fn one_too_many_is_told_to_come_back() {
    let mut tracker = tracker();
    let mut output = Vec::new();
    let mut first = tracker.open(PLAIN, "192.0.2.1");
    let next = tracker.service.receive(&mut first, &mut scrape("HTTP/1.1", ""), &mut output);
    assert_eq!(next, Next::More);

    let received = tracker.ask(&[scrape("HTTP/1.1", ""), announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![503, 200], Next::Idle));
    let refused = &received.responses()[0];
    assert!(refused.is_failure());
    assert!(refused.field("retry-after").is_some());

    // A delivery ends with its connection.
    tracker.service.close(first);
    assert_eq!(tracker.ask(&scrape("HTTP/1.1", "")).statuses(), [200]);
    assert_eq!(tracker.ask(&scrape("HTTP/1.1", "")).statuses(), [200]);
}

#[test]
fn one_that_is_cut_off_does_not_look_whole() {
    let mut tracker = tracker();
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    let mut output = Vec::new();
    // This holds even if an incomplete request follows.
    let mut bytes = [scrape("HTTP/1.1", ""), announce("")[..20].to_vec()].concat();
    tracker.service.receive(&mut session, &mut bytes, &mut output);
    output.clear();
    tracker.service.expire(&mut session, &mut output);
    assert_eq!(output, b"");
    tracker.service.close(session);
    assert_eq!(tracker.ask(&scrape("HTTP/1.1", "")).statuses(), [200], "its place is free again");
}

#[test]
fn its_head_alone_begins_nothing_but_counts() {
    let mut tracker = tracker();
    let heads = request("HEAD", "/scrape", "HTTP/1.1", "").repeat(3);
    let received = tracker.ask(&[heads, announce("")].concat());
    let text = String::from_utf8_lossy(&received.output).into_owned();
    assert_eq!(text.matches("Vary: Accept-Encoding\r\n\r\nHTTP/1.1 200 OK").count(), 3);
    assert_eq!(received.next, Next::Idle);
    assert_eq!(tracker.counters.requests(Family::V4, Kind::FullScrape), 3);
}

#[test]
fn it_is_off_by_default() {
    let received = Tracker::new().ask(&scrape("HTTP/1.1", ""));
    let response = &received.responses()[0];
    assert_eq!((response.status, received.next), (200, Next::Idle));
    assert!(response.is_failure());
}

#[test]
fn opentrackers_lists_have_all_torrents_in_each_form() {
    let list = |tracker: &mut Tracker, query: &str| {
        let received = tracker.ask(&request("GET", &format!("/stats?{query}"), "HTTP/1.0", ""));
        let response = received.responses().remove(0);
        (response.status, response.body)
    };
    let mut tracker = tracker_with(|config| config.statistics.opentracker = vec![OpentrackerMode::Tpbs]);
    for query in ["mode=tpbs", "mode=tpbs&format=ben"] {
        assert_all_torrents(&list(&mut tracker, query).1);
    }
    let (_, binary) = list(&mut tracker, "format=bin&mode=tpbs");
    let (entries, rest) = binary.as_chunks::<28>();
    assert!(entries.len() == TORRENTS && rest.is_empty(), "{}", binary.len());
    assert!(entries.iter().all(|entry| entry[20..] == [0, 0, 0, 0, 0, 0, 0, 1]));
    let (_, text) = list(&mut tracker, "mode=tpbs&format=txt");
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count(), TORRENTS);
    assert!(text.lines().all(|line| line.len() == 40 + ":0:1".len() && line.ends_with(":0:1")), "{text}");
    let (_, escaped) = list(&mut tracker, "mode=tpbs&format=url");
    let escaped = String::from_utf8(escaped).unwrap();
    assert!(escaped.lines().any(|line| line == format!("{:020}:0:1", 7)), "{escaped}");
    for query in ["mode=tpbs&format=xml", "mode=tpb", "format=bin"] {
        assert_eq!(list(&mut tracker, query).0, 404, "{query}");
    }
    // The list is off, or the full scrape.
    let mut tracker = self::tracker();
    assert_eq!(list(&mut tracker, "mode=tpbs").0, 404);
}
