//! WebSockets that relay offers and answers, of clients that send everything at once or in pieces.

use std::fmt::Write;
use std::sync::Arc;

use shoal_base::transport::stream::{Next, StreamService};
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::Protocol;
use shoal_engine::webtorrent;
use shoal_session::{Service, Session};

use super::{open, service};

/// Creates a WebTorrent service.
fn webtorrent_service() -> Service {
    let swarms = shoal_relay::Settings::new(1000, 600, [1, 2]);
    let dispatcher = shoal_relay::Dispatcher::new(0, shoal_relay::Mailboxes::new(1));
    let responder = webtorrent::Responder::new(
        Context::new(Protocol::WebTorrent, Arc::default(), Tally::default(), fastrand::Rng::with_seed(1)),
        Arc::new(shoal_relay::Swarms::new(&swarms)),
        dispatcher,
    );
    service(Some(responder), None)
}

/// Returns a masked text frame.
fn put_frame(message: &str, out: &mut Vec<u8>) {
    let mask = [1, 2, 3, 4];
    out.extend_from_slice(&[0x81, 0x80 | 126]);
    out.extend_from_slice(&u16::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&mask);
    out.extend(message.bytes().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// Returns the messages of a client in a round: an announce with this many offers, and an answer to the offer
/// that the previous client made in the round before.
fn put_messages(client: usize, clients: usize, round: u32, offers: u32, out: &mut Vec<u8>) {
    let (torrent, sdp) = ("t".repeat(20), "s".repeat(2000));
    let mut message = format!(
        r#"{{"action":"announce","info_hash":"{torrent}","peer_id":"{client:020}","numwant":{offers},"left":1,"offers":["#
    );
    for offer in 0..offers {
        let comma = if offer == 0 { "" } else { "," };
        write!(
            message,
            r#"{comma}{{"offer":{{"type":"offer","sdp":"{sdp}"}},"offer_id":"{round:010}{offer:010}"}}"#
        )
        .unwrap();
    }
    message.push_str("]}");
    put_frame(&message, out);
    let to = (client + clients - 1) % clients;
    let answered = round.saturating_sub(1);
    put_frame(
        &format!(
            r#"{{"action":"announce","info_hash":"{torrent}","peer_id":"{client:020}","to_peer_id":"{to:020}","answer":{{"type":"answer","sdp":"{sdp}"}},"offer_id":"{answered:010}0000000000"}}"#
        ),
        out,
    );
}

/// A client with an open WebSocket.
fn client(service: &mut Service, index: u32, output: &mut Vec<u8>) -> Session {
    let mut session = open(service, 0, [192, 0, 2, 1], index);
    let mut request = *b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!(service.receive(&mut session, &mut request, output), Next::Upgraded);
    session
}

/// How many messages are relayed, and how often something is allocated for them, in some rounds in which every client
/// says its messages in inputs of 16 KiB.
fn relay(offers: u32) -> (usize, u64) {
    let mut service = webtorrent_service();
    let (mut input, mut output) = (Vec::with_capacity(64 * 1024), Vec::with_capacity(1024 * 1024));
    let mut sessions: Vec<Session> = (0..4).map(|index| client(&mut service, index, &mut output)).collect();
    let (mut relayed, mut allocations) = (0, 0);
    for round in 0..600 {
        for client in 0..sessions.len() {
            input.clear();
            output.clear();
            put_messages(client, sessions.len(), round, offers, &mut input);
            let before = shoal_testkit::allocator::allocations();
            for piece in input.chunks_mut(16 * 1024) {
                service.receive(&mut sessions[client], piece, &mut output);
            }
            while let Some(handle) = service.next_to_write() {
                let session = &mut sessions[usize::try_from(handle.index).unwrap()];
                assert_eq!(service.write(session, &mut output), Next::Upgraded);
            }
            assert_eq!(service.end_round().count(), 0);
            if round >= 400 {
                allocations += shoal_testkit::allocator::allocations() - before;
                relayed += output.windows(7).filter(|window| window == b"\"sdp\":\"").count();
            }
        }
    }
    (relayed, allocations)
}

#[test]
fn offers_and_answers_that_are_relayed() {
    let (relayed, allocations) = relay(2);
    assert_eq!(allocations, 0);
    // 800 times two offers, and an answer wherever the first offer of the round before went to who answers it.
    assert!((1600 + 1..=1600 + 800).contains(&relayed), "{relayed}");
}

#[test]
fn messages_longer_than_an_input() {
    let (relayed, allocations) = relay(10);
    assert_eq!(allocations, 0);
    assert!(relayed > 2400, "{relayed}");
}

#[test]
fn a_websocket_that_stands_has_cost_one_allocation() {
    let mut service = webtorrent_service();
    let mut output = Vec::with_capacity(1024);
    let before = shoal_testkit::allocator::allocations();
    let session = client(&mut service, 0, &mut output);
    assert_eq!(shoal_testkit::allocator::allocations() - before, 1);
    assert_eq!(session.buffered_bytes(), 0);
}
