//! WebSockets: messages in any pieces, pings, closes, and peers that break the rules.

use shoal_base::transport::stream::{Next, StreamService};

use crate::frames::{self, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT, fragment, frame, text};
use crate::harness::{INPUT_BYTES_MAX, Tracker};
use crate::webtorrent::{
    ALICE, BOB, Client, announce, announce_message, announce_with, assert_counts, round,
};

/// Longest message of these tests.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

fn tracker() -> Tracker {
    Tracker::with(|settings| settings.websocket.message_bytes_max = MESSAGE_BYTES_MAX, |_| {}, None)
}

/// Returns the number of peers, as a client that joins to find out receives it.
#[track_caller]
fn assert_peers(tracker: &mut Tracker, peers: u32) {
    let mut observer = Client::at(tracker, "198.51.100.200");
    let frames = observer.ask(tracker, &announce("-WW0001-observer0000"));
    assert_counts(&frames[0], 0, peers + 1);
    observer.leave(tracker);
}

/// Creates Alice and Bob, who have announced themselves.
fn pair(tracker: &mut Tracker) -> (Client, Client) {
    let (mut alice, mut bob) = (Client::at(tracker, "192.0.2.1"), Client::at(tracker, "192.0.2.2"));
    assert_counts(&alice.ask(tracker, &announce(ALICE))[0], 0, 1);
    assert_counts(&bob.ask(tracker, &announce(BOB))[0], 0, 2);
    (alice, bob)
}

fn pings(frames: &[Frame]) -> Vec<&[u8]> {
    frames.iter().filter(|frame| frame.opcode == PONG).map(|frame| frame.payload.as_slice()).collect()
}

#[test]
fn all_that_waits_for_one_leaves_together_and_in_order() {
    let mut tracker = tracker();
    let (mut alice, mut bob) = pair(&mut tracker);
    for number in 0..5 {
        alice.send(&mut tracker, &announce_with(ALICE, &[&format!("offer {number}.")]));
    }
    bob.send(&mut tracker, &announce(BOB));
    assert_eq!(round(&mut tracker, &mut [&mut alice, &mut bob]), 2, "each is spoken to once");
    assert_eq!(alice.read().len(), 5);
    let frames = bob.read();
    assert_eq!(frames.len(), 6);
    for (number, frame) in frames[..5].iter().enumerate() {
        assert!(frame.text().contains(&format!("offer {number}.")), "{}", frame.text());
    }
    assert_counts(&frames[5], 0, 2);
    assert_eq!(round(&mut tracker, &mut [&mut alice, &mut bob]), 0);
}

#[test]
fn frames_may_be_cut_anywhere() {
    let bytes = [
        frame(PING, b"1"),
        announce(ALICE),
        fragment(TEXT, false, &announce_message(ALICE, &[]).as_bytes()[..40]),
        frame(PING, b"2"),
        fragment(CONTINUATION, true, &announce_message(ALICE, &[]).as_bytes()[40..]),
        frame(PING, &[7; 125]),
    ];
    let (ends, bytes): (Vec<usize>, _) = (
        bytes
            .iter()
            .scan(0, |end, frame| {
                *end += frame.len();
                Some(*end)
            })
            .collect(),
        bytes.concat(),
    );
    for cut in 1..bytes.len() {
        let mut tracker = tracker();
        let mut client = Client::new(&mut tracker);
        client.send(&mut tracker, &bytes[..cut]);
        // The connection also waits for input between the fragments of a message.
        let is_within_message = (ends[1] + 1..ends[4]).contains(&cut);
        let is_between_frames = ends.contains(&cut) && !is_within_message;
        // The first message is complete by then, so the time limit of another one begins.
        let awaited = if cut > ends[1] { Next::BusyNew } else { Next::Busy };
        assert_eq!(client.next, if is_between_frames { Next::Upgraded } else { awaited }, "{cut}");
        assert_eq!(client.session.buffered_bytes() == 0, is_between_frames, "{cut}");
        client.send(&mut tracker, &bytes[cut..]);
        assert_eq!((client.next, client.session.buffered_bytes()), (Next::Upgraded, 0), "{cut}");
        round(&mut tracker, &mut [&mut client]);
        let frames = client.read();
        assert_eq!(pings(&frames), [&b"1"[..], b"2", &[7; 125]], "{cut}");
        assert_eq!(frames.len(), 5, "{cut}");
    }
}

