//! The counts of one worker, and the report over all workers.

use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::CpuTime;
use crate::limit::Refusals;
use crate::population::{Swarm, unregistered};
use crate::report::{
    Bottleneck, ConnectionFailures, Connections, Kinds, LatencySummary, Percentile, Relays, Report,
    SCHEMA_VERSION, WrongRelays, WrongReplies,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Connect,
    Announce,
    Scrape,
}

/// The counts of one worker in one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: Kinds,
    pub(crate) responses: Kinds,
    /// Good replies that came before the end of the run. Later ones do not count for the throughput.
    pub(crate) responses_in_time: u64,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    pub(crate) receive_drops: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) refusals: Refusals,
    pub(crate) wrong: WrongReplies,
    pub(crate) own_address_tolerated: u64,
    pub(crate) send_failures: u64,
    pub(crate) peers: u64,
    pub(crate) announce_reply_bytes: u64,
    /// Only for protocols over connections.
    pub(crate) connections: Option<Connections>,
    /// Only for WebTorrent.
    pub(crate) relays: Option<Relays>,
    /// Relayed messages that came before the end of the run.
    pub(crate) messages_in_time: u64,
    /// The swarm of each torrent, only while the tracker is filled.
    pub(crate) swarms: Vec<Swarm>,
    pub(crate) latency: Durations,
    pub(crate) send_delay: Durations,
    pub(crate) setup: Durations,
    pub(crate) offer_latency: Durations,
    pub(crate) answer_latency: Durations,
    pub(crate) elapsed: Duration,
    pub(crate) cpu: CpuTime,
    pub(crate) ended_early: bool,
    pub(crate) failure: Option<String>,
}

/// Latencies and delays in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Durations(Histogram<u64>);

/// Latencies are recorded with three digits, from 1 ns to this: a day.
const LATENCY_NS_MAX: u64 = 86_400_000_000_000;

/// If the busiest worker of a closed loop is busy for more than this share of the time, the generator was the limit.
const BUSY_SHARE_MAX: f64 = 0.9;

/// The share means nothing in a shorter run.
const BUSY_ELAPSED_MIN: Duration = Duration::from_millis(100);

/// If the sockets of the generator dropped more than this share of the good replies, the generator was the limit.
const DROPS_SHARE_MAX: f64 = 0.01;

/// If the generator repeated more than this share of the requests, it was the limit.
const REPEATED_SHARE_MAX: f64 = 0.01;

/// If one request in a hundred of an open loop left later than this, and later than this share of the latency, the
/// generator was the limit.
const SEND_DELAY_US_MAX: f64 = 200.0;
const SEND_DELAY_SHARE_MAX: f64 = 0.5;

impl Tally {
    /// Returns the number of replies of any kind, good or not.
    pub(crate) fn replies(&self) -> u64 {
        self.responses.total() + self.errors + self.wrong.total() + self.late
    }

    /// Returns the number of requests so far, including those that should have been sent.
    pub(crate) fn requested(&self) -> u64 {
        self.requests.total() + self.unsent
    }

    /// Counts an error reply, and keeps the message of the first one.
    pub(crate) fn note_error(&mut self, message: &[u8]) {
        self.errors += 1;
        self.refusals.count(message);
        self.first_error.get_or_insert_with(|| excerpt(message));
    }

    /// Keeps the description of the first fault of a connection.
    pub(crate) fn note_fault(&mut self, description: impl FnOnce() -> String) {
        if let Some(connections) = &mut self.connections {
            connections.first_fault.get_or_insert_with(description);
        }
    }

    pub(crate) fn connections(&mut self) -> &mut Connections {
        self.connections.get_or_insert_default()
    }

    pub(crate) fn relays(&mut self) -> &mut Relays {
        self.relays.get_or_insert_default()
    }

    /// Declares the time from `began_ns` to `end_ns`, and all replies so far, to be the run.
    pub(crate) fn take_stock(&mut self, began_ns: u64, end_ns: u64, cpu: CpuTime) {
        self.elapsed = Duration::from_nanos(end_ns - began_ns);
        self.cpu = cpu;
        self.responses_in_time = self.responses.total();
        if let Some(relays) = &self.relays {
            self.messages_in_time = relays.messages;
        }
    }

    /// Returns the share of the run in which this worker was busy, or waited for a busy processor.
    fn busy(&self) -> f64 {
        let busy = self.cpu.used + self.cpu.waited;
        if self.elapsed.is_zero() { 0.0 } else { (busy.as_secs_f64() / self.elapsed.as_secs_f64()).min(1.0) }
    }

