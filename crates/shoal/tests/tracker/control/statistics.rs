//! The public statistics on the tracker's own listeners, and over Unix sockets.

use serde_json::{Value, json};

use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{LOOK_EVERY, PATIENCE, Tracker};
use crate::kit::web::{self, Answer, Web};

const ALL: [(&str, &str); 3] = [
    ("SHOAL_STATISTICS_PAGE", "true"),
    ("SHOAL_STATISTICS_JSON", "true"),
    ("SHOAL_STATISTICS_OPENTRACKER", "everything,peer,torr,conn,scrp,udp4,tcp4,top10"),
];

/// Longer than the time between two renderings, on a busy machine.
const LOOKS_MAX: u128 = PATIENCE.as_millis() / LOOK_EVERY.as_millis();

/// Asks until the answer is as it should be. The numbers are some seconds old.
pub(super) fn wait_for<T>(web: &mut Web, target: &str, read: impl Fn(&Answer) -> Option<T>) -> T {
    let mut last = String::new();
    for _ in 0..LOOKS_MAX {
        let answer = web.get(target);
        if let Some(found) = read(&answer) {
            return found;
        }
        last = format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body));
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("{target}: {last}");
}

fn json(answer: &Answer) -> Option<Value> {
    (answer.status == 200).then(|| serde_json::from_slice(&answer.body).unwrap())
}

/// Two torrents over IPv4 with three peers, one over IPv6, and one of WebTorrent.
fn announce_some(tracker: &Tracker) {
    let client = Client::new(tracker.udp[0]);
    client.announce(&Announce::seeder([1; 20], 1001));
    client.announce(&Announce::leecher([1; 20], 1002));
    client.announce(&Announce::leecher([2; 20], 1003));
    Client::new(tracker.udp[1]).announce(&Announce::seeder([1; 20], 1004));
}

#[test]
fn every_shape_tells_the_same_numbers() {
    let way = Way::PLAIN;
    let tracker = way.start(&ALL);
    announce_some(&tracker);
    let mut browser = Browser::open(way, &tracker);
    browser.ask(&browser::announce('t', 'p', 0));
    let mut web = way.connect(&tracker);
    let stats = wait_for(&mut web, "/stats.json", |answer| {
        json(answer).filter(|stats| stats["torrents"]["webtorrent"] == 1 && stats["torrents"]["v6"] == 1)
    });
    assert_eq!(stats["torrents"], json!({ "v4": 2, "v6": 1, "webtorrent": 1 }));
    assert_eq!(stats["peers"]["v4"], json!({ "seeders": 1, "leechers": 2 }));
    assert_eq!(stats["peers"]["v6"], json!({ "seeders": 1, "leechers": 0 }));
    assert_eq!(stats["traffic"]["udp"]["v4"]["requests"]["announce"], 3);
    assert_eq!(stats["traffic"]["udp"]["v4"]["refused"], 0);
    // Kinds that have not occurred are members, too.
    assert_eq!(stats["traffic"]["udp"]["v4"]["requests"]["scrape"], 0);

    let page = web.get("/stats");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(page.head.contains("access-control-allow-origin: *"), "{}", page.head);
    assert_eq!(page.head.matches("x-content-type-options: nosniff").count(), 1, "{}", page.head);
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("<th scope=\"row\">IPv4</th><td>2</td><td>1</td><td>2</td>"), "{page}");

    let mut mode = |mode: &str| {
        let answer = web.get(&format!("/stats?mode={mode}"));
        assert_eq!(answer.status, 200, "{mode}");
        String::from_utf8(answer.body).unwrap()
    };
    let mut numbers = |name: &str| -> Vec<String> { mode(name).lines().map(str::to_owned).collect() };
    assert_eq!(numbers("peer")[..3], ["5", "2", "serving 4 torrents"]);
    assert_eq!(numbers("torr")[..2], ["4", "0"]);
    for name in ["conn", "scrp", "udp4", "tcp4"] {
        let lines = numbers(name);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[..2].iter().all(|number| number.parse::<u64>().is_ok()), "{lines:?}");
        assert!(lines[2].contains(" seconds ("), "{lines:?}");
    }
    assert_eq!(numbers("udp4")[..2], ["8", "8"]);
    let xml = mode("everything");
    for element in [
        "<torrents><count_mutex>4</count_mutex><count_iterator>4</count_iterator></torrents>",
        "<peers><count>5</count></peers>",
        "<seeds><count>2</count></seeds>",
        "<udp><overall>8</overall><connect>4</connect><announce>4</announce><scrape>0</scrape>",
    ] {
        assert!(xml.contains(element), "{element}\n{xml}");
    }
    let target = "/stats?mode=top10";
    wait_for(&mut web, target, |answer| {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let hash = "01".repeat(20);
        let is_first = text.starts_with(&format!("Top 10 torrents by peers:\n\t3\t{hash}\n"));
        (is_first && text.contains(&format!("Top 10 torrents by seeds:\n\t2\t{hash}\n"))).then_some(())
    });
    assert_eq!(web.get("/stats?mode=top100").status, 404);
    assert_eq!(web.get("/stats.json?mode=peer").status, 404);
    assert!(tracker.metric("shoal_requests_total", &["kind=\"statistics\"", "family=\"v4\""]) > 5);
}

