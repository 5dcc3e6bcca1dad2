//! The effect of events on a swarm.

use super::swarm::ensure_counts;
use super::{Client, Protocol};
use crate::case::{Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, COMPLETED, STARTED, STOPPED};

/// Expands to the cases whose rules and sources are the same in all protocols.
macro_rules! event_cases {
    ($protocol:literal, $marker:ty) => {
        &[
            $crate::case::Case::should(
                concat!($protocol, "-stopped-gets-no-peers"),
                "practice: a leaving peer opens no connections",
                "The reply to event stopped contains no peers, whatever numwant is.",
                $crate::rules::event::stopped_gets_no_peers::<$marker>,
            ),
            $crate::case::Case::must(
                concat!($protocol, "-stopped-removes-the-peer"),
                "BEP 3, \"Trackers\"",
                "A peer that has stopped is no longer counted or handed out.",
                $crate::rules::event::stopped_removes_the_peer::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-stopped-creates-no-swarm"),
                "practice: a leaving peer does not join",
                "A peer that stops without having started is not counted.",
                $crate::rules::event::stopped_creates_no_swarm::<$marker>,
            ),
            $crate::case::Case::must(
                concat!($protocol, "-completed-makes-a-seeder"),
                "BEP 3, \"Trackers\"",
                "A leecher that announces completed with left 0 is counted as a seeder.",
                |context| $crate::rules::event::completed_makes_a_seeder::<$marker>(context, 0),
            ),
            $crate::case::Case::should(
                concat!($protocol, "-completed-makes-a-seeder-whatever-left-says"),
                "practice: some clients send a stale left with completed",
                "A peer that announces completed is counted as a seeder even if its left is not 0.",
                |context| $crate::rules::event::completed_makes_a_seeder::<$marker>(context, 1 << 20),
            ),
            $crate::case::Case::should(
                concat!($protocol, "-completed-counts-once"),
                "practice: retransmissions and clients that repeat themselves",
                "A peer that announces completed again does not count as another download.",
                $crate::rules::event::completed_counts_once::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-seeding-from-the-start-is-no-download"),
                "BEP 3, \"Trackers\"",
                "A peer that starts with everything does not raise the completed count, even if it announces completed.",
                $crate::rules::event::seeding_from_the_start_is_no_download::<$marker>,
            ),
        ]
    };
}
pub(crate) use event_cases;

pub(crate) fn stopped_gets_a_normal_reply<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    client.announce(&Announce::leecher(context.hash(0), 1001).with_event(STARTED))?;
    // The tracker does not know the second torrent: after its restart, every client does this.
    for hash in context.hashes(2) {
        client.announce(&Announce::leecher(hash, 1001).with_event(STOPPED))?;
    }
    Ok(())
}

pub(crate) fn stopped_gets_no_peers<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let reply = client.announce(&Announce::leecher(hash, 1001).with_event(STOPPED).wanting(10))?;
    ensure(reply.peers.is_empty(), "no peers", format!("{:?}", reply.peers))
}

pub(crate) fn stopped_removes_the_peer<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002].map(|port| Announce::leecher(hash, port)))?;
    client.announce(&Announce::seeder(hash, 1003))?;
    client.announce(&Announce::leecher(hash, 1001).with_event(STOPPED))?;
    client.announce(&Announce::seeder(hash, 1003).with_event(STOPPED))?;
    client.ensure_scraped(
        hash,
        0,
        1,
        "seeders 0, leechers 1 after a seeder and one of two leechers have stopped",
    )?;
    let ports = client.announce(&Announce::leecher(hash, 1004).wanting(10))?.ports();
    ensure(
        !ports.contains(&1001) && !ports.contains(&1003),
        "not the ports 1001 and 1003, which have stopped",
        format!("{ports:?}"),
    )
}

pub(crate) fn stopped_creates_no_swarm<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    for announce in [Announce::leecher(context.hash(0), 1001), Announce::seeder(context.hash(0), 1002)] {
        let reply = client.announce(&announce.with_event(STOPPED))?;
        ensure_counts(&reply, 0, 0, "in the reply to event stopped")?;
    }
    client.ensure_scraped(context.hash(0), 0, 0, "an empty swarm")
}

pub(crate) fn completed_makes_a_seeder<P: Protocol>(context: &Context<'_>, left: i64) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001).with_event(STARTED))?;
    client.announce(&Announce { left, ..Announce::seeder(hash, 1001) }.with_event(COMPLETED))?;
    client.ensure_scraped(hash, 1, 0, format!("seeders 1, leechers 0 after completed with left {left}"))
}

/// Returns by how much these announces increase the completed count of the torrent.
fn downloads(context: &Context<'_>, client: &impl Client, announces: &[Announce]) -> Checked<i64> {
    // The torrent may have earlier downloads, if its info hash had to be listed.
    let before = client.scrape_one(context.hash(0))?.completed;
    for announce in announces {
        client.announce(announce)?;
    }
    Ok(i64::from(client.scrape_one(context.hash(0))?.completed) - i64::from(before))
}

pub(crate) fn completed_counts_a_download<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    let life = |port| {
        [
            Announce::leecher(hash, port).with_event(STARTED),
            Announce::seeder(hash, port).with_event(COMPLETED),
        ]
    };
    let seen = downloads(context, &client, &[life(1001), life(1002)].concat())?;
    ensure(seen >= 2, "completed 2 after two peers have completed", format!("completed {seen}"))
}

pub(crate) fn completed_counts_once<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    let completed = Announce::seeder(hash, 1001).with_event(COMPLETED);
    let life = [Announce::leecher(hash, 1001).with_event(STARTED), completed, completed, completed];
    let seen = downloads(context, &client, &life)?;
    ensure(seen <= 1, "completed 1 after one peer has said so three times", format!("completed {seen}"))
}

pub(crate) fn seeding_from_the_start_is_no_download<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    let seeder = Announce::seeder(hash, 1001);
    let life = [seeder.with_event(STARTED), seeder, seeder.with_event(COMPLETED), seeder];
    let seen = downloads(context, &client, &life)?;
    ensure(
        seen == 0,
        "completed 0 after a seeder has started and has announced completed",
        format!("completed {seen}"),
    )
}
