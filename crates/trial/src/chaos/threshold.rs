//! Thresholds and the verdict. It judges figures only.

use std::str::FromStr;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::chaos::account::WINDOW;
use crate::chaos::event::EventKind;
use crate::chaos::record::Lane;
use crate::chaos::result::EventResult;
use crate::measure::{as_f64, ratio};

/// A figure that may have a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Requests without an answer, on all lanes, without replies that the load's own sockets dropped.
    Lost,
    /// Requests with more than one answer, on all lanes.
    Doubled,
    /// Peers that are gone, in percent.
    PeersLostPercent,
    /// The longest time without an answer on a lane, in milliseconds.
    GapMs,
    /// Time from the start of the new process to its first answer, in milliseconds.
    FirstAnswerMs,
    /// The duration of the event, in milliseconds.
    TookMs,
    /// The 99th percentile of latency during the event, as a multiple of the one before, on the worst lane.
    P99Ratio,
    /// Under full load, requests that were neither answered nor counted as dropped, without those that were sent again while a
    /// killed process ended.
    Unaccounted,
    /// Under full load, requests by which more were counted as dropped than had no answer.
    Overcounted,
    /// Under full load, frames that are not free after the event.
    FramesInUse,
    /// Under full load, replies that break a rule.
    Wrong,
    /// Under full load, the requests of a thousand that were answered by an error.
    ErrorsPerThousand,
}

/// The most that a figure of an event may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// The event.
    pub event: EventKind,
    /// The figure.
    pub figure: Figure,
    /// The most.
    pub most: f64,
}

/// A figure that has a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The figure.
    pub figure: Figure,
    /// Its value, or `None` if it could not be measured.
    pub value: Option<f64>,
    /// The most that it may be.
    pub most: f64,
}

/// A threshold needs at least this many answers of a lane, before and during the event, for a percentile.
const ANSWERS_MIN: u64 = 100;

impl Figure {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Lost, "lost"),
        (Self::Doubled, "doubled"),
        (Self::PeersLostPercent, "peers_lost_percent"),
        (Self::GapMs, "gap_ms"),
        (Self::FirstAnswerMs, "first_answer_ms"),
        (Self::TookMs, "took_ms"),
        (Self::P99Ratio, "p99_ratio"),
        (Self::Unaccounted, "unaccounted"),
        (Self::Overcounted, "overcounted"),
        (Self::FramesInUse, "frames_in_use"),
        (Self::Wrong, "wrong"),
        (Self::ErrorsPerThousand, "errors_per_thousand"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(figure, _)| *figure == self).map_or("", |(_, name)| *name)
    }

    /// Returns its value in an event, if it was measured.
    fn of(self, event: &EventResult) -> Option<f64> {
        let number = |count: u64| Some(as_f64(count));
        let account = event.account.as_ref();
        match self {
            Self::Lost => {
                let lost = |lane: &crate::chaos::result::LaneResult| match lane.lane {
                    Lane::Udp => lane.lost.saturating_sub(event.drops.own),
                    Lane::HttpKeepAlive | Lane::HttpConnections => lane.lost,
                };
                number(event.lanes.iter().map(lost).sum())
            }
            Self::Doubled => number(event.lanes.iter().map(|lane| lane.doubled).sum()),
            Self::PeersLostPercent => {
                event.peers.filter(|peers| peers.before > 0).map(|peers| peers.lost_percent())
            }
            Self::GapMs => event.lanes.iter().map(|lane| lane.gap_ms).reduce(f64::max),
            Self::FirstAnswerMs => event.first_answer_ms,
            Self::TookMs => Some(event.took_ms),
            Self::P99Ratio => {
                let enough = event
                    .lanes
                    .iter()
                    .filter(|lane| lane.before.answers.min(lane.during.answers) >= ANSWERS_MIN);
                let ratios =
                    enough.map(|lane| f64::from(lane.during.p99_us) / f64::from(lane.before.p99_us.max(1)));
                ratios.reduce(f64::max)
            }
            Self::Unaccounted => number(account?.unaccounted_once()),
            Self::Overcounted => number(account?.overcounted()),
            Self::FramesInUse => number(account?.frames.abs_diff(account?.frames_free)),
            Self::Wrong => number(account?.wrong),
            Self::ErrorsPerThousand => Some(1000.0 * ratio(account?.errors, account?.sent)),
        }
    }
}

