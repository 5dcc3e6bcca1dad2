//! Offers: their receivers, their number, and that they arrive unchanged.

use std::collections::BTreeSet;

use serde_json::Value;

use super::message::{Fields, Kind, Message, binary, escaped, offer, offer_id, offer_of, peer_id, sdp};
use super::socket::{Socket, offers};
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::Context;

/// The number of announces with one offer to six peers. The chance that one of the peers gets none is one in ten million.
const ROUNDS: u16 = 100;

/// Objects that a browser may send, in various spellings.
const OFFERS: [&str; 5] = [
    r#"{"type":"offer","sdp":"v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\n"}"#,
    r#"{"sdp":"\u0076=0 \u00e9 é \/ \t","type":"offer"}"#,
    r#"{ "type" : "offer" , "sdp" : "x" }"#,
    r#"{"type":"offer","sdp":"\ud83d\ude00 😀 \\ \" } ] , :"}"#,
    "{\"type\":\"offer\",\n\t\"sdp\":\"\"}",
];

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-offer-is-relayed",
        "practice: this is how peers in browsers find each other",
        "An offer arrives at the other peer with action, info hash, the peer id of its sender and the offer id.",
        is_relayed,
    ),
    Case::must(
        "ws-offer-arrives-as-it-was-made",
        "practice: the object concerns only the two peers",
        "Offers arrive with the type and the SDP that were sent, however they are spelled.",
        |context| arrive(context, &OFFERS, is_same_value),
    ),
    Case::should(
        "ws-offer-arrives-byte-for-byte",
        "practice: decoding and re-encoding takes time and may lose something",
        "Offers arrive byte for byte as they were sent.",
        |context| arrive(context, &OFFERS, |sent, seen| seen.contains(sent)),
    ),
    Case::should(
        "ws-offer-of-any-kind-is-relayed",
        "practice: mock offers of tests and load generators, and future extensions of clients",
        "An offer need not have a type and an SDP, and may have more than that.",
        |context| {
            let more = r#"{"type":"offer","sdp":"x","more":{"a":[1,2.50,true,null]}}"#;
            let mocks = [r#"{"fake_offer":true}"#, r#"{"type":"other"}"#, r#"{"x":{"y":[]}}"#, more];
            arrive(context, &mocks, is_same_value)
        },
    ),
    Case::must(
        "ws-large-offer-arrives",
        "practice: an SDP with many candidates has several kilobytes",
        "An offer with an SDP of 6 KB arrives.",
        |context| {
            let offer = format!("{{\"type\":\"offer\",\"sdp\":\"{}\"}}", sdp(6000));
            arrive(context, &[&offer], is_same_value)
        },
    ),
    Case::must(
        "ws-offer-id-comes-as-it-is",
        "practice: the answer refers to it",
        "An offer id of any 20 bytes, raw or escaped, arrives unchanged.",
        offer_id_comes_as_it_is,
    ),
    Case::should(
        "ws-offer-id-may-have-another-length",
        "practice: the ids of some clients do not have 20 bytes",
        "Offers with ids of 1 and of 40 bytes are relayed.",
        |context| ids_arrive(context, &[b"x".to_vec(), vec![b'y'; 40]]),
    ),
    Case::must(
        "ws-offers-go-to-different-peers",
        "practice: an offer is for one peer, and a second one to the same peer is wasted",
        "Several offers go to different peers.",
        go_to_different_peers,
    ),
    Case::must(
        "ws-ten-offers-reach-ten-peers",
        "practice: this is what a browser sends",
        "Ten offers with an SDP of 2.5 KB, in a swarm of ten others, reach all of them.",
        ten_reach_ten,
    ),
    Case::must(
        "ws-offers-do-not-return-to-their-sender",
        "practice: a peer does not connect to itself",
        "A peer is never sent its own offers, whether it is alone or not.",
        do_not_return,
    ),
    Case::should(
        "ws-numwant-is-kept",
        "practice: a client says how many peers it wants",
        "Of four offers with a numwant of 0, 1, 2 or 3, that many are relayed.",
        numwant_is_kept,
    ),
    Case::should(
        "ws-numwant-absent-relays-all",
        "practice: a client that makes an offer wants a peer",
        "Without numwant, all offers are relayed as long as there are peers.",
        numwant_absent,
    ),
    Case::should(
        "ws-bad-offers-are-skipped",
        "practice: one bad item is not a reason to lose the others",
        "Items that are not offers are skipped, and the valid offers among them are relayed.",
        bad_offers_are_skipped,
    ),
    Case::should(
        "ws-every-peer-is-offered-to",
        "practice: receivers are random, so that every peer is chosen",
        "Every peer of a swarm is sent an offer sooner or later.",
        every_peer_is_offered_to,
    ),
    Case::must(
        "ws-offers-of-a-leecher-reach-seeders",
        "BEP 3, \"Trackers\"",
        "A leecher's offer goes to a seeder if there is no other peer.",
        reach_seeders,
    ),
    Case::must(
        "ws-offers-of-a-seeder-reach-seeders",
        "practice: in some applications, every browser has the whole torrent and looks for others",
        "A peer that needs nothing is sent an offer of another one that needs nothing, if there is no other peer.",
        seeders_meet,
    ),
    Case::should(
        "ws-offers-of-a-seeder-reach-leechers-first",
        "practice: a leecher needs the seeder, and another seeder hardly does",
        "As long as there are leechers, a seeder's offers go to leechers.",
        leechers_first,
    ),
    Case::must(
        "ws-offers-stay-in-their-torrent",
        "BEP 3, \"Trackers\"",
        "An offer does not go to a peer that is only in another torrent.",
        stay_in_their_torrent,
    )
    .with_info_hashes(2),
    Case::should(
        "ws-reply-comes-before-the-offers",
        "practice: a client learns about the swarm before it receives offers",
        "Where sender and receiver share a socket, the reply comes first, then the offer.",
        reply_comes_first,
    ),
];

