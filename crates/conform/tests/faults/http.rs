//! The HTTP side of the test tracker: connections, requests and the format of replies, with their faults. The effect of an
//! announce is in [`crate::tracker`].

pub(crate) mod handler;
pub(crate) mod head;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use self::head::{Parsed, Request, parse};
use crate::fault::Fault;
use crate::tracker::State;

pub(crate) type Tls = Arc<ServerConfig>;

/// The interval at which a connection checks whether the test is over.
const TIMEOUT: Duration = Duration::from_millis(20);

pub(crate) struct Reply {
    pub(crate) status: &'static str,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    pub(crate) closes: bool,
}

impl Reply {
    pub(crate) fn ok(body: Vec<u8>) -> Self {
        Self { status: "200 OK", headers: String::new(), body, closes: false }
    }

    pub(crate) fn error(status: &'static str) -> Self {
        Self { status, headers: String::new(), body: Vec::new(), closes: false }
    }
}

trait Stream: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

pub(crate) fn accept(listener: &TcpListener, state: &Mutex<State>, stop: &AtomicBool, tls: Option<&Tls>) {
    let fault = state.lock().unwrap().fault;
    thread::scope(|scope| {
        for socket in listener.incoming() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Ok(socket) = socket else { continue };
            let serve = move || serve(socket, state, stop, tls, fault);
            if fault == Fault::HttpOneAtATime {
                serve();
            } else {
                scope.spawn(serve);
            }
        }
    });
}

fn serve(socket: TcpStream, state: &Mutex<State>, stop: &AtomicBool, tls: Option<&Tls>, fault: Fault) {
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let Ok(peer) = socket.peer_addr() else { return };
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), socket)),
    };
    let mut connection = Connection { stream, unread: Vec::new(), fault };
    // Clients may disconnect at any time.
    let _ = connection.serve(peer.ip(), state, stop);
}

struct Connection {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
    fault: Fault,
}

enum More {
    Some,
    End,
    Over,
}

impl Connection {
    fn serve(&mut self, peer: IpAddr, state: &Mutex<State>, stop: &AtomicBool) -> io::Result<()> {
        let fault = self.fault;
        loop {
            match parse(fault, &self.unread) {
                Parsed::Partial => match self.read(stop)? {
                    More::Some
                        if fault == Fault::HttpOneRead
                            && matches!(parse(fault, &self.unread), Parsed::Partial) =>
                    {
                        return Ok(());
                    }
                    More::Some => {}
                    More::End => {
                        let is_cut = !self.unread.is_empty();
                        state.lock().unwrap().is_dead |= is_cut && fault == Fault::HttpEndsOnLeavers;
                        return Ok(());
                    }
                    More::Over => return Ok(()),
                },
                Parsed::Whole(request) => {
                    self.unread.drain(..request.bytes);
                    self.discard_body(&request, stop)?;
                    if fault == Fault::HttpHalfCloseIsEnd && matches!(self.read(stop)?, More::End) {
                        return Ok(());
                    }
                    if fault == Fault::HttpDropsPipelined {
                        self.unread.clear();
                    }
                    let mut state = state.lock().unwrap();
                    if state.is_dead {
                        return Ok(());
                    }
                    let reply = handler::respond(&mut state, peer, &request);
                    drop(state);
                    if fault == Fault::HttpSilentToBody
                        && request.header("content-length").is_some_and(|value| value != "0")
                    {
                        return self.hold_open(stop);
                    }
                    if self.write(&request, &reply)? {
                        return self.close(stop);
                    }
                }
                Parsed::Endless => self.unread.clear(),
                Parsed::Malformed(status) => {
                    let is_deadly = match fault {
                        Fault::HttpEndsOnGarbage => self.unread[0] > 127,
                        Fault::HttpEndsOnMangled => self.unread.starts_with(b"GET"),
                        _ => false,
                    };
                    state.lock().unwrap().is_dead |= is_deadly;
                    let is_ours = self.unread.len() < 4096;
                    if fault == Fault::HttpSilentToMalformed && is_ours {
                        return self.hold_open(stop);
                    }
                    let status =
                        if fault == Fault::HttpMalformedGets200 && is_ours { "200 OK" } else { status };
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    self.stream.write_all(head.as_bytes())?;
                    return self.close(stop);
                }
            }
        }
    }

