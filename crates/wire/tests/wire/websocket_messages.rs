//! Messages from frames: a table of conversations in the order of the sections of the common conformance suite (1
//! framing, 2 pings, 3 reserved bits, 4 opcodes, 5 fragments, 6 UTF-8, 7 closing, 9 limits, 10 chops), each split at
//! every position, and generated input.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_wire::websocket::frame::{Opcode, encode_fragment};
use shoal_wire::websocket::{CloseCode, Event, Reader, Role, Violation};

use Opcode::{Binary, Close, Continuation, Ping, Pong, Text};

const MASK: [u8; 4] = [0xa1, 0x5b, 0x00, 0xff];
const MESSAGE_BYTES_MAX: usize = 1 << 17;
/// The length in bytes up to which conversations are split at every byte.
const SHORT_BYTES: usize = 300;

/// An event or violation that the reader returned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Received {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    Broken(Violation),
}

use Received::{Broken, Message};

/// A frame to send: opcode, whether it is the last fragment, payload.
type Frame<'a> = (Opcode, bool, &'a [u8]);

fn frames(frames: &[Frame<'_>], role: Role) -> Vec<u8> {
    let mut out = Vec::new();
    for (opcode, fin, payload) in frames {
        encode_fragment(*opcode, *fin, payload, (role == Role::Server).then_some(MASK), &mut out);
    }
    out
}

/// Reads as a connection does: appends new bytes to the unprocessed rest, and reads until no byte is used.
fn receive<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    role: Role,
    message_bytes_max: usize,
) -> Vec<Received> {
    let (mut reader, mut input, mut received) = (Reader::new(), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let read = match reader.read(&mut input[at..], role, message_bytes_max) {
                Ok(read) => read,
                Err(violation) => {
                    received.push(Broken(violation));
                    return received;
                }
            };
            received.extend(read.event.map(|event| match event {
                Event::Message(message) => Message(message.to_vec()),
                Event::Ping(payload) => Received::Ping(payload.to_vec()),
                Event::Pong(payload) => Received::Pong(payload.to_vec()),
                Event::Close(code) => Received::Close(code),
            }));
            if read.used == 0 {
                break;
            }
            at += read.used;
        }
        input.drain(..at);
        assert!(reader.buffered_bytes() <= message_bytes_max);
        assert!(reader.is_within_message() || reader.buffered_bytes() == 0, "memory only within a message");
    }
    received
}

/// Checks that the result is the same however the bytes are split.
fn assert_received(bytes: &[u8], role: Role, message_bytes_max: usize, expected: &[Received]) {
    assert_eq!(receive([bytes], role, message_bytes_max), expected, "in one piece");
    if bytes.len() <= SHORT_BYTES {
        assert_eq!(receive(bytes.chunks(1), role, message_bytes_max), expected, "byte by byte");
        for cut in 0..bytes.len() {
            let pieces: [&[u8]; 2] = bytes.split_at(cut).into();
            assert_eq!(receive(pieces, role, message_bytes_max), expected, "cut at {cut}");
        }
    } else {
        for chop in [997, 4096] {
            assert_eq!(receive(bytes.chunks(chop), role, message_bytes_max), expected, "in pieces of {chop}");
        }
    }
}

