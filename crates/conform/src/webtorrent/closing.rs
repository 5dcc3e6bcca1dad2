//! The end of a socket (RFC 6455, 5.5.1 and 7): the closing handshake, the causes, and the isolation of other sockets.

use super::frame::{CLOSE, CONTINUATION, FIN, PING, TEXT, masked_head, unmasked};
use super::message::Fields;
use super::socket::{Socket, SocketEvent, frame_of};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

/// More bytes than a tracker should read of a message that never ends.
const ENDLESS: usize = 160 << 20;

const IDLE: usize = 20;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-close-is-answered",
        "RFC 6455, 5.5.1",
        "A close frame, with a code, with a reason and without either, gets a close frame.",
        |context| close_frames(context, |_, _| Ok(())),
    )
    .with_info_hashes(0),
    Case::should(
        "ws-close-has-its-code-echoed",
        "RFC 6455, 5.5.1: \"typically echos the status code\"",
        "The close frame in response to another one has the same code.",
        |context| {
            close_frames(context, |sent, seen| {
                let expected = format!("a close frame with code {sent:?}");
                ensure(sent.is_none() || seen == sent, expected, format!("code {seen:?}"))
            })
        },
    )
    .with_info_hashes(0),
    Case::should(
        "ws-close-ends-the-connection",
        "RFC 6455, 7.1.1: the server closes first",
        "After both close frames, the tracker closes the connection.",
        close_ends,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-unmasked-frame-ends-the-connection",
        "RFC 6455, 5.1",
        "A client that sends a frame without a mask is disconnected.",
        |context| ends_each(context, &[unmasked_message()]),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-reserved-bits-end-the-connection",
        "RFC 6455, 5.2",
        "A frame with a reserved bit that no extension defines ends the connection.",
        |context| ends_each(context, &reserved_bits(context)),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-reserved-opcodes-end-the-connection",
        "RFC 6455, 5.2",
        "A frame with a reserved opcode ends the connection.",
        |context| ends_each(context, &reserved_opcodes(context)),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-bad-control-frames-end-the-connection",
        "RFC 6455, 5.5",
        "A control frame of more than 125 bytes, or a fragment of one, ends the connection.",
        |context| ends_each(context, &bad_control_frames(context)),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-bad-fragments-end-the-connection",
        "RFC 6455, 5.4",
        "A continuation without a first fragment, and a new message between the fragments of another, end the connection.",
        |context| ends_each(context, &bad_fragments(context)),
    )
    .with_info_hashes(0),
    Case::should(
        "ws-protocol-errors-close-with-1002",
        "RFC 6455, 7.1.7 and 7.4.1",
        "If a client violates the framing protocol, the tracker sends a close frame with code 1002.",
        protocol_errors,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-bad-close-frames-get-1002",
        "RFC 6455, 5.5.1 and 7.4",
        "A close frame of one byte, or with a code that must not be sent, gets a close frame with code 1002.",
        bad_close_frames,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-bad-utf-8-ends-the-connection",
        "RFC 6455, 8.1",
        "A text message that is not UTF-8 ends the connection.",
        |context| ends_each(context, &bad_utf_8(context)),
    )
    .with_info_hashes(0),
    Case::should(
        "ws-bad-utf-8-closes-with-1007",
        "RFC 6455, 8.1 and 7.4.1",
        "A text message that is not UTF-8 gets a close frame with code 1007.",
        |context| closes_each(context, &bad_utf_8(context), 1007),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-endless-message-is-cut-off",
        "RFC 6455, 10.4; practice: any client can send a message that never ends",
        "The tracker stops reading a message that never ends, in one frame or in fragments.",
        endless,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-oversized-message-closes-with-1009",
        "RFC 6455, 7.4.1",
        "A frame that declares a payload of a terabyte gets a close frame with code 1009.",
        |context| closes_each(context, &[masked_head(FIN | TEXT, 1 << 40)], 1009),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-garbage-does-not-end-the-service",
        "practice: any client can send anything",
        "After random bytes on sockets, before and after the handshake, the tracker answers as before.",
        garbage,
    ),
    Case::must(
        "ws-idle-sockets-do-not-block-others",
        "practice: any client can open sockets and send nothing",
        "Sockets that send nothing, half a handshake or half a frame do not block others.",
        idle,
    ),
    Case::must(
        "ws-sockets-that-vanish-do-no-harm",
        "practice: clients leave whenever they like",
        "Sockets that end without a close frame, even within a frame, do not affect others.",
        vanishing,
    ),
];

