//! Answers: back to who made the offer, once, and nothing besides.

use serde_json::Value;

use super::message::{Fields, Kind, Message, answer, escaped, offer, offer_id, offer_of, peer_id};
use super::socket::Socket;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-answer-is-relayed",
        "practice: this is how peers in browsers find each other",
        "An answer arrives at who made the offer, with action, info hash, the id of who answers, and the id of the offer.",
        is_relayed,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-answer-arrives-as-it-was-made",
        "practice: the object is between the peers",
        "An answer arrives with the type and the SDP that it was made of, whatever the spelling.",
        |context| {
            arrives(context, |sent, seen| {
                serde_json::from_str::<Value>(sent).ok().as_ref() == seen.value("answer")
            })
        },
    )
    .with_info_hashes(1),
    Case::should(
        "ws-answer-arrives-byte-for-byte",
        "practice: who takes it apart takes time, and may lose something",
        "An answer arrives in the very bytes that it was written in.",
        |context| arrives(context, |sent, seen| seen.holds(sent)),
    )
    .with_info_hashes(1),
    Case::should(
        "ws-answer-to-an-id-in-another-spelling-is-relayed",
        "RFC 8259, 8.3",
        "An answer that writes the id of the offer with escapes, or without, answers the same offer.",
        other_spelling,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-answer-gets-no-reply",
        "practice: nobody waits for one",
        "Whoever answers an offer is sent nothing for it.",
        gets_no_reply,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-answer-changes-no-counts",
        "practice: it has no left and no event",
        "A seeder that answers is a seeder still, and who is in no swarm does not join by an answer.",
        changes_no_counts,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-answer-is-relayed-once",
        "practice: an offer has one answer",
        "A second answer to the same offer is dropped.",
        is_relayed_once,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-unawaited-answer-is-dropped",
        "practice: anybody could send anything to anybody",
        "An answer to an offer that nobody made is dropped.",
        unawaited,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-answer-of-somebody-else-is-dropped",
        "practice: anybody could answer in the place of another",
        "An answer of a peer that was not sent the offer is dropped.",
        of_somebody_else,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-answer-to-a-vanished-peer-does-no-harm",
        "practice: peers leave whenever they like",
        "After an answer to a peer that has left, its sender and others are served as before.",
        to_a_vanished_peer,
    )
    .with_info_hashes(1),
];

/// Two peers, of which the second has sent the first one an offer, which is still to be heard.
fn offered<'c>(context: &'c Context<'c>, id: &[u8]) -> Checked<Vec<Socket<'c>>> {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 2)?;
    sockets[0].announce(&Fields::announce(hash, 1))?;
    sockets[1].announce(&Fields::announce(hash, 2).offering(&[offer(id, "x")]))?;
    sockets[0].expect_kind(Kind::Offer)?;
    Ok(sockets)
}

fn is_relayed(context: &Context<'_>) -> Checked {
    let (hash, id) = (context.hash(0), offer_id(9));
    let mut sockets = offered(context, &id)?;
    sockets[0].say(&Fields::answer(hash, 1, 2, &id, &answer("y")).text());
    let seen = sockets[1].expect_kind(Kind::Answer)?;
    let is_right = seen.text("action") == Some("announce")
        && seen.bytes("info_hash").as_deref() == Some(&hash[..])
        && seen.bytes("peer_id").as_deref() == Some(&peer_id(1)[..])
        && seen.bytes("offer_id").as_deref() == Some(&id[..]);
    ensure(
        is_right,
        "action announce, the info hash, the peer id of who answers and the offer id",
        seen.words(),
    )
}

fn arrives(context: &Context<'_>, is_same: impl Fn(&str, &Message) -> bool) -> Checked {
    let answers =
        [r#"{"type":"answer","sdp":"v=0\r\n"}"#, r#"{ "sdp" : "\u00e9 é \/ 😀 } ]" , "type" : "answer" }"#];
    for sent in answers {
        let mut sockets = offered(context, &offer_id(1))?;
        sockets[0].say(&Fields::answer(context.hash(0), 1, 2, &offer_id(1), sent).text());
        let seen = sockets[1].expect_kind(Kind::Answer)?;
        ensure(is_same(sent, &seen), format!("the answer {sent}"), seen.words())?;
        leave(context, &mut sockets)?;
    }
    Ok(())
}

/// The peers of a round take their leave, so that the next one has other sockets and the same ids.
fn leave(context: &Context<'_>, sockets: &mut [Socket<'_>]) -> Checked {
    for (peer, socket) in (1..).zip(sockets) {
        socket.say(&Fields::announce(context.hash(0), peer).with_event("stopped").text());
        // By this reply it has left.
        socket.counts(context.hash(0))?;
    }
    Ok(())
}

