//! A client of WebTorrent trackers (RFC 6455) with one request at a time, like [`crate::http`] for HTTP.

use std::io;
use std::net::TcpStream;

use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{self, Read, Role, handshake};
use shoal_wire::webtorrent::received::{Received, decode};
use shoal_wire::webtorrent::request::{AnnounceRequest, Style};

use crate::http;

/// The path of the WebSocket. Trackers accept any path.
pub(crate) const PATH: &str = "/announce";

/// No reply to a single announce is longer.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The nonce of the handshake. It does not need to be random here.
const NONCE: [u8; 16] = *b"shoal laboratory";

/// The mask of all frames. Masks protect proxies on the way, and here are none.
const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x8e];

/// A WebSocket.
pub(crate) struct Connection {
    http: http::Connection,
    reader: websocket::Reader,
    /// Received bytes that have not been decoded yet.
    input: Vec<u8>,
}

impl Connection {
    /// Upgrades a connection to a WebSocket.
    ///
    /// # Errors
    /// Returns an error if the tracker declines.
    pub(crate) fn open(http: http::Connection) -> io::Result<Self> {
        let key = handshake::key(NONCE);
        let mut request = Vec::new();
        handshake::ask(PATH, &http.tracker().to_string(), &key, None, &mut request);
        let mut connection = Self { http, reader: websocket::Reader::new(), input: Vec::new() };
        connection.http.send(&request)?;
        loop {
            match handshake::confirm(&connection.input, &key).map_err(io::Error::other)? {
                Some(head_bytes) => {
                    connection.input.drain(..head_bytes);
                    return Ok(connection);
                }
                None => connection.http.receive(&mut connection.input)?,
            }
        }
    }

    /// Announces a peer without offers, and returns the reason if the tracker refuses it.
    ///
    /// # Errors
    /// Returns an error if there is no WebSocket message in response.
    pub(crate) fn announce(
        &mut self,
        info_hash: InfoHash,
        peer_id: PeerId,
        event: Event,
    ) -> io::Result<Option<String>> {
        let announce =
            AnnounceRequest { info_hash, peer_id, event, left_bytes: Some(1), numwant: Some(0), offers: &[] };
        let (mut message, mut bytes) = (Vec::new(), Vec::new());
        announce.encode(Style::Raw, &mut message);
        frame::encode(Opcode::Text, &message, Some(MASK), &mut bytes);
        self.http.send(&bytes)?;
        // Other messages, such as pings, are left unanswered, since the connection is short-lived.
        loop {
            let read = self.reader.read(&mut self.input, Role::Client, MESSAGE_BYTES_MAX);
            let Read { used, event } = read.map_err(io::Error::other)?;
            match event {
                Some(websocket::Event::Message(message)) => {
                    let refusal = match decode(message) {
                        Ok(Received::Failure(failure)) => Some(failure.reason.into_owned()),
                        // An echo returns the announce, which is not a message of a tracker.
                        _ => None,
                    };
                    self.input.drain(..used);
                    return Ok(refusal);
                }
                Some(websocket::Event::Close(_)) => return Err(io::ErrorKind::ConnectionReset.into()),
                _ if used > 0 => drop(self.input.drain(..used)),
                _ => self.http.receive(&mut self.input)?,
            }
        }
    }

    /// Drops the buffers of this end, so that very many connections fit. The connection stays open, but nothing can be
    /// sent on it any more.
    pub(crate) fn into_idle(self) -> TcpStream {
        self.http.into_idle()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use shoal_wire::webtorrent::reply;

    use super::*;

    const PEER_ID: PeerId = PeerId(*b"-SL0001-123456789012");

    /// Returns what a client makes of a tracker that accepts the WebSocket and then sends `reply`, in small pieces.
    fn announced(reply: Vec<u8>) -> io::Result<Option<String>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = http::Client::new(listener.local_addr().unwrap(), None).unwrap();
        let tracker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            let mut answer = Vec::new();
            let accept = handshake::accept(handshake::key(NONCE).as_bytes()).unwrap();
            handshake::respond(&accept, &mut answer);
            answer.extend_from_slice(&reply);
            for piece in answer.chunks(50) {
                stream.write_all(piece).unwrap();
            }
            // A socket with unread input would be reset instead of closed.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let opened = Connection::open(client.connect().unwrap());
        let outcome =
            opened.and_then(|mut opened| opened.announce(InfoHash([0xa5; 20]), PEER_ID, Event::Started));
        tracker.join().unwrap();
        outcome
    }

    #[test]
    fn replies_are_read_and_refusals_have_a_reason() {
        let mut sent = Vec::new();
        frame::encode(Opcode::Ping, b"there?", None, &mut sent);
        frame::write_text(&mut sent, |out| reply::announce(&InfoHash([0xa5; 20]), 120, 0, 1, out));
        assert_eq!(announced(sent).unwrap(), None);
        let mut sent = Vec::new();
        frame::write_text(&mut sent, |out| reply::failure(None, None, "not you", out));
        assert_eq!(announced(sent).unwrap().as_deref(), Some("not you"));
    }

    #[test]
    fn truncated_and_closed_connections_give_no_reply() {
        assert!(announced(Vec::new()).is_err());
        let mut sent = Vec::new();
        frame::close(websocket::CloseCode::GoingAway, "", None, &mut sent);
        assert!(announced(sent).is_err());
    }
}