fn swarm<'c>(context: &'c Context<'c>, hash: [u8; 20], count: usize) -> Checked<Vec<Socket<'c>>> {
    let mut sockets = Socket::open_many(context, count)?;
    for (peer, socket) in (1..).zip(&mut sockets) {
        socket.announce(&Fields::announce(hash, peer))?;
    }
    Ok(sockets)
}

fn some_offers(count: u16) -> Vec<String> {
    (0..count).map(|number| offer(&offer_id(number), "x")).collect()
}

fn is_relayed(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 2)?;
    sockets[1].announce(&Fields::announce(hash, 2).offering(&[offer(&offer_id(7), "x")]))?;
    let seen = sockets[0].expect_kind(Kind::Offer)?;
    let is_right = seen.text("action") == Some("announce")
        && seen.bytes("info_hash").as_deref() == Some(&hash[..])
        && seen.bytes("peer_id").as_deref() == Some(&peer_id(2)[..])
        && seen.bytes("offer_id").as_deref() == Some(&offer_id(7)[..]);
    ensure(
        is_right,
        "action announce, the info hash, the peer id of the sender and the offer id",
        seen.describe(),
    )
}

/// Sends each offer separately to the only other peer and checks what arrives.
fn arrive(context: &Context<'_>, all: &[&str], is_same: impl Fn(&str, &Message) -> bool) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 2)?;
    for (number, sent) in (0..).zip(all) {
        let fields = Fields::announce(hash, 2).offering(&[offer_of(sent, &offer_id(number))]);
        sockets[1].announce(&fields)?;
        let seen = sockets[0].expect_kind(Kind::Offer)?;
        ensure(
            is_same(sent, &seen),
            format!("the offer {}", super::message::shown(sent.as_bytes())),
            seen.describe(),
        )?;
    }
    Ok(())
}

fn is_same_value(sent: &str, seen: &Message) -> bool {
    let sent: Option<Value> = serde_json::from_str(sent).ok();
    sent.is_some() && sent.as_ref() == seen.value("offer")
}

