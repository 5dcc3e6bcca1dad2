//! Every rule of the public suite for WebTorrent, the "should" ones too, over every way.

use std::time::Duration;

use shoal_conform::{Target, random_seed, webtorrent};

use crate::http::{Way, over_every_way};
use crate::kit::conformance::assert_kept;
use crate::kit::harness::eventually;

over_every_way!(every_rule_is_kept);

/// A case that needs a second local address, which hosts do not have over IPv6.
const TAKES_TWO_ADDRESSES: &str = "ws-peer-of-another-host-is-out-of-reach";

fn every_rule_is_kept(way: Way) {
    let tracker = way.start(&[]);
    let mut target = Target::webtorrent(way.address(&tracker), way.tls(), random_seed());
    target.other_family = Some(way.over_other_family().address(&tracker));
    // A busy machine is no fault of the tracker.
    target.timing.reply = Duration::from_secs(5);
    let unsupported: &[&str] = if way.is_v6() { &[TAKES_TWO_ADDRESSES] } else { &[] };
    assert_kept(webtorrent::cases(), &target, unsupported);

    // The suite leaves nothing behind.
    let swarms = || tracker.metric("shoal_webtorrent_swarms", &[]);
    eventually("all sockets are gone, and their peers", || (swarms() == 0).then_some(()));
}
