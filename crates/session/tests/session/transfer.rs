//! Sessions that another process continues: a second tracker stands for it.

use proptest::prelude::*;
use shoal_base::transport::stream::{ConnectionKind, DETACHED_BYTES_MAX, Detached, Next, StreamService};

use crate::frames::{self, CLOSE, CONTINUATION, Frame, PING, TEXT, fragment, frame};
use crate::harness::{self, PLAIN, Tracker};
use crate::webtorrent::{
    ALICE, BOB, Client, announce, announce_message, announce_with, answer, assert_counts, round, upgrade,
};

impl Client {
    /// Moves the connection from one tracker to another one. Queued output arrives.
    fn move_to(&mut self, from: &mut Tracker, to: &mut Tracker) -> ConnectionKind {
        let mut unsent = Vec::new();
        let detached = from.service.detach(&mut self.session, &mut unsent);
        let Detached { state, quota, cipher } = detached.expect("it can move");
        assert!(cipher.is_none());
        self.handle = to.handle();
        let session = to.service.attach(self.handle, &state).expect("it is understood");
        from.service.close(std::mem::replace(&mut self.session, session));
        self.incoming.append(&mut unsent);
        // As the back end does.
        self.send(to, &[]);
        assert_eq!(to.service.changed_quota(&mut self.session), Some(quota));
        quota.kind
    }
}

