//! Events (BEP 15, "Announce": `event`; BEP 3, "Trackers").

use super::client::Client;
use super::packet::{ANNOUNCE, Announce, COMPLETED, STARTED, STOPPED, counts, word};
use super::swarm::ensure_counts;
use super::words;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-stopped-gets-a-normal-reply",
        "BEP 15, \"Announce\"",
        "An announce with event stopped gets an announce reply.",
        stopped_gets_a_normal_reply,
    )
    .with_info_hashes(2),
    Case::should(
        "udp-stopped-gets-no-peers",
        "practice: who leaves connects to nobody",
        "The reply to event stopped holds no peers, whatever is wanted.",
        stopped_gets_no_peers,
    )
    .with_info_hashes(1),
    Case::must(
        "udp-stopped-removes-the-peer",
        "BEP 3, \"Trackers\"",
        "A peer that has stopped is neither counted nor handed out any more.",
        stopped_removes_the_peer,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-stopped-creates-no-swarm",
        "practice: who leaves does not join",
        "A peer that stops without having started is not counted.",
        stopped_creates_no_swarm,
    )
    .with_info_hashes(1),
    Case::must(
        "udp-completed-makes-a-seeder",
        "BEP 3, \"Trackers\"",
        "A leecher that announces completed with left 0 is counted as a seeder.",
        |context| completed_makes_a_seeder(context, 0),
    )
    .with_info_hashes(1),
    Case::should(
        "udp-completed-makes-a-seeder-whatever-left-says",
        "practice: some clients send a stale left with completed",
        "A peer that announces completed is counted as a seeder even if its left is not 0.",
        |context| completed_makes_a_seeder(context, 1 << 20),
    )
    .with_info_hashes(1),
    Case::should(
        "udp-completed-counts-a-download",
        "BEP 15, \"Scrape\"; BEP 48, \"Tracker scrape\"",
        "Event completed raises the completed count of a scrape by one.",
        completed_counts_a_download,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-completed-counts-once",
        "practice: retransmissions and clients that repeat themselves",
        "A peer that announces completed again is no further download.",
        completed_counts_once,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-seeding-from-the-start-is-no-download",
        "BEP 3, \"Trackers\"",
        "A peer that starts with everything does not raise the completed count.",
        seeding_from_the_start_is_no_download,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-unknown-event-is-an-update",
        "BEP 15, \"Extensions\"",
        "An announce with an event that the BEP does not know is a regular one.",
        unknown_event_is_an_update,
    )
    .with_info_hashes(1),
];

fn stopped_gets_a_normal_reply(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    client.announce(&Announce::leecher(context.hash(0), 1001).with_event(STARTED))?;
    // The second torrent is one that the tracker has never heard of: after its restart every client does this.
    for hash in context.hashes(2) {
        let packet = client.announce_packet(&Announce::leecher(hash, 1001).with_event(STOPPED))?;
        let reply = client.ask(&packet)?;
        ensure(
            word(&reply, 0) == Some(ANNOUNCE) && reply.len() >= 20,
            "action 1 and at least 20 bytes",
            words::reply(&reply, context.peer_bytes()),
        )?;
    }
    Ok(())
}

fn stopped_gets_no_peers(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let reply = client.announce(&Announce::leecher(hash, 1001).with_event(STOPPED).wanting(10))?;
    ensure(reply.peers.is_empty(), "no peers", format!("{:?}", reply.peers))
}

fn stopped_removes_the_peer(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002].map(|port| Announce::leecher(hash, port)))?;
    client.announce(&Announce::seeder(hash, 1003))?;
    client.announce(&Announce::leecher(hash, 1001).with_event(STOPPED))?;
    client.announce(&Announce::seeder(hash, 1003).with_event(STOPPED))?;
    let seen = client.scrape_one(hash)?;
    ensure(
        (seen.seeders, seen.leechers) == (0, 1),
        "seeders 0, leechers 1 after a seeder and one of two leechers have stopped",
        counts(seen.seeders, seen.leechers),
    )?;
    let ports = client.announce(&Announce::leecher(hash, 1004).wanting(10))?.ports();
    ensure(
        !ports.contains(&1001) && !ports.contains(&1003),
        "not the ports 1001 and 1003, which have stopped",
        format!("{ports:?}"),
    )
}

fn stopped_creates_no_swarm(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for announce in [Announce::leecher(context.hash(0), 1001), Announce::seeder(context.hash(0), 1002)] {
        let reply = client.announce(&announce.with_event(STOPPED))?;
        ensure_counts(&reply, 0, 0, "in the reply to event stopped")?;
    }
    let seen = client.scrape_one(context.hash(0))?;
    ensure((seen.seeders, seen.leechers) == (0, 0), "an empty swarm", counts(seen.seeders, seen.leechers))
}

fn completed_makes_a_seeder(context: &Context<'_>, left: i64) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001).with_event(STARTED))?;
    client.announce(&Announce { left, ..Announce::seeder(hash, 1001) }.with_event(COMPLETED))?;
    let seen = client.scrape_one(hash)?;
    ensure(
        (seen.seeders, seen.leechers) == (1, 0),
        format!("seeders 1, leechers 0 after completed with left {left}"),
        counts(seen.seeders, seen.leechers),
    )
}

/// How much the completed count of the torrent grows when these announce.
fn downloads(context: &Context<'_>, client: &Client<'_>, announces: &[Announce]) -> Checked<i64> {
    // The torrent may have a past, where its info hash had to be listed before.
    let before = client.scrape_one(context.hash(0))?.completed;
    for announce in announces {
        client.announce(announce)?;
    }
    Ok(i64::from(client.scrape_one(context.hash(0))?.completed) - i64::from(before))
}

fn completed_counts_a_download(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
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

fn completed_counts_once(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    let completed = Announce::seeder(hash, 1001).with_event(COMPLETED);
    let life = [Announce::leecher(hash, 1001).with_event(STARTED), completed, completed, completed];
    let seen = downloads(context, &client, &life)?;
    ensure(seen <= 1, "completed 1 after one peer has said so three times", format!("completed {seen}"))
}

fn seeding_from_the_start_is_no_download(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    let life = [Announce::seeder(hash, 1001).with_event(STARTED), Announce::seeder(hash, 1001)];
    let seen = downloads(context, &client, &life)?;
    ensure(seen == 0, "completed 0 after a seeder has started", format!("completed {seen}"))
}

fn unknown_event_is_an_update(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for event in [4, 9, u32::MAX] {
        client.announce(&Announce::leecher(context.hash(0), 1001).with_event(event))?;
        let seen = client.scrape_one(context.hash(0))?;
        ensure(
            (seen.seeders, seen.leechers) == (0, 1),
            format!("seeders 0, leechers 1 after event {event}"),
            counts(seen.seeders, seen.leechers),
        )?;
    }
    Ok(())
}
