//! SIGHUP: the configuration is read again, as a whole or not at all.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

/// Clients of each protocol: enough that every worker serves some of them.
const CLIENTS: u16 = 24;

/// A tracker and its configuration file.
struct Reloading {
    tracker: Tracker,
    file: PathBuf,
    _directory: TempDir,
}

impl Reloading {
    fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shoal.toml");
        fs::write(&file, text).unwrap();
        Self { tracker: Tracker::start_with_path(&file, &[]), file, _directory: directory }
    }

    /// Replaces the file and waits until the log has a line that begins with `message`, whose fields it returns.
    fn reload(&self, text: &str, message: &str) -> serde_json::Value {
        fs::write(&self.file, text).unwrap();
        self.tracker.signal(Signal::SIGHUP);
        self.tracker.wait_for_line(message)
    }
}

/// Returns a file with this interval for UDP and HTTP, and another for WebTorrent.
fn intervals(interval_s: u32, webtorrent_s: u32, more: &str) -> String {
    format!(
        "[announce]\ninterval_s = {interval_s}\ninterval_jitter_s = 0\n\
         [webtorrent]\ninterval_s = {webtorrent_s}\n{more}"
    )
}

/// The clients of a test. They stay connected during the reload.
struct Clients {
    udp: Vec<Client>,
    http: Vec<Web>,
    browsers: Vec<Browser>,
}

impl Clients {
    fn connect(tracker: &Tracker) -> Self {
        let udp: Vec<Client> = (0..CLIENTS).map(|_| Client::new(tracker.udp[0])).collect();
        let http = (0..CLIENTS).map(|_| Web::connect(tracker.http[0], false)).collect();
        let browsers = (0..CLIENTS).map(|_| Browser::open(Way::PLAIN, tracker)).collect();
        Self { udp, http, browsers }
    }

    /// Announces over every connection and checks the interval of every reply.
    fn assert_intervals(&mut self, interval_s: u32, webtorrent_s: u32) {
        for client in &self.udp {
            assert_eq!(client.announce(&Announce::leecher(hash(1), 6881)).interval_s, interval_s);
        }
        for web in &mut self.http {
            let body = String::from_utf8_lossy(&web.get(&announce(hash(1), 6881, "")).body).into_owned();
            assert!(body.contains(&format!("8:intervali{interval_s}e")), "{body}");
        }
        for (peer, browser) in ('a'..='z').zip(&mut self.browsers) {
            assert_eq!(browser.ask(&browser::announce('t', peer, 0))["interval"], webtorrent_s);
        }
    }
}

impl Clients {
    /// Announces over every connection and checks whether private addresses are refused.
    fn assert_refused(&mut self, expected: bool) {
        let reason = "private addresses are not served by this tracker";
        for client in &self.udp {
            let reply = client.ask(&Announce::leecher(hash(1), 6881).packet(client.connect(), 1));
            assert_eq!(String::from_utf8_lossy(&reply).contains(reason), expected);
        }
        for web in &mut self.http {
            let body = web.get(&announce(hash(1), 6881, "")).body;
            assert_eq!(String::from_utf8_lossy(&body).contains(reason), expected);
        }
        for (peer, browser) in ('a'..='z').zip(&mut self.browsers) {
            let reply = browser.ask(&browser::announce('t', peer, 0));
            assert_eq!(reply["failure reason"] == reason, expected, "{reply}");
        }
    }
}

#[test]
fn a_new_interval_reaches_every_protocol_on_every_worker() {
    let reloading = Reloading::start(&intervals(600, 60, ""));
    let mut clients = Clients::connect(&reloading.tracker);
    clients.assert_intervals(600, 60);
    for (interval_s, webtorrent_s) in [(700, 70), (800, 80)] {
        let line =
            reloading.reload(&intervals(interval_s, webtorrent_s, ""), "the configuration was read again");
        assert_eq!(line["changed"], "webtorrent.interval_s announce.interval_s");
        clients.assert_intervals(interval_s, webtorrent_s);
    }
    assert_eq!(reloading.tracker.metric("shoal_reloads_total", &["outcome=\"applied\""]), 2);
}

#[test]
fn a_broken_file_changes_nothing_and_the_log_says_why() {
    let reloading = Reloading::start(&intervals(600, 60, ""));
    let mut clients = Clients::connect(&reloading.tracker);
    for (text, said) in [
        (intervals(0, 70, ""), "announce.interval_s = 0"),
        (intervals(700, 70, "offers_maxx = 1"), "did you mean webtorrent.offers_max?"),
        ("[announce]\ninterval_s = ".to_owned(), "not TOML"),
        // The timeout of peers needs a restart, and with the one in use this interval is a contradiction.
        (
            "[announce]\ninterval_s = 5000\npeer_timeout_s = 9000".to_owned(),
            "announce.peer_timeout_s = 2700 (in use until a restart)",
        ),
    ] {
        let line = reloading.reload(&text, "the configuration stays as it was");
        assert!(line["error"].as_str().unwrap().contains(said), "{said} is not in {line}");
        clients.assert_intervals(600, 60);
    }
    fs::remove_file(&reloading.file).unwrap();
    reloading.tracker.signal(Signal::SIGHUP);
    reloading.tracker.wait_for_line("the configuration stays as it was");
    assert_eq!(reloading.tracker.metric("shoal_reloads_total", &["outcome=\"failed\""]), 5);
    reloading.reload(&intervals(700, 70, ""), "the configuration was read again");
    clients.assert_intervals(700, 70);
}

#[test]
fn keys_that_need_a_restart_are_named_and_the_others_apply() {
    let reloading = Reloading::start(&intervals(600, 60, ""));
    let mut clients = Clients::connect(&reloading.tracker);
    let more = "peer_timeout_s = 700\n[log]\nformat = \"human\"\n[address]\nprivate = \"refuse\"\n";
    reloading
        .reload(&intervals(700, 70, more), "`shoal upgrade` or a restart applies: webtorrent.peer_timeout_s");
    clients.assert_refused(true);
}

#[test]
fn rules_of_clients_and_times_of_connections_apply_to_open_connections() {
    let reloading = Reloading::start("");
    let mut clients = Clients::connect(&reloading.tracker);
    clients.assert_refused(false);
    let text = "[address]\nprivate = \"refuse\"\n[http]\nidle_timeout_s = 1\n";
    reloading.reload(text, "the configuration was read again");
    clients.assert_refused(true);
    assert!(clients.http[0].until_closed().is_ok(), "an idle connection is closed after a second");
}

#[test]
fn the_level_of_the_log_changes() {
    let reloading = Reloading::start("");
    let broken = "[announce]\ninterval_s = 0";
    fs::write(&reloading.file, "[log]\nlevel = \"error\"").unwrap();
    reloading.tracker.signal(Signal::SIGHUP);
    eventually("a reload", || {
        (reloading.tracker.metric("shoal_reloads_total", &["outcome=\"applied\""]) == 1).then_some(())
    });
    reloading.reload(broken, "the configuration stays as it was");
    assert!(!reloading.tracker.log().contains("the configuration was read again"), "this is no error");
    let line = reloading.reload("[log]\nlevel = \"info\"", "the configuration was read again");
    assert_eq!(line["changed"], "log.level");
}
