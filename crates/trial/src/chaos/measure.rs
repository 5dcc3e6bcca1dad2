//! The figures of an event, from the records of the requests around it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::chaos::record::{Lane, Ledger, Outcome, Record};
use crate::chaos::result::{LaneResult, Latency, WebSocketEnd, WebSocketResult};
use crate::measure::percentile;

/// The time around an event, in nanoseconds since the load began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The requests that were due from here on belong to the event.
    pub began_ns: u64,
    /// The event begins.
    pub acted_ns: u64,
    /// The tracker has done what was asked of it.
    pub done_ns: u64,
    /// Requests that were due from here on do not belong to the event.
    pub ended_ns: u64,
}

impl Window {
    fn contains(&self, ns: u64) -> bool {
        (self.began_ns..self.ended_ns).contains(&ns)
    }
}

/// Returns the figures of a lane.
pub fn lane(lane: Lane, ledger: &Ledger, window: &Window, timeout: Duration) -> LaneResult {
    let due = || ledger.iter().filter(|record| window.contains(record.due_ns));
    let count = |counts: &dyn Fn(&Record) -> bool| due().filter(|record| counts(record)).count() as u64;
    let is_answered = |record: &Record| record.is_answered_within(timeout);
    let lost_by = |outcome: Outcome| count(&|record| record.answers == 0 && record.outcome == outcome);
    let (requests, answered) = (count(&|_| true), count(&is_answered));
    let latency = |from_ns: u64, to_ns: u64| {
        let answered = due().filter(|record| is_answered(record));
        latency(answered.filter(|record| (from_ns..to_ns).contains(&record.due_ns)))
    };
    LaneResult {
        lane,
        requests,
        answered,
        lost: requests - answered,
        doubled: count(&|record| record.answers > 1),
        refused: count(&|record| record.outcome == Outcome::Refused),
        connect_refused: lost_by(Outcome::ConnectRefused),
        reset: lost_by(Outcome::Reset),
        closed: lost_by(Outcome::Closed),
        gap_ms: milliseconds(longest_gap_ns(ledger, window)),
        before: latency(window.began_ns, window.acted_ns),
        during: latency(window.acted_ns, window.done_ns),
        after: latency(window.done_ns, window.ended_ns),
    }
}

/// Returns when the first request was due, from `since_ns` on, that was answered.
pub fn first_answered_ns(ledgers: &[(Lane, Ledger)], since_ns: u64) -> Option<u64> {
    let records = ledgers.iter().flat_map(|(_, ledger)| ledger.iter());
    records.filter(|record| record.due_ns >= since_ns).filter_map(Record::answered_ns).min()
}

/// Returns the WebSockets that ended around an event.
pub fn websockets(ends: &[WebSocketEnd], window: &Window) -> WebSocketResult {
    let ends: Vec<&WebSocketEnd> = ends.iter().filter(|end| window.contains(end.at_ns)).collect();
    let mut codes = BTreeMap::new();
    for end in &ends {
        let code = end.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        *codes.entry(code).or_insert(0) += 1;
    }
    let times = || ends.iter().map(|end| end.at_ns);
    let spread_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
    WebSocketResult { ended: ends.len(), codes, spread_ms: milliseconds(spread_ns) }
}

/// Returns the answers in each of `buckets` equal parts of a window.
pub fn answers_over_time(ledger: &Ledger, window: &Window, buckets: usize) -> Vec<u64> {
    let mut answers = vec![0; buckets];
    let length_ns = u128::from(window.ended_ns - window.began_ns).max(1);
    let times = ledger.iter().filter_map(Record::answered_ns).filter(|ns| window.contains(*ns));
    for ns in times {
        let bucket = u128::from(ns - window.began_ns) * buckets as u128 / length_ns;
        answers[usize::try_from(bucket).unwrap_or(0).min(buckets - 1)] += 1;
    }
    answers
}

/// Converts nanoseconds to milliseconds.
pub fn milliseconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64() * 1000.0
}