fn close_frames(context: &Context<'_>, check: impl Fn(Option<u16>, Option<u16>) -> Checked) -> Checked {
    let reason = [&1001_u16.to_be_bytes()[..], "going ä".as_bytes()].concat();
    let sent: [(Vec<u8>, Option<u16>); 4] = [
        (1000_u16.to_be_bytes().to_vec(), Some(1000)),
        (reason, Some(1001)),
        (3000_u16.to_be_bytes().to_vec(), Some(3000)),
        (Vec::new(), None),
    ];
    for (payload, code) in sent {
        let mut socket = Socket::open(context)?;
        socket.send(&socket.frame(FIN | CLOSE, &payload));
        let event = socket.next_event()?;
        let SocketEvent::Close(seen) = event else {
            return ensure(
                false,
                format!("a close frame in response to code {code:?}"),
                format!("{event:?}"),
            );
        };
        check(code, seen)?;
    }
    Ok(())
}

fn close_ends(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    socket.send(&socket.frame(FIN | CLOSE, &1000_u16.to_be_bytes()));
    let (has_ended, _) = socket.wait_for_end()?;
    ensure(has_ended, "a connection that is closed", "it stays open")
}

/// Fails the case unless each of these inputs, on a socket of its own, ends the connection.
fn ends_each(context: &Context<'_>, all: &[Vec<u8>]) -> Checked {
    for bytes in all {
        let mut socket = Socket::open(context)?;
        socket.send(bytes);
        let (has_ended, code) = socket.wait_for_end()?;
        let expected = format!("the end of the connection after {}", start_of(bytes));
        ensure(has_ended, expected, format!("it stays open; code {code:?}"))?;
    }
    Ok(())
}

/// Fails the case unless each of these inputs, on a socket of its own, gets a close frame with this code.
fn closes_each(context: &Context<'_>, all: &[Vec<u8>], code: u16) -> Checked {
    for bytes in all {
        let mut socket = Socket::open(context)?;
        socket.send(bytes);
        let (has_ended, seen) = socket.wait_for_end()?;
        let expected = format!("a close frame with code {code} after {}", start_of(bytes));
        ensure(seen == Some(code), expected, format!("code {seen:?}, and closed: {has_ended}"))?;
    }
    Ok(())
}

fn start_of(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(24)].escape_ascii().to_string()
}

/// An empty object, since the contents do not matter here.
const MESSAGE: &[u8] = b"{}";

fn unmasked_message() -> Vec<u8> {
    unmasked(FIN | TEXT, MESSAGE)
}

fn with_each_first(context: &Context<'_>, firsts: &[u8], payload: &[u8]) -> Vec<Vec<u8>> {
    firsts.iter().map(|&first| frame_of(context, first, payload)).collect()
}

fn reserved_bits(context: &Context<'_>) -> Vec<Vec<u8>> {
    with_each_first(context, &[0x40, 0x20, 0x10].map(|bit| bit | FIN | TEXT), MESSAGE)
}

fn reserved_opcodes(context: &Context<'_>) -> Vec<Vec<u8>> {
    with_each_first(context, &[0x3, 0x7, 0xb, 0xf].map(|opcode| opcode | FIN), MESSAGE)
}

fn bad_control_frames(context: &Context<'_>) -> Vec<Vec<u8>> {
    vec![frame_of(context, FIN | PING, &[b'x'; 126]), frame_of(context, PING, b"x")]
}

