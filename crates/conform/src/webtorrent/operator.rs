//! The rules that an operator sets, over WebTorrent.

use super::message::{Fields, Kind, Message, binary, offer, offer_id, sdp};
use super::socket::Socket;
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::Context;
use crate::rules::operator;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-denied-torrent-is-refused",
        "practice: operators answer notices by lists",
        "An announce of a torrent that the operator denies gets a failure reason with its info hash.",
        |context| refused(context, operator::denied_torrent(context)?),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-denied-torrent-relays-nothing",
        "practice: a torrent without announces must not live on by offers",
        "No offer of a torrent that the operator denies is relayed.",
        denied_torrent_relays_nothing,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-refusal-by-a-rule-keeps-the-socket",
        "practice: the other torrents of a socket are served",
        "After the failure reason for a denied torrent, the socket serves another torrent.",
        refusal_keeps_the_socket,
    ),
    Case::must(
        "ws-unlisted-torrent-is-refused",
        "practice: operators serve listed torrents only",
        "An announce of a torrent that is not on the operator's allow list gets a failure reason with its info hash.",
        |context| refused(context, operator::unlisted_torrent(context)?),
    )
    .with_info_hashes(0),
    Case::should(
        "ws-refusal-tells-the-reason",
        "practice: clients show the text to their users",
        "The failure reason for a denied torrent contains the words of the operator.",
        refusal_tells_the_reason,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-denied-client-is-refused",
        "practice: operators refuse broken clients",
        "An announce with a peer id that the operator denies gets a failure reason, and one with another is served.",
        denied_client_is_refused,
    ),
    Case::must(
        "ws-denied-network-is-not-served",
        "practice: firewalls know networks, but not which clients a proxy forwards for",
        "An announce from a network that the operator denies gets no announce reply.",
        denied_network_is_not_served,
    ),
    // It comes last, because its requests may use up the limit of the default address.
    Case::must(
        "ws-requests-beyond-the-limit-are-refused",
        "practice: a limit that refuses nothing is none",
        "Announces beyond the limit of a source get a failure reason.",
        refused_beyond_limit,
    ),
];

/// Announces, and returns the reply or the failure reason.
fn reaction(socket: &mut Socket<'_>, fields: &Fields) -> Checked<Message> {
    socket.send_text(&fields.text());
    socket.expect("a failure reason", |message| matches!(message.kind(), Kind::Failure | Kind::Reply))
}

/// Announces, and returns the failure reason that the tracker must reply with.
fn refusal(socket: &mut Socket<'_>, fields: &Fields) -> Checked<Message> {
    let seen = reaction(socket, fields)?;
    let has_text = seen.text("failure reason").is_some_and(|reason| !reason.trim().is_empty());
    ensure(has_text, "a failure reason with a text", seen.describe())?;
    Ok(seen)
}

fn refused(context: &Context<'_>, hash: [u8; 20]) -> Checked {
    let seen = refusal(&mut Socket::open(context)?, &Fields::announce(hash, 1))?;
    ensure(
        seen.bytes("info_hash").as_deref() == Some(&hash[..]),
        "a failure reason with the info hash, by which clients find their torrent",
        seen.describe(),
    )
}

fn refusal_tells_the_reason(context: &Context<'_>) -> Checked {
    let words = operator::named(context.target.rules.reason.as_ref(), "--reason")?;
    let fields = Fields::announce(operator::denied_torrent(context)?, 1);
    let seen = refusal(&mut Socket::open(context)?, &fields)?;
    let has_words = seen.text("failure reason").is_some_and(|reason| reason.contains(&words));
    ensure(has_words, format!("a failure reason with the words {words:?}"), seen.describe())
}

/// Each of two peers announces offers twice, so that the other one is known by the second time.
fn denied_torrent_relays_nothing(context: &Context<'_>) -> Checked {
    let hash = operator::denied_torrent(context)?;
    let mut sockets = Socket::open_many(context, 2)?;
    let offers: Vec<String> = (0..5).map(|number| offer(&offer_id(number), &sdp(100))).collect();
    for _ in 0..2 {
        for (peer, socket) in (1..).zip(&mut sockets) {
            reaction(socket, &Fields::announce(hash, peer).offering(&offers))?;
        }
    }
    for socket in &mut sockets {
        let relayed = socket.drain()?.into_iter().find(|message| message.kind() == Kind::Offer);
        if let Some(offer) = relayed {
            ensure(false, "no offer", offer.describe())?;
        }
    }
    Ok(())
}

fn refusal_keeps_the_socket(context: &Context<'_>) -> Checked {
    let hash = operator::denied_torrent(context)?;
    let mut socket = Socket::open(context)?;
    refusal(&mut socket, &Fields::announce(hash, 1))?;
    socket.announce(&Fields::announce(context.hash(0), 1)).map(drop)
}

fn denied_client_is_refused(context: &Context<'_>) -> Checked {
    let peer_id = operator::denied_client(context, super::message::peer_id(1))?;
    let fields = Fields::announce(context.hash(0), 1);
    refusal(&mut Socket::open(context)?, &fields.clone().with("peer_id", &binary(&peer_id)))?;
    Socket::open(context)?.announce(&fields).map(drop)
}

/// A tracker may also refuse the upgrade, or close the connection.
fn denied_network_is_not_served(context: &Context<'_>) -> Checked {
    let source = operator::denied_source(context)?;
    let announced = Socket::open_at(context, source)
        .and_then(|mut socket| socket.announce(&Fields::announce(context.hash(0), 1)));
    match announced {
        Ok(reply) => ensure(false, "no announce reply", reply.describe()),
        Err(Unmet::Fail { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

fn refused_beyond_limit(context: &Context<'_>) -> Checked {
    let (at_once, requests_max) = operator::limit(context)?;
    let mut socket = match context.target.rules.limited_source {
        Some(source) => Socket::open_at(context, source)?,
        None => Socket::open(context)?,
    };
    let fields = Fields::announce(context.hash(0), 1);
    for _ in 0..requests_max {
        if reaction(&mut socket, &fields)?.kind() == Kind::Failure {
            return Ok(());
        }
    }
    let expected = format!("a failure reason after about {at_once} requests");
    Err(Unmet::Fail { expected, seen: format!("{requests_max} announce replies") })
}
