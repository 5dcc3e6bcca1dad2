//! The time of offers and answers between WebTorrent clients.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_testkit::client::websocket::WebSocket;

use super::nodes::Nodes;
use super::tracker::now_ms;
use super::{Run, percentile};

/// Time to wait for a message.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(run: &mut Run) {
    let nodes = Nodes::start();
    let at = |index: usize| nodes.trackers[index].http;
    let rounds = if run.lab.is_some() { 3000 } else { 3 };
    let mut pairs = [Pair::open('l', at(0), at(0)), Pair::open('r', at(0), at(1))];
    let mut times_ms = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (pair, times_ms) in pairs.iter_mut().zip(&mut times_ms) {
            times_ms.extend(pair.exchange());
        }
    }
    let mut percentiles = [50, 99].map(|percent| times_ms.each_mut().map(|times| percentile(times, percent)));
    for (name, [local, remote]) in ["p50", "p99"].into_iter().zip(&mut percentiles) {
        run.figures.print(&format!("relay/local/{name}"), *local * 1e3, "us");
        run.figures.print(&format!("relay/other-node/{name}"), *remote * 1e3, "us");
    }
    let [_, [local, remote]] = percentiles;
    run.judge("relay/ratio/p99", remote / local, "x", 3.0);
}

/// Two clients that are the only ones of a torrent.
struct Pair {
    offerer: Browser,
    answerer: Browser,
}

impl Pair {
    /// Connects them, and waits until they know each other.
    fn open(torrent: char, one: SocketAddr, other: SocketAddr) -> Self {
        let [mut offerer, mut answerer] =
            [(one, 'a'), (other, 'b')].map(|(tracker, name)| Browser::open(tracker, torrent, name));
        answerer.announce(0);
        while offerer.announced(0) < 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { offerer, answerer }
    }

    /// Sends an offer one way and its answer the other, and returns the milliseconds of both.
    fn exchange(&mut self) -> [f64; 2] {
        let begin_ms = now_ms();
        self.offerer.announce(1);
        let offer = self.answerer.receive("offer");
        let offered_ms = now_ms();
        let answer = json!({
            "action": "announce", "info_hash": self.answerer.info_hash, "peer_id": self.answerer.peer_id,
            "to_peer_id": offer["peer_id"], "offer_id": offer["offer_id"],
            "answer": { "type": "answer", "sdp": "v=0" },
        });
        let answer_ms = now_ms();
        self.answerer.socket.send(&answer).unwrap();
        self.offerer.receive("answer");
        [offered_ms - begin_ms, now_ms() - answer_ms]
    }
}

struct Browser {
    socket: WebSocket,
    info_hash: String,
    peer_id: String,
}

impl Browser {
    fn open(tracker: SocketAddr, torrent: char, name: char) -> Self {
        let socket = WebSocket::open(None, tracker, None, PATIENCE).unwrap();
        let repeated = |character: char| character.to_string().repeat(20);
        Self { socket, info_hash: repeated(torrent), peer_id: repeated(name) }
    }

    /// Announces with so many offers.
    fn announce(&mut self, offers: usize) {
        let id: String = (0..20).map(|_| fastrand::alphanumeric()).collect();
        let offer = json!({ "offer_id": id, "offer": { "type": "offer", "sdp": "v=0" } });
        let announce = json!({
            "action": "announce", "info_hash": self.info_hash, "peer_id": self.peer_id, "numwant": offers,
            "uploaded": 0, "downloaded": 0, "left": 1, "offers": vec![offer; offers],
        });
        self.socket.send(&announce).unwrap();
    }

    /// Announces, and returns the number of leechers.
    fn announced(&mut self, offers: usize) -> u64 {
        self.announce(offers);
        self.receive("interval")["incomplete"].as_u64().unwrap()
    }

    /// Waits for a message with this member.
    fn receive(&mut self, member: &str) -> Value {
        loop {
            let message = self.socket.receive().unwrap();
            if !message[member].is_null() {
                return message;
            }
        }
    }
}
