//! Which peers are counted, and which are handed out.

use std::collections::BTreeSet;

use super::{Client, Protocol};
use crate::case::{Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, Announced, STARTED, counts};

/// The number of announces after which each peer of a small swarm has been handed out, unless it never is.
const ROUNDS: usize = 20;

/// Expands to the cases whose rules and sources are the same in all protocols.
macro_rules! swarm_cases {
    ($protocol:literal, $marker:ty) => {
        &[
            $crate::case::Case::should(
                concat!($protocol, "-counts-include-the-announcer"),
                "practice: clients show these counts as the size of the swarm",
                "The counts in an announce reply include the announcer.",
                $crate::rules::swarm::include_the_announcer::<$marker>,
            )
            .with_info_hashes(2),
            $crate::case::Case::must(
                concat!($protocol, "-second-announce-counts-once"),
                "BEP 3, \"Trackers\"",
                "A peer that announces again at its interval is still one peer.",
                $crate::rules::swarm::second_announce_counts_once::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-announcer-is-not-handed-to-itself"),
                "practice: a client need not connect to itself",
                "No reply contains the peer that announced.",
                $crate::rules::swarm::is_not_handed_to_itself::<$marker>,
            ),
            $crate::case::Case::must(
                concat!($protocol, "-leecher-is-handed-seeders-and-leechers"),
                "BEP 3, \"Trackers\"",
                "A leecher is handed the seeders and the other leechers of its torrent.",
                $crate::rules::swarm::leecher_is_handed_both::<$marker>,
            ),
            $crate::case::Case::must(
                concat!($protocol, "-seeder-is-handed-leechers"),
                "BEP 3, \"Trackers\"",
                "A seeder is handed the leechers of its torrent.",
                $crate::rules::swarm::seeder_is_handed_leechers::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-seeder-is-not-handed-seeders"),
                "practice: two seeders have nothing for each other",
                "A seeder is handed no other seeder.",
                $crate::rules::swarm::seeder_is_not_handed_seeders::<$marker>,
            ),
            $crate::case::Case::must(
                concat!($protocol, "-leecher-turns-seeder"),
                "BEP 3, \"Trackers\"",
                "A leecher that announces with left 0 is counted as a seeder, and no longer as a leecher.",
                $crate::rules::swarm::leecher_turns_seeder::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-seeder-turns-leecher"),
                "practice: a user may select more files of a torrent",
                "A seeder that announces with something left is counted as a leecher, and no longer as a seeder.",
                $crate::rules::swarm::seeder_turns_leecher::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-reply-has-no-duplicates"),
                "practice: a duplicate takes the place of another peer",
                "No reply contains a peer twice.",
                $crate::rules::swarm::has_no_duplicates::<$marker>,
            ),
            $crate::case::Case::should(
                concat!($protocol, "-every-peer-is-handed-out"),
                "practice: a leecher is offered a random mix, in which every peer is equally likely",
                "In a swarm that is larger than numwant, every peer is handed out sooner or later.",
                $crate::rules::swarm::every_peer_is_handed_out::<$marker>,
            ),
        ]
    };
}
pub(crate) use swarm_cases;

pub(crate) fn ensure_counts(reply: &Announced, seeders: u32, leechers: u32, when: &str) -> Checked {
    ensure(
        (reply.seeders, reply.leechers) == (seeders, leechers),
        format!("{} {when}", counts(seeders, leechers)),
        reply.counts(),
    )
}

pub(crate) fn include_the_announcer<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let first = client.announce(&Announce::leecher(context.hash(0), 1001).with_event(STARTED))?;
    ensure_counts(&first, 0, 1, "for the first leecher")?;
    let first = client.announce(&Announce::seeder(context.hash(1), 1001).with_event(STARTED))?;
    ensure_counts(&first, 1, 0, "for the first seeder")
}

pub(crate) fn second_announce_counts_once<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001).with_event(STARTED))?;
    client.announce(&Announce::seeder(hash, 1002).with_event(STARTED))?;
    for _ in 0..3 {
        client.announce(&Announce::leecher(hash, 1001))?;
        client.announce(&Announce::seeder(hash, 1002))?;
    }
    client.ensure_scraped(hash, 1, 1, "one seeder and one leecher after four announces of each")
}

