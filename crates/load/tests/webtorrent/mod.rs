//! A WebTorrent tracker for tests, with a thread for each connection. It can break a rule on demand.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_base::{Event as PeerEvent, InfoHash, PeerId};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{Event, Reader, Role, handshake};
use shoal_wire::webtorrent::{Announce, Answer, Limits, Request, Storage, decode, reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Pass,
    Drop,
    /// One byte of it is another.
    Damage,
    Return,
    OtherTorrent,
    OtherId,
}

/// Decides by how many there were before.
pub(crate) type Decision<T> = Box<dyn Fn(u64) -> T + Send + Sync>;

pub(crate) struct Behavior {
    pub(crate) relay: Decision<Treatment>,
    pub(crate) answer: Decision<Treatment>,
    /// Whether a connection ends instead of a reply.
    pub(crate) ends: Decision<bool>,
    pub(crate) pongs: Decision<bool>,
    pub(crate) reply: Option<&'static str>,
    /// Whether an answer is replied to as if it were an announce.
    pub(crate) replies_to_answers: bool,
    pub(crate) upgrade: Option<&'static str>,
    /// The tracker sends nothing more after this number of requests.
    pub(crate) silent_after: u64,
    pub(crate) announces: Option<Sender<(u64, [u8; 20])>>,
}

impl Behavior {
    pub(crate) fn good() -> Self {
        Self {
            relay: Box::new(|_| Treatment::Pass),
            answer: Box::new(|_| Treatment::Pass),
            ends: Box::new(|_| false),
            pongs: Box::new(|_| true),
            reply: None,
            replies_to_answers: false,
            upgrade: None,
            silent_after: u64::MAX,
            announces: None,
        }
    }
}

pub(crate) struct Tracker {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

struct State {
    behavior: Behavior,
    stop: AtomicBool,
    swarms: Mutex<HashMap<InfoHash, Vec<Peer>>>,
    streams: Mutex<HashMap<u64, Arc<Mutex<TcpStream>>>>,
    opened: Mutex<Vec<Instant>>,
    heads: Mutex<Vec<String>>,
    requests: AtomicU64,
    relayed: AtomicU64,
    answered: AtomicU64,
    pinged: AtomicU64,
}

#[derive(Clone, Copy)]
struct Peer {
    id: PeerId,
    connection: u64,
    is_seeder: bool,
}

const LIMITS: Limits = Limits { offers_max: 20, offer_bytes_max: 64 * 1024, info_hashes_max: 100 };

impl Tracker {
    pub(crate) fn start(bind: &str, behavior: Behavior) -> Self {
        let listener = TcpListener::bind(bind).unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            behavior,
            stop: AtomicBool::new(false),
            swarms: Mutex::default(),
            streams: Mutex::default(),
            opened: Mutex::default(),
            heads: Mutex::default(),
            requests: AtomicU64::new(0),
            relayed: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            pinged: AtomicU64::new(0),
        });
        let own = Arc::clone(&state);
        let acceptor = thread::spawn(move || {
            thread::scope(|scope| {
                for number in 0.. {
                    let Ok((stream, _)) = listener.accept() else { break };
                    if own.stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let state = &own;
                    scope.spawn(move || {
                        // In some tests, the client closes in the middle.
                        let _ = state.serve(number, &stream);
                        state.leave(number);
                        let _ = stream.shutdown(Shutdown::Both);
                    });
                }
            });
        });
        Self { addr, state, acceptor: Some(acceptor) }
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for what another thread does")]
    pub(crate) fn opened(&self) -> Vec<Instant> {
        let began = Instant::now();
        loop {
            let opened = self.state.opened.lock().unwrap().clone();
            if !opened.is_empty() || began.elapsed() > Duration::from_secs(60) {
                return opened;
            }
            thread::yield_now();
        }
    }

    pub(crate) fn first_head(&self) -> String {
        self.state.heads.lock().unwrap()[0].clone()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.addr);
        self.acceptor.take().unwrap().join().unwrap();
    }
}

