//! Refused requests: the text for the client, and the counts for the operator.

use shoal_config::Config;
use shoal_engine::counter::{Family, Kind, Outcome};
use shoal_engine::refusal::Refusal;

use crate::bencode::Value;
use crate::harness::{
    FAMILIES, HASH, Tracker, configured, hash, leecher, named, query, seeder, store_settings, url, v4, v6,
};

#[test]
fn a_nearly_full_store_refuses_the_source_that_fills_it_and_serves_others() {
    let store = shoal_store::Settings { memory_bytes_max: 4 << 20, ..store_settings() };
    let mut tracker = Tracker::with_store(&Config::default(), &store);
    tracker.announce(v4(1), &seeder(1));
    let mut refused = None;
    for n in 0..2_000_000_u32 {
        let mut info_hash = hash(0);
        info_hash.0[10..14].copy_from_slice(&n.to_be_bytes());
        let reply = tracker.ask(v4(2), &query(&info_hash, 1, 1));
        if reply.find("failure reason").is_some() {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("4 MiB fill up");
    assert_eq!(refused.text("failure reason"), Refusal::SourceOverShare.message());
    // BEP 31, in minutes.
    assert!((1..=60).contains(&refused.integer("retry in")));
    assert_eq!(tracker.replies(Kind::Announce, Outcome::Refused(Refusal::SourceOverShare)), 1);
    assert_eq!(tracker.announce(v4(1), &seeder(1)).complete, 1);
    for n in 0..200 {
        let mut info_hash = hash(1);
        info_hash.0[10..14].copy_from_slice(&[9, 9, 9, n]);
        let reply = tracker.ask(v4(1), &query(&info_hash, 1, 1));
        assert_eq!(reply.find("failure reason"), None, "a new torrent of another source");
    }
}

#[test]
fn a_full_store_says_when_to_come_again() {
    let store = shoal_store::Settings { memory_bytes_max: 4 << 20, ..store_settings() };
    let mut tracker = Tracker::with_store(&Config::default(), &store);
    let refused = (0..2_000_000_u32).find_map(|n| {
        let mut info_hash = hash(0);
        info_hash.0[10..14].copy_from_slice(&n.to_be_bytes());
        let ip = core::net::Ipv4Addr::from_bits((77 << 24) + n);
        let reply = tracker.ask(ip.into(), &query(&info_hash, 1, 1));
        reply.find("failure reason").is_some().then_some(reply)
    });
    let refused = refused.expect("4 MiB fill up");
    assert_eq!(refused.text("failure reason"), "the tracker is full, try again later");
    // BEP 31, in minutes.
    assert!((1..=60).contains(&refused.integer("retry in")));
    assert_eq!(tracker.replies(Kind::Announce, Outcome::Refused(Refusal::StoreFull)), 1);
}

#[test]
fn refusals_from_outside_are_counted_and_told() {
    let mut tracker = Tracker::new(&Config::default());
    let mut refuse = |ip, refusal| {
        let mut body = Vec::new();
        tracker.http.refuse(ip, refusal, &mut body);
        Value::read(&body)
    };
    let reply = refuse(Some(v6(1)), Refusal::ProxyWithoutClient);
    assert_eq!(reply.text("failure reason"), Refusal::ProxyWithoutClient.message());
    refuse(None, Refusal::ProxyWithoutClient);
    let reply = refuse(Some(v4(1)), Refusal::TooManyScrapes);
    assert!((1..=60).contains(&reply.integer("retry in")));
    let without_client = Outcome::Refused(Refusal::ProxyWithoutClient);
    assert_eq!(tracker.counters.replies(Family::V6, Kind::Other, without_client), 1);
    assert_eq!(tracker.counters.replies(Family::V4, Kind::Other, without_client), 1);
    assert_eq!(tracker.replies(Kind::FullScrape, Outcome::Refused(Refusal::TooManyScrapes)), 1);
    assert_eq!(tracker.requests(Kind::FullScrape), 1);
}

#[test]
fn a_query_that_cannot_be_understood_is_answered_with_what_is_wrong() {
    let cases = [
        (String::new(), "info_hash is missing"),
        ("info_hash=short&port=1".to_owned(), "info_hash is not 20 bytes long"),
        (format!("{}&port=65536", named(&HASH)), "port is not a number from 0 to 65535"),
    ];
    let mut tracker = Tracker::new(&Config::default());
    for (query, words) in &cases {
        for client in FAMILIES {
            assert_eq!(tracker.refusal(client(1), query), *words, "{query}");
        }
    }
    let refused = Outcome::Refused(Refusal::BadQuery);
    assert_eq!(tracker.replies(Kind::Announce, refused), 2 * cases.len() as u64);
    assert_eq!(tracker.requests(Kind::Announce), 2 * cases.len() as u64);
    assert_eq!(tracker.store.totals()[0].swarms, 0);
}

#[test]
fn a_scrape_with_one_wrong_hash_is_refused_as_a_whole() {
    let mut tracker = Tracker::new(&Config::default());
    let reply = tracker.scrape(v4(1), &format!("{}&info_hash=short", named(&HASH)));
    assert_eq!(reply.text("failure reason"), "info_hash is not 20 bytes long");
    assert_eq!(tracker.replies(Kind::Scrape, Outcome::Refused(Refusal::BadQuery)), 1);
}

#[test]
fn a_source_that_asks_too_often_is_told_when_to_come_again() {
    let mut tracker = Tracker::new(&configured(|config| {
        config.limits.http_requests_per_s = 1;
        config.limits.burst_s = 2;
        config.http.full_scrape = true;
    }));
    for client in FAMILIES {
        tracker.announce(client(1), &leecher(1));
        tracker.scrape(client(1), &named(&HASH)).find("files").expect("the second request is served");
        let mut announce = || tracker.ask(client(1), &leecher(1));
        for refused in [announce(), tracker.scrape(client(1), &named(&HASH))] {
            assert_eq!(refused.text("failure reason"), Refusal::RateLimited.message());
            // BEP 31, in minutes.
            assert_eq!(refused.integer("retry in"), 1);
        }
        assert_eq!(
            tracker.http.admit_full_scrape(client(1), url(""), tracker.now),
            Err(Refusal::RateLimited.into())
        );
    }
    let refused = Outcome::Refused(Refusal::RateLimited);
    assert_eq!(tracker.replies(Kind::Announce, refused) + tracker.replies(Kind::Scrape, refused), 4);
    tracker.now.monotonic_ms += 1000;
    tracker.announce(v4(1), &leecher(1));
    // The limit is not that of UDP.
    tracker.announce_udp(v4(1), 1, 1);
}
