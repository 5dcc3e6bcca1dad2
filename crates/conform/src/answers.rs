//! The rules that two or more other trackers break, and why each of them is a rule all the same.
//!
//! The suite was written for one tracker, so it may take a habit of that tracker for a rule. A rule that two
//! independent trackers break is a must or a should only if a standard says so or a client depends on it.
//!
//! The trackers were tested on 27 November 2026, over IPv4 on loopback: aquatic 0.9.0, bittorrent-tracker 10.0.12,
//! chihaya (commit 878b42e), opentracker of Debian (0.0~git20210823.110868e-3) and wt-tracker (commit fdb52ac).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Answer {
    /// One to three sentences.
    pub(crate) text: String,
    /// The names of the cases, and the trackers that break each.
    pub(crate) cases: BTreeMap<String, String>,
}

pub(crate) static ANSWERS: LazyLock<Vec<Answer>> = LazyLock::new(|| {
    let mut file: BTreeMap<String, Vec<Answer>> =
        toml::from_str(include_str!("answers.toml")).expect("the tests read the same file");
    file.remove("answer").expect("the file is a list of answers")
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ANSWERS;
    use crate::{http, udp, webtorrent};

    #[test]
    fn each_answer_is_about_cases_that_two_trackers_break() {
        let cases = udp::cases().into_iter().chain(http::cases()).chain(webtorrent::cases());
        let cases: BTreeSet<&str> = cases.map(|case| case.id).collect();
        let mut seen = BTreeSet::new();
        for (id, trackers) in ANSWERS.iter().flat_map(|answer| &answer.cases) {
            assert!(cases.contains(id.as_str()) && seen.insert(id), "{id} is unknown, or has two answers");
            assert!(trackers.contains(", "), "{id} is broken by one tracker: {trackers}");
        }
    }
}
