//! Which pages may use the tracker.

use crate::browser::{Browser, announce};
use crate::harness::Tracker;
use crate::http::{Way, over_every_way};

over_every_way!(
    every_page_may_use_it_by_default,
    only_pages_on_the_list_may_use_it,
    pages_on_the_list_of_denials_may_not,
    clients_that_are_no_browsers_can_be_left_out,
    it_can_be_turned_off,
);

fn knock(way: Way, tracker: &Tracker, origin: Option<&str>) -> u16 {
    let fields: Vec<_> = origin.map(|origin| ("Origin", origin)).into_iter().collect();
    match Browser::knock(way.address(tracker), way.tls(), &fields) {
        Ok(mut browser) => {
            browser.ask(&announce('t', 'a', 0));
            101
        }
        Err(status) => status,
    }
}

fn upgrades(tracker: &Tracker, outcome: &str) -> u64 {
    tracker.metric("shoal_websocket_upgrades_total", &[&format!("outcome=\"{outcome}\"")])
}

fn every_page_may_use_it_by_default(way: Way) {
    let tracker = way.start(&[]);
    for origin in [None, Some("https://any.example"), Some("null")] {
        assert_eq!(knock(way, &tracker, origin), 101, "{origin:?}");
    }
}

fn only_pages_on_the_list_may_use_it(way: Way) {
    let tracker = way.start(&[("SHOAL_WEBTORRENT_ORIGINS_ALLOW", "https://a.example,http://localhost:8080")]);
    for (origin, status) in [
        (None, 101),
        (Some("https://a.example"), 101),
        (Some("http://localhost:8080"), 101),
        (Some("http://a.example"), 403),
        (Some("https://a.example.org"), 403),
        (Some("https://b.example"), 403),
        (Some("null"), 403),
    ] {
        assert_eq!(knock(way, &tracker, origin), status, "{origin:?}");
    }
    assert_eq!((upgrades(&tracker, "accepted"), upgrades(&tracker, "origin")), (3, 4));
}

fn pages_on_the_list_of_denials_may_not(way: Way) {
    let tracker = way.start(&[("SHOAL_WEBTORRENT_ORIGINS_DENY", "https://thief.example")]);
    for (origin, status) in
        [(None, 101), (Some("https://a.example"), 101), (Some("https://thief.example"), 403)]
    {
        assert_eq!(knock(way, &tracker, origin), status, "{origin:?}");
    }
}

fn clients_that_are_no_browsers_can_be_left_out(way: Way) {
    let tracker = way.start(&[("SHOAL_WEBTORRENT_ORIGIN_MISSING", "false")]);
    for (origin, status) in [(None, 403), (Some("https://a.example"), 101)] {
        assert_eq!(knock(way, &tracker, origin), status, "{origin:?}");
    }
}

fn it_can_be_turned_off(way: Way) {
    let tracker = way.start(&[("SHOAL_WEBTORRENT_ENABLED", "false")]);
    assert_eq!(knock(way, &tracker, None), 404);
    assert_eq!(upgrades(&tracker, "not_served"), 1);
}
