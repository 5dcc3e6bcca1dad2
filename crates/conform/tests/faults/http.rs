//! The HTTP side of the tracker in the test: connections, requests and the form of replies, with their faults. What an
//! announce means is the business of [`crate::tracker`].

pub(crate) mod head;
pub(crate) mod meaning;

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

/// How to speak TLS.
pub(crate) type Tls = Arc<ServerConfig>;

/// How often a connection looks whether the test is over.
const PATIENCE: Duration = Duration::from_millis(20);

/// What goes out.
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

/// Takes connections until the end of the test.
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
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let Ok(peer) = socket.peer_addr() else { return };
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), socket)),
    };
    let mut connection = Connection { stream, unread: Vec::new(), fault };
    // A client that has gone is no fault of anybody.
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
                        state.lock().unwrap().is_dead |= is_cut && fault == Fault::HttpDiesOfLeavers;
                        return Ok(());
                    }
                    More::Over => return Ok(()),
                },
                Parsed::Whole(request) => {
                    self.unread.drain(..request.bytes);
                    self.take_body(&request, stop)?;
                    if fault == Fault::HttpEndIsLeave && matches!(self.read(stop)?, More::End) {
                        return Ok(());
                    }
                    if fault == Fault::HttpDropsPipelined {
                        self.unread.clear();
                    }
                    let mut state = state.lock().unwrap();
                    if state.is_dead {
                        return Ok(());
                    }
                    let reply = meaning::answer(&mut state, peer, &request);
                    drop(state);
                    if fault == Fault::HttpSilentToBody
                        && request.header("content-length").is_some_and(|value| value != "0")
                    {
                        return self.hold(stop);
                    }
                    if self.write(&request, &reply)? {
                        return self.close(stop);
                    }
                }
                Parsed::Endless => self.unread.clear(),
                Parsed::Malformed(status) => {
                    let is_deadly = match fault {
                        Fault::HttpDiesOfGarbage => self.unread[0] > 127,
                        Fault::HttpDiesOfMangled => self.unread.starts_with(b"GET"),
                        _ => false,
                    };
                    state.lock().unwrap().is_dead |= is_deadly;
                    let is_ours = self.unread.len() < 4096;
                    if fault == Fault::HttpSilentToMalformed && is_ours {
                        return self.hold(stop);
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
                // One look is enough to see whether somebody has left already.
                Err(error)
                    if is_timeout(&error)
                        && self.fault == Fault::HttpEndIsLeave
                        && !self.unread.is_empty() =>
                {
                    return Ok(More::Some);
                }
                Err(error) if is_timeout(&error) => {
                    if self.fault == Fault::HttpEndIsLeave {
                        return Ok(More::Some);
                    }
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(More::End),
                Err(error) => return Err(error),
            }
        }
        Ok(More::Over)
    }

    /// Reads over the body, unless the fault is not to.
    fn take_body(&mut self, request: &Request, stop: &AtomicBool) -> io::Result<()> {
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

    /// Writes a reply, and says whether the connection ends with it.
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

    /// Closes so that what was written arrives: says so, then reads what is on its way for a moment.
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

    /// Keeps the connection, and says nothing.
    fn hold(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while matches!(self.read(stop)?, More::Some) {
            self.unread.clear();
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