/// Returns the number of peers of the torrent, as a client that joins to find out receives it.
fn peers(tracker: &mut Tracker) -> u32 {
    let mut observer = Client::at(tracker, "198.51.100.200");
    let frames = observer.ask(tracker, &announce("-WW0001-observer0000"));
    observer.leave(tracker);
    let count = frames[0].text().split(r#""incomplete":"#).nth(1).unwrap();
    let end = count.find(|character: char| !character.is_ascii_digit()).unwrap();
    count[..end].parse::<u32>().unwrap() - 1
}

#[test]
fn a_websocket_moves_with_its_peers() {
    let (mut old, mut new) = (Tracker::new(), Tracker::new());
    let (mut alice, mut bob) = (Client::new(&mut old), Client::new(&mut old));
    alice.ask(&mut old, &announce(ALICE));
    bob.ask(&mut old, &announce(BOB));
    assert_eq!(alice.move_to(&mut old, &mut new), ConnectionKind::WebSocket);
    assert_eq!((peers(&mut old), peers(&mut new), alice.next), (1, 1, Next::Upgraded));
    bob.move_to(&mut old, &mut new);
    assert_eq!((peers(&mut old), peers(&mut new)), (0, 2));
    // They meet here.
    alice.send(&mut new, &announce_with(ALICE, &["the offer"]));
    round(&mut new, &mut [&mut alice, &mut bob]);
    assert_counts(&alice.read()[0], 0, 2);
    assert!(bob.read()[0].text().contains("the offer"));
    bob.send(&mut new, &answer(BOB, ALICE, 0, "the answer"));
    round(&mut new, &mut [&mut alice, &mut bob]);
    assert!(alice.read()[0].text().contains("the answer"));
    alice.leave(&mut new);
    bob.leave(&mut new);
    assert_eq!(peers(&mut new), 0);
}

#[test]
fn what_is_queued_moves_too() {
    let (mut old, mut new) = (Tracker::new(), Tracker::new());
    let (mut alice, mut bob) = (Client::new(&mut old), Client::new(&mut old));
    alice.ask(&mut old, &announce(ALICE));
    bob.ask(&mut old, &announce(BOB));
    bob.send(&mut old, &announce_with(BOB, &["an offer"]));
    // Alice does not read.
    old.service.set_backlog(alice.handle, 100);
    alice.move_to(&mut old, &mut new);
    assert!(alice.read()[0].text().contains("an offer"));
    bob.move_to(&mut old, &mut new);
    assert_counts(&bob.read()[0], 0, 2);
}

/// Wherever the input of a connection is cut, the client gets the same replies.
#[test]
fn a_connection_may_move_after_any_byte() {
    let message = announce_message(ALICE, &[]);
    let (first, second) = message.as_bytes().split_at(70);
    let frames = [
        fragment(TEXT, false, first),
        frame(PING, b"?"),
        fragment(CONTINUATION, false, b""),
        fragment(CONTINUATION, true, second),
        frame(PING, b"!"),
    ];
    let bytes = [upgrade(""), frames.concat()].concat();
    let replies = |cut: usize| {
        let (mut old, mut new) = (Tracker::new(), Tracker::new());
        let mut client = Client::silent(&mut old, PLAIN, "192.0.2.1");
        client.send(&mut old, &bytes[..cut]);
        client.move_to(&mut old, &mut new);
        client.send(&mut new, &bytes[cut..]);
        round(&mut new, &mut [&mut client]);
        assert_eq!(client.next, Next::Upgraded, "after {cut} bytes");
        (client.read_behind_head(), peers(&mut new), client.session.buffered_bytes())
    };
    let (expected, peers, _) = replies(0);
    assert_eq!((expected.len(), peers), (3, 1));
    for cut in 1..bytes.len() {
        assert_eq!(replies(cut), (replies(0).0, 1, 0), "after {cut} bytes");
    }
}

#[test]
fn one_that_holds_much_stays() {
    let set = |settings: &mut shoal_session::SessionSettings| settings.websocket.message_bytes_max = 4 << 20;
    let mut old = Tracker::with(set, |_| {}, None);
    let mut client = Client::new(&mut old);
    client.send(&mut old, &fragment(TEXT, false, &vec![b' '; DETACHED_BYTES_MAX]));
    assert!(old.service.detach(&mut client.session, &mut Vec::new()).is_none());
    client.send(&mut old, &fragment(CONTINUATION, true, announce_message(ALICE, &[]).as_bytes()));
    round(&mut old, &mut [&mut client]);
    assert_counts(&client.read()[0], 0, 1);
    let mut output = vec![0; DETACHED_BYTES_MAX];
    assert!(old.service.detach(&mut client.session, &mut output).is_none());
    client.move_to(&mut old, &mut Tracker::new());
}

#[test]
fn a_peer_whose_id_another_connection_has_moves_all_the_same() {
    let (mut old, mut new) = (Tracker::new(), Tracker::new());
    let (mut one, mut other) = (Client::new(&mut old), Client::new(&mut new));
    one.ask(&mut old, &announce(ALICE));
    other.ask(&mut new, &announce(ALICE));
    one.move_to(&mut old, &mut new);
    assert_eq!(peers(&mut new), 2);
    one.leave(&mut new);
    assert_eq!(peers(&mut new), 1);
}

#[test]
fn limits_of_the_new_process_apply() {
    let mut config = shoal_config::Config::default();
    config.webtorrent.torrents_per_connection_max = 1;
    let responder = crate::webtorrent::responder(config);
    let mut new = Tracker::assemble(|_| {}, |_| {}, Some(responder), None);
    let mut old = Tracker::new();
    let mut client = Client::new(&mut old);
    client.ask(&mut old, &announce(ALICE));
    client.ask(&mut old, &announce(BOB));
    client.move_to(&mut old, &mut new);
    assert_eq!(peers(&mut new), 1);
    client.leave(&mut new);
    assert_eq!(peers(&mut new), 0);
}

#[test]
fn a_process_without_webtorrent_refuses_with_1013() {
    let (mut old, mut new) = (Tracker::new(), Tracker::without_webtorrent());
    let mut client = Client::new(&mut old);
    let detached = old.service.detach(&mut client.session, &mut Vec::new()).unwrap();
    assert!(new.service.attach(new.handle(), &detached.state).is_none());
    let mut output = Vec::new();
    new.service.refuse_detached(detached.quota.kind, &mut output);
    assert_eq!(frames::parse_all(&output)[0].code(), 1013);
}

#[test]
fn only_the_end_of_a_tunnel_is_told() {
    let (mut old, mut new) = (Tracker::new(), Tracker::new());
    let mut client = Client::new(&mut old);
    client.move_to(&mut old, &mut new);
    let mut output = Vec::new();
    new.service.end_input(&mut client.session, &mut output);
    assert!(output.is_empty());
}

/// The encrypted side of a connection that has moved.
#[test]
fn an_encrypted_websocket_moves_without_its_encryption() {
    let (mut pair, mut new) = (crate::tls::Pair::upgraded(), Tracker::new());
    // The announce is in two records, and the second one in two pieces.
    let bytes = announce(ALICE);
    pair.write(&bytes[..50], usize::MAX);
    let wire = pair.sealed(&bytes[50..]);
    pair.receive(&wire[..20]);
    let detached = pair.tracker.service.detach(&mut pair.session, &mut Vec::new()).unwrap();
    let mut cipher = detached.cipher.unwrap();
    let handle = new.handle();
    let mut session = new.service.attach(handle, &detached.state).unwrap();
    let (mut plaintext, mut output, mut replies) = (Vec::new(), Vec::new(), Vec::new());
    assert!(cipher.open(&mut wire[20..].to_vec(), &mut plaintext, &mut output) && output.is_empty());
    assert_eq!(new.service.receive(&mut session, &mut plaintext, &mut replies), Next::Upgraded);
    while new.service.next_to_write().is_some() {
        new.service.write(&mut session, &mut replies);
    }
    new.service.end_input(&mut session, &mut replies);
    cipher.seal(&replies, &mut output);
    cipher.close(&mut output);
    pair.deliver(&output);
    let frames = frames::parse_all(&pair.incoming);
    assert_counts(&frames[0], 0, 1);
    assert_eq!((frames[1].opcode, frames[1].code(), pair.has_ended), (CLOSE, 1012, true));
    // A second move changes nothing about that.
    let mut last = Tracker::new();
    let detached = new.service.detach(&mut session, &mut Vec::new()).unwrap();
    assert!(detached.cipher.is_none());
    let mut session = last.service.attach(last.handle(), &detached.state).unwrap();
    replies.clear();
    last.service.end_input(&mut session, &mut replies);
    assert_eq!(frames::parse_all(&replies).iter().map(Frame::code).collect::<Vec<_>>(), [1012]);
}

proptest! {
    /// A state that makes no sense is refused, or is that of some session.
    #[test]
    fn any_state_is_understood_or_refused(state in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut tracker = Tracker::new();
        if let Some(mut session) = tracker.service.attach(tracker.handle(), &state) {
            let mut output = Vec::new();
            tracker.service.receive(&mut session, &mut harness::announce(""), &mut output);
            tracker.service.close(session);
        }
    }
}
