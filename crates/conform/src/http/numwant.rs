//! The number of peers that a client wants: `numwant`, which no BEP defines but every client sends.

use super::Http;
use crate::case::{Case, Checked};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::numwant;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-numwant-absent-gives-peers",
        "BEP 3, \"Trackers\"",
        "A client that sends no numwant is given some peers.",
        |context| numwant::gives_peers::<Http>(context, &[-1]),
    ),
    Case::should(
        "http-numwant-negative-is-the-default",
        "practice: any negative number is treated as absent",
        "A negative numwant also gives some peers.",
        |context| gives_peers(context, &["-1", "-2", "-9223372036854775808"]),
    ),
    Case::must(
        "http-numwant-huge-gives-peers",
        "practice: clients ask for hundreds, and take what they get",
        "A numwant beyond the cap of the tracker gives peers up to the cap, not an error.",
        |context| gives_peers(context, &["1000", "2147483647"]),
    ),
    Case::should(
        "http-numwant-0-gives-none",
        "practice: a client that only reports its state wants no peers",
        "A numwant of 0 gives no peers.",
        |context| numwant::gives_exactly::<Http>(context, &[0]),
    ),
    Case::should(
        "http-numwant-is-kept",
        "practice: one known tracker hands out 0 for 1 and 2 for 3",
        "A small numwant gives exactly that many peers where more are available.",
        |context| numwant::gives_exactly::<Http>(context, &[1, 2, 3, 10]),
    ),
];

fn gives_peers(context: &Context<'_>, numwants: &[&str]) -> Checked {
    let client = numwant::swarm::<Http>(context)?;
    for numwant in numwants {
        let edit = |parameters: super::request::Parameters| parameters.with("numwant", numwant);
        let mut reply = client.announce_with(&Announce::leecher(context.hash(0), 1001), edit)?;
        reply.peers.retain(|peer| peer.port() != 1001);
        numwant::ensure_peers(&reply, numwant)?;
    }
    Ok(())
}
