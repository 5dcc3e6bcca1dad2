//! Clients that are slow, do not read, or are many.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{self, Browser};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{Web, announce, tcp, tcp_from};
use crate::udp::hash;

over_every_way!(half_open_handshakes_are_closed_and_harm_nobody);

/// So short that a test can wait for it, and long enough for a request on a busy machine.
const SHORT: (&str, &str) = ("SHOAL_HTTP_REQUEST_TIMEOUT_S", "1");

fn half_open_handshakes_are_closed_and_harm_nobody(way: Way) {
    let tracker = way.start(&[SHORT, ("SHOAL_HTTP_CONNECTIONS_PER_SOURCE_MAX", "2000")]);
    let address = way.address(&tracker);
    // The first bytes of a TLS record, or of a request.
    let begin = |_| {
        let mut stream = tcp(address);
        stream.write_all(if way.tls { &[0x16, 3, 1, 2, 0, 1] } else { b"GET /an" }).unwrap();
        stream
    };
    let mut half_open: Vec<TcpStream> = (0..1000).map(begin).collect();
    assert_eq!(way.connect(&tracker).get(&announce(hash(2), 1, "")).status, 200);
    for stream in &mut half_open {
        let mut rest = Vec::new();
        // A reset says as clearly that the connection is gone.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", rest.escape_ascii());
    }
    eventually("every connection is gone", || (tracker.metric("shoal_connections", &[]) == 0).then_some(()));
}

#[test]
fn the_oldest_idle_connection_makes_room() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_HTTP_CONNECTIONS_MAX", "4"), ("SHOAL_WORKERS_COUNT", "1")]);
    let mut all: Vec<_> = (1..=6)
        .map(|port| {
            let mut web = way.connect(&tracker);
            assert_eq!(web.get(&announce(hash(4), port, "")).status, 200);
            web
        })
        .collect();
    for (index, web) in all.iter_mut().enumerate() {
        if index < 2 {
            assert_eq!(web.until_closed().unwrap(), b"", "{index}");
        } else {
            assert_eq!(web.get(&announce(hash(4), 1, "")).status, 200, "{index}");
        }
    }
    assert_eq!(tracker.metric("shoal_connections_ended_total", &["reason=\"evicted\""]), 2);
}

#[test]
fn a_source_has_so_many_connections_and_no_more() {
    let way = Way::PLAIN;
    let tracker = way.start(&[("SHOAL_HTTP_CONNECTIONS_PER_SOURCE_MAX", "3")]);
    let mut all: Vec<_> = (1..=3)
        .map(|port| {
            let mut web = way.connect(&tracker);
            assert_eq!(web.get(&announce(hash(5), port, "")).status, 200);
            web
        })
        .collect();
    let refused = way.connect(&tracker).get(&announce(hash(5), 4, ""));
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after"), "{}", refused.head);
    all.pop();
    eventually("there is room again", || {
        (way.connect(&tracker).get(&announce(hash(5), 4, "")).status == 200).then_some(())
    });
}

#[test]
fn health_has_its_descriptors_where_connections_run_out_of_them() {
    let way = Way::PLAIN;
    let settings = [
        ("SHOAL_WORKERS_COUNT", "1"),
        ("SHOAL_HTTP_CONNECTIONS_MAX", "5000"),
        ("SHOAL_HTTP_CONNECTIONS_PER_SOURCE_MAX", "5000"),
    ];
    let tracker = Tracker::start_with_open_files_max(200, &settings);
    let mut clients: Vec<_> = (0..400)
        .map(|_| {
            let mut client = way.connect(&tracker);
            assert_eq!(client.get("/").status, 404);
            client
        })
        .collect();
    assert_eq!(tracker.page("/health").status, 200);
    let most = tracker.metric("shoal_connections_max", &[]);
    assert_eq!(tracker.metric("shoal_connections", &[]), most);
    assert!(most < 400 && tracker.metric("process_open_fds", &[]) > 0, "{most}");
    assert_eq!(tracker.metric("shoal_accepts_failed_total", &[]), 0);
    assert!(tracker.log().contains("the limit on open files is too low"));
    assert_eq!(clients.last_mut().unwrap().get("/").status, 404);
}

