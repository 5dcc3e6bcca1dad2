//! Which address counts as the client's behind proxies, and which does not.

use std::sync::Arc;

use shoal_base::transport::stream::{Next, StreamService};
use shoal_config::ClientHeader;
use shoal_config::Config;
use shoal_engine::policy::Policy;
use shoal_session::SessionSettings;
use shoal_wire::proxy::{encode_v1, encode_v2, encode_v2_local};

use crate::harness::{self, PLAIN, PROXIED, Received, Tracker, announce};

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.9";
const STRANGER: &str = "198.51.100.7";
const MADE_UP: &str = "6.6.6.6";

fn tracker(header: ClientHeader) -> Tracker {
    Tracker::with(|settings| trust(settings, header), |_| {}, None)
}

fn trust(settings: &mut SessionSettings, header: ClientHeader) {
    settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    settings.proxy.header = header;
}

fn proxy_header(source: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let at = |ip: &str| std::net::SocketAddr::new(ip.parse().unwrap(), 50000);
    encode_v2(at(source), at(if source.contains(':') { "2001:db8::1" } else { "192.0.2.1" }), &mut bytes);
    bytes
}

/// Asserts which of all clients is in the swarm after an announce.
#[track_caller]
fn assert_only(tracker: &mut Tracker, expected: &str) {
    for ip in [PROXY, CLIENT, STRANGER, MADE_UP, "2001:db8::9", "fd00::1"] {
        assert_eq!(tracker.has(ip), ip == expected, "{ip}");
    }
}

#[track_caller]
fn assert_refused(received: &Received) {
    let responses = received.responses();
    assert_eq!((responses.len(), responses[0].status), (1, 200));
    assert!(responses[0].is_failure());
}

#[test]
fn without_a_configured_header_the_source_is_the_client() {
    for ip in [CLIENT, PROXY, "2001:db8::9"] {
        let mut tracker = tracker(ClientHeader::None);
        let received =
            tracker.ask_from(PLAIN, ip, &announce("X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n"));
        assert_eq!(received.statuses(), [200]);
        assert_only(&mut tracker, ip);
    }
}

#[test]
fn a_mapped_address_is_the_one_that_it_maps() {
    let mut tracker = tracker(ClientHeader::XRealIp);
    tracker.ask_from(PLAIN, "::ffff:10.0.0.1", &announce("X-Real-IP: ::ffff:203.0.113.9\r\n"));
    assert_only(&mut tracker, CLIENT);
}

#[test]
fn a_trusted_proxy_names_its_client() {
    for (header, field) in [
        (ClientHeader::XForwardedFor, "X-Forwarded-For: 203.0.113.9"),
        (ClientHeader::XForwardedFor, "x-forwarded-for: 6.6.6.6, 203.0.113.9, 10.0.0.77"),
        (ClientHeader::XForwardedFor, "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 203.0.113.9"),
        (ClientHeader::XRealIp, "X-Real-IP: 203.0.113.9"),
        (ClientHeader::CfConnectingIp, "CF-Connecting-IP: 203.0.113.9"),
        (ClientHeader::Forwarded, "Forwarded: for=6.6.6.6, for=\"203.0.113.9:4711\";proto=https"),
        // Headers other than the configured one are ignored.
        (
            ClientHeader::XRealIp,
            "X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 203.0.113.9\r\nCF-Connecting-IP: 6.6.6.6",
        ),
    ] {
        let mut tracker = tracker(header);
        tracker.ask_from(PLAIN, PROXY, &announce(&format!("{field}\r\n")));
        assert_only(&mut tracker, CLIENT);
    }
}

#[test]
fn each_request_of_a_proxied_connection_has_a_client_of_its_own() {
    let mut tracker = tracker(ClientHeader::XForwardedFor);
    let of = |ip: &str| announce(&format!("X-Forwarded-For: {ip}\r\n"));
    tracker.ask_from(PLAIN, PROXY, &[of(CLIENT), of("2001:db8::9")].concat());
    assert!(tracker.has(CLIENT) && tracker.has("2001:db8::9") && !tracker.has(PROXY));
}