fn bad_fragments(context: &Context<'_>) -> Vec<Vec<u8>> {
    let within = [frame_of(context, TEXT, MESSAGE), frame_of(context, FIN | TEXT, MESSAGE)].concat();
    [with_each_first(context, &[FIN | CONTINUATION, CONTINUATION], MESSAGE), vec![within]].concat()
}

fn bad_utf_8(context: &Context<'_>) -> Vec<Vec<u8>> {
    let texts: [&[u8]; 4] =
        [b"{\"a\":\"\xff\"}", b"{\"a\":\"\xc3\"}", b"{\"a\":\"\xed\xa0\x80\"}", b"{\"a\":\"\xc0\x80\"}"];
    texts.map(|text| frame_of(context, FIN | TEXT, text)).to_vec()
}

fn protocol_errors(context: &Context<'_>) -> Checked {
    let all = [
        vec![unmasked_message()],
        reserved_bits(context),
        reserved_opcodes(context),
        bad_control_frames(context),
        bad_fragments(context),
    ];
    closes_each(context, &all.concat(), 1002)
}

fn bad_close_frames(context: &Context<'_>) -> Checked {
    let payloads = [vec![3], 999_u16.to_be_bytes().to_vec(), 1005_u16.to_be_bytes().to_vec()];
    closes_each(context, &payloads.map(|payload| frame_of(context, FIN | CLOSE, &payload)), 1002)
}

fn endless(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    socket.send(&masked_head(FIN | TEXT, 1 << 40));
    is_cut_off(&mut socket, &vec![b' '; 1 << 18])?;
    let mut socket = Socket::open(context)?;
    socket.send_untraced(&socket.frame(TEXT, b" "));
    let fragments = socket.frame(CONTINUATION, &vec![b' '; 1 << 18]);
    is_cut_off(&mut socket, &fragments)
}

fn is_cut_off(socket: &mut Socket<'_>, piece: &[u8]) -> Checked {
    // After its close frame, the tracker may go on reading for a while, so that a reset does not lose the frame.
    let is_cut_off = (0..ENDLESS / piece.len()).any(|_| !socket.try_send(piece) || socket.has_input());
    ensure(is_cut_off, "a tracker that stops reading", format!("{} MiB accepted", ENDLESS >> 20))
}

fn garbage(context: &Context<'_>) -> Checked {
    let sizes = [1, 2, 10, 100, 1000, 10_000];
    for (round, size) in sizes.into_iter().cycle().take(48).enumerate() {
        let mut socket = if round % 4 == 0 { Socket::connect(context)? } else { Socket::open(context)? };
        let bytes = context.random_bytes(size);
        if round % 4 == 1 {
            // Random bytes in a valid frame.
            socket.send_untraced(&socket.frame(FIN | TEXT, &bytes));
        } else {
            socket.send_untraced(&bytes);
        }
        // The response does not matter.
        let _ = socket.has_input();
        socket.abort();
    }
    Socket::ensure_served(context)
}

fn idle(context: &Context<'_>) -> Checked {
    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut socket = if number % 2 == 0 { Socket::open(context)? } else { Socket::connect(context)? };
        match number % 4 {
            0 => socket.send_untraced(&masked_head(FIN | TEXT, 100)),
            1 => socket.send_untraced(b"GET / HTTP/1.1\r\nUpgrade: webs"),
            _ => {}
        }
        idle.push(socket);
    }
    Socket::ensure_served(context)
}

fn vanishing(context: &Context<'_>) -> Checked {
    let message = Fields::announce(context.hash(0), 1).text();
    for round in 0..20_usize {
        let mut socket = Socket::open(context)?;
        let frame = socket.frame(FIN | TEXT, message.as_bytes());
        socket.send_untraced(&frame[..frame.len() * (round % 5) / 5]);
        socket.abort();
    }
    Socket::ensure_served(context)
}
