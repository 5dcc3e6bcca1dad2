//! Offers: to whom they go, how many of them, and that they arrive as they were made.

use std::collections::BTreeSet;

use serde_json::Value;

use super::message::{Fields, Kind, Message, binary, escaped, offer, offer_id, offer_of, peer_id, sdp};
use super::socket::{Socket, offers};
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::Context;

/// Announces with one offer, until each of six peers has got one. Chance forgets one of them in one run of ten million.
const ROUNDS: u16 = 100;

/// Objects that a browser may send, each in one spelling out of many.
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
        "An offer arrives at the other peer with action, info hash, the id of its sender, and its own id.",
        is_relayed,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-offer-arrives-as-it-was-made",
        "practice: the object is between the peers",
        "Offers arrive with the type and the SDP that they were made of, whatever the spelling.",
        |context| arrive(context, &OFFERS, is_same_value),
    )
    .with_info_hashes(1),
    Case::should(
        "ws-offer-arrives-byte-for-byte",
        "practice: who takes it apart takes time, and may lose something",
        "Offers arrive in the very bytes that they were written in.",
        |context| arrive(context, &OFFERS, |sent, seen| seen.holds(sent)),
    )
    .with_info_hashes(1),
    Case::should(
        "ws-offer-of-any-kind-is-relayed",
        "practice: mock offers of tests and of load generators, and what clients may come to say",
        "An offer need not have a type and an SDP, and may have more than that.",
        |context| {
            let more = r#"{"type":"offer","sdp":"x","more":{"a":[1,2.50,true,null]}}"#;
            let mocks = [r#"{"fake_offer":true}"#, r#"{"type":"other"}"#, r#"{"x":{"y":[]}}"#, more];
            arrive(context, &mocks, is_same_value)
        },
    )
    .with_info_hashes(1),
    Case::must(
        "ws-large-offer-arrives",
        "practice: an SDP with many candidates has some kilobytes",
        "An offer with an SDP of 6 KB arrives.",
        |context| {
            let offer = format!("{{\"type\":\"offer\",\"sdp\":\"{}\"}}", sdp(6000));
            arrive(context, &[&offer], is_same_value)
        },
    )
    .with_info_hashes(1),
    Case::must(
        "ws-offer-id-comes-as-it-is",
        "practice: the answer names it",
        "An offer id of any 20 bytes, raw or escaped, arrives.",
        offer_id_comes_as_it_is,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-offer-id-may-have-another-length",
        "practice: clients are known whose ids have not 20 bytes",
        "Offers with ids of 1 and of 40 bytes are relayed.",
        |context| ids_arrive(context, &[b"x".to_vec(), vec![b'y'; 40]]),
    )
    .with_info_hashes(1),
    Case::must(
        "ws-offers-go-to-different-peers",
        "practice: an offer is for one peer, and a second one to the same peer is wasted",
        "Of several offers each goes to another peer.",
        go_to_different_peers,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-ten-offers-reach-ten-peers",
        "practice: this is what a browser sends",
        "Ten offers with an SDP of 2.5 KB, in a swarm of ten others, reach all of them.",
        ten_reach_ten,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-offers-do-not-return-to-their-sender",
        "practice: nobody connects to itself",
        "A peer is never sent its own offers, whether it is alone or not.",
        do_not_return,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-numwant-is-kept",
        "practice: a client says how many peers it wants",
        "Of four offers with a numwant of 0, 1, 2 and 3 so many are relayed.",
        numwant_is_kept,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-numwant-absent-relays-all",
        "practice: who makes an offer wants a peer",
        "Without numwant all offers are relayed, as far as there are peers.",
        numwant_absent,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-bad-offers-are-skipped",
        "practice: one bad item is no reason to lose the others",
        "Items that are no offers are skipped, and the good ones among them are relayed.",
        bad_offers_are_skipped,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-every-peer-is-offered-to",
        "practice: a random peer, so that every one has its turn",
        "Every peer of a swarm is sent an offer sooner or later.",
        every_peer_is_offered_to,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-offers-of-a-leecher-reach-seeders",
        "BEP 3, \"Trackers\"",
        "A leecher's offer goes to a seeder, if that is who there is.",
        reach_seeders,
    )
    .with_info_hashes(1),
    Case::should(
        "ws-offers-of-a-seeder-reach-leechers-only",
        "practice: two seeders have nothing for each other",
        "A seeder's offers go to leechers and to no seeder.",
        of_a_seeder,
    )
    .with_info_hashes(1),
    Case::must(
        "ws-offers-stay-in-their-torrent",
        "BEP 3, \"Trackers\"",
        "An offer goes to nobody who is in another torrent only.",
        stay_in_their_torrent,
    )
    .with_info_hashes(2),
    Case::should(
        "ws-reply-comes-before-the-offers",
        "practice: a client learns of the swarm before it hears from it",
        "Where sender and receiver share a socket, the reply comes first, then the offer.",
        reply_comes_first,
    )
    .with_info_hashes(1),
];

