//! Invalid messages: they get a failure reason, and the socket stays open.

use super::frame::{FIN, TEXT};
use super::message::{Fields, Kind, Message, binary, peer_id};
use super::socket::{Socket, SocketEvent};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

const NOT_OBJECTS: [&str; 9] =
    ["", "hello", "{", "{\"action\":\"announce\"", "{\"action\":\"announce\",}", "[]", "5", "null", "\"x\""];

const BAD_IDS: [&str; 6] = [
    "\"xxxxxxxxxxxxxxxxxxx\"",
    "\"xxxxxxxxxxxxxxxxxxxxx\"",
    "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
    "\"\"",
    "null",
    "[1]",
];

/// An identifier of 20 characters, one of which does not fit a byte.
const WIDE_ID: &str = "\"xxxxxxxxxxxxxxxxxxx\u{100}\"";

pub(super) const CASES: &[Case] = &[
    Case::should(
        "ws-bad-json-gets-a-failure-reason",
        "practice: clients show it, and their developers learn from it",
        "A message that is not a JSON object gets a failure reason.",
        |context| {
            let mut socket = Socket::open(context)?;
            NOT_OBJECTS.iter().try_for_each(|text| refusal(&mut socket, text).map(drop))
        },
    )
    .with_info_hashes(0),
    Case::should(
        "ws-bad-json-keeps-the-socket",
        "practice: one bad message is not a reason to lose all torrents of a socket",
        "After a message that is not a JSON object, the socket serves the next one.",
        keeps_the_socket,
    ),
    Case::should(
        "ws-refusal-has-action-and-info-hash",
        "practice: clients reconnect on a message without action, and find their torrent by info_hash",
        "The failure reason of an announce whose info hash can be read carries the action and the info hash.",
        has_action_and_info_hash,
    ),
    Case::should(
        "ws-failure-reason-without-info-hash-is-no-announce",
        "practice: the client of webtorrent.io looks up the torrent of every announce, and throws where info_hash is missing",
        "A failure reason without an info hash does not claim to answer an announce.",
        is_no_announce_without_info_hash,
    ),
    Case::should(
        "ws-unknown-action-gets-a-failure-reason",
        "practice: clients show it",
        "A message with an unknown action, or without one, gets a failure reason, and the socket stays open.",
        unknown_action,
    ),
    Case::should(
        "ws-info-hash-of-another-length-joins-nothing",
        "BEP 3, \"Trackers\"",
        "An announce whose info hash is not a string of 20 characters gets no announce reply.",
        |context| bad_info_hash(context, &BAD_IDS),
    ),
    Case::should(
        "ws-peer-id-of-another-length-joins-nothing",
        "BEP 3, \"Trackers\"",
        "An announce whose peer id is not a string of 20 characters joins no swarm.",
        |context| bad_peer_id(context, &BAD_IDS),
    ),
    Case::should(
        "ws-characters-beyond-u-00ff-join-nothing",
        "practice: each byte is the code point of the same number, and other code points are not bytes",
        "An announce with a character beyond U+00FF in its info hash or peer id joins no swarm.",
        |context| {
            bad_info_hash(context, &[WIDE_ID])?;
            bad_peer_id(context, &[WIDE_ID])
        },
    ),
    Case::must(
        "ws-values-of-other-types-do-not-end-the-service",
        "practice: any client can send anything, and one known tracker ends because of it",
        "After messages whose fields are numbers, lists or null where they should be something else, others are served.",
        other_types,
    ),
    Case::must(
        "ws-deep-json-does-not-end-the-service",
        "RFC 8259, 9; practice: any client can send anything",
        "After messages with thousands of nested brackets, the tracker answers as before.",
        deep_json,
    ),
    Case::must(
        "ws-mangled-messages-do-not-end-the-service",
        "practice: any client can send anything",
        "After valid messages with some bytes changed, the tracker answers as before.",
        mangled,
    ),
];

fn refusal(socket: &mut Socket<'_>, text: &str) -> Checked<Message> {
    socket.send_text(text);
    let shown = super::message::shown(text.as_bytes());
    socket.expect(&format!("a failure reason for {shown}"), |message| {
        message.kind() == Kind::Failure
            && message.text("failure reason").is_some_and(|reason| !reason.is_empty())
    })
}

fn keeps_the_socket(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    for text in NOT_OBJECTS {
        socket.send_text(text);
        socket.send_text(&Fields::announce(context.hash(0), 1).text());
        wait_for_reply(&mut socket)?;
    }
    Ok(())
}

fn wait_for_reply(socket: &mut Socket<'_>) -> Checked {
    for _ in 0..10 {
        match socket.next_event()? {
            SocketEvent::Message(message) if message.kind() == Kind::Reply => return Ok(()),
            SocketEvent::Message(_) | SocketEvent::Pong(_) => {}
            other => {
                return ensure(false, "an announce reply after the refusal", format!("{other:?}"));
            }
        }
    }
    ensure(false, "an announce reply after the refusal", "ten other messages")
}

fn has_action_and_info_hash(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    let bad = Fields::announce(hash, 1).with("peer_id", "\"short\"");
    for text in [bad.text(), bad.reversed().text(), Fields::announce(hash, 1).without("peer_id").text()] {
        let seen = refusal(&mut socket, &text)?;
        let is_right =
            seen.text("action") == Some("announce") && seen.bytes("info_hash").as_deref() == Some(&hash[..]);
        ensure(is_right, "the action announce and the info hash", seen.describe())?;
    }
    Ok(())
}

