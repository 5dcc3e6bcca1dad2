//! The memory of the whole process: its ceiling under half messages, what goes back afterwards, and what is refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::http::Way;
use crate::kit::browser::{Browser, announce};
use crate::kit::harness::{Tracker, eventually, run};
use crate::kit::web::{self, Web};

/// The ceiling of the attacked tracker.
const MAX_MIB: u64 = 64;

/// Sockets that each hold half a message, and how many of them an address has.
const SOCKETS: u8 = 150;
const SOURCES: u8 = 10;

/// The head of a message of 256 KiB, masked with zeros, and how much of it comes, in how many pieces.
const HEAD: [u8; 14] = [0x81, 0xff, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
const PIECE_BYTES: usize = 20_000;
const PIECES: usize = 7;

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: tracker\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A number of `/proc/PID/status`, in bytes.
fn status_bytes(tracker: &Tracker, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", tracker.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let kib: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

/// A WebSocket of the loopback address `127.0.0.number`, without a library.
fn open(number: u8, address: SocketAddr) -> TcpStream {
    let mut stream = web::tcp_from([127, 0, 0, number], address);
    stream.write_all(UPGRADE).unwrap();
    assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
    stream
}

/// Opens sockets from some addresses and sends half a message on each, as far as the tracker takes it.
fn attack(tracker: &Tracker) -> Vec<TcpStream> {
    let address = tracker.http[0];
    let mut sockets: Vec<_> =
        (0..SOCKETS).flat_map(|_| (0..SOURCES).map(|source| open(10 + source, address))).collect();
    for piece in 0..PIECES {
        for socket in &mut sockets {
            // The tracker may have closed it.
            if piece == 0 {
                let _ = socket.write_all(&HEAD);
            }
            let _ = socket.write_all(&[b' '; PIECE_BYTES]);
        }
    }
    sockets
}

#[test]
fn half_messages_stay_within_the_ceiling_and_honest_clients_are_served() {
    let way = Way::PLAIN;
    let max = format!("{MAX_MIB}MiB");
    let tracker = way.start(&[("SHOAL_MEMORY_MAX", &max), ("SHOAL_STORE_MEMORY_MAX", "auto")]);
    let mut honest = Browser::open(way, &tracker);
    honest.ask(&announce('t', 'h', 0));
    let mut web = Web::connect(tracker.http[0], false);
    let target = format!("/announce?{}", web::announce([7; 20], 6881, "&left=1"));
    assert_eq!(web.get(&target).status, 200);
    let before = status_bytes(&tracker, "VmRSS");
    for _ in 0..2 {
        let sockets = attack(&tracker);
        honest.ask(&announce('t', 'h', 0));
        assert_eq!(web.get(&target).status, 200);
        drop(sockets);
    }
    let most = status_bytes(&tracker, "VmHWM");
    assert!(most <= MAX_MIB << 20, "{most} bytes were resident");
    assert!(tracker.metric("shoal_connections_ended_total", &["reason=\"evicted_memory\""]) > 0);
    eventually("memory goes back", || (status_bytes(&tracker, "VmRSS") * 10 <= before * 13).then_some(()));
    honest.ask(&announce('t', 'h', 0));
}

/// The limits have a bucket for every source that may come: 32 MiB with this ceiling.
#[test]
fn an_idle_tracker_takes_no_memory_for_sources_that_have_not_come() {
    let tracker = Tracker::start(&[("SHOAL_MEMORY_MAX", "2GiB")]);
    let anonymous = status_bytes(&tracker, "RssAnon");
    assert!(anonymous < 24 << 20, "{anonymous} bytes are the tracker's own");
}

#[test]
fn the_log_and_the_metrics_tell_how_memory_is_divided() {
    let tracker = Tracker::start(&[("SHOAL_MEMORY_MAX", "1GiB"), ("SHOAL_STORE_MEMORY_MAX", "512MiB")]);
    assert_eq!(tracker.metric("shoal_memory_max_bytes", &[]), 1 << 30);
    let part = |kind: &str| tracker.metric("shoal_memory_part_bytes", &[&*format!("kind=\"{kind}\"")]);
    assert_eq!(part("store"), 512 << 20);
    let kinds = ["store", "webtorrent_swarms", "connections", "queues", "program"];
    let sum: u64 = kinds.iter().map(|kind| part(kind)).sum();
    assert!(sum <= 1 << 30, "{sum}");
    assert!(tracker.metric("shoal_memory_bytes", &["kind=\"other\""]) > 0);
}

#[test]
fn a_ceiling_that_cannot_hold_what_is_asked_for_is_refused() {
    for (settings, words) in [
        (&[("SHOAL_MEMORY_MAX", "64MiB"), ("SHOAL_WORKERS_COUNT", "16")][..], "it accepts 129MiB or more"),
        (
            &[("SHOAL_MEMORY_MAX", "64MiB"), ("SHOAL_STORE_MEMORY_MAX", "64MiB")],
            "memory_max must be less than 64MiB",
        ),
        (
            &[
                ("SHOAL_MEMORY_MAX", "64MiB"),
                ("SHOAL_STORE_MEMORY_MAX", "60MiB"),
                ("SHOAL_WORKERS_COUNT", "1"),
            ],
            "store.memory_max = 60MiB",
        ),
    ] {
        let output = run(&[], settings);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
