//! A check that cannot fail is worth nothing. So the suite is run against a tracker that keeps every rule, and then
//! against the same tracker with one fault after the other: the right case has to fail, and no other.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod dribble;
mod fault;
mod http;
mod http_faults;
mod reply;
mod tracker;
mod udp_faults;
mod webtorrent;
mod ws_faults;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use shoal_conform::http as http_cases;
use shoal_conform::{
    Case, Finding, InfoHash, Scheme, Target, Verdict, info_hashes, probe, run, udp, webtorrent as ws_cases,
};

use crate::fault::{Fails, Fault};
use crate::tracker::Tracker;

/// Trackers that are tested at a time. Most of a test is waiting.
const AT_A_TIME: usize = 24;

const FOREVER: Duration = Duration::from_secs(3600);
const SEED: u64 = 15;

/// The cases of a protocol, and what makes them fail.
struct Suite {
    cases: fn() -> Vec<&'static Case>,
    faults: &'static [(Fault, Fails)],
    target: fn(&Tracker, is_v4: bool) -> Target,
}

/// One at a time: the patience of each is made for a machine that does nothing else.
static RUNNING: Mutex<()> = Mutex::new(());

const UDP: Suite = Suite { cases: udp::cases, faults: udp_faults::FAULTS, target };
const WS: Suite = Suite { cases: ws_cases::cases, faults: ws_faults::FAULTS, target: ws_target };
const HTTP: Suite = Suite { cases: http_cases::cases, faults: http_faults::FAULTS, target: http_target };

fn target(tracker: &Tracker, is_v4: bool) -> Target {
    let (own, other) = if is_v4 { (tracker.v4, tracker.v6) } else { (tracker.v6, tracker.v4) };
    let mut target = Target { other_family: Some(other), ..Target::new(own, SEED) };
    target.timing.reply = Duration::from_millis(250);
    target.timing.quiet = Duration::from_millis(20);
    target.timing.minute = Duration::from_millis(1500);
    target
}

fn http_target(tracker: &Tracker, is_v4: bool) -> Target {
    let [v4, v6] = tracker.tcp;
    let (own, other, udp) = if is_v4 { (v4, v6, tracker.v4) } else { (v6, v4, tracker.v6) };
    let mut target = Target { other_family: Some(other), udp: Some(udp), ..Target::http(own, false, SEED) };
    // A wait without end is rare here, and a connection takes a thread, which a busy machine may be slow to run.
    target.timing.reply = Duration::from_secs(1);
    target.timing.quiet = Duration::from_millis(20);
    target
}

fn ws_target(tracker: &Tracker, is_v4: bool) -> Target {
    let [v4, v6] = tracker.web;
    let (own, other) = if is_v4 { (v4, v6) } else { (v6, v4) };
    let mut target = Target { other_family: Some(other), ..Target::webtorrent(own, false, SEED) };
    target.timing.reply = Duration::from_secs(1);
    target.timing.quiet = Duration::from_millis(20);
    target
}

fn cases(is_wanted: impl Fn(&Case) -> bool) -> Vec<&'static Case> {
    udp::cases().into_iter().filter(|case| is_wanted(case)).collect()
}

fn failed(findings: &[Finding]) -> BTreeSet<&str> {
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail);
    failed.map(|finding| finding.id.as_str()).collect()
}

/// What is wrong about how the suite takes this fault.
fn complaint(suite: &Suite, fault: Fault, fails: Fails) -> Option<String> {
    let tracker = Tracker::start(fault, FOREVER);
    let cases: Vec<&Case> = (suite.cases)().into_iter().filter(|case| !case.is_slow).collect();
    let findings = run(&cases, &(suite.target)(&tracker, true), |_| {});
    let seen = failed(&findings);
    let (is_right, expected) = match fails {
        Fails::Just(ids) => (seen == ids.iter().copied().collect(), ids),
        Fails::AtLeast(ids) => (ids.iter().all(|id| seen.contains(id)), ids),
    };
    let wrong: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    let details = wrong.iter().map(|finding| format!("    {}: {}\n", finding.id, finding.seen));
    (!is_right).then(|| format!("{fault:?}: expected {expected:?}, seen\n{}", details.collect::<String>()))
}

