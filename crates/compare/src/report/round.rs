//! The figures of one round: rates, CPU time of a reply, shares.
//!
//! This module decides which rounds count. It does not know about medians or presentation.

use shoal_load::{Bottleneck, LatencySummary, Report};

use crate::result::{Cell, CpuTime, IdleConnections, Round, SlowReaderRound, Usage, spent};

/// Above this share of the time taken away by the hypervisor, a round is marked.
const STEAL_MAX: f64 = 0.1;

/// Bytes of a megabyte in the report.
const MEGABYTE: f64 = 1e6;

/// The figures of a round that counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Good replies a second; with WebTorrent, messages of any kind.
    pub(super) responses_per_s: Option<f64>,
    /// Replies to connects a second.
    pub(super) connects_per_s: Option<f64>,
    /// Replies to announces a second.
    pub(super) announces_per_s: Option<f64>,
    /// Replies to scrapes a second.
    pub(super) scrapes_per_s: Option<f64>,
    /// The connections, if there are any.
    pub(super) connections: Option<Connections<f64>>,
    /// The relayed messages, if the protocol has any.
    pub(super) relays: Option<Relays<f64>>,
    /// The effect of slow readers on other connections.
    pub(super) slow_readers: Option<SlowReaders<f64>>,
    /// The idle connections, if these were measured.
    pub(super) idle: Option<Idle<f64>>,
    /// Microseconds of CPU time in user mode per reply, good or not; with WebTorrent, per message.
    pub(super) user_us: Option<f64>,
    /// The same in the kernel.
    pub(super) system_us: Option<f64>,
    /// The error of these two.
    pub(super) user_error_us: Option<f64>,
    /// User and system together.
    pub(super) whole_us: Option<f64>,
    /// Microseconds in which the tracker's processors were busy with anything, the kernel's receive work and soft interrupts
    /// included, per reply. Only without spinning threads.
    pub(super) core_us: Option<f64>,
    /// Microseconds of the kernel's threads that do the receive work of the tracker's interface, per reply.
    pub(super) receive_us: Option<f64>,
    /// Peers in each good announce reply, if there was any.
    pub(super) peers_per_announce: Option<f64>,
    /// Share of the requests without a reply in time, 0 to 1.
    pub(super) loss_share: Option<f64>,
    /// Error replies.
    pub(super) errors: Option<f64>,
    /// Replies that break a rule.
    pub(super) wrong: Option<f64>,
    /// Share of the time in which the tracker had work for all of its processors, 0 to 1.
    pub(super) tracker_busy: Option<f64>,
    /// Busy share of the processors of the load, on average, 0 to 1.
    pub(super) load_busy: Option<f64>,
    /// Resident memory after the fill.
    pub(super) resident_mb: Option<f64>,
    /// The memory that the fill added: that of the peers, without the memory of an empty tracker.
    pub(super) filled_mb: Option<f64>,
    /// Latency at the fixed rate.
    pub(super) latency: Option<Latency>,
    /// Reasons to read the closed loop of this round with care.
    pub(super) marks: Marks,
}

/// The connections of the closed loop: the figures of a round, or their medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connections<F> {
    /// Connections that became ready for requests, a second.
    pub(super) opened_per_s: Option<F>,
    /// TLS handshakes with a key exchange and a signature, a second.
    pub(super) full_per_s: Option<F>,
    /// Resumed TLS handshakes a second.
    pub(super) resumed_per_s: Option<F>,
    /// The median of the microseconds until a connection is ready for requests.
    pub(super) setup_p50_us: Option<F>,
    /// Connections that failed.
    pub(super) failed: Option<F>,
}

/// The relayed messages of the closed loop: the figures of a round, or their medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relays<F> {
    /// Offers that arrived, a second.
    pub(super) offers_per_s: Option<F>,
    /// Share of the offers due that did not arrive.
    pub(super) offers_missing: Option<F>,
    /// Answers that arrived, a second.
    pub(super) answers_per_s: Option<F>,
    /// Share of the answers sent that did not arrive.
    pub(super) answers_missing: Option<F>,
    /// Offers and answers that arrived damaged or at the wrong peer.
    pub(super) wrong: Option<F>,
    /// KiB of resident memory that the fill added per connection.
    pub(super) each_kib: Option<F>,
    /// Resident memory after the closed loop.
    pub(super) loaded_mb: Option<F>,
}