#[test]
fn a_message_longer_than_an_input_is_kept_in_part_and_then_let_go() {
    let mut tracker = tracker();
    let (mut alice, mut bob) = pair(&mut tracker);
    let sdp = "y".repeat(4000);
    let bytes = announce_with(ALICE, &[sdp.as_str(); 10]);
    assert!(bytes.len() > 2 * INPUT_BYTES_MAX);
    for (number, piece) in bytes.chunks(INPUT_BYTES_MAX).enumerate() {
        alice.send(&mut tracker, piece);
        let come = (number + 1) * INPUT_BYTES_MAX;
        assert!(alice.session.buffered_bytes() <= 2 * come, "{}", alice.session.buffered_bytes());
    }
    assert_eq!((alice.next, alice.session.buffered_bytes()), (Next::Upgraded, 0));
    round(&mut tracker, &mut [&mut alice, &mut bob]);
    assert!(bob.read()[0].text().contains(&sdp));
}

#[test]
fn a_client_in_the_middle_of_a_message_is_written_to() {
    let mut tracker = tracker();
    let (mut alice, mut bob) = pair(&mut tracker);
    let half = announce(BOB);
    bob.send(&mut tracker, &half[..20]);
    assert_eq!(bob.next, Next::Busy);
    alice.send(&mut tracker, &announce_with(ALICE, &["the offer"]));
    round(&mut tracker, &mut [&mut alice, &mut bob]);
    assert_eq!(bob.next, Next::Busy);
    assert!(bob.read()[0].text().contains("the offer"));
    bob.send(&mut tracker, &half[20..]);
    round(&mut tracker, &mut [&mut alice, &mut bob]);
    assert_eq!((bob.next, bob.read().len()), (Next::Upgraded, 1));
}

#[test]
fn a_ping_is_answered_at_the_end_of_a_turn_and_gives_no_time_for_the_message_that_it_interrupts() {
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    client.send(&mut tracker, &fragment(TEXT, false, b"{"));
    // A client that is answered at once gets a new time limit.
    client.send(&mut tracker, &frame(PING, b"?"));
    assert_eq!((client.next, client.read_bytes().len()), (Next::Busy, 0));
    round(&mut tracker, &mut [&mut client]);
    assert_eq!(client.read(), [Frame { opcode: PONG, payload: b"?".to_vec() }]);
    assert_eq!(client.next, Next::Busy);
}

#[test]
fn messages_before_the_end_are_answered_before_it() {
    for (end, code) in
        [(frame(CLOSE, b"\x03\xe8"), 1000), (frame(3, b""), 1002), (frame(TEXT, b"\xff"), 1007)]
    {
        let mut tracker = tracker();
        let mut client = Client::new(&mut tracker);
        client.send(&mut tracker, &[frame(PING, b"?"), announce(ALICE), end].concat());
        let frames = client.read();
        assert_eq!((frames.len(), pings(&frames)), (3, vec![&b"?"[..]]));
        assert_counts(&frames[1], 0, 1);
        assert_eq!(frames[2].code(), code);
        assert_eq!(round(&mut tracker, &mut [&mut client]), 0);
        assert_peers(&mut tracker, 0);
    }
}

#[test]
fn no_more_is_said_before_the_end_than_an_answer_may_be() {
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    client.send(&mut tracker, &[text("junk").repeat(2000), frame(CLOSE, b"")].concat());
    assert_eq!(client.read(), [Frame { opcode: CLOSE, payload: Vec::new() }]);
    assert_eq!((client.next, round(&mut tracker, &mut [&mut client])), (Next::Close, 0));
}

#[test]
fn a_close_is_answered_by_its_code_and_the_peers_are_gone() {
    for payload in [&b""[..], b"\x03\xe8", b"\x03\xe9bye", b"\x0f\xa0"] {
        let mut tracker = tracker();
        let mut client = Client::new(&mut tracker);
        client.ask(&mut tracker, &announce(ALICE));
        assert_peers(&mut tracker, 1);
        // Input after a close is ignored.
        let frames =
            client.ask(&mut tracker, &[frame(CLOSE, payload), announce(ALICE), frame(PING, b"")].concat());
        assert_eq!(frames, [Frame { opcode: CLOSE, payload: payload[..payload.len().min(2)].to_vec() }]);
        assert_eq!((client.next, client.session.buffered_bytes()), (Next::Close, 0));
        assert_peers(&mut tracker, 0);
        client.leave(&mut tracker);
    }
}