/// That many leechers, the first of which is peer 1, each with a socket of its own.
fn swarm<'c>(context: &'c Context<'c>, hash: [u8; 20], count: usize) -> Checked<Vec<Socket<'c>>> {
    let mut sockets = Socket::open_many(context, count)?;
    for (peer, socket) in (1..).zip(&mut sockets) {
        socket.announce(&Fields::announce(hash, peer))?;
    }
    Ok(sockets)
}

/// So many offers that differ in their ids.
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
        seen.words(),
    )
}

/// Sends each offer on its own to the only other peer, and looks at what arrives.
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
            seen.words(),
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
            ensure(is_same, format!("the offer id {written}"), seen.words())?;
        }
    }
    Ok(())
}

fn offer_id_comes_as_it_is(context: &Context<'_>) -> Checked {
    let all: Vec<u8> = (0..=u8::MAX).chain(0..4).collect();
    ids_arrive(context, &all.chunks(20).map(<[u8]>::to_vec).collect::<Vec<_>>())
}

/// Numbers of offers that came, and which they are. An id that is none of ours is no number.
fn numbers(found: &[Message]) -> Checked<Vec<u16>> {
    let number = |message: &Message| {
        let id = message.bytes("offer_id");
        let number = (0..256).find(|&number| id.as_deref() == Some(&offer_id(number)[..]));
        number.ok_or_else(|| Unmet::Fail {
            expected: "the id of an offer that was made".to_owned(),
            seen: message.words(),
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
        format!("the offers {which:?}, and so many at each peer: {each:?}"),
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
        format!("so many at each peer: {each:?}, {} of them different", which.len()),
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
    let found = sockets[1].overhear()?;
    ensure(found.is_empty(), "no own offer", format!("{} messages at the sender", found.len()))
}

fn numwant_is_kept(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = swarm(context, hash, 6)?;
    for numwant in [1, 2, 3, 0] {
        let fields = Fields::announce(hash, 6).offering(&some_offers(4));
        sockets[5].announce(&fields.with("numwant", &numwant.to_string()))?;
        let found = offers(&mut sockets, numwant)?.concat().len();
        ensure(found == numwant, format!("{numwant} of 4 offers to numwant {numwant}"), format!("{found}"))?;
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
    ensure(which == [1, 2], "the two good offers", format!("the offers {which:?}"))
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

fn of_a_seeder(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut sockets = Socket::open_many(context, 4)?;
    sockets[0].announce(&Fields::announce(hash, 1))?;
    sockets[1].announce(&Fields::seeder(hash, 2))?;
    sockets[2].announce(&Fields::seeder(hash, 3))?;
    sockets[3].announce(&Fields::seeder(hash, 4).offering(&some_offers(3)))?;
    let each: Vec<usize> = offers(&mut sockets, 1)?.iter().map(Vec::len).collect();
    ensure(each == [1, 0, 0, 0], "an offer at the leecher only", format!("so many at each peer: {each:?}"))
}

fn stay_in_their_torrent(context: &Context<'_>) -> Checked {
    let [hash, other] = [context.hash(0), context.hash(1)];
    let mut sockets = Socket::open_many(context, 3)?;
    sockets[0].announce(&Fields::announce(other, 1))?;
    sockets[1].announce(&Fields::announce(hash, 2))?;
    sockets[2].announce(&Fields::announce(hash, 3).offering(&some_offers(3)))?;
    let each: Vec<usize> = offers(&mut sockets, 1)?.iter().map(Vec::len).collect();
    ensure(each == [0, 1, 0], "an offer at the fellow only", format!("so many at each peer: {each:?}"))
}

fn reply_comes_first(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let mut socket = Socket::open(context)?;
    socket.announce(&Fields::announce(hash, 1))?;
    socket.say(&Fields::announce(hash, 2).offering(&some_offers(1)).text());
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
