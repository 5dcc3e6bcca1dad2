//! Events (BEP 15, "Announce": `event`; BEP 3, "Trackers").

use super::Udp;
use super::client::Client;
use crate::case::{Case, Checked};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;
use crate::rules::event;

pub(super) const CASES: &[Case] = event::event_cases!("udp", Udp);

pub(super) const OWN_CASES: &[Case] = &[
    Case::must(
        "udp-stopped-gets-a-normal-reply",
        "BEP 15, \"Announce\"",
        "An announce with event stopped gets an announce reply.",
        event::stopped_gets_a_normal_reply::<Udp>,
    )
    .with_info_hashes(2),
    Case::should(
        "udp-completed-counts-a-download",
        "BEP 15, \"Scrape\"; BEP 48, \"Tracker scrape\"",
        "Event completed raises the completed count of a scrape by one.",
        event::completed_counts_a_download::<Udp>,
    ),
    Case::should(
        "udp-unknown-event-is-an-update",
        "BEP 15, \"Extensions\"",
        "An announce with an event that the BEP does not define is a regular one.",
        unknown_event_is_an_update,
    ),
];

fn unknown_event_is_an_update(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for event in [4, 9, u32::MAX] {
        client.announce(&Announce::leecher(context.hash(0), 1001).with_event(event))?;
        client.ensure_scraped(context.hash(0), 0, 1, format!("seeders 0, leechers 1 after event {event}"))?;
    }
    Ok(())
}
