//! The identity of a peer, which consists of its id, its torrent and its socket, and its removal with that socket.

use super::message::{Fields, Kind, offer, offer_id, peer_id};
use super::socket::{Socket, offers};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-peer-leaves-with-its-socket",
        "practice: a peer whose socket is gone cannot be reached",
        "After a close frame, the peers of that socket are neither counted nor sent offers.",
        |context| leaves(context, drop),
    ),
    Case::must(
        "ws-peer-leaves-with-its-connection",
        "practice: browsers disconnect without a close frame",
        "After the end of the connection, without a close frame, the peers of that socket are no longer counted.",
        |context| leaves(context, Socket::abort),
    ),
    Case::must(
        "ws-socket-carries-many-torrents",
        "practice: clients have one socket for each tracker, not for each torrent",
        "One socket announces fifty torrents, is sent the offers of all of them, and leaves all of them when it ends.",
        many_torrents,
    )
    .with_info_hashes(50),
    Case::should(
        "ws-socket-carries-several-peers",
        "practice: a proxy of WebSockets, or a page with two clients",
        "Peers with different ids on one socket are different peers.",
        several_peers,
    ),
    Case::must(
        "ws-peers-at-one-address-are-different",
        "practice: a household with several browsers",
        "Peers with different ids, on sockets from one address, are different peers.",
        peers_at_one_address,
    ),
    Case::should(
        "ws-peer-of-another-host-is-out-of-reach",
        "practice: peers learn the ids of others, and could otherwise empty any swarm",
        "No announce from another address with the id of a peer removes the peer or takes its offers.",
        out_of_reach,
    ),
    Case::should(
        "ws-reconnect-is-served",
        "practice: a client reconnects before the tracker notices the end of its old socket, or has two sockets because the \
         tracker has two URLs",
        "A peer that announces from the same address on another socket is answered, and is sent offers there.",
        reconnect,
    ),
    Case::should(
        "ws-closing-the-old-socket-keeps-the-peer",
        "practice: a client reconnects before the tracker notices the end of its old socket",
        "After a reconnect, the end of the old socket changes nothing.",
        closing_the_old_socket_keeps_the_peer,
    ),
];

fn leaves<'c>(context: &'c Context<'c>, end: impl FnOnce(Socket<'c>)) -> Checked {
    let hash = context.hash(0);
    let (mut leaver, mut other) = (Socket::open(context)?, Socket::open(context)?);
    leaver.announce(&Fields::announce(hash, 1))?;
    other.announce(&Fields::announce(hash, 2))?;
    end(leaver);
    other.await_counts(hash, 0, 1)?;
    other.announce_counting(&Fields::announce(hash, 2).offering(&[offer(&offer_id(1), "x")]), 0, 1)
}

fn many_torrents(context: &Context<'_>) -> Checked {
    let hashes = context.hashes(50);
    let (mut one, mut other) = (Socket::open(context)?, Socket::open(context)?);
    for &hash in &hashes {
        one.announce(&Fields::announce(hash, 1))?;
    }
    for (number, &hash) in (0..).zip(&hashes) {
        let fields = Fields::announce(hash, 2).offering(&[offer(&offer_id(number), "x")]);
        other.announce_counting(&fields, 0, 2)?;
    }
    for hash in &hashes {
        one.expect(&format!("the offer for torrent {hash:02x?}"), |message| {
            message.kind() == Kind::Offer && message.bytes("info_hash").as_deref() == Some(&hash[..])
        })?;
    }
    drop(one);
    hashes.iter().try_for_each(|&hash| other.await_counts(hash, 0, 1))
}

fn several_peers(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let (mut one, mut other) = (Socket::open(context)?, Socket::open(context)?);
    one.announce(&Fields::announce(hash, 1))?;
    one.announce(&Fields::seeder(hash, 2))?;
    one.ensure_counts(hash, 1, 1)?;
    let all = [1, 2, 3].map(|number| offer(&offer_id(number), "x"));
    other.announce(&Fields::announce(hash, 3).offering(&all))?;
    for _ in 0..2 {
        one.expect_kind(Kind::Offer)?;
    }
    one.send_text(&Fields::announce(hash, 1).with_event("stopped").text());
    one.ensure_counts(hash, 1, 1)
}

fn peers_at_one_address(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 3)?;
    for (peer, socket) in (1..).zip(&mut sockets) {
        socket.announce(&Fields::announce(hash, peer))?;
    }
    sockets[0].ensure_counts(hash, 0, 3)
}

fn out_of_reach(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let open = |index| Socket::open_at(context, context.source(index)?);
    let mut sockets = vec![open(0)?, open(1)?];
    sockets[0].announce(&Fields::seeder(hash, 1))?;
    for fields in [Fields::announce(hash, 1).with_event("stopped"), Fields::announce(hash, 1)] {
        // The tracker may refuse, answer or ignore this, but it must have no effect.
        sockets[1].send_text(&fields.text());
        sockets[1].buffer_for(context.target.timing.quiet)?;
        let seen = sockets[0].counts(hash)?;
        ensure(
            seen.complete == 1,
            format!("complete 1 after another host has sent {}", fields.text()),
            format!("{seen:?}"),
        )?;
    }
    let mut third = open(0)?;
    // The other host may take part with the same id, as a peer of its own.
    let two = [1, 2].map(|number| offer(&offer_id(number), "x"));
    third.announce(&Fields::announce(hash, 3).offering(&two))?;
    let each: Vec<usize> = offers(&mut sockets, 1)?.iter().map(Vec::len).collect();
    ensure(each[0] == 1, "an offer at the peer itself", format!("offers at each: {each:?}"))
}

fn reconnect(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 2)?;
    sockets[0].announce(&Fields::announce(hash, 1))?;
    sockets[1].announce(&Fields::announce(hash, 1))?;
    let mut third = Socket::open(context)?;
    let two = [1, 2].map(|number| offer(&offer_id(number), "x"));
    third.announce(&Fields::announce(hash, 3).offering(&two))?;
    let each: Vec<usize> = offers(&mut sockets, 1)?.iter().map(Vec::len).collect();
    ensure(
        each[1] == 1,
        format!("an offer for {} at the new socket", peer_id(1).escape_ascii()),
        format!("offers at each: {each:?}"),
    )
}

fn closing_the_old_socket_keeps_the_peer(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let (mut old, mut new) = (Socket::open(context)?, Socket::open(context)?);
    old.announce(&Fields::announce(hash, 1))?;
    new.announce(&Fields::announce(hash, 1))?;
    // The tracker responds to the close frame, so that the socket is closed on its side.
    old.send(&old.frame(super::frame::FIN | super::frame::CLOSE, &1000_u16.to_be_bytes()));
    old.wait_for_end()?;
    let mut third = Socket::open(context)?;
    third.announce_counting(&Fields::announce(hash, 3).offering(&[offer(&offer_id(1), "x")]), 0, 2)?;
    new.expect_kind(Kind::Offer).map(drop)
}
