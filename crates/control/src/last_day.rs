//! Requests of the last 24 hours, by protocol and family.
//!
//! Workers count since their start, and nothing else. Every quarter of an hour, a task of the control plane marks these
//! counts. The counts of the last day are the present ones without those of the oldest mark that is not older than a day, so
//! they cover 23 hours and three quarters at least, if the tracker has run for so long. 96 marks take 20 KB.
//!
//! A new process counts from 0. It takes over the marks without the last counts of the old process, by arithmetic that
//! wraps: then the differences between its own counts and these marks include the requests of both processes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use shoal_engine::suspension::Part;
use utoipa::ToSchema;

use crate::stats::Traffic;

/// The time between two marks, and the time that they cover.
const STEP_S: u64 = 900;
const DAY_S: u64 = 86_400;

/// Counts of each protocol and family, in the order of [`Part::all`]: announces, scrapes, replies, and refusals.
pub(crate) type DayCounts = Vec<[u64; 4]>;

/// The counts at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    unix_s: u64,
    counts: DayCounts,
}

/// The marks of the last day, the oldest first.
#[derive(Debug, Default)]
pub struct LastDay(VecDeque<Mark>);

/// The requests of the last 24 hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DayStats {
    /// Since when these counts are complete, in seconds since 1970: at most 24 hours ago, and less if the tracker has not run
    /// for so long. An upgrade is no interruption.
    pub since_unix_s: u64,
    /// Each protocol and family.
    pub traffic: Vec<DayTraffic>,
}

/// The requests of the last 24 hours over one protocol and family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DayTraffic {
    /// `udp`, `http` or `webtorrent`.
    pub protocol: String,
    /// `v4` or `v6`.
    pub family: String,
    /// Announces.
    pub announces: u64,
    /// Scrapes, those of all torrents as well.
    pub scrapes: u64,
    /// Replies to requests of all kinds with the requested result.
    pub ok: u64,
    /// Error replies to requests of all kinds.
    pub refused: u64,
}

/// Returns the counts since the start, for the marks.
pub(crate) fn counts(traffic: &[Traffic]) -> DayCounts {
    let of_kind = |row: &Traffic, kind: &str| row.requests.get(kind).copied().unwrap_or(0);
    let of_row = |row: &Traffic| {
        let scrapes = of_kind(row, "scrape") + of_kind(row, "full_scrape");
        [of_kind(row, "announce"), scrapes, row.ok, row.refused]
    };
    traffic.iter().map(of_row).collect()
}

impl LastDay {
    /// Creates the counts of a tracker that starts now, or continues with the marks of another process.
    pub fn new(now_unix_s: u64, carried: Vec<Mark>) -> Self {
        let is_known = |mark: &Mark| mark.counts.len() == Part::all().count();
        let marks: VecDeque<Mark> = carried.into_iter().filter(is_known).collect();
        if !marks.is_empty() {
            return Self(marks);
        }
        let counts = Part::all().map(|_| [0; 4]).collect();
        Self([Mark { unix_s: now_unix_s, counts }].into())
    }

    /// Marks the present counts if a mark is due, and forgets marks that are older than a day.
    pub(crate) fn mark(&mut self, now_unix_s: u64, counts: impl FnOnce() -> DayCounts) {
        // Marks of the future are from before the clock was set back.
        self.0.retain(|mark| mark.unix_s <= now_unix_s && now_unix_s - mark.unix_s <= DAY_S);
        if self.0.back().is_none_or(|mark| now_unix_s - mark.unix_s >= STEP_S) {
            self.0.push_back(Mark { unix_s: now_unix_s, counts: counts() });
        }
    }

    /// Returns the marks for a process that counts from 0.
    pub(crate) fn carried(&self, now: &DayCounts) -> Vec<Mark> {
        let carried = |mark: &Mark| Mark { unix_s: mark.unix_s, counts: differences(&mark.counts, now) };
        self.0.iter().map(carried).collect()
    }

    /// Returns the requests since the oldest mark.
    pub(crate) fn stats(&self, now: &DayCounts) -> DayStats {
        let Some(oldest) = self.0.front() else { return DayStats::default() };
        let rows = Part::all().zip(differences(now, &oldest.counts));
        let traffic = rows.map(|(part, [announces, scrapes, ok, refused])| DayTraffic {
            protocol: part.protocol.name().to_owned(),
            family: part.family.name().to_owned(),
            announces,
            scrapes,
            ok,
            refused,
        });
        DayStats { since_unix_s: oldest.unix_s, traffic: traffic.collect() }
    }
}

/// Returns the first counts without the second ones.
fn differences(counts: &DayCounts, others: &DayCounts) -> DayCounts {
    let difference = |(counts, others): (&[u64; 4], &[u64; 4])| {
        core::array::from_fn(|index| counts[index].wrapping_sub(others[index]))
    };
    counts.iter().zip(others).map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns counts of which each is larger than the one before.
    fn counts(announces: u64) -> DayCounts {
        (0..6).map(|row| [announces + row, announces / 2, announces, 1]).collect()
    }

    fn announces(day: &LastDay, now: u64) -> (u64, Vec<u64>) {
        let DayStats { since_unix_s, traffic } = day.stats(&counts(now));
        (since_unix_s, traffic.iter().map(|row| row.announces).collect())
    }

    #[test]
    fn a_day_covers_24_hours_at_most_and_nearly_all_of_them() {
        let mut day = LastDay::new(1000, Vec::new());
        for now_s in (1000..1000 + 3 * DAY_S).step_by(5) {
            day.mark(now_s, || counts(now_s));
            assert!(day.0.len() <= 97, "{}", day.0.len());
            let (since_s, rows) = announces(&day, now_s);
            let age_s = now_s - since_s;
            assert!(age_s <= DAY_S && age_s + STEP_S >= DAY_S.min(now_s - 1000), "{age_s}");
            if now_s > 1000 + DAY_S {
                assert_eq!(rows, [age_s; 6]);
            }
        }
    }

    #[test]
    fn a_new_process_goes_on_with_the_day_of_the_old_one() {
        let mut old = LastDay::new(1000, Vec::new());
        old.mark(2000, || counts(50));
        let mut new = LastDay::new(9000, old.carried(&counts(80)));
        // The old process has served 80 announces and more, and the new one 7.
        let (since_s, rows) = announces(&new, 7);
        assert_eq!((since_s, rows[0]), (1000, 87));
        new.mark(1000 + DAY_S + 1, || counts(9));
        let (since_s, rows) = announces(&new, 20);
        // In the first row, these are 30 of the old process and 20 of the new one.
        assert_eq!((since_s, rows), (2000, (50..56).collect()));
    }

    #[test]
    fn a_clock_that_is_set_back_or_forward_leaves_whole_counts() {
        let mut day = LastDay::new(10_000, Vec::new());
        day.mark(11_000, || counts(5));
        day.mark(500, || counts(8));
        assert_eq!(announces(&day, 9), (500, vec![1; 6]));
        day.mark(10 * DAY_S, || counts(20));
        assert_eq!(announces(&day, 21), (10 * DAY_S, vec![1; 6]));
        assert_eq!(LastDay::new(7, vec![Mark { unix_s: 1, counts: vec![[1; 4]] }]).0[0].unix_s, 7);
    }
}
