//! Answers: relayed once, to the peer that made the offer, and without side effects.

use serde_json::Value;

use super::message::{Fields, Kind, Message, answer, escaped, offer, offer_id, offer_of, peer_id};
use super::socket::Socket;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-answer-is-relayed",
        "practice: this is how peers in browsers find each other",
        "An answer arrives at the offerer with action, info hash, the peer id of the answerer and the offer id.",
        is_relayed,
    ),
    Case::must(
        "ws-answer-arrives-as-it-was-made",
        "practice: the object concerns only the two peers",
        "An answer arrives with the type and the SDP that were sent, however they are spelled.",
        |context| {
            arrives(context, |sent, seen| {
                serde_json::from_str::<Value>(sent).ok().as_ref() == seen.value("answer")
            })
        },
    ),
    Case::should(
        "ws-answer-arrives-byte-for-byte",
        "practice: decoding and re-encoding takes time and may lose something",
        "An answer arrives byte for byte as it was sent.",
        |context| arrives(context, |sent, seen| seen.contains(sent)),
    ),
    Case::should(
        "ws-answer-to-an-id-in-another-spelling-is-relayed",
        "RFC 8259, 8.3",
        "An answer matches its offer whether the offer id is written with escapes or without.",
        other_spelling,
    ),
    Case::should(
        "ws-answer-gets-no-reply",
        "practice: the answerer does not wait for one",
        "A peer that answers an offer gets no reply to the answer.",
        gets_no_reply,
    ),
    Case::should(
        "ws-answer-changes-no-counts",
        "practice: it has no left and no event",
        "A seeder that answers is still a seeder, and a peer that is in no swarm does not join one by answering.",
        changes_no_counts,
    ),
    Case::should(
        "ws-answer-is-relayed-once",
        "practice: an offer has one answer",
        "A second answer to the same offer is dropped.",
        is_relayed_once,
    ),
    Case::should(
        "ws-unsolicited-answer-is-dropped",
        "practice: otherwise any client could send anything to any other",
        "An answer to an offer that was never made is dropped.",
        unawaited,
    ),
    Case::should(
        "ws-answer-of-another-peer-is-dropped",
        "practice: otherwise any client could answer in place of another",
        "An answer of a peer that was not sent the offer is dropped.",
        of_somebody_else,
    ),
    Case::must(
        "ws-answer-to-a-vanished-peer-does-no-harm",
        "practice: peers leave whenever they like",
        "After an answer to a peer that has left, its sender and others are served as before.",
        to_a_vanished_peer,
    ),
];

/// Opens sockets of two peers, the second of which has sent the first one an offer.
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
    sockets[0].send_text(&Fields::answer(hash, 1, 2, &id, &answer("y")).text());
    let seen = sockets[1].expect_kind(Kind::Answer)?;
    let is_right = seen.text("action") == Some("announce")
        && seen.bytes("info_hash").as_deref() == Some(&hash[..])
        && seen.bytes("peer_id").as_deref() == Some(&peer_id(1)[..])
        && seen.bytes("offer_id").as_deref() == Some(&id[..]);
    ensure(
        is_right,
        "action announce, the info hash, the peer id of the answerer and the offer id",
        seen.describe(),
    )
}

