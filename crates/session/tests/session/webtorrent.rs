//! WebTorrent clients and their messages.

use std::sync::Arc;

use shoal_base::transport::stream::{Handle, Next, StreamService};
use shoal_config::Config;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::webtorrent::Responder;
use shoal_relay::{Dispatcher, Mailboxes, Swarms};
use shoal_session::Session;

use crate::frames::{self, Frame};
use crate::harness::{PLAIN, Tracker};

/// Creates a responder for a single worker.
pub(crate) fn responder(config: Config) -> Responder {
    responder_of(0, config, &swarms(), &Mailboxes::new(1))
}

pub(crate) fn swarms() -> Arc<Swarms> {
    let settings = shoal_relay::Settings::new(1_000_000, 600, [1, 2]);
    Arc::new(Swarms::new(&settings))
}

pub(crate) fn responder_of(
    worker: u16,
    config: Config,
    swarms: &Arc<Swarms>,
    mailboxes: &Arc<Mailboxes>,
) -> Responder {
    let dispatcher = Dispatcher::new(worker, Arc::clone(mailboxes));
    let policy = Arc::new(Policy::new(config).with_private_host(true));
    Responder::new(
        Context::new(Protocol::WebTorrent, policy, Tally::default(), fastrand::Rng::with_seed(1)),
        Arc::clone(swarms),
        dispatcher,
    )
}

/// The client of a WebSocket, and the connection that it has.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) handle: Handle,
    /// The input that the connection waits for.
    pub(crate) next: Next,
    /// Received bytes that it has not read.
    pub(crate) incoming: Vec<u8>,
}

impl Client {
    /// Creates a client with an open WebSocket.
    pub(crate) fn new(tracker: &mut Tracker) -> Self {
        Self::at(tracker, "192.0.2.1")
    }

    pub(crate) fn at(tracker: &mut Tracker, ip: &str) -> Self {
        let mut client = Self::silent(tracker, PLAIN, ip);
        client.send(tracker, &upgrade(""));
        let head = std::mem::take(&mut client.incoming);
        assert!(head.starts_with(b"HTTP/1.1 101 ") && head.ends_with(b"\r\n\r\n"));
        assert_eq!(client.next, Next::Upgraded);
        client
    }

    /// Creates a client that has sent nothing.
    pub(crate) fn silent(tracker: &mut Tracker, listener: usize, ip: &str) -> Self {
        let handle = tracker.handle();
        let session = tracker.service.open(&crate::harness::remote(listener, ip), handle);
        Self { session, handle, next: Next::Busy, incoming: Vec::new() }
    }

    /// Sends a message and receives the immediate output.
    pub(crate) fn send(&mut self, tracker: &mut Tracker, bytes: &[u8]) {
        let mut output = Vec::new();
        self.next = tracker.service.receive(&mut self.session, &mut bytes.to_vec(), &mut output);
        self.incoming.append(&mut output);
    }

    /// Sends a message and receives everything that is queued for it.
    pub(crate) fn ask(&mut self, tracker: &mut Tracker, bytes: &[u8]) -> Vec<Frame> {
        self.send(tracker, bytes);
        round(tracker, &mut [self]);
        self.read()
    }

    /// Returns the bytes that it received since it last read.
    pub(crate) fn read_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.incoming)
    }

    /// Returns them as frames.
    pub(crate) fn read(&mut self) -> Vec<Frame> {
        frames::parse_all(&self.read_bytes())
    }

    /// Returns the frames after the head of the upgrade response.
    pub(crate) fn read_behind_head(&mut self) -> Vec<Frame> {
        let incoming = self.read_bytes();
        frames::parse_all(crate::response::parse_head(&incoming).1)
    }

    pub(crate) fn keep_alive(&mut self, tracker: &mut Tracker) {
        self.next = tracker.service.keep_alive(&mut self.session, &mut self.incoming);
    }

    pub(crate) fn expire(&mut self, tracker: &mut Tracker) {
        tracker.service.expire(&mut self.session, &mut self.incoming);
    }

    pub(crate) fn leave(self, tracker: &mut Tracker) {
        tracker.service.close(self.session);
    }
}

/// Ends a poll round: writes all queued messages. Returns the number of writes.
pub(crate) fn round(tracker: &mut Tracker, clients: &mut [&mut Client]) -> usize {
    let mut spoken = 0;
    while let Some(handle) = tracker.service.next_to_write() {
        if let Some(client) = clients.iter_mut().find(|client| client.handle == handle) {
            client.next = tracker.service.write(&mut client.session, &mut client.incoming);
            spoken += 1;
        }
    }
    spoken
}

/// Returns an upgrade request with further header fields.
pub(crate) fn upgrade(fields: &str) -> Vec<u8> {
    upgrade_at("/announce", fields)
}

pub(crate) fn upgrade_at(target: &str, fields: &str) -> Vec<u8> {
    let websocket = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    crate::harness::request("GET", target, "HTTP/1.1", &format!("{websocket}{fields}"))
}

pub(crate) const TORRENT: &str = "tttttttttttttttttttt";
pub(crate) const ALICE: &str = "-WW0001-aliceaaaaaaa";
pub(crate) const BOB: &str = "-WW0001-bobbbbbbbbbb";

/// Returns an announce of a leecher without offers.
pub(crate) fn announce(peer_id: &str) -> Vec<u8> {
    announce_with(peer_id, &[])
}

/// Returns an announce with offers of this size, each with an id made of its index.
pub(crate) fn announce_with(peer_id: &str, offers: &[&str]) -> Vec<u8> {
    frames::text(&announce_message(peer_id, offers))
}

pub(crate) fn announce_message(peer_id: &str, offers: &[&str]) -> String {
    let offers: Vec<String> = (0..)
        .zip(offers)
        .map(|(place, sdp)| {
            let id = offer_id(place);
            format!(r#"{{"offer":{{"type":"offer","sdp":"{sdp}"}},"offer_id":"{id}"}}"#)
        })
        .collect();
    let (numwant, offers) = (offers.len(), offers.join(","));
    format!(
        r#"{{"action":"announce","info_hash":"{TORRENT}","peer_id":"{peer_id}","numwant":{numwant},"uploaded":0,"downloaded":0,"left":1,"event":"started","offers":[{offers}]}}"#
    )
}

/// Returns the answer to an offer.
pub(crate) fn answer(peer_id: &str, to_peer_id: &str, offer: u32, sdp: &str) -> Vec<u8> {
    let id = offer_id(offer);
    frames::text(&format!(
        r#"{{"action":"announce","info_hash":"{TORRENT}","peer_id":"{peer_id}","to_peer_id":"{to_peer_id}","answer":{{"type":"answer","sdp":"{sdp}"}},"offer_id":"{id}"}}"#
    ))
}

fn offer_id(place: u32) -> String {
    format!("{place:020}")
}

/// Returns the first message that a client receives about its announce.
#[track_caller]
pub(crate) fn assert_counts(frame: &Frame, complete: u32, incomplete: u32) {
    let text = frame.text();
    assert!(text.contains(r#""action":"announce""#) && text.contains(TORRENT), "{text}");
    assert!(text.contains(r#""interval":"#), "{text}");
    for (name, count) in [("complete", complete), ("incomplete", incomplete)] {
        let counted = format!(r#""{name}":{count}"#);
        let end = text.find(&counted).map(|at| at + counted.len());
        let is_whole = end.is_some_and(|end| !text.as_bytes()[end].is_ascii_digit());
        assert!(is_whole, "{counted} in {text}");
    }
}