impl State {
    fn serve(&self, number: u64, mut stream: &TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_millis(20)))?;
        // A client that reads nothing for this long is disconnected.
        stream.set_write_timeout(Some(Duration::from_millis(100)))?;
        stream.set_nodelay(true)?;
        // The kernel does not buffer much for it either.
        rustix::net::sockopt::set_socket_send_buffer_size(stream, 16 * 1024)?;
        let writer = Arc::new(Mutex::new(stream.try_clone()?));
        self.streams.lock().unwrap().insert(number, writer);
        let (mut input, mut piece, mut reader) = (Vec::new(), vec![0; 64 * 1024], Reader::new());
        let (mut is_upgraded, mut storage) = (false, Storage::default());
        while !self.stop.load(Ordering::Relaxed) {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(bytes) => input.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if !is_upgraded {
                let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
                let head = String::from_utf8(input.drain(..end + 4).collect()).unwrap();
                self.upgrade(number, &head);
                is_upgraded = true;
            }
            let mut used = 0;
            loop {
                let read = reader.read(&mut input[used..], Role::Server, 1 << 20).unwrap();
                if read.used == 0 {
                    break;
                }
                used += read.used;
                match read.event {
                    Some(Event::Message(message)) => {
                        if !self.handle(number, message, &mut storage) {
                            return Ok(());
                        }
                    }
                    Some(Event::Ping(payload)) => {
                        if (self.behavior.pongs)(self.pinged.fetch_add(1, Ordering::Relaxed)) {
                            let mut pong = Vec::new();
                            frame::encode(Opcode::Pong, payload, None, &mut pong);
                            self.send(number, &pong);
                        }
                    }
                    Some(Event::Close(_)) => return Ok(()),
                    Some(Event::Pong(_)) | None => {}
                }
            }
            input.drain(..used);
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a test reads the clock")]
    fn upgrade(&self, number: u64, head: &str) {
        let mut response = Vec::new();
        if let Some(upgrade) = self.behavior.upgrade {
            response.extend_from_slice(upgrade.as_bytes());
        } else {
            let key = head.split("Sec-WebSocket-Key: ").nth(1).unwrap().split("\r\n").next().unwrap();
            handshake::respond(&handshake::accept(key.as_bytes()).unwrap(), &mut response);
        }
        self.opened.lock().unwrap().push(Instant::now());
        self.heads.lock().unwrap().push(head.to_owned());
        self.send(number, &response);
    }

    /// Returns whether the connection goes on.
    fn handle(&self, number: u64, message: &[u8], storage: &mut Storage) -> bool {
        match decode(message, &LIMITS, storage).unwrap() {
            Request::Answer(answer) => self.pass_answer(number, &answer),
            Request::Announce(announce) => {
                let before = self.requests.fetch_add(1, Ordering::Relaxed);
                if (self.behavior.ends)(before) {
                    return false;
                }
                if before < self.behavior.silent_after {
                    self.announce(number, &announce);
                }
            }
            Request::Scrape(hashes) => {
                let mut counts: Vec<_> = hashes.iter().map(|hash| (*hash, self.counts(hash))).collect();
                counts.sort_unstable_by_key(|(hash, _)| hash.0);
                counts.dedup();
                self.send_text(number, |out| {
                    reply::scrape_begin(out);
                    for (hash, (complete, incomplete)) in &counts {
                        reply::scrape_file(hash, *complete, *incomplete, 0, out);
                    }
                    reply::scrape_end(out);
                });
            }
        }
        true
    }

    fn announce(&self, number: u64, announce: &Announce<'_>) {
        let Announce { info_hash, peer_id, event, left_bytes, offers, .. } = announce;
        if let Some(announces) = &self.behavior.announces {
            announces.send((number, peer_id.0)).unwrap();
        }
        let is_seeder = *left_bytes == Some(0) || *event == PeerEvent::Completed;
        let mut others: Vec<Peer> = Vec::new();
        {
            let mut swarms = self.swarms.lock().unwrap();
            let swarm = swarms.entry(*info_hash).or_default();
            swarm.retain(|peer| peer.connection != number);
            others.extend(swarm.iter().filter(|peer| !(is_seeder && peer.is_seeder)));
            if *event != PeerEvent::Stopped {
                swarm.push(Peer { id: *peer_id, connection: number, is_seeder });
            }
        }
        let (complete, incomplete) = self.counts(info_hash);
        match self.behavior.reply {
            Some(text) => self.send_text(number, |out| out.extend_from_slice(text.as_bytes())),
            None => self.send_text(number, |out| reply::announce(info_hash, 120, complete, incomplete, out)),
        }
        let begin = usize::try_from(self.relayed.load(Ordering::Relaxed)).unwrap();
        for (index, offer) in offers.iter().take(others.len()).enumerate() {
            let deed = (self.behavior.relay)(self.relayed.fetch_add(1, Ordering::Relaxed));
            let to = others[(begin + index) % others.len()].connection;
            let to = if deed == Treatment::Return { number } else { to };
            let torrent =
                if deed == Treatment::OtherTorrent { InfoHash(*b"another torrent here") } else { *info_hash };
            let mut json = Vec::new();
            reply::offer(&torrent, peer_id, &offer, &mut json);
            if deed == Treatment::OtherId {
                let id = offer.offer_id.raw();
                let place = json.windows(id.len()).rposition(|bytes| bytes == id).unwrap();
                json[place + 1] = if json[place + 1] == b'A' { b'B' } else { b'A' };
            }
            self.pass(to, deed, json);
        }
    }

    fn pass_answer(&self, number: u64, answer: &Answer<'_>) {
        if self.behavior.replies_to_answers {
            let (complete, incomplete) = self.counts(&answer.info_hash);
            self.send_text(number, |out| reply::announce(&answer.info_hash, 120, complete, incomplete, out));
        }
        let deed = (self.behavior.answer)(self.answered.fetch_add(1, Ordering::Relaxed));
        let to = {
            let swarms = self.swarms.lock().unwrap();
            let peer = swarms[&answer.info_hash].iter().find(|peer| peer.id == answer.to_peer_id);
            peer.map(|peer| peer.connection)
        };
        let to = if deed == Treatment::Return { Some(number) } else { to };
        if let Some(to) = to {
            let mut json = Vec::new();
            reply::answer(&answer.info_hash, &answer.peer_id, answer, &mut json);
            self.pass(to, deed, json);
        }
    }

    fn pass(&self, to: u64, deed: Treatment, mut json: Vec<u8>) {
        if deed == Treatment::Damage {
            let place = json.windows(9).position(|bytes| bytes == b"a=x-middl").unwrap();
            json[place + 2] = b'y';
        }
        if deed != Treatment::Drop {
            self.send_text(to, |out| out.extend_from_slice(&json));
        }
    }

    fn counts(&self, info_hash: &InfoHash) -> (u32, u32) {
        let swarms = self.swarms.lock().unwrap();
        let swarm = swarms.get(info_hash).map_or(&[][..], Vec::as_slice);
        let complete = swarm.iter().filter(|peer| peer.is_seeder).count();
        (u32::try_from(complete).unwrap(), u32::try_from(swarm.len() - complete).unwrap())
    }

    fn send_text(&self, to: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let mut framed = Vec::new();
        frame::write_text(&mut framed, write);
        self.send(to, &framed);
    }

    /// Sends a message. A client that does not read it is disconnected.
    fn send(&self, to: u64, bytes: &[u8]) {
        let stream = self.streams.lock().unwrap().get(&to).map(Arc::clone);
        if let Some(stream) = stream
            && let Ok(mut stream) = stream.lock()
            && stream.write_all(bytes).is_err()
        {
            self.leave(to);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn leave(&self, number: u64) {
        self.streams.lock().unwrap().remove(&number);
        for swarm in self.swarms.lock().unwrap().values_mut() {
            swarm.retain(|peer| peer.connection != number);
        }
    }
}
