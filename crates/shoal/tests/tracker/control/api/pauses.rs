//! Pauses of single protocols and address families.

use std::fs;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::{ADMIN, Controlled, READ, text};
use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, STOPPED, scrape_packet, word};
use crate::kit::harness::{Tracker, eventually, run_locally};
use crate::kit::web::{Web, announce};
use crate::state::Place;
use crate::udp::hash;
use crate::upgrade::Upgraded;

const WORDS: &str = "moving; try again in 30 minutes";

/// Whether requests are refused: over UDP, HTTP and WebTorrent, and each of them over IPv4 and IPv6.
type Refused<T> = [[T; 2]; 3];

const NOTHING: Refused<bool> = [[false; 2]; 3];

/// Announces and scrapes over every protocol and both families. Returns whether each of the two was refused with the words
/// of a pause.
fn refused(tracker: &Tracker) -> Refused<[bool; 2]> {
    let over = |ask: &dyn Fn(usize) -> [String; 2]| {
        [0, 1].map(|family| ask(family).map(|reply| reply.contains(WORDS)))
    };
    let udp = |family: usize| {
        let client = Client::new(tracker.udp[family]);
        let announce = Announce::seeder(hash(1), 1001).packet(client.connect(), 5);
        [announce, scrape_packet(client.connect(), 6, &[hash(1)])]
            .map(|packet| String::from_utf8_lossy(&client.ask(&packet)).into_owned())
    };
    let http = |family: usize| {
        let mut web = Web::connect(tracker.http[family], false);
        let scrape = announce(hash(1), 1, "").replace("/announce", "/scrape");
        [announce(hash(1), 1, ""), scrape].map(|target| {
            let body = String::from_utf8_lossy(&web.get(&target).body).into_owned();
            assert!(!body.contains(WORDS) || body.ends_with("8:intervali1800e8:retry ini30ee"), "{body}");
            body
        })
    };
    let webtorrent = |family: usize| {
        let mut browser = Browser::open(Way::new(family == 1, false), tracker);
        let scrape = json!({ "action": "scrape", "info_hash": "tttttttttttttttttttt" });
        [browser::announce('t', 'a', 0), scrape].map(|message| browser.ask(&message).to_string())
    };
    [over(&udp), over(&http), over(&webtorrent)]
}

/// Returns whether exactly these parts are paused, for announces and scrapes alike.
fn are_paused(tracker: &Tracker, expected: Refused<bool>) -> bool {
    refused(tracker) == expected.map(|families| families.map(|is_refused| [is_refused; 2]))
}

fn wait_for(tracker: &Tracker, expected: Refused<bool>) {
    eventually(&format!("{expected:?} are paused"), || are_paused(tracker, expected).then_some(()));
}

#[test]
fn each_protocol_and_family_is_paused_and_resumed_by_itself() {
    let controlled = Controlled::start(&[]);
    let tracker = &controlled.tracker;
    let pause = |parts: &[&str]| {
        let output = controlled.ctl(&[&["pause", "--reason", "moving"], parts].concat());
        assert!(output.status.success(), "{output:?}");
    };
    assert!(are_paused(tracker, NOTHING));
    pause(&["udp", "ipv6"]);
    wait_for(tracker, [[false, true], [false; 2], [false; 2]]);
    pause(&["http", "webtorrent", "ipv4"]);
    // A reload does not end a pause.
    controlled.admin("POST", "/api/v1/reload", Some(&json!({})));
    wait_for(tracker, [[false, true], [true, false], [true, false]]);
    let listed = controlled.admin("GET", "/api/v1/pauses", None);
    let part = &listed["paused"][0];
    let expected = json!(["udp", "v6", "moving", 30, false]);
    let shown = ["protocol", "family", "reason", "retry_in_minutes", "keep"].map(|field| part[field].clone());
    assert_eq!((json!(shown), listed["paused"].as_array().unwrap().len()), (expected, 3), "{listed}");
    assert_eq!(controlled.admin("GET", "/api/v1/stats", None)["paused"], listed["paused"]);
    let metrics = controlled.ask("GET", "/metrics", Some(READ), None).body;
    for (series, is_zero) in [
        ("shoal_paused{protocol=\"udp\",family=\"v6\"}", false),
        ("shoal_paused{protocol=\"udp\",family=\"v4\"}", true),
        ("shoal_replies_total{protocol=\"http\",family=\"v4\",kind=\"announce\",outcome=\"paused\"}", false),
    ] {
        let line = metrics.lines().find(|line| line.starts_with(series)).expect(series);
        assert_eq!(line.ends_with(" 0"), is_zero, "{line}");
    }
    let output = controlled.ctl(&["pause", "--status"]);
    assert!(text(&output.stdout).contains("webtorrent  v4"), "{output:?}");
    let health = run_locally(tracker, &["health"]);
    let expected =
        "advice   pause: paused, so that their clients are refused: udp v6, http v4, webtorrent v4\n";
    assert!(health.status.success() && text(&health.stdout).contains(expected), "{health:?}");
    let output = controlled.ctl(&["resume", "http", "udp"]);
    assert!(output.status.success(), "{output:?}");
    wait_for(tracker, [[false; 2], [false; 2], [true, false]]);
    let output = controlled.ctl(&["resume"]);
    assert_eq!(text(&output.stdout), "nothing is paused\n");
    wait_for(tracker, NOTHING);
    let audit = fs::read_to_string(controlled.path("audit")).unwrap();
    assert!(
        audit.contains("\"pause\"") && audit.contains("\"resume\"") && audit.contains("moving"),
        "{audit}"
    );
}

