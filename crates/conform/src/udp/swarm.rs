//! Who is counted, and who is handed to whom (BEP 3, "Trackers"; BEP 15, "Announce").

use std::collections::BTreeSet;

use super::client::Client;
use super::packet::{Announce, Announced, STARTED, counts};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

/// Announces after which each of few peers has been handed out, unless it never is.
const ROUNDS: usize = 20;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "udp-counts-include-the-announcer",
        "practice: a client shows what it is told as the size of the swarm",
        "The counts in an announce reply include the announcer.",
        include_the_announcer,
    )
    .with_info_hashes(2),
    Case::must(
        "udp-second-announce-counts-once",
        "BEP 3, \"Trackers\"",
        "A peer that announces again at its interval is still one peer.",
        second_announce_counts_once,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-announcer-is-not-handed-to-itself",
        "practice: a client need not connect to itself",
        "No reply holds the peer that asked.",
        is_not_handed_to_itself,
    )
    .with_info_hashes(1),
    Case::must(
        "udp-leecher-is-handed-seeders-and-leechers",
        "BEP 3, \"Trackers\"",
        "A leecher is handed the seeders and the other leechers of its torrent.",
        leecher_is_handed_both,
    )
    .with_info_hashes(1),
    Case::must(
        "udp-seeder-is-handed-leechers",
        "BEP 3, \"Trackers\"",
        "A seeder is handed the leechers of its torrent.",
        seeder_is_handed_leechers,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-seeder-is-not-handed-seeders",
        "practice: two seeders have nothing for each other",
        "A seeder is handed no other seeder.",
        seeder_is_not_handed_seeders,
    )
    .with_info_hashes(1),
    Case::must(
        "udp-leecher-turns-seeder",
        "BEP 3, \"Trackers\"",
        "A leecher that announces with left 0 is counted as a seeder, and no longer as a leecher.",
        leecher_turns_seeder,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-seeder-turns-leecher",
        "practice: a user may select more files of a torrent",
        "A seeder that announces with something left is counted as a leecher, and no longer as a seeder.",
        seeder_turns_leecher,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-unknown-left-is-a-leecher",
        "practice: clients with only a magnet link send huge or negative values",
        "A left that is huge or negative makes a leecher.",
        unknown_left_is_a_leecher,
    )
    .with_info_hashes(1),
    Case::must(
        "udp-info-hashes-are-independent",
        "BEP 15, \"Announce\"",
        "Peers and counts of one info hash do not show in another.",
        info_hashes_are_independent,
    )
    .with_info_hashes(2),
    Case::should(
        "udp-reply-has-no-duplicates",
        "practice: the same peer twice takes the place of another",
        "No reply holds a peer twice.",
        has_no_duplicates,
    )
    .with_info_hashes(1),
    Case::should(
        "udp-every-peer-is-handed-out",
        "practice: a leecher is offered a random mix, in which every peer is equally likely",
        "Of a swarm that is larger than what is wanted, every peer is handed out sooner or later.",
        every_peer_is_handed_out,
    )
    .with_info_hashes(1),
];

/// Ends the case unless the reply has these counts.
pub(super) fn ensure_counts(reply: &Announced, seeders: u32, leechers: u32, when: &str) -> Checked {
    ensure(
        (reply.seeders, reply.leechers) == (seeders, leechers),
        format!("{} {when}", counts(seeders, leechers)),
        reply.counts(),
    )
}

fn include_the_announcer(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let first = client.announce(&Announce::leecher(context.hash(0), 1001).with_event(STARTED))?;
    ensure_counts(&first, 0, 1, "for the first leecher")?;
    let first = client.announce(&Announce::seeder(context.hash(1), 1001).with_event(STARTED))?;
    ensure_counts(&first, 1, 0, "for the first seeder")
}

fn second_announce_counts_once(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001).with_event(STARTED))?;
    client.announce(&Announce::seeder(hash, 1002).with_event(STARTED))?;
    for _ in 0..3 {
        client.announce(&Announce::leecher(hash, 1001))?;
        client.announce(&Announce::seeder(hash, 1002))?;
    }
    let seen = client.scrape_one(hash)?;
    ensure(
        (seen.seeders, seen.leechers) == (1, 1),
        "one seeder and one leecher, each of which announced four times",
        counts(seen.seeders, seen.leechers),
    )
}

fn is_not_handed_to_itself(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    for reply in client.announce_all(&[Announce::leecher(hash, 1001).wanting(10); ROUNDS])? {
        let ports = reply.ports();
        ensure(!ports.contains(&1001), "peers other than the announcer at port 1001", format!("{ports:?}"))?;
    }
    Ok(())
}

/// Two seeders at 1001 and 1002, three leechers at 1011 to 1013.
fn mixed_swarm(client: &Client<'_>, hash: [u8; 20]) -> Checked {
    client.announce_all(&[1001, 1002].map(|port| Announce::seeder(hash, port)))?;
    client.announce_all(&[1011, 1012, 1013].map(|port| Announce::leecher(hash, port)))?;
    Ok(())
}