fn other_spelling(context: &Context<'_>) -> Checked {
    let (hash, id) = (context.hash(0), offer_id(3));
    let mut sockets = offered(context, &id)?;
    let fields = Fields::answer(hash, 1, 2, &id, &answer("y")).with("offer_id", &escaped(&id));
    sockets[0].say(&fields.with("to_peer_id", &escaped(&peer_id(2))).text());
    sockets[1].expect_kind(Kind::Answer)?;
    let written = format!("{{\"offer\":{},\"offer_id\":{}}}", answer("x"), escaped(&id));
    sockets[1].announce(&Fields::announce(hash, 2).offering(&[written]))?;
    sockets[0].expect_kind(Kind::Offer)?;
    sockets[0].say(&Fields::answer(hash, 1, 2, &id, &answer("y")).text());
    sockets[1].expect_kind(Kind::Answer).map(drop)
}

fn gets_no_reply(context: &Context<'_>) -> Checked {
    let mut sockets = offered(context, &offer_id(1))?;
    sockets[0].say(&Fields::answer(context.hash(0), 1, 2, &offer_id(1), &answer("y")).text());
    sockets[1].expect_kind(Kind::Answer)?;
    let others = sockets[0].overhear()?;
    ensure(others.is_empty(), "no message", others.first().map_or_else(String::new, Message::words))
}

fn changes_no_counts(context: &Context<'_>) -> Checked {
    let (hash, id) = (context.hash(0), offer_id(1));
    let mut sockets = Socket::open_many(context, 3)?;
    sockets[0].announce(&Fields::seeder(hash, 1))?;
    sockets[1].announce(
        &Fields::announce(hash, 2).offering(&[offer_of("{\"type\":\"offer\",\"sdp\":\"\"}", &id)]),
    )?;
    sockets[0].expect_kind(Kind::Offer)?;
    for (socket, peer) in [(0, 1), (2, 3)] {
        sockets[socket].say(&Fields::answer(hash, peer, 2, &id, &answer("y")).text());
        sockets[socket].ensure_counts(hash, 1, 1)?;
    }
    Ok(())
}

/// Ends the case unless the second of these peers is sent nothing.
fn hears_nothing(sockets: &mut [Socket<'_>], hash: [u8; 20]) -> Checked {
    // A request with a reply on either side, so that what is on its way has arrived. The sender may be told why.
    sockets[0].settle(hash)?;
    sockets[1].settle(hash)?;
    let seen = sockets[1].overhear()?;
    ensure(seen.is_empty(), "no message", seen.first().map_or_else(String::new, Message::words))
}

fn is_relayed_once(context: &Context<'_>) -> Checked {
    let (hash, id) = (context.hash(0), offer_id(1));
    let mut sockets = offered(context, &id)?;
    let fields = Fields::answer(hash, 1, 2, &id, &answer("y"));
    sockets[0].say(&fields.text());
    sockets[1].expect_kind(Kind::Answer)?;
    sockets[0].say(&fields.text());
    hears_nothing(&mut sockets, hash)
}

fn unawaited(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = offered(context, &offer_id(1))?;
    sockets[0].say(&Fields::answer(hash, 1, 2, &offer_id(2), &answer("y")).text());
    hears_nothing(&mut sockets, hash)
}

fn of_somebody_else(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = offered(context, &offer_id(1))?;
    let mut third = Socket::open(context)?;
    third.announce(&Fields::announce(hash, 3))?;
    third.say(&Fields::answer(hash, 3, 2, &offer_id(1), &answer("y")).text());
    third.settle(hash)?;
    hears_nothing(&mut sockets, hash)
}

fn to_a_vanished_peer(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = offered(context, &offer_id(1))?;
    drop(sockets.pop());
    for to_peer in [2, 99] {
        sockets[0].say(&Fields::answer(hash, 1, to_peer, &offer_id(1), &answer("y")).text());
    }
    // What a tracker may say about it is no reply to a scrape.
    sockets[0].settle(hash)?;
    Socket::open(context)?.announce(&Fields::announce(hash, 3)).map(drop)
}
