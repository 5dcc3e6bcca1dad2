//! The suite against Debian's opentracker: it tests the protocol, and not what Shoal happens to do.
//!
//! The failures are pinned, so that a change of the suite shows. docs/conformance.md tells of each what confirms it.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use shoal_clients::tools;
use tempfile::TempDir;

use crate::{conform, stderr, stdout};

/// What it breaks, of version 0.0~git20210823.
const FAILED: [&str; 6] = [
    "udp-announcer-is-not-handed-to-itself",
    "udp-completed-makes-a-seeder-whatever-left-says",
    "udp-port-0-is-never-handed-out",
    "udp-scrape-ignores-a-partial-hash",
    "udp-scrape-of-nothing-gets-nothing",
    "udp-seeder-is-not-handed-seeders",
];

/// It is built for one family, here IPv4.
const NOT_SUPPORTED: [&str; 1] = ["udp-families-are-apart"];

const SEED: &str = "20210823";

/// A running opentracker. Killed on drop.
struct Opentracker {
    child: Child,
    address: SocketAddr,
    /// Its configuration and its list.
    _directory: TempDir,
}

impl Opentracker {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // It gives up the rights of root before it reads its list.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let listed = conform(&["--print-info-hashes", "--seed", SEED]);
        fs::write(directory.path().join("list"), listed.stdout).unwrap();
        // A port that was free a moment ago.
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file = directory.path().join("opentracker.conf");
        fs::write(&file, configuration(directory.path(), address)).unwrap();
        let mut command = tools::opentracker().unwrap();
        let child = command.arg("-f").arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, address, _directory: directory }
    }
}

/// Paths are relative: the root of its file system is the directory if it is root, else the directory of work is.
fn configuration(directory: &Path, address: SocketAddr) -> String {
    format!(
        "listen.udp {address}\ntracker.rootdir {}\ntracker.user nobody\naccess.whitelist list\n",
        directory.display()
    )
}

impl Drop for Opentracker {
    fn drop(&mut self) {
        // Both fail where it has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names of the findings with this verdict.
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
    // The first requests come before it listens; the suite has some patience.
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
    assert!(words.contains("announce"), "what was sent and seen is told: {failed:#}");

    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("udp-port-0-is-never-handed-out") && xml.contains("failures=\"0\""), "{xml}");
}

/// Hashes that are not on its list are refused, which the suite has to tell as failures and not as an end.
#[test]
fn a_tracker_that_knows_none_of_the_info_hashes_breaks_musts() {
    let tracker = Opentracker::start();
    let url = format!("udp://{}", tracker.address);
    let output = conform(&["--seed", "1", "--only", "udp-announce", "--reply-ms", "3000", &url]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("Not every must is kept") && text.contains("udp-announce-layout"), "{text}");
}
