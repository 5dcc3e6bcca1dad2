//! The figures of one round: rates, CPU time of a reply, shares.
//!
//! This module decides which rounds count. It does not know about medians or presentation.

use shoal_load::{Bottleneck, Connections, LatencySummary, Relays, Report};

use super::figure::Figure::*;
use super::figure::{Figures, Value};
use crate::result::{self, Cell, Round, SlowReaderRound, Usage, spent};

/// Above this share of the time taken away by the hypervisor, a round is marked.
const STEAL_MAX: f64 = 0.1;

const MEGABYTE: f64 = 1e6;

/// Reasons to read a figure with care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) generator_bound: bool,
    /// The hypervisor took away more than [`STEAL_MAX`] of the time.
    pub(super) stolen: bool,
    pub(super) cut_short: bool,
    pub(super) fewer: bool,
    /// The tracker refused a notable share of the requests.
    pub(super) limited: bool,
}

impl Marks {
    /// Every sign with its meaning.
    const LEGEND: [(char, &'static str); 5] = [
        (
            '†',
            "generator-bound: in at least one round the tracker had work for less than 98 % of the time, or at the fixed \
             rate the load was late; the tracker may be able to do more",
        ),
        ('‡', "the hypervisor took away more than 10 % of the time in at least one round"),
        ('§', "at least one round ended early"),
        ('*', "fewer connections than requested were open in at least one round"),
        (
            '¶',
            "a limit of the tracker refused a notable share of the requests in at least one round, so the figure is not its \
             speed; `limit` in the raw data has its text",
        ),
    ];

    /// Returns the signs of the marks that are set, in the order of the legend.
    pub(super) fn signs(self) -> String {
        let set = [self.generator_bound, self.stolen, self.cut_short, self.fewer, self.limited];
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

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            generator_bound: self.generator_bound || other.generator_bound,
            stolen: self.stolen || other.stolen,
            cut_short: self.cut_short || other.cut_short,
            fewer: self.fewer || other.fewer,
            limited: self.limited || other.limited,
        }
    }
}

/// Returns the figures of a round, or why it does not count.
pub(super) fn figures(cell: &Cell, round: &Round) -> Result<Figures<f64>, String> {
    if let Some(idle) = &round.idle {
        return idle_figures(round, idle);
    }
    let load = counting_load(round)?;
    let usage = round.usage.as_ref();
    let mut values = load_figures(cell, round, load);
    values.extend(usage.into_iter().flat_map(|usage| usage_figures(cell, load, usage)));
    values.extend(load.connections.iter().flat_map(|connections| connection_figures(load, connections)));
    values.extend(load.relays.iter().flat_map(|relays| relay_figures(round, load, relays)));
    let slow_readers = round.slow_readers.iter().filter_map(|second| slow_reader_figures(round, second));
    values.extend(slow_readers.flatten());
    let is_whole = |report: &&Report| report.failure.is_none() && report.responses.total() > 0;
    let rated = round.latency.as_ref().filter(is_whole);
    values.extend(rated.into_iter().flat_map(|report| rated_figures(cell, round, report)));
    let tracker_busy = usage.and_then(|usage| usage.saturation(&cell.tracker_cpus));
    let load_marks = Marks {
        stolen: usage.is_some_and(|usage| usage.steal > STEAL_MAX),
        generator_bound: tracker_busy.is_some_and(|share| share < Usage::SATURATED_SHARE),
        ..marks(load)
    };
    Ok(Figures::new(values, load_marks, rated.map(marks).unwrap_or_default()))
}

