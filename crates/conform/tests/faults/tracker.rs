//! A tracker in this process that keeps every rule except those that a [`Fault`] breaks. It is as simple as possible and
//! shares no code with the tracker of this repository or with the suite that checks it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::http;
use crate::operator::{self, Requests};
use crate::reply::{announce_reply, scrape_reply};
use crate::webtorrent;

const PROTOCOL_ID: u64 = 0x0417_2710_1980;
const SCRAPE_MAX: usize = 74;

/// A running tracker on loopback, over both families.
pub(crate) struct Tracker {
    pub(crate) v4: SocketAddr,
    pub(crate) v6: SocketAddr,
    /// The addresses for HTTP or HTTPS, by family.
    pub(crate) tcp: [SocketAddr; 2],
    /// The addresses for WebTorrent, plain or over TLS as for HTTP, by family.
    pub(crate) web: [SocketAddr; 2],
    /// The state, with every info hash that was announced or scraped.
    pub(crate) state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct State {
    pub(crate) fault: Fault,
    pub(crate) info_hashes: HashSet<[u8; 20]>,
    lifetime: Duration,
    ids: HashMap<u64, Id>,
    swarms: HashMap<(bool, [u8; 20]), Swarm>,
    pub(crate) web: webtorrent::Swarms,
    /// The number of requests of each source, for the limit.
    pub(crate) requests: Requests,
    pub(crate) rng: fastrand::Rng,
    pub(crate) is_dead: bool,
}

struct Id {
    owner: SocketAddr,
    issued: Instant,
    uses: u32,
}

/// The identity of a peer: address, port, and a part that some faults add.
pub(crate) type Name = (IpAddr, u16, u64);

#[derive(Clone, Default)]
pub(crate) struct Swarm {
    pub(crate) peers: BTreeMap<Name, Peer>,
    pub(crate) completed: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) is_seeder: bool,
    pub(crate) address: SocketAddr,
    has_completed: bool,
}

pub(crate) struct Announced {
    pub(crate) name: Name,
    pub(crate) is_seeder: bool,
    pub(crate) is_stopped: bool,
    pub(crate) numwant: i32,
    pub(crate) is_v4: bool,
}

/// The fields of an announce of any protocol.
pub(crate) struct Announce {
    pub(crate) hash: [u8; 20],
    pub(crate) peer_id: u64,
    pub(crate) left: i64,
    pub(crate) event: u32,
    pub(crate) claimed: Option<IpAddr>,
    pub(crate) numwant: i32,
    pub(crate) port: u16,
}

impl Tracker {
    pub(crate) fn start(fault: Fault, lifetime: Duration) -> Self {
        Self::start_over(fault, lifetime, None)
    }

    /// Starts a tracker with HTTPS and WSS if `tls` is given.
    pub(crate) fn start_over(fault: Fault, lifetime: Duration, tls: Option<&http::Tls>) -> Self {
        let [v4, v6] = ["127.0.0.1:0", "[::1]:0"].map(|address| UdpSocket::bind(address).unwrap());
        let state = State {
            fault,
            lifetime,
            info_hashes: HashSet::new(),
            ids: HashMap::new(),
            swarms: HashMap::new(),
            web: webtorrent::Swarms::default(),
            requests: Requests::default(),
            rng: fastrand::Rng::new(),
            is_dead: false,
        };
        let (state, stop) = (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)));
        let addresses = [&v4, &v6].map(|socket| socket.local_addr().unwrap());
        let serve = |socket: UdpSocket| {
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            thread::spawn(move || serve(&socket, &state, &stop))
        };
        let mut threads = vec![serve(v4), serve(v6)];
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).unwrap());
        let tcp = [&listeners[0], &listeners[1]].map(|listener| listener.local_addr().unwrap());
        threads.extend(listeners.map(|listener| {
            let (state, stop, tls) = (Arc::clone(&state), Arc::clone(&stop), tls.cloned());
            thread::spawn(move || http::accept(&listener, &state, &stop, tls.as_ref()))
        }));
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).unwrap());
        let web = [&listeners[0], &listeners[1]].map(|listener| listener.local_addr().unwrap());
        let (web_state, web_stop, web_tls) = (Arc::clone(&state), Arc::clone(&stop), tls.cloned());
        threads.push(thread::spawn(move || webtorrent::serve(&listeners, &web_state, &web_stop, web_tls)));
        Self { v4: addresses[0], v6: addresses[1], tcp, web, state, stop, threads }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for address in self.tcp {
            // Wakes the thread that waits for a connection.
            drop(TcpStream::connect(address));
        }
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the tracker of the test panicked");
        }
    }
}

