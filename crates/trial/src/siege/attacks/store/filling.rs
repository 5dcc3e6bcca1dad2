//! Attacks that fill the store.

use std::net::IpAddr;

use anyhow::Result;

use crate::siege::address::{honest_v4, honest_v6, hostile_v4};
use crate::siege::context::Context;
use crate::siege::udp::{Flow, announce_all, leecher, random_hash};

/// The number of honest clients of each family that announce at the end, and of new torrents of each.
const CLIENTS: u32 = 40;
const TORRENTS: u32 = 3;

/// Announces new torrents from each of the `sources`.
pub(super) fn fill(context: &Context<'_>, sources: &[IpAddr]) -> Result<()> {
    let count: u32 = context.pick(260_000, 1_400_000);
    let share = count / u32::try_from(sources.len())?;
    let mut flow = Flow::default();
    for &source in sources {
        let client = context.udp(source)?;
        let peers = (0..share).map(|_| leecher(random_hash(), 7000));
        flow.add(announce_all(&client, peers, || context.is_over(), |_| {}));
    }
    context.spend_flow(flow);
    check_new_torrents(context, &flow);
    Ok(())
}

/// Announces all ports of one address in a few torrents.
pub(super) fn fill_known(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(1))?;
    let mut flow = Flow::default();
    for torrent in 0..context.pick(16, 64) {
        let peers = (1..=u16::MAX).map(|port| leecher([torrent; 20], port));
        flow.add(announce_all(&client, peers, || context.is_over(), |_| {}));
    }
    context.spend_flow(flow);
    check_new_torrents(context, &flow);
    Ok(())
}

/// Checks that clients at other addresses can announce new torrents.
pub(super) fn check_new_torrents(context: &Context<'_>, flow: &Flow) {
    let (mut refused, mut reason) = (0, String::new());
    for number in 0..CLIENTS {
        for source in [honest_v4(300 + number), honest_v6(300 + number)] {
            let announced = context.udp(source).and_then(|client| {
                let mut new = (0..TORRENTS).map(|_| leecher(random_hash(), 7001));
                new.try_for_each(|peer| client.announce(&peer).map(drop))
            });
            if let Err(error) = announced {
                refused += 1;
                reason = format!("{error:#}");
            }
        }
    }
    let hostile = format!("after {} hostile announces with {} errors", flow.sent, flow.errors);
    let found = format!("{refused} of {} refused {hostile} {reason}", CLIENTS * 2);
    context.check("new torrents of other clients", refused == 0, found.trim_end());
}
