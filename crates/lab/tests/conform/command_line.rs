//! The command line: lists, patterns, invalid options, and unreachable trackers.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::{conform, stderr, stdout};

/// Returns the URL of a closed port, and the URL of a socket that never answers.
fn unreachable() -> (String, (String, UdpSocket)) {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    (format!("udp://{closed}"), (format!("udp://{address}/announce"), silent))
}

#[test]
fn unreachable_trackers_are_told_apart_and_the_others_go_on() {
    let (closed, (silent, _socket)) = unreachable();
    let output = conform(&["--reply-ms", "50", &closed, &silent, "udp://name.invalid:6969"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    for expected in
        ["connection refused", "does not answer UDP connect requests", "cannot resolve name.invalid"]
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(text.contains("Not every tracker could be tested"), "no must was broken:\n{text}");
    assert!(!text.contains('\x1b'), "colours in a pipe:\n{text}");
    assert_eq!(stderr(&output), "", "progress in a pipe");
}

#[test]
fn an_unreachable_tracker_is_an_error_in_json_and_junit() {
    let (closed, _) = unreachable();
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("report.xml");
    let output = conform(&["--json", "--junit", junit.to_str().unwrap(), "--reply-ms", "50", &closed]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "shoal-lab-conform/2");
    assert_eq!(report["is_conforming"], false);
    assert!(report["runs"][0]["unreachable"].as_str().unwrap().contains("connection refused"));
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("errors=\"1\"") && xml.contains("connection refused"), "{xml}");
}

#[test]
fn the_list_has_every_case_and_patterns_choose() {
    let all = stdout(&conform(&["--list"]));
    for expected in [
        "udp-connect-layout (must)",
        "lives-for-two-minutes (should, only with --slow)",
        "BEP 15, \"Scrape\"",
        "http-scrape-layout (must)",
    ] {
        assert!(all.contains(expected), "{expected} is not in\n{all}");
    }
    let some =
        stdout(&conform(&["--list", "--only", "udp-scrape", "--only", "numwant*kept", "--skip", "74"]));
    assert!(some.contains("udp-scrape-layout") && some.contains("udp-numwant-is-kept"), "{some}");
    assert!(!some.contains("udp-scrape-of-74") && !some.contains("udp-connect-layout"), "{some}");
}

#[test]
fn info_hashes_are_printed_for_lists() {
    let print =
        |seed| stdout(&conform(&["--print-info-hashes", "--seed", seed, "--only", "udp-numwant-is-kept"]));
    let seven = print("7");
    assert_eq!(seven.lines().count(), 2, "one in each family: {seven}");
    assert!(seven.lines().all(|line| line.len() == 40 && line.chars().all(|char| char.is_ascii_hexdigit())));
    assert_eq!(seven, print("7"));
    assert_ne!(seven, print("8"));
}

/// Answers connects and announces at a socket, and sends the info hash of each announce, until a datagram is empty.
fn serve(socket: &UdpSocket, announced: &mpsc::Sender<String>) {
    let mut request = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut request).unwrap();
        if length == 0 {
            return;
        }
        if request[8..12] != [0; 4] {
            announced.send(request[16..36].iter().map(|byte| format!("{byte:02x}")).collect()).unwrap();
        }
        socket.send_to(&reply(&request), from).unwrap();
    }
}

/// Returns the reply to a connect or to an announce.
fn reply(request: &[u8]) -> Vec<u8> {
    let (action, transaction_id) = (&request[8..12], &request[12..16]);
    if action == [0; 4] {
        return [action, transaction_id, &[7; 8]].concat();
    }
    // BEP 15: interval, leechers, seeders.
    [action, transaction_id, &[0, 0, 7, 8], &[0, 0, 0, 0], &[0, 0, 0, 1]].concat()
}

/// Two URLs may lead to one tracker, or to one cluster, whose counts the first would change for the second.
#[test]
fn each_url_has_torrents_of_its_own() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let (sender, announced) = mpsc::channel();
    let output = thread::scope(|scope| {
        scope.spawn(|| serve(&socket, &sender));
        let output = conform(&["--seed", "7", "--only", "udp-announce-layout", &url, &url]);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], socket.local_addr().unwrap()).unwrap();
        output
    });
    let announced: BTreeSet<String> = announced.try_iter().collect();
    assert_eq!(announced.len(), 2, "{announced:?}\n{}", stdout(&output));
    let listed =
        conform(&["--print-info-hashes", "--seed", "7", "--only", "udp-announce-layout", &url, &url]);
    let listed = stdout(&listed);
    assert!(announced.iter().all(|hash| listed.contains(hash)), "{announced:?} are not all in\n{listed}");
}