#[test]
fn clients_leave_during_a_pause_and_their_websockets_stay_open() {
    let controlled = Controlled::start(&[]);
    let client = Client::new(controlled.tracker.udp[0]);
    client.announce(&Announce::seeder(hash(2), 2001));
    let mut browser = Browser::open(Way::PLAIN, &controlled.tracker);
    browser.ask(&browser::announce('t', 'a', 0));
    let output = controlled.ctl(&["pause", "--reason", "moving"]);
    assert!(output.status.success(), "{output:?}");
    wait_for(&controlled.tracker, [[true; 2]; 3]);
    client.announce(&Announce { event: STOPPED, ..Announce::seeder(hash(2), 2001) });
    let refused = browser.ask(&browser::announce('t', 'a', 0));
    assert_eq!(refused["failure reason"], WORDS, "{refused}");
    browser.check();
    controlled.ctl(&["resume"]);
    wait_for(&controlled.tracker, NOTHING);
    assert_eq!(client.scrape(&[hash(2)])[0].seeders, 0);
    assert!(browser.ask(&browser::announce('t', 'a', 0))["interval"].is_u64());
}

#[test]
fn an_upgrade_keeps_pauses_and_the_counts_of_the_day_and_a_restart_keeps_what_it_is_to_keep() {
    let place = Place::new();
    let tracker = Tracker::start(&place.settings(&[]));
    let reply = |output: std::process::Output| -> Value {
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    reply(run_locally(&tracker, &["ctl", "--json", "pause", "udp", "ipv4", "--reason", "moving", "--keep"]));
    reply(run_locally(&tracker, &["ctl", "--json", "pause", "http", "ipv6", "--reason", "moving"]));
    wait_for(&tracker, [[true, false], [false, true], [false; 2]]);
    let day =
        |tracker: &Tracker| reply(run_locally(tracker, &["ctl", "--json", "stats"]))["last_day"].clone();
    let refused_before = day(&tracker)["traffic"][0]["refused"].as_u64().unwrap();
    assert!(refused_before >= 2, "{}", day(&tracker));
    let since = day(&tracker)["since_unix_s"].clone();
    let upgraded = Upgraded::new(tracker);
    upgraded.upgrade();
    // No request is served in between.
    assert!(are_paused(&upgraded.tracker, [[true, false], [false, true], [false; 2]]));
    let after = day(&upgraded.tracker);
    assert_eq!(after["since_unix_s"], since);
    assert!(after["traffic"][0]["refused"].as_u64().unwrap() >= refused_before + 2, "{after}");
    upgraded.tracker.wait_for_line("the old process has ended");
    let successor = upgraded.tracker.successors()[0];
    kill(successor, Signal::SIGTERM).unwrap();
    eventually("the tracker ends", || kill(successor, None).is_err().then_some(()));
    let mut tracker = Tracker::start(&place.settings(&[]));
    assert!(are_paused(&tracker, [[true, false], [false; 2], [false; 2]]));
    reply(run_locally(&tracker, &["ctl", "--json", "resume"]));
    assert!(!place.file("paused").exists());
    assert!(tracker.stop().success());
}

#[test]
fn a_pause_that_is_impossible_is_refused_with_what_would_be_accepted() {
    let controlled = Controlled::start(&[]);
    for (body, status, words) in [
        (json!({ "reason": "r", "protocols": ["tcp"] }), 400, "\"tcp\" is not one of udp, http, webtorrent"),
        (json!({ "reason": "r", "families": ["ipv7"] }), 400, "\"ipv7\" is not one of v4, v6"),
        (json!({ "reason": " " }), 400, "1 to 200 bytes"),
        (json!({ "reason": "x".repeat(201) }), 400, "1 to 200 bytes"),
        (json!({ "reason": "a\nb" }), 400, "no control characters"),
        (json!({ "reason": "r", "retry_in_s": 59 }), 400, "from 60 to 86400"),
        (json!({ "reason": "r", "keep": true }), 409, "state.path"),
    ] {
        let page = controlled.ask("POST", "/api/v1/pauses", Some(ADMIN), Some(&body));
        assert_eq!(page.status, status, "{body}: {page:?}");
        assert!(page.body.replace("\\\"", "\"").contains(words), "{body}: {page:?}");
    }
    assert_eq!(controlled.admin("GET", "/api/v1/pauses", None), json!({ "paused": [] }));
    let output = controlled.ctl(&["pause", "udp"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--reason"), "{output:?}");
    // The longest reason fits every reply.
    let longest = "é".repeat(100);
    controlled.admin("POST", "/api/v1/pauses", Some(&json!({ "reason": longest, "retry_in_s": 86_400 })));
    let client = Client::new(controlled.tracker.udp[0]);
    let refusal = || {
        let reply = client.ask(&Announce::seeder(hash(1), 1001).packet(client.connect(), 5));
        (word(&reply, 0) == 3).then(|| String::from_utf8(reply[8..].to_vec()).unwrap())
    };
    let refusal = eventually("the announce is refused", refusal);
    assert_eq!(refusal, format!("{longest}; try again in 1440 minutes"));
}
