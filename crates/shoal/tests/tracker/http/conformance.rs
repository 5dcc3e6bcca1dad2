//! Every rule of the public suite, the "should" ones too, over every way.

use std::time::Duration;

use shoal_conform::{Target, http, random_seed};

use crate::http::{Way, over_every_way};
use crate::kit::conformance::assert_kept;

over_every_way!(every_rule_is_kept);

/// A case that needs a second local address, which hosts do not have over IPv6.
const TAKES_TWO_ADDRESSES: [&str; 2] =
    ["http-forwarding-headers-affect-no-other-peer", "http-peer-of-another-host-is-out-of-reach"];

/// Only a full tracker says when to come back, and this one is not.
const TAKES_A_FULL_TRACKER: &str = "http-retry-in-is-minutes-or-never";

fn every_rule_is_kept(way: Way) {
    let tracker = way.start(&[]);
    let mut target = Target::http(way.address(&tracker), way.tls(), random_seed());
    target.other_family = Some(way.over_other_family().address(&tracker));
    target.udp = Some(tracker.udp[usize::from(way.is_v6())]);
    // A busy machine is no fault of the tracker.
    target.timing.reply = Duration::from_secs(5);
    let mut unsupported = if way.is_v6() { TAKES_TWO_ADDRESSES.to_vec() } else { Vec::new() };
    unsupported.push(TAKES_A_FULL_TRACKER);
    assert_kept(http::cases(), &target, &unsupported);

    // The suite leaves nothing behind.
    assert_eq!(tracker.metric("shoal_swarms", &[]), 0);
}
