//! The record of each request: when it was due, when it was answered, how often, and what went wrong.
//!
//! A lane keeps nothing but these records, 16 bytes for each request.

use std::time::Duration;

use serde::Serialize;

/// Most requests of a lane. Their records take a GiB.
pub const RECORDS_MAX: usize = 1 << 26;

/// Records of a chunk. A ledger grows by chunks, so that it never copies and never pauses the load.
const CHUNK: usize = 1 << 15;

/// The way in which requests are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Datagrams (BEP 15).
    Udp,
    /// HTTP on connections that stay open (BEP 3).
    HttpKeepAlive,
    /// HTTP with a connection for each request.
    HttpConnections,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// It has no answer.
    #[default]
    Unanswered,
    /// It has a good one.
    Answered,
    /// It was refused with an error reply.
    Refused,
    /// The connection was refused.
    ConnectRefused,
    /// The connection was reset before the answer was complete.
    Reset,
    /// The tracker closed the connection before the answer was complete.
    Closed,
}

/// A request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was due, in nanoseconds since the load began. It may have been sent later, but never earlier.
    pub due_ns: u64,
    /// The time from then to its first answer, in microseconds.
    pub latency_us: u32,
    /// The number of answers.
    pub answers: u8,
    /// Its end.
    pub outcome: Outcome,
}

/// The records of a lane, in the order in which they were due.
#[derive(Debug, Default)]
pub struct Ledger {
    chunks: Vec<Vec<Record>>,
    /// Replies to no request of the load, or that cannot be parsed.
    pub malformed: u64,
    /// The longest time after a request was due until the load came to it, in nanoseconds.
    pub latest_ns: u64,
}

impl Record {
    /// Returns when the first answer came, if one came.
    pub fn answered_ns(&self) -> Option<u64> {
        (self.answers > 0).then(|| self.due_ns.saturating_add(u64::from(self.latency_us) * 1000))
    }

    /// Returns whether it has had an answer within `timeout`, even if that is a refusal.
    pub fn is_answered_within(&self, timeout: Duration) -> bool {
        self.answers > 0 && u128::from(self.latency_us) <= timeout.as_micros()
    }
}

impl Ledger {
    /// Adds a request and returns its number, or `None` if there are [`RECORDS_MAX`] already.
    pub fn push(&mut self, due_ns: u64) -> Option<u32> {
        let number = self.len();
        if number >= RECORDS_MAX {
            return None;
        }
        if number.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut()?.push(Record { due_ns, ..Record::default() });
        u32::try_from(number).ok()
    }

    /// Returns a request by its number.
    pub fn find(&mut self, number: u32) -> Option<&mut Record> {
        let number = usize::try_from(number).ok()?;
        self.chunks.get_mut(number / CHUNK)?.get_mut(number % CHUNK)
    }

    /// Records an answer to a request, and returns the request, or `None` if there is no such request.
    pub fn answer(&mut self, number: u32, now_ns: u64, outcome: Outcome) -> Option<Record> {
        let record = self.find(number)?;
        if record.answers == 0 {
            let latency_us = now_ns.saturating_sub(record.due_ns) / 1000;
            record.latency_us = u32::try_from(latency_us).unwrap_or(u32::MAX);
            record.outcome = outcome;
        }
        record.answers = record.answers.saturating_add(1);
        Some(*record)
    }

    /// Records that a request will stay without an answer.
    pub fn fail(&mut self, number: u32, outcome: Outcome) {
        if let Some(record) = self.find(number).filter(|record| record.answers == 0) {
            record.outcome = outcome;
        }
    }

    /// Records when the load came to a request that was due.
    pub fn sent(&mut self, due_ns: u64, now_ns: u64) {
        self.latest_ns = self.latest_ns.max(now_ns.saturating_sub(due_ns));
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Returns whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns all requests.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.chunks.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_and_the_first_one_sets_the_latency() {
        let mut ledger = Ledger::default();
        let numbers: Vec<u32> = (0..2 * CHUNK as u64 + 1).map(|due| ledger.push(due).unwrap()).collect();
        let second_chunk = numbers[CHUNK];
        assert_eq!((ledger.len(), second_chunk as usize), (2 * CHUNK + 1, CHUNK));
        assert!(ledger.answer(second_chunk, 50_000 + CHUNK as u64, Outcome::Answered).is_some());
        assert!(ledger.answer(second_chunk, 90_000_000, Outcome::Refused).is_some());
        let none = ledger.answer(numbers[2 * CHUNK] + 1, 0, Outcome::Answered);
        assert_eq!(none, None, "there is no such request");
        let record = *ledger.find(second_chunk).unwrap();
        assert_eq!((record.answers, record.latency_us, record.outcome), (2, 50, Outcome::Answered));
        assert!(record.is_answered_within(Duration::from_micros(50)));
        assert!(!record.is_answered_within(Duration::from_micros(49)));
        ledger.fail(0, Outcome::Reset);
        ledger.fail(second_chunk, Outcome::Reset);
        let outcomes: Vec<Outcome> = ledger.iter().map(|record| record.outcome).collect();
        assert_eq!((outcomes[0], outcomes[CHUNK]), (Outcome::Reset, Outcome::Answered));
    }
}