fn ids_arrive(context: &Context<'_>, ids: &[Vec<u8>]) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 2)?;
    for id in ids {
        for written in [binary(id), escaped(id)] {
            let item = format!("{{\"offer_id\":{written},\"offer\":{}}}", OFFERS[0]);
            sockets[1].announce(&Fields::announce(hash, 2).offering(&[item]))?;
            let seen = sockets[0].expect_kind(Kind::Offer)?;
            let is_same = seen.bytes("offer_id").as_deref() == Some(&id[..]);
            ensure(is_same, format!("the offer id {written}"), seen.describe())?;
        }
    }
    Ok(())
}

fn offer_id_comes_as_it_is(context: &Context<'_>) -> Checked {
    let all: Vec<u8> = (0..=u8::MAX).chain(0..4).collect();
    ids_arrive(context, &all.chunks(20).map(<[u8]>::to_vec).collect::<Vec<_>>())
}

/// Returns the numbers of the offers that arrived. Fails on an unknown id.
fn numbers(found: &[Message]) -> Checked<Vec<u16>> {
    let number = |message: &Message| {
        let id = message.bytes("offer_id");
        let number = (0..256).find(|&number| id.as_deref() == Some(&offer_id(number)[..]));
        number.ok_or_else(|| Unmet::Fail {
            expected: "the id of an offer that was sent".to_owned(),
            seen: message.describe(),
        })
    };
    found.iter().map(number).collect()
}

fn go_to_different_peers(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 5)?;
    sockets[4].announce(&Fields::announce(hash, 5).offering(&some_offers(3)))?;
    let found = offers(&mut sockets, 3)?;
    let each: Vec<usize> = found.iter().map(Vec::len).collect();
    let mut which = numbers(&found.concat())?;
    which.sort_unstable();
    ensure(
        which == [0, 1, 2] && each.iter().all(|&count| count <= 1),
        "three offers at three different peers",
        format!("the offers {which:?}; offers at each peer: {each:?}"),
    )
}

fn ten_reach_ten(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 11)?;
    let sdp = sdp(2500);
    let all: Vec<String> = (0..10).map(|number| offer(&offer_id(number), &sdp)).collect();
    sockets[10].announce(&Fields::announce(hash, 11).offering(&all))?;
    let found = offers(&mut sockets, 10)?;
    let each: Vec<usize> = found.iter().map(Vec::len).collect();
    let which: BTreeSet<u16> = numbers(&found.concat())?.into_iter().collect();
    ensure(
        each == [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0] && which.len() == 10,
        "one offer at each of ten peers",
        format!("offers at each peer: {each:?}, {} of them distinct", which.len()),
    )
}

fn do_not_return(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 2)?;
    for _ in 0..3 {
        sockets[1].announce(&Fields::announce(hash, 2).offering(&some_offers(5)))?;
    }
    sockets[0].announce(&Fields::announce(hash, 1))?;
    for _ in 0..3 {
        sockets[1].announce(&Fields::announce(hash, 2).offering(&some_offers(5)))?;
    }
    let found = sockets[1].drain()?;
    ensure(found.is_empty(), "no own offer", format!("{} messages at the sender", found.len()))
}

fn numwant_is_kept(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 6)?;
    for numwant in [1, 2, 3, 0] {
        let fields = Fields::announce(hash, 6).offering(&some_offers(4));
        sockets[5].announce(&fields.with("numwant", &numwant.to_string()))?;
        let found = offers(&mut sockets, numwant)?.concat().len();
        ensure(found == numwant, format!("{numwant} of 4 offers for numwant {numwant}"), format!("{found}"))?;
    }
    Ok(())
}

fn numwant_absent(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 4)?;
    sockets[3].announce(&Fields::announce(hash, 4).offering(&some_offers(3)).without("numwant"))?;
    let found = offers(&mut sockets, 3)?.concat().len();
    ensure(found == 3, "3 offers at 3 peers", format!("{found}"))
}

