//! Announces and their replies: the forms that a tracker accepts and the contents of its replies. BEP 3 defines their
//! meaning; the format is that of browser clients, which no BEP describes.

use std::collections::BTreeSet;

use super::message::{Fields, Kind, Message, binary, escaped, peer_id};
use super::socket::Socket;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

const SANE_INTERVAL_S: std::ops::RangeInclusive<i64> = 60..=86_400;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-reply-has-action-and-info-hash",
        "practice: clients reconnect on a message without action, and throw on one without info_hash",
        "An announce reply is an object with the action announce and the info hash of the request.",
        has_action_and_info_hash,
    ),
    Case::must(
        "ws-reply-has-an-interval",
        "BEP 3, \"Trackers\"",
        "An announce reply gives the interval in seconds.",
        |context| {
            replies(context, |reply| {
                ensure(
                    reply.number("interval").is_some_and(|interval| interval > 0),
                    "an interval",
                    reply.describe(),
                )
            })
        },
    ),
    Case::should(
        "ws-interval-is-sane",
        "BEP 3, \"Trackers\"",
        "The interval lies between a minute and a day.",
        |context| {
            replies(context, |reply| {
                let interval_s = reply.number("interval").unwrap_or_default();
                ensure(
                    SANE_INTERVAL_S.contains(&interval_s),
                    "an interval from 60 to 86400 seconds",
                    reply.describe(),
                )
            })
        },
    ),
    Case::should(
        "ws-interval-is-jittered",
        "practice: a restart must not synchronise the announces of all clients",
        "Intervals differ from reply to reply.",
        interval_is_jittered,
    ),
    Case::should(
        "ws-reply-has-counts",
        "practice: clients show complete and incomplete as the size of the swarm",
        "An announce reply has complete and incomplete.",
        |context| {
            replies(context, |reply| {
                ensure(reply.counts().is_some(), "complete and incomplete", reply.describe())
            })
        },
    ),
    Case::should(
        "ws-counts-include-the-announcer",
        "practice: clients show these counts as the size of the swarm",
        "The counts in an announce reply include the announcer.",
        counts_include_the_announcer,
    ),
    Case::must(
        "ws-second-announce-counts-once",
        "BEP 3, \"Trackers\"",
        "A peer that announces again at its interval is still one peer.",
        second_announce_counts_once,
    ),
    Case::must(
        "ws-info-hashes-are-independent",
        "BEP 3, \"Trackers\"",
        "Peers and counts of one info hash do not show in another.",
        info_hashes_are_independent,
    )
    .with_info_hashes(2),
    Case::must(
        "ws-fields-come-in-any-order",
        "RFC 8259, 4",
        "The fields of a message may have any order, with any white space between the tokens.",
        any_order,
    ),
    Case::must(
        "ws-unknown-fields-are-ignored",
        "practice: clients send their own fields, of any type",
        "A message with unknown fields is answered like any other.",
        unknown_fields,
    ),
    Case::should(
        "ws-escaped-field-names-are-read",
        "RFC 8259, 7 and 8.3",
        "A field whose name or value is written with escapes is the same field.",
        escaped_names,
    ),
    Case::must(
        "ws-bytes-are-read-raw-and-escaped",
        "practice: each byte is the code point of the same number, raw or escaped; RFC 8259, 7",
        "Info hashes of any bytes are accepted, raw and escaped, and returned unchanged.",
        raw_and_escaped,
    )
    .with_every_byte(),
    Case::must(
        "ws-offers-may-be-absent-or-empty",
        "practice: a client that wants no peers makes no offers",
        "An announce without offers, and one with an empty list of them, is answered.",
        |context| each_is_answered(context, "offers", &[None, Some("[]")]),
    ),
    Case::should(
        "ws-offers-may-be-null",
        "practice: some clients write null for an absent value",
        "An announce whose offers are null counts as one without offers.",
        |context| each_is_answered(context, "offers", &[Some("null")]),
    ),
    Case::must(
        "ws-left-may-be-null",
        "practice: browsers know no length before they have the metadata, and JSON writes infinity as null",
        "An announce whose left is null is answered.",
        |context| each_is_answered(context, "left", &[Some("null")]),
    ),
    Case::should(
        "ws-unknown-left-is-a-leecher",
        "practice: clients with only a magnet link send null, -1 or nothing",
        "A left that is null, negative, huge or absent makes a leecher.",
        unknown_left,
    ),
    Case::must(
        "ws-left-0-is-a-seeder",
        "BEP 3, \"Trackers\"",
        "A peer with left 0 is counted as complete, all others as incomplete.",
        left_0_is_a_seeder,
    ),
    Case::must(
        "ws-leecher-turns-seeder",
        "BEP 3, \"Trackers\"",
        "A leecher that announces with left 0 is counted as a seeder, and no longer as a leecher.",
        leecher_turns_seeder,
    ),
    Case::should(
        "ws-seeder-turns-leecher",
        "practice: a user may select more files of a torrent",
        "A seeder that announces with something left is counted as a leecher, and no longer as a seeder.",
        seeder_turns_leecher,
    ),
    Case::should(
        "ws-numwant-of-any-value-is-answered",
        "practice: clients write arbitrary values to request all peers or none",
        "A numwant that is negative, huge, null or absent is not an error.",
        |context| {
            each_is_answered(
                context,
                "numwant",
                &[Some("-1"), Some("1e9"), Some("99999999999999999999"), Some("null"), None],
            )
        },
    ),
];

