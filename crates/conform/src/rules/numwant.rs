//! The number of peers that a client wants.

use std::fmt::Display;

use super::{Client, Protocol};
use crate::case::{Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, Announced};

/// Creates a swarm of 20 leechers.
pub(crate) fn swarm<'c, P: Protocol>(context: &'c Context<'c>) -> Checked<P::Client<'c>> {
    let client = P::client(context)?;
    let hash = context.hash(0);
    let announces: Vec<Announce> = (1001..=1020).map(|port| Announce::leecher(hash, port)).collect();
    client.announce_all(&announces)?;
    Ok(client)
}

pub(crate) fn gives_peers<P: Protocol>(context: &Context<'_>, numwants: &[i32]) -> Checked {
    let client = swarm::<P>(context)?;
    for numwant in numwants {
        let reply = client.announce(&Announce::leecher(context.hash(0), 1001).wanting(*numwant))?;
        ensure_peers(&reply, numwant)?;
    }
    Ok(())
}

/// Checks that a reply in the swarm of 20 contains a peer.
pub(crate) fn ensure_peers(reply: &Announced, numwant: impl Display) -> Checked {
    ensure(
        !reply.peers.is_empty(),
        format!("peers for numwant {numwant} in a swarm of 20"),
        format!("no peer, {}", reply.counts()),
    )
}

/// Reports all numbers at once, because the wrong ones show the pattern of the fault.
pub(crate) fn gives_exactly<P: Protocol>(context: &Context<'_>, numwants: &[i32]) -> Checked {
    let client = swarm::<P>(context)?;
    let mut seen = Vec::new();
    for &numwant in numwants {
        for announcer in [Announce::leecher, Announce::seeder] {
            let reply = client.announce(&announcer(context.hash(0), 1001).wanting(numwant))?;
            seen.push((numwant, reply.peers.len()));
        }
    }
    let is_exact = seen.iter().all(|&(numwant, peers)| usize::try_from(numwant) == Ok(peers));
    let counts: Vec<String> =
        seen.iter().map(|(numwant, peers)| format!("{peers} for numwant {numwant}")).collect();
    ensure(is_exact, "as many peers as are wanted, for a leecher and for a seeder", counts.join(", "))
}