    fn add(&mut self, other: Self) {
        *self += &other;
        self.refusals.merge(&other.refusals);
        self.first_error = self.first_error.take().or(other.first_error);
        if let Some(other) = other.connections {
            let connections = self.connections();
            *connections += &other;
            connections.first_fault = connections.first_fault.take().or(other.first_fault);
        }
        if let Some(other) = other.relays {
            *self.relays() += &other;
        }
        self.swarms.resize(self.swarms.len().max(other.swarms.len()), Swarm::default());
        for (swarm, other) in self.swarms.iter_mut().zip(other.swarms) {
            swarm.peers += other.peers;
            swarm.counted = swarm.counted.max(other.counted);
        }
        self.elapsed = self.elapsed.max(other.elapsed);
        self.cpu.used += other.cpu.used;
        self.ended_early |= other.ended_early;
        self.failure = self.failure.take().or(other.failure);
    }
}

/// Adds up the counts of workers, which are these fields.
macro_rules! sums {
    ($($counts:ident { $($field:ident)* })*) => {$(
        impl AddAssign<&$counts> for $counts {
            fn add_assign(&mut self, other: &Self) {
                $(self.$field += &other.$field;)*
            }
        }
    )*};
}

sums! {
    Kinds { connect announce scrape }
    WrongReplies { malformed action transaction_id count own_address status implausible }
    WrongRelays { damaged own misdirected foreign }
    ConnectionFailures { refused reset closed timeout tls websocket other }
    Connections { opened handshakes_full handshakes_resumed closed_idle failures open_at_end }
    Relays {
        messages offers_sent offers_due offers answers_sent answers wrong
        held held_alive slow_readers slow_readers_closed
    }
    Tally {
        requests responses responses_in_time lost unsent receive_drops repeated late errors wrong
        own_address_tolerated send_failures peers announce_reply_bytes messages_in_time
        latency send_delay setup offer_latency answer_latency
    }
}

impl AddAssign<&Durations> for Durations {
    fn add_assign(&mut self, other: &Self) {
        self.0 += &other.0;
    }
}

pub(crate) fn report(tallies: Vec<Tally>, is_open_loop: bool) -> Report {
    let generator_busy = tallies.iter().map(Tally::busy).fold(0.0, f64::max);
    let mut sum = Tally::default();
    tallies.into_iter().for_each(|tally| sum.add(tally));
    let unregistered = unregistered(&sum.swarms);
    let replies = sum.replies();
    let latency = sum.latency.summary();
    let send_delay = is_open_loop.then(|| sum.send_delay.summary());
    let too_many_drops = float(sum.receive_drops) > DROPS_SHARE_MAX * float(sum.responses.total());
    let too_many_repeated = float(sum.repeated) > REPEATED_SHARE_MAX * float(sum.requests.total());
    let is_late_or_busy = match &send_delay {
        Some(delay) => {
            delay.p99_us > SEND_DELAY_US_MAX && delay.p99_us > SEND_DELAY_SHARE_MAX * latency.p99_us
        }
        None => generator_busy > BUSY_SHARE_MAX && sum.elapsed >= BUSY_ELAPSED_MIN,
    };
    let verdict = if sum.replies() == 0 {
        Bottleneck::Unanswered
    } else if is_late_or_busy || too_many_drops || too_many_repeated {
        Bottleneck::GeneratorBound
    } else {
        Bottleneck::Tracker
    };
    Report {
        schema_version: SCHEMA_VERSION,
        elapsed_s: sum.elapsed.as_secs_f64(),
        requests: sum.requests,
        responses: sum.responses,
        responses_per_s: ratio(sum.responses_in_time, sum.elapsed.as_secs_f64()),
        lost: sum.lost,
        unsent: sum.unsent,
        receive_drops: sum.receive_drops,
        repeated: sum.repeated,
        late: sum.late,
        errors: sum.errors,
        first_error: sum.first_error,
        wrong: sum.wrong,
        unregistered,
        own_address_tolerated: sum.own_address_tolerated,
        send_failures: sum.send_failures,
        peers_per_announce: ratio(sum.peers, float(sum.responses.announce)),
        announce_reply_bytes: ratio(sum.announce_reply_bytes, float(sum.responses.announce)),
        connections: sum
            .connections
            .map(|connections| Connections { setup: sum.setup.summary(), ..connections }),
        relays: sum.relays.map(|relays| Relays {
            messages: sum.messages_in_time,
            messages_per_s: ratio(sum.messages_in_time, sum.elapsed.as_secs_f64()),
            offer_latency: sum.offer_latency.summary(),
            offer_latency_curve: sum.offer_latency.curve(),
            answer_latency: sum.answer_latency.summary(),
            ..relays
        }),
        latency,
        latency_curve: sum.latency.curve(),
        send_delay,
        generator_cpu_s: sum.cpu.used.as_secs_f64(),
        generator_busy,
        verdict,
        limit: sum.refusals.limit(replies),
        ended_early: sum.ended_early,
        failure: sum.failure,
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self(Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("these bounds are valid"))
    }
}