fn is_no_announce_without_info_hash(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let unreadable = Fields::announce(context.hash(0), 1).with("info_hash", "5").text();
    for text in ["hello", "5", "{}", "{\"action\":7}", "{\"action\":\"announce\"}", &unreadable] {
        let seen = refusal(&mut socket, text)?;
        let is_right = seen.text("action") != Some("announce") || seen.bytes("info_hash").is_some();
        ensure(is_right, "an info hash, or another action than announce", seen.describe())?;
    }
    Ok(())
}

fn unknown_action(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let fields = Fields::announce(context.hash(0), 1);
    for other in [fields.clone().with("action", "\"connect\""), fields.clone().without("action")] {
        refusal(&mut socket, &other.text())?;
    }
    socket.announce(&fields).map(drop)
}

fn bad_info_hash(context: &Context<'_>, names: &[&str]) -> Checked {
    for name in names {
        let mut socket = Socket::open(context)?;
        let fields = Fields::announce([0; 20], 1).with("info_hash", name);
        socket.send_text(&fields.with_event("started").text());
        for message in messages_before_scrape(&mut socket, context.hash(0))? {
            ensure(
                message.kind() != Kind::Reply,
                format!("no announce reply for {name}"),
                message.describe(),
            )?;
        }
    }
    Ok(())
}

/// Sends a scrape and returns the messages before its reply, or before the end of the socket.
fn messages_before_scrape(socket: &mut Socket<'_>, hash: [u8; 20]) -> Checked<Vec<Message>> {
    let mut messages = Vec::new();
    socket.send_text(&Fields::scrape(&binary(&hash)).text());
    for _ in 0..10 {
        match socket.next_event()? {
            SocketEvent::Message(message) if message.kind() == Kind::Scrape => break,
            SocketEvent::Message(message) => messages.push(message),
            SocketEvent::Pong(_) => {}
            SocketEvent::Close(_) | SocketEvent::End | SocketEvent::Timeout => break,
        }
    }
    Ok(messages)
}

fn bad_peer_id(context: &Context<'_>, names: &[&str]) -> Checked {
    let hash = context.hash(0);
    let mut other = Socket::open(context)?;
    for name in names {
        let mut socket = Socket::open(context)?;
        socket.send_text(&Fields::announce(hash, 1).with("peer_id", name).text());
        messages_before_scrape(&mut socket, context.hash(0))?;
        other.ensure_counts(hash, 0, 0)?;
    }
    Ok(())
}

fn other_types(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let (announce, answer) = (Fields::announce(hash, 2), Fields::answer(hash, 2, 3, b"x", "{}"));
    let mut other = Socket::open(context)?;
    other.announce(&Fields::announce(hash, 3))?;
    for value in ["null", "7", "\"x\"", "[null]", "[[]]", "{}", "{\"length\":3}"] {
        let mut all = vec![Fields::scrape(value)];
        all.extend(["offers", "event", "numwant", "left"].map(|name| announce.clone().with(name, value)));
        all.extend(["to_peer_id", "answer", "offer_id"].map(|name| answer.clone().with(name, value)));
        let items = [
            format!("{{\"offer\":{value},\"offer_id\":\"x\"}}"),
            format!("{{\"offer\":{{}},\"offer_id\":{value}}}"),
        ];
        all.extend(items.map(|item| announce.clone().offering(&[item, value.to_owned()])));
        let mut socket = Socket::open(context)?;
        all.iter().for_each(|fields| socket.send_text(&fields.text()));
        // The tracker may answer, refuse or disconnect.
        socket.buffer_for(context.target.timing.quiet)?;
    }
    Socket::ensure_served(context)
}

fn deep_json(context: &Context<'_>) -> Checked {
    let fields = Fields::announce(context.hash(0), 1);
    for depth in [100, 10_000, 60_000] {
        for text in [
            "[".repeat(depth),
            "{\"a\":".repeat(depth / 5),
            fields.clone().and("x", &format!("{}{}", "[".repeat(depth), "]".repeat(depth))).text(),
        ] {
            let mut socket = Socket::open(context)?;
            socket.send_text(&text);
            // The tracker may answer, refuse or disconnect.
            socket.buffer_for(context.target.timing.quiet)?;
        }
    }
    Socket::ensure_served(context)
}

fn mangled(context: &Context<'_>) -> Checked {
    let hash = context.hash(0);
    let offer = super::message::offer(&peer_id(9), &super::message::sdp(200));
    let text = Fields::announce(hash, 1).offering(&[offer]).text();
    let at = |what: &str| text.find(what).unwrap_or_default();
    let hash_range = at("\"info_hash\"")..at("\"peer_id\"");
    let message = text.into_bytes();
    for round in 0..100_usize {
        let mut bytes = message.clone();
        for random in context.random_bytes(3 * (1 + round % 8)).chunks_exact(3) {
            let at = (usize::from(random[0]) << 8 | usize::from(random[1])) % bytes.len();
            // Another info hash might belong to a torrent in use.
            if !hash_range.contains(&at) {
                bytes[at] = random[2];
            }
        }
        let mut socket = Socket::open(context)?;
        socket.send_untraced(&socket.frame(FIN | TEXT, &bytes));
        // The response does not matter.
        let _ = socket.next_event();
    }
    Socket::ensure_served(context)
}
