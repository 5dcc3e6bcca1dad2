//! A WebSocket client for WebTorrent messages, and the encoding of frames.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use shoal_wire::websocket::frame::Opcode;
use shoal_wire::websocket::{Role, frame, handshake};

use crate::siege::http::{self, Stream};
use crate::siege::tls::TlsClient;
use crate::siege::{measure, socket};

/// The size of the read buffer.
const PIECE_BYTES: usize = 64 << 10;

/// The maximum size of a message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// The words before the reason why an upgrade was refused.
pub(crate) const NO_WEBSOCKET: &str = "no WebSocket";

/// The mask of all frames. A client must mask, but there is nothing to hide.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x11, 0x7e];

/// A WebSocket.
pub(crate) struct WebSocket {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

impl WebSocket {
    /// Connects and upgrades the connection.
    pub(crate) fn open(
        source: IpAddr,
        target: SocketAddr,
        tls: Option<&TlsClient>,
        timeout: Duration,
    ) -> Result<Self> {
        Self::over(http::open(source, target, tls, timeout)?)
    }

    /// Upgrades a connection.
    pub(crate) fn over(stream: Box<dyn Stream>) -> Result<Self> {
        Self::over_with(stream, "/announce", "")
    }

    /// Upgrades a connection by a request for `target` with further header fields, each of which ends with CRLF.
    pub(crate) fn over_with(mut stream: Box<dyn Stream>, target: &str, fields: &str) -> Result<Self> {
        let key = handshake::key(fastrand::u128(..).to_ne_bytes());
        let mut request = Vec::new();
        handshake::ask(target, "tracker.test", &key, None, &mut request);
        request.truncate(request.len() - 2);
        request.extend([fields, "\r\n"].concat().bytes());
        stream.write_all(&request).context("cannot ask for a WebSocket")?;
        stream.flush().context("cannot ask for a WebSocket")?;
        let mut unread = Vec::new();
        loop {
            let confirmed = handshake::confirm(&unread, &key);
            if let Some(length) = confirmed.map_err(|reason| anyhow::anyhow!("{NO_WEBSOCKET}: {reason:?}"))? {
                unread.drain(..length);
                return Ok(Self { stream, unread });
            }
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).context("no response to an upgrade")?;
            ensure!(length > 0, "the connection was closed instead of upgraded");
            unread.extend_from_slice(&piece[..length]);
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("the socket is gone")?;
        self.stream.flush().context("the socket is gone")
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &Value) -> Result<()> {
        self.send_raw(&text(message.to_string().as_bytes()))
    }

    /// Waits until `deadline` for a message for which `find` returns a result. Answers pings and skips other messages.
    pub(crate) fn wait_for<T>(
        &mut self,
        deadline: Instant,
        mut find: impl FnMut(&Value) -> Option<T>,
    ) -> Result<T> {
        while measure::now() < deadline {
            if let Some(message) = self.next_message()?
                && let Some(found) = find(&message)
            {
                return Ok(found);
            }
        }
        bail!("no such message in time")
    }

    /// Reads once and returns the next message, if it is complete.
    fn next_message(&mut self) -> Result<Option<Value>> {
        if let Some(found) = self.take_frame()? {
            return Ok(found);
        }
        let mut piece = [0; PIECE_BYTES];
        match self.stream.read(&mut piece) {
            Ok(0) => bail!("the socket was closed"),
            Ok(length) => self.unread.extend_from_slice(&piece[..length]),
            Err(error) if crate::siege::udp::is_timeout(&error) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("the socket is gone"),
        }
        Ok(None)
    }

    /// Removes a frame from the input. Returns `None` if it is incomplete, and `Some(None)` if it is not a message.
    fn take_frame(&mut self) -> Result<Option<Option<Value>>> {
        let head = frame::decode(&self.unread, Role::Client);
        let Some(head) = head.map_err(|error| anyhow::anyhow!("an invalid frame: {error:?}"))? else {
            return Ok(None);
        };
        ensure!(head.payload_bytes <= MESSAGE_BYTES_MAX, "a message that is too long");
        let length = usize::try_from(head.payload_bytes)?;
        let Some(payload) = self.unread.get(head.head_bytes..head.head_bytes + length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.unread.drain(..head.head_bytes + length);
        match head.opcode {
            Opcode::Text => {
                Ok(Some(Some(serde_json::from_slice(&payload).context("a message that is not JSON")?)))
            }
            Opcode::Ping => {
                self.send_raw(&fragment(Opcode::Pong, true, &payload))?;
                Ok(Some(None))
            }
            // The code and the reason (RFC 6455, 5.5.1).
            Opcode::Close => match payload.split_first_chunk::<2>() {
                Some((code, reason)) => {
                    let reason = String::from_utf8_lossy(reason);
                    bail!("closed by the tracker: {} {reason}", u16::from_be_bytes(*code))
                }
                None => bail!("closed by the tracker: without a code"),
            },
            _ => Ok(Some(None)),
        }
    }
}

/// Opens a plain WebSocket and returns its connection, for attackers that violate the protocol.
pub(crate) fn bare(source: IpAddr, target: SocketAddr, timeout: Duration) -> Result<TcpStream> {
    let mut stream = socket::tcp(source, target, timeout).context("cannot connect")?;
    stream.write_all(&upgrade("dGhlIHNhbXBsZSBub25jZQ==")).context("cannot ask for a WebSocket")?;
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).context("no response to an upgrade")?;
    ensure!(answer[..length].starts_with(b"HTTP/1.1 101"), "no WebSocket");
    Ok(stream)
}

/// Encodes an upgrade request.
pub(crate) fn upgrade(key: &str) -> Vec<u8> {
    let mut request = Vec::new();
    handshake::ask("/announce", "tracker.test", key, None, &mut request);
    request
}

/// Encodes a masked text frame.
pub(crate) fn text(payload: &[u8]) -> Vec<u8> {
    fragment(Opcode::Text, true, payload)
}

/// Encodes a masked frame. `fin` marks the last frame of a message.
pub(crate) fn fragment(opcode: Opcode, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_fragment(opcode, fin, payload, Some(MASK), &mut out);
    out
}

/// Returns a leecher's announce with these offers.
pub(crate) fn announce(info_hash: &str, peer_id: &str, offers: &[(String, String)]) -> Value {
    let offers: Vec<Value> = offers
        .iter()
        .map(|(id, sdp)| json!({"offer_id": id, "offer": {"type": "offer", "sdp": sdp}}))
        .collect();
    json!({
        "action": "announce", "info_hash": info_hash, "peer_id": peer_id, "numwant": offers.len(),
        "uploaded": 0, "downloaded": 0, "left": 1, "event": "update", "offers": offers,
    })
}

/// Returns an answer to an offer.
pub(crate) fn answer(info_hash: &str, peer_id: &str, to: &str, offer_id: &str, sdp: &str) -> Value {
    json!({
        "action": "announce", "info_hash": info_hash, "peer_id": peer_id, "to_peer_id": to,
        "offer_id": offer_id, "answer": {"type": "answer", "sdp": sdp},
    })
}

/// Returns a random identifier of 20 characters, for an info hash, a peer or an offer.
pub(crate) fn random_id() -> String {
    (0..20).map(|_| fastrand::alphanumeric()).collect()
}
