//! The counts of torrents.

use crate::harness::{Tracker, failure};
use shoal_config::Config;

fn file(info_hash: &str, [complete, incomplete, downloaded]: [u32; 3]) -> String {
    format!(r#""{info_hash}":{{"complete":{complete},"incomplete":{incomplete},"downloaded":{downloaded}}}"#)
}

fn files(files: &[String]) -> String {
    format!(r#"{{"action":"scrape","files":{{{}}}}}"#, files.join(","))
}

#[test]
fn a_scrape_of_all_torrents_is_refused() {
    let mut tracker = Tracker::new(&Config::default());
    let mut client = tracker.newcomer();
    let refused = failure(
        "scrape",
        None,
        "this tracker answers a scrape for the torrents that it names by info_hash only",
    );
    for message in [r#"{"action":"scrape"}"#, r#"{"action":"scrape","info_hash":[]}"#] {
        assert_eq!(tracker.ask(&mut client, message), [refused.as_str()], "{message}");
    }
}

#[test]
fn a_scrape_is_answered_for_74_torrents() {
    let mut tracker = Tracker::new(&Config::default());
    let mut client = tracker.newcomer();
    let hashes: Vec<String> = ('a'..).take(75).map(|byte| byte.to_string().repeat(20)).collect();
    let all = format!(r#"{{"action":"scrape","info_hash":["{}"]}}"#, hashes.join("\",\""));
    let expected: Vec<String> = hashes[..74].iter().map(|hash| file(hash, [0; 3])).collect();
    assert_eq!(tracker.ask(&mut client, &all), [files(&expected)]);
}
