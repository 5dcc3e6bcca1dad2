//! Events (BEP 3, "Trackers": `event`; BEP 21).

use super::Http;
use super::client::Client;
use crate::case::{Case, Checked};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;
use crate::rules::event;

pub(super) const CASES: &[Case] = event::event_cases!("http", Http);

pub(super) const OWN_CASES: &[Case] = &[
    Case::must(
        "http-stopped-gets-a-normal-reply",
        "BEP 3, \"Trackers\"",
        "An announce with event stopped gets an announce reply.",
        event::stopped_gets_a_normal_reply::<Http>,
    )
    .with_info_hashes(2),
    Case::should(
        "http-completed-counts-a-download",
        "BEP 48, \"Tracker scrape\"",
        "Event completed raises the downloaded count of a scrape by one.",
        event::completed_counts_a_download::<Http>,
    ),
    Case::must(
        "http-empty-event-is-an-update",
        "BEP 3, \"Trackers\": \"may be empty\"",
        "An announce with an empty event is a regular one.",
        |context| is_an_update(context, &[""]),
    ),
    Case::should(
        "http-paused-is-an-update",
        "BEP 21, \"Tracker\"",
        "A partial seed that announces paused stays in its swarm.",
        |context| is_an_update(context, &["paused"]),
    ),
    Case::should(
        "http-unknown-event-is-an-update",
        "practice: this leaves room to add events, as BEP 21 did",
        "An announce with an unknown event is a regular one.",
        |context| is_an_update(context, &["started2", "STARTED", "%00", "%3Cregular%3E"]),
    ),
];

fn is_an_update(context: &Context<'_>, events: &[&str]) -> Checked {
    let client = Client::new(context);
    for event in events {
        let announce = Announce::leecher(context.hash(0), 1001);
        client.announce_with(&announce, |parameters| parameters.with("event", event))?;
        client.ensure_scraped(
            context.hash(0),
            0,
            1,
            format!("seeders 0, leechers 1 after event {event:?}"),
        )?;
    }
    Ok(())
}
