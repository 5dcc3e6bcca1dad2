//! WebTorrent as a browser speaks it.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use shoal_testkit::client::is_timeout;
use shoal_testkit::client::websocket::{Frame, WebSocket, fragment, text};
use shoal_wire::websocket::frame::Opcode;
use shoal_wire::websocket::handshake::Unaccepted;

use crate::http::Way;
use crate::kit::harness::{PATIENCE, Tracker};
use crate::kit::web::{over_tcp, tcp, tcp_from};

/// A WebSocket to a tracker.
pub(crate) struct Browser {
    socket: WebSocket,
    /// The same connection, to set how long it is waited for.
    tcp: TcpStream,
}

/// Long enough for a worker that is not stopped to answer, on a busy machine.
const SOON: Duration = Duration::from_secs(1);

impl Browser {
    /// Connects as a client that sends no `Origin`.
    pub(crate) fn open(way: Way, tracker: &Tracker) -> Self {
        Self::open_at(way, tracker, "/announce")
    }

    /// The same, at this path and query.
    pub(crate) fn open_at(way: Way, tracker: &Tracker, target: &str) -> Self {
        let connection = tcp(way.address(tracker));
        Self::knock_over(connection, way.tls(), target, &[]).expect("the tracker takes it in")
    }

    /// Connects with these header fields, or tells the status of the refusal.
    pub(crate) fn knock(address: SocketAddr, tls: bool, fields: &[(&str, &str)]) -> Result<Self, u16> {
        Self::knock_over(tcp(address), tls, "/announce", fields)
    }

    /// Connects from a loopback address of choice, or tells the status of the refusal.
    pub(crate) fn knock_from(
        local: [u8; 4],
        address: SocketAddr,
        fields: &[(&str, &str)],
    ) -> Result<Self, u16> {
        Self::knock_over(tcp_from(local, address), false, "/announce", fields)
    }

    fn knock_over(
        connection: TcpStream,
        tls: bool,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Result<Self, u16> {
        let tcp = connection.try_clone().expect("there are descriptors");
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        match WebSocket::over_with(over_tcp(connection, tls), target, &fields) {
            Ok(socket) => Ok(Self { socket, tcp }),
            Err(error) => match error.downcast_ref() {
                Some(Unaccepted::Status(status)) => Err(*status),
                _ => panic!("{error:?}"),
            },
        }
    }

    /// Sends a message.
    pub(crate) fn send_json(&mut self, message: &Value) {
        self.socket.send(message).expect("the tracker reads");
    }

    /// Sends bytes as they are, which are frames or parts of them.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.try_send_raw(bytes).expect("the tracker reads");
    }

    /// The same, if the tracker reads.
    pub(crate) fn try_send_raw(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.socket.send_raw(bytes)
    }

    fn ping(&mut self) {
        self.send_raw(&fragment(Opcode::Ping, true, b"there?"));
    }

    fn read(&mut self) -> Frame {
        self.socket.read().expect("the tracker answers in time")
    }

    /// The next message. Pings are answered on the way.
    pub(crate) fn receive(&mut self) -> Value {
        self.socket.receive().expect("the tracker answers in time")
    }

    /// Sends a message and returns the reply.
    pub(crate) fn ask(&mut self, message: &Value) -> Value {
        self.send_json(message);
        self.receive()
    }

    /// Waits for the end, and tells by which code the tracker closed.
    pub(crate) fn close_code(&mut self) -> Option<u16> {
        let mut code = None;
        loop {
            match self.socket.read() {
                Ok(Frame::Close(found, _)) => {
                    code = found;
                    // It may be the answer to a close of this end, after which the tracker reads no more.
                    let _ = self.try_send_raw(&fragment(Opcode::Close, true, &[]));
                }
                Ok(_) => {}
                Err(_) => return code,
            }
        }
    }

    /// Returns the messages up to now: those before the answer to a ping.
    pub(crate) fn receive_all(&mut self) -> Vec<Value> {
        self.ping();
        let mut messages = Vec::new();
        loop {
            match self.read() {
                Frame::Text(text) => messages.push(serde_json::from_slice(&text).expect("JSON")),
                Frame::Pong(_) => return messages,
                Frame::Ping => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Makes sure that the tracker still serves this socket, and has read everything before.
    pub(crate) fn check(&mut self) {
        self.ping();
        self.receive_pong();
    }

    /// Whether the tracker answers at once. If it does not, the answer has to be waited for: see [`Self::receive_pong`].
    pub(crate) fn answers_soon(&mut self) -> bool {
        self.ping();
        self.tcp.set_read_timeout(Some(SOON)).expect("a time-out can be set");
        let outcome = self.socket.read();
        self.tcp.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        match outcome {
            Ok(Frame::Pong(_)) => true,
            Err(error) if error.downcast_ref().is_some_and(is_timeout) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Receives the answer to a ping.
    pub(crate) fn receive_pong(&mut self) {
        loop {
            match self.read() {
                Frame::Pong(payload) if payload == b"there?" => return,
                Frame::Pong(_) | Frame::Ping => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Receives this many pings, each of which is answered.
    pub(crate) fn receive_pings(&mut self, count: usize) {
        for _ in 0..count {
            assert_eq!(self.read(), Frame::Ping);
        }
    }

    /// Leaves as a browser does whose page is closed.
    pub(crate) fn leave(mut self) {
        self.send_raw(&fragment(Opcode::Close, true, &1000_u16.to_be_bytes()));
        assert_eq!(self.close_code(), Some(1000));
    }
}

/// The frame of a message.
pub(crate) fn frame(message: &Value) -> Vec<u8> {
    text(message.to_string().as_bytes())
}

/// An announce of the peer `peer` in the torrent `torrent`, with so many offers.
pub(crate) fn announce(torrent: char, peer: char, offers: usize) -> Value {
    let offers: Vec<Value> = (0..offers).map(|number| offer(peer, number)).collect();
    json!({
        "action": "announce", "info_hash": name(torrent), "peer_id": name(peer), "numwant": offers.len(),
        "uploaded": 0, "downloaded": 0, "left": 1, "event": "started", "offers": offers,
    })
}

/// The offer of this number.
fn offer(peer: char, number: usize) -> Value {
    json!({"offer_id": offer_id(peer, number), "offer": {"type": "offer", "sdp": format!("v=0\r\n{peer} {number}")}})
}

/// The id of that offer.
pub(crate) fn offer_id(peer: char, number: usize) -> String {
    format!("{peer}{number:0>19}")
}

/// Returns the answer of `peer` to an offer that it received.
pub(crate) fn answer(peer: char, offer: &Value) -> Value {
    json!({
        "action": "announce", "info_hash": offer["info_hash"], "peer_id": name(peer), "to_peer_id": offer["peer_id"],
        "offer_id": offer["offer_id"], "answer": {"type": "answer", "sdp": "v=0\r\n"},
    })
}

/// Twenty characters.
pub(crate) fn name(character: char) -> String {
    character.to_string().repeat(20)
}
