//! Peers that violate the protocol. Sessions must end, in bounded memory, and never panic. (Test builds of rustls have
//! additional assertions, which would detect unexpected calls.)

use std::sync::Arc;

use rustls::{AlertDescription, Error};
use shoal_session::tls::{Failure, Session};

use crate::forger::{ALERT, APPLICATION_DATA, Forger, HANDSHAKE, header};
use crate::peer::{BOTH, Client, TLS_1_2, TLS_1_3, open, sealed, transfer, trusting};
use crate::records::{NAME, server};

/// Returns whether these bytes are an unencrypted alert (RFC 8446, 5.1 and 6).
fn is_plain_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [ALERT, 3, _, 0, 2, 2, _])
}

#[test]
fn plain_http_is_recognised_and_left_to_be_answered_in_plain() {
    let (server, _) = server();
    for request in
        ["GET /announce?info_hash=x HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.0\r\n", "POST /", "OPTIONS *"]
    {
        let (outcome, plaintext, output) = open(&mut Session::new(&server), request.as_bytes());
        assert!(matches!(outcome, Err(Failure::PlainHttp)), "{request}: {outcome:?}");
        assert!(plaintext.is_empty() && output.is_empty());
        let mut session = Session::new(&server);
        let (outcome, _, output) = open(&mut session, &request.as_bytes()[..1]);
        assert!(matches!(outcome, Err(Failure::PlainHttp)) && output.is_empty(), "{outcome:?}");
        assert!(session.is_closed());
    }
}

#[test]
fn other_protocols_get_an_alert() {
    let (server, _) = server();
    for greeting in [
        &b"\x13BitTorrent protocol"[..],
        b"SSH-2.0-x\r\n",
        b"\0\0\x04\x17\x27\x10\x19\x80\0\0\0\0",
        b"\n\n\n\n\n\n",
    ] {
        let mut session = Session::new(&server);
        let (outcome, _, output) = open(&mut session, greeting);
        assert!(matches!(outcome, Err(Failure::Protocol(_))), "{greeting:?}: {outcome:?}");
        assert!(is_plain_alert(&output), "{output:?}");
        assert!(session.is_closed());
        let (outcome, _, output) = open(&mut session, greeting);
        assert!(outcome.is_ok() && output.is_empty(), "a failed session does nothing more");
    }
}