/// Rounds without and with slow readers: the figures of one of them, or their medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowReaders<F> {
    /// Their number.
    pub(super) count: Option<F>,
    /// The number that the tracker closed.
    pub(super) closed: Option<F>,
    /// Relay of an offer at the fixed rate, in microseconds, 99th percentile: without them, with them, and the ratio of
    /// the latter to the former.
    pub(super) p99_us: [Option<F>; 3],
    /// The same in the closed loop.
    pub(super) loaded_p99_us: [Option<F>; 3],
    /// Resident memory at the end.
    pub(super) resident_mb: Option<F>,
}

/// Idle connections: the figures of a round, or their medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle<F> {
    /// The number of open connections.
    pub(super) open: Option<F>,
    /// KiB of resident memory per connection.
    pub(super) each_kib: Option<F>,
    /// The same with a thousand connections.
    pub(super) first_kib: Option<F>,
    /// Resident memory before the first connection.
    pub(super) before_mb: Option<F>,
    /// Resident memory with all connections.
    pub(super) open_mb: Option<F>,
}

/// The open loop of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    /// The time from the scheduled start of a request to its reply.
    pub(super) summary: LatencySummary,
    /// The time from the scheduled start of an announce to the arrival of one of its offers, if it has offers.
    pub(super) relay: Option<LatencySummary>,
    /// Good replies a second.
    pub(super) responses_per_s: f64,
    /// Share of the requests without a reply in time, 0 to 1.
    pub(super) loss_share: Option<f64>,
    /// Reasons to read the open loop of this round with care.
    pub(super) marks: Marks,
}

/// Reasons to read a figure with care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// The generator was the bottleneck.
    pub(super) generator_bound: bool,
    /// The hypervisor took away more than [`STEAL_MAX`] of the time.
    pub(super) stolen: bool,
    /// The run ended early.
    pub(super) cut_short: bool,
    /// Fewer connections were open than requested.
    pub(super) fewer: bool,
}

