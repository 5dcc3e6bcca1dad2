//! Trackers that keep sending what never becomes an answer.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use shoal_conform::{Case, Target, Verdict, http, run, udp, webtorrent};

const PAUSE: Duration = Duration::from_millis(5);

/// The limit of a case in these tests. The suite would read the junk for a minute.
const CASE: Duration = Duration::from_millis(400);

/// Sends a byte at a time to each connection, behind this beginning.
fn dribble_tcp(beginning: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut sent = stream.write_all(beginning);
                while sent.is_ok() {
                    thread::sleep(PAUSE);
                    sent = stream.write_all(b"x");
                }
            });
        }
    });
    address
}

/// Sends datagrams to each source that has ever asked.
fn dribble_udp() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(PAUSE)).unwrap();
    thread::spawn(move || {
        let mut sources = BTreeSet::new();
        loop {
            sources.extend(socket.recv_from(&mut [0; 2048]).map(|(_, source)| source));
            // A source that has gone is of no interest.
            sources.iter().for_each(|source| _ = socket.send_to(b"junk", source));
            thread::sleep(PAUSE);
        }
    });
    address
}

fn seen(cases: &[&Case], mut target: Target) -> String {
    target.timing.reply = Duration::from_secs(1);
    target.timing.case = CASE;
    let findings = run(cases, &target, |_| {});
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Fail), "{findings:#?}");
    findings[0].seen.clone()
}

#[test]
fn a_tracker_that_dribbles_does_not_hold_up_a_case() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nX-Header: ";
    let up = "the time is up";
    // Some cases of UDP judge the first datagram, whatever it is.
    let patient: Vec<&Case> =
        udp::cases().into_iter().filter(|case| case.id.contains("-announce-")).collect();
    assert!(seen(&patient[..2], Target::new(dribble_udp(), 1)).contains(up));
    assert!(seen(&http::cases()[..2], Target::http(dribble_tcp(HEAD), false, 1)).contains(up));
    assert!(seen(&webtorrent::cases()[..2], Target::webtorrent(dribble_tcp(HEAD), false, 1)).contains(up));
}

#[test]
fn a_tracker_that_dribbles_does_not_hold_up_a_handshake() {
    // The header of a record of TLS with 16 KiB of a handshake message.
    let address = dribble_tcp(&[22, 3, 3, 0x40, 0]);
    for (cases, target) in [
        (http::cases(), Target::http(address, true, 1)),
        (webtorrent::cases(), Target::webtorrent(address, true, 1)),
    ] {
        let seen = seen(&cases[..2], target);
        assert!(seen.contains("no connection"), "{seen}");
    }
}
