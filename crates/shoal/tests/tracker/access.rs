//! The operator's lists of torrents, over every protocol.

pub(crate) mod blocklist;
pub(crate) mod private;
pub(crate) mod requests;
pub(crate) mod rules;
pub(crate) mod urls;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::access::urls::gzip;
use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually, run, run_locally};
use crate::kit::web::{Web, announce};

/// The words of the tracker for a torrent without a reason.
const NOT_SERVED: &str = "this torrent is not served by this tracker";

/// A tracker with an allow list and a deny list.
struct Listed {
    tracker: Tracker,
    directory: TempDir,
}

impl Listed {
    /// Starts a tracker whose lists have these lines. An empty allow list is none.
    fn start(allow: &str, deny: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("deny"), deny).unwrap();
        fs::write(path("allow"), allow).unwrap();
        let shown = |name| path(name).display().to_string();
        let mut settings = vec![("SHOAL_ACCESS_TORRENTS_DENY", shown("deny"))];
        if !allow.is_empty() {
            settings.push(("SHOAL_ACCESS_TORRENTS_ALLOW", shown("allow")));
        }
        let config = directory.path().join("shoal.toml");
        fs::write(&config, "").unwrap();
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Self { tracker: Tracker::start_with_path(&config, &settings), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a list as a whole, as editors do.
    fn write(&self, name: &str, text: &str) {
        replace(&self.path(name), text);
    }
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Returns the line of a torrent whose info hash repeats a character.
pub(crate) fn line(torrent: char, rest: &str) -> String {
    format!("{} {rest}\n", format!("{:02x}", u32::from(torrent)).repeat(20))
}

pub(crate) fn info_hash(torrent: char) -> [u8; 20] {
    [u8::try_from(torrent).unwrap(); 20]
}

/// Returns the reasons with which a torrent is refused over UDP, HTTP and WebTorrent, by both families. `None` means that
/// it is served.
fn reasons(tracker: &Tracker, torrent: char) -> Vec<Option<String>> {
    let hash = info_hash(torrent);
    let mut reasons = Vec::new();
    for (udp, http, v6) in [(tracker.udp[0], tracker.http[0], false), (tracker.udp[1], tracker.http[1], true)]
    {
        let client = Client::new(udp);
        let reply = client.ask(&Announce::leecher(hash, 6881).packet(client.connect(), 7));
        reasons.push((reply[3] == 3).then(|| String::from_utf8(reply[8..].to_vec()).unwrap()));
        let body = Web::connect(http, false).get(&announce(hash, 6882, "")).body;
        reasons.push(body.strip_prefix(b"d14:failure reason").map(|rest| {
            let text = String::from_utf8(rest.to_vec()).unwrap();
            text.split_once(':').unwrap().1.strip_suffix('e').unwrap().to_owned()
        }));
        let mut browser = Browser::open(Way::new(v6, false), tracker);
        let reply = browser.ask(&browser::announce(torrent, 'p', 1));
        reasons.push(reply["failure reason"].as_str().map(str::to_owned));
    }
    reasons
}

pub(crate) fn assert_reason(tracker: &Tracker, torrent: char, expected: Option<&str>) {
    assert_eq!(reasons(tracker, torrent), vec![expected.map(str::to_owned); 6], "{torrent}");
}

#[test]
fn a_denied_torrent_is_refused_with_its_reason_by_every_protocol_and_family() {
    let text = line('a', "2026-01-31 [case 4711] removed after a notice of \"X\" # ours") + &line('b', "");
    let listed = Listed::start("", &text);
    let tracker = &listed.tracker;
    assert_reason(tracker, 'a', Some("removed after a notice of \"X\""));
    assert_reason(tracker, 'b', Some(NOT_SERVED));
    assert_reason(tracker, 'c', None);
    for protocol in ["udp", "http", "webtorrent"] {
        for family in ["v4", "v6"] {
            let labels = [
                &*format!("protocol=\"{protocol}\""),
                &*format!("family=\"{family}\""),
                "kind=\"announce\"",
                "outcome=\"torrent_denied\"",
            ];
            assert_eq!(tracker.metric("shoal_replies_total", &labels), 2, "{labels:?}");
        }
    }
    // A scrape shows zeros.
    let client = Client::new(tracker.udp[0]);
    let counts = &client.scrape(&[info_hash('a')])[0];
    assert_eq!((counts.seeders, counts.leechers, counts.completed), (0, 0, 0));
    let hash = "%61".repeat(20);
    let body = Web::connect(tracker.http[0], false).get(&format!("/scrape?info_hash={hash}")).body;
    let text = String::from_utf8(body).unwrap();
    assert!(text.contains("d8:completei0e10:downloadedi0e10:incompletei0e"), "{text}");
}

#[test]
fn a_list_that_cannot_be_read_at_the_start_stops_nothing() {
    let tracker = Tracker::start(&[
        ("SHOAL_ACCESS_TORRENTS_DENY", "/nonexistent/list,/dev/null"),
        ("SHOAL_ACCESS_NETWORKS_DENY", "/nonexistent/networks"),
    ]);
    assert_reason(&tracker, 'a', None);
    let faulty = ["allow", "deny", "networks_allow", "networks_deny"]
        .map(|list| tracker.metric("shoal_list_sources_faulty", &[&format!("list=\"{list}\"")]));
    assert_eq!(faulty, [0, 2, 0, 1]);
    assert!(tracker.log().contains("it is not a regular file"));
}

/// Waits until a torrent is refused, or served again.
pub(crate) fn wait_until(tracker: &Tracker, torrent: char, is_refused: bool) {
    let mut client = Web::connect(tracker.http[0], false);
    eventually("the lists apply", || {
        // A client at port 0 leaves nothing behind.
        let body = client.get(&announce(info_hash(torrent), 0, "")).body;
        (body.starts_with(b"d14:failure reason") == is_refused).then_some(())
    });
}

#[test]
fn a_change_of_a_file_applies_without_a_signal() {
    let listed = Listed::start("", &line('a', ""));
    let (tracker, deny) = (&listed.tracker, listed.path("deny"));
    wait_until(tracker, 'a', true);
    fs::write(&deny, line('b', "")).unwrap();
    wait_until(tracker, 'b', true);
    wait_until(tracker, 'a', false);
    listed.write("deny", &line('c', ""));
    wait_until(tracker, 'c', true);
    let append = fs::OpenOptions::new().append(true).open(&deny);
    std::io::Write::write_all(&mut append.unwrap(), line('d', "").as_bytes()).unwrap();
    wait_until(tracker, 'd', true);
    // A link to another file takes its place, and then that file changes.
    let linked = listed.path("linked");
    fs::create_dir(listed.path("elsewhere")).unwrap();
    let target = listed.path("elsewhere").join("list");
    fs::write(&target, line('e', "")).unwrap();
    std::os::unix::fs::symlink(&target, &linked).unwrap();
    fs::rename(&linked, &deny).unwrap();
    wait_until(tracker, 'e', true);
    replace(&target, &line('f', ""));
    wait_until(tracker, 'f', true);
    wait_until(tracker, 'c', false);
}

#[test]
fn a_faulty_line_is_left_out_and_named_and_many_refuse_the_list() {
    let listed = Listed::start("", &line('z', ""));
    let many: String = (0..200).map(|number| format!("{number:040x}\n")).collect();
    let reload = |text: &str| {
        listed.write("deny", text);
        access(&listed, &["reload"])
    };
    let source = format!("source=\"{}\"", listed.path("deny").display());
    let metric = |name| listed.tracker.metric(name, &[&source]);
    let metrics = || ["shoal_list_source_lines_faulty", "shoal_list_source_refused"].map(metric);
    assert_eq!(metrics(), [0, 0]);
    let (code, text, _) = reload(&format!("{many}nonsense\n{}", line('a', "why")));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("201 entries\n  1 faulty lines, among them:\n    line 201: it does not begin"),
        "{text}"
    );
    assert_reason(&listed.tracker, 'a', Some("why"));
    assert_eq!(metrics(), [1, 0]);
    assert!(listed.tracker.log().contains("a list has faulty lines"));
    let (code, text, _) = access(&listed, &["check"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("201 torrents, 1 faults; a tracker leaves the faulty lines out"), "{text}");
    // More than 1 %, or less than a tenth of the entries.
    for (version, why) in [
        (format!("{many}nonsense\nnonsense\nnonsense\n"), "3 of 203 lines are faulty"),
        (format!("{}nonsense\n{}", "# a comment\n".repeat(500), line('b', "")), "1 of 2 lines are faulty"),
    ] {
        let (code, text, _) = reload(&version);
        assert_eq!((code, text.contains(why)), (Some(3), true), "{text}");
        assert_reason(&listed.tracker, 'a', Some("why"));
        assert_reason(&listed.tracker, 'b', None);
        assert_eq!(metric("shoal_list_source_refused"), 1);
    }
    assert_eq!(reload(&line('b', "")).0, Some(0));
    assert_reason(&listed.tracker, 'a', None);
    assert_eq!(metrics(), [0, 0]);
}

#[test]
fn a_directory_that_vanishes_and_returns_is_watched_all_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let lists = directory.path().join("some/lists");
    let (file, text) = (lists.join("deny"), lists.display().to_string() + "/deny");
    // Landlock permits directories, and a new one is another, whatever its name.
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", &*text), ("SHOAL_PROCESS_LANDLOCK", "false")];
    let tracker = Tracker::start(&settings);
    assert!(tracker.log().contains("a list cannot be read as a whole"));
    for round in 0..20 {
        // The watcher looks at any moment between these steps.
        let (torrent, pause) = (['a', 'b'][round % 2], Duration::from_micros(200 * round as u64));
        fs::create_dir(lists.parent().unwrap()).unwrap();
        thread::sleep(pause);
        fs::create_dir(&lists).unwrap();
        fs::write(&file, line(torrent, "")).unwrap();
        wait_until(&tracker, torrent, true);
        fs::remove_dir_all(directory.path().join("some")).unwrap();
        tracker.wait_for_line("a list cannot be read and keeps its entries");
        wait_until(&tracker, torrent, true);
    }
}

#[test]
fn a_torrent_that_becomes_denied_ends_at_once() {
    let listed = Listed::start("", "");
    let tracker = &listed.tracker;
    assert_reason(tracker, 'a', None);
    assert_reason(tracker, 'z', None);
    let mut browsers = ['x', 'y'].map(|peer| {
        let mut browser = Browser::open(Way::PLAIN, tracker);
        assert_eq!(browser.ask(&browser::announce('a', peer, 0))["failure reason"], serde_json::Value::Null);
        browser
    });
    assert_eq!(browsers[1].ask(&browser::announce('a', 'y', 5))["complete"], 0);
    let offer = browsers[0].receive();
    assert_eq!(offer["offer"]["type"], "offer", "{offer}");
    listed.write("deny", &line('a', "a notice"));
    wait_until(tracker, 'a', true);
    let swarms = |name, labels: &[&str]| tracker.metric(name, labels);
    // Only the other torrent is left, of which no browser is connected any more.
    eventually("the swarms are removed", || {
        let left = [
            swarms("shoal_swarms", &["family=\"v4\""]),
            swarms("shoal_swarms", &["family=\"v6\""]),
            swarms("shoal_webtorrent_swarms", &[]),
        ];
        (left == [1, 1, 0]).then_some(())
    });
    // The answer comes too late: nothing is relayed for the torrent any more.
    browsers[0].send_json(&browser::answer('x', &offer));
    for browser in &mut browsers {
        let reply = browser.ask(&browser::announce('a', 'x', 1));
        assert_eq!(reply["failure reason"], "a notice", "{reply}");
        assert_eq!(browser.ask(&browser::announce('z', 'w', 0))["failure reason"], serde_json::Value::Null);
    }
    listed.write("deny", "");
    wait_until(tracker, 'a', false);
    let announced = Client::new(tracker.udp[0]).announce(&Announce::leecher(info_hash('a'), 6999));
    assert_eq!((announced.peers.len(), announced.leechers), (0, 1), "the old peers are gone");
}

#[test]
fn an_allow_list_that_appears_ends_all_other_torrents() {
    let listed = Listed::start("", "");
    for torrent in ['a', 'b', 'c'] {
        assert_reason(&listed.tracker, torrent, None);
    }
    let browsers = ['a', 'b'].map(|torrent| {
        let mut browser = Browser::open(Way::PLAIN, &listed.tracker);
        browser.ask(&browser::announce(torrent, 'q', 0));
        browser
    });
    fs::write(listed.path("allow"), line('b', "")).unwrap();
    let text = format!("[access]\ntorrents_allow = [{:?}]", listed.path("allow"));
    fs::write(listed.path("shoal.toml"), text).unwrap();
    listed.tracker.signal(Signal::SIGHUP);
    listed.tracker.wait_for_line("the configuration was read again");
    for (torrent, expected) in [('a', Some(NOT_SERVED)), ('b', None), ('c', Some(NOT_SERVED))] {
        assert_reason(&listed.tracker, torrent, expected);
    }
    for family in ["family=\"v4\"", "family=\"v6\""] {
        assert_eq!(listed.tracker.metric("shoal_swarms", &[family]), 1);
    }
    assert_eq!(listed.tracker.metric("shoal_webtorrent_swarms", &[]), 1);
    drop(browsers);
}

/// Runs `shoal access` with the configuration of a tracker. Returns the exit code, the output and the log.
fn access(listed: &Listed, arguments: &[&str]) -> (Option<i32>, String, String) {
    let shown = |name| listed.path(name).display().to_string();
    let (config, allow, deny) = (shown("shoal.toml"), shown("allow"), shown("deny"));
    let arguments = [&["access"][..], arguments, &["--config", &config]].concat();
    let (control, audit) = (listed.tracker.control.to_string(), shown("audit"));
    let settings = [
        ("SHOAL_ACCESS_TORRENTS_ALLOW", allow.as_str()),
        ("SHOAL_ACCESS_TORRENTS_DENY", &deny),
        ("SHOAL_ACCESS_AUDIT_FILE", &audit),
        ("SHOAL_CONTROL_LISTEN", &control),
        ("SHOAL_LOG_FORMAT", "json"),
    ];
    let output = run(&arguments, &settings);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn commands_change_the_lists_of_a_running_tracker() {
    let listed = Listed::start("", "# ours\n");
    let hash = "61".repeat(20);
    assert_reason(&listed.tracker, 'a', None);
    let (code, text, log) = access(
        &listed,
        &["add", "--deny", &hash, "--reason", "a notice", "--reference", "case 4711", "--date", "2026-01-31"],
    );
    assert_eq!(
        (code, text.as_str()),
        (Some(0), &*format!("{hash} added to {}\n", listed.path("deny").display()))
    );
    assert_eq!(log, "", "the line of output says it");
    wait_until(&listed.tracker, 'a', true);
    assert_reason(&listed.tracker, 'a', Some("a notice"));
    let written = fs::read_to_string(listed.path("deny")).unwrap();
    let expected = format!("# ours\n{hash} 2026-01-31 [case 4711] a notice # by ");
    assert!(written.starts_with(&expected), "{written}");
    let (code, text, _) = access(&listed, &["add", "--deny", &hash.to_uppercase()]);
    assert_eq!((code, text.contains("is already in")), (Some(0), true), "{text}");
    assert_eq!(fs::read_to_string(listed.path("deny")).unwrap(), written);
    let (code, text, log) = access(&listed, &["remove", "--deny", &hash]);
    assert_eq!((code, text.contains("removed from"), &*log), (Some(0), true, ""));
    wait_until(&listed.tracker, 'a', false);
    assert_eq!(fs::read_to_string(listed.path("deny")).unwrap(), "# ours\n");
    assert_eq!(access(&listed, &["remove", "--deny", &hash]).0, Some(3));
}

#[test]
fn commands_print_and_check_the_lists() {
    let deny = line('a', "2026-01-31 [case 4711] a \"notice\"");
    let listed = Listed::start(&(line('a', "") + &line('b', "")), &deny);
    let [a, b, c] = ["61", "62", "63"].map(|byte| byte.repeat(20));
    let (code, text, _) = access(&listed, &["list", "--json", "--deny"]);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &object["info_hash"], &object["reason"]),
        (Some(0), &a.clone().into(), &"a \"notice\"".into())
    );
    assert_eq!((&object["date"], &object["reference"]), (&"2026-01-31".into(), &"case 4711".into()));
    let (code, text, _) = access(&listed, &["list"]);
    assert_eq!((code, text.lines().count()), (Some(0), 3), "{text}");
    for (hash, code, said) in
        [(&a, 3, "denied by "), (&b, 0, "served"), (&c, 3, "refused: it is on no allow list")]
    {
        let (exit, text, _) = access(&listed, &["check", hash]);
        assert_eq!((exit, text.contains(said)), (Some(code), true), "{text}");
    }
    let (code, text, _) = access(&listed, &["check", "--json", &a, &b, &c]);
    let verdicts: Vec<_> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["verdict"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!((code, verdicts), (Some(3), ["denied", "served", "not_allowed"].map(str::to_owned).to_vec()));
    assert_eq!(access(&listed, &["check"]).0, Some(0));
    listed.write("deny", &(deny + "nonsense\n"));
    let (code, _, log) = access(&listed, &["check"]);
    assert_eq!((code, log.contains("line 2: it does not begin with an info hash")), (Some(2), true), "{log}");
}

#[test]
fn wrong_arguments_change_nothing() {
    let listed = Listed::start("", "");
    let hash = "61".repeat(20);
    let long = "x".repeat(300);
    let wrong: [&[&str]; 9] = [
        &["add", &hash],
        &["add", "--deny", "--allow", &hash],
        &["add", "--deny", "nonsense"],
        &["add", "--deny", &format!("{hash} a reason")],
        &["add", "--deny", &hash, "--date", "31.1.2026"],
        &["add", "--deny", &hash, "--reason", "two\nlines"],
        &["add", "--deny", &hash, "--reason", &long],
        &["add", "--deny", &hash, "--reference", "a ] b"],
        &["add", "--deny", &hash, "--reason", "a # comment"],
    ];
    for arguments in wrong {
        assert_eq!(access(&listed, arguments).0, Some(2), "{arguments:?}");
        assert_eq!(fs::read_to_string(listed.path("deny")).unwrap(), "");
    }
    let (code, _, error) = access(&listed, &["add", "--deny", &hash, "--file", "/nonexistent/list"]);
    let said = "/nonexistent/list is no file of access.torrents_deny";
    assert_eq!((code, error.contains(said)), (Some(2), true), "{error}");
    assert!(error.contains(&listed.path("deny").display().to_string()), "{error}");
    assert_eq!(fs::read_to_string(listed.path("deny")).unwrap(), "");
}

#[test]
fn a_check_without_a_configuration_asks_the_running_tracker() {
    let listed = Listed::start(&line('c', ""), &line('a', "a notice"));
    let [a, b] = ["61", "62"].map(|byte| byte.repeat(20));
    let denied = run_locally(&listed.tracker, &["access", "check", &a, &b]);
    let text = String::from_utf8(denied.stdout).unwrap();
    assert_eq!(denied.status.code(), Some(3), "{text}");
    assert!(text.contains("denied by ") && text.contains("a notice"), "{text}");
    assert!(text.contains(&format!("{b} refused: it is on no allow list")), "{text}");
    // Without a tracker, it says nothing of the torrent.
    let url = "http://127.0.0.1:1";
    let unknown = run(&["access", "check", &a], &[("SHOAL_CONTROL_URL", url)]);
    let words = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0), "{words}");
    assert!(words.contains("--config FILE"), "{words}");
}

