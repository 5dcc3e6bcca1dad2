//! Clients of every protocol that announce one torrent without a pause, and note when they were served last.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::json;
use shoal_testkit::client::websocket::WebSocket;
use shoal_testkit::client::{http, udp};

use super::tracker::{Tracker, now_ms};

/// Number of times that a client must be served before the torrent is denied.
const SERVED_MIN: u64 = 50;

/// Number of refusals in a row after which a client stops. Offers of other clients would arrive in the meantime.
const REFUSALS: usize = 200;

/// Time to wait for a reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reaction to an announce.
enum Reaction {
    /// A reply with peers, or an offer of another peer.
    Served,
    /// A reply without peers.
    Empty,
    Refused,
}

impl Reaction {
    fn to_peers(peers: &[SocketAddr]) -> Self {
        if peers.is_empty() { Self::Empty } else { Self::Served }
    }
}

/// A client that announces on a thread of its own, until it is refused.
pub(crate) struct Probe {
    served: Arc<AtomicU64>,
    is_known: mpsc::Receiver<()>,
    thread: JoinHandle<f64>,
}

impl Probe {
    /// The protocols of all probes, in their order.
    pub(crate) const NAMES: [&str; 4] = ["udp", "http", "webtorrent", "webtorrent-offers"];

    /// Starts two peers of each protocol. Browsers count twice: their replies, and the offers that they receive.
    pub(crate) fn start_all(tracker: &Tracker, info_hash: [u8; 20]) -> Vec<Self> {
        let http = tracker.http;
        let udp_client = udp::Client::bind(None, tracker.udp, Duration::from_millis(500), 20).unwrap();
        udp_client.connect().unwrap();
        let mut http_client = http::Client::open(None, http, None, PATIENCE).unwrap();
        let (mut first, mut second) = (Browser::open(http), Browser::open(http));
        vec![
            Self::start(move |number| announce_udp(&udp_client, info_hash, port(number))),
            Self::start(move |number| announce_http(&mut http_client, info_hash, port(number))),
            Self::start(move |_| first.announce(&info_hash, b'a', false)),
            Self::start(move |_| second.announce(&info_hash, b'b', true)),
        ]
    }

    fn start(mut ask: impl FnMut(usize) -> Reaction + Send + 'static) -> Self {
        let served = Arc::new(AtomicU64::new(0));
        let (known, is_known) = mpsc::channel();
        let count = Arc::clone(&served);
        let thread = thread::spawn(move || {
            let (mut last_ms, mut refusals) = (now_ms(), 0);
            for number in 0.. {
                match ask(number) {
                    Reaction::Served => {
                        (last_ms, refusals) = (now_ms(), 0);
                        if count.fetch_add(1, Ordering::Relaxed) + 1 == SERVED_MIN {
                            let _ = known.send(());
                        }
                    }
                    Reaction::Empty => refusals = 0,
                    Reaction::Refused => refusals += 1,
                }
                if refusals == REFUSALS {
                    break;
                }
            }
            last_ms
        });
        Self { served, is_known, thread }
    }

    /// Waits until the client has been served often.
    pub(crate) fn wait_until_served(&self) {
        let waited = self.is_known.recv_timeout(PATIENCE * 6);
        assert!(waited.is_ok(), "served {} times", self.served.load(Ordering::Relaxed));
    }

    /// Waits until the client is refused, and returns when it was served last.
    pub(crate) fn last_served_ms(self) -> f64 {
        self.thread.join().unwrap()
    }
}

/// Each client is two peers, so that there is one to hand out.
fn port(number: usize) -> u16 {
    if number.is_multiple_of(2) { 1001 } else { 1002 }
}

fn announce_udp(client: &udp::Client, info_hash: [u8; 20], port: u16) -> Reaction {
    let announce = udp::Announce { numwant: 10, ..udp::Announce::leecher(info_hash, port) };
    match client.announce(&announce) {
        Ok(announced) => Reaction::to_peers(&announced.peers),
        Err(error) if error.is::<udp::Refused>() => Reaction::Refused,
        Err(error) => panic!("{error:?}"),
    }
}

fn announce_http(client: &mut http::Client, info_hash: [u8; 20], port: u16) -> Reaction {
    let request = http::get(&http::announce_target(info_hash, port, "&compact=1"));
    let response = client.request(&request).unwrap();
    match response.refusal() {
        Some(_) => Reaction::Refused,
        None => Reaction::to_peers(&response.peers().unwrap()),
    }
}

struct Browser(WebSocket);

impl Browser {
    fn open(tracker: SocketAddr) -> Self {
        Self(WebSocket::open(None, tracker, None, PATIENCE).unwrap())
    }

    /// Announces with offers, and waits for the reply. `counts_offers` tells whether offers of the other peer count, or
    /// else the replies.
    fn announce(&mut self, info_hash: &[u8; 20], peer: u8, counts_offers: bool) -> Reaction {
        let text = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
        let offer = json!({ "offer_id": "o".repeat(20), "offer": { "type": "offer", "sdp": "v=0" } });
        let message = json!({
            "action": "announce", "info_hash": text(info_hash), "peer_id": text(&[peer; 20]), "numwant": 2,
            "uploaded": 0, "downloaded": 0, "left": 1, "event": "update", "offers": [offer, offer],
        });
        self.0.send(&message).unwrap();
        let mut has_offer = false;
        loop {
            let message = self.0.receive().unwrap();
            has_offer |= message["offer"].is_object();
            let is_refused = message["failure reason"].is_string();
            if !is_refused && !message["interval"].is_number() {
                continue;
            }
            return match (has_offer && counts_offers, is_refused) {
                (true, _) => Reaction::Served,
                (false, true) => Reaction::Refused,
                (false, false) if counts_offers => Reaction::Empty,
                (false, false) => Reaction::Served,
            };
        }
    }
}