fn load_figures(cell: &Cell, round: &Round, load: &Report) -> Vec<Value> {
    let all = as_f64(load.responses.total());
    let spinning = round.usage.as_ref().filter(|usage| usage.spinners > 0);
    let own_share = spinning.and_then(|usage| usage.share_of(cell.tracker_cpus.len()));
    // With spinning threads, rates are those of whole processors.
    let whole = |rate: f64| ratio(rate, own_share.unwrap_or(1.0)).unwrap_or_default();
    let per_s =
        |count: u64| Some(whole(load.responses_per_s) * ratio(as_f64(count), all).unwrap_or_default());
    let relays = load.relays.as_ref();
    let messages_per_s = relays.map_or(load.responses_per_s, |relays| relays.messages_per_s);
    let wrong = load.wrong.total() + relays.map_or(0, |relays| relays.wrong.total());
    vec![
        (ResponsesPerS, Some(whole(messages_per_s))),
        (ConnectsPerS, per_s(load.responses.connect).filter(|_| load.connections.is_none())),
        (AnnouncesPerS, per_s(load.responses.announce)),
        (ScrapesPerS, per_s(load.responses.scrape)),
        (PeersPerAnnounce, (load.responses.announce > 0).then_some(load.peers_per_announce)),
        (LossShare, loss_share(load)),
        (ErrorReplies, Some(as_f64(load.errors))),
        (Wrong, Some(as_f64(wrong))),
        (ResidentMb, round.resident_filled_bytes.map(|bytes| as_f64(bytes) / MEGABYTE)),
        (FilledMb, filled_mb(round)),
    ]
}

fn usage_figures(cell: &Cell, load: &Report, usage: &Usage) -> [Value; 8] {
    let (time, count) = spent(load, usage);
    let us_each = |part_s: Option<f64>| ratio(part_s? * 1e6, count);
    let core_us = || usage.core_us(load, &cell.tracker_cpus);
    [
        (UserUs, us_each(Some(time.user_part_s()))),
        (SystemUs, us_each(Some(time.whole_s() - time.user_part_s()))),
        (UserErrorUs, us_each(time.user_error_s)),
        (WholeUs, us_each(Some(time.whole_s()))),
        (CoreUs, (usage.spinners == 0).then(core_us).flatten()),
        (ReceiveUs, us_each(usage.receive_s)),
        (TrackerBusy, usage.saturation(&cell.tracker_cpus)),
        (LoadBusy, usage.busy_share_of(&cell.load_cpus)),
    ]
}

fn connection_figures(load: &Report, connections: &Connections) -> [Value; 5] {
    let per_s = |count: u64| ratio(as_f64(count), load.elapsed_s);
    [
        (OpenedPerS, per_s(connections.opened)),
        (FullHandshakesPerS, per_s(connections.handshakes_full)),
        (ResumedHandshakesPerS, per_s(connections.handshakes_resumed)),
        (SetupP50Us, Some(connections.setup.p50_us)),
        (FailedConnections, Some(as_f64(connections.failures.total()))),
    ]
}

/// Returns the figures of a round of idle connections, which has no others.
fn idle_figures(round: &Round, idle: &result::IdleConnections) -> Result<Figures<f64>, String> {
    if let Some(failure) = &round.failure {
        return Err(failure.clone());
    }
    let (before, open) = (as_f64(idle.resident_before_bytes), as_f64(idle.resident_open_bytes));
    let kib_each = |bytes: f64, count: usize| Some(ratio(bytes - before, as_f64(count as u64))? / 1024.0);
    let Some(each_kib) = kib_each(open, idle.open) else {
        let reason = idle.failure.as_deref().unwrap_or("the tracker closed all of them");
        return Err(format!("no connection stayed open: {reason}"));
    };
    let first = idle.steps.first();
    let values = [
        (IdleConnections, Some(as_f64(idle.open as u64))),
        (IdleKib, Some(each_kib)),
        (IdleFirstKib, first.and_then(|step| kib_each(as_f64(step.resident_bytes), step.open))),
        (IdleBeforeMb, Some(before / MEGABYTE)),
        (IdleAllMb, Some(open / MEGABYTE)),
    ];
    let marks = Marks { fewer: idle.open < idle.wanted, ..Marks::default() };
    Ok(Figures::new(values, marks, Marks::default()))
}

