//! Which peers are counted, and which are handed out (BEP 3, "Trackers").

use super::Http;
use super::client::Client;
use crate::case::{Case, Checked};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;
use crate::rules::swarm;

pub(super) const CASES: &[Case] = swarm::swarm_cases!("http", Http);

pub(super) const OWN_CASES: &[Case] = &[
    Case::should(
        "http-unknown-left-is-a-leecher",
        "practice: clients with only a magnet link send huge or negative values, or none",
        "A left that is huge, negative, empty or absent makes a leecher.",
        unknown_left_is_a_leecher,
    ),
    Case::must(
        "http-info-hashes-are-independent",
        "BEP 3, \"Trackers\"",
        "Peers and counts of one info hash do not show in another.",
        swarm::info_hashes_are_independent::<Http>,
    )
    .with_info_hashes(2),
];

fn unknown_left_is_a_leecher(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let values = [
        Some("-1"),
        Some("9223372036854775807"),
        Some("18446744073709551615"),
        Some("-9223372036854775808"),
        Some(""),
        None,
    ];
    for (port, left) in (1001..).zip(values) {
        client.announce_with(&Announce::leecher(context.hash(0), port), |parameters| match left {
            Some(left) => parameters.with("left", left),
            None => parameters.without("left"),
        })?;
        let leechers = u32::from(port - 1000);
        let expected = format!("seeders 0, leechers {leechers} after left {left:?}");
        client.ensure_scraped(context.hash(0), 0, leechers, expected)?;
    }
    Ok(())
}
