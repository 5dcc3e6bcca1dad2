//! Any bytes in any pieces: nothing breaks, little is buffered, and the pieces make no difference.

use proptest::prelude::*;
use shoal_base::transport::stream::{Next, StreamService};
use shoal_config::ClientHeader;
use shoal_session::SessionSettings;

use crate::harness::{INPUT_BYTES_MAX, PLAIN, PROXIED, SECURE, SECURE_PROXIED, Tracker};

/// Maximum number of bytes that are buffered for a connection.
const BUFFERED_BYTES_MAX: usize = 128 * 1024;

/// Parts of valid and invalid requests.
const MORSELS: [&[u8]; 30] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"/announce?info_hash=%00%01%02%03%04%05%06%07%08%09aaaaaaaaaa&peer_id=-TE0001-abcdefghijkl&port=1&left=0",
    b"/announce",
    b"/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa",
    b"/scrape",
    b" HTTP/1.1\r\nHost: x\r\n",
    b" HTTP/1.0\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Content-Length: 7\r\n",
    b"Content-Length: 70000\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Accept-Encoding: gzip\r\n",
    b"X-Forwarded-For: 1.2.3.4, 10.0.0.1\r\n",
    b"X-Forwarded-For: \"\xff,\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"GET /announce HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /scrape HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n1234567",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\0\x01\0\x02",
];

fn soup() -> impl Strategy<Value = Vec<u8>> {
    let morsel = prop_oneof![
        8 => (0..MORSELS.len()).prop_map(|index| MORSELS[index].to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 0..9000_usize).prop_map(|(byte, bytes)| vec![byte; bytes]),
    ];
    prop::collection::vec(morsel, 0..40).prop_map(|morsels| morsels.concat())
}

fn tracker() -> Tracker {
    let decide = |settings: &mut SessionSettings| {
        settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
        settings.proxy.header = ClientHeader::XForwardedFor;
    };
    let certificate = crate::tls::certificate();
    Tracker::with(decide, |config| config.http.full_scrape = true, Some(certificate.server()))
}

/// Runs the body of a fuzz target: passes `bytes` to a connection in pieces of the lengths `cuts`, repeatedly,
/// and returns all output and the last state that the connection waited in.
fn exchange(listener: usize, bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Next) {
    let mut tracker = tracker();
    let mut session = tracker.open(listener, "10.0.0.9");
    let (mut sent, mut rest, mut next) = (Vec::new(), bytes, Next::Busy);
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() && !matches!(next, Next::Close | Next::Linger) {
        let cut = cuts.next().copied().unwrap_or(INPUT_BYTES_MAX).clamp(1, INPUT_BYTES_MAX).min(rest.len());
        let (mut piece, after) = (rest[..cut].to_vec(), &rest[cut..]);
        rest = after;
        loop {
            let mut output = Vec::new();
            next = tracker.service.receive(&mut session, &mut piece, &mut output);
            assert!(session.buffered_bytes() <= BUFFERED_BYTES_MAX);
            assert!(next != Next::Idle || session.buffered_bytes() == 0, "an idle connection holds nothing");
            assert!(output.len() <= 128 * 1024);
            sent.append(&mut output);
            if next != Next::More {
                break;
            }
            piece.clear();
        }
    }
    let mut last_message = Vec::new();
    tracker.service.expire(&mut session, &mut last_message);
    assert_eq!(session.buffered_bytes(), 0);
    tracker.service.close(session);
    (sent, next)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn pieces_make_no_difference(
        bytes in soup(),
        cuts in prop::collection::vec(1..600_usize, 1..8),
        listener in prop::sample::select(vec![PLAIN, PROXIED]),
    ) {
        let whole = exchange(listener, &bytes, &[]);
        prop_assert_eq!(exchange(listener, &bytes, &cuts), whole);
    }

    #[test]
    fn nothing_breaks_tls(
        bytes in soup(),
        cuts in prop::collection::vec(1..600_usize, 1..8),
        listener in prop::sample::select(vec![SECURE, SECURE_PROXIED]),
    ) {
        let (sent, _) = exchange(listener, &bytes, &cuts);
        prop_assert!(!sent.starts_with(b"HTTP/1.1 200"));
    }
}

#[test]
fn the_soup_holds_requests_that_are_granted() {
    // Otherwise the tests above would prove little.
    let bytes = [MORSELS[0], MORSELS[3], MORSELS[7], MORSELS[15], MORSELS[17]].concat();
    let (sent, next) = exchange(PLAIN, &bytes, &[1]);
    assert!(sent.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(!String::from_utf8_lossy(&sent).contains("failure reason"));
    assert_eq!(next, Next::Idle);
}
