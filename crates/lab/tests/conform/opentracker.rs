//! The suite against Debian's opentracker, to show that it tests the protocol and not the behaviour of Shoal.
//!
//! The failures are fixed here, so that a change of the suite becomes visible. bench-runs/2026-11-27-conformance has the evidence
//! for each of them.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use shoal_testkit::ports::unused_ports;
use shoal_testkit::process::Process;
use shoal_testkit::tools;
use tempfile::TempDir;

use crate::{conform, stderr, stdout};

/// The rules that version 0.0~git20210823 breaks over UDP.
const FAILED: [&str; 7] = [
    "udp-announcer-is-not-handed-to-itself",
    "udp-completed-makes-a-seeder-whatever-left-says",
    "udp-port-0-is-never-handed-out",
    "udp-scrape-ignores-a-partial-hash",
    "udp-scrape-of-nothing-gets-nothing",
    "udp-seeder-is-not-handed-seeders",
    "udp-seeding-from-the-start-is-no-download",
];

/// The build supports a single address family, here IPv4.
const NOT_SUPPORTED: [&str; 1] = ["udp-families-are-apart"];

/// The musts that it breaks over HTTP. The shoulds follow.
const HTTP_MUSTS_FAILED: [&str; 3] =
    ["http-connection-does-what-the-reply-says", "http-head-has-no-body", "http-scrape-keys-are-sorted"];

const HTTP_SHOULDS_FAILED: [&str; 27] = [
    "http-1.0-keep-alive-is-honoured",
    "http-absolute-target-is-read",
    "http-announce-without-a-port-joins-nothing",
    "http-announcer-is-not-handed-to-itself",
    "http-compact-0-gives-dictionaries",
    "http-completed-makes-a-seeder-whatever-left-says",
    "http-connection-serves-many-requests",
    "http-empty-line-before-a-request-is-ignored",
    "http-head-is-answered-like-get",
    "http-no-peer-id-is-kept",
    "http-numwant-negative-is-the-default",
    "http-other-methods-get-405-or-501",
    "http-oversize-head-is-refused",
    "http-pipelined-requests-are-answered-in-order",
    "http-pipelined-requests-may-be-split-anywhere",
    "http-port-0-is-never-handed-out",
    "http-refusal-has-status-200",
    "http-refusal-is-a-failure-reason",
    "http-refusal-keeps-the-connection",
    "http-response-has-a-date",
    "http-scrape-of-everything-is-refused-or-whole",
    "http-scrape-of-repeated-is-told-once",
    "http-seeder-is-not-handed-seeders",
    "http-seeding-from-the-start-is-no-download",
    "http-two-hosts-get-400",
    "http-unknown-left-is-a-leecher",
    "http-unknown-path-gets-404",
];

const HTTP_NOT_SUPPORTED: [&str; 3] = [
    "http-external-ip-is-that-of-the-client",
    "http-families-keep-to-their-keys",
    "http-retry-in-is-minutes-or-never",
];

const SEED: &str = "20210823";

/// A running opentracker. Killed on drop.
struct Opentracker {
    _process: Process,
    address: SocketAddr,
    /// The directory with its configuration and its list.
    _directory: TempDir,
}

impl Opentracker {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // It drops root privileges before it reads its list.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let listed = conform(&["--print-info-hashes", "--seed", SEED]);
        fs::write(directory.path().join("list"), listed.stdout).unwrap();
        let [port] = unused_ports().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let file = directory.path().join("opentracker.conf");
        fs::write(&file, configuration(directory.path(), address)).unwrap();
        let mut command = tools::opentracker().unwrap();
        command.arg("-f").arg(file);
        let process = Process::start(command, &directory.path().join("log")).unwrap();
        let opentracker = Self { _process: process, address, _directory: directory };
        // It serves UDP once it serves TCP.
        let listens = || TcpStream::connect(address).is_ok();
        assert!((0..3000).any(|_| listens() || pause()), "opentracker does not listen");
        opentracker
    }
}

/// Returns the configuration. Paths are relative, because as root it uses the directory as the root of its file
/// system, and otherwise as its working directory.
fn configuration(directory: &Path, address: SocketAddr) -> String {
    format!(
        "listen.udp {address}\nlisten.tcp {address}\ntracker.rootdir {}\ntracker.user nobody\naccess.whitelist list\n",
        directory.display()
    )
}

fn with_verdict<'r>(run: &'r Value, verdict: &str) -> BTreeSet<&'r str> {
    let findings = run["findings"].as_array().unwrap().iter();
    let chosen = findings.filter(|finding| finding["verdict"] == verdict);
    chosen.map(|finding| finding["id"].as_str().unwrap()).collect()
}

#[test]
fn opentracker_keeps_every_must_and_breaks_these_shoulds() {
    let tracker = Opentracker::start();
    let (url, report) = (format!("udp://{}/announce", tracker.address), tempfile::tempdir().unwrap());
    let junit = report.path().join("report.xml");
    let output =
        conform(&["--seed", SEED, "--json", "--junit", junit.to_str().unwrap(), "--reply-ms", "3000", &url]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &report["runs"][0];
    assert_eq!(with_verdict(run, "fail"), BTreeSet::from(FAILED), "{run:#}\n{}", stderr(&output));
    assert_eq!(with_verdict(run, "not-supported"), BTreeSet::from(NOT_SUPPORTED));
    assert_eq!(output.status.code(), Some(0), "no must is broken");
    let findings = run["findings"].as_array().unwrap();
    let failed = findings.iter().find(|finding| finding["verdict"] == "fail").unwrap();
    let words = failed["exchange"][0]["words"].as_str().unwrap();
    assert!(words.contains("announce"), "the exchange is part of the report: {failed:#}");

    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("udp-port-0-is-never-handed-out") && xml.contains("failures=\"0\""), "{xml}");
}

/// Waits a little and returns false.
fn pause() -> bool {
    thread::sleep(Duration::from_millis(20));
    false
}

#[test]
fn opentracker_breaks_these_rules_over_http() {
    let tracker = Opentracker::start();
    let (url, udp) = (format!("http://{}/announce", tracker.address), tracker.address.to_string());
    let output = conform(&["--seed", SEED, "--json", "--udp", &udp, &url]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &report["runs"][0];
    let failed: BTreeSet<&str> = HTTP_MUSTS_FAILED.into_iter().chain(HTTP_SHOULDS_FAILED).collect();
    assert_eq!(with_verdict(run, "fail"), failed, "{run:#}\n{}", stderr(&output));
    assert_eq!(with_verdict(run, "not-supported"), BTreeSet::from(HTTP_NOT_SUPPORTED));
    let musts = run["findings"].as_array().unwrap().iter().filter(|finding| finding["verdict"] == "fail");
    let musts: BTreeSet<&str> = musts
        .filter(|finding| finding["severity"] == "must")
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    assert_eq!(musts, BTreeSet::from(HTTP_MUSTS_FAILED));
    assert_eq!(output.status.code(), Some(1), "musts are broken");
}

/// Hashes that are not on its list are refused. The suite has to report this as failures and must not stop.
#[test]
fn a_tracker_that_knows_none_of_the_info_hashes_breaks_musts() {
    let tracker = Opentracker::start();
    let url = format!("udp://{}", tracker.address);
    let output = conform(&["--seed", "1", "--only", "udp-announce", "--reply-ms", "3000", &url]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}\n{}", stderr(&output));
    assert!(text.contains("Not every must is kept") && text.contains("udp-announce-layout"), "{text}");
}