/// Asserts that a client that announces and then sends this input receives the close code, and that its later
/// input is ignored.
#[track_caller]
fn assert_closed(bytes: &[u8], code: u16) {
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    client.ask(&mut tracker, &announce(ALICE));
    let frames = client.ask(&mut tracker, &[bytes, &announce(ALICE), &frame(PING, b"")].concat());
    let shown = bytes[..bytes.len().min(20)].escape_ascii();
    assert_eq!((frames.len(), frames[0].code(), client.next), (1, code, Next::Linger), "{shown}");
    assert!(frames[0].payload.len() > 10, "it says why");
    assert_eq!(client.session.buffered_bytes(), 0, "{shown}");
    assert_peers(&mut tracker, 0);
    client.send(&mut tracker, &announce(ALICE));
    assert_eq!((client.next, client.read().len()), (Next::Close, 0), "{shown}");
}

#[test]
fn a_protocol_violation_is_answered_by_a_close_frame() {
    assert_closed(b"\x81\x02hi", 1002);
    assert_closed(&frame(3, b""), 1002);
    assert_closed(&[fragment(TEXT, false, b"x"), text("y")].concat(), 1002);
    assert_closed(&frame(CLOSE, b"\x03"), 1002);
    assert_closed(&frame(TEXT, b"\xff"), 1007);
    assert_closed(&[fragment(TEXT, false, b"\xc3"), fragment(CONTINUATION, true, b"x")].concat(), 1007);
    assert_closed(b"GET / HTTP/1.1\r\n\r\n", 1002);
}

#[test]
fn a_client_that_leaves_its_replies_unread_is_closed() {
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    tracker.service.set_backlog(client.handle, 1);
    // Each reply has more than 50 bytes, and 256 KiB of them may wait.
    for _ in 0..(256 << 10) / 50 {
        client.send(&mut tracker, &announce(ALICE));
        if client.next == Next::Linger {
            break;
        }
    }
    assert_eq!((client.read()[0].code(), client.next), (1008, Next::Linger));
}

#[test]
fn a_message_that_is_too_long_is_known_by_its_head() {
    let longest = vec![b' '; MESSAGE_BYTES_MAX];
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    let frames = client.ask(&mut tracker, &frame(TEXT, &longest));
    assert!(frames[0].text().contains("failure reason"));
    assert_eq!(client.next, Next::Upgraded);

    let too_long = frame(TEXT, &[longest.as_slice(), b" "].concat());
    client.send(&mut tracker, &too_long[..13]);
    assert_eq!(client.next, Next::Busy);
    client.send(&mut tracker, &too_long[13..14]);
    let frames = client.read();
    assert_eq!((frames[0].code(), client.next), (1009, Next::Linger));
    assert_eq!(client.session.buffered_bytes(), 0);

    assert_closed(&too_long, 1009);
    assert_closed(&too_long[..14], 1009);
    // A fragmented message is rejected as well, at the head of the fragment that exceeds the limit.
    let half = vec![b' '; MESSAGE_BYTES_MAX / 2 + 1];
    assert_closed(&[fragment(TEXT, false, &half), fragment(CONTINUATION, true, &half)].concat(), 1009);
    // The length exceeds any memory.
    assert_closed(b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009);
}

#[test]
fn a_silent_peer_is_pinged_once_and_then_disconnected() {
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    client.ask(&mut tracker, &announce(ALICE));
    // Any input, even half a frame, shows that the peer is alive.
    let pong = frame(PONG, b"");
    for sign in [&pong[..], &announce(ALICE), &frame(PING, b"?"), &pong[..1], &pong[1..]] {
        client.keep_alive(&mut tracker);
        let is_whole = sign != &pong[1..];
        assert_eq!(client.next, if is_whole { Next::Upgraded } else { Next::Busy });
        assert_eq!(client.read(), [Frame { opcode: PING, payload: Vec::new() }]);
        client.ask(&mut tracker, sign);
    }
    client.keep_alive(&mut tracker);
    assert_eq!((client.read().len(), client.next), (1, Next::Upgraded));
    client.keep_alive(&mut tracker);
    assert_eq!((client.read_bytes().len(), client.next), (0, Next::Close));
    assert_peers(&mut tracker, 0);
}