fn bad_offers_are_skipped(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 4)?;
    let bad = ["null", "5", "\"x\"", "[]", "{}", "{\"offer\":{}}", "{\"offer_id\":\"x\"}"];
    let bad = bad.map(str::to_owned);
    let all = [&bad[..4], &[offer(&offer_id(1), "x")], &bad[4..], &[offer(&offer_id(2), "x")]].concat();
    sockets[3].announce(&Fields::announce(hash, 4).offering(&all))?;
    let mut which = numbers(&offers(&mut sockets, 2)?.concat())?;
    which.sort_unstable();
    ensure(which == [1, 2], "the two valid offers", format!("the offers {which:?}"))
}

fn every_peer_is_offered_to(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 7)?;
    for number in 0..ROUNDS {
        let fields = Fields::announce(hash, 7).offering(&[offer(&offer_id(number), "x")]);
        sockets[6].announce(&fields)?;
    }
    let found = offers(&mut sockets, ROUNDS.into())?;
    let each: Vec<usize> = found[..6].iter().map(Vec::len).collect();
    ensure(
        each.iter().all(|&count| count > 0),
        format!("some of {ROUNDS} offers at each of 6 peers"),
        format!("{each:?}"),
    )
}

fn reach_seeders(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 2)?;
    sockets[0].announce(&Fields::seeder(hash, 1))?;
    sockets[1].announce(&Fields::announce(hash, 2).offering(&some_offers(1)))?;
    sockets[0].expect_kind(Kind::Offer).map(drop)
}

fn seeders_meet(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 2)?;
    sockets[0].announce(&Fields::seeder(hash, 1).offering(&[]))?;
    sockets[1].announce(&Fields::seeder(hash, 2).offering(&some_offers(5)))?;
    sockets[0].expect_kind(Kind::Offer).map(drop)
}

fn leechers_first(context: &Context<'_>) -> Checked {
    const OFFERS: u16 = 6;
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 4)?;
    sockets[0].announce(&Fields::announce(hash, 1))?;
    sockets[1].announce(&Fields::seeder(hash, 2))?;
    sockets[2].announce(&Fields::seeder(hash, 3))?;
    for number in 0..OFFERS {
        sockets[3].announce(&Fields::seeder(hash, 4).offering(&[offer(&offer_id(number), "x")]))?;
    }
    let each: Vec<usize> = offers(&mut sockets, OFFERS.into())?.iter().map(Vec::len).collect();
    ensure(
        each == [usize::from(OFFERS), 0, 0, 0],
        "all offers at the leecher",
        format!("offers at each peer: {each:?}"),
    )
}

fn stay_in_their_torrent(context: &Context<'_>) -> Checked {
    let [hash, other] = [context.hash(0), context.hash(1)];
    let mut sockets = Socket::open_many(context, 3)?;
    sockets[0].announce(&Fields::announce(other, 1))?;
    sockets[1].announce(&Fields::announce(hash, 2))?;
    sockets[2].announce(&Fields::announce(hash, 3).offering(&some_offers(3)))?;
    let each: Vec<usize> = offers(&mut sockets, 1)?.iter().map(Vec::len).collect();
    ensure(
        each == [0, 1, 0],
        "an offer at the peer of the same torrent only",
        format!("offers at each peer: {each:?}"),
    )
}

fn reply_comes_first(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut socket = Socket::open(context)?;
    socket.announce(&Fields::announce(hash, 1))?;
    socket.send_text(&Fields::announce(hash, 2).offering(&some_offers(1)).text());
    let any = |message: &Message| matches!(message.kind(), Kind::Reply | Kind::Offer);
    let kinds = [socket.expect("the reply", any)?.kind(), socket.expect("the offer", any)?.kind()];
    ensure(kinds == [Kind::Reply, Kind::Offer], "the reply, then the offer", format!("{kinds:?}"))
}

#[cfg(test)]
mod tests {
    use super::OFFERS;

    #[test]
    fn the_offers_are_json() {
        for offer in OFFERS {
            let value: serde_json::Value = serde_json::from_str(offer).unwrap();
            assert!(value.get("sdp").and_then(serde_json::Value::as_str).is_some());
        }
    }
}
