//! The load against a tracker that leaves known requests without an answer, and answers others twice. The counts have to
//! be exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use shoal_trial::chaos::load::{Load, LoadPlan};
use shoal_trial::chaos::measure::{self, Window};
use shoal_trial::chaos::record::Lane;
use shoal_trial::chaos::result::LaneResult;
use shoal_wire::udp::{ConnectionId, Peers, Reply, Request, ScrapeEntry};

const EVERYTHING: Window = Window { began_ns: 0, acted_ns: 0, done_ns: u64::MAX, ended_ns: u64::MAX };

/// Time for the last answers. Over UDP, some never come, and all of it passes.
const UDP_TIMEOUT: Duration = Duration::from_secs(2);
const HTTP_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that the tracker waits for before a test ends the load.
const REQUESTS: u64 = 1000;

/// The requests that a tracker has received and mistreated.
#[derive(Default)]
struct Counts {
    received: AtomicU64,
    lost: AtomicU64,
    doubled: AtomicU64,
    refused: AtomicU64,
}

fn bump(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::SeqCst)
}

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// Starts a tracker over UDP. It does not answer every 10th request, answers every 7th of the others twice, and refuses
/// every 13th.
fn udp_tracker() -> (SocketAddr, Arc<Counts>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, counts) = (socket.local_addr().unwrap(), Arc::new(Counts::default()));
    let shared = Arc::clone(&counts);
    thread::spawn(move || {
        let mut packet = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut packet).unwrap();
            let number = bump(&shared.received);
            if number.is_multiple_of(10) {
                bump(&shared.lost);
                continue;
            }
            let reply = match Request::decode(&packet[..length]).unwrap() {
                Request::Connect { transaction_id } => {
                    Reply::Connect { transaction_id, connection_id: ConnectionId(7) }
                }
                Request::Announce { transaction_id, .. } if number.is_multiple_of(13) => {
                    bump(&shared.refused);
                    Reply::Error { transaction_id, message: b"no" }
                }
                Request::Announce { transaction_id, .. } => {
                    let peers = Peers::new(&[]);
                    Reply::Announce { transaction_id, interval_s: 1800, leechers: 1, seeders: 0, peers }
                }
                Request::Scrape { transaction_id, .. } => {
                    Reply::Scrape { transaction_id, entries: &[ScrapeEntry::default()] }
                }
            };
            let mut out = [0; 2048];
            let length = reply.encode(&mut out).unwrap();
            socket.send_to(&out[..length], from).unwrap();
            if number.is_multiple_of(7) {
                bump(&shared.doubled);
                socket.send_to(&out[..length], from).unwrap();
            }
        }
    });
    (address, counts)
}

/// Starts a tracker over HTTP with connections that stay open. It closes the connection instead of answering every 10th
/// request, and refuses every 13th.
fn http_tracker() -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::new(Counts::default()));
    let shared = Arc::clone(&counts);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve(stream.unwrap(), &shared));
        }
    });
    (address, counts)
}

fn serve(mut stream: TcpStream, counts: &Counts) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(request)) = lines.next() {
        assert!(request.starts_with("GET /announce?info_hash=%"), "{request}");
        let closes = lines.by_ref().map(Result::unwrap).take_while(|line| !line.is_empty());
        let closes = closes.filter(|line| line == "Connection: close").count() > 0;
        let number = bump(&counts.received);
        if number.is_multiple_of(10) {
            bump(&counts.lost);
            return;
        }
        let body = if number.is_multiple_of(13) {
            bump(&counts.refused);
            "d14:failure reason2:noe"
        } else {
            "d8:intervali1800e5:peers0:e"
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
        if closes {
            return;
        }
    }
}

fn plan(lane: Lane, target: SocketAddr) -> LoadPlan {
    LoadPlan {
        target,
        torrents: 1000,
        seed: 1,
        load_peers: LoadPlan::load_peers_for(1000),
        rates: vec![(lane, 1000.0)],
        connections: 4,
        timeout: if lane == Lane::Udp { UDP_TIMEOUT } else { HTTP_TIMEOUT },
    }
}

/// Runs a lane until the tracker has received some requests, and returns its figures.
fn run(lane: Lane, target: SocketAddr, counts: &Counts) -> LaneResult {
    let load = Load::start(&plan(lane, target)).unwrap();
    while value(&counts.received) < REQUESTS {
        thread::sleep(Duration::from_millis(5));
    }
    let ledgers = load.end();
    let [(of, ledger)] = &ledgers[..] else { panic!("{} lanes", ledgers.len()) };
    assert_eq!((*of, ledger.malformed), (lane, 0));
    // On a busy machine an answer may come after the timeout of a client, but it is an answer.
    measure::lane(lane, ledger, &EVERYTHING, Duration::MAX)
}

#[test]
fn udp_requests_are_counted_exactly() {
    let (address, counts) = udp_tracker();
    let result = run(Lane::Udp, address, &counts);
    assert_eq!((result.requests, result.lost), (value(&counts.received), value(&counts.lost)));
    assert_eq!((result.doubled, result.refused), (value(&counts.doubled), value(&counts.refused)));
    assert!(result.doubled > REQUESTS / 10 && result.refused > REQUESTS / 50, "{result:?}");
}

#[test]
fn requests_on_connections_that_stay_open_are_counted_exactly() {
    let (address, counts) = http_tracker();
    let result = run(Lane::HttpKeepAlive, address, &counts);
    assert_eq!((result.requests, result.lost), (value(&counts.received), value(&counts.lost)));
    assert_eq!((result.closed + result.reset, result.doubled), (result.lost, 0));
    assert_eq!(result.refused, value(&counts.refused));
}

#[test]
fn requests_on_connections_of_their_own_are_counted_exactly() {
    let (address, counts) = http_tracker();
    let result = run(Lane::HttpConnections, address, &counts);
    assert_eq!((result.requests, result.lost), (value(&counts.received), value(&counts.lost)));
    assert_eq!(result.refused, value(&counts.refused));
}

#[test]
fn refused_connections_are_lost_requests() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let load = Load::start(&plan(Lane::HttpConnections, address)).unwrap();
    while load.now_ns() < 100_000_000 {
        thread::sleep(Duration::from_millis(5));
    }
    let ledgers = load.end();
    let result = measure::lane(Lane::HttpConnections, &ledgers[0].1, &EVERYTHING, HTTP_TIMEOUT);
    assert!(result.requests > 0, "{result:?}");
    assert_eq!((result.lost, result.connect_refused), (result.requests, result.requests));
}