#[test]
fn noise_ends_a_session() {
    let (server, _) = server();
    let mut state = 1u32;
    for _ in 0..2_000 {
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        // Half of it looks like a handshake at first.
        let start: &[u8] =
            if byte() % 2 == 0 { b"" } else { b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03" };
        let noise: Vec<u8> = start.iter().copied().chain((0..600).map(|_| byte())).collect();
        let mut session = Session::new(&server);
        let failed = noise.chunks(usize::from(byte()) + 1).any(|piece| open(&mut session, piece).0.is_err());
        // The session buffers a possible header of a long record.
        assert!(failed == session.is_closed());
        assert!(session.is_handshaking());
    }
}

#[test]
fn a_first_flight_with_any_byte_changed() {
    let (server, identity) = server();
    for version in BOTH {
        let config = Arc::new(trusting(&[&identity.der], version));
        let length = Client::new(&config, NAME).sent().len();
        let mut refused = 0;
        for at in 0..length {
            let mut flight = Client::new(&config, NAME).sent();
            // Sometimes the client's choice of extensions makes it a little shorter.
            let Some(byte) = flight.get_mut(at) else { continue };
            *byte ^= 0x55;
            let mut session = Session::new(&server);
            let (outcome, plaintext, _) = open(&mut session, &flight);
            assert!(plaintext.is_empty() && session.is_handshaking());
            assert_eq!(outcome.is_err(), session.is_closed());
            refused += usize::from(outcome.is_err());
        }
        // Random fields are always valid, and unknown extensions are ignored.
        assert!(refused > length / 10, "{refused} of {length} changes were noticed");
    }
}

/// Returns the positions of the record versions in a flight, which "MUST be ignored" (RFC 8446, 5.1).
fn ignored(flight: &[u8]) -> Vec<usize> {
    let mut positions = Vec::new();
    let mut at = 0;
    while let Some([_, _, _, high, low]) = flight.get(at..at + 5) {
        positions.extend([at + 1, at + 2]);
        at += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    positions
}

#[test]
fn a_second_flight_with_any_byte_changed() {
    let (server, identity) = server();
    for version in BOTH {
        let config = Arc::new(trusting(&[&identity.der], version));
        for at in 0.. {
            let mut session = Session::new(&server);
            let mut client = Client::new(&config, NAME);
            let (_, _, flight) = open(&mut session, &client.sent());
            client.read(&flight).unwrap();
            let mut answer = client.sent();
            let is_ignored = ignored(&answer).contains(&at);
            let Some(byte) = answer.get_mut(at) else { break };
            *byte ^= 0x55;
            let (outcome, plaintext, _) = open(&mut session, &answer);
            assert!(plaintext.is_empty());
            assert!(session.is_handshaking() || is_ignored, "{version:?}, byte {at}: {outcome:?}");
        }
    }
}

#[test]
fn a_changed_record_is_refused_with_an_alert() {
    let (server, identity) = server();
    for version in BOTH {
        let mut session = Session::new(&server);
        let mut client = Client::new(&Arc::new(trusting(&[&identity.der], version)), NAME);
        transfer(&mut session, &mut client);
        client.write(b"request");
        let mut sent = client.sent();
        *sent.last_mut().unwrap() ^= 1;
        // A valid record after an invalid one must not be processed.
        client.write(b"request");
        sent.extend(client.sent());
        let (outcome, plaintext, alert) = open(&mut session, &sent);
        assert!(matches!(outcome, Err(Failure::Protocol(Error::DecryptError))), "{outcome:?}");
        assert!(plaintext.is_empty() && session.is_closed());
        let refusal = client.read(&alert).unwrap_err();
        assert_eq!(refusal, Error::AlertReceived(AlertDescription::BadRecordMac));
        assert_eq!(sealed(&mut session, b"reply"), b"");
    }
}

#[test]
fn records_that_are_too_long() {
    let (server, identity) = server();
    let mut session = Session::new(&server);
    let (outcome, _, output) = open(&mut session, &header(HANDSHAKE, 16_384 + 2_049));
    assert!(outcome.is_err() && is_plain_alert(&output), "by its header: {outcome:?}, {output:?}");
    for version in BOTH {
        let (mut session, mut forger) = Forger::connected(&server, &identity, version);
        let longest = forger.record(APPLICATION_DATA, &[0; 16_384]);
        assert_eq!(open(&mut session, &longest).1.len(), 16_384);
        let (outcome, plaintext, output) = open(&mut session, &forger.record(APPLICATION_DATA, &[0; 16_385]));
        assert!(matches!(outcome, Err(Failure::Protocol(Error::PeerSentOversizedRecord))), "{outcome:?}");
        assert!(plaintext.is_empty() && !output.is_empty());
    }
}

#[test]
fn a_handshake_message_in_many_pieces_is_not_collected_forever() {
    let (server, _) = server();
    // A ClientHello of 60,000 bytes, of which each record has ten.
    let first = [&header(HANDSHAKE, 10)[..], &[1, 0, 0xea, 0x60], &[3; 6]].concat();
    let next = [&header(HANDSHAKE, 10)[..], &[3; 10]].concat();
    let mut session = Session::new(&server);
    open(&mut session, &first).0.unwrap();
    let mut given = first.len();
    let failure = loop {
        given += next.len();
        if let Err(failure) = open(&mut session, &next).0 {
            break failure;
        }
        assert!(given < 20_000, "still collecting");
    };
    assert!(matches!(failure, Failure::TooManyPieces), "{failure:?}");
    assert!(given > 16_384 && session.is_closed());
}

#[test]
fn several_faults_in_one_piece() {
    let (server, identity) = server();
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_3)), NAME);
    let sent = client.sent();
    let message = &sent[5..];
    // A second ClientHello in the same record, so that rustls has it ready when it fails by the first one.
    let mut first = message.to_vec();
    first[4] = 0;
    let both = [&header(HANDSHAKE, 2 * message.len())[..], &first, message].concat();
    let (outcome, _, output) = open(&mut Session::new(&server), &both);
    assert!(outcome.is_err() && is_plain_alert(&output), "{outcome:?}, {output:?}");
    // And the same hello twice, in records of their own.
    let (outcome, _, _) = open(&mut Session::new(&server), &[&sent[..], &sent].concat());
    assert!(outcome.is_err());
}

