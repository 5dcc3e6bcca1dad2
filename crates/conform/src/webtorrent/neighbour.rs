//! What a WebTorrent tracker shares with its surroundings: the two families, HTTP on the same port, and readers of any speed.

use super::message::{Fields, Kind, offer, offer_id, sdp};
use super::socket::Socket;
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::{Context, Target};
use crate::http;
use crate::peer::Announce;
use crate::rules::Client as _;

/// More than the kernel takes for a socket that nobody reads, by far.
const UNREAD_MAX: usize = 64 << 20;

/// Of each offer that nobody reads.
const SDP_BYTES: usize = 12_000;

/// Offers between two looks.
const BURST: u16 = 100;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "ws-families-share-a-swarm",
        "practice: browsers find the addresses of each other by themselves",
        "Peers that come over IPv4 and IPv6 are counted together, and are sent each other's offers.",
        families_share_a_swarm,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-http-is-served-on-the-same-port",
        "practice: one address for all clients",
        "An HTTP announce at the same port gets a reply of HTTP.",
        http_is_served,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-counts-are-those-of-its-own-swarm",
        "practice: a browser reaches nobody who speaks TCP or UDP only",
        "A peer that announces by HTTP is not counted among those of WebTorrent.",
        counts_are_its_own,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-slow-reader-holds-up-nobody",
        "practice: a page in the background does not read",
        "While a peer does not read what it is sent, others are answered.",
        |context| slow_reader(context, &mut Socket::open(context)?, UNREAD_MAX / 4).map(drop),
    )
    .with_info_hashes(1),
    Case::should(
        "ws-slow-reader-is-let-go",
        "practice: what it does not read takes the memory of the tracker",
        "Some dozen megabytes that others have for a peer that does not read are not all kept for it: it is disconnected, or \
         misses some.",
        slow_reader_is_let_go,
    )
    .with_info_hashes(1),
];

fn families_share_a_swarm(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let (mut own, mut other) = (Socket::open(context)?, Socket::open_of_other_family(context)?);
    own.announce(&Fields::announce(hash, 1))?;
    let fields = Fields::announce(hash, 2).offering(&[offer(&offer_id(1), "x")]);
    other.announce(&fields)?;
    own.expect_kind(Kind::Offer)?;
    other.ensure_counts(hash, 0, 2)
}

/// The same tracker with the path of an announce.
fn with_announce_path(context: &Context<'_>) -> Target {
    let path = if context.target.path.contains("announce") { &context.target.path } else { "/announce" };
    Target { path: path.to_owned(), ..context.target.clone() }
}

fn http_is_served(context: &Context<'_>) -> Checked {
    let target = with_announce_path(context);
    let http_context = context.towards(&target);
    http::Client::new(&http_context).announce(&Announce::leecher(context.hash(0), 1001)).map(drop)
}

fn counts_are_its_own(context: &Context<'_>) -> Checked {
    let target = with_announce_path(context);
    let http_context = context.towards(&target);
    let client = http::Client::new(&http_context);
    let hash = context.hash(0);
    if let Err(Unmet::Fail { seen, .. }) = client.announce(&Announce::leecher(hash, 1001)) {
        return Err(Unmet::NotSupported(format!("it does not answer HTTP at this port: {seen}")));
    }
    let mut socket = Socket::open(context)?;
    socket.announce(&Fields::seeder(hash, 1))?;
    socket.ensure_counts(hash, 1, 0)
}

/// Sends offers to a peer that does not read, until there are `bytes` of them or the peer is gone. Says which.
fn slow_reader(context: &Context<'_>, slow: &mut Socket<'_>, bytes: usize) -> Checked<bool> {
    let hash = context.hash(0);
    let mut other = Socket::open(context)?;
    slow.announce(&Fields::announce(hash, 1))?;
    let offer = offer(&offer_id(1), &sdp(SDP_BYTES));
    let fields = Fields::announce(hash, 2).offering(&[offer]);
    for _ in 0..bytes / SDP_BYTES / usize::from(BURST) {
        for _ in 0..BURST {
            other.announce(&fields)?;
        }
        if other.counts(hash)?.incomplete < 2 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether it is let go or what others have for it, the memory of the tracker does not grow with what it does not read.
fn slow_reader_is_let_go(context: &Context<'_>) -> Checked {
    let mut slow = Socket::open(context)?;
    if slow_reader(context, &mut slow, UNREAD_MAX)? {
        return Ok(());
    }
    let kept = slow.offers_until_settled(context.hash(0))? * SDP_BYTES;
    ensure(
        kept < UNREAD_MAX / 2,
        "a peer that is gone, or misses some of it",
        format!("{} of {} MiB were kept for it", kept >> 20, UNREAD_MAX >> 20),
    )
}
