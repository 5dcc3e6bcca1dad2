//! Whether a run has measured a limit of the tracker, and not its speed.
//!
//! A tracker that limits what an address may do refuses the requests of a load, which has few addresses. A refusal costs it
//! little, so its rate says nothing about the tracker. The texts of the refusals tell which limit it was.

use serde::{Deserialize, Serialize};

/// Number of different texts that are counted.
const TEXTS_MAX: usize = 16;

/// If one text is more than this share of all replies, its limit was measured.
const SHARE_MIN: f64 = 0.01;

/// Refusals that are too many for a measurement of speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The text of the most frequent refusal.
    pub text: String,
    /// Its share of all replies, 0 to 1.
    pub share: f64,
    /// The limit that it probably is.
    pub probably: String,
}

/// How often the tracker refused, by text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(Vec<(Box<[u8]>, u64)>);

impl Refusals {
    /// Counts a refusal.
    pub(crate) fn count(&mut self, text: &[u8]) {
        self.add(text, 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(text, count)| self.add(text, *count));
    }

    fn add(&mut self, text: &[u8], more: u64) {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| **known == *text) {
            *count += more;
        } else if self.0.len() < TEXTS_MAX {
            self.0.push((text.into(), more));
        }
    }

    /// Returns the limit that refused a notable share of these replies, if there is one.
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
    pub(crate) fn limit(&self, replies: u64) -> Option<Limit> {
        let (text, count) = self.0.iter().max_by_key(|(_, count)| *count)?;
        let share = *count as f64 / replies.max(1) as f64;
        (share > SHARE_MIN).then(|| Limit {
            probably: probably(&String::from_utf8_lossy(text).to_lowercase()).to_owned(),
            text: crate::tally::excerpt(text),
            share,
        })
    }
}

/// Returns the limit behind a text in lower case, of any tracker.
fn probably(text: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["as many peers", "as many torrents", "too many torrents", "too many peers"]) {
        "how many peers or torrents an address may have"
    } else if has(&["connections", "status 503"]) {
        "how many connections an address may have or open"
    } else if has(&["request", "rate", "too often", "too many", "slow down", "flood", "status 429"]) {
        "how often an address may ask"
    } else if has(&["private", "address"]) {
        "which addresses are served"
    } else {
        "a rule of the tracker"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_notable_share_of_one_text_is_a_limit() {
        let mut refusals = Refusals::default();
        (0..10).for_each(|_| refusals.count(b"your address sends more requests than this tracker allows"));
        refusals.count(b"torrent not found");
        assert_eq!(refusals.limit(10_000), None);
        let limit = refusals.limit(20).unwrap();
        assert_eq!(limit.probably, "how often an address may ask");
        assert!((limit.share - 0.5).abs() < 1e-9);
        let mut all = Refusals::default();
        all.merge(&refusals);
        all.merge(&refusals);
        assert_eq!(all.limit(20).unwrap().text, limit.text);
        assert!((all.limit(20).unwrap().share - 1.0).abs() < 1e-9);
        assert_eq!(Refusals::default().limit(20), None);
    }

    #[test]
    fn texts_that_are_all_different_take_no_more_memory() {
        let mut refusals = Refusals::default();
        (0..1000_u32).for_each(|number| refusals.count(&number.to_le_bytes()));
        assert_eq!(refusals.0.len(), TEXTS_MAX);
        assert_eq!(refusals.limit(1000), None);
    }

    #[test]
    fn limits_are_known_by_their_texts() {
        for (text, probable) in [
            ("your address has as many torrents as this tracker allows", "how many peers or torrents"),
            ("status 429", "how often an address may ask"),
            ("status 503", "how many connections"),
            ("rate limit exceeded", "how often an address may ask"),
            ("private addresses are not served by this tracker", "which addresses are served"),
            ("unregistered torrent", "a rule of the tracker"),
        ] {
            assert!(probably(text).starts_with(probable), "{text}");
        }
    }
}
