//! Trackers that keep sending bytes without completing an answer.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use shoal_conform::{Case, CaseVerdict, Target, http, run, udp, webtorrent};

const PAUSE: Duration = Duration::from_millis(5);

/// The limit of a case, short of a minute of junk. A busy machine still has time to connect and to begin.
const CASE_LIMIT: Duration = Duration::from_secs(2);

/// The beginning of a response whose head never ends.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nX-Header: ";

/// Sends `beginning` to each connection, and then one byte at a time.
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

/// Repeatedly sends datagrams to each source that has sent a request.
fn dribble_udp() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(PAUSE)).unwrap();
    thread::spawn(move || {
        let mut sources = BTreeSet::new();
        loop {
            sources.extend(socket.recv_from(&mut [0; 2048]).map(|(_, source)| source));
            // An error means that the source has gone.
            sources.iter().for_each(|source| _ = socket.send_to(b"junk", source));
            thread::sleep(PAUSE);
        }
    });
    address
}

/// Runs two cases, of which the first has to fail and the second not to pass, and returns what the first has seen.
fn seen(cases: &[&Case], mut target: Target) -> String {
    target.timing.reply = Duration::from_secs(1);
    target.timing.case = CASE_LIMIT;
    let findings = run(&cases[..2], &target, |_| {});
    let verdicts = [findings[0].verdict, findings[1].verdict];
    assert!(
        matches!(verdicts, [CaseVerdict::Fail, CaseVerdict::Fail | CaseVerdict::NotRun]),
        "{findings:#?}"
    );
    findings[0].seen.clone()
}

/// Runs the cases and checks that the deadline ended the first of them.
fn ends_at_the_deadline(cases: &[&Case], target: Target) {
    let seen = seen(cases, target);
    assert!(seen.contains("the deadline has passed"), "{seen}");
}

#[test]
fn datagrams_without_an_answer_do_not_stall_a_case() {
    // Some other cases of UDP judge the first datagram, whatever it is.
    let announces: Vec<&Case> =
        udp::cases().into_iter().filter(|case| case.id.contains("-announce-")).collect();
    ends_at_the_deadline(&announces, Target::new(dribble_udp(), 1));
}

#[test]
fn an_http_tracker_that_dribbles_does_not_stall_a_case() {
    ends_at_the_deadline(&http::cases(), Target::http(dribble_tcp(HEAD), false, 1));
}

#[test]
fn a_webtorrent_tracker_that_dribbles_does_not_stall_a_case() {
    ends_at_the_deadline(&webtorrent::cases(), Target::webtorrent(dribble_tcp(HEAD), false, 1));
}

#[test]
fn a_tracker_that_dribbles_does_not_stall_a_handshake() {
    // The header of a TLS record with 16 KiB of a handshake message.
    let address = dribble_tcp(&[22, 3, 3, 0x40, 0]);
    for (cases, target) in [
        (http::cases(), Target::http(address, true, 1)),
        (webtorrent::cases(), Target::webtorrent(address, true, 1)),
    ] {
        let seen = seen(&cases, target);
        assert!(seen.contains("no connection"), "{seen}");
    }
}
