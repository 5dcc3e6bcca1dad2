//! Limits of sources: which source is checked, which is refused, and which one a connection counts towards.

use std::net::IpAddr;

use shoal_connection::{ClientHeader, Session};
use shoal_wire::proxy::{encode_v1, encode_v2_local};
use shoal_wire::stream::{Claim, Class, Next, SourceRoom};

use crate::harness::{PLAIN, PROXIED, Tracker, announce};
use crate::webtorrent::upgrade;

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.9";
const FULL: &str = "198.51.100.7";

/// Has room for all but one source.
#[derive(Debug)]
struct Room;

impl SourceRoom for Room {
    fn has_room(&self, ip: IpAddr, _: Class) -> bool {
        ip != FULL.parse::<IpAddr>().unwrap()
    }
}

fn tracker(header: Option<ClientHeader>) -> Tracker {
    let decide = |settings: &mut shoal_connection::Settings| {
        settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
        settings.proxy.header = header;
    };
    let tracker = Tracker::with(decide, |_| {}, None);
    Tracker { service: tracker.service.with_room(Box::new(Room)), ..tracker }
}

fn header(source: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let at = |ip: &str| std::net::SocketAddr::new(ip.parse().unwrap(), 50000);
    encode_v1(at(source), at("192.0.2.1"), &mut bytes);
    bytes
}

fn claim_of(tracker: &Tracker, session: &mut Session) -> Option<Claim> {
    let claim = tracker.service.claim(session);
    assert_eq!(tracker.service.claim(session), None, "it is told once");
    claim
}

fn claim(ip: &str, class: Class) -> Option<Claim> {
    Some(Claim { ip: Some(ip.parse().unwrap()), class })
}

#[test]
fn a_connection_counts_towards_the_client_that_a_proxy_names() {
    let mut tracker = tracker(None);
    let mut session = tracker.open(PROXIED, PROXY);
    assert_eq!(claim_of(&tracker, &mut session), None);
    let received = tracker.say(&mut session, &[header(CLIENT), announce("")].concat());
    assert_eq!(received.statuses(), [200]);
    assert_eq!(claim_of(&tracker, &mut session), claim(CLIENT, Class::Http));
    assert_eq!(tracker.say(&mut session, &announce("")).statuses(), [200]);
    assert_eq!(claim_of(&tracker, &mut session), None);
    tracker.say(&mut session, &upgrade(""));
    assert_eq!(claim_of(&tracker, &mut session), claim(CLIENT, Class::WebSocket));
}

#[test]
fn a_named_client_that_has_too_many_is_told_so() {
    let mut tracker = tracker(None);
    let mut session = tracker.open(PROXIED, PROXY);
    let received = tracker.say(&mut session, &[header(FULL), announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![503], Next::Linger));
    assert_eq!(claim_of(&tracker, &mut session), None);
}

#[test]
fn proxies_are_not_limited() {
    let mut tracker = tracker(None);
    let mut local = Vec::new();
    encode_v2_local(&mut local);
    let mut session = tracker.open(PROXIED, PROXY);
    tracker.say(&mut session, &[local, announce("")].concat());
    assert_eq!(claim_of(&tracker, &mut session), None);
    let mut session = tracker.open(PROXIED, PROXY);
    assert_eq!(tracker.say(&mut session, &[header("10.0.0.2"), announce("")].concat()).statuses(), [200]);
    assert_eq!(claim_of(&tracker, &mut session), Some(Claim { ip: None, class: Class::Http }));
}

#[test]
fn a_websocket_beyond_the_limit_is_declined_with_words() {
    let mut tracker = tracker(None);
    let mut session = tracker.open(PLAIN, FULL);
    let received = tracker.say(&mut session, &[upgrade(""), announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![503, 200], Next::Idle));
    assert!(!received.responses()[0].body.is_empty());
    assert_eq!(claim_of(&tracker, &mut session), None);
    let mut session = tracker.open(PLAIN, CLIENT);
    assert_eq!(tracker.say(&mut session, &upgrade("")).next, Next::Standing);
    assert_eq!(claim_of(&tracker, &mut session), claim(CLIENT, Class::WebSocket));
}

#[test]
fn a_websocket_counts_towards_the_client_that_a_header_names() {
    let mut tracker = tracker(Some(ClientHeader::XRealIp));
    let mut ask = |client: &str| {
        let mut session = tracker.open(PLAIN, PROXY);
        let received = tracker.say(&mut session, &upgrade(&format!("X-Real-IP: {client}\r\n")));
        (received.next, claim_of(&tracker, &mut session))
    };
    assert_eq!(ask(CLIENT), (Next::Standing, claim(CLIENT, Class::WebSocket)));
    assert_eq!(ask(FULL), (Next::Idle, None));
    assert_eq!(ask("10.0.0.3"), (Next::Standing, Some(Claim { ip: None, class: Class::WebSocket })));
}
