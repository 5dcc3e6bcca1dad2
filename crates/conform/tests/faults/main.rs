//! A check that cannot fail is worthless. The suite therefore runs against a tracker that keeps every rule, and then
//! against the same tracker with one fault at a time: the right cases have to fail, and no others.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod dribble;
mod fault;
mod http;
mod http_faults;
mod operator;
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
    Case, CaseVerdict, Finding, InfoHash, OperatorRules, Run, Scheme, Summary, Target, info_hashes, probe,
    run, udp, webtorrent as ws_cases,
};

use crate::fault::{Fails, Fault};
use crate::tracker::Tracker;

/// The number of trackers that are tested at a time, since tests mostly wait.
const CONCURRENT_TRACKERS: usize = 24;

const FOREVER: Duration = Duration::from_secs(3600);
const SEED: u64 = 15;

/// The cases of a protocol and the faults that make them fail.
struct Suite {
    cases: fn() -> Vec<&'static Case>,
    faults: &'static [(Fault, Fails)],
    target: fn(&Tracker, is_v4: bool) -> Target,
}

/// Suites run one at a time, because their timeouts assume an otherwise idle machine.
static RUNNING: Mutex<()> = Mutex::new(());

const UDP: Suite = Suite { cases: udp::cases, faults: udp_faults::FAULTS, target };
const WS: Suite = Suite { cases: ws_cases::cases, faults: ws_faults::FAULTS, target: ws_target };
const HTTP: Suite = Suite { cases: http_cases::cases, faults: http_faults::FAULTS, target: http_target };

fn target(tracker: &Tracker, is_v4: bool) -> Target {
    let (own, other) = if is_v4 { (tracker.v4, tracker.v6) } else { (tracker.v6, tracker.v4) };
    let mut target =
        Target { other_family: Some(other), rules: operator::rules(is_v4), ..Target::new(own, SEED) };
    // Many requests time out here, and each is sent three times. A busy machine may be slow to schedule the tracker.
    target.timing.reply = Duration::from_millis(500);
    target.timing.quiet = Duration::from_millis(20);
    target.timing.minute = Duration::from_millis(1500);
    target
}

fn http_target(tracker: &Tracker, is_v4: bool) -> Target {
    let [v4, v6] = tracker.tcp;
    let (own, other, udp) = if is_v4 { (v4, v6, tracker.v4) } else { (v6, v4, tracker.v6) };
    let mut target = Target {
        other_family: Some(other),
        udp: Some(udp),
        rules: operator::rules(is_v4),
        ..Target::http(own, false, SEED)
    };
    // Few requests time out here, and each connection has a thread, which a busy machine may be slow to schedule.
    target.timing.reply = Duration::from_secs(2);
    target.timing.quiet = Duration::from_millis(20);
    target
}

fn ws_target(tracker: &Tracker, is_v4: bool) -> Target {
    let [v4, v6] = tracker.web;
    let (own, other) = if is_v4 { (v4, v6) } else { (v6, v4) };
    let rules = operator::rules(is_v4);
    let mut target = Target { other_family: Some(other), rules, ..Target::webtorrent(own, false, SEED) };
    target.timing.reply = Duration::from_secs(2);
    target.timing.quiet = Duration::from_millis(20);
    target
}

fn cases(is_wanted: impl Fn(&Case) -> bool) -> Vec<&'static Case> {
    udp::cases().into_iter().filter(|case| is_wanted(case)).collect()
}

fn failed(findings: &[Finding]) -> BTreeSet<&str> {
    let failed = findings.iter().filter(|finding| finding.verdict == CaseVerdict::Fail);
    failed.map(|finding| finding.id.as_str()).collect()
}

