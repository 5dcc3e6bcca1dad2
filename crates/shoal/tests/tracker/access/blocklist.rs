//! The published deny list, over both families, plain and TLS.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::http::{Way, over_every_way};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::Web;

over_every_way!(
    a_published_list_tells_what_the_operator_chose,
    a_list_that_is_unchanged_is_not_sent_again,
    a_list_is_not_published_by_default,
);

/// A response, its body without chunks.
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// Asks for a page on a connection of its own.
fn ask(mut web: Web, request: &str, fields: &str) -> Response {
    web.send(format!("{request} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n").as_bytes());
    let bytes = web.until_closed().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    let mut rest = rest;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = rest.to_owned();
    if head.contains("Transfer-Encoding: chunked") && !rest.is_empty() {
        body.clear();
        loop {
            let (size, more) = rest.split_once("\r\n").unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                break;
            }
            body.push_str(&more[..size]);
            rest = &more[size + 2..];
        }
    }
    Response { status, head: head.to_owned(), body }
}

fn list(directory: &Path, lines: &str) -> String {
    let path = directory.join("deny");
    fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Lines of two torrents: one with all details, one with none.
fn lines() -> String {
    let [a, b] = ["61", "62"].map(|byte| byte.repeat(20));
    format!("# ours\n{a} 2026-01-31 [case 4711] a \"notice\" # by us\n{b}\n")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn a_published_list_tells_what_the_operator_chose(way: Way) {
    let directory = tempfile::tempdir().unwrap();
    let deny = list(directory.path(), &lines());
    let [a, b] = ["61", "62"].map(|byte| byte.repeat(20));
    for (fields, line, object) in [
        (
            "date,reason",
            format!("{a} 2026-01-31 a \"notice\""),
            format!("{{\"info_hash\":\"{a}\",\"date\":\"2026-01-31\",\"reason\":\"a \\\"notice\\\"\"}}"),
        ),
        (
            "reference",
            format!("{a} [case 4711]"),
            format!("{{\"info_hash\":\"{a}\",\"reference\":\"case 4711\"}}"),
        ),
    ] {
        let tracker = way.start(&[
            ("SHOAL_ACCESS_TORRENTS_DENY", &deny),
            ("SHOAL_ACCESS_BLOCKLIST_PUBLISH", "true"),
            ("SHOAL_ACCESS_BLOCKLIST_FIELDS", fields),
        ]);
        let text = ask(way.connect(&tracker), "GET /blocklist.txt", "");
        assert_eq!((text.status, text.field("content-type")), (200, Some("text/plain; charset=utf-8")));
        let head = "# torrents that this tracker does not serve";
        assert_eq!(sorted(&text.body), ["# end", head, &line, &b]);
        let json = ask(way.connect(&tracker), "GET /blocklist.json", "");
        assert_eq!((json.status, json.field("content-type")), (200, Some("application/json")));
        let objects: Vec<serde_json::Value> = serde_json::from_str(&json.body).unwrap();
        assert_eq!(objects.len(), 2);
        assert!(objects.contains(&serde_json::from_str(&object).unwrap()), "{objects:?}");
        let only_hash = serde_json::json!({ "info_hash": b });
        assert!(objects.contains(&only_hash), "{objects:?}");
        let head = ask(way.connect(&tracker), "HEAD /blocklist.txt", "");
        assert_eq!((head.status, &*head.body), (200, ""));
        assert_eq!(head.field("etag"), text.field("etag"));
        assert_eq!(ask(way.connect(&tracker), "POST /blocklist.txt", "").status, 405);
        let labels = ["protocol=\"http\"", "kind=\"blocklist\"", "outcome=\"ok\""];
        assert_eq!(tracker.metric("shoal_replies_total", &labels), 3);
    }
}

fn a_list_that_is_unchanged_is_not_sent_again(way: Way) {
    let directory = tempfile::tempdir().unwrap();
    let deny = list(directory.path(), &lines());
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", &*deny), ("SHOAL_ACCESS_BLOCKLIST_PUBLISH", "true")];
    let tracker = way.start(&settings);
    let first = ask(way.connect(&tracker), "GET /blocklist.txt", "");
    let etag = first.field("etag").unwrap().to_owned();
    for (field, expected) in [
        (format!("If-None-Match: {etag}"), 304),
        (format!("If-None-Match: \"x\", {etag}"), 304),
        ("If-None-Match: *".to_owned(), 304),
        ("If-None-Match: \"x\"".to_owned(), 200),
        ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT".to_owned(), 200),
    ] {
        for method in ["GET", "HEAD"] {
            let again =
                ask(way.connect(&tracker), &format!("{method} /blocklist.txt"), &(field.clone() + "\r\n"));
            assert_eq!((again.status, again.field("etag")), (expected, Some(&*etag)), "{method} {field}");
            assert_eq!(again.body.is_empty(), expected == 304 || method == "HEAD");
        }
    }
    let dated = eventually("the second of the change is over", || {
        let again = ask(way.connect(&tracker), "GET /blocklist.txt", "");
        again.field("last-modified").map(str::to_owned)
    });
    let since = format!("If-Modified-Since: {dated}\r\n");
    assert_eq!(ask(way.connect(&tracker), "GET /blocklist.json", &since).status, 304);
    // Another tracker with the same list, in another order, is in the same version.
    let other = way.start(&settings);
    let again = ask(way.connect(&other), "GET /blocklist.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(again.status, 304);
    list(directory.path(), &format!("{}{}\n", lines(), "63".repeat(20)));
    let changed = eventually("the change applies", || {
        let answer = ask(way.connect(&tracker), "GET /blocklist.txt", &format!("If-None-Match: {etag}\r\n"));
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(changed.body.lines().count(), 5);
    assert_ne!(changed.field("etag"), Some(&*etag));
}

fn a_list_is_not_published_by_default(way: Way) {
    let directory = tempfile::tempdir().unwrap();
    let deny = list(directory.path(), &lines());
    let tracker = way.start(&[("SHOAL_ACCESS_TORRENTS_DENY", &deny)]);
    for page in ["/blocklist.txt", "/blocklist.json"] {
        assert_eq!(ask(way.connect(&tracker), &format!("GET {page}"), "").status, 404);
    }
}

#[test]
fn downloads_are_refused_like_other_requests() {
    let directory = tempfile::tempdir().unwrap();
    let networks = directory.path().join("networks");
    fs::write(&networks, "::1\n").unwrap();
    let tracker = Tracker::start(&[
        ("SHOAL_ACCESS_BLOCKLIST_PUBLISH", "true"),
        ("SHOAL_ACCESS_NETWORKS_DENY", networks.to_str().unwrap()),
        ("SHOAL_LIMITS_HTTP_REQUESTS_PER_S", "1"),
        ("SHOAL_LIMITS_BURST_S", "3"),
    ]);
    let denied = ask(Web::connect(tracker.http[1], false), "GET /blocklist.txt", "");
    assert_eq!((denied.status, &*denied.body), (403, "your network is not served by this tracker\n"));
    // A list without entries is a list.
    let empty = ask(Web::connect(tracker.http[0], false), "GET /blocklist.json", "");
    assert_eq!((empty.status, &*empty.body), (200, "[\n]\n"));
    let refused = (0..50).map(|_| ask(Web::connect(tracker.http[0], false), "HEAD /blocklist.txt", ""));
    let refused: Vec<_> = refused.filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|answer| answer.status == 429 && answer.field("retry-after").is_some()));
    let page =
        ask(Web::connect(tracker.http[0], false), "GET /blocklist.txt", "Sec-Fetch-Site: cross-site\r\n");
    assert_eq!(page.status, 403);
}

/// A long list does not fit into the buffers of a connection, so its download waits for its reader.
#[test]
fn a_change_during_a_download_cuts_it_off_and_a_source_has_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let many: String = (0..400_000).map(|number| format!("{number:040x} a reason\n")).collect();
    let deny = list(directory.path(), &many);
    let tracker = Tracker::start(&[
        ("SHOAL_ACCESS_TORRENTS_DENY", &*deny),
        ("SHOAL_ACCESS_BLOCKLIST_PUBLISH", "true"),
        ("SHOAL_WORKERS_COUNT", "1"),
        ("SHOAL_HTTP_SEND_TIMEOUT_S", "600"),
    ]);
    let whole = ask(Web::connect(tracker.http[0], false), "GET /blocklist.json", "");
    let objects: Vec<serde_json::Value> = serde_json::from_str(&whole.body).unwrap();
    assert_eq!(objects.len(), 400_000);
    // Another source with the same torrents has a table of its own, of which nothing is published.
    let other = directory.path().join("other");
    fs::write(&other, many.replace("reason", "doubt")).unwrap();
    let overlapping = Tracker::start(&[
        ("SHOAL_ACCESS_TORRENTS_DENY", &format!("{deny},{}", other.display())),
        ("SHOAL_ACCESS_BLOCKLIST_PUBLISH", "true"),
        ("SHOAL_WORKERS_COUNT", "1"),
    ]);
    for is_compressed in [false, true] {
        let mut web = Web::connect(overlapping.http[0], false);
        let coding = if is_compressed { "Accept-Encoding: gzip\r\n" } else { "" };
        let head = "GET /blocklist.txt HTTP/1.1\r\nHost: t\r\nConnection: close\r\n";
        web.send(format!("{head}{coding}\r\n").as_bytes());
        let bytes = web.until_closed().unwrap();
        assert!(bytes.ends_with(b"\r\n0\r\n\r\n"));
        if !is_compressed {
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!((text.matches("a reason").count(), text.contains("doubt")), (400_000, false));
        }
    }
    let mut slow = Web::connect(tracker.http[0], false);
    slow.send(b"GET /blocklist.txt HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the slow download has begun", || {
        let second = ask(Web::connect(tracker.http[0], false), "GET /blocklist.txt", "");
        (second.status == 503 && second.field("retry-after").is_some()).then_some(())
    });
    list(directory.path(), &format!("{}\n", "61".repeat(20)));
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    let rest = slow.until_closed().unwrap_or_default();
    assert!(!rest.ends_with(b"# end\n\r\n0\r\n\r\n") && !rest.ends_with(b"0\r\n\r\n"), "it was cut off");
    let small = ask(Web::connect(tracker.http[0], false), "GET /blocklist.txt", "");
    assert_eq!(small.body.lines().count(), 3);
}
