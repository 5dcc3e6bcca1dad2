//! A firm that watches who shares what, and asks a tracker for that.
//!
//! Its threads yield to all others: the flood takes the processor time that the tracker and the honest clients leave.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::nice;
use shoal_testkit::client::tcp;

use crate::measure::{self, as_f64, count};
use crate::siege::address::public_hostile_v4;
use crate::siege::attacks::xdp::until_answered;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::percent;
use crate::siege::udp::{Announce, UdpClient, connect_packet, leecher, random_hash, scrape_packet};
use crate::siege::wire::{CLIENT_MAC, Datagram, Frames, HONEST};

const ADDRESSES: u32 = 2000;

/// The rate of all addresses together, before the flood has no pause.
const RATE_PER_S: f64 = 1000.0;

/// Threads of the flood over HTTP. Each has a part of the addresses.
const THREADS: u32 = 4;

/// Announces of an address, after which it scrapes their torrents.
const ANNOUNCES: usize = 15;

/// Different bursts of announces that a thread sends over HTTP.
const BURSTS: usize = 256;

const USER_AGENT: &str = "Monitor/1.0";

/// The port of the firm's programs.
const PORT: u16 = 6881;

/// Frames that are sent at a time. The queue of a virtual interface holds 256.
const FRAMES: usize = 64;

/// The ends of both parts of the flood.
#[derive(Clone, Copy)]
struct Schedule {
    began: Instant,
    paced_until: Instant,
    until: Instant,
}

/// Requests that were sent and answered.
#[derive(Clone, Copy, Default)]
struct Counts {
    sent: u64,
    sent_bytes: u64,
    answered: u64,
}

impl Schedule {
    fn new(context: &Context<'_>) -> Self {
        let [paced, unpaced] = context.pick([400, 900], [5000, 20_000]).map(Duration::from_millis);
        let began = measure::now();
        Self { began, paced_until: began + paced, until: began + paced + unpaced }
    }

    /// Waits until the next of `sent` requests is due at this rate. Returns whether the part with a pace has ended.
    fn wait(self, sent: u64, rate: f64) -> bool {
        let due = self.began + Duration::from_secs_f64(as_f64(sent) / rate);
        measure::sleep_until(due.min(self.paced_until));
        measure::now() >= self.paced_until
    }

    fn is_over(self) -> bool {
        measure::now() >= self.until
    }
}

impl Counts {
    fn add(&mut self, bytes: usize) {
        self.sent += 1;
        self.sent_bytes += count(bytes);
    }

    /// Notes the flood, and checks that it is one.
    fn report(self, context: &Context<'_>) {
        context.spend(self.sent, self.sent_bytes);
        let found = format!("{} of {}", self.answered, self.sent);
        context.check("the flood reaches the tracker", self.answered > 0, found);
    }
}

/// Makes the present thread yield to all others.
fn yield_to_others() -> Result<()> {
    nice(19).map(drop).context("cannot lower the priority of a thread")
}

pub(super) fn over_http(context: &Context<'_>) -> Result<()> {
    let schedule = Schedule::new(context);
    let counts = thread::scope(|scope| {
        let flood = |number| scope.spawn(move || flood_http(context, schedule, number));
        let threads: Vec<_> = (0..THREADS).map(flood).collect();
        threads.into_iter().map(|thread| thread.join().expect("a flood does not panic")).collect::<Vec<_>>()
    });
    let mut all = Counts::default();
    for counts in counts {
        let counts = counts?;
        all.sent += counts.sent;
        all.sent_bytes += counts.sent_bytes;
        all.answered += counts.answered;
    }
    all.report(context);
    Ok(())
}

