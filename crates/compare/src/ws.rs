//! A client of WebTorrent trackers (RFC 6455) that asks one thing at a time, as [`crate::http`] does for HTTP: to find out
//! whether a tracker is there, and to leave WebSockets idle on it.

use std::io;
use std::net::TcpStream;

use shoal_types::{Event, InfoHash, PeerId};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{self, Read, Role, handshake};
use shoal_wire::webtorrent::received::{Received, decode};
use shoal_wire::webtorrent::request::{AnnounceRequest, Style};

use crate::http;

/// Where the WebSocket is asked for: trackers take any path.
pub(crate) const PATH: &str = "/announce";

/// No reply to a single announce is longer.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// What a client calls its request for a WebSocket. It is no secret.
const NONCE: [u8; 16] = *b"shoal laboratory";

/// What frames are masked with: proxies on the way, from whom it guards, there are none.
const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x8e];

/// A WebSocket.
pub(crate) struct Connection {
    http: http::Connection,
    reader: websocket::Reader,
    /// What came and was not looked at yet.
    input: Vec<u8>,
}

impl Connection {
    /// Makes a WebSocket of a connection.
    ///
    /// # Errors
    /// Where the tracker does not agree.
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

    /// Announces a peer that makes no offers, and returns why it was refused, if it was.
    ///
    /// # Errors
    /// Where the tracker says nothing, or no WebSocket message.
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
        self.read_message(|message| match decode(message) {
            Ok(Received::Failure(failure)) => Some(failure.reason.into_owned()),
            // An echo says what it was told, which is nothing that a tracker says.
            _ => None,
        })
    }

    /// The connection without what this end remembers of it, so that a great many fit. It stays open, and nothing can be
    /// said on it any more.
    pub(crate) fn into_idle(self) -> TcpStream {
        self.http.into_idle()
    }

    /// Reads on until a message is whole. What else the tracker may say is left unanswered, since nobody stays long.
    fn read_message<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        loop {
            let heard = self.reader.read(&mut self.input, Role::Client, MESSAGE_BYTES_MAX);
            let Read { used, event } = heard.map_err(io::Error::other)?;
            match event {
                Some(websocket::Event::Message(message)) => {
                    let result = read(message);
                    self.input.drain(..used);
                    return Ok(result);
                }
                Some(websocket::Event::Close(_)) => return Err(io::ErrorKind::ConnectionReset.into()),
                _ if used > 0 => drop(self.input.drain(..used)),
                _ => self.http.receive(&mut self.input)?,
            }
        }
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

    /// What a client makes of a tracker that agrees to a WebSocket and then says this, in pieces of a few bytes.
    fn announced(said: Vec<u8>) -> io::Result<Option<String>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = http::Client::new(listener.local_addr().unwrap(), None).unwrap();
        let tracker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            let mut answer = Vec::new();
            let accept = handshake::accept(handshake::key(NONCE).as_bytes()).unwrap();
            handshake::respond(&accept, &mut answer);
            answer.extend_from_slice(&said);
            for piece in answer.chunks(50) {
                stream.write_all(piece).unwrap();
            }
            // Only who has read everything closes in good order.
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
    fn replies_are_read_and_refusals_told_in_words() {
        let mut said = Vec::new();
        frame::encode(Opcode::Ping, b"there?", None, &mut said);
        frame::write_text(&mut said, |out| reply::announce(&InfoHash([0xa5; 20]), 120, 0, 1, out));
        assert_eq!(announced(said).unwrap(), None);
        let mut said = Vec::new();
        frame::write_text(&mut said, |out| reply::failure(None, None, "not you", out));
        assert_eq!(announced(said).unwrap().as_deref(), Some("not you"));
    }

    #[test]
    fn what_is_cut_or_closed_is_no_reply() {
        assert!(announced(Vec::new()).is_err());
        let mut said = Vec::new();
        frame::close(websocket::CloseCode::GoingAway, "", None, &mut said);
        assert!(announced(said).is_err());
    }
}