#[test]
fn commands_warn_if_a_line_keeps_the_tracker_from_reading_the_list() {
    let listed = Listed::start("", "");
    listed.write("deny", "# ours\nnonsense\n");
    listed.tracker.wait_for_line("a list cannot be read");
    let hash = "61".repeat(20);
    let line = format!("{}: line 2: it does not begin with an info hash", listed.path("deny").display());
    for (arguments, said) in [
        (["add", "--deny", &hash].as_slice(), "added to"),
        (&["check", &hash], "denied by"),
        (&["remove", "--deny", &hash], "removed from"),
    ] {
        let (code, text, error) = access(&listed, arguments);
        assert_eq!(
            (code, text.contains(said), error.contains(&line)),
            (Some(4), true, true),
            "{text}{error}"
        );
        assert!(error.contains("a running tracker leaves faulty lines out"), "{error}");
        assert_reason(&listed.tracker, 'a', None);
    }
}

#[test]
fn changes_are_recorded_with_their_author_in_the_log_of_the_tracker_and_in_the_audit_file() {
    let listed = Listed::start("", "");
    let hash = "61".repeat(20);
    let add = ["add", "--deny", &hash, "--reason", "a notice", "--reference", "case 4711", "--json"];
    let (code, text, _) = access(&listed, &add);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &told["outcome"], &told["info_hash"]),
        (Some(0), &"added".into(), &hash.as_str().into())
    );
    let line = listed.tracker.wait_for_line("an entry of a list has changed");
    for (field, value) in [
        ("change", "added"),
        ("list", "access.torrents_deny"),
        ("info_hash", hash.as_str()),
        ("reference", "case 4711"),
        ("reason", "a notice"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    let comment = line["comment"].as_str().unwrap();
    assert!(comment.starts_with("by ") && comment.contains("uid ") && comment.ends_with('Z'), "{line}");
    assert_eq!(access(&listed, &["remove", "--deny", &hash]).0, Some(0));
    let line = listed.tracker.wait_for_line("an entry of a list has changed");
    assert_eq!((&line["change"], &line["reason"]), (&"removed".into(), &"a notice".into()));
    let audit = fs::read_to_string(listed.path("audit")).unwrap();
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    let mode = fs::metadata(listed.path("audit")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
    for (line, change) in lines.iter().zip(["added", "removed"]) {
        assert_eq!((&line["change"], &line["info_hash"]), (&change.into(), &hash.as_str().into()), "{line}");
        assert!(line["by"].as_str().unwrap().contains("uid ") && line["time"].is_string(), "{line}");
    }
    assert_eq!((&lines[0]["reason"], &lines[0]["reference"]), (&"a notice".into(), &"case 4711".into()));
    // A change that cannot be recorded is not made.
    fs::remove_file(listed.path("audit")).unwrap();
    fs::create_dir(listed.path("audit")).unwrap();
    let (code, _, error) = access(&listed, &add);
    assert_eq!((code, error.contains("nothing was changed")), (Some(1), true), "{error}");
    assert_eq!(fs::read_to_string(listed.path("deny")).unwrap(), "");
}

#[test]
fn a_large_change_is_one_line_of_the_log() {
    let listed = Listed::start("", &line('a', ""));
    listed.write("deny", &(0..1000).map(|number| format!("{number:040x}\n")).collect::<String>());
    let line = listed.tracker.wait_for_line("a list has changed");
    assert_eq!((&line["added"], &line["removed"]), (&1000.into(), &1.into()), "{line}");
}

#[test]
fn a_list_that_is_read_in_the_background_is_read_as_it_is_at_last_and_others_change_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    // One that is compressed is read in the background like a large one.
    let [config, deny, compressed] =
        ["shoal.toml", "deny", "compressed"].map(|name| directory.path().join(name));
    for (file, torrent) in [(&config, None), (&deny, Some('a')), (&compressed, Some('b'))] {
        fs::write(file, torrent.map_or_else(String::new, |torrent| line(torrent, ""))).unwrap();
    }
    let sources = format!("{},{}", deny.display(), compressed.display());
    let tracker = Tracker::start_with_path(&config, &[("SHOAL_ACCESS_TORRENTS_DENY", &sources)]);
    let listed = Listed { tracker, directory };
    for torrents in [['c', 'd'], ['e', 'f']] {
        for torrent in torrents {
            let new = listed.path("new");
            fs::write(&new, gzip(&line(torrent, ""))).unwrap();
            fs::rename(new, &compressed).unwrap();
        }
        let hash = format!("{:02x}", u32::from(torrents[0])).repeat(20);
        assert_eq!(access(&listed, &["add", "--deny", &hash]).0, Some(0));
        torrents.iter().for_each(|torrent| wait_until(&listed.tracker, *torrent, true));
        wait_until(&listed.tracker, 'b', false);
    }
    wait_until(&listed.tracker, 'd', false);
    wait_until(&listed.tracker, 'a', true);
}

#[test]
fn reload_tells_what_the_tracker_has_then() {
    let listed = Listed::start("", &line('a', ""));
    let (code, text, log) = access(&listed, &["reload"]);
    let expected = format!("access.torrents_deny {}: 1 entries\n", listed.path("deny").display());
    assert_eq!((code, text), (Some(0), expected), "{log}");
    listed.write("deny", &(line('a', "") + "nonsense\n"));
    let (code, text, _) = access(&listed, &["reload"]);
    let said = "1 entries; fault: 1 of 2 lines are faulty, which is more than 1 %; line 2: it does not begin";
    assert_eq!((code, text.contains(said)), (Some(3), true), "{text}");
    let (_, text, _) = access(&listed, &["reload", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["sources"][0]["entries"], 1);
    assert_eq!(
        told,
        serde_json::from_str::<serde_json::Value>(&listed.tracker.page("/access").body).unwrap()
    );
    // A web page could send a request without a body of a special type.
    let page = crate::kit::page::request(listed.tracker.control, "POST", "/access/reload");
    assert_eq!(page.status, 415);
    let config = listed.path("shoal.toml").display().to_string();
    let reload = |control: &str| {
        let output = run(&["access", "reload", "--config", &config], &[("SHOAL_CONTROL_LISTEN", control)]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = reload("");
    assert_eq!((code, error.contains("SIGHUP")), (Some(2), true), "{error}");
    // Nothing listens there.
    let (code, error) = reload("127.0.0.1:1");
    assert_eq!((code, error.contains("no tracker")), (Some(1), true), "{error}");
}

#[test]
fn a_link_to_a_list_stays_a_link() {
    let listed = Listed::start("", "");
    let linked = listed.path("linked");
    std::os::unix::fs::symlink(listed.path("deny"), &linked).unwrap();
    let (hash, file) = ("61".repeat(20), linked.display().to_string());
    assert_eq!(access(&listed, &["add", "--deny", &hash, "--file", &file]).0, Some(0));
    wait_until(&listed.tracker, 'a', true);
    assert_eq!(access(&listed, &["remove", "--deny", &hash, "--file", &file]).0, Some(0));
    wait_until(&listed.tracker, 'a', false);
    assert!(fs::symlink_metadata(&linked).unwrap().is_symlink());
}
