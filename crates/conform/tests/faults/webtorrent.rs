//! The WebTorrent side of the test tracker: one thread serves all sockets, so that a message from one can go to another
//! without locks. Frames are in [`frame`], the handling of messages is in [`swarm`].

mod frame;
mod swarm;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::ServerConnection;
use sha1::{Digest as _, Sha1};

pub(crate) use self::swarm::Swarms;

use self::frame::{Incoming, Step};
use crate::fault::Fault;
use crate::http::Tls;
use crate::http::handler;
use crate::http::head::{Parsed, Request, parse};
use crate::tracker::State;

/// The maximum number of unsent bytes for one client.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// The interval at which the thread checks whether the test is over.
const TIMEOUT: Duration = Duration::from_millis(20);

struct Client {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
    ip: IpAddr,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    incoming: Incoming,
    is_upgraded: bool,
    /// Whether the connection ends, without further reads, when everything is sent.
    is_ending: bool,
    /// Whether a fault keeps the connection open.
    is_held: bool,
    has_ended: bool,
}

pub(crate) fn serve(listeners: &[TcpListener], state: &Mutex<State>, stop: &AtomicBool, tls: Option<Tls>) {
    let fault = state.lock().unwrap().fault;
    for listener in listeners {
        listener.set_nonblocking(true).unwrap();
    }
    let mut clients: BTreeMap<u64, Client> = BTreeMap::new();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        wait(listeners, &clients);
        for listener in listeners {
            while let Ok((socket, address)) = listener.accept() {
                next += 1;
                let tls = tls.as_ref().map(|tls| Box::new(ServerConnection::new(Arc::clone(tls)).unwrap()));
                clients.insert(next, Client::new(socket, tls, address.ip()));
            }
        }
        let state = &mut *state.lock().unwrap();
        let numbers: Vec<u64> = clients.keys().copied().collect();
        for number in numbers {
            let is_blocked = match fault {
                Fault::WsSlowReaderBlocks => clients.values().any(|client| client.unsent.len() > 1 << 18),
                // Half a handshake blocks all later connections.
                Fault::WsHalfHandshakeBlocks => clients
                    .range(..number)
                    .any(|(_, client)| !client.is_upgraded && client.unread.starts_with(b"GET")),
                _ => false,
            };
            if !is_blocked {
                serve_client(state, &mut clients, number);
            }
        }
        for (number, client) in &mut clients {
            client.write(fault);
            if client.has_ended {
                leave(state, *number, client);
            }
        }
        clients.retain(|_, client| !client.has_ended);
    }
}

fn wait(listeners: &[TcpListener], clients: &BTreeMap<u64, Client>) {
    let listeners =
        listeners.iter().map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
    let sockets = clients.values().map(|client| {
        let output = if client.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::from_borrowed_fd(client.socket.as_fd(), PollFlags::IN | output)
    });
    let mut all: Vec<PollFd<'_>> = listeners.chain(sockets).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: TIMEOUT.subsec_nanos().into() };
    poll(&mut all, Some(&timeout)).unwrap();
}