fn flood_http(context: &Context<'_>, schedule: Schedule, thread: u32) -> Result<Counts> {
    yield_to_others()?;
    let sources: Vec<IpAddr> = (thread..ADDRESSES).step_by(THREADS as usize).map(public_hostile_v4).collect();
    let bursts: Vec<Vec<u8>> = (0..BURSTS).map(|_| burst()).collect();
    let mut counts = Counts::default();
    visit(context, schedule, &sources, &mut counts);
    let mut sockets: Vec<Option<TcpStream>> = sources.iter().map(|_| None).collect();
    let (mut bursts, mut buffer) = (bursts.iter().cycle(), vec![0; 256 << 10]);
    while !schedule.is_over() {
        for (socket, source) in sockets.iter_mut().zip(&sources) {
            let Some(burst) = bursts.next() else { break };
            if socket.is_none() {
                *socket = tcp(*source, context.http(*source), TIMEOUT).ok();
                socket.iter().for_each(|socket| _ = socket.set_nonblocking(true));
            }
            if !send_and_drain(socket, burst, &mut buffer, &mut counts) {
                // The tracker has closed the connection. The next round opens another one.
                *socket = None;
            }
            if schedule.is_over() {
                break;
            }
        }
    }
    Ok(counts)
}

/// Announces and scrapes with a connection for each of both, at the pace of the schedule.
fn visit(context: &Context<'_>, schedule: Schedule, sources: &[IpAddr], counts: &mut Counts) {
    for source in sources.iter().cycle() {
        if schedule.wait(counts.sent, RATE_PER_S / f64::from(THREADS)) {
            return;
        }
        let hash = random_hash();
        for request in [announce(&hash, "Connection: close\r\n"), scrape(&[hash], "Connection: close\r\n")] {
            counts.add(request.len());
            let Ok(mut stream) = tcp(*source, context.http(*source), TIMEOUT) else { continue };
            let mut response = Vec::new();
            let _ = stream.write_all(&request).and_then(|()| stream.read_to_end(&mut response));
            counts.answered += u64::from(response.starts_with(b"HTTP/1.1 200"));
        }
    }
}

