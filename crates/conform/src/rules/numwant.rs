//! How many peers a client wants.

use super::{Client, Protocol};
use crate::case::{Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;

/// A swarm of 20 leechers.
fn swarm<'c, P: Protocol>(context: &'c Context<'c>) -> Checked<P::Client<'c>> {
    let client = P::client(context)?;
    let hash = context.hash(0);
    let announces: Vec<Announce> = (1001..=1020).map(|port| Announce::leecher(hash, port)).collect();
    client.announce_all(&announces)?;
    Ok(client)
}

pub(crate) fn gives_peers<P: Protocol>(context: &Context<'_>, numwant: i32) -> Checked {
    let client = swarm::<P>(context)?;
    let reply = client.announce(&Announce::leecher(context.hash(0), 1001).wanting(numwant))?;
    ensure(
        !reply.peers.is_empty(),
        format!("peers to numwant {numwant} in a swarm of 20"),
        format!("no peer, {}", reply.counts()),
    )
}

/// Tells all the numbers at once: which are off is what finds the fault.
pub(crate) fn gives_exactly<P: Protocol>(context: &Context<'_>, numwants: &[i32]) -> Checked {
    let client = swarm::<P>(context)?;
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
