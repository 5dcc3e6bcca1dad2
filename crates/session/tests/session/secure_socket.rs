//! WebSockets inside of TLS.

use std::io::Write;

use shoal_base::transport::stream::{Next, StreamService};

use crate::frames::{self, CLOSE, Frame, PING, PONG, frame};
use crate::harness::INPUT_BYTES_MAX;
use crate::response;
use crate::tls::Pair;
use crate::webtorrent::{ALICE, BOB, Client, announce, announce_with, assert_counts, upgrade};

impl Pair {
    /// Creates a client with an open WebSocket.
    pub(crate) fn upgraded() -> Self {
        let mut pair = Self::secure();
        pair.write(&upgrade(""), usize::MAX);
        let incoming = std::mem::take(&mut pair.incoming);
        assert_eq!((response::parse_head(&incoming).0.status, pair.next), (101, Next::Upgraded));
        pair
    }

    /// Sends these bytes as the client, in pieces of at most this many bytes of ciphertext.
    pub(crate) fn write(&mut self, bytes: &[u8], piece_bytes: usize) {
        self.client.set_buffer_limit(None);
        self.client.writer().write_all(bytes).unwrap();
        self.run(piece_bytes);
    }

    /// Returns the ciphertext that the client sends for these bytes.
    pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(bytes).unwrap();
        let mut wire = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut wire).unwrap();
        }
        wire
    }

    /// Ends a poll round. Returns the encrypted output.
    fn fetch_output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.tracker.service.next_to_write().is_some() {
            self.next = self.tracker.service.write(&mut self.session, &mut output);
        }
        self.deliver(&output);
        output
    }

    fn read(&mut self) -> Vec<Frame> {
        frames::parse_all(&std::mem::take(&mut self.incoming))
    }
}

/// Returns the number of records.
fn records(mut sealed: &[u8]) -> usize {
    let mut records = 0;
    while let [_, _, _, high, low, rest @ ..] = sealed {
        sealed = &rest[usize::from(u16::from_be_bytes([*high, *low]))..];
        records += 1;
    }
    records
}

#[test]
fn messages_are_answered_inside_of_tls() {
    for piece_bytes in [usize::MAX, 100, 1] {
        let mut pair = Pair::upgraded();
        pair.write(&[frame(PING, b"?"), announce(ALICE)].concat(), piece_bytes);
        assert_eq!(pair.read(), []);
        pair.fetch_output();
        let frames = pair.read();
        assert_eq!(frames[0], Frame { opcode: PONG, payload: b"?".to_vec() });
        assert_counts(&frames[1], 0, 1);
        assert_eq!((pair.next, pair.session.buffered_bytes()), (Next::Upgraded, 0));
    }
}

#[test]
fn an_upgrade_and_frames_may_come_in_one_record() {
    let mut pair = Pair::secure();
    pair.write(&[upgrade(""), frame(PING, b"?"), announce(ALICE)].concat(), usize::MAX);
    assert!(pair.incoming.starts_with(b"HTTP/1.1 101 ") && pair.incoming.ends_with(b"\r\n\r\n"));
    pair.incoming.clear();
    pair.fetch_output();
    let frames = pair.read();
    assert_eq!(frames[0], Frame { opcode: PONG, payload: b"?".to_vec() });
    assert_counts(&frames[1], 0, 1);
}

#[test]
fn all_that_waits_is_sealed_in_as_few_records_as_it_takes() {
    let mut pair = Pair::upgraded();
    let mut other = Client::at(&mut pair.tracker, "192.0.2.2");
    other.send(&mut pair.tracker, &announce(BOB));
    for _ in 0..10 {
        pair.write(&announce(ALICE), usize::MAX);
    }
    let sealed = pair.fetch_output();
    assert_eq!((pair.read().len(), records(&sealed)), (10, 1));

    let sdp = "z".repeat(4000);
    for _ in 0..5 {
        other.send(&mut pair.tracker, &announce_with(BOB, &[&sdp]));
    }
    let sealed = pair.fetch_output();
    let frames = pair.read();
    assert_eq!((frames.len(), records(&sealed)), (5, 2));
    assert!(frames.iter().all(|frame| frame.text().contains(&sdp)));
}

