//! Attacks on the limits of what a source may hold.

use anyhow::Result;

use super::filling::check_new_torrents;
use crate::siege::address::{hostile_v4, hostile_v6};
use crate::siege::context::Context;
use crate::siege::udp::{Flow, announce_all, leecher, random_hash};

/// The limits that the attacks are aimed at. Honest clients hold far less.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("limits.peers_per_source_max", "5000"),
    ("limits.torrents_per_source_max", "5000"),
    ("limits.refuse_excess", "true"),
];

/// The number of peers that one source may have.
const PEERS_MAX: usize = 5000;

/// Number of torrents of an attacker whose swarms are examined.
const EXAMINED: usize = 200;

/// Announces as many torrents as it can from one address, over and over, and checks how many are stored.
pub(super) fn one_address(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(1))?;
    let torrents: Vec<[u8; 20]> = (0..context.pick(20_000, 200_000)).map(|_| random_hash()).collect();
    let mut flow = Flow::default();
    // A second round, since a peer that is refused might be let in when it asks again.
    for _ in 0..2 {
        let peers = torrents.iter().map(|torrent| leecher(*torrent, 7000));
        flow.add(announce_all(&client, peers, || context.is_over(), |_| {}));
    }
    context.spend_flow(flow);
    client.connect()?;
    let count = |torrents: &[[u8; 20]]| -> Result<u32> {
        let step = (torrents.len() / EXAMINED).max(1);
        torrents.iter().step_by(step).map(|torrent| Ok(client.scrape(&[*torrent])?[0].members())).sum()
    };
    let (within, beyond) = (count(&torrents[..PEERS_MAX / 2])?, count(&torrents[PEERS_MAX * 2..])?);
    context.check(
        "peers of the source",
        within > 0 && beyond == 0,
        format!("{within} of {EXAMINED} examined torrents within the limit are stored, {beyond} beyond it"),
    );
    check_new_torrents(context, &flow);
    Ok(())
}

/// Announces a few torrents from each of very many sources, so that they share counters with honest clients.
pub(super) fn many_sources(context: &Context<'_>) -> Result<()> {
    let mut flow = Flow::default();
    for number in 0..context.pick(500, 5000) {
        for source in [hostile_v4(number), hostile_v6(number)] {
            if context.is_over() {
                break;
            }
            let client = context.udp(source)?;
            let peers = (0..4).map(|_| leecher(random_hash(), 7000));
            flow.add(announce_all(&client, peers, || context.is_over(), |_| {}));
        }
    }
    context.spend_flow(flow);
    check_new_torrents(context, &flow);
    Ok(())
}