fn serve(socket: &UdpSocket, state: &Mutex<State>, stop: &AtomicBool) {
    let elsewhere = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let Ok((bytes, source)) = socket.recv_from(&mut buffer) else { continue };
        let mut state = state.lock().unwrap();
        let Some(reply) = state.answer(source, &buffer[..bytes]) else { continue };
        let from_elsewhere = state.fault == Fault::AnswersFromElsewhere && source.is_ipv4();
        let sender = if from_elsewhere { &elsewhere } else { socket };
        sender.send_to(&reply, source).unwrap();
        if state.fault == Fault::DropsBursts {
            discard(socket);
        }
    }
}

fn discard(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    while socket.recv_from(&mut [0; 2048]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test tracker uses real time")]
fn now() -> Instant {
    Instant::now()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl State {
    fn answer(&mut self, source: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let fault = self.fault;
        let is_killed = fault == Fault::EndsOnLongDatagrams && packet.len() == 1400
            || fault == Fault::EndsOnHighActions && packet.len() == 98 && packet[8] != 0;
        self.is_dead |= is_killed;
        if self.is_dead || packet.len() < 16 || (fault == Fault::SmallBuffer && packet.len() > 480) {
            return None;
        }
        let action = match u32_at(packet, 8) {
            4 if fault == Fault::Action4IsAnnounce => 1,
            other if other > 4 && fault == Fault::UnknownActionIsAnnounce => 1,
            other => other,
        };
        if action == 0 {
            return self.connect(source, packet);
        }
        if !self.accepts(u64_at(packet, 0), source) && !self.skips_id_check(action) {
            let has_error = fault == Fault::LongErrorToWrongId && packet.len() < 150;
            return has_error.then(|| self.error(packet, &"wrong ".repeat(30)));
        }
        match action {
            1 => self.announce(source, packet),
            2 => self.scrape(source, packet),
            _ => Some(self.error(packet, "unknown action")),
        }
    }

    pub(crate) fn peers(&self) -> usize {
        self.swarms.values().map(|swarm| swarm.peers.len()).sum::<usize>() + self.web.peers()
    }

    fn skips_id_check(&self, action: u32) -> bool {
        matches!((self.fault, action), (Fault::AnnounceNeedsNoId, 1) | (Fault::ScrapeNeedsNoId, 2))
    }

    fn error(&self, packet: &[u8], message: &str) -> Vec<u8> {
        let action: u32 = if self.fault == Fault::ErrorHasAnotherAction { 9 } else { 3 };
        let transaction_id = if self.fault == Fault::ErrorForgetsTransactionId {
            !u32_at(packet, 12)
        } else {
            u32_at(packet, 12)
        };
        [&action.to_be_bytes()[..], &transaction_id.to_be_bytes(), message.as_bytes()].concat()
    }

    fn connect(&mut self, source: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let fault = self.fault;
        let is_refused = u64_at(packet, 0) != PROTOCOL_ID && fault != Fault::AnyProtocolId;
        if is_refused || (packet.len() > 16 && fault == Fault::ExactConnect) {
            return None;
        }
        let id = match fault {
            Fault::GuessableId => (1 << 20) + 2 * self.ids.len() as u64,
            _ => self.rng.u64(1 << 33..u64::MAX),
        };
        self.ids.insert(id, Id { owner: source, issued: now(), uses: 0 });
        let action: u32 = if fault == Fault::ConnectHasAnotherAction { 9 } else { 0 };
        let transaction_id = if fault == Fault::ConnectForgetsTransactionId { 5 } else { u32_at(packet, 12) };
        let mut reply = [action.to_be_bytes(), transaction_id.to_be_bytes()].concat();
        reply.extend(id.to_be_bytes());
        match fault {
            Fault::LongConnect => reply.extend([0; 8]),
            Fault::ShortConnect => reply.truncate(12),
            _ => {}
        }
        Some(reply)
    }

    fn accepts(&mut self, id: u64, source: SocketAddr) -> bool {
        let Some(known) = self.ids.get_mut(&id) else { return false };
        known.uses += 1;
        let is_owner = known.owner.ip() == source.ip() || self.fault == Fault::IdOfAnyAddress;
        let is_port = known.owner.port() == source.port() || self.fault != Fault::IdOfOnePort;
        let is_fresh = known.uses == 1 || self.fault != Fault::IdWorksOnce;
        is_owner && is_port && is_fresh && now() - known.issued < self.lifetime
    }

    fn announce(&mut self, source: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let fault = self.fault;
        let mut packet = packet.to_vec();
        if packet.len() < 98 {
            if fault != Fault::PadsAnnounces {
                return None;
            }
            packet.resize(98, 0);
        }
        if is_refused_option(fault, &packet[98..]) {
            return None;
        }
        let claimed = [packet[84], packet[85], packet[86], packet[87]];
        let announce = Announce {
            hash: packet[16..36].try_into().unwrap(),
            peer_id: u64_at(&packet, 48),
            left: u64_at(&packet, 64).cast_signed(),
            event: u32_at(&packet, 80),
            claimed: (claimed != [0; 4]).then(|| claimed.into()),
            numwant: u32_at(&packet, 92).cast_signed(),
            port: u16::from_be_bytes([packet[96], packet[97]]),
        };
        // A client may leave at any time.
        let is_leaving = announce.event == 3;
        let refusal = self.requests.refusal(fault, source.ip(), announce.hash, &packet[36..56]);
        match refusal {
            Some(reason) if !is_leaving => return Some(self.error(&packet, reason)),
            Some(_) => {}
            None => _ = self.info_hashes.insert(announce.hash),
        }
        if self.refuses(&announce) {
            return Some(self.error(&packet, "unwanted"));
        }
        if announce.event == 3 && fault == Fault::StoppedIsSilent {
            return None;
        }
        let (swarm, announced) = self.apply(source.ip(), &announce);
        Some(announce_reply(self, &swarm, &announced, u32_at(&packet, 12)))
    }

    pub(crate) fn refuses(&self, announce: &Announce) -> bool {
        let fault = self.fault;
        (announce.port == 0 && announce.event != 3 && fault == Fault::RefusesPort0)
            || (announce.event > 3 && fault == Fault::UnknownEventIsError)
            || (announce.numwant > 500 && fault == Fault::HugeNumwantIsError)
    }

    pub(crate) fn apply(&mut self, source: IpAddr, announce: &Announce) -> (Swarm, Announced) {
        let fault = self.fault;
        let ip = match fault {
            Fault::BelievesIp => announce.claimed.unwrap_or(source),
            _ => source,
        };
        let announced = Announced {
            name: self.name(ip, announce.port, announce.peer_id),
            is_seeder: is_seeder(fault, announce.left, announce.event),
            is_stopped: announce.event == 3,
            numwant: announce.numwant,
            is_v4: source.is_ipv4(),
        };
        let key = self.key(source.is_ipv4(), announce.hash);
        let swarm = self.swarms.entry(key).or_default();
        // No peer can connect to port 0, but this one can connect to others.
        let is_reachable = announce.port != 0 || fault == Fault::TakesPort0;
        if (is_reachable && operator::hands_out(fault, announce.port)) || announced.is_stopped {
            join(fault, swarm, &announced, SocketAddr::new(ip, announce.port), announce.event);
        }
        (swarm.clone(), announced)
    }

    pub(crate) fn swarm(&self, is_v4: bool, hash: [u8; 20]) -> Option<&Swarm> {
        self.swarms.get(&self.key(is_v4, hash))
    }

    fn name(&mut self, ip: IpAddr, port: u16, peer_id: u64) -> Name {
        match self.fault {
            Fault::PeerIdIsIdentity => (ip, port, peer_id),
            Fault::EveryAnnounceIsAPeer => (ip, port, self.rng.u64(..)),
            Fault::PortIsIdentity => (IpAddr::from([0; 4]), port, 0),
            Fault::HostIsIdentity => (ip, 0, 0),
            _ => (ip, port, 0),
        }
    }

    fn key(&self, is_v4: bool, hash: [u8; 20]) -> (bool, [u8; 20]) {
        match self.fault {
            Fault::OneSwarm => (is_v4, [0; 20]),
            Fault::OneFamily => (true, hash),
            _ => (is_v4, hash),
        }
    }

    fn scrape(&mut self, source: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let fault = self.fault;
        let mut body = packet[16..].to_vec();
        match fault {
            Fault::ScrapeReadsBeyond => body.resize(body.len().next_multiple_of(20), 0),
            Fault::ScrapeOfNothingIsOne if body.len() < 20 => body.resize(20, 0),
            _ => {}
        }
        let hashes: Vec<[u8; 20]> = body.as_chunks::<20>().0.to_vec();
        let is_too_large = hashes.len() > 23 && fault == Fault::LargeScrapeIsSilent;
        if hashes.is_empty() || is_too_large {
            return None;
        }
        if packet.len() % 20 == 16 {
            self.info_hashes.extend(&hashes);
        }
        let hashes_max = if fault == Fault::ScrapeStopsAt70 { 70 } else { SCRAPE_MAX };
        let swarm_of = |hash: &[u8; 20]| self.swarm(source.is_ipv4(), *hash).cloned();
        let swarms: Vec<Option<Swarm>> = hashes.iter().take(hashes_max).map(swarm_of).collect();
        Some(scrape_reply(fault, &hashes, &swarms, u32_at(packet, 12)))
    }
}

fn is_seeder(fault: Fault, left: i64, event: u32) -> bool {
    match fault {
        Fault::CompletedIsLeecher if event == 1 => false,
        Fault::CompletedGoesByLeft => left == 0,
        Fault::NegativeLeftIsSeeder if left < 0 => true,
        _ => left == 0 || event == 1,
    }
}

/// Returns whether the fault makes the tracker drop an announce with these trailing bytes.
fn is_refused_option(fault: Fault, tail: &[u8]) -> bool {
    match fault {
        Fault::ExactAnnounce => !tail.is_empty(),
        Fault::NoUrlData => tail.first() == Some(&2),
        Fault::NoPadding => tail.first() == Some(&1),
        Fault::OneOption => tail.len() > 256 && tail[0] == 2 && tail[1] == 255,
        Fault::BrokenOptionIsError => is_broken(tail),
        _ => false,
    }
}

fn is_broken(mut tail: &[u8]) -> bool {
    loop {
        match *tail {
            [] | [0, ..] => return false,
            [1, ref rest @ ..] => tail = rest,
            [_, length, ref rest @ ..] if rest.len() >= length.into() => tail = &rest[length.into()..],
            _ => return true,
        }
    }
}

fn join(fault: Fault, swarm: &mut Swarm, announced: &Announced, address: SocketAddr, event: u32) {
    let name = announced.name;
    if announced.is_stopped {
        match fault {
            Fault::StoppedStays => {}
            Fault::StoppedJoins if !swarm.peers.contains_key(&name) => {
                let peer = Peer { is_seeder: announced.is_seeder, address, has_completed: false };
                swarm.peers.insert(name, peer);
            }
            _ => _ = swarm.peers.remove(&name),
        }
        return;
    }
    let known = swarm.peers.get(&name).copied();
    let mut peer = known.unwrap_or(Peer { is_seeder: announced.is_seeder, address, has_completed: false });
    let may_change = match fault {
        Fault::RoleStays => false,
        Fault::SeederStays => !peer.is_seeder,
        Fault::LeecherStays => peer.is_seeder || event == 1,
        _ => true,
    };
    if may_change {
        peer.is_seeder = announced.is_seeder;
    }
    let is_download = match fault {
        Fault::NoDownloads => false,
        Fault::EveryCompletedIsADownload => event == 1,
        Fault::EverySeederIsADownload => announced.is_seeder && !peer.has_completed,
        _ => event == 1 && !peer.has_completed,
    };
    swarm.completed += u32::from(is_download);
    // One that joins as a seeder has downloaded nothing.
    peer.has_completed |= is_download || known.is_none() && peer.is_seeder;
    swarm.peers.insert(name, peer);
}