impl Threshold {
    /// Returns the thresholds that hold unless the user sets others.
    pub fn defaults() -> Vec<Self> {
        use EventKind::{Damage, DiskFull, Kill, Pause, Restart, Snapshot, Truncate, Upgrade};
        use Figure::{Doubled, FirstAnswerMs, GapMs, Lost, P99Ratio, PeersLostPercent, TookMs};
        let everywhere = EventKind::ALL.map(|(event, _)| (event, Doubled, 0.0));
        let of_events = [
            (Pause, PeersLostPercent, 0.0),
            (Snapshot, Lost, 0.0),
            (Snapshot, PeersLostPercent, 0.0),
            (Snapshot, TookMs, 10_000.0),
            (Snapshot, P99Ratio, 1.5),
            (DiskFull, Lost, 0.0),
            (DiskFull, PeersLostPercent, 0.0),
            (Upgrade, Lost, 0.0),
            (Upgrade, PeersLostPercent, 0.0),
            (Upgrade, GapMs, 50.0),
            (Restart, PeersLostPercent, 0.0),
            (Restart, FirstAnswerMs, 3000.0),
            (Kill, PeersLostPercent, 0.0),
            (Kill, FirstAnswerMs, 3000.0),
            (Damage, PeersLostPercent, 50.0),
            (Damage, FirstAnswerMs, 3000.0),
            (Truncate, PeersLostPercent, 50.0),
            (Truncate, FirstAnswerMs, 3000.0),
        ];
        let all = everywhere.into_iter().chain(of_events);
        all.map(|(event, figure, most)| Self { event, figure, most }).collect()
    }

    /// Returns the thresholds under full load that hold unless the user sets others.
    ///
    /// Requests may be unaccounted for that are on their way when a process ends at once, or when the queue of an interface vanishes
    /// with what is in it. Workers refuse a denied source by errors until the program drops what it sends, a quarter of a second
    /// later at most: in five seconds there was one error among 6,000 to 11,000 requests. A tracker that does not exit when it is
    /// asked is killed after ten seconds.
    pub fn of_full_load() -> Vec<Self> {
        use EventKind::{Deny, Down, Kill, Restart, Upgrade};
        let of_every = EventKind::ALL.into_iter().flat_map(|(event, _)| {
            let window = if [Restart, Kill, Down].contains(&event) { f64::from(WINDOW) } else { 0.0 };
            let errors = if event == Deny { 1.0 } else { 0.0 };
            [
                (event, Figure::Unaccounted, window),
                (event, Figure::Overcounted, 0.0),
                (event, Figure::FramesInUse, 0.0),
                (event, Figure::Wrong, 0.0),
                (event, Figure::ErrorsPerThousand, errors),
            ]
        });
        let times = [(Restart, Figure::TookMs, 10_000.0), (Upgrade, Figure::TookMs, 30_000.0)];
        of_every.chain(times).map(|(event, figure, most)| Self { event, figure, most }).collect()
    }

    /// Returns the defaults with those that the user has set.
    pub fn with(mut all: Vec<Self>, set: &[Self]) -> Vec<Self> {
        for threshold in set {
            all.retain(|other| (other.event, other.figure) != (threshold.event, threshold.figure));
            all.push(*threshold);
        }
        all
    }
}

/// Returns the figures of an event that have a threshold.
pub fn judge(event: &EventResult, thresholds: &[Threshold]) -> Vec<Finding> {
    let of_event = thresholds.iter().filter(|threshold| threshold.event == event.event);
    let finding =
        |&Threshold { figure, most, .. }: &Threshold| Finding { figure, value: figure.of(event), most };
    of_event.map(finding).collect()
}

impl Finding {
    /// Returns whether it is within its threshold. Peers and percentiles that could not be measured are not judged; a
    /// first answer that never came is a failure.
    pub fn passed(&self) -> bool {
        match self.value {
            Some(value) => value <= self.most,
            None => self.figure != Figure::FirstAnswerMs,
        }
    }
}