impl Marks {
    /// Every sign with its meaning.
    const LEGEND: [(char, &'static str); 4] = [
        (
            '†',
            "generator-bound: in at least one round the tracker had work for less than 98 % of the time, or at the fixed \
             rate the load was late; the tracker may be able to do more",
        ),
        ('‡', "the hypervisor took away more than 10 % of the time in at least one round"),
        ('§', "at least one round ended early"),
        ('*', "fewer connections than requested were open in at least one round"),
    ];

    /// Returns the signs of the marks that are set, in the order of the legend.
    pub(super) fn signs(self) -> String {
        let set = [self.generator_bound, self.stolen, self.cut_short, self.fewer];
        Self::LEGEND.iter().zip(set).filter(|(_, set)| *set).map(|((sign, _), _)| *sign).collect()
    }

    /// Returns the signs of all these marks, each with its meaning.
    pub(super) fn meanings(all: impl IntoIterator<Item = Self>) -> Vec<String> {
        debug_assert!((STEAL_MAX - 0.1).abs() < f64::EPSILON, "the legend names the share");
        debug_assert!((Usage::SATURATED_SHARE - 0.98).abs() < f64::EPSILON, "the legend names the share");
        let signs = all.into_iter().fold(Self::default(), Self::union).signs();
        let used = Self::LEGEND.iter().filter(|(sign, _)| signs.contains(*sign));
        used.map(|(sign, meaning)| format!("{sign} {meaning}")).collect()
    }

    /// Returns the union of both sets of marks.
    pub(super) fn union(self, other: Self) -> Self {
        Self {
            generator_bound: self.generator_bound || other.generator_bound,
            stolen: self.stolen || other.stolen,
            cut_short: self.cut_short || other.cut_short,
            fewer: self.fewer || other.fewer,
        }
    }
}

/// Returns the figures of a round, or why it does not count.
pub(super) fn figures(cell: &Cell, round: &Round) -> Result<Figures, String> {
    if let Some(idle) = &round.idle {
        return idle_figures(round, idle);
    }
    let load = counting_load(round)?;
    let (usage, processors) = (round.usage.as_ref(), cell.tracker_cpus.len());
    let all = as_f64(load.responses.total());
    let own_share = usage.filter(|usage| usage.spinners > 0).and_then(|usage| usage.share_of(processors));
    // With spinning threads, rates are those of whole processors.
    let whole = |rate: f64| ratio(rate, own_share.unwrap_or(1.0)).unwrap_or_default();
    let per_s =
        |count: u64| Some(whole(load.responses_per_s) * ratio(as_f64(count), all).unwrap_or_default());
    let spent = usage.map(|usage| spent(load, usage));
    let us_each = |part: fn(&CpuTime) -> Option<f64>| {
        spent.as_ref().and_then(|(time, count)| ratio(part(time)? * 1e6, *count))
    };
    let busy = |cpus: &[usize]| usage?.busy_share_of(cpus);
    let tracker_busy = usage.and_then(|usage| usage.saturation(&cell.tracker_cpus));
    let messages_per_s = load.relays.as_ref().map(|relays| relays.messages_per_s);
    Ok(Figures {
        responses_per_s: Some(whole(messages_per_s.unwrap_or(load.responses_per_s))),
        relays: load.relays.as_ref().map(|relays| relay_figures(round, load, relays)),
        slow_readers: (round.slow_readers.as_ref()).and_then(|second| slow_reader_figures(round, second)),
        connections: load.connections.as_ref().map(|connections| {
            let per_s = |count: u64| ratio(as_f64(count), load.elapsed_s);
            Connections {
                opened_per_s: per_s(connections.opened),
                full_per_s: per_s(connections.handshakes_full),
                resumed_per_s: per_s(connections.handshakes_resumed),
                setup_p50_us: Some(connections.setup.p50_us),
                failed: Some(as_f64(connections.failures.total())),
            }
        }),
        idle: None,
        connects_per_s: per_s(load.responses.connect),
        announces_per_s: per_s(load.responses.announce),
        scrapes_per_s: per_s(load.responses.scrape),
        user_us: us_each(|time| Some(time.user_part_s())),
        system_us: us_each(|time| Some(time.whole_s() - time.user_part_s())),
        user_error_us: us_each(|time| time.user_error_s),
        whole_us: us_each(|time| Some(time.whole_s())),
        core_us: usage
            .filter(|usage| usage.spinners == 0)
            .and_then(|usage| usage.core_us(load, &cell.tracker_cpus)),
        receive_us: usage.and_then(|usage| ratio(usage.receive_s? * 1e6, spent.as_ref()?.1)),
        peers_per_announce: (load.responses.announce > 0).then_some(load.peers_per_announce),
        loss_share: loss_share(load),
        errors: Some(as_f64(load.errors)),
        wrong: Some(as_f64(load.wrong.total())),
        tracker_busy,
        load_busy: busy(&cell.load_cpus),
        resident_mb: round.resident_filled_bytes.map(|bytes| as_f64(bytes) / MEGABYTE),
        filled_mb: filled_mb(round),
        latency: round.latency.as_ref().and_then(latency),
        marks: Marks {
            stolen: usage.is_some_and(|usage| usage.steal > STEAL_MAX),
            generator_bound: tracker_busy.is_some_and(|share| share < Usage::SATURATED_SHARE),
            ..marks(load)
        },
    })
}

/// Returns the figures of a round of idle connections, which has no others.
fn idle_figures(round: &Round, idle: &IdleConnections) -> Result<Figures, String> {
    if let Some(failure) = &round.failure {
        return Err(failure.clone());
    }
    let (before, open) = (as_f64(idle.resident_before_bytes), as_f64(idle.resident_open_bytes));
    let count = as_f64(idle.open as u64);
    let Some(each_bytes) = ratio(open - before, count) else {
        let reason = idle.failure.as_deref().unwrap_or("the tracker closed all of them");
        return Err(format!("no connection stayed open: {reason}"));
    };
    Ok(Figures {
        idle: Some(Idle {
            open: Some(count),
            each_kib: Some(each_bytes / 1024.0),
            first_kib: idle.steps.first().and_then(|step| {
                ratio(as_f64(step.resident_bytes) - before, as_f64(step.open as u64))
                    .map(|bytes| bytes / 1024.0)
            }),
            before_mb: Some(before / MEGABYTE),
            open_mb: Some(open / MEGABYTE),
        }),
        marks: Marks { fewer: idle.open < idle.wanted, ..Marks::default() },
        ..Figures::default()
    })
}

fn relay_figures(round: &Round, load: &Report, relays: &shoal_load::Relays) -> Relays<f64> {
    // The counts include late messages of each kind in the same proportion, so the rates are scaled.
    let per_s = |count: u64| ratio(as_f64(count) * load.responses_per_s, as_f64(load.responses.total()));
    // The number of due offers depends on the tracker's count of peers, and the tracker may relay more.
    let missing = |came: u64, due: u64| ratio(as_f64(due.saturating_sub(came)), as_f64(due));
    let open = load.connections.as_ref().map_or(0, |connections| connections.open_at_end);
    Relays {
        offers_per_s: per_s(relays.offers),
        offers_missing: missing(relays.offers, relays.offers_due),
        answers_per_s: per_s(relays.answers),
        answers_missing: missing(relays.answers, relays.answers_sent),
        wrong: Some(as_f64(relays.wrong.total())),
        each_kib: filled_mb(round).and_then(|mb| ratio(mb * MEGABYTE / 1024.0, as_f64(open))),
        loaded_mb: round.resident_loaded_bytes.map(|bytes| as_f64(bytes) / MEGABYTE),
    }
}

/// Returns nothing if the second half of the round was not reached.
fn slow_reader_figures(round: &Round, second: &SlowReaderRound) -> Option<SlowReaders<f64>> {
    let last = second.latency.as_ref().or(second.load.as_ref())?.relays.as_ref()?;
    let p99_us = |report: Option<&Report>| relay_latency(report?).map(|summary| summary.p99_us);
    let pair = |without: Option<&Report>, with: Option<&Report>| {
        let [without, with] = [without, with].map(p99_us);
        [without, with, with.zip(without).and_then(|(with, without)| ratio(with, without))]
    };
    Some(SlowReaders {
        count: Some(as_f64(last.slow_readers)),
        closed: Some(as_f64(last.slow_readers_closed)),
        p99_us: pair(round.latency.as_ref(), second.latency.as_ref()),
        loaded_p99_us: pair(round.load.as_ref(), second.load.as_ref()),
        resident_mb: second.resident_bytes.map(|bytes| as_f64(bytes) / MEGABYTE),
    })
}

fn relay_latency(report: &Report) -> Option<LatencySummary> {
    let relays = report.relays.as_ref()?;
    (relays.offers > 0).then_some(relays.offer_latency)
}

/// Converts a count to a float.
#[expect(
    clippy::cast_precision_loss,
    reason = "no count here comes near 2^53, and figures are rounded anyway"
)]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

