//! Nothing is allocated per message on open WebSockets. Its own binary, since it counts what all threads allocate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod no_allocation;
mod session;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shoal_load::ws::{WsSettings, open};
use shoal_load::{Plan, Population};
use shoal_wire::websocket::{Event, Reader, Role, frame, handshake};
use shoal_wire::webtorrent::{Limits, Request, Storage, decode, reply};

const CONNECTIONS: usize = 4;

const LIMITS: Limits = Limits { offers_max: 10, offer_bytes_max: 8192, info_hashes_max: 10 };

/// Relays every offer to the next connection and answers to the one before. Does not allocate, since all allocations
/// are counted.
fn serve(number: usize, mut stream: &TcpStream, writers: &Mutex<Vec<TcpStream>>, stop: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut input, mut filled) = (vec![0; 256 * 1024], 0);
    let (mut out, mut storage, mut reader) = (Vec::with_capacity(1 << 16), Storage::default(), Reader::new());
    let mut is_upgraded = false;
    while !stop.load(Ordering::Relaxed) {
        let Ok(bytes) = stream.read(&mut input[filled..]) else { continue };
        if bytes == 0 {
            break;
        }
        filled += bytes;
        let mut used = 0;
        if !is_upgraded {
            // The request comes whole.
            let head = std::str::from_utf8(&input[..filled]).unwrap();
            let key = head.split("Sec-WebSocket-Key: ").nth(1).unwrap().split("\r\n").next().unwrap();
            out.clear();
            handshake::respond(&handshake::accept(key.as_bytes()).unwrap(), &mut out);
            (used, is_upgraded) = (filled, true);
            send(writers, number, &out);
        }
        loop {
            let read = reader.read(&mut input[used..filled], Role::Server, 1 << 20).unwrap();
            if read.used == 0 {
                break;
            }
            used += read.used;
            if let Some(Event::Message(message)) = read.event {
                relay(number, message, &mut storage, &mut out, writers);
            }
        }
        input.copy_within(used..filled, 0);
        filled -= used;
    }
}

fn relay(
    number: usize,
    message: &[u8],
    storage: &mut Storage,
    out: &mut Vec<u8>,
    writers: &Mutex<Vec<TcpStream>>,
) {
    out.clear();
    match decode(message, &LIMITS, storage).unwrap() {
        Request::Announce(announce) => {
            frame::write_text(out, |out| reply::announce(&announce.info_hash, 60, 0, 3, out));
            send(writers, number, out);
            for offer in announce.offers.iter() {
                out.clear();
                frame::write_text(out, |out| {
                    reply::offer(&announce.info_hash, &announce.peer_id, &offer, out);
                });
                send(writers, (number + 1) % CONNECTIONS, out);
            }
        }
        Request::Answer(answer) => {
            frame::write_text(out, |out| reply::answer(&answer.info_hash, &answer.peer_id, &answer, out));
            send(writers, (number + CONNECTIONS - 1) % CONNECTIONS, out);
        }
        Request::Scrape(_) => unreachable!("nothing is scraped"),
    }
}

fn send(writers: &Mutex<Vec<TcpStream>>, to: usize, bytes: &[u8]) {
    writers.lock().unwrap()[to].write_all(bytes).unwrap();
}

#[test]
fn nothing_is_allocated_per_message() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, stop) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    let writers = Mutex::new(Vec::new());
    let plan = session::plan(addr);
    let population =
        Population { torrents: 1, peers: 4, seeder_share: 0.0, announces_per_life: 0, ..plan.population };
    let plan = Plan { population, numwant: 2, scrape_hashes_max: 1, ..plan };
    let settings = WsSettings {
        host: addr.to_string(),
        path: "/".to_owned(),
        origin: None,
        tls: None,
        connections: NonZeroUsize::new(CONNECTIONS).unwrap(),
        ramp: None,
        offers: 2,
        sdp_bytes: 2048,
        answer_share: 0.5,
        announces_per_connection: 0,
        held: 0,
        held_announce: false,
        slow_readers: 0,
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CONNECTIONS {
                let (stream, _) = listener.accept().unwrap();
                writers.lock().unwrap().push(stream.try_clone().unwrap());
                let (writers, stop) = (&writers, &stop);
                scope.spawn(move || serve(number, &stream, writers, stop));
            }
        });
        let mut session = open(&plan, &settings).unwrap();
        let (report, allocated) = no_allocation::run(&mut session, CONNECTIONS);
        stop.store(true, Ordering::Relaxed);
        let relayed = report.relays.as_ref().unwrap();
        assert!(relayed.offers > 500 && relayed.answers > 100, "{report:?}");
        assert_eq!((report.lost, report.wrong.total(), relayed.wrong.total()), (0, 0, 0), "{report:?}");
        // Where more messages come at once than ever before, a buffer grows; that is no allocation for each of them.
        assert!(allocated < relayed.messages / 100, "{allocated} for {} messages", relayed.messages);
    });
}
