//! Which connections become WebSockets, and the responses to the others.

use shoal_base::transport::stream::Next;
use shoal_config::ClientHeader;
use shoal_config::Config;
use shoal_engine::counter::{Family, Kind, Outcome};
use shoal_engine::refusal::Refusal;
use shoal_session::{Origins, SessionSettings};
use shoal_wire::proxy::{encode_v1, encode_v2_local};

use crate::frames::{Frame, PING, PONG, frame};
use crate::harness::{self, PLAIN, PROXIED, Received, Tracker, request};
use crate::response;
use crate::webtorrent::{ALICE, Client, announce, assert_counts, responder, round, upgrade, upgrade_at};

const WEBSOCKET: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn tracker_with(decide: impl FnOnce(&mut SessionSettings)) -> Tracker {
    Tracker::with(decide, |_| {}, None)
}

/// Asserts that a request is declined, and that the connection continues with HTTP.
#[track_caller]
fn assert_declined(tracker: &mut Tracker, bytes: &[u8], status: u16) -> response::Response {
    let received = tracker.ask(&[bytes, &harness::announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![status, 200], Next::Idle));
    let response = received.responses().swap_remove(0);
    assert!(!response.body.is_empty(), "it says why");
    response
}

/// Asserts that a connection from `ip` becomes a WebSocket and handles messages.
#[track_caller]
fn assert_granted(tracker: &mut Tracker, listener: usize, ip: &str, bytes: &[u8]) {
    let mut client = Client::silent(tracker, listener, ip);
    client.send(tracker, &[bytes, &frame(PING, b"?")].concat());
    assert_eq!(client.next, Next::Upgraded);
    round(tracker, &mut [&mut client]);
    let frames = client.read_behind_head();
    assert_eq!((frames[0].opcode, frames[0].payload.as_slice(), frames.len()), (PONG, &b"?"[..], 1));
    client.leave(tracker);
}

#[test]
fn a_websocket_may_be_asked_for_on_any_path() {
    for target in ["/", "/announce", "/tracker/socket", "/scrape?x=y", "", "/%ff", "http://tracker.example/"]
    {
        let target = if target.is_empty() { "*" } else { target };
        assert_granted(&mut Tracker::new(), PLAIN, "192.0.2.1", &upgrade_at(target, ""));
    }
}

#[test]
fn a_malformed_upgrade_is_declined_and_http_goes_on() {
    for (method, fields) in [
        ("GET", format!("{WEBSOCKET}{VERSION}")),
        ("GET", format!("{WEBSOCKET}{VERSION}Sec-WebSocket-Key: short\r\n")),
        ("GET", format!("{WEBSOCKET}{VERSION}{KEY}{KEY}")),
        ("POST", format!("{WEBSOCKET}{VERSION}{KEY}")),
    ] {
        let mut tracker = Tracker::new();
        assert_declined(&mut tracker, &request(method, "/", "HTTP/1.1", &fields), 400);
    }
    let with_body =
        request("GET", "/", "HTTP/1.1", &format!("{WEBSOCKET}{VERSION}{KEY}Content-Length: 3\r\n"));
    assert_declined(&mut Tracker::new(), &[with_body, b"xyz".to_vec()].concat(), 400);
}

#[test]
fn without_webtorrent_every_upgrade_is_declined() {
    let response = assert_declined(&mut Tracker::without_webtorrent(), &upgrade(""), 404);
    assert!(String::from_utf8(response.body).unwrap().contains("WebTorrent"));
    let other =
        request("GET", &harness::announce_target(), "HTTP/1.1", "Upgrade: h2c\r\nConnection: Upgrade\r\n");
    assert_eq!(Tracker::without_webtorrent().ask(&other).statuses(), [200]);
}

#[test]
fn origins_are_let_in_as_the_operator_says() {
    let origins = |allow: &[&str], deny: &[&str], missing: bool| {
        let owned = |list: &[&str]| list.iter().map(|&origin| origin.to_owned()).collect();
        Origins { allow: owned(allow), deny: owned(deny), missing }
    };
    let listed = origins(&["https://good.example"], &["https://bad.example"], false);
    let open = origins(&[], &["https://bad.example"], true);
    for (origins, fields, is_granted) in [
        (&listed, "Origin: https://good.example\r\n", true),
        (&listed, "origin: HTTPS://Good.Example\r\n", true),
        (&listed, "Origin: https://other.example\r\n", false),
        (&listed, "Origin: https://bad.example\r\n", false),
        (&listed, "Origin: null\r\n", false),
        (&listed, "", false),
        (&open, "Origin: https://other.example\r\n", true),
        (&open, "Origin: https://bad.example\r\n", false),
        (&open, "Origin: null\r\n", true),
        (&open, "", true),
    ] {
        let mut tracker = tracker_with(|settings| settings.websocket.origins = origins.clone());
        if is_granted {
            assert_granted(&mut tracker, PLAIN, "192.0.2.1", &upgrade(fields));
        } else {
            assert_declined(&mut tracker, &upgrade(fields), 403);
        }
    }
    let mut tracker = tracker_with(|settings| settings.websocket.origins = listed.clone());
    for (fields, text) in [("Origin: null\r\n", "does not serve pages of this origin"), ("", "has no Origin")]
    {
        let body = tracker.ask(&upgrade(fields)).responses()[0].body.clone();
        assert!(String::from_utf8_lossy(&body).contains(text), "{fields}: {}", body.escape_ascii());
    }
}

fn trust(settings: &mut SessionSettings) {
    settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
    settings.proxy.header = ClientHeader::XForwardedFor;
}

