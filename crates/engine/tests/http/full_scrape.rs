//! The counts of all torrents, in pieces.

use shoal_config::Config;
use shoal_engine::counter::{Kind, Outcome};
use shoal_wire::http::reply::ScrapeFormat;

use crate::bencode::Value;
use crate::harness::{Tracker, configured, counts_of, hash, query, v4, v6};

const PIECE_BYTES_MAX: usize = 100 << 10;

fn open() -> Config {
    configured(|config| config.http.full_scrape = true)
}

/// Returns all pieces together; `meanwhile` runs before each.
fn whole(tracker: &mut Tracker, mut meanwhile: impl FnMut(&mut Tracker)) -> (Value, usize) {
    let mut scrape = tracker.http.begin_full_scrape(v4(9), ScrapeFormat::Bencoded);
    let (mut body, mut pieces) = (Vec::new(), 0);
    loop {
        meanwhile(tracker);
        let before = body.len();
        let has_more = scrape.next(&tracker.http, &mut body);
        pieces += 1;
        assert!(body.len() - before <= PIECE_BYTES_MAX, "a piece is bounded");
        if !has_more {
            // The list is in the order of the keyed hash: it is too long to be sorted.
            return (Value::read_any_order(&body, false), pieces);
        }
    }
}

#[test]
fn an_empty_tracker_has_an_empty_list() {
    let mut tracker = Tracker::new(&open());
    let (reply, pieces) = whole(&mut tracker, |_| ());
    assert!(reply.find("files").unwrap().dictionary().is_empty());
    assert_eq!(pieces, 1);
    assert_eq!(tracker.requests(Kind::FullScrape), 1);
    assert_eq!(tracker.replies(Kind::FullScrape, Outcome::Ok), 1);
}

#[test]
fn every_torrent_is_there_once_with_the_counts_of_both_families() {
    for torrents in [1, 40, 6000] {
        let mut tracker = Tracker::new(&open());
        for n in 0..torrents {
            if n % 3 != 1 {
                tracker.announce(v4(1), &query(&hash(n), 1, 0));
            }
            if n % 3 != 0 {
                tracker.announce(v6(1), &query(&hash(n), 1, 5));
            }
        }
        let (reply, pieces) = whole(&mut tracker, |_| ());
        assert_eq!(reply.find("files").unwrap().dictionary().len(), usize::from(torrents));
        for n in 0..torrents {
            let expected = [i64::from(n % 3 != 1), i64::from(n % 3 != 0), 0];
            assert_eq!(counts_of(&reply, &hash(n)), Some(expected), "torrent {n}");
        }
        assert_eq!(pieces > 5, torrents == 6000, "{pieces} pieces");
    }
}

#[test]
fn a_list_may_be_read_while_the_tracker_goes_on() {
    let mut tracker = Tracker::new(&open());
    (0..3000).for_each(|n| _ = tracker.announce(v4(1), &query(&hash(n), 1, 0)));
    let mut next = 3000;
    let (reply, _) = whole(&mut tracker, |tracker| {
        (next..next + 700).for_each(|n| _ = tracker.announce(v6(1), &query(&hash(n), 1, 0)));
        next += 700;
    });
    assert!((0..3000).all(|n| counts_of(&reply, &hash(n)) == Some([1, 0, 0])));
}