/// Returns the longest time without an answer between two answers of which one is in the window, or between the last one
/// and the end of the window if none follows.
fn longest_gap_ns(ledger: &Ledger, window: &Window) -> u64 {
    let mut times: Vec<u64> =
        ledger.iter().filter_map(Record::answered_ns).filter(|ns| window.contains(*ns)).collect();
    times.sort_unstable();
    let edges = [window.began_ns].into_iter().chain(times).chain([window.ended_ns]);
    let edges: Vec<u64> = edges.collect();
    edges.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

fn latency<'r>(records: impl Iterator<Item = &'r Record>) -> Latency {
    let mut latencies_us: Vec<u32> = records.map(|record| record.latency_us).collect();
    latencies_us.sort_unstable();
    let at = |percent| percentile(&latencies_us, percent);
    Latency { answers: latencies_us.len() as u64, p50_us: at(50), p99_us: at(99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WINDOW: Window =
        Window { began_ns: 100 * MS, acted_ns: 200 * MS, done_ns: 300 * MS, ended_ns: 400 * MS };

    /// Returns a request each millisecond for half a second. `answers` returns the number of answers of each.
    fn ledger(answers: impl Fn(u64) -> u8) -> Ledger {
        let mut ledger = Ledger::default();
        for ms in 0..500 {
            let number = ledger.push(ms * MS).unwrap();
            (0..answers(ms)).for_each(|_| _ = ledger.answer(number, ms * MS + 200_000, Outcome::Answered));
        }
        ledger
    }

    #[test]
    fn requests_of_the_window_are_counted_exactly() {
        let mut ledger = ledger(|ms| match ms {
            50 | 210..=219 | 450 => 0,
            60 | 120 | 330 | 470 => 2,
            _ => 1,
        });
        ledger.fail(211, Outcome::Reset);
        ledger.fail(212, Outcome::ConnectRefused);
        let lane = lane(Lane::Udp, &ledger, &WINDOW, Duration::from_secs(1));
        assert_eq!((lane.requests, lane.answered, lane.lost, lane.doubled), (300, 290, 10, 2));
        assert_eq!((lane.reset, lane.connect_refused, lane.closed, lane.refused), (1, 1, 0, 0));
        assert_eq!((lane.before.answers, lane.during.answers, lane.after.answers), (100, 90, 100));
        assert_eq!((lane.during.p50_us, lane.during.p99_us), (200, 200));
        assert!((lane.gap_ms - 11.0).abs() < 1e-9, "{}", lane.gap_ms);
    }

    #[test]
    fn a_late_answer_is_a_lost_request() {
        let mut ledger = Ledger::default();
        for _ in 0..2 {
            ledger.push(150 * MS).unwrap();
        }
        ledger.answer(0, 250 * MS, Outcome::Refused);
        ledger.answer(1, 251 * MS, Outcome::Answered);
        let lane = lane(Lane::Udp, &ledger, &WINDOW, Duration::from_millis(100));
        assert_eq!((lane.answered, lane.lost, lane.refused), (1, 1, 1));
    }

    #[test]
    fn silence_at_the_end_is_a_gap() {
        let ledger = ledger(|ms| u8::from(ms < 250));
        let gap_ms = lane(Lane::Udp, &ledger, &WINDOW, Duration::from_secs(1)).gap_ms;
        assert!((gap_ms - 150.8).abs() < 1e-9, "{gap_ms}");
        assert_eq!(first_answered_ns(&[(Lane::Udp, ledger)], 249 * MS), Some(249 * MS + 200_000));
        let over_time = answers_over_time(&self::ledger(|ms| u8::from(ms < 250)), &WINDOW, 3);
        assert_eq!(over_time, [100, 50, 0]);
    }

    #[test]
    fn ends_of_websockets_are_counted_by_code() {
        let end = |ms: u64, code| WebSocketEnd { at_ns: ms * MS, code };
        let ends = [end(50, None), end(200, Some(1012)), end(250, Some(1012)), end(210, None)];
        let result = websockets(&ends, &WINDOW);
        assert_eq!((result.ended, result.codes["1012"], result.codes["none"]), (3, 2, 1));
        assert!((result.spread_ms - 50.0).abs() < 1e-9);
        assert_eq!(websockets(&[], &WINDOW).ended, 0);
    }
}
