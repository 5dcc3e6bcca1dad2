//! The last hour and the last day in a few figures, for the charts of the status page.
//!
//! Two rings in memory, of [`HOUR_SAMPLES`] and [`DAY_SAMPLES`] samples, take 46 KiB together. A sample of the day
//! covers its whole period: rates come from the counts at both of its ends.

use std::collections::VecDeque;

use serde::Serialize;
use utoipa::ToSchema;

use crate::stats::{Processing, Stats};

/// The period of a sample of the hour, and of the day.
const HOUR_STEP_S: u64 = 10;
const DAY_STEP_S: u64 = 300;

/// Maximum numbers of samples.
const HOUR_SAMPLES: usize = 360;
const DAY_SAMPLES: usize = 288;

/// The figures of a sample, in order. Requests, refusals, drops, relays and completed downloads are per second; memory
/// is in bytes, and the load of workers from 0 to 1. The last two are the times in the tracker that 50 and 99 % of the
/// requests did not exceed, in microseconds, or NaN without samples.
const FIELDS: [&str; 15] = [
    "udp",
    "http",
    "webtorrent",
    "refused",
    "dropped",
    "relayed",
    "completed",
    "swarms",
    "seeders",
    "leechers",
    "memory",
    "connections",
    "busy",
    "p50_us",
    "p99_us",
];

/// Number of fields that are rates; they come first.
const RATES: usize = 7;

#[derive(Debug)]
pub(crate) struct History {
    hour: Ring,
    day: Ring,
}

/// The end of a period in seconds since 1970, and its figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Sample(u64, [f32; FIELDS.len()]);

#[derive(Debug)]
struct Ring {
    step_s: u64,
    capacity: usize,
    samples: VecDeque<Sample>,
    /// The totals at the begin of the current period.
    begin: Option<Totals>,
}

/// The totals at one moment, for comparison with later ones.
#[derive(Debug)]
struct Totals {
    monotonic_ms: u64,
    /// The counts behind the rates, in the order of [`FIELDS`].
    counts: [u64; RATES],
    /// The times of requests of all protocols.
    times: Processing,
}

/// The samples as JSON.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = History)]
pub(crate) struct Shown<'h> {
    /// The names of the figures of a sample, in order.
    fields: [&'static str; FIELDS.len()],
    hour: ShownRing<'h>,
    day: ShownRing<'h>,
}

/// The samples of one length.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HistoryRing)]
struct ShownRing<'h> {
    /// Seconds from one sample to the next.
    step_s: u64,
    /// Seconds for which samples are kept.
    span_s: u64,
    /// The oldest first: the end of the period of each in seconds since 1970, and its figures.
    #[schema(value_type = Vec<(u64, Vec<Option<f32>>)>)]
    samples: &'h VecDeque<Sample>,
}

impl Default for History {
    fn default() -> Self {
        Self { hour: Ring::new(HOUR_STEP_S, HOUR_SAMPLES), day: Ring::new(DAY_STEP_S, DAY_SAMPLES) }
    }
}

impl History {
    /// Returns whether a period ends at this time on the monotonic clock.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.hour.is_due(now_ms) || self.day.is_due(now_ms)
    }

    /// Adds a sample to each ring whose period has ended.
    pub(crate) fn add(&mut self, stats: &Stats) {
        self.hour.add(stats);
        self.day.add(stats);
    }

    /// Returns the last samples of the hour and of the day.
    pub(crate) fn last(&self) -> [Option<Sample>; 2] {
        [&self.hour, &self.day].map(|ring| ring.samples.back().copied())
    }

    pub(crate) fn shown(&self) -> Shown<'_> {
        Shown { fields: FIELDS, hour: self.hour.shown(), day: self.day.shown() }
    }
}

impl Ring {
    fn new(step_s: u64, capacity: usize) -> Self {
        Self { step_s, capacity, samples: VecDeque::with_capacity(capacity), begin: None }
    }

    fn is_due(&self, now_ms: u64) -> bool {
        self.begin.as_ref().is_none_or(|begin| now_ms >= begin.monotonic_ms + self.step_s * 1000)
    }

    fn add(&mut self, stats: &Stats) {
        if !self.is_due(stats.monotonic_ms) {
            return;
        }
        let totals = Totals::new(stats);
        let begin = self.begin.take();
        if let Some(begin) = begin {
            if self.samples.len() == self.capacity {
                self.samples.pop_front();
            }
            self.samples.push_back(sample(stats, &begin, &totals));
        }
        self.begin = Some(totals);
    }

    fn shown(&self) -> ShownRing<'_> {
        ShownRing { step_s: self.step_s, span_s: self.step_s * self.capacity as u64, samples: &self.samples }
    }
}

impl Totals {
    fn new(stats: &Stats) -> Self {
        let mut times = Processing::default();
        for of_protocol in &stats.processing {
            times.bounds_s.clone_from(&of_protocol.bounds_s);
            times.buckets.resize(of_protocol.buckets.len(), 0);
            for (sum, count) in times.buckets.iter_mut().zip(&of_protocol.buckets) {
                *sum += count;
            }
        }
        Self { monotonic_ms: stats.monotonic_ms, counts: counts(stats), times }
    }

