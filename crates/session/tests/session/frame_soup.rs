//! Any bytes on a WebSocket in any pieces: nothing breaks, little is buffered, and the pieces make no difference.

use proptest::prelude::*;
use shoal_base::transport::stream::{Next, StreamService};

use crate::frames::{BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, fragment, frame};
use crate::harness::{INPUT_BYTES_MAX, Tracker};
use crate::webtorrent::{ALICE, BOB, Client, announce_message, answer, round};

/// Longest message of these tests.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Maximum number of buffered bytes: the fragments of one message, part of a frame, and an input after it.
const BUFFERED_BYTES_MAX: usize = MESSAGE_BYTES_MAX + MESSAGE_BYTES_MAX + 14 + INPUT_BYTES_MAX;

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(announce_message(ALICE, &["one", "two"]).into_bytes()),
        2 => Just(announce_message(BOB, &[]).into_bytes()),
        1 => Just(br#"{"action":"scrape","info_hash":"tttttttttttttttttttt"}"#.to_vec()),
        1 => Just(br#"{"action":"scrape"}"#.to_vec()),
        1 => "[ -~]{0,100}".prop_map(String::into_bytes),
        1 => (0..2 * MESSAGE_BYTES_MAX).prop_map(|bytes| vec![b' '; bytes]),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// Frames as clients send them, mostly.
fn morsel() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop::sample::select(vec![TEXT, TEXT, TEXT, BINARY]);
    prop_oneof![
        10 => (opcode, payload()).prop_map(|(opcode, payload)| frame(opcode, &payload)),
        5 => (payload(), 0..200_usize).prop_map(|(payload, cut)| {
            let (front, rest) = payload.split_at(cut.min(payload.len()));
            let ping = frame(PING, b"in between");
            [fragment(TEXT, false, front), ping, fragment(CONTINUATION, true, rest)].concat()
        }),
        3 => prop::collection::vec(any::<u8>(), 0..126).prop_map(|payload| frame(PING, &payload)),
        2 => Just(frame(PONG, b"")),
        1 => Just(answer(ALICE, BOB, 0, "sdp")),
        1 => Just(frame(CLOSE, b"\x03\xe8")),
        1 => (0..16_u8, any::<bool>(), payload()).prop_map(|(opcode, fin, payload)| fragment(opcode, fin, &payload)),
        1 => any::<[u8; 10]>().prop_map(|length| [&b"\x81\xff"[..], &length].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// The outcome of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: Vec<u8>,
    next: Next,
}

/// Runs the body of a fuzz target: passes `bytes` to a WebSocket in pieces of the lengths `cuts`, repeatedly.
fn exchange(bytes: &[u8], cuts: &[usize]) -> Outcome {
    let mut tracker =
        Tracker::with(|settings| settings.websocket.message_bytes_max = MESSAGE_BYTES_MAX, |_| {}, None);
    let mut client = Client::new(&mut tracker);
    let (mut sent, mut rest) = (Vec::new(), bytes);
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() && matches!(client.next, Next::Upgraded | Next::Busy | Next::BusyNew) {
        let cut = cuts.next().copied().unwrap_or(INPUT_BYTES_MAX).clamp(1, INPUT_BYTES_MAX).min(rest.len());
        client.send(&mut tracker, &rest[..cut]);
        rest = &rest[cut..];
        assert!(client.session.buffered_bytes() <= BUFFERED_BYTES_MAX);
        assert!(
            client.next != Next::Upgraded || client.session.buffered_bytes() == 0,
            "a standing one holds nothing"
        );
        round(&mut tracker, &mut [&mut client]);
        sent.append(&mut client.read_bytes());
    }
    let has_ended = matches!(client.next, Next::Close | Next::Linger);
    let mut last_message = Vec::new();
    tracker.service.expire(&mut client.session, &mut last_message);
    assert_eq!(last_message.is_empty(), has_ended);
    assert_eq!(client.session.buffered_bytes(), 0);
    // The connection has ended, whatever follows.
    assert_eq!(tracker.service.receive(&mut client.session, &mut [0x81], &mut last_message), Next::Close);
    // Whether the last write or the last input tells of a partial message depends on the pieces.
    let next = if client.next == Next::BusyNew { Next::Busy } else { client.next };
    client.leave(&mut tracker);
    Outcome { sent, next }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn pieces_make_no_difference(
        morsels in prop::collection::vec(morsel(), 0..20),
        cuts in prop::collection::vec(1..600_usize, 1..8),
    ) {
        let bytes = morsels.concat();
        prop_assert_eq!(exchange(&bytes, &cuts), exchange(&bytes, &[]));
    }

    #[test]
    fn arbitrary_bytes_break_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        cuts in prop::collection::vec(1..600_usize, 1..8),
    ) {
        prop_assert_eq!(exchange(&bytes, &cuts), exchange(&bytes, &[]));
    }
}

#[test]
fn the_soup_holds_messages_that_are_granted() {
    // Otherwise the tests above would prove little.
    let bytes = [announce_message(BOB, &[]), announce_message(ALICE, &["one"])]
        .map(|message| frame(TEXT, message.as_bytes()));
    let outcome = exchange(&bytes.concat(), &[1]);
    let sent = String::from_utf8_lossy(&outcome.sent).into_owned();
    assert_eq!(sent.matches(r#""interval":"#).count(), 2, "{sent}");
    assert_eq!((sent.matches("one").count(), outcome.next), (1, Next::Upgraded));
}