#[test]
fn renegotiation_is_declined_once_and_then_refused() {
    let (server, identity) = server();
    let hello = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_2)), NAME).sent();
    let (mut session, mut forger) = Forger::connected(&server, &identity, TLS_1_2);
    let (outcome, _, warning) = open(&mut session, &forger.record(HANDSHAKE, &hello[5..]));
    outcome.unwrap();
    assert_eq!(warning.first(), Some(&ALERT), "no_renegotiation");
    assert_eq!(open(&mut session, &forger.record(APPLICATION_DATA, b"request")).1, b"request");
    let (outcome, _, _) = open(&mut session, &forger.record(HANDSHAKE, &hello[5..]));
    assert!(matches!(outcome, Err(Failure::Protocol(Error::PeerMisbehaved(_)))), "{outcome:?}");
}

#[test]
fn a_second_hello_in_tls_1_3_is_refused() {
    let (server, identity) = server();
    let hello = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_3)), NAME).sent();
    let (mut session, mut forger) = Forger::connected(&server, &identity, TLS_1_3);
    let (outcome, _, alert) = open(&mut session, &forger.record(HANDSHAKE, &hello[5..]));
    assert!(matches!(outcome, Err(Failure::Protocol(_))) && !alert.is_empty(), "{outcome:?}");
}

/// Records that cost the sender nothing must be limited.
#[test]
fn records_without_effect_are_limited() {
    let (server, identity) = server();
    for version in BOTH {
        let (mut session, mut forger) = Forger::connected(&server, &identity, version);
        let is_refused =
            (0..100).any(|_| open(&mut session, &forger.record(APPLICATION_DATA, b"")).0.is_err());
        assert!(is_refused, "empty records of {version:?}");
    }
    let (mut session, mut forger) = Forger::connected(&server, &identity, TLS_1_2);
    let warning = [1, 90];
    let is_refused = (0..100).any(|_| open(&mut session, &forger.record(ALERT, &warning)).0.is_err());
    assert!(is_refused, "warnings");
    let mut session = Session::new(&server);
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_3)), NAME);
    transfer(&mut session, &mut client);
    let is_refused = (0..100).any(|_| {
        client.0.refresh_traffic_keys().unwrap();
        open(&mut session, &client.sent()).0.is_err()
    });
    assert!(is_refused, "new keys");
}

#[test]
fn invalid_alerts_and_types_of_records() {
    let (server, identity) = server();
    for version in BOTH {
        for (content_type, content) in [
            (ALERT, &[2, 80][..]),
            (ALERT, &[2]),
            (ALERT, &[2, 80, 1]),
            (ALERT, &[9, 0]),
            (20, &[1]),
            (24, &[1, 2, 3]),
            (99, &[1]),
            (HANDSHAKE, &[99, 0, 0, 1, 1]),
            (HANDSHAKE, &[20, 0xff, 0xff, 0xff, 1]),
        ] {
            let (mut session, mut forger) = Forger::connected(&server, &identity, version);
            let (outcome, plaintext, _) = open(&mut session, &forger.record(content_type, content));
            assert!(outcome.is_err(), "{version:?}: {content_type}, {content:?}");
            assert!(plaintext.is_empty() && session.is_closed());
        }
    }
}
