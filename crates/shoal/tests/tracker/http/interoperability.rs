//! Requests of real clients that a strict reader of the specifications would not serve.

use crate::harness::Tracker;
use crate::http::{Way, over_every_way};
use crate::udp::hash;
use crate::web::{Answer, announce};

over_every_way!(
    a_client_at_port_0_is_handed_peers_and_is_not_registered,
    a_client_with_a_crypto_port_is_registered_there,
    every_path_that_ends_in_announce_or_scrape_is_served,
    unusual_request_lines_and_parameters_are_served,
    a_plus_is_a_space,
    two_hosts_are_refused,
    every_response_has_the_date_and_is_nothing_but_text,
);

fn holds(answer: &Answer, text: &[u8]) -> bool {
    answer.body.windows(text.len()).any(|window| window == text)
}

fn asked(way: Way, tracker: &Tracker, request: &[u8]) -> Answer {
    let mut web = way.connect(tracker);
    web.send(request);
    web.answer()
}

fn a_client_at_port_0_is_handed_peers_and_is_not_registered(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    web.get(&announce(hash(1), 1111, ""));
    for (port, more) in [(0, ""), (0, "&hide=1"), (2222, "&hide=1"), (0, "&event=started")] {
        let answer = web.get(&announce(hash(1), port, more));
        assert!(holds(&answer, &1111_u16.to_be_bytes()), "{}", answer.body.escape_ascii());
        assert!(holds(&answer, b"10:incompletei1e"), "{}", answer.body.escape_ascii());
    }
    web.get(&announce(hash(2), 0, ""));
    assert_eq!(tracker.metric("shoal_swarms", &[]), 1);
    assert_eq!(tracker.metric("shoal_peers", &[]), 1);
}

fn a_client_with_a_crypto_port_is_registered_there(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    web.get(&announce(hash(1), 0, "&requirecrypto=1&cryptoport=1111"));
    let answer = web.get(&announce(hash(1), 2222, ""));
    assert!(holds(&answer, &1111_u16.to_be_bytes()), "{}", answer.body.escape_ascii());
    let refused = web.get(&announce(hash(1), 0, "&cryptoport=111111"));
    assert!(holds(&refused, b"cryptoport is not a number"), "{}", refused.body.escape_ascii());
}

fn every_path_that_ends_in_announce_or_scrape_is_served(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    let query = announce(hash(1), 1111, "").split_off("/announce".len());
    for path in ["/announce/", "/announce.php", "//announce", "/key/announce", "/a/b/announce.php/"] {
        let answer = web.get(&format!("{path}{query}"));
        assert!(answer.status == 200 && answer.body.starts_with(b"d8:complete"), "{path}: {answer:?}");
    }
    for path in ["/scrape/", "/scrape.php", "//scrape", "/key/scrape"] {
        let answer = web.get(&format!("{path}{query}"));
        assert!(answer.status == 200 && answer.body.starts_with(b"d5:files"), "{path}: {answer:?}");
    }
    for path in ["/", "/announcer", "/announce/other", "/announce.html"] {
        assert_eq!(web.get(&format!("{path}{query}")).status, 404, "{path}");
    }
}

fn unusual_request_lines_and_parameters_are_served(way: Way) {
    let tracker = way.start(&[]);
    let hash = [0xfe; 20];
    let line =
        [b"GET /announce?port=1111&peer_id=&info_hash=".as_slice(), &hash, b" HTTP/1.2\r\nHost: t\r\n\r\n"]
            .concat();
    assert!(holds(&asked(way, &tracker, &line), b"10:incompletei1e"));
    let escaped = "%fe".repeat(20);
    let mut web = way.connect(&tracker);
    let stopped = web.get(&format!("/announce?info_hash={escaped}&event=stopped"));
    assert!(holds(&stopped, b"10:incompletei1e"), "{}", stopped.body.escape_ascii());
    let stopped = web.get(&format!("/announce?info_hash={escaped}&event=stopped&port=1111"));
    assert!(holds(&stopped, b"10:incompletei0e"), "{}", stopped.body.escape_ascii());
}

fn a_plus_is_a_space(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    for (port, spelling) in [(1, "+"), (2, "%20")] {
        let answer = web.get(&format!("/announce?info_hash={}&port={port}", spelling.repeat(20)));
        let count = format!("10:incompletei{port}e");
        assert!(holds(&answer, count.as_bytes()), "{}", answer.body.escape_ascii());
    }
    let other = web.get(&format!("/announce?info_hash={}&port=3", "%2B".repeat(20)));
    assert!(holds(&other, b"10:incompletei1e"), "{}", other.body.escape_ascii());
}

fn two_hosts_are_refused(way: Way) {
    let tracker = way.start(&[]);
    let mut web = way.connect(&tracker);
    let target = announce(hash(1), 1111, "");
    web.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").as_bytes());
    assert_eq!(web.answer().status, 400);
    assert_eq!(web.until_closed().unwrap(), b"");
    assert_eq!(tracker.metric("shoal_swarms", &[]), 0);
}

fn every_response_has_the_date_and_is_nothing_but_text(way: Way) {
    let tracker = way.start(&[]);
    for target in
        [announce(hash(1), 1111, ""), "/announce".to_owned(), "/nowhere".to_owned(), "/ bad".to_owned()]
    {
        let answer = way.connect(&tracker).get(&target);
        let date = answer.head.lines().find_map(|line| line.strip_prefix("date: "));
        let has_form =
            date.is_some_and(|date| date.len() == 29 && date.contains(" 20") && date.ends_with(" gmt"));
        assert!(has_form, "{target}: {}", answer.head);
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{target}: {}", answer.head);
    }
}
