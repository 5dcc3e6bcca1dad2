//! WebTorrent clients that stay connected: how many of their connections end, with which code, and when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use shoal_testkit::client::websocket::{Frame, WebSocket};
use shoal_testkit::client::{is_timeout, tcp};

use crate::chaos::load::Load;
use crate::chaos::result::WebSocketEnd;

/// Timeout of an upgrade.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two looks at all connections.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks at a connection that has ended until it is opened again.
const LOOKS_UNTIL_OPENED: usize = 100;

/// The clients, on a thread of their own.
#[derive(Debug)]
pub(crate) struct WebSockets {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<WebSocketEnd>>>,
}

/// A client.
enum Client {
    Open(Box<WebSocket>),
    /// It opens another connection after this number of looks.
    Ended(usize),
}

impl WebSockets {
    /// Opens `count` connections, each of which announces a peer.
    ///
    /// # Errors
    /// Returns an error if one cannot be opened.
    pub(crate) fn open(target: SocketAddr, count: usize, load: &Load) -> Result<Self> {
        let open = |number| {
            let client = open(target, number).map(Client::Open);
            client.with_context(|| format!("WebSocket {number} cannot be opened"))
        };
        let mut clients: Vec<Client> = (0..count).map(open).collect::<Result<_>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (flag, now_ns) = (Arc::clone(&is_over), load.clock());
        let watch = move || {
            let mut ends = Vec::new();
            while !flag.load(Ordering::Relaxed) {
                for (number, client) in clients.iter_mut().enumerate() {
                    if let Some(code) = look(client, target, number) {
                        ends.push(WebSocketEnd { at_ns: now_ns(), code });
                    }
                }
                thread::sleep(PAUSE);
            }
            ends
        };
        let thread = thread::Builder::new().name("chaos-ws".into()).spawn(watch);
        Ok(Self { is_over, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Ends the clients, and returns the ends of connections that the tracker has caused.
    pub(crate) fn end(mut self) -> Vec<WebSocketEnd> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(|thread| thread.join().expect("a client does not panic")).unwrap_or_default()
    }
}

impl Drop for WebSockets {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Reads what has come, or opens a connection that has ended again. Returns the code if the connection has just ended;
/// an end without a close frame has none.
fn look(client: &mut Client, target: SocketAddr, number: usize) -> Option<Option<u16>> {
    match client {
        Client::Open(socket) => {
            let code = loop {
                match socket.read() {
                    Ok(Frame::Close(code, _)) => break code,
                    Ok(_) => {}
                    Err(error) if error.downcast_ref().is_some_and(is_timeout) => return None,
                    Err(_) => break None,
                }
            };
            *client = Client::Ended(LOOKS_UNTIL_OPENED);
            Some(code)
        }
        Client::Ended(looks) => {
            *looks = looks.saturating_sub(1);
            if *looks == 0 {
                *client = match open(target, number) {
                    Ok(socket) => Client::Open(socket),
                    Err(_) => Client::Ended(LOOKS_UNTIL_OPENED),
                };
            }
            None
        }
    }
}

fn open(target: SocketAddr, number: usize) -> Result<Box<WebSocket>> {
    let stream = tcp(None, target, UPGRADE_TIMEOUT)?;
    let tcp = stream.try_clone()?;
    let mut socket = WebSocket::over(stream)?;
    socket.send(&json!({
        "action": "announce", "info_hash": format!("chaos-{:014}", number / 10),
        "peer_id": format!("-SL0100-{number:012}"), "numwant": 0, "left": 1, "uploaded": 0, "downloaded": 0,
        "event": "started", "offers": [],
    }))?;
    tcp.set_nonblocking(true)?;
    Ok(Box::new(socket))
}