    /// Returns the time in microseconds that this part of the requests since `begin` did not exceed, at most the
    /// largest bound of a bucket.
    #[expect(clippy::cast_possible_truncation, reason = "charts have some hundred pixels")]
    fn quantile_us(&self, begin: &Self, part: f64) -> f32 {
        let mut times = self.times.clone();
        for (count, before) in times.buckets.iter_mut().zip(&begin.times.buckets) {
            *count = count.saturating_sub(*before);
        }
        let bound_max = times.bounds_s.last().copied().unwrap_or(f64::NAN);
        times.quantile(part).map_or(f32::NAN, |time_s| (time_s.min(bound_max) * 1e6) as f32)
    }
}

fn counts(stats: &Stats) -> [u64; RATES] {
    let requests = |protocol: &str| {
        let of_protocol = stats.traffic.iter().filter(|traffic| traffic.protocol == protocol);
        of_protocol.flat_map(|traffic| traffic.requests.values()).sum()
    };
    [
        requests("udp"),
        requests("http"),
        requests("webtorrent"),
        stats.refused(),
        stats.dropped(),
        stats.relays.offers + stats.relays.answers,
        stats.swarms.iter().map(|totals| totals.completed).sum(),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "charts have some hundred pixels"
)]
fn sample(stats: &Stats, begin: &Totals, end: &Totals) -> Sample {
    let elapsed_ms = end.monotonic_ms - begin.monotonic_ms;
    let mut figures = [0.0; FIELDS.len()];
    for (figure, (before, after)) in figures.iter_mut().zip(begin.counts.into_iter().zip(end.counts)) {
        *figure = (after.saturating_sub(before) as f64 * 1000.0 / elapsed_ms.max(1) as f64) as f32;
    }
    let sum = |of: fn(&crate::stats::SwarmTotals) -> u64| stats.swarms.iter().map(of).sum::<u64>() as f32;
    let memory: u64 = stats.memory.uses.iter().map(|kind| kind.bytes).sum();
    let levels = [
        sum(|totals| totals.swarms),
        sum(|totals| totals.seeders),
        sum(|totals| totals.leechers),
        memory as f32,
        stats.connections.open as f32,
        stats.busy() as f32,
        end.quantile_us(begin, 0.5),
        end.quantile_us(begin, 0.99),
    ];
    figures[RATES..].copy_from_slice(&levels);
    Sample(stats.now_unix_s, figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{SwarmTotals, Traffic, Worker};

    fn times(protocol: &str, now_s: u64) -> Processing {
        // The first bucket has only samples from before the first period, and from after 600 seconds none are new.
        let buckets = vec![1000, 9 * now_s.min(600), now_s.min(600)];
        Processing { protocol: protocol.to_owned(), bounds_s: vec![0.001, 0.002], buckets, sum_s: 0.0 }
    }

    fn stats(now_s: u64, announces: u64) -> Stats {
        let requests = [("announce".to_owned(), announces)].into();
        Stats {
            now_unix_s: 1_000_000 + now_s,
            monotonic_ms: now_s * 1000,
            traffic: vec![Traffic { protocol: "http".to_owned(), requests, ..Traffic::default() }],
            swarms: vec![SwarmTotals { swarms: 3, seeders: 5, ..SwarmTotals::default() }],
            processing: ["udp", "http"].map(|protocol| times(protocol, now_s)).into(),
            workers: vec![Worker { busy: 0.5, ..Worker::default() }, Worker::default()],
            ..Stats::default()
        }
    }

    fn figure(sample: Sample, field: &str) -> f32 {
        sample.1[FIELDS.iter().position(|name| *name == field).unwrap()]
    }

    #[test]
    fn a_sample_has_the_rates_of_its_whole_period() {
        let mut history = History::default();
        for now_s in 0..=600 {
            assert_eq!(history.is_due(now_s * 1000), now_s % 10 == 0);
            history.add(&stats(now_s, 7 * now_s));
        }
        let shown = history.shown();
        assert_eq!((shown.hour.samples.len(), shown.day.samples.len()), (60, 2));
        for sample in history.last().map(Option::unwrap) {
            assert_eq!((sample.0, figure(sample, "http"), figure(sample, "udp")), (1_000_600, 7.0, 0.0));
            assert_eq!((figure(sample, "swarms"), figure(sample, "seeders")), (3.0, 5.0));
            assert!((figure(sample, "busy") - 0.25).abs() < 1e-6);
            assert_eq!((figure(sample, "p50_us"), figure(sample, "p99_us")), (2000.0, 2000.0));
        }
        history.add(&stats(610, 0));
        let last = history.last()[0].unwrap();
        assert!(figure(last, "p50_us").is_nan());
        assert!(serde_json::to_string(&last).unwrap().ends_with("null,null]]"));
    }

    #[test]
    fn old_samples_go() {
        let mut history = History::default();
        for number in 0..=400 {
            history.add(&stats(10 * number, 0));
        }
        let shown = history.shown();
        assert_eq!((shown.hour.samples.len(), shown.hour.samples[0].0), (HOUR_SAMPLES, 1_000_410));
        assert_eq!(shown.hour.span_s, 3600);
        assert_eq!(shown.day.span_s, 86_400);
    }

    #[test]
    fn the_rings_take_the_stated_memory() {
        assert!(size_of::<Sample>() * (HOUR_SAMPLES + DAY_SAMPLES) <= 46 << 10);
    }
}
