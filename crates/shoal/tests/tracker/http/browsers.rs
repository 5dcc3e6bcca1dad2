//! Web pages that have their visitors announce.

use crate::http::{Way, over_every_way};
use crate::kit::web::announce;
use crate::udp::hash;

over_every_way!(pages_of_other_sites_cannot_announce_their_visitors, the_operator_may_serve_them);

fn knock(way: Way, tracker: &crate::kit::harness::Tracker, fields: &str) -> crate::kit::web::Answer {
    let mut web = way.connect(tracker);
    web.send(format!("GET {} HTTP/1.1\r\nHost: t\r\n{fields}\r\n", announce(hash(1), 1111, "")).as_bytes());
    web.answer()
}

/// The fields that browsers send for an image, a link, a form and a script.
const CROSS_SITE: [&str; 4] = [
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nSec-Fetch-User: ?1\r\n",
    "Origin: https://page.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n",
    "Origin: http://page.example\r\n",
];

fn pages_of_other_sites_cannot_announce_their_visitors(way: Way) {
    let tracker = way.start(&[]);
    for fields in CROSS_SITE {
        let answer = knock(way, &tracker, fields);
        assert_eq!(answer.status, 403, "{fields}");
        assert!(answer.body.starts_with(b"d14:failure reason"), "{}", answer.body.escape_ascii());
    }
    assert_eq!(tracker.metric("shoal_swarms", &[]), 0);
    let refused = ["protocol=\"http\"", "outcome=\"cross_site\""];
    assert_eq!(tracker.metric("shoal_replies_total", &refused), 4);
    for fields in ["", "Sec-Fetch-Mode: cors\r\n", "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n"] {
        assert_eq!(knock(way, &tracker, fields).status, 200, "{fields}");
    }
    assert_eq!(tracker.metric("shoal_swarms", &[]), 1);
}

fn the_operator_may_serve_them(way: Way) {
    let tracker = way.start(&[("SHOAL_HTTP_CROSS_SITE", "true")]);
    for fields in CROSS_SITE {
        assert_eq!(knock(way, &tracker, fields).status, 200, "{fields}");
    }
}