#[test]
fn a_trusted_proxy_has_to_name_its_client() {
    let proxied = "X-Forwarded-For: 203.0.113.9\r\n";
    assert_granted(&mut tracker_with(trust), PLAIN, "10.0.0.1", &upgrade(proxied));
    assert_granted(&mut tracker_with(trust), PLAIN, "198.51.100.7", &upgrade(""));
    for fields in ["", "X-Forwarded-For: unknown\r\n", "X-Real-IP: 203.0.113.9\r\n"] {
        let mut tracker = tracker_with(trust);
        let mut session = tracker.open(PLAIN, "10.0.0.1");
        let received = tracker.send(&mut session, &upgrade(fields));
        assert_eq!((received.statuses(), received.next), (vec![400], Next::Idle));
        assert!(String::from_utf8_lossy(&received.responses()[0].body).contains("proxy"));
        let refused = Outcome::Refused(Refusal::ProxyWithoutClient);
        assert_eq!(tracker.counters.replies(Family::V4, Kind::Other, refused), 1);
    }
}

#[test]
fn a_client_without_an_address_is_declined() {
    // The client uses a Unix socket, or a PROXY header without an address.
    let received = Tracker::new().ask_from(PLAIN, "", &upgrade(""));
    assert_eq!((received.statuses(), received.next), (vec![400], Next::Idle));
    let trust =
        |settings: &mut SessionSettings| settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
    let mut bytes = Vec::new();
    encode_v2_local(&mut bytes);
    bytes.extend_from_slice(&upgrade(""));
    let received = tracker_with(trust).ask_from(PROXIED, "10.0.0.1", &bytes);
    assert_eq!((received.statuses(), received.next), (vec![400], Next::Idle));

    let mut bytes = Vec::new();
    let (source, here) = ("203.0.113.9:50000".parse().unwrap(), "192.0.2.1:80".parse().unwrap());
    encode_v1(source, here, &mut bytes);
    bytes.extend_from_slice(&upgrade(""));
    assert_granted(&mut tracker_with(trust), PROXIED, "10.0.0.1", &bytes);
}

/// Returns the first message to `ip` about an announce, over a WebSocket opened with these fields.
fn first_message_where_private_addresses_are_refused(ip: &str, fields: &str) -> String {
    let mut config = Config::default();
    config.address.private = shoal_config::Auto::Set(shoal_config::PrivateAddresses::Refuse);
    let mut tracker = Tracker::assemble(trust, |_| {}, Some(responder(config)), None);
    let mut client = Client::silent(&mut tracker, PLAIN, ip);
    client.send(&mut tracker, &[upgrade(fields), announce(ALICE)].concat());
    round(&mut tracker, &mut [&mut client]);
    client.read_behind_head()[0].text().to_owned()
}

#[test]
fn the_client_that_the_proxy_names_announces() {
    for (ip, fields, is_refused) in [
        ("10.0.0.1", "X-Forwarded-For: 203.0.113.9\r\n", false),
        ("10.0.0.1", "X-Forwarded-For: 192.168.0.9\r\n", true),
        ("203.0.113.9", "X-Forwarded-For: 192.168.0.9\r\n", false),
        ("192.168.0.9", "X-Forwarded-For: 203.0.113.9\r\n", true),
    ] {
        let incoming = first_message_where_private_addresses_are_refused(ip, fields);
        assert_eq!(incoming.contains("failure reason"), is_refused, "{ip} {fields}: {incoming}");
    }
}

#[test]
fn requests_come_before_an_upgrade_and_frames_behind_it() {
    let mut tracker = Tracker::new();
    let mut client = Client::silent(&mut tracker, PLAIN, "192.0.2.1");
    let bytes = [harness::announce(""), upgrade(""), frame(PING, b"1"), announce(ALICE), frame(PING, b"2")];
    client.send(&mut tracker, &bytes.concat());
    assert_eq!(client.next, Next::Upgraded);
    let incoming = client.read_bytes();
    let end = incoming.windows(13).position(|window| window == b"HTTP/1.1 101 ").unwrap();
    assert_eq!(Received { output: incoming[..end].to_vec(), next: Next::Idle }.statuses(), [200]);
    assert_eq!(response::parse_head(&incoming[end..]).1, b"");
    assert_eq!(round(&mut tracker, &mut [&mut client]), 1);
    let frames = client.read();
    assert_eq!((frames[0].payload.as_slice(), frames[2].payload.as_slice()), (&b"1"[..], &b"2"[..]));
    assert_counts(&frames[1], 0, 1);
}

#[test]
fn an_upgrade_and_what_follows_may_be_cut_anywhere() {
    let bytes = [harness::announce(""), upgrade(""), frame(PING, b"?"), announce(ALICE)].concat();
    for cut in 1..bytes.len() {
        let mut tracker = Tracker::new();
        let mut client = Client::silent(&mut tracker, PLAIN, "192.0.2.1");
        client.send(&mut tracker, &bytes[..cut]);
        client.send(&mut tracker, &bytes[cut..]);
        assert_eq!((client.next, client.session.buffered_bytes()), (Next::Upgraded, 0), "{cut}");
        assert!(client.read_bytes().ends_with(b"\r\n\r\n"), "{cut}");
        round(&mut tracker, &mut [&mut client]);
        let frames = client.read();
        assert_eq!(frames[0], Frame { opcode: PONG, payload: b"?".to_vec() }, "{cut}");
        assert_counts(&frames[1], 0, 1);
    }
}