impl FromStr for Threshold {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = || {
            let (name, most) = text.split_once('=')?;
            let (event, figure) = name.split_once('.')?;
            let (figure, _) = Figure::ALL.into_iter().find(|(_, name)| *name == figure)?;
            let most = most.parse().ok().filter(|most: &f64| *most >= 0.0)?;
            Some(Self { event: event.parse().ok()?, figure, most })
        };
        let figures = Figure::ALL.map(|(_, name)| name).join(", ");
        let events = EventKind::ALL.map(|(_, name)| name).join(", ");
        let accepted = "give EVENT.FIGURE=NUMBER, such as upgrade.gap_ms=100";
        parsed().with_context(|| format!("{text:?}: {accepted}; events: {events}; figures: {figures}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chaos::account::Account;
    use crate::chaos::result::{Drops, LaneResult, Latency, PeerCounts};

    fn event(event: EventKind) -> EventResult {
        let lane = LaneResult {
            lane: Lane::Udp,
            requests: 1000,
            answered: 997,
            lost: 3,
            doubled: 0,
            refused: 0,
            connect_refused: 0,
            reset: 0,
            closed: 0,
            gap_ms: 49.0,
            before: Latency { answers: 300, p50_us: 100, p99_us: 400 },
            during: Latency { answers: 300, p50_us: 100, p99_us: 500 },
            after: Latency::default(),
        };
        EventResult {
            event,
            took_ms: 20.0,
            first_answer_ms: Some(10.0),
            lanes: vec![lane],
            peers: Some(PeerCounts { torrents: 10, before: 200, after: 200 }),
            drops: Drops { own: 3, no_port: 0, no_room: 3 },
            ..EventResult::default()
        }
    }

    fn failures(event: &EventResult, thresholds: &[Threshold]) -> Vec<Figure> {
        let findings = judge(event, thresholds);
        findings.iter().filter(|finding| !finding.passed()).map(|finding| finding.figure).collect()
    }

    /// Returns the figures of full load around an event that are beyond their thresholds.
    pub(crate) fn failures_of(of: EventKind, account: Account) -> Vec<Figure> {
        failures(&EventResult { account: Some(account), ..event(of) }, &Threshold::of_full_load())
    }

    #[test]
    fn replies_that_the_load_dropped_itself_are_not_lost() {
        let mut upgrade = event(EventKind::Upgrade);
        assert_eq!(failures(&upgrade, &Threshold::defaults()), []);
        upgrade.drops.own = 2;
        assert_eq!(failures(&upgrade, &Threshold::defaults()), [Figure::Lost]);
    }

    #[test]
    fn each_figure_is_judged() {
        let mut upgrade = event(EventKind::Upgrade);
        upgrade.lanes[0].doubled = 1;
        upgrade.lanes[0].gap_ms = 50.1;
        upgrade.peers = Some(PeerCounts { torrents: 10, before: 200, after: 199 });
        let expected = [Figure::Doubled, Figure::PeersLostPercent, Figure::GapMs];
        assert_eq!(failures(&upgrade, &Threshold::defaults()), expected);
        let mut snapshot = event(EventKind::Snapshot);
        snapshot.took_ms = 10_001.0;
        snapshot.lanes[0].during.p99_us = 601;
        assert_eq!(failures(&snapshot, &Threshold::defaults()), [Figure::TookMs, Figure::P99Ratio]);
        let mut kill = event(EventKind::Kill);
        kill.first_answer_ms = None;
        assert_eq!(failures(&kill, &Threshold::defaults()), [Figure::FirstAnswerMs]);
    }

    #[test]
    fn a_threshold_of_the_user_replaces_the_default() {
        let set: Threshold = "upgrade.gap_ms=48.5".parse().unwrap();
        assert_eq!(
            failures(&event(EventKind::Upgrade), &Threshold::with(Threshold::defaults(), &[set])),
            [Figure::GapMs]
        );
        for bad in ["upgrade.gap=1", "upgrade.gap_ms", "reboot.lost=1", "kill.lost=-1", "kill.lost=x"] {
            let refused = bad.parse::<Threshold>().unwrap_err().to_string();
            assert!(refused.contains(bad) && refused.contains("gap_ms") && refused.contains("disk-full"));
        }
    }
}