fn relay_figures(round: &Round, load: &Report, relays: &Relays) -> [Value; 6] {
    // The counts include late messages of each kind in the same proportion, so the rates are scaled.
    let per_s = |count: u64| ratio(as_f64(count) * load.responses_per_s, as_f64(load.responses.total()));
    // The number of due offers depends on the tracker's count of peers, and the tracker may relay more.
    let missing = |came: u64, due: u64| ratio(as_f64(due.saturating_sub(came)), as_f64(due));
    let open = load.connections.as_ref().map_or(0, |connections| connections.open_at_end);
    [
        (OffersPerS, per_s(relays.offers)),
        (OffersMissing, missing(relays.offers, relays.offers_due)),
        (AnswersPerS, per_s(relays.answers)),
        (AnswersMissing, missing(relays.answers, relays.answers_sent)),
        (ConnectionKib, filled_mb(round).and_then(|mb| ratio(mb * MEGABYTE / 1024.0, as_f64(open)))),
        (LoadedMb, round.resident_loaded_bytes.map(|bytes| as_f64(bytes) / MEGABYTE)),
    ]
}

/// Returns nothing if the second half of the round was not reached.
fn slow_reader_figures(round: &Round, second: &SlowReaderRound) -> Option<[Value; 9]> {
    let last = second.latency.as_ref().or(second.load.as_ref())?.relays.as_ref()?;
    let p99_us = |report: &Option<Report>| relay_latency(report.as_ref()?).map(|summary| summary.p99_us);
    let times = |with: Option<f64>, without: Option<f64>| ratio(with?, without?);
    let [without, with] = [&round.latency, &second.latency].map(p99_us);
    let [without_loaded, with_loaded] = [&round.load, &second.load].map(p99_us);
    Some([
        (SlowReaders, Some(as_f64(last.slow_readers))),
        (SlowReadersClosed, Some(as_f64(last.slow_readers_closed))),
        (WithoutSlowP99Us, without),
        (WithSlowP99Us, with),
        (SlowP99Ratio, times(with, without)),
        (WithoutSlowLoadedP99Us, without_loaded),
        (WithSlowLoadedP99Us, with_loaded),
        (SlowLoadedP99Ratio, times(with_loaded, without_loaded)),
        (SlowResidentMb, second.resident_bytes.map(|bytes| as_f64(bytes) / MEGABYTE)),
    ])
}

fn rated_figures(cell: &Cell, round: &Round, report: &Report) -> [Value; 15] {
    let usage = round.latency_usage.as_ref();
    let count = as_f64(result::replies(report));
    let LatencySummary { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = report.latency;
    let relay = relay_latency(report);
    [
        (P50Us, Some(p50_us)),
        (P90Us, Some(p90_us)),
        (P99Us, Some(p99_us)),
        (P999Us, Some(p99_9_us)),
        (MaxUs, Some(max_us)),
        (RelayP50Us, relay.map(|relay| relay.p50_us)),
        (RelayP90Us, relay.map(|relay| relay.p90_us)),
        (RelayP99Us, relay.map(|relay| relay.p99_us)),
        (RelayP999Us, relay.map(|relay| relay.p99_9_us)),
        (RelayMaxUs, relay.map(|relay| relay.max_us)),
        (RelayOrReplyP99Us, Some(relay.map_or(p99_us, |relay| relay.p99_us))),
        (RatedWholeUs, usage.and_then(|usage| ratio(usage.cpu.whole_s() * 1e6, count))),
        (RatedCoreUs, usage.and_then(|usage| usage.core_us(report, &cell.tracker_cpus))),
        (RatedResponsesPerS, Some(report.responses_per_s)),
        (RatedLossShare, loss_share(report)),
    ]
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

fn marks(report: &Report) -> Marks {
    let generator_bound = report.verdict == Bottleneck::GeneratorBound;
    let limited = report.limit.is_some();
    Marks { generator_bound, cut_short: report.ended_early, limited, ..Marks::default() }
}

fn loss_share(report: &Report) -> Option<f64> {
    ratio(as_f64(report.lost), as_f64(report.requests.total()))
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
