//! An attack on the counts of completed downloads that stay when a swarm is empty.

use anyhow::{Result, ensure};
use shoal_base::Event;

use crate::siege::address::{honest_v4, hostile_v4};
use crate::siege::context::Context;
use crate::siege::udp::{Announce, Flow, announce_all, leecher, random_hash};

/// The limit that the attack is aimed at.
pub(super) const SETTINGS: &[(&str, &str)] = &[("store.completed_retained_max", "2000")];

/// The number of entries of the limit.
const RETAINED_MAX: u64 = 2000;

/// The number of honest clients that complete a torrent.
const HONEST: u32 = 40;

/// Completes torrents that do not exist, each once, and leaves them.
pub(super) fn by_one_address(context: &Context<'_>) -> Result<()> {
    let popular = random_hash();
    for number in 0..HONEST {
        let client = context.udp(honest_v4(700 + number))?;
        complete([popular]).try_for_each(|peer| client.announce(&peer).map(drop))?;
    }
    let client = context.udp(hostile_v4(1))?;
    let mut flow = Flow::default();
    for _ in 0..context.pick(20, 200) {
        let torrents: Vec<_> = (0..1000).map(|_| random_hash()).collect();
        flow.add(announce_all(&client, complete(torrents), || context.is_over(), |_| {}));
    }
    context.spend_flow(flow);
    let counts = context.udp(honest_v4(700))?.scrape(&[popular])?[0];
    context.check(
        "completed downloads of a popular torrent",
        (counts.completed, counts.members()) == (HONEST, 0),
        format!("{} of {HONEST}", counts.completed),
    );
    let retained = retained(context)?;
    context.check(
        "retained counts",
        (1..=RETAINED_MAX).contains(&retained),
        format!("{retained} after {} announces", flow.sent),
    );
    Ok(())
}

/// Returns the announces of a client that completes each of these torrents, one after the other, and leaves it.
fn complete(torrents: impl IntoIterator<Item = [u8; 20]>) -> impl Iterator<Item = Announce> {
    torrents.into_iter().flat_map(|torrent| {
        let leecher = leecher(torrent, 7000);
        let seeder = Announce { left: 0, event: Event::Completed, ..leecher };
        [leecher, seeder, Announce { event: Event::Stopped, ..seeder }]
    })
}

/// Returns how many counts of IPv4 are retained.
fn retained(context: &Context<'_>) -> Result<u64> {
    let page = context.tracker.request_control("/metrics", crate::siege::context::TIMEOUT)?;
    let text = String::from_utf8(page.body)?;
    let values: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with("shoal_completed_retained{") && line.contains("\"v4\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    ensure!(!values.is_empty(), "the metrics have no retained counts");
    Ok(values.iter().sum())
}