/// The ports that turn up in the replies to many announces.
fn handed_out(client: &Client<'_>, announce: Announce) -> Checked<BTreeSet<u16>> {
    let replies = client.announce_all(&[announce; ROUNDS])?;
    Ok(replies.iter().flat_map(Announced::ports).collect())
}

fn leecher_is_handed_both(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    mixed_swarm(&client, context.hash(0))?;
    let ports = handed_out(&client, Announce::leecher(context.hash(0), 1014))?;
    let others = [1001, 1002, 1011, 1012, 1013];
    ensure(
        others.iter().all(|port| ports.contains(port)),
        format!("the ports {others:?} in the replies to {ROUNDS} announces of a leecher"),
        format!("{ports:?}"),
    )
}

fn seeder_is_handed_leechers(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    mixed_swarm(&client, context.hash(0))?;
    let ports = handed_out(&client, Announce::seeder(context.hash(0), 1003))?;
    ensure(
        [1011, 1012, 1013].iter().all(|port| ports.contains(port)),
        format!("the leechers at 1011, 1012 and 1013 in the replies to {ROUNDS} announces of a seeder"),
        format!("{ports:?}"),
    )
}

fn seeder_is_not_handed_seeders(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    mixed_swarm(&client, context.hash(0))?;
    let ports = handed_out(&client, Announce::seeder(context.hash(0), 1003))?;
    ensure(
        [1001, 1002].iter().all(|port| !ports.contains(port)),
        "not the seeders at 1001 and 1002 in the replies to a seeder",
        format!("{ports:?}"),
    )
}

fn leecher_turns_seeder(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    client.announce(&Announce::seeder(hash, 1001))?;
    let seen = client.scrape_one(hash)?;
    ensure(
        (seen.seeders, seen.leechers) == (1, 0),
        "seeders 1, leechers 0 after left 0",
        counts(seen.seeders, seen.leechers),
    )
}

fn seeder_turns_leecher(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::seeder(hash, 1001))?;
    client.announce(&Announce::leecher(hash, 1001))?;
    let seen = client.scrape_one(hash)?;
    ensure(
        (seen.seeders, seen.leechers) == (0, 1),
        "seeders 0, leechers 1 after something was left again",
        counts(seen.seeders, seen.leechers),
    )
}

fn unknown_left_is_a_leecher(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    for (port, left) in (1001..).zip([-1, i64::MAX, i64::MIN]) {
        client.announce(&Announce { left, ..Announce::leecher(hash, port) })?;
        let seen = client.scrape_one(hash)?;
        ensure(
            seen.seeders == 0 && seen.leechers == u32::from(port - 1000),
            format!("seeders 0, leechers {} after left {left}", port - 1000),
            counts(seen.seeders, seen.leechers),
        )?;
    }
    Ok(())
}

fn info_hashes_are_independent(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let (one, other) = (context.hash(0), context.hash(1));
    client.announce_all(&[1001, 1002].map(|port| Announce::leecher(one, port)))?;
    let reply = client.announce(&Announce::seeder(other, 1003).wanting(10))?;
    // That nobody is handed to itself is another rule.
    let mut ports = reply.ports();
    ports.retain(|&port| port != 1003);
    ensure(
        ports.is_empty() && reply.leechers == 0,
        "no peer of another torrent",
        format!("the ports {ports:?}, {}", reply.counts()),
    )?;
    let seen = client.scrape(&[one, other])?;
    let seen: Vec<(u32, u32)> = seen.iter().map(|counts| (counts.seeders, counts.leechers)).collect();
    ensure(
        seen == [(0, 2), (1, 0)],
        "(seeders, leechers) of the two torrents: [(0, 2), (1, 0)]",
        format!("{seen:?}"),
    )
}

fn has_no_duplicates(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    let announces: Vec<Announce> = (1001..=1030).map(|port| Announce::leecher(hash, port)).collect();
    client.announce_all(&announces)?;
    for numwant in [2, 10, 29, 100] {
        for reply in client.announce_all(&[Announce::leecher(hash, 1001).wanting(numwant); ROUNDS])? {
            let ports = reply.ports();
            let distinct = ports.iter().collect::<BTreeSet<_>>().len();
            ensure(
                distinct == ports.len(),
                format!("each peer once to numwant {numwant}"),
                format!("the ports {ports:?}"),
            )?;
        }
    }
    Ok(())
}

/// Five of 29 peers in each of 200 replies: that one of them is missed by chance happens once in 10^15 times.
fn every_peer_is_handed_out(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    let announces: Vec<Announce> = (1001..=1030).map(|port| Announce::leecher(hash, port)).collect();
    client.announce_all(&announces)?;
    let replies = client.announce_all(&[Announce::leecher(hash, 1030).wanting(5); 200])?;
    let ports: BTreeSet<u16> = replies.iter().flat_map(Announced::ports).collect();
    let missed: Vec<u16> = (1001..1030).filter(|port| !ports.contains(port)).collect();
    ensure(
        missed.is_empty(),
        "each of 29 peers in some of 200 replies of 5",
        format!("never the ports {missed:?}"),
    )
}