/// Checks the replies to a first leecher, to a second one, to a seeder, and to one that announces again.
fn replies(context: &Context<'_>, check: impl Fn(&Message) -> Checked) -> Checked {
    let mut sockets = Socket::open_many(context, 3)?;
    let hash = context.hash(0);
    let all =
        [Fields::announce(hash, 1).with_event("started"), Fields::announce(hash, 2), Fields::seeder(hash, 3)];
    for (socket, fields) in sockets.iter_mut().zip(&all) {
        check(&socket.announce(fields)?)?;
    }
    check(&sockets[0].announce(&Fields::announce(hash, 1))?)
}

fn has_action_and_info_hash(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    for fields in [Fields::announce(hash, 1), Fields::seeder(hash, 1)] {
        socket.send_text(&fields.text());
        // Any message is accepted here, since one without an action has no known kind.
        let reply = socket
            .expect("an announce reply", |message| matches!(message.kind(), Kind::Reply | Kind::Other))?;
        let is_right = reply.text("action") == Some("announce")
            && reply.bytes("info_hash").as_deref() == Some(&hash[..]);
        ensure(is_right, "the action announce and the info hash", reply.describe())?;
    }
    Ok(())
}

fn interval_is_jittered(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let fields = Fields::announce(context.hash(0), 1);
    let intervals: Checked<BTreeSet<Option<i64>>> =
        (0..20).map(|_| Ok(socket.announce(&fields)?.number("interval"))).collect();
    let intervals = intervals?;
    ensure(intervals.len() > 1, "several intervals in 20 replies", format!("{intervals:?}"))
}

fn counts_include_the_announcer(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 3)?;
    let hash = context.hash(0);
    sockets[0].announce_counting(&Fields::announce(hash, 1), 0, 1)?;
    sockets[1].announce_counting(&Fields::seeder(hash, 2), 1, 1)?;
    sockets[2].announce_counting(&Fields::announce(hash, 3), 1, 2)
}

fn second_announce_counts_once(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    for _ in 0..2 {
        socket.announce(&Fields::announce(hash, 1).with_event("started"))?;
        socket.announce(&Fields::announce(hash, 1))?;
    }
    socket.ensure_counts(hash, 0, 1)
}

fn info_hashes_are_independent(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 2)?;
    let [first, second] = [context.hash(0), context.hash(1)];
    sockets[0].announce(&Fields::announce(first, 1))?;
    sockets[1].announce(&Fields::seeder(second, 2))?;
    sockets[0].ensure_counts(first, 0, 1)?;
    sockets[0].ensure_counts(second, 1, 0)
}

