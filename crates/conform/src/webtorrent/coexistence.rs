//! Coexistence of clients: the two address families, HTTP on the same port, and slow readers.

use super::message::{Fields, Kind, offer, offer_id, sdp};
use super::socket::Socket;
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::{Context, Target};
use crate::http;
use crate::peer::Announce;
use crate::rules::Client as _;

/// Far more bytes than the kernel buffers for a socket that is not read.
const UNREAD_MAX: usize = 64 << 20;

const SDP_BYTES: usize = 12_000;

const BURST: u16 = 100;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "ws-families-share-a-swarm",
        "practice: browsers determine each other's addresses themselves",
        "Peers that connect over IPv4 and IPv6 are counted together, and are sent each other's offers.",
        families_share_a_swarm,
    ),
    Case::should(
        "ws-http-is-served-on-the-same-port",
        "practice: one address for all clients",
        "An HTTP announce on the same port gets an HTTP reply.",
        http_is_served,
    ),
    Case::should(
        "ws-counts-are-those-of-its-own-swarm",
        "practice: a browser cannot reach peers that support only TCP or UDP",
        "A peer that announces over HTTP is not counted among those of WebTorrent.",
        counts_are_its_own,
    ),
    Case::should(
        "ws-slow-reader-does-not-block-others",
        "practice: a page in the background does not read",
        "While a peer does not read what it is sent, others are answered.",
        |context| slow_reader(context, &mut Socket::open(context)?, UNREAD_MAX / 4).map(drop),
    ),
    Case::should(
        "ws-slow-reader-is-let-go",
        "practice: messages that it does not read take memory of the tracker",
        "Of several dozen megabytes for a peer that does not read, not all are queued: it is disconnected or loses some.",
        slow_reader_is_let_go,
    ),
];

fn families_share_a_swarm(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut own = Socket::open(context)?;
    let mut other = Socket::open_between(context, None, context.other_family()?)?;
    own.announce(&Fields::announce(hash, 1))?;
    let fields = Fields::announce(hash, 2).offering(&[offer(&offer_id(1), "x")]);
    other.announce(&fields)?;
    own.expect_kind(Kind::Offer)?;
    other.ensure_counts(hash, 0, 2)
}

/// Returns the same tracker with the path of an announce.
fn with_announce_path(context: &Context<'_>) -> Target {
    let path = if context.target.path.contains("announce") { &context.target.path } else { "/announce" };
    Target { path: path.to_owned(), ..context.target.clone() }
}

fn http_is_served(context: &Context<'_>) -> Checked {
    let target = with_announce_path(context);
    let http_context = context.with_target(&target);
    http::Client::new(&http_context).announce(&Announce::leecher(context.hash(0), 1001)).map(drop)
}

fn counts_are_its_own(context: &Context<'_>) -> Checked {
    let target = with_announce_path(context);
    let http_context = context.with_target(&target);
    let client = http::Client::new(&http_context);
    let hash = context.hash(0);
    if let Err(Unmet::Fail { seen, .. }) = client.announce(&Announce::leecher(hash, 1001)) {
        return Err(Unmet::NotSupported(format!("the tracker does not answer HTTP on this port: {seen}")));
    }
    let mut socket = Socket::open(context)?;
    socket.announce(&Fields::seeder(hash, 1))?;
    socket.ensure_counts(hash, 1, 0)
}

/// Sends `bytes` of offers to a peer that does not read. Returns whether the peer was removed meanwhile.
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

/// The tracker may disconnect the peer or drop offers, as long as its memory does not grow with the unread offers.
fn slow_reader_is_let_go(context: &Context<'_>) -> Checked {
    let mut slow = Socket::open(context)?;
    if slow_reader(context, &mut slow, UNREAD_MAX)? {
        return Ok(());
    }
    let queued = slow.offers_before_barrier(context.hash(0))? * SDP_BYTES;
    ensure(
        queued < UNREAD_MAX / 2,
        "a peer that is disconnected, or loses some of the offers",
        format!("{} of {} MiB were queued for it", queued >> 20, UNREAD_MAX >> 20),
    )
}