#[test]
fn no_other_source_is_trusted() {
    for header in [ClientHeader::XForwardedFor, ClientHeader::XRealIp, ClientHeader::CfConnectingIp] {
        let mut tracker = tracker(header);
        tracker.ask_from(PLAIN, STRANGER, &announce(&format!("{}: {MADE_UP}\r\n", header.spelling())));
        assert_only(&mut tracker, STRANGER);
    }
    let mut tracker = tracker(ClientHeader::Forwarded);
    tracker.ask_from(PLAIN, STRANGER, &announce("Forwarded: for=6.6.6.6\r\n"));
    assert_only(&mut tracker, STRANGER);
}

#[test]
fn a_trusted_proxy_that_names_no_usable_address_is_refused() {
    let mut tracker = tracker(ClientHeader::XForwardedFor);
    for field in [
        "",
        "X-Real-IP: 203.0.113.9\r\n",
        "X-Forwarded-For:\r\n",
        "X-Forwarded-For: unknown\r\n",
        "X-Forwarded-For: 203.0.113.9, \u{fffd}\r\n",
    ] {
        let received = tracker.ask_from(PLAIN, PROXY, &announce(field));
        assert_refused(&received);
        assert_eq!(received.next, Next::Idle, "the proxy may ask for others");
    }
    assert_only(&mut tracker, "");
}

#[test]
fn a_unix_socket_has_no_address_of_its_own() {
    let mut distrustful = tracker(ClientHeader::XRealIp);
    assert_refused(&distrustful.ask_from(PLAIN, "", &announce("X-Real-IP: 203.0.113.9\r\n")));
    let unix = |header| {
        let decide = move |settings: &mut SessionSettings| {
            trust(settings, header);
            settings.proxy.unix = true;
        };
        Tracker::with(decide, |_| {}, None)
    };
    let mut trustful = unix(ClientHeader::XRealIp);
    assert_refused(&trustful.ask_from(PLAIN, "", &announce("")));
    trustful.ask_from(PLAIN, "", &announce("X-Real-IP: 203.0.113.9\r\n"));
    assert_only(&mut trustful, CLIENT);

    assert_refused(&unix(ClientHeader::None).ask_from(PLAIN, "", &announce("X-Real-IP: 203.0.113.9\r\n")));
    let mut behind_proxy = unix(ClientHeader::None);
    behind_proxy.ask_from(PROXIED, "", &[proxy_header(CLIENT), announce("")].concat());
    assert_only(&mut behind_proxy, CLIENT);
}

#[test]
fn the_proxy_protocol_names_the_client_of_a_connection() {
    for source in [CLIENT, "2001:db8::9"] {
        let mut tracker = tracker(ClientHeader::None);
        let bytes = [proxy_header(source), announce(""), announce("")].concat();
        let received = tracker.ask_from(PROXIED, PROXY, &bytes);
        assert_eq!((received.statuses(), received.next), (vec![200, 200], Next::Idle));
        assert_only(&mut tracker, source);
    }
    let mut tracker = tracker(ClientHeader::None);
    let mut bytes = Vec::new();
    let at = |ip: &str| std::net::SocketAddr::new(ip.parse().unwrap(), 50000);
    encode_v1(at(CLIENT), at("192.0.2.1"), &mut bytes);
    tracker.ask_from(PROXIED, PROXY, &[bytes, announce("")].concat());
    assert_only(&mut tracker, CLIENT);
}

#[test]
fn the_header_of_the_proxy_protocol_may_be_cut_anywhere() {
    let bytes = [proxy_header(CLIENT), announce("")].concat();
    for cut in 1..bytes.len() {
        let mut tracker = tracker(ClientHeader::None);
        let mut session = tracker.open(PROXIED, PROXY);
        let first = tracker.send(&mut session, &bytes[..cut]);
        let is_at_the_end_of_the_header = cut == proxy_header(CLIENT).len();
        let expected = if is_at_the_end_of_the_header { Next::Idle } else { Next::Busy };
        assert_eq!((first.output.len(), first.next), (0, expected), "{cut}");
        let second = tracker.send(&mut session, &bytes[cut..]);
        assert_eq!((second.statuses(), second.next), (vec![200], Next::Idle), "{cut}");
        assert_eq!(session.buffered_bytes(), 0);
        assert_only(&mut tracker, CLIENT);
    }
}

#[test]
fn a_listener_for_proxies_hears_no_one_else() {
    for ip in [STRANGER, "2001:db8::9", ""] {
        let mut tracker = tracker(ClientHeader::None);
        let received = tracker.ask_from(PROXIED, ip, &[proxy_header(CLIENT), announce("")].concat());
        assert_eq!((received.output.len(), received.next), (0, Next::Close));
        assert_only(&mut tracker, "");
    }
}

