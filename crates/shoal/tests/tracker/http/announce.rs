//! Announces over HTTP, on the same swarms as UDP.

use crate::client::{Announce, Client};
use crate::http::{Way, over_every_way};
use crate::udp::hash;
use crate::web::announce;

over_every_way!(
    peers_of_udp_and_http_find_each_other,
    a_connection_serves_many_requests,
    pipelined_requests_are_answered_in_order,
    a_bad_announce_is_told_why_and_the_connection_stays,
    malformed_http_is_refused_and_closed,
);

fn peers_of_udp_and_http_find_each_other(way: Way) {
    let tracker = way.start(&[]);
    let over_udp = Client::new(tracker.udp[usize::from(way.v6)]);
    over_udp.announce(&Announce::leecher(hash(1), 1111));
    let answer = way.connect(&tracker).get(&announce(hash(1), 2222, ""));
    assert_eq!(answer.status, 200);
    let (key, peer) = if way.v6 {
        (&b"6:peers618:"[..], [&[0; 15][..], &[1], &1111_u16.to_be_bytes()].concat())
    } else {
        (&b"5:peers6:"[..], [&[127, 0, 0, 1][..], &1111_u16.to_be_bytes()].concat())
    };
    let entry = [key, &peer].concat();
    let found = answer.body.windows(entry.len()).any(|window| window == entry);
    assert!(found, "{}", answer.body.escape_ascii());
    let reply = over_udp.announce(&Announce::leecher(hash(1), 1111));
    let ports: Vec<u16> = reply.peers.iter().map(|peer| peer.port()).collect();
    assert_eq!(ports, [2222]);
    assert_eq!(tracker.metric("shoal_requests_total", &["protocol=\"http\"", "kind=\"announce\""]), 1);
}

fn a_connection_serves_many_requests(way: Way) {
    let tracker = way.start(&[("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
    let mut web = way.connect(&tracker);
    for port in 1..=50 {
        let answer = web.get(&announce(hash(2), port, ""));
        assert_eq!(answer.status, 200);
        let count = format!("10:incompletei{port}e");
        assert!(answer.body.escape_ascii().to_string().contains(&count), "{}", answer.body.escape_ascii());
    }
    assert_eq!(tracker.metric("shoal_connections_accepted_total", &[]), 1);
}

fn pipelined_requests_are_answered_in_order(way: Way) {
    let tracker = way.start(&[("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
    let mut web = way.connect(&tracker);
    let request = |port| format!("GET {} HTTP/1.1\r\nHost: t\r\n\r\n", announce(hash(3), port, ""));
    let requests: String = (1..=100).map(request).collect();
    web.send(requests.as_bytes());
    for port in 1..=100 {
        let body = web.answer().body.escape_ascii().to_string();
        assert!(body.contains(&format!("10:incompletei{port}e")), "{body}");
    }
}

fn a_bad_announce_is_told_why_and_the_connection_stays(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    for bad in ["/announce", "/announce?info_hash=short", "/announce?info_hash=%zz"] {
        let answer = web.get(bad);
        assert_eq!(answer.status, 200, "{bad}");
        assert!(answer.body.starts_with(b"d14:failure reason"), "{}", answer.body.escape_ascii());
    }
    assert_eq!(web.get("/elsewhere").status, 404);
    assert_eq!(web.get(&announce(hash(4), 1, "")).status, 200);
}

fn malformed_http_is_refused_and_closed(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    web.send(b"GET /announce\x01 HTTP/1.1\r\nbad header\r\n\r\n");
    assert_eq!(web.answer().status, 400);
    assert_eq!(web.until_closed().unwrap(), b"");
    // Others notice nothing.
    assert_eq!(way.connect(&tracker).get(&announce(hash(5), 1, "")).status, 200);
}
