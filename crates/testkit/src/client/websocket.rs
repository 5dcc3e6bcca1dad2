//! A WebSocket client for WebTorrent messages, and the encoding of frames (RFC 6455).

use std::io::{self, ErrorKind};
use std::time::Instant;
#[cfg(feature = "tls")]
use std::{net::IpAddr, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{Role, handshake};

use super::{Stream, is_timeout};

/// The size of the read buffer.
const PIECE_BYTES: usize = 64 << 10;

/// The maximum size of a message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// The mask of all frames. A client must mask, but there is nothing to hide.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x11, 0x7e];

/// A WebSocket.
pub struct WebSocket {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

/// A frame of the tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message.
    Text(Vec<u8>),
    /// A message that is not text.
    Binary(Vec<u8>),
    /// A ping, which has been answered.
    Ping,
    /// The answer to a ping, with its payload.
    Pong(Vec<u8>),
    /// The end, with its code and its reason.
    Close(Option<u16>, String),
}

impl WebSocket {
    /// Connects and upgrades the connection.
    ///
    /// # Errors
    /// Returns an error if there is no WebSocket.
    #[cfg(feature = "tls")]
    pub fn open(
        source: impl Into<Option<IpAddr>>,
        target: SocketAddr,
        tls: Option<&super::tls::Tls>,
        timeout: Duration,
    ) -> Result<Self> {
        Self::over(super::tls::open(source, target, tls, timeout)?)
    }

    /// Upgrades a connection.
    ///
    /// # Errors
    /// Returns an error if there is no WebSocket.
    pub fn over(stream: impl Stream + 'static) -> Result<Self> {
        Self::over_with(stream, "/announce", "")
    }

    /// Upgrades a connection by a request for `target` with further header fields, each of which ends with CRLF.
    ///
    /// # Errors
    /// Returns [`handshake::Unaccepted`] if the tracker refuses, or another error if there is no response.
    pub fn over_with(stream: impl Stream + 'static, target: &str, fields: &str) -> Result<Self> {
        let key = handshake::key(fastrand::u128(..).to_ne_bytes());
        let mut request = upgrade(target, &key);
        request.truncate(request.len() - 2);
        request.extend([fields, "\r\n"].concat().bytes());
        let mut socket = Self { stream: Box::new(stream), unread: Vec::new() };
        socket.send_raw(&request).context("cannot ask for a WebSocket")?;
        loop {
            if let Some(length) = handshake::confirm(&socket.unread, &key)? {
                socket.unread.drain(..length);
                return Ok(socket);
            }
            socket.fill().context("no response to an upgrade")?;
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Returns an error if the connection does not accept them.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).context("the socket is gone")
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns an error if the connection does not accept it.
    pub fn send(&mut self, message: &Value) -> Result<()> {
        self.send_raw(&text(message.to_string().as_bytes()))
    }

    /// Waits for a frame, and answers it if it is a ping.
    ///
    /// # Errors
    /// Returns an error if none comes in time, or the connection ends.
    pub fn read(&mut self) -> Result<Frame> {
        loop {
            match self.take_frame()? {
                Some(frame) => return Ok(frame),
                None => self.fill()?,
            }
        }
    }

    /// Waits for a message. Skips pings and their answers.
    ///
    /// # Errors
    /// Returns an error if none comes in time, or the connection ends.
    pub fn receive(&mut self) -> Result<Value> {
        loop {
            if let Some(message) = message(self.read()?)? {
                return Ok(message);
            }
        }
    }

    /// Waits until `deadline` for a message for which `find` returns a result. Skips other messages.
    ///
    /// # Errors
    /// Returns an error if none comes in time, or the connection ends.
    pub fn wait_for<T>(&mut self, deadline: Instant, mut find: impl FnMut(&Value) -> Option<T>) -> Result<T> {
        #[expect(clippy::disallowed_methods, reason = "a wait of a test needs the real clock")]
        while Instant::now() < deadline {
            match self.take_frame()? {
                Some(frame) => {
                    if let Some(found) = message(frame)?.as_ref().and_then(&mut find) {
                        return Ok(found);
                    }
                }
                None => match self.fill() {
                    Err(error) if !is_timeout(&error) => return Err(error).context("the socket is gone"),
                    _ => {}
                },
            }
        }
        bail!("no such message in time")
    }

    /// Waits for input.
    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE_BYTES];
        match self.stream.read(&mut piece) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the socket was closed")),
            Ok(length) => self.unread.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes a frame from the input. Returns `None` if it is incomplete.
    fn take_frame(&mut self) -> Result<Option<Frame>> {
        let Some(head) = frame::decode(&self.unread, Role::Client)? else { return Ok(None) };
        ensure!(head.payload_bytes <= MESSAGE_BYTES_MAX, "a message that is too long");
        let end = head.head_bytes + usize::try_from(head.payload_bytes)?;
        let Some(payload) = self.unread.get(head.head_bytes..end).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.unread.drain(..end);
        Ok(Some(match head.opcode {
            Opcode::Text => Frame::Text(payload),
            Opcode::Binary => Frame::Binary(payload),
            Opcode::Ping => {
                self.send_raw(&fragment(Opcode::Pong, true, &payload))?;
                Frame::Ping
            }
            Opcode::Pong => Frame::Pong(payload),
            // The code and the reason (5.5.1).
            Opcode::Close => match payload.split_first_chunk::<2>() {
                Some((code, reason)) => Frame::Close(
                    Some(u16::from_be_bytes(*code)),
                    String::from_utf8_lossy(reason).into_owned(),
                ),
                None => Frame::Close(None, String::new()),
            },
            Opcode::Continuation => bail!("a fragment, which no tracker sends"),
        }))
    }
}

/// Returns the message of a frame. The end of the WebSocket is an error.
fn message(frame: Frame) -> Result<Option<Value>> {
    match frame {
        Frame::Text(text) => serde_json::from_slice(&text).context("a message that is not JSON"),
        Frame::Close(Some(code), reason) => bail!("closed by the tracker: {code} {reason}"),
        Frame::Close(None, _) => bail!("closed by the tracker: without a code"),
        Frame::Binary(_) | Frame::Ping | Frame::Pong(_) => Ok(None),
    }
}

/// Encodes an upgrade request.
#[must_use]
pub fn upgrade(target: &str, key: &str) -> Vec<u8> {
    let mut request = Vec::new();
    handshake::ask(target, "tracker.test", key, None, &mut request);
    request
}

/// Encodes a masked text frame.
#[must_use]
pub fn text(payload: &[u8]) -> Vec<u8> {
    fragment(Opcode::Text, true, payload)
}

/// Encodes a masked frame. `fin` marks the last frame of a message.
#[must_use]
pub fn fragment(opcode: Opcode, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_fragment(opcode, fin, payload, Some(MASK), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::client::tcp;

    /// Opens a WebSocket to a tracker that sends `frames` in small pieces.
    fn open(frames: Vec<u8>) -> Result<WebSocket> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
            let mut answer = Vec::new();
            handshake::respond(&handshake::accept(key.as_bytes()).unwrap(), &mut answer);
            answer.extend_from_slice(&frames);
            answer.chunks(50).for_each(|piece| stream.write_all(piece).unwrap());
            // A socket with unread input would be reset instead of closed.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        WebSocket::over(tcp(None, address, Duration::from_secs(10))?)
    }

    #[test]
    fn frames_are_read_until_the_end() {
        let mut sent = Vec::new();
        frame::encode(Opcode::Ping, b"there?", None, &mut sent);
        frame::write_text(&mut sent, |out| out.extend_from_slice(b"{\"interval\":120}"));
        frame::encode(Opcode::Close, b"\x03\xe9bye", None, &mut sent);
        let mut socket = open(sent).unwrap();
        assert_eq!(socket.read().unwrap(), Frame::Ping);
        assert_eq!(socket.read().unwrap(), Frame::Text(b"{\"interval\":120}".to_vec()));
        assert_eq!(socket.read().unwrap(), Frame::Close(Some(1001), "bye".into()));
        assert!(socket.read().is_err());
    }
}