/// Runs the suite against a tracker with this fault and describes any unexpected result. Of a fault that fails many cases, only
/// those that detect it run: the others would wait for minutes.
fn mismatch(suite: &Suite, fault: Fault, fails: Fails) -> Option<String> {
    let tracker = Tracker::start(fault, FOREVER);
    let is_wanted = |case: &&Case| match fails {
        Fails::Just(_) => !case.is_slow,
        Fails::AtLeast(ids) => ids.contains(&case.id),
    };
    let cases: Vec<&Case> = (suite.cases)().into_iter().filter(is_wanted).collect();
    let findings = run(&cases, &(suite.target)(&tracker, true), |_| {});
    let seen = failed(&findings);
    let (Fails::Just(expected) | Fails::AtLeast(expected)) = fails;
    let wrong: Vec<_> = findings.iter().filter(|finding| finding.verdict == CaseVerdict::Fail).collect();
    let details = wrong.iter().map(|finding| format!("    {}: {}\n", finding.id, finding.seen));
    (seen != expected.iter().copied().collect())
        .then(|| format!("{fault:?}: expected {expected:?}, seen\n{}", details.collect::<String>()))
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
    let (rest, mismatches) = (Mutex::new(suite.faults.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CONCURRENT_TRACKERS {
            scope.spawn(|| {
                loop {
                    let next = rest.lock().unwrap().next();
                    let Some(&(fault, fails)) = next else { break };
                    // Runs outside the lock, so that the trackers run concurrently.
                    let mismatch = mismatch(suite, fault, fails);
                    mismatches.lock().unwrap().extend(mismatch);
                }
            });
        }
    });
    let mismatches = mismatches.into_inner().unwrap();
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn every_case_can_fail() {
    for suite in [UDP, HTTP, WS] {
        let noticed: BTreeSet<&str> = suite
            .faults
            .iter()
            .flat_map(|(_, Fails::Just(ids) | Fails::AtLeast(ids))| ids.iter().copied())
            .collect();
        // The cases about the lifetime of a connection id have their own test below.
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
        let unsupported =
            findings.iter().filter(|finding| finding.verdict == CaseVerdict::NotSupported).count();
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

/// Runs the suite over both families, with the plain and the TLS scheme.
fn passes_everything(suite: &Suite, tls_scheme: Scheme) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_no_client_auth().with_single_cert(vec![certified.cert.into()], key).unwrap();
    let tls = Arc::new(tls);
    for (is_v4, is_tls) in
        [true, false].into_iter().flat_map(|is_v4| [false, true].map(|is_tls| (is_v4, is_tls)))
    {
        let tracker = Tracker::start_over(Fault::None, FOREVER, is_tls.then_some(&tls));
        let mut target = (suite.target)(&tracker, is_v4);
        if is_tls {
            target.scheme = tls_scheme;
        }
        assert_eq!(probe(&target), Ok(()));
        let findings = run(&(suite.cases)(), &target, |_| {});
        let wrong: Vec<&Finding> =
            findings.iter().filter(|finding| finding.verdict == CaseVerdict::Fail).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let unsupported =
            findings.iter().filter(|finding| finding.verdict == CaseVerdict::NotSupported).count();
        let one_address = if tls_scheme == Scheme::Wss { 1 } else { 2 };
        assert_eq!(unsupported, if is_v4 { 0 } else { one_address }, "{findings:#?}");
        wait_until_empty(&tracker);
    }
}

/// Waits until no peer is left, because a client does not know when the tracker has noticed the end of its connection.
fn wait_until_empty(tracker: &Tracker) {
    for _ in 0..10_000 {
        if tracker.state.lock().unwrap().peers() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("peers were left behind");
}

/// Here, a minute lasts three seconds. The cases use an id after 0.1 s, 2.9 s and 5.9 s. An id that has expired by then
/// has expired on a slow machine as well, and one that has not lives for another 1.4 s at least.
#[test]
fn connection_ids_that_expire_early_are_detected() {
    let (seconds, minute, two_minutes) = (
        "udp-connection-id-lives-for-seconds",
        "udp-connection-id-lives-for-a-minute",
        "udp-connection-id-lives-for-two-minutes",
    );
    let detect = |lifetime_ms, expected: &[&str]| {
        let tracker = Tracker::start(Fault::None, Duration::from_millis(lifetime_ms));
        let mut target = target(&tracker, true);
        target.timing.minute = Duration::from_secs(3);
        let findings = run(&cases(|case| case.id.contains("-lives-for-")), &target, |_| {});
        assert_eq!(failed(&findings), expected.iter().copied().collect(), "{lifetime_ms} ms: {findings:#?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| detect(40, &[minute, seconds, two_minutes]));
        scope.spawn(|| detect(1500, &[minute, two_minutes]));
        scope.spawn(|| detect(4400, &[two_minutes]));
        scope.spawn(|| detect(60_000, &[]));
    });
}

/// The suite uses only the info hashes that it prints for trackers with a list, and its peers leave in the end.
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
        wait_until_empty(&tracker);
        let state = tracker.state.lock().unwrap();
        let unlisted: Vec<InfoHash> = state
            .info_hashes
            .iter()
            .map(|&hash| InfoHash(hash))
            .filter(|hash| !printed.contains(hash))
            .collect();
        // The probe after the last case may ask for a torrent of its own: any reply will do.
        assert!(unlisted.len() <= 1, "{unlisted:?}");
        assert!(state.info_hashes.len() > 90);
    }
}

/// Rules that the user does not name count neither way.
#[test]
fn rules_that_are_not_named_are_not_configured() {
    for suite in [UDP, HTTP, WS] {
        let tracker = Tracker::start(Fault::None, FOREVER);
        let target = Target { rules: OperatorRules::default(), ..(suite.target)(&tracker, true) };
        let is_about_a_rule = |case: &&Case| {
            ["denied", "unlisted", "-by-a-rule-", "beyond-the-limit", "tells-the-reason"]
                .iter()
                .any(|word| case.id.contains(word))
        };
        let cases: Vec<&Case> = (suite.cases)().into_iter().filter(is_about_a_rule).collect();
        let findings = run(&cases, &target, |_| {});
        let summary = Summary::of(&findings);
        assert!(cases.len() >= 7);
        assert_eq!(summary, Summary { not_configured: cases.len(), ..Summary::default() }, "{findings:#?}");
        assert!(findings.iter().all(|finding| finding.seen.contains("--")), "it tells the option");
    }
}

#[test]
fn an_unreachable_tracker_is_reported_at_once() {
    for suite in [UDP, HTTP, WS] {
        let target = {
            let tracker = Tracker::start(Fault::None, FOREVER);
            (suite.target)(&tracker, true)
        };
        let reason = probe(&target).unwrap_err().to_string();
        assert!(reason.contains("connection refused"), "{reason}");
    }
}

/// A wrong scheme yields a reason that says so.
#[test]
fn a_tracker_without_tls_is_reported() {
    let tracker = Tracker::start(Fault::None, FOREVER);
    for (target, scheme) in
        [(http_target(&tracker, true), Scheme::Https), (ws_target(&tracker, true), Scheme::Wss)]
    {
        let reason = probe(&Target { scheme, ..target }).unwrap_err().to_string();
        assert!(reason.contains("does not accept TLS"), "{reason}");
    }
}

#[test]
fn a_tracker_without_websockets_is_reported() {
    let tracker = Tracker::start(Fault::None, FOREVER);
    let target = Target { address: tracker.tcp[0], ..ws_target(&tracker, true) };
    let reason = probe(&target).unwrap_err().to_string();
    assert!(reason.contains("does not accept a WebSocket"), "{reason}");
}

/// After the case that ends the tracker, no case is run, and none counts as failed.
#[test]
fn a_tracker_that_ends_ends_the_run() {
    let tracker = Tracker::start(Fault::EndsOnLongDatagrams, FOREVER);
    let target = target(&tracker, true);
    let mut reported = 0;
    let findings = run(&cases(|case| !case.is_slow), &target, |_| reported += 1);
    assert_eq!(reported, findings.len());
    let last = findings.last().unwrap();
    assert_eq!(last.verdict, CaseVerdict::NotRun);
    assert!(last.seen.contains("since the case udp-garbage-does-not-end-the-service"), "{last:?}");
    let run = Run::done("", target.address, findings);
    assert_eq!(run.silent_since.as_deref(), Some("udp-garbage-does-not-end-the-service"));
    assert_eq!(run.summary.musts_failed, 1, "{run:#?}");
    assert!(run.summary.not_run > 0 && !run.is_conforming());
}