#[test]
fn a_message_may_be_longer_than_records_and_inputs() {
    let mut pair = Pair::upgraded();
    let mut other = Client::at(&mut pair.tracker, "192.0.2.2");
    other.ask(&mut pair.tracker, &announce(BOB));
    let sdp = "z".repeat(4000);
    pair.write(&announce_with(ALICE, &[sdp.as_str(); 10]), INPUT_BYTES_MAX);
    assert_eq!((pair.next, pair.session.buffered_bytes()), (Next::Upgraded, 0));
    while let Some(handle) = pair.tracker.service.next_to_write() {
        if handle == other.handle {
            let mut output = Vec::new();
            pair.tracker.service.write(&mut other.session, &mut output);
            assert!(frames::parse_all(&output)[0].text().contains(&sdp));
            return;
        }
    }
    panic!("no offer was relayed");
}

#[test]
fn part_of_a_record_is_part_of_a_message() {
    let mut pair = Pair::upgraded();
    let sealed = pair.sealed(&announce(ALICE));
    let next = pair.sealed(&frame(PING, b"?"));
    pair.receive(&[&sealed[..], &next[..10]].concat());
    assert_eq!(pair.next, Next::BusyNew);
    pair.fetch_output();
    assert_eq!((pair.next, pair.read().len()), (Next::Busy, 1), "it is written to anyway");
    pair.receive(&next[10..]);
    pair.fetch_output();
    assert_eq!((pair.next, pair.read().len()), (Next::Upgraded, 1));
}

#[test]
fn a_silent_peer_is_pinged_inside_of_tls() {
    let mut pair = Pair::upgraded();
    for _ in 0..3 {
        let mut output = Vec::new();
        assert_eq!(pair.tracker.service.keep_alive(&mut pair.session, &mut output), Next::Upgraded);
        pair.deliver(&output);
        assert_eq!(pair.read(), [Frame { opcode: PING, payload: Vec::new() }]);
        pair.write(&frame(PONG, b""), usize::MAX);
    }
    let mut output = Vec::new();
    assert_eq!(pair.tracker.service.keep_alive(&mut pair.session, &mut output), Next::Upgraded);
    output.clear();
    assert_eq!(pair.tracker.service.keep_alive(&mut pair.session, &mut output), Next::Close);
    assert_eq!(output, b"");
}

#[test]
fn the_end_is_said_inside_of_tls_and_followed_by_its_end() {
    let mut pair = Pair::upgraded();
    pair.write(&[frame(CLOSE, b"\x03\xe8"), frame(PING, b"")].concat(), usize::MAX);
    assert_eq!(pair.read(), [Frame { opcode: CLOSE, payload: b"\x03\xe8".to_vec() }]);
    assert_eq!((pair.next, pair.has_ended), (Next::Close, true));

    let mut pair = Pair::upgraded();
    pair.write(b"\x81\x00", usize::MAX);
    assert_eq!((pair.read()[0].code(), pair.next, pair.has_ended), (1002, Next::Linger, true));

    let mut pair = Pair::upgraded();
    let mut last_message = Vec::new();
    pair.tracker.service.expire(&mut pair.session, &mut last_message);
    pair.deliver(&last_message);
    assert_eq!((pair.read()[0].code(), pair.has_ended), (1001, true));
}

#[test]
fn a_client_that_ends_tls_has_left() {
    let mut pair = Pair::upgraded();
    pair.client.writer().write_all(&announce(ALICE)).unwrap();
    pair.client.send_close_notify();
    pair.run(usize::MAX);
    assert_eq!((pair.next, pair.has_ended), (Next::Close, true));
    // It receives the reply to its earlier request.
    assert_counts(&pair.read()[0], 0, 1);
    let mut other = Client::at(&mut pair.tracker, "192.0.2.2");
    assert_counts(&other.ask(&mut pair.tracker, &announce(BOB))[0], 0, 1);
}