fn serve_client(state: &mut State, clients: &mut BTreeMap<u64, Client>, number: u64) {
    let client = clients.get_mut(&number).unwrap();
    if client.is_ending {
        client.discard();
        return;
    }
    let has_read = client.read();
    if state.is_dead {
        client.has_ended = true;
        return;
    }
    if !client.is_upgraded && (has_read || !client.unread.is_empty()) {
        client.answer_request(state, has_read);
    }
    while let Some(client) = clients.get_mut(&number).filter(|client| client.is_upgraded && !client.is_ending)
    {
        let step = client.incoming.step(state.fault, &mut client.unread);
        match step {
            Step::Wait => break,
            Step::Nothing => {}
            Step::Answer(frame) => client.unsent.extend(frame),
            Step::Message(message) => {
                if state.fault == Fault::WsOneMessageARead {
                    client.unread.clear();
                }
                let outgoing = swarm::handle_message(state, (number, client.ip), &message);
                for (to, text) in outgoing.messages {
                    if let Some(client) = clients.get_mut(&to) {
                        client.send_text(state.fault, &text);
                    }
                }
                if outgoing.ends {
                    clients.get_mut(&number).unwrap().end(frame::close(Some(1008)));
                }
            }
            Step::Close { reply, code } => {
                client.end(reply);
                if code.is_some() && state.fault == Fault::WsCloseKeepsPeers {
                    state.web.forget_socket(number);
                }
                state.web.leave(state.fault, number);
                client.is_held = code.is_some() && state.fault == Fault::WsCloseStays;
                break;
            }
        }
    }
    let Some(client) = clients.get_mut(&number) else { return };
    let is_cut = client.has_ended && client.unread.len() > 50 && client.unread[0] == 0x81;
    state.is_dead |= is_cut && state.fault == Fault::WsEndsOnVanishing;
    let is_partial = client.is_upgraded && has_read && !client.unread.is_empty();
    client.has_ended |= is_partial && state.fault == Fault::WsOneFrameARead;
}

fn leave(state: &mut State, number: u64, client: &Client) {
    if state.fault == Fault::WsEndKeepsPeers && !client.is_ending {
        state.web.forget_socket(number);
    }
    state.web.leave(state.fault, number);
}

impl Client {
    fn new(socket: TcpStream, tls: Option<Box<ServerConnection>>, ip: IpAddr) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        // A small buffer reveals a slow reader soon.
        set_socket_send_buffer_size(&socket, 1 << 16).unwrap();
        Self {
            socket,
            tls,
            ip,
            unread: Vec::new(),
            unsent: Vec::new(),
            incoming: Incoming::default(),
            is_upgraded: false,
            is_ending: false,
            is_held: false,
            has_ended: false,
        }
    }

    fn read(&mut self) -> bool {
        let before = self.unread.len();
        let mut buffer = vec![0; 65_536];
        loop {
            let read = match &mut self.tls {
                None => self.socket.read(&mut buffer),
                Some(tls) => read_tls(tls, &mut self.socket, &mut buffer),
            };
            match read {
                Ok(0) => self.has_ended = true,
                Ok(bytes) => {
                    self.unread.extend(&buffer[..bytes]);
                    // A fault that accepts endless input must not keep all of it.
                    if self.unread.len() < 1 << 20 {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.has_ended = true,
            }
            return self.unread.len() > before;
        }
    }

    /// Discards input, so that closing does not reset the connection.
    fn discard(&mut self) {
        self.read();
        self.unread.clear();
    }

    fn write(&mut self, fault: Fault) {
        let written = match &mut self.tls {
            None => write(&mut self.socket, &mut self.unsent),
            Some(tls) => write_tls(tls, &mut self.socket, &mut self.unsent),
        };
        let keeps = matches!(fault, Fault::WsKeepsSlowReader | Fault::WsSlowReaderBlocks);
        let is_slow = self.unsent.len() > UNSENT_BYTES_MAX && !keeps;
        self.has_ended |=
            written.is_err() || is_slow || (self.is_ending && self.unsent.is_empty() && !self.is_held);
    }

    fn send_text(&mut self, fault: Fault, text: &[u8]) {
        let first = if fault == Fault::WsBinaryReplies { 0x82 } else { 0x81 };
        self.unsent.extend(frame::frame(first, text));
    }

    fn end(&mut self, bytes: Vec<u8>) {
        self.unsent.extend(bytes);
        self.unread.clear();
        self.is_ending = true;
    }

    fn answer_request(&mut self, state: &mut State, has_read: bool) {
        let fault = state.fault;
        match parse(fault, &self.unread) {
            Parsed::Partial => self.has_ended |= has_read && fault == Fault::WsOneRead,
            Parsed::Whole(request) => {
                self.unread.drain(..request.bytes);
                let (response, is_upgraded) = respond(state, self.ip, &request);
                self.unsent.extend(response);
                self.is_upgraded = is_upgraded;
                if is_upgraded && fault == Fault::WsDropsBehindHandshake {
                    self.unread.clear();
                }
                self.is_ending = !is_upgraded;
            }
            Parsed::Endless | Parsed::Malformed(_) => self.end(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        }
    }
}

fn read_tls(tls: &mut ServerConnection, socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match tls.read_tls(socket) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
        _ => tls.process_new_packets().map_err(io::Error::other)?,
    };
    tls.reader().read(buffer)
}

fn write_tls(tls: &mut ServerConnection, socket: &mut TcpStream, unsent: &mut Vec<u8>) -> io::Result<()> {
    tls.set_buffer_limit(Some(16 << 20));
    tls.writer().write_all(unsent)?;
    unsent.clear();
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            written => written.map(drop)?,
        }
    }
    Ok(())
}