fn arrives(context: &Context<'_>, is_same: impl Fn(&str, &Message) -> bool) -> Checked {
    let answers =
        [r#"{"type":"answer","sdp":"v=0\r\n"}"#, r#"{ "sdp" : "\u00e9 é \/ 😀 } ]" , "type" : "answer" }"#];
    for sent in answers {
        let mut sockets = offered(context, &offer_id(1))?;
        sockets[0].send_text(&Fields::answer(context.hash(0), 1, 2, &offer_id(1), sent).text());
        let seen = sockets[1].expect_kind(Kind::Answer)?;
        ensure(is_same(sent, &seen), format!("the answer {sent}"), seen.describe())?;
        // The peers leave, so that the next round can use the same ids on other sockets.
        for (peer, socket) in (1..).zip(&mut sockets) {
            socket.send_text(&Fields::announce(context.hash(0), peer).with_event("stopped").text());
            // After this reply, the peer has left.
            socket.counts(context.hash(0))?;
        }
    }
    Ok(())
}

fn other_spelling(context: &Context<'_>) -> Checked {
    let (hash, id) = (context.hash(0), offer_id(3));
    let mut sockets = offered(context, &id)?;
    let fields = Fields::answer(hash, 1, 2, &id, &answer("y")).with("offer_id", &escaped(&id));
    sockets[0].send_text(&fields.with("to_peer_id", &escaped(&peer_id(2))).text());
    sockets[1].expect_kind(Kind::Answer)?;
    let written = format!("{{\"offer\":{},\"offer_id\":{}}}", answer("x"), escaped(&id));
    sockets[1].announce(&Fields::announce(hash, 2).offering(&[written]))?;
    sockets[0].expect_kind(Kind::Offer)?;
    sockets[0].send_text(&Fields::answer(hash, 1, 2, &id, &answer("y")).text());
    sockets[1].expect_kind(Kind::Answer).map(drop)
}

fn gets_no_reply(context: &Context<'_>) -> Checked {
    let mut sockets = offered(context, &offer_id(1))?;
    sockets[0].send_text(&Fields::answer(context.hash(0), 1, 2, &offer_id(1), &answer("y")).text());
    sockets[1].expect_kind(Kind::Answer)?;
    let others = sockets[0].drain()?;
    ensure(others.is_empty(), "no message", others.first().map_or_else(String::new, Message::describe))
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
        sockets[socket].send_text(&Fields::answer(hash, peer, 2, &id, &answer("y")).text());
        sockets[socket].ensure_counts(hash, 1, 1)?;
    }
    Ok(())
}

/// Fails the case if the second of these peers receives anything.
fn receives_nothing(sockets: &mut [Socket<'_>], hash: [u8; 20]) -> Checked {
    // A request with a reply on both sockets, so that messages in flight have arrived. The sender may get a refusal.
    sockets[0].barrier(hash)?;
    sockets[1].barrier(hash)?;
    let seen = sockets[1].drain()?;
    ensure(seen.is_empty(), "no message", seen.first().map_or_else(String::new, Message::describe))
}

fn is_relayed_once(context: &Context<'_>) -> Checked {
    let (hash, id) = (context.hash(0), offer_id(1));
    let mut sockets = offered(context, &id)?;
    let fields = Fields::answer(hash, 1, 2, &id, &answer("y"));
    sockets[0].send_text(&fields.text());
    sockets[1].expect_kind(Kind::Answer)?;
    sockets[0].send_text(&fields.text());
    receives_nothing(&mut sockets, hash)
}

fn unawaited(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = offered(context, &offer_id(1))?;
    sockets[0].send_text(&Fields::answer(hash, 1, 2, &offer_id(2), &answer("y")).text());
    receives_nothing(&mut sockets, hash)
}

fn of_somebody_else(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = offered(context, &offer_id(1))?;
    let mut third = Socket::open(context)?;
    third.announce(&Fields::announce(hash, 3))?;
    third.send_text(&Fields::answer(hash, 3, 2, &offer_id(1), &answer("y")).text());
    third.barrier(hash)?;
    receives_nothing(&mut sockets, hash)
}

fn to_a_vanished_peer(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = offered(context, &offer_id(1))?;
    drop(sockets.pop());
    for to_peer in [2, 99] {
        sockets[0].send_text(&Fields::answer(hash, 1, to_peer, &offer_id(1), &answer("y")).text());
    }
    // The tracker may refuse the answer before it replies to the scrape.
    sockets[0].barrier(hash)?;
    Socket::open(context)?.announce(&Fields::announce(hash, 3)).map(drop)
}