fn any_order(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let fields = Fields::announce(context.hash(0), 1).and("offers", "[]");
    for text in
        [fields.clone().reversed().text(), fields.text_with(" \t\r\n"), fields.reversed().text_with("\n")]
    {
        socket.send_text(&text);
        socket.expect_kind(Kind::Reply)?;
    }
    Ok(())
}

fn unknown_fields(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let fields = Fields::announce(context.hash(0), 1)
        .and("key", "\"5eed\"")
        .and("trackerid", "null")
        .and("compact", "0")
        .and("", "true")
        .and("x", "{\"action\":\"scrape\",\"a\":[{\"b\":[1.5e-3,-0,\"\\\"}\\u00e9\"]}]}")
        .and("ip", "\"203.0.113.9\"");
    socket.announce(&fields)?;
    let reversed = fields.reversed();
    socket.announce(&reversed).map(drop)
}

fn escaped_names(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    let text = Fields::seeder(hash, 1).text();
    let text = text
        .replace("\"action\":\"announce\"", "\"\\u0061ction\":\"annou\\u006Ece\"")
        .replace("\"info_hash\"", "\"info\\u005fhash\"")
        .replace("\"left\"", "\"\\u006ceft\"");
    socket.send_text(&text);
    socket.expect_kind(Kind::Reply)?;
    socket.ensure_counts(hash, 1, 0)
}

fn raw_and_escaped(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 2)?;
    for hash in context.hashes(256_usize.div_ceil(20)) {
        let raw = Fields::announce(hash, 1);
        let both = [(1, raw.clone()), (2, Fields::announce(hash, 2).with("info_hash", &escaped(&hash)))];
        for (socket, (peer, fields)) in sockets.iter_mut().zip(both) {
            let fields = if peer == 2 { fields.with("peer_id", &escaped(&peer_id(2))) } else { fields };
            let reply = socket.announce(&fields)?;
            let is_same = reply.bytes("info_hash").as_deref() == Some(&hash[..]);
            ensure(is_same, format!("the info hash {}", binary(&hash)), reply.describe())?;
        }
        sockets[0].ensure_counts(hash, 0, 2)?;
    }
    Ok(())
}

/// Announces with each of these values of a field; `None` omits the field.
fn each_is_answered(context: &Context<'_>, name: &str, values: &[Option<&str>]) -> Checked {
    let mut socket = Socket::open(context)?;
    for value in values {
        let fields = Fields::announce(context.hash(0), 1);
        socket.announce(
            &value.map_or_else(|| fields.clone().without(name), |value| fields.clone().with(name, value)),
        )?;
    }
    Ok(())
}

fn unknown_left(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let values = [Some("null"), Some("-1"), Some("9223372036854775807"), Some("1e300"), Some("\"\""), None];
    let mut sockets = Socket::open_many(context, values.len())?;
    for ((peer, leechers), (socket, left)) in (1..).zip(1..).zip(sockets.iter_mut().zip(values)) {
        let fields = Fields::announce(hash, peer);
        socket.announce(&match left {
            Some(left) => fields.with("left", left),
            None => fields.without("left"),
        })?;
        socket.ensure_counts(hash, 0, leechers)?;
    }
    Ok(())
}

fn left_0_is_a_seeder(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 3)?;
    let hash = context.hash(0);
    sockets[0].announce(&Fields::seeder(hash, 1))?;
    sockets[1].announce(&Fields::announce(hash, 2).with("left", "1"))?;
    sockets[2].announce(&Fields::seeder(hash, 3))?;
    sockets[0].ensure_counts(hash, 2, 1)
}

fn leecher_turns_seeder(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    socket.announce(&Fields::announce(hash, 1))?;
    socket.announce(&Fields::seeder(hash, 1))?;
    socket.ensure_counts(hash, 1, 0)
}

fn seeder_turns_leecher(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    socket.announce(&Fields::seeder(hash, 1))?;
    socket.announce(&Fields::announce(hash, 1))?;
    socket.ensure_counts(hash, 0, 1)
}
