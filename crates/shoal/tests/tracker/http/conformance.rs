//! Every rule of the public suite, the "should" ones too, over every way.

use std::time::Duration;

use shoal_conform::{Case, Finding, Target, Verdict, http, random_seed, run};

use crate::http::{Way, over_every_way};

over_every_way!(every_rule_is_kept);

/// What takes a second local address, of which a host has none with IPv6.
const TAKES_TWO_ADDRESSES: [&str; 2] =
    ["http-forwarding-headers-reach-nobody", "http-peer-of-another-host-is-out-of-reach"];

/// Only a full tracker says when to come back, and this one is not.
const TAKES_A_FULL_TRACKER: &str = "http-retry-in-is-minutes-or-never";

fn every_rule_is_kept(way: Way) {
    let tracker = way.start(&[]);
    let mut target = Target::http(way.address(&tracker), way.tls, random_seed());
    let listeners = if way.tls { &tracker.tls } else { &tracker.http };
    target.other_family = Some(listeners[usize::from(!way.v6)]);
    target.udp = Some(tracker.udp[usize::from(way.v6)]);
    // A busy machine is no fault of the tracker.
    target.timing.reply = Duration::from_secs(5);
    let cases: Vec<&Case> = http::cases().into_iter().filter(|case| !case.is_slow).collect();
    let findings = run(&cases, &target, |_| {});
    assert_eq!(findings.len(), cases.len());
    let failed: Vec<&Finding> = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let unsupported = findings.iter().filter(|finding| finding.verdict == Verdict::NotSupported);
    let mut unsupported: Vec<&str> = unsupported.map(|finding| finding.id.as_str()).collect();
    unsupported.sort_unstable();
    let mut expected = if way.v6 { TAKES_TWO_ADDRESSES.to_vec() } else { Vec::new() };
    expected.push(TAKES_A_FULL_TRACKER);
    assert_eq!(unsupported, expected);

    // The suite leaves nothing behind.
    assert_eq!(tracker.metric("shoal_swarms", &[]), 0);
}
