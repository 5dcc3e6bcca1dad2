//! The home page on the tracker's own listeners.

use std::fs;

use nix::sys::signal::Signal;

use super::statistics::wait_for;
use crate::http::{Way, over_every_way};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, run};

over_every_way!(a_home_page_tells_where_to_announce_and_whom_to_ask);

const CONTACT: &str = "abuse@tracker.example";

fn a_home_page_tells_where_to_announce_and_whom_to_ask(way: Way) {
    let tracker = way.start(&[
        ("SHOAL_HOME_PAGE", "true"),
        ("SHOAL_HOME_URLS", "udp://tracker.example:6969/announce,wss://tracker.example"),
        ("SHOAL_HOME_CONTACT", CONTACT),
        ("SHOAL_HOME_POLICY", "No <script>alert(1)</script> & no floods"),
    ]);
    Client::new(tracker.udp[0]).announce(&Announce::seeder([1; 20], 1001));
    let mut web = way.connect(&tracker);
    let (head, page) = wait_for(&mut web, "/", |answer| {
        let page = String::from_utf8_lossy(&answer.body).into_owned();
        page.contains("1 peers in 1 swarms").then(|| (answer.head.clone(), page))
    });
    for part in [
        "<code>udp://tracker.example:6969/announce</code>",
        "<code>wss://tracker.example</code>",
        "No &lt;script&gt;alert(1)&lt;/script&gt; &amp; no floods",
        "write to <a href=\"mailto:abuse@tracker.example\">abuse@tracker.example</a> with its info hash",
        "Requests of the last 24 hours",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    for field in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; style-src 'unsafe-inline'",
        "x-content-type-options: nosniff",
    ] {
        assert!(head.contains(field), "{field}\n{head}");
    }
    // The page has no mode, and nothing else is public.
    assert_eq!(web.get("/?mode=peer").status, 200);
    for target in ["/favicon.ico", "/stats", "/stats.json", "/index.html", "//"] {
        assert_eq!(web.get(target).status, 404, "{target}");
    }
    web.send(b"HEAD / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(web.until_closed().unwrap()).unwrap();
    let is_whole = head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n");
    assert!(is_whole && head.matches("\r\n\r\n").count() == 1, "{head}");
}

#[test]
fn there_is_no_home_page_by_default() {
    let tracker = Tracker::start(&[]);
    let mut web = Way::PLAIN.connect(&tracker);
    for target in ["/", "/favicon.ico"] {
        let answer = web.get(target);
        assert_eq!(answer.status, 404, "{target}");
        assert!(answer.body.starts_with(b"this is a BitTorrent tracker"), "{target}");
    }
}

#[test]
fn a_page_of_the_operators_own_is_read_at_a_reload_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let (config, home) = (directory.path().join("shoal.toml"), directory.path().join("home.html"));
    fs::write(&home, "<h1>One</h1>").unwrap();
    fs::write(&config, format!("[home]\npage = true\nfile = {home:?}\n")).unwrap();
    let tracker = Tracker::start_with_path(&config, &[]);
    let mut web = Way::PLAIN.connect(&tracker);
    wait_for(&mut web, "/", |answer| (answer.body == b"<h1>One</h1>").then_some(()));
    fs::write(&home, "<h1>Two</h1>").unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    wait_for(&mut web, "/", |answer| (answer.body == b"<h1>Two</h1>").then_some(()));
    fs::write(&home, "x".repeat((64 << 10) + 1)).unwrap();
    tracker.signal(Signal::SIGHUP);
    let line = tracker.wait_for_line("the configuration stays as it was");
    let error = line["error"].as_str().unwrap();
    assert!(error.starts_with("home.file = ") && error.contains("64 KiB"), "{error}");
    assert_eq!(web.get("/").body, b"<h1>Two</h1>");
    // The largest page arrives whole.
    let largest = "y".repeat(64 << 10);
    fs::write(&home, &largest).unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    wait_for(&mut web, "/", |answer| (answer.body == largest.as_bytes()).then_some(()));
}

#[test]
fn a_home_page_without_urls_or_with_a_file_that_is_missing_is_refused() {
    let missing = ("SHOAL_HOME_FILE", "/nonexistent/home.html");
    for (more, words) in [(None, "home.urls"), (Some(missing), "home.file = \"/nonexistent/home.html\"")] {
        let settings = [("SHOAL_HOME_PAGE", "true")].into_iter().chain(more);
        let refused = run(&[], &settings.collect::<Vec<_>>());
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
    let refused = run(&[], &[("SHOAL_HOME_URLS", "tracker.example")]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