#[test]
fn nothing_is_published_by_default() {
    let way = Way::PLAIN;
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    for target in ["/stats", "/stats.json", "/stats?mode=everything"] {
        assert_eq!(web.get(target).status, 404, "{target}");
    }
}

#[test]
fn bittorrent_trackers_shape_has_its_members() {
    let tracker = Tracker::start(&[("SHOAL_STATISTICS_BITTORRENT_TRACKER", "true")]);
    announce_some(&tracker);
    let mut web = Way::PLAIN.connect(&tracker);
    let stats =
        wait_for(&mut web, "/stats.json", |answer| json(answer).filter(|stats| stats["peersAll"] == 4));
    let expected = json!({
        "torrents": 3, "activeTorrents": 3, "peersAll": 4, "peersSeederOnly": 2, "peersLeecherOnly": 2,
        "peersSeederAndLeecher": 0, "peersIPv4": 3, "peersIPv6": 1, "clients": {},
    });
    assert_eq!(stats, expected);
    assert_eq!(web.get("/stats").status, 404);
}

#[test]
fn statistics_are_served_over_unix_sockets_and_to_other_sites() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let listen = format!("unix:{}", path.display());
    let settings = [
        ("SHOAL_HTTP_LISTEN", &*listen),
        ("SHOAL_PROXY_TRUSTED", "unix"),
        ("SHOAL_PROXY_HEADER", "x-real-ip"),
    ];
    let _tracker = Tracker::start(&[&ALL[..], &settings].concat());
    let mut web = Web::connect_unix(&path);
    let mut status = 0;
    for _ in 0..LOOKS_MAX {
        web.send(
            b"GET /stats.json HTTP/1.1\r\nHost: t\r\nX-Real-IP: 192.0.2.1\r\nSec-Fetch-Site: cross-site\r\n\
              Origin: https://other.example\r\n\r\n",
        );
        status = web.answer().status;
        if status == 200 {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("{status}");
}

#[test]
fn all_torrents_are_listed_with_the_full_scrape_only() {
    let listed = ("SHOAL_STATISTICS_OPENTRACKER", "tpbs,peer");
    let refused = crate::kit::harness::run(&[], &[listed]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("http.full_scrape"), "{text}");

    let tracker = Tracker::start(&[listed, ("SHOAL_HTTP_FULL_SCRAPE", "true")]);
    announce_some(&tracker);
    let list = |query: &str, field: &str| {
        let mut web = Way::PLAIN.connect(&tracker);
        web.send(format!("GET /stats?mode=tpbs{query} HTTP/1.0\r\nHost: t\r\n{field}\r\n").as_bytes());
        let all = web.until_closed().unwrap();
        let head = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        all[head..].to_vec()
    };
    let text = String::from_utf8(list("&format=txt", "")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let [first, second] = ["01", "02"].map(|byte| byte.repeat(20));
    assert_eq!(lines, [format!("{first}:2:1"), format!("{second}:0:1")]);
    assert_eq!(list("&format=bin", "").len(), 2 * 28);
    assert!(list("", "").starts_with(b"d5:filesd20:"));
    // It is a list of torrents, not a number that any page may read.
    let refused = list("", "Sec-Fetch-Site: cross-site\r\nOrigin: https://other.example\r\n");
    assert!(!refused.starts_with(b"d5:files"), "{}", String::from_utf8_lossy(&refused));
}

#[test]
fn two_shapes_at_one_path_are_refused() {
    let settings = [("SHOAL_STATISTICS_JSON", "true"), ("SHOAL_STATISTICS_BITTORRENT_TRACKER", "true")];
    let refused = crate::kit::harness::run(&[], &settings);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("/stats.json"), "{text}");
}

#[test]
fn an_announce_is_served_beside_the_statistics() {
    let tracker = Tracker::start(&ALL);
    let mut web = Way::PLAIN.connect(&tracker);
    // Requests one after the other on a connection, without waiting.
    web.send(b"GET /stats HTTP/1.1\r\nHost: t\r\n\r\nHEAD /stats.json HTTP/1.1\r\nHost: t\r\n\r\n");
    let target = web::announce([1; 20], 1001, "");
    web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes());
    let all = String::from_utf8_lossy(&web.until_closed().unwrap()).into_owned();
    assert!(all.contains("8:completei0e"), "{all}");
}
