//! Limits of sources: which source is checked, which is refused, and which one a connection counts towards.

use std::net::IpAddr;

use shoal_base::transport::stream::{ConnectionKind, Next, Quota, SourceCapacity, StreamService};
use shoal_config::ClientHeader;
use shoal_session::Session;
use shoal_wire::proxy::{encode_v1, encode_v2_local};

use crate::harness::{PLAIN, PROXIED, Tracker, announce};
use crate::webtorrent::upgrade;

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.9";
const FULL: &str = "198.51.100.7";

/// Has capacity for all sources but one.
#[derive(Debug)]
struct AllButOne;

impl SourceCapacity for AllButOne {
    fn has_capacity(&self, ip: IpAddr, _: ConnectionKind) -> bool {
        ip != FULL.parse::<IpAddr>().unwrap()
    }
}

fn tracker(header: ClientHeader) -> Tracker {
    let decide = |settings: &mut shoal_session::SessionSettings| {
        settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
        settings.proxy.header = header;
    };
    let mut tracker = Tracker::with(decide, |_| {}, None);
    tracker.service.set_source_capacity(Box::new(AllButOne));
    tracker
}

fn header(source: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let at = |ip: &str| std::net::SocketAddr::new(ip.parse().unwrap(), 50000);
    encode_v1(at(source), at("192.0.2.1"), &mut bytes);
    bytes
}

fn quota_of(tracker: &mut Tracker, session: &mut Session) -> Option<Quota> {
    let quota = tracker.service.changed_quota(session);
    assert_eq!(tracker.service.changed_quota(session), None, "it is reported once");
    quota
}

fn quota(ip: &str, kind: ConnectionKind) -> Option<Quota> {
    Some(Quota { ip: Some(ip.parse().unwrap()), kind })
}

#[test]
fn a_connection_counts_towards_the_client_that_a_proxy_names() {
    let mut tracker = tracker(ClientHeader::None);
    let mut session = tracker.open(PROXIED, PROXY);
    assert_eq!(quota_of(&mut tracker, &mut session), None);
    let received = tracker.send(&mut session, &[header(CLIENT), announce("")].concat());
    assert_eq!(received.statuses(), [200]);
    assert_eq!(quota_of(&mut tracker, &mut session), quota(CLIENT, ConnectionKind::Http));
    assert_eq!(tracker.send(&mut session, &announce("")).statuses(), [200]);
    assert_eq!(quota_of(&mut tracker, &mut session), None);
    tracker.send(&mut session, &upgrade(""));
    assert_eq!(quota_of(&mut tracker, &mut session), quota(CLIENT, ConnectionKind::WebSocket));
}

#[test]
fn a_named_client_that_has_too_many_is_told_so() {
    let mut tracker = tracker(ClientHeader::None);
    let mut session = tracker.open(PROXIED, PROXY);
    let received = tracker.send(&mut session, &[header(FULL), announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![503], Next::Linger));
    assert_eq!(quota_of(&mut tracker, &mut session), None);
}

#[test]
fn proxies_are_not_limited() {
    let mut tracker = tracker(ClientHeader::None);
    let mut local = Vec::new();
    encode_v2_local(&mut local);
    let mut session = tracker.open(PROXIED, PROXY);
    tracker.send(&mut session, &[local, announce("")].concat());
    assert_eq!(quota_of(&mut tracker, &mut session), None);
    let mut session = tracker.open(PROXIED, PROXY);
    assert_eq!(tracker.send(&mut session, &[header("10.0.0.2"), announce("")].concat()).statuses(), [200]);
    assert_eq!(quota_of(&mut tracker, &mut session), Some(Quota { ip: None, kind: ConnectionKind::Http }));
}

#[test]
fn a_websocket_beyond_the_limit_is_declined_with_words() {
    let mut tracker = tracker(ClientHeader::None);
    let mut session = tracker.open(PLAIN, FULL);
    let received = tracker.send(&mut session, &[upgrade(""), announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![503, 200], Next::Idle));
    assert!(!received.responses()[0].body.is_empty());
    assert_eq!(quota_of(&mut tracker, &mut session), None);
    let mut session = tracker.open(PLAIN, CLIENT);
    assert_eq!(tracker.send(&mut session, &upgrade("")).next, Next::Upgraded);
    assert_eq!(quota_of(&mut tracker, &mut session), quota(CLIENT, ConnectionKind::WebSocket));
}

#[test]
fn a_websocket_counts_towards_the_client_that_a_header_names() {
    let mut tracker = tracker(ClientHeader::XRealIp);
    let mut ask = |client: &str| {
        let mut session = tracker.open(PLAIN, PROXY);
        let received = tracker.send(&mut session, &upgrade(&format!("X-Real-IP: {client}\r\n")));
        (received.next, quota_of(&mut tracker, &mut session))
    };
    assert_eq!(ask(CLIENT), (Next::Upgraded, quota(CLIENT, ConnectionKind::WebSocket)));
    assert_eq!(ask(FULL), (Next::Idle, None));
    assert_eq!(ask("10.0.0.3"), (Next::Upgraded, Some(Quota { ip: None, kind: ConnectionKind::WebSocket })));
}
