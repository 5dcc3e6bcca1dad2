//! Sessions after the handshake: records of every size, key updates, the end.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use shoal_session::tls::{Server, Session};

use crate::forger::{APPLICATION_DATA, Forger, HANDSHAKE};
use crate::identity::{Folder, Identity, Kind};
use crate::peer::{BOTH, Client, TLS_1_2, TLS_1_3, closed, open, sealed, transfer, trusting};

pub(crate) const NAME: &str = "tracker.example";

pub(crate) fn server() -> (Server, Identity) {
    let folder = Folder::new();
    let identity = Identity::new(Kind::P256, &[NAME]);
    (Server::load(&[folder.files("one", &identity)]).unwrap(), identity)
}

/// Creates a session after its handshake.
fn connected(version: &'static SupportedProtocolVersion) -> (Session, Client) {
    let (server, identity) = server();
    let mut session = Session::new(&server);
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], version)), NAME);
    transfer(&mut session, &mut client);
    (session, client)
}

/// Returns bytes without repetitions.
fn noise(length: usize) -> Vec<u8> {
    let numbers = (0u32..).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes());
    numbers.take(length).collect()
}

#[test]
fn every_size_goes_both_ways() {
    for version in BOTH {
        let (mut session, mut client) = connected(version);
        for length in [0, 1, 16_383, 16_384, 16_385, 100_000] {
            let plaintext = noise(length);
            let (received, _) = client.read(&sealed(&mut session, &plaintext)).unwrap();
            assert!(received == plaintext, "{length} bytes to the client");
            client.write(&plaintext);
            assert!(transfer(&mut session, &mut client) == plaintext, "{length} bytes from the client");
        }
    }
}

#[test]
fn a_long_stream_in_odd_pieces() {
    for version in BOTH {
        let (mut session, mut client) = connected(version);
        let plaintext = noise(70_000);
        client.write(&plaintext);
        let sent = client.sent();
        for length in [1, 7, 1_000, 16_400, 33_000] {
            let (mut session, mut client) = connected(version);
            client.write(&plaintext);
            let sent = client.sent();
            let received: Vec<u8> =
                sent.chunks(length).flat_map(|piece| open(&mut session, piece).1).collect();
            assert!(received == plaintext, "in pieces of {length}");
        }
        assert!(open(&mut session, &sent).1 == plaintext, "in one");
    }
}

#[test]
fn output_is_appended() {
    let (mut session, mut client) = connected(TLS_1_3);
    let mut output = b"before".to_vec();
    session.seal(b"one", &mut output);
    session.seal(b"two", &mut output);
    let records = output.strip_prefix(b"before").unwrap();
    assert_eq!(client.read(records).unwrap().0, b"onetwo");
    client.write(b"three");
    let mut plaintext = b"before".to_vec();
    session.open(&mut client.sent(), &mut plaintext, &mut output).unwrap();
    assert_eq!(plaintext, b"beforethree");
}

#[test]
fn the_client_may_ask_for_new_keys() {
    let (mut session, mut client) = connected(TLS_1_3);
    for round in 0..3 {
        client.0.refresh_traffic_keys().unwrap();
        client.write(b"with new keys");
        assert_eq!(transfer(&mut session, &mut client), b"with new keys", "round {round}");
        // The next record carries the response.
        let (received, _) = client.read(&sealed(&mut session, b"mine are new, too")).unwrap();
        assert_eq!(received, b"mine are new, too", "round {round}");
        let (received, _) = client.read(&sealed(&mut session, b"and stay")).unwrap();
        assert_eq!(received, b"and stay", "round {round}");
    }
}

#[test]
fn a_reply_may_go_out_between_two_halves_of_a_record() {
    for version in BOTH {
        let (mut session, mut client) = connected(version);
        client.write(b"request");
        let sent = client.sent();
        let (head, tail) = sent.split_at(sent.len() / 2);
        assert_eq!(open(&mut session, head).1, b"");
        assert_eq!(client.read(&sealed(&mut session, b"reply")).unwrap().0, b"reply");
        assert_eq!(open(&mut session, tail).1, b"request");
    }
}

/// rustls remembers the position of the first half in the input, so the input must be passed to it even for a write.
/// Otherwise it would panic.
#[test]
fn a_reply_may_go_out_between_two_halves_of_a_handshake_message() {
    let (server, identity) = server();
    let (mut session, mut forger) = Forger::connected(&server, &identity, TLS_1_3);
    // RFC 8446, 4.6.3: key_update, one byte long, update_not_requested.
    let key_update = [24, 0, 0, 1, 0];
    let (head, tail) = key_update.split_at(3);
    open(&mut session, &forger.record(HANDSHAKE, head)).0.unwrap();
    assert!(!sealed(&mut session, b"reply").is_empty());
    open(&mut session, &forger.record(HANDSHAKE, tail)).0.unwrap();
    assert!(!sealed(&mut session, b"reply").is_empty() && !session.is_closed());
    // The keys are new now, which the forger ignores.
    open(&mut session, &forger.record(APPLICATION_DATA, b"old keys")).0.unwrap_err();
}

#[test]
fn a_client_that_has_closed_can_still_be_answered() {
    for version in BOTH {
        let (mut session, mut client) = connected(version);
        client.write(b"the last request");
        client.0.send_close_notify();
        let sent = client.sent();
        let (outcome, plaintext, _) = open(&mut session, &[&sent[..], b"\x17\x03\x03 ignored"].concat());
        outcome.unwrap();
        assert_eq!(plaintext, b"the last request");
        assert!(session.is_closed());
        let (outcome, plaintext, output) = open(&mut session, b"ignored, too");
        outcome.unwrap();
        assert!(plaintext.is_empty() && output.is_empty());
        let reply = [sealed(&mut session, b"reply"), closed(&mut session)].concat();
        let (received, state) = client.read(&reply).unwrap();
        assert_eq!(received, b"reply");
        assert!(state.peer_has_closed());
    }
}

#[test]
fn a_closed_session_writes_nothing_more() {
    for version in BOTH {
        let (mut session, mut client) = connected(version);
        assert!(!closed(&mut session).is_empty());
        assert_eq!(closed(&mut session), b"");
        assert_eq!(sealed(&mut session, b"late"), b"");
        client.write(b"late, too");
        let (outcome, plaintext, output) = open(&mut session, &client.sent());
        outcome.unwrap();
        assert!(plaintext.is_empty() && output.is_empty());
    }
}

#[test]
fn the_debug_output_omits_keys() {
    let (session, _) = connected(TLS_1_2);
    assert_eq!(
        format!("{session:?}"),
        "Session { version: Some(TLSv1_2), partial_bytes: 0, state: Open, .. }"
    );
}