pub(crate) fn is_not_handed_to_itself<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    for reply in client.announce_all(&[Announce::leecher(hash, 1001).wanting(10); ROUNDS])? {
        let ports = reply.ports();
        ensure(!ports.contains(&1001), "peers other than the announcer at port 1001", format!("{ports:?}"))?;
    }
    Ok(())
}

/// Announces two seeders at ports 1001 and 1002, and three leechers at 1011 to 1013.
fn mixed_swarm(client: &impl Client, hash: [u8; 20]) -> Checked {
    client.announce_all(&[1001, 1002].map(|port| Announce::seeder(hash, port)))?;
    client.announce_all(&[1011, 1012, 1013].map(|port| Announce::leecher(hash, port)))?;
    Ok(())
}

/// Returns the ports that occur in the replies to many announces.
fn handed_out(client: &impl Client, announce: Announce) -> Checked<BTreeSet<u16>> {
    let replies = client.announce_all(&[announce; ROUNDS])?;
    Ok(replies.iter().flat_map(Announced::ports).collect())
}

pub(crate) fn leecher_is_handed_both<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    mixed_swarm(&client, context.hash(0))?;
    let ports = handed_out(&client, Announce::leecher(context.hash(0), 1014))?;
    let others = [1001, 1002, 1011, 1012, 1013];
    ensure(
        others.iter().all(|port| ports.contains(port)),
        format!("the ports {others:?} in the replies to {ROUNDS} announces of a leecher"),
        format!("{ports:?}"),
    )
}

pub(crate) fn seeder_is_handed_leechers<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    mixed_swarm(&client, context.hash(0))?;
    let ports = handed_out(&client, Announce::seeder(context.hash(0), 1003))?;
    ensure(
        [1011, 1012, 1013].iter().all(|port| ports.contains(port)),
        format!("the leechers at 1011, 1012 and 1013 in the replies to {ROUNDS} announces of a seeder"),
        format!("{ports:?}"),
    )
}

pub(crate) fn seeder_is_not_handed_seeders<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    mixed_swarm(&client, context.hash(0))?;
    let ports = handed_out(&client, Announce::seeder(context.hash(0), 1003))?;
    ensure(
        [1001, 1002].iter().all(|port| !ports.contains(port)),
        "not the seeders at 1001 and 1002 in the replies to a seeder",
        format!("{ports:?}"),
    )
}

pub(crate) fn leecher_turns_seeder<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    client.announce(&Announce::seeder(hash, 1001))?;
    client.ensure_scraped(hash, 1, 0, "seeders 1, leechers 0 after left 0")
}

pub(crate) fn seeder_turns_leecher<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::seeder(hash, 1001))?;
    client.announce(&Announce::leecher(hash, 1001))?;
    client.ensure_scraped(hash, 0, 1, "seeders 0, leechers 1 after left is not 0 again")
}

pub(crate) fn info_hashes_are_independent<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let (one, other) = (context.hash(0), context.hash(1));
    client.announce_all(&[1001, 1002].map(|port| Announce::leecher(one, port)))?;
    let reply = client.announce(&Announce::seeder(other, 1003).wanting(10))?;
    // Another rule forbids handing a peer to itself.
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

pub(crate) fn has_no_duplicates<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
    let hash = context.hash(0);
    let announces: Vec<Announce> = (1001..=1030).map(|port| Announce::leecher(hash, port)).collect();
    client.announce_all(&announces)?;
    for numwant in [2, 10, 29, 100] {
        for reply in client.announce_all(&[Announce::leecher(hash, 1001).wanting(numwant); ROUNDS])? {
            let ports = reply.ports();
            let distinct = ports.iter().collect::<BTreeSet<_>>().len();
            ensure(
                distinct == ports.len(),
                format!("each peer once for numwant {numwant}"),
                format!("the ports {ports:?}"),
            )?;
        }
    }
    Ok(())
}

/// Requests five of 29 peers 200 times: the chance to miss one of them is 10^-15.
pub(crate) fn every_peer_is_handed_out<P: Protocol>(context: &Context<'_>) -> Checked {
    let client = P::client(context)?;
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
