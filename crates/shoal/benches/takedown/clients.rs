//! Clients of every protocol that announce one torrent without a pause, and note when they were served last.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::Message;

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
        let (udp, http) = (tracker.udp, tracker.http);
        let mut udp_client = UdpClient::open(udp);
        let mut http_client = HttpClient::open(http);
        let (mut first, mut second) = (Browser::open(http), Browser::open(http));
        vec![
            Self::start(move |number| udp_client.announce(&info_hash, port(number))),
            Self::start(move |number| http_client.announce(&info_hash, port(number))),
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

struct UdpClient {
    socket: UdpSocket,
    connection_id: [u8; 8],
}

impl UdpClient {
    fn open(tracker: std::net::SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(tracker).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut client = Self { socket, connection_id: [0; 8] };
        // BEP 15, "connect".
        let packet = [&0x0417_2710_1980_u64.to_be_bytes()[..], &[0; 4], &[7; 4]].concat();
        let reply = client.ask(&packet);
        client.connection_id.copy_from_slice(&reply[8..16]);
        client
    }

    /// Sends a request until it is answered.
    fn ask(&self, packet: &[u8]) -> Vec<u8> {
        let mut buffer = [0; 2048];
        for _ in 0..20 {
            self.socket.send(packet).unwrap();
            if let Ok(length) = self.socket.recv(&mut buffer) {
                return buffer[..length].to_vec();
            }
        }
        panic!("no reply over UDP");
    }

    fn announce(&mut self, info_hash: &[u8; 20], port: u16) -> Reaction {
        // BEP 15, "announce": left is 1, the event is none, and the number of peers is 10.
        let mut packet = [&self.connection_id[..], &1_u32.to_be_bytes(), &[7; 4], info_hash].concat();
        packet.extend(b"-TD0001-abcdefghijkl");
        packet.extend(
            [[0_u64.to_be_bytes(), 1_u64.to_be_bytes(), 0_u64.to_be_bytes()].concat(), vec![0; 12]].concat(),
        );
        packet.extend([&10_u32.to_be_bytes()[..], &port.to_be_bytes()].concat());
        let reply = self.ask(&packet);
        match reply[3] {
            3 => Reaction::Refused,
            _ if reply.len() > 20 => Reaction::Served,
            _ => Reaction::Empty,
        }
    }
}

struct HttpClient(TcpStream);

impl HttpClient {
    fn open(tracker: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(tracker).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn announce(&mut self, info_hash: &[u8; 20], port: u16) -> Reaction {
        let hash: String = info_hash.iter().map(|byte| format!("%{byte:02x}")).collect();
        let target =
            format!("/announce?info_hash={hash}&peer_id=-TD0001-abcdefghijkl&port={port}&left=1&compact=1");
        self.0.write_all(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        let mut piece = [0; 4096];
        // A reply is a dictionary, which ends with an e.
        while !(reply.ends_with(b"e") && reply.windows(4).any(|bytes| bytes == b"\r\n\r\n")) {
            let length = self.0.read(&mut piece).unwrap();
            assert!(length > 0, "the connection stays open");
            reply.extend_from_slice(&piece[..length]);
        }
        let has = |text: &[u8]| reply.windows(text.len()).any(|bytes| bytes == text);
        match (has(b"failure reason"), has(b"5:peers0:")) {
            (true, _) => Reaction::Refused,
            (_, true) => Reaction::Empty,
            (false, false) => Reaction::Served,
        }
    }
}

struct Browser {
    socket: tungstenite::WebSocket<TcpStream>,
}

impl Browser {
    fn open(tracker: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(tracker).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = tungstenite::client("ws://localhost/announce", stream).unwrap();
        Self { socket }
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
        self.socket.send(Message::text(message.to_string())).unwrap();
        let mut has_offer = false;
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
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
