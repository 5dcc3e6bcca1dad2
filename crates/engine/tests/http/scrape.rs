//! The counts of named torrents.

use shoal_base::InfoHash;
use shoal_config::Config;
use shoal_engine::counter::{Kind, Outcome};
use shoal_engine::refusal::Refusal;

use crate::harness::{
    HASH, Tracker, configured, counts_of, hash, leecher, named, query, seeder, v4, v6, with,
};

fn all_named(hashes: &[InfoHash]) -> String {
    hashes.iter().map(named).collect::<Vec<_>>().join("&")
}

#[test]
fn counts_are_those_of_both_families() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &seeder(1));
    tracker.announce(v4(2), &with("event=completed", &leecher(1)));
    tracker.announce(v6(1), &leecher(1));
    tracker.announce(v6(2), &with("event=completed", &leecher(1)));
    for client in [v4(9), v6(9)] {
        let reply = tracker.scrape(client, &named(&HASH));
        assert_eq!(counts_of(&reply, &HASH), Some([3, 1, 2]));
    }
    assert_eq!(tracker.replies(Kind::Scrape, Outcome::Ok), 2);
}

#[test]
fn unannounced_torrents_have_zeros() {
    let mut tracker = Tracker::new(&Config::default());
    tracker.announce(v4(1), &seeder(1));
    let reply = tracker.scrape(v4(9), &all_named(&[hash(1), HASH, hash(2)]));
    assert_eq!(counts_of(&reply, &hash(1)), Some([0, 0, 0]));
    assert_eq!(counts_of(&reply, &HASH), Some([1, 0, 0]));
    assert_eq!(reply.find("files").unwrap().dictionary().len(), 3);
    assert_eq!(tracker.store.totals()[0].swarms, 1, "a scrape creates nothing");
}

#[test]
fn every_number_of_torrents_that_a_request_holds_is_answered() {
    let mut tracker = Tracker::new(&Config::default());
    let hashes: Vec<InfoHash> = (0..260).map(|n| hash(n * 251)).collect();
    for (n, info_hash) in hashes.iter().enumerate() {
        if n % 3 == 0 {
            tracker.announce(v4(1), &query(info_hash, 1, 0));
        }
    }
    for asked in (1..=10).chain([23, 24, 25, 74, 75, 130, 200, 260]) {
        // The bencoding reader checks that keys are sorted.
        let reply = tracker.scrape(v4(9), &all_named(&hashes[..asked]));
        assert_eq!(reply.find("files").unwrap().dictionary().len(), asked);
        for (n, info_hash) in hashes[..asked].iter().enumerate() {
            assert_eq!(counts_of(&reply, info_hash), Some([i64::from(n % 3 == 0), 0, 0]), "{n} of {asked}");
        }
    }
}

#[test]
fn more_than_any_request_holds_are_left_out() {
    let mut tracker = Tracker::new(&Config::default());
    let hashes: Vec<InfoHash> = (0..2000).map(hash).collect();
    let reply = tracker.scrape(v4(9), &all_named(&hashes));
    let answered = reply.find("files").unwrap().dictionary().len();
    assert!((260..2000).contains(&answered), "{answered}");
    assert!(hashes[..answered].iter().all(|info_hash| counts_of(&reply, info_hash).is_some()), "the first");
}

#[test]
fn a_scrape_of_nothing_is_refused_unless_the_operator_allows_it() {
    let mut closed = Tracker::new(&Config::default());
    for query in ["", "x=y", "&&"] {
        assert!(!closed.http.is_full_scrape(query.as_bytes()));
        let reply = closed.scrape(v4(9), query);
        assert_eq!(reply.text("failure reason"), Refusal::FullScrapeOff.message());
    }
    assert_eq!(closed.replies(Kind::FullScrape, Outcome::Refused(Refusal::FullScrapeOff)), 3);
    let open = Tracker::new(&configured(|config| config.http.full_scrape = true));
    assert!(open.http.is_full_scrape(b"") && open.http.is_full_scrape(b"x=y"));
    assert!(!open.http.is_full_scrape(named(&HASH).as_bytes()));
    assert!(!open.http.is_full_scrape(b"info_hash=short"), "which is wrong, not all");
}