#[test]
fn ten_hostile_addresses_take_no_slot_of_others() {
    let way = Way::PLAIN;
    hostile_addresses_take_no_slot_of_others(way, &[]);
}

#[test]
fn ten_hostile_addresses_with_a_higher_limit_take_no_slot_of_others() {
    let way = Way::PLAIN;
    hostile_addresses_take_no_slot_of_others(way, &[("SHOAL_HTTP_CONNECTIONS_PER_SOURCE_MAX", "5000")]);
}

/// A connection of a hostile address that keeps busy in one of several ways.
fn hold_slot(hostile: u8, number: usize, way: Way, tracker: &Tracker) -> TcpStream {
    let mut stream = tcp_from([127, 0, 66, hostile], way.address(tracker));
    let bytes: &[u8] = match number % 3 {
        0 => b"GET / HTTP/1.1\r\nHost: t\r\n\r\nG",
        1 => b"GET /announce?",
        _ => b"GET / HTTP/1.1\r\nHost: t\r\n\r\n",
    };
    // It may have been refused by now.
    let _ = stream.write_all(bytes);
    stream
}

fn hostile_addresses_take_no_slot_of_others(way: Way, settings: &[(&str, &str)]) {
    const SLOTS: usize = 1000;
    const HOSTILE: u8 = 10;
    let usual = [("SHOAL_HTTP_CONNECTIONS_MAX", "1000"), ("SHOAL_WORKERS_COUNT", "2")];
    let tracker = way.start(&[&usual, settings].concat());
    let open = |last| Browser::knock_from([127, 0, 1, last], way.address(&tracker), &[]).unwrap();
    let mut sockets: Vec<_> = (1..=10).map(open).collect();
    let mut held = Vec::new();
    for number in 0..SLOTS / usize::from(HOSTILE) * 3 / 2 {
        held.extend((0..HOSTILE).map(|hostile| hold_slot(hostile, number, way, &tracker)));
    }
    eventually("the slots are taken", || {
        (tracker.metric("shoal_connections", &[]) > SLOTS as u64 * 9 / 10).then_some(())
    });
    // Every honest client is answered, while the hostile ones try to take their places.
    for client in 1..=100_u8 {
        let mut web = Web::over(tcp_from([127, 0, 2, client], way.address(&tracker)));
        let answer = web.get(&announce(hash(6), u16::from(client), ""));
        assert_eq!(answer.status, 200, "{client}: {}", answer.head);
        held.push(hold_slot(client % HOSTILE, client.into(), way, &tracker));
        // Some stay for a second announce.
        if client % 4 == 0 {
            assert_eq!(web.get(&announce(hash(6), u16::from(client), "")).status, 200);
        }
    }
    for (peer, socket) in ('a'..).zip(&mut sockets) {
        let reply = socket.ask(&browser::announce('t', peer, 0));
        assert!(reply["interval"].is_u64(), "{reply}");
    }
    assert_eq!(tracker.metric("shoal_connections_evicted_total", &["phase=\"standing\""]), 0);
    assert!(tracker.metric("shoal_connections_evicted_greedy_total", &[]) > 0);
    assert!(tracker.metric("shoal_connections", &[]) <= SLOTS as u64);
}

#[test]
fn a_request_and_the_beginning_of_the_next_hold_no_slot_for_ever() {
    let way = Way::PLAIN;
    let tracker = way.start(&[SHORT]);
    let mut stream = tcp(way.address(&tracker));
    stream.write_all(b"G").unwrap();
    let mut rounds = 0;
    // Each request takes less than its time, and none leaves the connection idle.
    while tracker.metric("shoal_connections_ended_total", &["reason=\"slow_request\""]) == 0 {
        rounds += 1;
        assert!(rounds < 100, "it is never closed");
        let _ = stream.write_all(b"ET / HTTP/1.1\r\nHost: t\r\n\r\nG");
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
}
