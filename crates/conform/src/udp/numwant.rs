//! How many peers a client wants (BEP 15, "Announce": `num_want`).

use super::client::Client;
use super::packet::Announce;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-numwant-default-gives-peers",
        "BEP 15, \"Announce\"",
        "A num_want of -1 stands for the default of the tracker, which is some peers.",
        |context| gives_peers(context, -1),
    )
    .with_info_hashes(1),
    Case::should(
        "udp-numwant-negative-is-the-default",
        "practice: any negative number is read as -1",
        "A num_want below -1 gives some peers, too.",
        |context| gives_peers(context, i32::MIN).and_then(|()| gives_peers(context, -2)),
    )
    .with_info_hashes(1),
    Case::must(
        "udp-numwant-huge-gives-peers",
        "practice: clients ask for hundreds, and take what they get",
        "A num_want beyond the cap of the tracker gives peers up to the cap, not an error.",
        |context| gives_peers(context, i32::MAX).and_then(|()| gives_peers(context, 1000)),
    )
    .with_info_hashes(1),
    Case::should(
        "udp-numwant-0-gives-none",
        "practice: a client that only reports wants nobody",
        "A num_want of 0 gives no peers.",
        |context| gives_exactly(context, &[0]),
    )
    .with_info_hashes(1),
    Case::should(
        "udp-numwant-is-kept",
        "practice: a tracker is known that hands out 0 for 1, and 2 for 3",
        "A small num_want gives exactly so many peers, where there are more.",
        |context| gives_exactly(context, &[1, 2, 3, 10]),
    )
    .with_info_hashes(1),
];

/// A swarm of 20 leechers.
fn swarm<'c>(context: &'c Context<'c>) -> Checked<Client<'c>> {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    let announces: Vec<Announce> = (1001..=1020).map(|port| Announce::leecher(hash, port)).collect();
    client.announce_all(&announces)?;
    Ok(client)
}

fn gives_peers(context: &Context<'_>, numwant: i32) -> Checked {
    let client = swarm(context)?;
    let reply = client.announce(&Announce::leecher(context.hash(0), 1001).wanting(numwant))?;
    ensure(
        !reply.peers.is_empty(),
        format!("peers to numwant {numwant} in a swarm of 20"),
        format!("no peer, {}", reply.counts()),
    )
}

/// Tells all the numbers at once: which are off is what finds the fault.
fn gives_exactly(context: &Context<'_>, numwants: &[i32]) -> Checked {
    let client = swarm(context)?;
    let mut seen = Vec::new();
    for &numwant in numwants {
        for announcer in [Announce::leecher, Announce::seeder] {
            let reply = client.announce(&announcer(context.hash(0), 1001).wanting(numwant))?;
            seen.push((numwant, reply.peers.len()));
        }
    }
    let is_kept = seen.iter().all(|&(numwant, peers)| usize::try_from(numwant) == Ok(peers));
    let told: Vec<String> =
        seen.iter().map(|(numwant, peers)| format!("{peers} to numwant {numwant}")).collect();
    ensure(is_kept, "as many peers as are wanted, to a leecher and to a seeder", told.join(", "))
}