/// The case itself passes, and none after it would notice.
#[test]
fn a_tracker_that_ends_is_exit_code_1_even_after_the_last_case() {
    let last = conform_against(&["--only", "udp-announce-interval-is-sane"], end_after_an_announce);
    assert!(last.contains("1 passed, 0 musts failed, 0 recommendations failed"), "{last}");
    assert!(
        last.ends_with("has not answered since udp-announce-interval-is-sane, which was the last one.\n"),
        "{last}"
    );
    let text =
        conform_against(&["--only", "udp-announce-interval", "--only", "udp-scrape"], end_after_an_announce);
    let not_run = text.lines().filter(|line| line.starts_with("  not run ")).count();
    let end = format!(", and the {not_run} cases after it were not run.\n");
    assert!(not_run > 1 && text.ends_with(&end), "{text}");
}

fn end_after_an_announce(socket: &UdpSocket) {
    let (mut request, mut is_announce) = ([0; 2048], false);
    while !is_announce {
        let (_, from) = socket.recv_from(&mut request).unwrap();
        is_announce = request[8..12] != [0; 4];
        socket.send_to(&reply(&request), from).unwrap();
    }
}

/// Its replies do not say that a list is the reason.
#[test]
fn a_tracker_that_refuses_everything_is_asked_for_its_list() {
    let names =
        ["layout", "leecher", "seeder", "completed", "second-announce"].map(|name| format!("udp-*{name}"));
    let only = names.iter().flat_map(|name| ["--only", name]).chain(["--summary"]);
    let text = conform_against(&only.collect::<Vec<_>>(), |socket| {
        let mut request = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut request).unwrap();
            if length == 0 {
                return;
            }
            let is_connect = request[8..12] == [0; 4];
            let error = [&[0, 0, 0, 3][..], &request[12..16], &b"no"[..]].concat();
            socket.send_to(&if is_connect { reply(&request) } else { error }, from).unwrap();
        }
    });
    assert!(text.contains("listed torrents only?") && text.contains("--print-info-hashes"), "{text}");
    assert!(!text.contains("expected  "), "a summary has no details: {text}");
}

/// Returns the report on a tracker that does not conform. An empty datagram ends the tracker, if it still runs.
fn conform_against(cases: &[&str], tracker: impl FnOnce(&UdpSocket) + Send + 'static) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let tracker = thread::spawn(move || tracker(&socket));
    let output = conform(&[cases, &["--reply-ms", "100", &format!("udp://{address}")]].concat());
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], address).unwrap();
    tracker.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    stdout(&output)
}

#[test]
fn an_invalid_command_line_is_exit_code_2() {
    let wrong: [(&[&str], &str); 7] = [
        (&[], "URL"),
        (&["127.0.0.1:6969"], "udp://HOST:PORT"),
        (&["ftp://127.0.0.1:6969/announce"], "udp://HOST:PORT"),
        (&["--only", "udp-connect", "http://127.0.0.1:6969"], "no case for http://127.0.0.1:6969"),
        (&["--only", "no-such-case", "udp://127.0.0.1:1"], "--list"),
        (&["--only", "two-minutes", "udp://127.0.0.1:1"], "--slow"),
        (&["--print-info-hashes"], "--seed"),
    ];
    for (arguments, expected) in wrong {
        let output = conform(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn help_lists_the_exit_codes() {
    let help = stdout(&conform(&["--help"]));
    assert!(help.contains("Exit codes: 0") && help.contains("--print-info-hashes"), "{help}");
}

/// `shoal-lab conform … | head -1`: the exit code is still about the tracker.
#[test]
fn a_reader_that_leaves_is_no_error() {
    let (closed, _) = unreachable();
    for (arguments, code) in [(vec!["--list"], 0), (vec!["--json", "--reply-ms", "50", &closed], 1)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal-lab"));
        command.arg("conform").args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), String::new()), "{arguments:?}");
    }
}

/// A case that other trackers fail names them.
#[test]
fn the_list_says_which_trackers_break_a_rule() {
    let list = stdout(&conform(&["--list"]));
    let answers = list.lines().filter(|line| line.trim_start().starts_with("broken by "));
    assert!(answers.count() > 50, "{list}");
}