    fn read(&mut self, stop: &AtomicBool) -> io::Result<More> {
        let mut buffer = [0; 65_536];
        while !stop.load(Ordering::Relaxed) {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(More::End),
                Ok(bytes) => {
                    self.unread.extend(&buffer[..bytes]);
                    return Ok(More::Some);
                }
                // One read is enough to see whether the client has disconnected already.
                Err(error)
                    if is_timeout(&error)
                        && self.fault == Fault::HttpHalfCloseIsEnd
                        && !self.unread.is_empty() =>
                {
                    return Ok(More::Some);
                }
                Err(error) if is_timeout(&error) => {
                    if self.fault == Fault::HttpHalfCloseIsEnd {
                        return Ok(More::Some);
                    }
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(More::End),
                Err(error) => return Err(error),
            }
        }
        Ok(More::Over)
    }

    /// Discards the body, unless the fault is to keep it.
    fn discard_body(&mut self, request: &Request, stop: &AtomicBool) -> io::Result<()> {
        let length = request
            .header("content-length")
            .and_then(|value| value.parse::<usize>().ok())
            .unwrap_or_default();
        if self.fault == Fault::HttpBodyIsRequest || length > 65_536 {
            return Ok(());
        }
        while self.unread.len() < length {
            if !matches!(self.read(stop)?, More::Some) {
                return Ok(());
            }
        }
        self.unread.drain(..length);
        Ok(())
    }

    fn write(&mut self, request: &Request, reply: &Reply) -> io::Result<bool> {
        let fault = self.fault;
        let is_head = request.method == "HEAD" && fault != Fault::HttpHeadHasBody;
        let says_close = request.has_connection(fault, "close") && fault != Fault::HttpIgnoresClose;
        let is_kept_by_age = !request.is_old
            || (request.has_connection(fault, "keep-alive") && fault != Fault::HttpClosesOld)
            || fault == Fault::HttpKeepsOld;
        let is_chunked = request.header("transfer-encoding").is_some();
        let has_no_length = fault == Fault::HttpNoLength;
        let is_said = says_close
            || !is_kept_by_age
            || is_chunked
            || reply.closes
            || has_no_length
            || fault == Fault::HttpClosesAlways;
        let closes = is_said || fault == Fault::HttpClosesUnsaid;
        let connection = match (is_said, request.is_old) {
            (true, _) => "Connection: close\r\n",
            (false, true) => "Connection: keep-alive\r\n",
            (false, false) => "",
        };
        let content_type = if fault == Fault::HttpHtml { "text/html" } else { "text/plain; charset=utf-8" };
        let length =
            if has_no_length { String::new() } else { format!("Content-Length: {}\r\n", reply.body.len()) };
        let date = if fault == Fault::HttpNoDate { "" } else { "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\n{date}{length}{connection}{}\r\n",
            reply.status, reply.headers
        );
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend(&reply.body);
        }
        if says_close && fault == Fault::HttpMoreThanItSays {
            bytes.push(b'\n');
        }
        self.stream.write_all(&bytes)?;
        self.stream.flush()?;
        Ok(closes)
    }

    /// Closes the sending side, then reads for a moment, so that a reset does not lose the reply.
    fn close(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.stream.flush()?;
        self.stream.socket().shutdown(Shutdown::Write)?;
        let mut socket = self.stream.socket();
        for _ in 0..20 {
            let read = socket.read(&mut [0; 65_536]);
            if stop.load(Ordering::Relaxed) || read.is_err() || matches!(read, Ok(0)) {
                break;
            }
        }
        Ok(())
    }

    fn hold_open(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while matches!(self.read(stop)?, More::Some) {
            self.unread.clear();
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