#[test]
fn each_fault_of_udp_fails_the_right_cases() {
    each_fault_fails_the_right_cases(&UDP);
}

#[test]
fn each_fault_of_http_fails_the_right_cases() {
    each_fault_fails_the_right_cases(&HTTP);
}

#[test]
fn each_fault_of_webtorrent_fails_the_right_cases() {
    each_fault_fails_the_right_cases(&WS);
}

fn each_fault_fails_the_right_cases(suite: &Suite) {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    // Faults that break many cases come first, since many cases wait in vain then: at the end they would run alone.
    let (long, short): (Vec<_>, Vec<_>) =
        suite.faults.iter().partition(|(_, fails)| matches!(fails, Fails::AtLeast(_)));
    let (rest, complaints) = (Mutex::new(long.into_iter().chain(short)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let next = rest.lock().unwrap().next();
                    let Some(&(fault, fails)) = next else { break };
                    // Not under the lock, or the trackers would stand in a queue.
                    let complaint = complaint(suite, fault, fails);
                    complaints.lock().unwrap().extend(complaint);
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_case_can_fail() {
    for suite in [UDP, HTTP, WS] {
        let noticed: BTreeSet<&str> = suite
            .faults
            .iter()
            .flat_map(|(_, fails)| match fails {
                Fails::Just(ids) | Fails::AtLeast(ids) => ids.iter().copied(),
            })
            .collect();
        // Those about the life of a connection id have a test of their own below.
        let all = (suite.cases)().into_iter().map(|case| case.id);
        assert_eq!(noticed, all.filter(|id| !id.contains("-lives-for-")).collect());
    }
}

#[test]
fn a_correct_tracker_passes_everything_over_both_families() {
    for is_v4 in [true, false] {
        let tracker = Tracker::start(Fault::None, FOREVER);
        let findings = run(&udp::cases(), &target(&tracker, is_v4), |_| {});
        assert_eq!(failed(&findings), BTreeSet::new());
        let unsupported = findings.iter().filter(|finding| finding.verdict == Verdict::NotSupported).count();
        assert_eq!(unsupported, if is_v4 { 0 } else { 2 }, "{findings:#?}");
    }
}

#[test]
fn a_correct_tracker_passes_everything_over_http_and_https() {
    passes_everything(&HTTP, Scheme::Https);
}

#[test]
fn a_correct_tracker_passes_everything_over_ws_and_wss() {
    passes_everything(&WS, Scheme::Wss);
}

/// Over both families, plain and by the scheme that is sealed.
fn passes_everything(suite: &Suite, sealed: Scheme) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_no_client_auth().with_single_cert(vec![certified.cert.into()], key).unwrap();
    let tls = Arc::new(tls);
    for (is_v4, is_sealed) in
        [true, false].into_iter().flat_map(|is_v4| [false, true].map(|is_sealed| (is_v4, is_sealed)))
    {
        let tracker = Tracker::start_over(Fault::None, FOREVER, is_sealed.then_some(&tls));
        let mut target = (suite.target)(&tracker, is_v4);
        if is_sealed {
            target.scheme = sealed;
        }
        assert_eq!(probe(&target), Ok(()));
        let findings = run(&(suite.cases)(), &target, |_| {});
        let wrong: Vec<&Finding> =
            findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let unsupported = findings.iter().filter(|finding| finding.verdict == Verdict::NotSupported).count();
        let one_address = if sealed == Scheme::Wss { 1 } else { 2 };
        assert_eq!(unsupported, if is_v4 { 0 } else { one_address }, "{findings:#?}");
        everybody_leaves(&tracker);
    }
}

/// Waits until nobody is left. Who ends a connection is not told when the tracker has noticed.
fn everybody_leaves(tracker: &Tracker) {
    for _ in 0..10_000 {
        if tracker.state.lock().unwrap().peers() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("peers were left behind");
}

/// A minute of these tests lasts 1.5 seconds, some seconds last 50 milliseconds.
#[test]
fn connection_ids_that_die_early_are_noticed() {
    let (seconds, minute, two_minutes) = (
        "udp-connection-id-lives-for-seconds",
        "udp-connection-id-lives-for-a-minute",
        "udp-connection-id-lives-for-two-minutes",
    );
    for (life_ms, expected) in [
        (20, vec![minute, seconds, two_minutes]),
        (700, vec![minute, two_minutes]),
        (2200, vec![two_minutes]),
        (20_000, vec![]),
    ] {
        let tracker = Tracker::start(Fault::None, Duration::from_millis(life_ms));
        let findings = run(&cases(|case| case.id.contains("-lives-for-")), &target(&tracker, true), |_| {});
        assert_eq!(failed(&findings), expected.into_iter().collect(), "{life_ms}");
    }
}

/// What a tracker with a list has to list is what the suite uses, and the peers of the suite are gone in the end.
#[test]
fn info_hashes_are_those_that_are_printed() {
    for suite in [UDP, HTTP, WS] {
        let all = (suite.cases)();
        let printed: BTreeSet<InfoHash> = info_hashes(&all, SEED).into_iter().collect();
        assert_eq!(printed.len(), info_hashes(&all, SEED).len(), "each is used once");
        assert_ne!(info_hashes(&all, SEED + 1), info_hashes(&all, SEED));
        let tracker = Tracker::start(Fault::None, FOREVER);
        let fast: Vec<&Case> = all.into_iter().filter(|case| !case.is_slow).collect();
        run(&fast, &(suite.target)(&tracker, true), |_| {});
        everybody_leaves(&tracker);
        let state = tracker.state.lock().unwrap();
        let unlisted: Vec<InfoHash> = state
            .info_hashes
            .iter()
            .map(|&hash| InfoHash(hash))
            .filter(|hash| !printed.contains(hash))
            .collect();
        assert_eq!(unlisted, []);
        assert!(state.info_hashes.len() > 90);
    }
}

#[test]
fn nobody_there_is_told_at_once() {
    for suite in [UDP, HTTP, WS] {
        let nobody = {
            let tracker = Tracker::start(Fault::None, FOREVER);
            (suite.target)(&tracker, true)
        };
        let reason = probe(&nobody).unwrap_err().to_string();
        assert!(reason.contains("connection refused"), "{reason}");
    }
}

/// Who asks for the wrong one of the two is told what is wrong.
#[test]
fn tls_where_there_is_none_is_told() {
    let tracker = Tracker::start(Fault::None, FOREVER);
    for (target, scheme) in
        [(http_target(&tracker, true), Scheme::Https), (ws_target(&tracker, true), Scheme::Wss)]
    {
        let reason = probe(&Target { scheme, ..target }).unwrap_err().to_string();
        assert!(reason.contains("does not speak TLS"), "{reason}");
    }
}

#[test]
fn a_tracker_without_websockets_is_told() {
    let tracker = Tracker::start(Fault::None, FOREVER);
    let target = Target { address: tracker.tcp[0], ..ws_target(&tracker, true) };
    let reason = probe(&target).unwrap_err().to_string();
    assert!(reason.contains("does not accept a WebSocket"), "{reason}");
}

/// The first case of a tracker that dies is told from the rest, and the rest does not wait.
#[test]
fn a_tracker_that_dies_ends_the_run() {
    let tracker = Tracker::start(Fault::DiesOfLongDatagrams, FOREVER);
    let target = target(&tracker, true);
    let mut told = 0;
    let findings = run(&cases(|case| !case.is_slow), &target, |_| told += 1);
    assert_eq!(told, findings.len());
    let last = findings.last().unwrap();
    assert_eq!(last.verdict, Verdict::Fail);
    assert!(last.seen.contains("since the case udp-garbage-does-not-end-the-service"), "{last:?}");
}