#[test]
fn a_listener_for_proxies_takes_nothing_without_the_header() {
    for bytes in
        [announce(""), b"PROXY TCP4 nonsense\r\n".to_vec(), b"\r\n\r\n\0\r\nQUIX".to_vec(), vec![b'P'; 5000]]
    {
        let mut tracker = tracker(ClientHeader::None);
        let received = tracker.ask_from(PROXIED, PROXY, &bytes);
        assert_eq!((received.output.len(), received.next), (0, Next::Close));
        assert_only(&mut tracker, "");
    }
}

#[test]
fn a_plain_listener_takes_no_header_of_the_proxy_protocol() {
    let mut tracker = tracker(ClientHeader::None);
    let received = tracker.ask_from(PLAIN, PROXY, &[proxy_header(MADE_UP), announce("")].concat());
    assert_eq!((received.statuses(), received.next), (vec![400], Next::Linger));
    assert_only(&mut tracker, "");
}

#[test]
fn a_listener_keeps_its_protocols_until_it_is_replaced() {
    let mut tracker = tracker(ClientHeader::None);
    let mut settings = SessionSettings::default();
    trust(&mut settings, ClientHeader::None);
    tracker.service.reconfigure(Arc::new(settings), &Arc::new(Policy::new(Config::default())));
    let bytes = [proxy_header(CLIENT), announce("")].concat();
    assert_eq!(tracker.ask_from(PROXIED, PROXY, &bytes).statuses(), [200]);
    assert_only(&mut tracker, CLIENT);
    tracker.service.adopt_listeners();
    assert_eq!(tracker.ask_from(PROXIED, PROXY, &bytes).statuses(), [400]);
}

#[test]
fn a_proxy_that_speaks_for_itself_is_answered_but_not_taken_for_a_client() {
    let mut local = Vec::new();
    encode_v2_local(&mut local);
    for header in [local, b"PROXY UNKNOWN\r\n".to_vec()] {
        let mut tracker = tracker(ClientHeader::XForwardedFor);
        let check = [header.clone(), harness::request("GET", "/", "HTTP/1.1", "")].concat();
        assert_eq!(tracker.ask_from(PROXIED, PROXY, &check).statuses(), [404]);
        let received =
            tracker.ask_from(PROXIED, PROXY, &[header, announce("X-Forwarded-For: 6.6.6.6\r\n")].concat());
        assert_refused(&received);
        assert_only(&mut tracker, "");
    }
}

#[test]
fn behind_the_proxy_protocol_a_header_is_believed_from_whom_it_names_only() {
    let fields = format!("X-Forwarded-For: {CLIENT}\r\n");
    let mut two_proxies = tracker(ClientHeader::XForwardedFor);
    two_proxies.ask_from(PROXIED, PROXY, &[proxy_header("10.0.0.2"), announce(&fields)].concat());
    assert_only(&mut two_proxies, CLIENT);

    let mut one_proxy = tracker(ClientHeader::XForwardedFor);
    one_proxy.ask_from(PROXIED, PROXY, &[proxy_header(STRANGER), announce(&fields)].concat());
    assert_only(&mut one_proxy, STRANGER);
}

#[test]
fn connections_of_proxies_are_not_limited() {
    let mut tracker = tracker(ClientHeader::None);
    let is_limited = |tracker: &Tracker, ip| tracker.service.is_limited(&harness::remote(PLAIN, ip));
    assert!(is_limited(&tracker, STRANGER));
    assert!(!is_limited(&tracker, PROXY) && !is_limited(&tracker, "::ffff:10.0.0.1"));
    assert!(!is_limited(&tracker, ""));
    tracker = Tracker::new();
    assert!(is_limited(&tracker, PROXY));
}

#[test]
fn a_proxy_that_waits_in_the_middle_of_the_header_is_told_nothing() {
    let mut tracker = tracker(ClientHeader::None);
    let mut session = tracker.open(PROXIED, PROXY);
    tracker.send(&mut session, &proxy_header(CLIENT)[..10]);
    let mut last_message = Vec::new();
    tracker.service.expire(&mut session, &mut last_message);
    assert_eq!(last_message, b"");
}