/// Returns a stop of Alice.
fn stop() -> Vec<u8> {
    let message = announce_message(ALICE, &[]);
    text(&message.replace(r#""event":"started""#, r#""event":"stopped""#))
}

/// A client that is back on another connection has the same peer id, and its old connection may be dead.
#[test]
fn a_socket_whose_peer_id_another_one_announces_is_pinged_once_and_has_the_whole_time_to_answer() {
    let mut tracker = tracker();
    let (mut old, mut new) = (Client::new(&mut tracker), Client::new(&mut tracker));
    old.ask(&mut tracker, &announce(ALICE));
    for _ in 0..2 {
        new.send(&mut tracker, &announce(ALICE));
        round(&mut tracker, &mut [&mut old, &mut new]);
        assert_eq!((old.read(), old.next), (vec![Frame { opcode: PING, payload: Vec::new() }], Next::Pinged));
        assert_counts(&new.read()[0], 0, 2);
        // While it owes a pong, no other connection can put off its end.
        new.send(&mut tracker, &[stop(), announce(ALICE)].concat());
        round(&mut tracker, &mut [&mut old, &mut new]);
        assert_eq!((old.read(), old.next), (vec![], Next::Upgraded));
        new.send(&mut tracker, &stop());
        round(&mut tracker, &mut [&mut old, &mut new]);
        new.read();
        old.ask(&mut tracker, &frame(PONG, b""));
    }
    // In the middle of a message, its time limit decides.
    old.send(&mut tracker, &announce(ALICE)[..20]);
    new.send(&mut tracker, &announce(ALICE));
    round(&mut tracker, &mut [&mut old, &mut new]);
    assert_eq!((old.read(), old.next), (vec![], Next::Busy));
}

#[test]
fn being_spoken_to_is_no_sign_of_life() {
    let mut tracker = tracker();
    let (mut alice, mut bob) = pair(&mut tracker);
    bob.keep_alive(&mut tracker);
    assert_eq!(bob.next, Next::Upgraded);
    alice.send(&mut tracker, &announce_with(ALICE, &["the offer"]));
    round(&mut tracker, &mut [&mut alice, &mut bob]);
    assert_eq!(bob.read().len(), 2);
    bob.keep_alive(&mut tracker);
    assert_eq!(bob.next, Next::Close);
}

#[test]
fn at_the_end_every_client_is_told_that_the_tracker_stops() {
    for bytes in [&announce(ALICE)[..], &announce(ALICE)[..30], &fragment(TEXT, false, b"{")] {
        let mut tracker = tracker();
        let mut client = Client::new(&mut tracker);
        client.ask(&mut tracker, bytes);
        client.expire(&mut tracker);
        let frames = client.read();
        assert_eq!((frames.len(), frames[0].code()), (1, 1001));
        assert_eq!(client.session.buffered_bytes(), 0);
        client.send(&mut tracker, &announce(ALICE));
        assert_eq!((client.next, client.read().len()), (Next::Close, 0));
        assert_peers(&mut tracker, 0);
    }
}

#[test]
fn messages_for_a_closed_connection_are_lost() {
    let mut tracker = tracker();
    let (mut alice, bob) = pair(&mut tracker);
    alice.send(&mut tracker, &announce_with(ALICE, &["the offer"]));
    bob.leave(&mut tracker);
    assert_eq!(round(&mut tracker, &mut [&mut alice]), 1);
    alice.read();
    assert_counts(&alice.ask(&mut tracker, &announce(ALICE))[0], 0, 1);
}

#[test]
fn an_open_websocket_holds_nothing() {
    let mut tracker = tracker();
    let mut client = Client::new(&mut tracker);
    let fragments =
        [fragment(TEXT, false, &[b' '; 5000]), fragment(CONTINUATION, true, &[b' '; 5000])].concat();
    for bytes in [&announce(ALICE), &frame(PING, b"?"), &fragments] {
        let (front, rest) = bytes.split_at(bytes.len() - 1);
        client.send(&mut tracker, front);
        assert!(client.session.buffered_bytes() > 0);
        client.send(&mut tracker, rest);
        assert_eq!((client.next, client.session.buffered_bytes()), (Next::Upgraded, 0));
    }
    frames::parse_all(&client.read_bytes());
}