impl Durations {
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    fn summary(&self) -> LatencySummary {
        let at = |percentile| microseconds(self.0.value_at_percentile(percentile));
        if self.0.is_empty() {
            return LatencySummary::default();
        }
        LatencySummary {
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            p99_9_us: at(99.9),
            max_us: microseconds(self.0.max()),
            mean_us: self.0.mean() / 1e3,
        }
    }

    /// Returns the quantiles, finer towards the slow end.
    fn curve(&self) -> Vec<Percentile> {
        const STEPS_PER_HALVING: u32 = 5;
        let points = self.0.iter_quantiles(STEPS_PER_HALVING);
        points
            .map(|point| Percentile {
                percentile: 100.0 * point.quantile_iterated_to(),
                latency_us: microseconds(point.value_iterated_to()),
            })
            .collect()
    }
}

/// Returns the beginning of a message of the tracker, with special characters escaped.
pub(crate) fn excerpt(message: &[u8]) -> String {
    const BYTES_MAX: usize = 200;
    String::from_utf8_lossy(&message[..message.len().min(BYTES_MAX)]).escape_debug().to_string()
}

fn microseconds(ns: u64) -> f64 {
    float(ns) / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

fn ratio(count: u64, by: f64) -> f64 {
    if by > 0.0 { float(count) / by } else { 0.0 }
}

impl Kinds {
    pub(crate) fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Connect => self.connect += 1,
            Kind::Announce => self.announce += 1,
            Kind::Scrape => self.scrape += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(good: u64, cpu_ms: u64) -> Tally {
        let mut tally = Tally::default();
        tally.responses.announce = good;
        tally.responses_in_time = good;
        tally.elapsed = Duration::from_secs(1);
        tally.cpu.used = Duration::from_millis(cpu_ms);
        (1..=good).for_each(|number| tally.latency.record(number * 1000));
        tally
    }

    #[test]
    fn errors_and_wrong_replies_do_not_count_for_the_throughput() {
        let mut spoilt = tally(500, 100);
        spoilt.errors = 1000;
        spoilt.wrong.own_address = 1000;
        let report = report(vec![spoilt, tally(500, 300)], false);
        assert!((report.responses_per_s - 1000.0).abs() < 1e-6);
        assert!((report.generator_busy - 0.3).abs() < 1e-6);
        assert_eq!(report.verdict, Bottleneck::Tracker);
        assert!((report.latency.p50_us - 250.0).abs() < 1.0, "{:?}", report.latency);
        assert!((report.latency.max_us - 500.0).abs() < 1.0, "{:?}", report.latency);
        assert!(report.latency_curve.is_sorted_by_key(|point| point.percentile));
    }

    #[test]
    fn peers_that_the_tracker_does_not_count_are_unregistered() {
        let swarms = |counts: [(u32, u64); 4]| {
            let mut tally = tally(1, 1);
            tally.swarms = counts.map(|(peers, _)| Swarm { peers, counted: 0 }).to_vec();
            for (torrent, (_, counted)) in counts.into_iter().enumerate() {
                tally.swarms[torrent].note(counted);
                tally.swarms[torrent].note(counted / 2);
            }
            tally
        };
        // 101 of 150 peers; one of two, whose announcer may not count; more than there are; no counts.
        let limited =
            [swarms([(70, 60), (1, 1), (5, 9), (9, 0)]), swarms([(80, 101), (1, 0), (1, 0), (9, 0)])];
        assert_eq!(report(limited.to_vec(), false).unregistered, 49);
        assert_eq!(report(vec![tally(1, 1)], false).unregistered, 0);
    }

    #[test]
    fn the_limit_of_a_run_is_who_was_busy() {
        assert_eq!(report(vec![tally(10, 100), tally(10, 950)], false).verdict, Bottleneck::GeneratorBound);
        assert_eq!(report(vec![tally(0, 950)], false).verdict, Bottleneck::Unanswered);
        // Half of a processor that it shares with others is all that it could get.
        let mut preempted = tally(10, 500);
        preempted.cpu.waited = Duration::from_millis(480);
        assert_eq!(report(vec![preempted], false).verdict, Bottleneck::GeneratorBound);
        let mut overrun = tally(10, 100);
        overrun.receive_drops = 1;
        assert_eq!(report(vec![overrun], false).verdict, Bottleneck::GeneratorBound);
        // An open loop spins while it waits. Its delay counts, not its CPU time.
        let mut late = tally(10, 1000);
        assert_eq!(report(vec![late.clone()], true).verdict, Bottleneck::Tracker);
        (0..10).for_each(|_| late.send_delay.record(1_000_000));
        assert_eq!(report(vec![late], true).verdict, Bottleneck::GeneratorBound);
    }
}