/// Sends a burst if the socket takes it, and reads what has come. Returns whether the socket is still open.
fn send_and_drain(
    socket: &mut Option<TcpStream>,
    burst: &[u8],
    buffer: &mut [u8],
    counts: &mut Counts,
) -> bool {
    let Some(socket) = socket else { return false };
    match socket.write(burst) {
        Ok(length) if length == burst.len() => {
            counts.sent += count(ANNOUNCES) + 1;
            counts.sent_bytes += count(length);
        }
        // A part of a burst would make the next one no request.
        Ok(_) => return false,
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(_) => return false,
    }
    loop {
        match socket.read(buffer) {
            Ok(0) => return false,
            Ok(length) if length < buffer.len() => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Returns announces of random torrents, and the scrape of all of them.
fn burst() -> Vec<u8> {
    let hashes: [[u8; 20]; ANNOUNCES] = std::array::from_fn(|_| random_hash());
    let mut burst: Vec<u8> = hashes.iter().flat_map(|hash| announce(hash, "")).collect();
    burst.extend(scrape(&hashes, ""));
    burst
}

fn announce(hash: &[u8; 20], fields: &str) -> Vec<u8> {
    let (hash, peer_id) = (percent(hash), percent(&random_hash()));
    request(
        &format!(
            "/announce?info_hash={hash}&peer_id={peer_id}&port={PORT}&uploaded=0&downloaded=0&left=1&numwant=200&compact=1"
        ),
        fields,
    )
}

fn scrape(hashes: &[[u8; 20]], fields: &str) -> Vec<u8> {
    let hashes: Vec<String> = hashes.iter().map(|hash| format!("info_hash={}", percent(hash))).collect();
    request(&format!("/scrape?{}", hashes.join("&")), fields)
}

fn request(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\nUser-Agent: {USER_AGENT}\r\n{fields}\r\n")
        .into_bytes()
}

/// Returns the announce of a random torrent with a random peer id.
fn random_announce() -> Announce {
    Announce { peer_id: random_hash(), numwant: 200, ..leecher(random_hash(), PORT) }
}

/// Returns requests of an address over UDP: announces, and the scrape of their torrents.
fn datagrams(id: u64) -> Vec<Vec<u8>> {
    let announces: [Announce; ANNOUNCES] = std::array::from_fn(|_| random_announce());
    let hashes = announces.map(|announce| announce.info_hash);
    let scrape = scrape_packet(id, 2, &hashes);
    announces.iter().map(|announce| announce.packet(id, 1)).chain([scrape]).collect()
}

pub(super) fn over_udp(context: &Context<'_>) -> Result<()> {
    let open = |number| {
        let client = context.udp(public_hostile_v4(number))?;
        client.socket.set_nonblocking(true)?;
        Ok(client)
    };
    let clients: Vec<UdpClient> = (0..ADDRESSES).map(open).collect::<Result<_>>()?;
    let flood = || {
        yield_to_others()?;
        flood_udp(Schedule::new(context), &clients)
    };
    let counts = thread::scope(|scope| scope.spawn(flood).join().expect("a flood does not panic"))?;
    counts.report(context);
    Ok(())
}

fn flood_udp(schedule: Schedule, clients: &[UdpClient]) -> Result<Counts> {
    let (mut counts, mut is_paced) = (Counts::default(), true);
    for client in clients.iter().cycle() {
        for packet in datagrams(client.connection_id()) {
            is_paced = is_paced && !schedule.wait(counts.sent, RATE_PER_S);
            if client.socket.send(&packet).is_ok() {
                counts.add(packet.len());
            }
        }
        let mut buffer = [0; 4096];
        while client.socket.recv(&mut buffer).is_ok() {
            counts.answered += 1;
        }
        if schedule.is_over() {
            break;
        }
    }
    Ok(counts)
}

pub(super) fn over_xdp(context: &Context<'_>) -> Result<()> {
    let flood = || {
        yield_to_others()?;
        flood_xdp(context)
    };
    thread::scope(|scope| scope.spawn(flood).join().expect("a flood does not panic"))
}

fn flood_xdp(context: &Context<'_>) -> Result<()> {
    let (port, mut frames) = (context.tracker.udp(HONEST[0]).port(), context.wire()?.frames()?);
    let datagram = |source: u16, payload| {
        Datagram { is_v6: false, source, source_port: PORT, ..Datagram::random(port, payload) }.frame()
    };
    let ids = connect(context, &mut frames, |source| datagram(source, connect_packet()))?;
    ensure!(
        ids.len() * 2 > ADDRESSES as usize,
        "{} of {ADDRESSES} addresses have a connection id",
        ids.len()
    );
    let requests = ids.iter().flat_map(|(source, id)| {
        let frame = |payload| datagram(*source, payload);
        datagrams(*id).into_iter().map(frame)
    });
    let requests: Vec<Vec<u8>> = requests.collect();
    let (connected, schedule, mut pause) = (frames.received, Schedule::new(context), until_answered());
    let (sent, sent_bytes, mut is_paced) = (frames.sent, frames.sent_bytes, true);
    while !schedule.is_over() {
        for burst in requests.chunks(FRAMES) {
            is_paced = is_paced && !schedule.wait(frames.sent - sent, RATE_PER_S);
            burst.iter().for_each(|frame| frames.send(frame));
            frames.drain();
            pause(&mut frames);
            if schedule.is_over() {
                break;
            }
        }
    }
    let answered = frames.received - connected;
    Counts { sent: frames.sent - sent, sent_bytes: frames.sent_bytes - sent_bytes, answered }.report(context);
    Ok(())
}

/// Asks for a connection id from each address. Returns the lower bits of the addresses that have one.
fn connect(
    context: &Context<'_>,
    frames: &mut Frames,
    request: impl Fn(u16) -> Vec<u8>,
) -> Result<Vec<(u16, u64)>> {
    let (mut ids, sources) = (Vec::new(), (1..=u16::try_from(ADDRESSES)?).collect::<Vec<u16>>());
    for sources in sources.chunks(FRAMES) {
        sources.iter().for_each(|source| frames.send(&request(*source)));
        context.sleep_ms(1);
        for (destination, id) in frames.take_ids(CLIENT_MAC) {
            if let SocketAddr::V4(to) = destination
                && to.port() == PORT
                && !HONEST.contains(&IpAddr::V4(*to.ip()))
            {
                let [.., high, low] = to.ip().octets();
                ids.push((u16::from_be_bytes([high, low]), id));
            }
        }
    }
    Ok(ids)
}
