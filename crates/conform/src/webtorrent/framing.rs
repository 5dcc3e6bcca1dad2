//! Frames and messages (RFC 6455, 5 and 6), and their division into segments.

use std::thread;
use std::time::Duration;

use super::frame::{BINARY, CONTINUATION, FIN, PING, PONG, TEXT};
use super::message::{Fields, Kind, offer, offer_id, sdp};
use super::socket::{Socket, SocketEvent};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

/// A pause that is long enough to send a piece separately, and short enough to repeat a few hundred times.
const BETWEEN_PIECES: Duration = Duration::from_micros(300);

/// The default maximum of offers that browsers send, which they reach while they have no peers.
const USUAL_OFFERS: u16 = 10;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-reply-is-text",
        "RFC 6455, 5.1 and 5.6; practice: browsers deliver binary messages as other objects",
        "A reply is a text message in unmasked frames.",
        reply_is_text,
    ),
    Case::should(
        "ws-binary-message-is-read",
        "practice: libraries that work on bytes send binary messages",
        "A message in a binary frame is answered like one in a text frame.",
        |context| is_answered(context, |socket, message| socket.frame(FIN | BINARY, message)),
    ),
    Case::must(
        "ws-fragments-are-put-together",
        "RFC 6455, 5.4",
        "A message in two, many or empty fragments is answered.",
        fragments,
    ),
    Case::must(
        "ws-control-frames-come-between-fragments",
        "RFC 6455, 5.4 and 5.5",
        "A ping between the fragments of a message gets a pong, and the message is answered.",
        control_between_fragments,
    ),
    Case::must(
        "ws-ping-gets-its-pong",
        "RFC 6455, 5.5.2 and 5.5.3",
        "A ping gets a pong with the same payload, of 0 to 125 bytes.",
        ping_gets_its_pong,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-unsolicited-pong-is-ignored",
        "RFC 6455, 5.5.3",
        "An unsolicited pong changes nothing.",
        |context| {
            is_answered(context, |socket, message| {
                [socket.frame(FIN | PONG, b"unasked"), socket.frame(FIN | TEXT, message)].concat()
            })
        },
    ),
    Case::must(
        "ws-message-in-single-bytes-is-answered",
        "practice: TCP is a stream of bytes",
        "A message whose frame arrives byte by byte is answered.",
        in_single_bytes,
    ),
    Case::must(
        "ws-messages-in-one-segment-are-all-answered",
        "practice: TCP is a stream of bytes",
        "Ten messages that are sent together get ten replies in order.",
        many_in_one_segment,
    )
    .with_info_hashes(10),
    Case::must(
        "ws-message-of-usual-size-is-read",
        "practice: ten offers with an SDP of 2.5 KB each",
        "A message of 27 KB is answered.",
        |context| large(context, 2500),
    ),
    Case::should(
        "ws-message-beyond-64-kb-is-read",
        "practice: ten offers of a client with many addresses; RFC 6455, 5.2 has a third form of the length for it",
        "A message of 72 KB is answered.",
        |context| large(context, 7000),
    ),
];

/// Announces with the bytes that `write` produces from the message.
fn is_answered(context: &Context<'_>, write: impl Fn(&Socket<'_>, &[u8]) -> Vec<u8>) -> Checked {
    let mut socket = Socket::open(context)?;
    let message = Fields::announce(context.hash(0), 1).text();
    socket.send(&write(&socket, message.as_bytes()));
    socket.expect_kind(Kind::Reply).map(drop)
}

fn reply_is_text(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let reply = socket.announce(&Fields::announce(context.hash(0), 1))?;
    ensure(reply.opcode == TEXT, "a text message", format!("a message of opcode {}", reply.opcode))
}

fn in_fragments(socket: &Socket<'_>, message: &[u8], fragment_bytes: usize) -> Vec<Vec<u8>> {
    let pieces: Vec<&[u8]> = message.chunks(fragment_bytes).collect();
    let first = |at: usize| if at == 0 { TEXT } else { CONTINUATION };
    let end = |at: usize| if at + 1 == pieces.len() { FIN } else { 0 };
    pieces.iter().enumerate().map(|(at, piece)| socket.frame(first(at) | end(at), piece)).collect()
}

fn fragments(context: &Context<'_>) -> Checked {
    for fragment_bytes in [100, 7, 1] {
        is_answered(context, |socket, message| in_fragments(socket, message, fragment_bytes).concat())?;
    }
    is_answered(context, |socket, message| {
        let (empty, nothing) = (socket.frame(TEXT, b""), socket.frame(CONTINUATION, b""));
        let rest = socket.frame(CONTINUATION, message);
        [empty, nothing, rest, socket.frame(FIN | CONTINUATION, b"")].concat()
    })
}

fn control_between_fragments(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let message = Fields::announce(context.hash(0), 1).text();
    let fragments = in_fragments(&socket, message.as_bytes(), 50);
    let ping = socket.frame(FIN | PING, b"between");
    socket.send(&[&fragments[0][..], &ping, &fragments[1..].concat()].concat());
    let event = socket.next_event()?;
    ensure(event == SocketEvent::Pong(b"between".to_vec()), "the pong first", format!("{event:?}"))?;
    socket.expect_kind(Kind::Reply).map(drop)
}

fn ping_gets_its_pong(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    for bytes in [0, 1, 4, 125] {
        let payload = context.random_bytes(bytes);
        socket.send(&socket.frame(FIN | PING, &payload));
        let event = socket.next_event()?;
        let expected = format!("a pong with the {bytes} bytes of the ping");
        ensure(event == SocketEvent::Pong(payload), expected, format!("{event:?}"))?;
    }
    Ok(())
}

fn in_single_bytes(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let message = Fields::announce(context.hash(0), 1).text();
    for byte in socket.frame(FIN | TEXT, message.as_bytes()) {
        socket.send_untraced(&[byte]);
        thread::sleep(BETWEEN_PIECES);
    }
    socket.expect_kind(Kind::Reply).map(drop)
}

fn many_in_one_segment(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hashes = context.hashes(10);
    let frame = |&hash: &[u8; 20]| socket.frame(FIN | TEXT, Fields::announce(hash, 1).text().as_bytes());
    let frames: Vec<Vec<u8>> = hashes.iter().map(frame).collect();
    socket.send(&frames.concat());
    for (number, hash) in (1..).zip(hashes) {
        let reply = socket.expect_kind(Kind::Reply)?;
        let is_in_place = reply.bytes("info_hash").as_deref() == Some(&hash[..]);
        ensure(is_in_place, format!("the reply to message {number} in order"), reply.describe())?;
    }
    Ok(())
}

fn large(context: &Context<'_>, sdp_bytes: usize) -> Checked {
    let mut socket = Socket::open(context)?;
    let sdp = sdp(sdp_bytes);
    let offers: Vec<String> = (0..USUAL_OFFERS).map(|number| offer(&offer_id(number), &sdp)).collect();
    socket.announce(&Fields::announce(context.hash(0), 1).offering(&offers)).map(drop)
}
