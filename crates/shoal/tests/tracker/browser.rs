//! WebTorrent as a browser speaks it, by a WebSocket library that is not ours.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Request;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::harness::{PATIENCE, Tracker};
use crate::http::Way;
use crate::web::{Stream, over_tcp, tcp, tcp_from};

/// A WebSocket to a tracker.
pub(crate) struct Browser {
    socket: WebSocket<Box<dyn Stream>>,
    /// The same connection, to set how long it is waited for.
    tcp: TcpStream,
}

fn request(fields: &[(&'static str, &str)]) -> Request {
    request_at("/announce", fields)
}

fn request_at(target: &str, fields: &[(&'static str, &str)]) -> Request {
    let address = format!("ws://localhost{target}");
    let mut request: Request = address.into_client_request().expect("an address");
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().expect("a value of a header"));
    }
    request
}

/// Long enough for a worker that is not stopped to answer, on a busy machine.
const SOON: Duration = Duration::from_secs(1);

impl Browser {
    /// Connects as a client that sends no `Origin`.
    pub(crate) fn open(way: Way, tracker: &Tracker) -> Self {
        Self::knock(way.address(tracker), way.tls(), &[]).expect("the tracker takes it in")
    }

    /// The same, at this path and query.
    pub(crate) fn open_at(way: Way, tracker: &Tracker, target: &str) -> Self {
        let connection = tcp(way.address(tracker));
        Self::knock_over(connection, way.tls(), request_at(target, &[])).expect("the tracker takes it in")
    }

    /// Connects with these header fields, or tells the status of the refusal.
    pub(crate) fn knock(
        address: SocketAddr,
        tls: bool,
        fields: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        Self::knock_over(tcp(address), tls, request(fields))
    }

    /// Connects from a loopback address of choice, or tells the status of the refusal.
    pub(crate) fn knock_from(
        local: [u8; 4],
        address: SocketAddr,
        fields: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        Self::knock_over(tcp_from(local, address), false, request(fields))
    }

    fn knock_over(connection: TcpStream, tls: bool, request: Request) -> Result<Self, u16> {
        let tcp = connection.try_clone().expect("there are descriptors");
        match tungstenite::client(request, over_tcp(connection, tls)) {
            Ok((socket, response)) => {
                assert!(response.headers().get("sec-websocket-extensions").is_none());
                Ok(Self { socket, tcp })
            }
            Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a message.
    pub(crate) fn send_json(&mut self, message: &Value) {
        self.send(Message::text(message.to_string()));
    }

    /// Sends anything.
    pub(crate) fn send(&mut self, message: Message) {
        self.socket.send(message).expect("the tracker reads");
    }

    /// Sends bytes as they are, which are frames or parts of them.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let stream = self.socket.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush()).expect("the tracker reads");
    }

    /// The same, if the tracker reads.
    pub(crate) fn try_send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stream = self.socket.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush())
    }

    /// The next message. Pings are answered on the way.
    pub(crate) fn receive(&mut self) -> Value {
        loop {
            match self.socket.read().expect("the tracker answers in time") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
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
                Ok(Message::Close(frame)) => code = frame.map(|frame| u16::from(frame.code)),
                Ok(_) => {}
                Err(_) => return code,
            }
        }
    }

    /// Returns the messages up to now: those before the answer to a ping.
    pub(crate) fn receive_all(&mut self) -> Vec<Value> {
        self.send(Message::Ping(b"there?".as_slice().into()));
        let mut messages = Vec::new();
        loop {
            match self.socket.read().expect("the tracker answers in time") {
                Message::Text(text) => messages.push(serde_json::from_str(&text).expect("JSON")),
                Message::Pong(_) => return messages,
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Makes sure that the tracker still serves this socket, and has read everything before.
    pub(crate) fn check(&mut self) {
        self.send(Message::Ping(b"there?".as_slice().into()));
        while !self.has_pong() {}
    }

    /// Whether the tracker answers at once. If it does not, the answer has to be waited for: see [`Self::receive_pong`].
    pub(crate) fn answers_soon(&mut self) -> bool {
        self.send(Message::Ping(b"there?".as_slice().into()));
        self.tcp.set_read_timeout(Some(SOON)).expect("a time-out can be set");
        let outcome = self.socket.read();
        self.tcp.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        match outcome {
            Ok(Message::Pong(_)) => true,
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => false,
            other => panic!("{other:?}"),
        }
    }

    /// Receives the pong that did not come at once.
    pub(crate) fn receive_pong(&mut self) {
        while !self.has_pong() {}
    }

    fn has_pong(&mut self) -> bool {
        match self.socket.read().expect("the tracker answers in time") {
            Message::Pong(payload) => payload == b"there?".as_slice(),
            Message::Ping(_) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Receives this many pings, and answers each.
    pub(crate) fn receive_pings(&mut self, count: usize) {
        for _ in 0..count {
            match self.socket.read().expect("the tracker pings in time") {
                Message::Ping(_) => self.socket.flush().expect("the tracker reads"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Leaves as a browser does whose page is closed.
    pub(crate) fn leave(mut self) {
        self.socket
            .close(Some(tungstenite::protocol::CloseFrame { code: CloseCode::Normal, reason: "".into() }))
            .expect("the tracker reads");
        assert_eq!(self.close_code(), Some(1000));
    }
}

/// The frame of a message, masked by zeros.
pub(crate) fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u16::try_from(text.len()).expect("a short message").to_be_bytes();
    [&[0x81, 0xfe][..], &length, &[0; 4], text.as_bytes()].concat()
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