fn write(socket: &mut TcpStream, unsent: &mut Vec<u8>) -> io::Result<()> {
    while !unsent.is_empty() {
        match socket.write(unsent) {
            Ok(bytes) => drop(unsent.drain(..bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the response to a request, and whether it is an upgrade.
fn respond(state: &mut State, ip: IpAddr, request: &Request) -> (Vec<u8>, bool) {
    let fault = state.fault;
    let token = |name: &str, token: &str| {
        let is_list = fault != Fault::WsConnectionIsAWord;
        let value = request.header(name).unwrap_or_default();
        match fault {
            Fault::WsCaseSensitiveHeaders => value == token,
            _ => value.split(',').any(|item| {
                let item = if is_list { item } else { value };
                item.trim().eq_ignore_ascii_case(token)
            }),
        }
    };
    let is_asked = token("upgrade", "websocket")
        && (token("connection", "Upgrade") || fault == Fault::WsNeedsNoConnection);
    if !is_asked {
        return (respond_http(state, ip, request), false);
    }
    let refused = |status: &str, headers: &str| {
        let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
        (format!("HTTP/1.1 {status}\r\n{headers}{end}").into_bytes(), false)
    };
    let version = request.header("sec-websocket-version");
    if version != Some("13") && (version.is_none() || fault != Fault::WsAnyVersion) {
        return match fault {
            Fault::WsVersionGets400 => refused("400 Bad Request", ""),
            _ => refused("426 Upgrade Required", "Sec-WebSocket-Version: 13\r\n"),
        };
    }
    let Some(key) = request.header("sec-websocket-key") else {
        return refused(if fault == Fault::WsNoKeyGets404 { "404 Not Found" } else { "400 Bad Request" }, "");
    };
    let is_key = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    if !is_key && fault != Fault::WsAnyKey {
        return refused("400 Bad Request", "");
    }
    let is_refused = fault == Fault::WsOnePath && request.path != "/announce"
        || fault == Fault::WsRefusesOrigin && request.header("origin").is_some();
    if is_refused {
        return refused("403 Forbidden", "");
    }
    let salt = if fault == Fault::WsWrongAccept { "" } else { "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" };
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{salt}")));
    let more = match fault {
        Fault::WsNamesProtocol => "Sec-WebSocket-Protocol: x\r\n",
        Fault::WsAcceptsCompression if request.header("sec-websocket-extensions").is_some() => {
            "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        }
        _ => "",
    };
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    (format!("{head}Sec-WebSocket-Accept: {accept}\r\n{more}\r\n").into_bytes(), true)
}

fn respond_http(state: &mut State, ip: IpAddr, request: &Request) -> Vec<u8> {
    if state.fault == Fault::WsNoHttp {
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
    }
    let reply = handler::respond(state, ip, request);
    let head = format!(
        "HTTP/1.1 {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n",
        reply.status,
        reply.headers,
        reply.body.len()
    );
    [head.into_bytes(), reply.body].concat()
}
