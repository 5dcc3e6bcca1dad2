//! Events (BEP 3, "Trackers": `event`).

use super::message::{Fields, offer, offer_id};
use super::socket::{Socket, offers};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-stopped-removes-the-peer",
        "BEP 3, \"Trackers\"",
        "A peer that has stopped is no longer counted or sent offers.",
        stopped_removes,
    ),
    Case::should(
        "ws-stopped-gets-a-normal-reply",
        "BEP 3, \"Trackers\"",
        "An announce with event stopped gets an announce reply.",
        stopped_gets_a_reply,
    )
    .with_info_hashes(2),
    Case::should(
        "ws-stopped-creates-no-swarm",
        "practice: a leaving peer does not join",
        "A peer that stops without having started is not counted.",
        stopped_creates_no_swarm,
    ),
    Case::should(
        "ws-stopped-relays-no-offers",
        "practice: a leaving peer opens no connections",
        "The offers of a peer that stops are not relayed.",
        stopped_relays_no_offers,
    ),
    Case::must(
        "ws-completed-makes-a-seeder",
        "BEP 3, \"Trackers\"",
        "A leecher that announces completed with left 0 is counted as a seeder.",
        |context| completed_makes_a_seeder(context, |fields| fields.with("left", "0")),
    ),
    Case::should(
        "ws-completed-makes-a-seeder-whatever-left-says",
        "practice: some clients send a stale left with completed, or none",
        "A peer that announces completed is counted as a seeder even if its left is absent or not 0.",
        |context| {
            completed_makes_a_seeder(context, |fields| fields)?;
            completed_makes_a_seeder(context, |fields| fields.without("left"))
        },
    ),
    Case::should(
        "ws-completed-counts-a-download",
        "BEP 48, \"Tracker scrape\"",
        "Event completed raises the downloaded count of a scrape by one.",
        |context| downloads(context, &[1, 2], &["started", "completed"], 2..=2),
    ),
    Case::should(
        "ws-completed-counts-once",
        "practice: clients that repeat themselves",
        "A peer that announces completed again does not count as another download.",
        |context| downloads(context, &[1], &["started", "completed", "completed", "completed"], 0..=1),
    ),
    Case::should(
        "ws-seeding-from-the-start-is-no-download",
        "BEP 3, \"Trackers\"",
        "A peer that starts with everything does not raise the downloaded count, even if it announces completed.",
        seeding_is_no_download,
    ),
    Case::must(
        "ws-event-may-be-absent",
        "BEP 3, \"Trackers\"",
        "An announce without event is a regular one.",
        |context| is_an_update(context, &[None]),
    ),
    Case::should(
        "ws-unknown-event-is-an-update",
        "BEP 21, \"Tracker\", for paused; practice: clients write various values for no event",
        "An announce with an event that is paused, empty, null or unknown is a regular one.",
        |context| {
            is_an_update(context, &["\"update\"", "\"paused\"", "\"\"", "null", "\"<regular>\""].map(Some))
        },
    ),
];

fn stopped_removes(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 3)?;
    let hash = context.hash(0);
    for (peer, socket) in (1..).zip(&mut sockets) {
        socket.announce(&Fields::announce(hash, peer))?;
    }
    // Another rule requires a reply; requests on one socket are processed in order.
    sockets[0].send_text(&Fields::announce(hash, 1).with_event("stopped").text());
    sockets[0].ensure_counts(hash, 0, 2)?;
    let all = [1, 2, 3].map(|number| offer(&offer_id(number), "x"));
    sockets[2].announce(&Fields::announce(hash, 3).offering(&all))?;
    let found = offers(&mut sockets, 1)?;
    let found: Vec<usize> = found.iter().map(Vec::len).collect();
    ensure(found == [0, 1, 0], "an offer for the second peer only", format!("offers {found:?}"))
}

fn stopped_gets_a_reply(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    socket.announce(&Fields::announce(context.hash(0), 1))?;
    // The tracker does not know the second torrent: after its restart, every client does this.
    for hash in context.hashes(2) {
        socket.announce(&Fields::announce(hash, 1).with_event("stopped"))?;
    }
    Ok(())
}

fn stopped_creates_no_swarm(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    for fields in [Fields::announce(hash, 1), Fields::seeder(hash, 2)] {
        socket.send_text(&fields.with_event("stopped").text());
        socket.ensure_counts(hash, 0, 0)?;
    }
    Ok(())
}

fn stopped_relays_no_offers(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 2)?;
    let hash = context.hash(0);
    sockets[0].announce(&Fields::announce(hash, 1))?;
    sockets[1].announce(&Fields::announce(hash, 2))?;
    let fields = Fields::announce(hash, 2).offering(&[offer(&offer_id(1), "x")]);
    sockets[1].send_text(&fields.with_event("stopped").text());
    sockets[1].ensure_counts(hash, 0, 1)?;
    let found = offers(&mut sockets, 0)?;
    ensure(found.iter().all(Vec::is_empty), "no offer", format!("{} offers", found.concat().len()))
}

fn completed_makes_a_seeder(context: &Context<'_>, edit: impl Fn(Fields) -> Fields) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    socket.announce(&Fields::announce(hash, 1).with_event("started"))?;
    socket.announce(&edit(Fields::announce(hash, 1)).with_event("completed"))?;
    socket.ensure_counts(hash, 1, 0)?;
    socket.send_text(&Fields::announce(hash, 1).with_event("stopped").text());
    socket.ensure_counts(hash, 0, 0)
}

fn downloaded(socket: &mut Socket<'_>, hash: [u8; 20]) -> Checked<i64> {
    let file = socket.scrape_one(hash)?;
    Ok(file.get("downloaded").and_then(serde_json::Value::as_i64).unwrap_or_default())
}

fn downloads(
    context: &Context<'_>,
    peers: &[u16],
    events: &[&str],
    expected: std::ops::RangeInclusive<i64>,
) -> Checked {
    let mut sockets = Socket::open_many(context, peers.len())?;
    let hash = context.hash(0);
    // The torrent may have earlier downloads, if its info hash had to be listed.
    let before = downloaded(&mut sockets[0], hash)?;
    for (&peer, socket) in peers.iter().zip(&mut sockets) {
        for &event in events {
            let fields = Fields::announce(hash, peer).with_event(event);
            socket.announce(&if event == "completed" { fields.with("left", "0") } else { fields })?;
        }
    }
    let seen = downloaded(&mut sockets[0], hash)? - before;
    ensure(expected.contains(&seen), format!("downloaded {expected:?}"), format!("downloaded {seen}"))
}

fn seeding_is_no_download(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    let before = downloaded(&mut socket, hash)?;
    socket.announce(&Fields::seeder(hash, 1).with_event("started"))?;
    socket.announce(&Fields::seeder(hash, 1))?;
    socket.announce(&Fields::seeder(hash, 1).with_event("completed"))?;
    let seen = downloaded(&mut socket, hash)? - before;
    ensure(
        seen == 0,
        "downloaded 0 after a seeder has started and has announced completed",
        format!("downloaded {seen}"),
    )
}

fn is_an_update(context: &Context<'_>, events: &[Option<&str>]) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    for event in events {
        let fields = Fields::announce(hash, 1);
        socket
            .announce(&event.map_or_else(|| fields.clone(), |event| fields.clone().with("event", event)))?;
        socket.ensure_counts(hash, 0, 1)?;
    }
    Ok(())
}
