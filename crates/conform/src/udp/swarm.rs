//! Which peers are counted, and which are handed out (BEP 3, "Trackers"; BEP 15, "Announce").

use super::Udp;
use super::client::Client;
use crate::case::{Case, Checked};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;
use crate::rules::swarm;

pub(super) const CASES: &[Case] = swarm::swarm_cases!("udp", Udp);

pub(super) const OWN_CASES: &[Case] = &[
    Case::should(
        "udp-unknown-left-is-a-leecher",
        "practice: clients with only a magnet link send huge or negative values",
        "A left that is huge or negative makes a leecher.",
        unknown_left_is_a_leecher,
    ),
    Case::must(
        "udp-info-hashes-are-independent",
        "BEP 15, \"Announce\"",
        "Peers and counts of one info hash do not show in another.",
        swarm::info_hashes_are_independent::<Udp>,
    )
    .with_info_hashes(2),
];

fn unknown_left_is_a_leecher(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    for (port, left) in (1001..).zip([-1, i64::MAX, i64::MIN]) {
        client.announce(&Announce { left, ..Announce::leecher(hash, port) })?;
        let leechers = u32::from(port - 1000);
        let expected = format!("seeders 0, leechers {leechers} after left {left}");
        client.ensure_scraped(hash, 0, leechers, expected)?;
    }
    Ok(())
}