fn counting_load(round: &Round) -> Result<&Report, String> {
    if let Some(failure) = &round.failure {
        return Err(failure.clone());
    }
    let load = round.load.as_ref().ok_or("the load was never run")?;
    if load.verdict == Bottleneck::Unanswered {
        return Err("the tracker never answered the load".into());
    }
    if let Some(failure) = &load.failure {
        return Err(format!("the load ended: {failure}"));
    }
    if load.responses.total() > 0 {
        return Ok(load);
    }
    let fault = load.connections.as_ref().and_then(|connections| connections.first_fault.as_ref());
    let first = load.first_error.as_ref().or(fault);
    let first = first.map(|text| format!(", the first: {text}")).unwrap_or_default();
    Err(format!("no good reply; {} wrong and {} error replies{first}", load.wrong.total(), load.errors))
}

/// Returns nothing if nothing was filled, as with a ceiling. The result is negative if a tracker has shrunk.
fn filled_mb(round: &Round) -> Option<f64> {
    round.fill.as_ref()?;
    let bytes = as_f64(round.resident_filled_bytes?) - as_f64(round.resident_before_bytes?);
    Some(bytes / MEGABYTE)
}

fn latency(report: &Report) -> Option<Latency> {
    let is_whole = report.failure.is_none() && report.responses.total() > 0;
    is_whole.then(|| Latency {
        summary: report.latency,
        relay: relay_latency(report),
        responses_per_s: report.responses_per_s,
        loss_share: loss_share(report),
        marks: marks(report),
    })
}

fn marks(report: &Report) -> Marks {
    let generator_bound = report.verdict == Bottleneck::GeneratorBound;
    Marks { generator_bound, cut_short: report.ended_early, ..Marks::default() }
}

fn loss_share(report: &Report) -> Option<f64> {
    ratio(as_f64(report.lost), as_f64(report.requests.total()))
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