/// Checks frames as [`assert_received`] does, in both roles.
fn assert_frames(sent: &[Frame<'_>], expected: &[Received]) {
    for role in [Role::Server, Role::Client] {
        assert_received(&frames(sent, role), role, MESSAGE_BYTES_MAX, expected);
    }
}

fn message(payload: impl AsRef<[u8]>) -> Received {
    Message(payload.as_ref().to_vec())
}

fn ping(payload: impl AsRef<[u8]>) -> Received {
    Received::Ping(payload.as_ref().to_vec())
}

#[test]
fn section_1_messages_of_every_length() {
    for payload_bytes in [0, 1, 125, 126, 127, 128, 65_535, 65_536, MESSAGE_BYTES_MAX] {
        let payload: Vec<u8> = (b' '..=b'~').cycle().take(payload_bytes).collect();
        assert_frames(&[(Text, true, &payload)], &[message(&payload)]);
        let payload: Vec<u8> = (0..=u8::MAX).rev().cycle().take(payload_bytes).collect();
        assert_frames(&[(Binary, true, &payload)], &[message(&payload)]);
    }
}

#[test]
fn section_2_pings_and_pongs() {
    let full = [0xfe; 125];
    assert_frames(&[(Ping, true, b"")], &[ping("")]);
    assert_frames(&[(Ping, true, b"Hello, world!")], &[ping("Hello, world!")]);
    assert_frames(&[(Ping, true, &full)], &[ping(full)]);
    assert_frames(&[(Pong, true, b"unasked")], &[Received::Pong(b"unasked".to_vec())]);
    assert_frames(
        &[(Pong, true, b""), (Ping, true, b"\xff\x00"), (Text, true, b"text")],
        &[Received::Pong(Vec::new()), ping(b"\xff\x00"), message("text")],
    );
    let payloads: Vec<[u8; 1]> = (0..10).map(|number| [number]).collect();
    let pings: Vec<Frame<'_>> = payloads.iter().map(|payload| (Ping, true, &payload[..])).collect();
    assert_frames(&pings, &payloads.iter().map(ping).collect::<Vec<_>>());
    // 126 bytes, which the encoder does not produce.
    let long = [&[0x89, 0xfe, 0, 126][..], &MASK, &[0; 126]].concat();
    assert_received(&long, Role::Server, MESSAGE_BYTES_MAX, &[Broken(Violation::LongControl)]);
}

#[test]
fn section_3_reserved_bits() {
    for bits in 1..8_u8 {
        let mut bytes = frames(&[(Text, true, b"fine")], Role::Server);
        let broken = bytes.len();
        bytes.extend(frames(&[(Text, true, b"broken"), (Ping, true, b"")], Role::Server));
        bytes[broken] |= bits << 4;
        let expected = [message("fine"), Broken(Violation::ReservedBits)];
        assert_received(&bytes, Role::Server, MESSAGE_BYTES_MAX, &expected);
    }
}

#[test]
fn section_4_reserved_opcodes() {
    for opcode in [3..8_u8, 11..16].into_iter().flatten() {
        let mut bytes = frames(&[(Text, true, b"fine")], Role::Client);
        bytes.extend([0x80 | opcode, 0]);
        bytes.extend(frames(&[(Ping, true, b"")], Role::Client));
        let expected = [message("fine"), Broken(Violation::Opcode)];
        assert_received(&bytes, Role::Client, MESSAGE_BYTES_MAX, &expected);
    }
}

#[test]
fn section_5_fragments() {
    for kind in [Text, Binary] {
        assert_frames(&[(kind, false, b"one "), (Continuation, true, b"two")], &[message("one two")]);
        assert_frames(
            &[(kind, false, b""), (Continuation, false, b""), (Continuation, true, b"")],
            &[message("")],
        );
        assert_frames(
            &[(kind, false, b""), (Continuation, false, b"middle"), (Continuation, true, b"")],
            &[message("middle")],
        );
        // Control frames arrive in between, and other messages afterwards.
        assert_frames(
            &[
                (kind, false, b"one "),
                (Ping, true, b"1"),
                (Continuation, false, b"two "),
                (Ping, true, b"2"),
                (Pong, true, b""),
                (Continuation, true, b"three"),
                (Text, true, b"next"),
            ],
            &[ping("1"), ping("2"), Received::Pong(Vec::new()), message("one two three"), message("next")],
        );
        // A close frame ends the conversation, even within a message.
        assert_frames(&[(kind, false, b"one"), (Close, true, b"")], &[Received::Close(None)]);
        for next in [Text, Binary] {
            for fin in [false, true] {
                let interleaved = [(kind, false, &b"one"[..]), (Ping, true, b"1"), (next, fin, b"two")];
                assert_frames(&interleaved, &[ping("1"), Broken(Violation::Interleaved)]);
            }
        }
    }
    for fin in [false, true] {
        assert_frames(&[(Continuation, fin, b"x")], &[Broken(Violation::NothingToContinue)]);
        assert_frames(
            &[(Text, false, b"a"), (Continuation, true, b"b"), (Continuation, fin, b"c")],
            &[message("ab"), Broken(Violation::NothingToContinue)],
        );
        assert_frames(
            &[(Text, true, b"a"), (Continuation, fin, b"b")],
            &[message("a"), Broken(Violation::NothingToContinue)],
        );
    }
    // Fragmented control frames, which the encoder does not produce.
    for first in [0x08, 0x09, 0x0a] {
        let mut bytes = vec![first, 0x80];
        bytes.extend(MASK);
        assert_received(&bytes, Role::Server, MESSAGE_BYTES_MAX, &[Broken(Violation::FragmentedControl)]);
    }
}

const VALID: [&[u8]; 8] = [
    "Hello-µ@ßöäüàá-UTF-8!!".as_bytes(),
    "κόσμε".as_bytes(),
    b"\x00",
    b"\x7f",
    b"\xc2\x80",
    b"\xef\xbf\xbf",
    b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf",
];

const INVALID: [&[u8]; 14] = [
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    b"\x80",
    b"\xbf",
    b"\xc0\xaf",
    b"\xc2",
    b"\xe1\xbd",
    b"\xf0\x90\x80",
    b"\xed\xbf\xbf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xfe",
    b"ab\xffcd",
];

/// Every split of a payload into two fragments.
fn in_two(payload: &[u8]) -> impl Iterator<Item = [Frame<'_>; 2]> {
    (0..=payload.len()).map(|cut| {
        let (front, rest) = payload.split_at(cut);
        [(Text, false, front), (Continuation, true, rest)]
    })
}

#[test]
fn section_6_text_is_utf_8() {
    for payload in VALID {
        assert_frames(&[(Text, true, payload)], &[message(payload)]);
        in_two(payload).for_each(|sent| assert_frames(&sent, &[message(payload)]));
    }
    for payload in INVALID {
        assert_frames(&[(Text, true, payload)], &[Broken(Violation::Utf8)]);
        in_two(payload).for_each(|sent| assert_frames(&sent, &[Broken(Violation::Utf8)]));
        // Binary messages may contain any bytes.
        assert_frames(&[(Binary, true, payload)], &[message(payload)]);
        assert_frames(
            &[(Binary, false, payload), (Continuation, true, payload)],
            &[message([payload; 2].concat())],
        );
    }
}

#[test]
fn section_7_closing() {
    assert_frames(&[(Close, true, b"")], &[Received::Close(None)]);
    assert_frames(&[(Close, true, b"\x03")], &[Broken(Violation::CloseLength)]);
    let reason = [&[0x03, 0xe8][..], "µ".repeat(61).as_bytes(), b"!"].concat();
    assert_frames(&[(Close, true, &reason)], &[Received::Close(Some(1000))]);
    assert_frames(&[(Close, true, &reason[..124])], &[Received::Close(Some(1000))]);
    assert_frames(&[(Close, true, &reason[..123])], &[Broken(Violation::CloseReason)]);
    for code in [1000_u16, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1014, 3000, 3999, 4000, 4999]
    {
        assert_frames(&[(Close, true, &code.to_be_bytes())], &[Received::Close(Some(code))]);
    }
    for code in [0_u16, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        assert_frames(&[(Close, true, &code.to_be_bytes())], &[Broken(Violation::CloseCode)]);
    }
}

#[test]
fn section_9_a_message_too_large_is_detected_by_its_head() {
    let max = 1000;
    let sent = [
        (&[(Binary, true, 1001)][..], &[][..]),
        (&[(Binary, false, 1001)], &[]),
        (&[(Text, true, 70_000)], &[]),
        (&[(Binary, true, 1000), (Binary, true, 1001)], &[1000]),
        (
            &[(Binary, false, 1000), (Continuation, true, 0), (Binary, false, 999), (Continuation, false, 2)],
            &[1000],
        ),
        (&[(Binary, false, 1), (Ping, true, 125), (Continuation, true, 1000)], &[125]),
    ];
    for (sent, received) in sent {
        let payload = vec![b'x'; 70_000];
        let sent: Vec<Frame<'_>> =
            sent.iter().map(|(opcode, fin, bytes)| (*opcode, *fin, &payload[..*bytes])).collect();
        let (last, before) = sent.split_last().unwrap();
        let mut bytes = frames(before, Role::Server);
        // Only the head of the frame that is too large is sent.
        let head_bytes = if last.2.len() < 126 {
            6
        } else if last.2.len() < 65_536 {
            8
        } else {
            14
        };
        bytes.extend(&frames(&[*last], Role::Server)[..head_bytes]);
        let mut expected: Vec<Received> = received
            .iter()
            .map(|bytes| if *bytes == 125 { ping(&payload[..125]) } else { message(&payload[..*bytes]) })
            .collect();
        expected.push(Broken(Violation::TooBig));
        assert_received(&bytes, Role::Server, max, &expected);
    }
    let huge = [&[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..], &MASK].concat();
    assert_received(&huge, Role::Server, max, &[Broken(Violation::TooBig)]);
    assert_eq!(Violation::TooBig.close_code(), CloseCode::TooBig);
}

#[test]
fn section_9_large_messages_in_many_fragments() {
    let payload: Vec<u8> = (0..=u8::MAX).cycle().take(MESSAGE_BYTES_MAX).collect();
    for fragment_bytes in [64, 256, 1024, 4096, 65_536] {
        let mut chunks: Vec<Frame<'_>> =
            payload.chunks(fragment_bytes).map(|chunk| (Continuation, false, chunk)).collect();
        chunks[0].0 = Binary;
        chunks.last_mut().unwrap().1 = true;
        assert_frames(&chunks, &[message(&payload)]);
    }
}

#[test]
fn section_10_a_message_in_fragments_of_every_length() {
    let payload: Vec<u8> = (b'!'..=b'~').cycle().take(150).collect();
    for fragment_bytes in 1..payload.len() {
        let mut chunks: Vec<Frame<'_>> =
            payload.chunks(fragment_bytes).map(|chunk| (Continuation, false, chunk)).collect();
        chunks[0].0 = Text;
        chunks.last_mut().unwrap().1 = true;
        let bytes = frames(&chunks, Role::Server);
        assert_eq!(receive([&bytes[..]], Role::Server, 150), [message(&payload)]);
        assert_eq!(receive(bytes.chunks(7), Role::Server, 150), [message(&payload)]);
    }
}

#[test]
fn fragments_are_kept_as_they_come_and_given_back() {
    let mut reader = Reader::new();
    let mut begin = frames(&[(Text, false, &[b'x'; 100])], Role::Server);
    let read = reader.read(&mut begin, Role::Server, 1 << 20).unwrap();
    assert_eq!((read.used, read.event), (6 + 100, None));
    assert!(reader.is_within_message());
    assert!((100..300).contains(&reader.buffered_bytes()), "nothing is kept for what might come");
    let mut end = frames(&[(Continuation, true, b"y")], Role::Server);
    let read = reader.read(&mut end, Role::Server, 1 << 20).unwrap();
    assert!(matches!(read.event, Some(Event::Message(message)) if message.len() == 101));
    assert!(!reader.is_within_message());
    let read = reader.read(&mut [], Role::Server, 1 << 20).unwrap();
    assert_eq!((read.used, read.event), (0, None));
    assert_eq!(reader.buffered_bytes(), 0);
}

/// Returns messages in fragments, with control frames between the fragments.
fn sent() -> impl Strategy<Value = Vec<(Opcode, bool, Vec<u8>)>> {
    let control = (prop_oneof![Just(Ping), Just(Pong)], Just(true), vec(any::<u8>(), 0..126));
    let text = (Just(Text), "\\PC{0,200}".prop_map(String::into_bytes));
    let binary = (Just(Binary), vec(any::<u8>(), 0..300));
    let cuts = (vec(any::<prop::sample::Index>(), 0..4), vec(control, 0..4));
    let message = (prop_oneof![text, binary], cuts).prop_map(|((opcode, payload), (cuts, controls))| {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(payload.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([payload.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let mut controls = controls.into_iter();
        let mut frames: Vec<(Opcode, bool, Vec<u8>)> = Vec::new();
        for (index, (start, end)) in starts.zip(ends).enumerate() {
            let opcode = if index == 0 { opcode } else { Continuation };
            frames.push((opcode, index == cuts.len(), payload[start..end].to_vec()));
            frames.extend(controls.next());
        }
        frames
    });
    vec(message, 0..6).prop_map(|messages| messages.concat())
}

/// Returns the expected events, computed in the simplest way.
fn expected(sent: &[(Opcode, bool, Vec<u8>)]) -> Vec<Received> {
    let (mut received, mut whole) = (Vec::new(), Vec::new());
    for (opcode, fin, payload) in sent {
        match opcode {
            Ping => received.push(ping(payload)),
            Pong => received.push(Received::Pong(payload.clone())),
            _ => {
                whole.extend_from_slice(payload);
                if *fin {
                    received.push(Message(std::mem::take(&mut whole)));
                }
            }
        }
    }
    received
}

proptest! {
    #[test]
    fn everything_sent_is_received(sent in sent(), cuts in vec(any::<prop::sample::Index>(), 0..8)) {
        let borrowed: Vec<Frame<'_>> =
            sent.iter().map(|(opcode, fin, payload)| (*opcode, *fin, &payload[..])).collect();
        for role in [Role::Server, Role::Client] {
            let bytes = frames(&borrowed, role);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut start = 0;
            let pieces = cuts.iter().map(|end| &bytes[std::mem::replace(&mut start, *end)..*end]);
            prop_assert_eq!(receive(pieces, role, MESSAGE_BYTES_MAX), expected(&sent));
            prop_assert_eq!(receive(bytes.chunks(1), role, MESSAGE_BYTES_MAX), expected(&sent));
        }
    }

    #[test]
    fn other_bytes_give_the_same_result_however_they_are_split(bytes in vec(any::<u8>(), 0..200)) {
        for role in [Role::Server, Role::Client] {
            let whole = receive([&bytes[..]], role, 100);
            prop_assert_eq!(&receive(bytes.chunks(1), role, 100), &whole);
            prop_assert_eq!(&receive(bytes.chunks(3), role, 100), &whole);
        }
    }
}
