//! Every rule of the public suite, the "should" ones too. The other tests look inside the
//! tracker, use a special configuration, or demand more than the suite may demand of any tracker.

use std::time::Duration;

use shoal_conform::{Target, random_seed, udp};

use crate::kit::conformance::assert_kept;
use crate::udp::{Way, over_every_way};

over_every_way!(every_rule_is_kept);

/// A case that needs a second local address, which hosts do not have over IPv6.
const TAKES_TWO_ADDRESSES: [&str; 2] =
    ["udp-connection-id-of-another-address-is-refused", "udp-peer-of-another-host-is-out-of-reach"];

fn every_rule_is_kept(way: Way) {
    let tracker = way.start(&[]);
    let mut target = Target::new(tracker.udp[usize::from(way.v6)], random_seed());
    target.other_family = Some(tracker.udp[usize::from(!way.v6)]);
    // A busy machine is no fault of the tracker.
    target.timing.reply = Duration::from_secs(5);
    let unsupported = if way.v6 { &TAKES_TWO_ADDRESSES[..] } else { &[] };
    assert_kept(udp::cases(), &target, unsupported);

    // The suite leaves nothing behind.
    assert_eq!(tracker.metric("shoal_swarms", &[]), 0);
}
