//! The account of a soak: what became of the requests of each round, and whether that is as it should be.
//!
//! It depends on figures only. It must not know a tracker.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use shoal_load::Report;

use super::counters::Changes;
use super::{TIMEOUT, WINDOW};

/// A disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// SIGHUP several times, each time with other networks and other limits, none of which concerns the load.
    Reload,
    /// SIGUSR2: a new process takes over.
    Upgrade,
    /// SIGKILL, and a new process.
    Kill,
    /// SIGHUP with a list that denies a source of the load, and with a limit that it exceeds; and SIGHUP with neither.
    Deny,
    /// SIGTERM, and a new process.
    Stop,
    /// The interface of the tracker goes down and up.
    Down,
}

/// The counters that show that a denied source and a limit were in force.
const DENY_DROPS: [&str; 2] = ["program/denied", "tracker/rate_limited"];

/// Of how many requests one may be answered by an error in a round with a denied source. In rounds of five seconds there was one
/// among 6,000 to 11,000.
const REQUESTS_PER_ERROR: u64 = 1000;

/// One round of load with a disturbance.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The disturbance.
    pub event: Event,
    /// Requests that were sent.
    pub sent: u64,
    /// Replies of any kind, late ones as well.
    pub replied: u64,
    /// Good replies per second.
    pub responses_per_s: f64,
    /// Datagrams that were dropped, by counter.
    pub drops: BTreeMap<String, u64>,
    /// Requests that were neither answered nor found in a counter. Below 0, more was counted than was missing.
    pub unaccounted: i64,
    /// The most of them that there may be.
    pub unaccounted_max: u32,
    /// How long the process took from SIGKILL or SIGTERM to its end, in milliseconds.
    pub ending_ms: Option<u64>,
    /// Frames of the AF_XDP sockets, and how many were free when the counters had settled.
    pub frames: u64,
    /// See `frames`.
    pub frames_free: u64,
    /// The bars that it misses.
    pub failures: Vec<String>,
}

/// The figures of the load of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    sent: u64,
    replied: u64,
    responses_per_s: f64,
    /// Replies that are errors, and those that break a rule.
    errors: u64,
    wrong: u64,
    /// Why it ended early.
    failure: Option<String>,
}

/// The result of a soak.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SoakResult {
    /// How long it lasted, in seconds.
    pub elapsed_s: f64,
    /// How many processes of the tracker there were.
    pub processes: u32,
    /// Its rounds.
    pub rounds: Vec<Round>,
}

impl Event {
    /// All of them, in the order of the rounds.
    pub const ALL: [Self; 6] = [Self::Reload, Self::Upgrade, Self::Kill, Self::Deny, Self::Stop, Self::Down];

    /// Returns how many requests may get lost uncounted. Those are on their way when a process ends at once, or when the queue of
    /// an interface vanishes with what is in it.
    ///
    /// A process that is killed has no thread any more when the kernel begins to close its sockets and to detach its program. Until
    /// that is done, the program hands requests to rings that end with it. The load sends each request that is not answered once
    /// more after its timeout. So `ending`, the time in which the process has ended, decides how many there are.
    fn unaccounted_max(self, ending: Option<Duration>) -> u32 {
        match self {
            Self::Reload | Self::Upgrade | Self::Deny => 0,
            Self::Stop | Self::Down => WINDOW,
            Self::Kill => {
                let repeats = ending.map_or(0, |ending| ending.as_millis() / TIMEOUT.as_millis());
                WINDOW.saturating_mul(1 + u32::try_from(repeats).unwrap_or(u32::MAX - 1))
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reload => "reload",
            Self::Upgrade => "upgrade",
            Self::Kill => "kill",
            Self::Deny => "deny",
            Self::Stop => "stop",
            Self::Down => "down",
        })
    }
}

impl Load {
    pub(super) fn of(report: &Report) -> Self {
        let wrong = report.wrong.total();
        Self {
            sent: report.requests.total(),
            replied: report.responses.total() + report.errors + wrong + report.late,
            responses_per_s: report.responses_per_s,
            errors: report.errors,
            wrong,
            failure: report.failure.clone(),
        }
    }
}

impl Round {
    pub(super) fn new(event: Event, load: &Load, changes: &Changes, ending: Option<Duration>) -> Self {
        let (sent, replied) = (load.sent, load.replied);
        let mut drops = changes.drops.clone();
        let of_queue = changes.queued + drops.get("driver/queue-full").copied().unwrap_or(0);
        if event == Event::Down {
            // The driver does not count what it refuses while the other end is down.
            let refused = sent.saturating_sub(of_queue);
            if refused > 0 {
                drops.insert("driver/down".to_owned(), refused);
            }
        }
        let dropped: u64 = drops.values().sum();
        let unaccounted = i128::from(sent) - i128::from(replied) - i128::from(dropped);
        let mut round = Self {
            event,
            sent,
            replied,
            responses_per_s: load.responses_per_s,
            drops,
            unaccounted: i64::try_from(unaccounted).unwrap_or(i64::MIN),
            unaccounted_max: event.unaccounted_max(ending),
            ending_ms: ending.map(|ending| u64::try_from(ending.as_millis()).unwrap_or(u64::MAX)),
            frames: changes.frames,
            frames_free: changes.frames_free,
            failures: Vec::new(),
        };
        round.judge(load);
        round
    }

    fn judge(&mut self, load: &Load) {
        let Self { unaccounted, unaccounted_max, frames, frames_free, .. } = *self;
        let mut failures = Vec::new();
        if !(0..=i64::from(unaccounted_max)).contains(&unaccounted) {
            failures.push(format!(
                "{unaccounted} requests are unaccounted for, at most {unaccounted_max} may be"
            ));
        }
        if frames == 0 || frames_free != frames {
            failures.push(format!("{frames_free} of {frames} frames are free"));
        }
        if self.replied == 0 {
            failures.push("no request was answered".to_owned());
        }
        if load.wrong > 0 {
            failures.push(format!("{} replies are wrong", load.wrong));
        }
        // Workers refuse a denied source by errors until the program drops what it sends, a quarter of a second later at most.
        let errors_max = if self.event == Event::Deny { self.sent / REQUESTS_PER_ERROR } else { 0 };
        if load.errors > errors_max {
            failures.push(format!("{} replies are errors", load.errors));
        }
        if self.event == Event::Deny {
            let none =
                DENY_DROPS.into_iter().filter(|name| self.drops.get(*name).is_none_or(|count| *count == 0));
            failures.extend(none.map(|name| format!("{name}: nothing was dropped")));
        }
        failures.extend(load.failure.iter().map(|reason| format!("the load ended early: {reason}")));
        self.failures = failures;
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, sent, replied, responses_per_s, unaccounted, frames, frames_free, .. } = self;
        write!(f, "{event:<8} {sent:>10} sent {replied:>10} replies {responses_per_s:>9.0}/s")?;
        write!(f, "  {frames_free}/{frames} frames free  {unaccounted} unaccounted")?;
        if let Some(ending_ms) = self.ending_ms {
            write!(f, "  ended in {ending_ms} ms")?;
        }
        for (name, count) in &self.drops {
            write!(f, "  {name} {count}")?;
        }
        self.failures.iter().try_for_each(|failure| write!(f, "\n  FAILED: {failure}"))
    }
}

impl SoakResult {
    pub(super) fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    /// Returns whether every round was as it should be, and there was one for each disturbance.
    #[must_use]
    pub fn passed(&self) -> bool {
        let all = Event::ALL.iter().all(|event| self.rounds.iter().any(|round| round.event == *event));
        all && self.rounds.iter().all(|round| round.failures.is_empty())
    }

    /// Returns the sums of all rounds.
    #[must_use]
    pub fn summary(&self) -> String {
        let sum = |of: fn(&Round) -> u64| -> u64 { self.rounds.iter().map(of).sum() };
        let unaccounted: i64 = self.rounds.iter().map(|round| round.unaccounted).sum();
        let allowed: u32 = self.rounds.iter().map(|round| round.unaccounted_max).sum();
        let mut drops = BTreeMap::<&str, u64>::new();
        for (name, count) in self.rounds.iter().flat_map(|round| &round.drops) {
            *drops.entry(name).or_default() += count;
        }
        let mut text = format!(
            "{:.0} s, {} rounds, {} processes\n{:<34} {:>14}\n{:<34} {:>14}\n",
            self.elapsed_s,
            self.rounds.len(),
            self.processes,
            "requests sent",
            sum(|round| round.sent),
            "replies",
            sum(|round| round.replied),
        );
        for (name, count) in drops {
            let _ = writeln!(text, "{name:<34} {count:>14}");
        }
        let _ = writeln!(text, "{:<34} {unaccounted:>14} (at most {allowed})", "unaccounted");
        let failed = self.rounds.iter().filter(|round| !round.failures.is_empty()).count();
        let _ = match (failed, self.passed()) {
            (0, true) => writeln!(text, "passed"),
            (0, false) => writeln!(text, "FAILED: not every disturbance happened"),
            _ => writeln!(text, "FAILED: {failed} rounds"),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load { sent: 1000, replied: 990, responses_per_s: 1.0, ..Load::default() }
    }

    fn changes(drops: u64) -> Changes {
        let (denied, limited) = (drops.saturating_sub(1), drops.min(1));
        let drops = [("program/denied", denied), ("tracker/rate_limited", limited)];
        let drops = drops.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Changes { drops, queued: 1000, frames: 64, frames_free: 64 }
    }

    fn failures(event: Event, load: &Load, changes: &Changes) -> Vec<String> {
        Round::new(event, load, changes, None).failures
    }

    #[test]
    fn a_round_passes_if_every_request_is_accounted_for() {
        for event in Event::ALL {
            assert_eq!(failures(event, &load(), &changes(10)), Vec::<String>::new());
        }
    }

    #[test]
    fn requests_may_be_missing_only_where_a_process_or_an_interface_has_ended() {
        for event in Event::ALL {
            let may_lose = [Event::Kill, Event::Stop, Event::Down].contains(&event);
            assert_eq!(failures(event, &load(), &changes(9)).is_empty(), may_lose, "{event}");
            let many = Load { sent: 1235, ..load() };
            // The driver has taken all of them, so the interface is no excuse.
            let has_failed = !failures(event, &many, &Changes { queued: 1235, ..changes(10) }).is_empty();
            assert!(has_failed, "{event}");
            // More was counted than is missing.
            assert!(!failures(event, &load(), &changes(11)).is_empty(), "{event}");
        }
    }

    #[test]
    fn requests_are_lost_again_while_a_killed_process_ends() {
        let lost = |requests: u64| Load { sent: 990 + requests, ..load() };
        let queued = Changes { queued: 2000, ..changes(0) };
        for (ending_ms, requests_max) in [(0, 224), (199, 224), (200, 448), (450, 672)] {
            let ending = Some(Duration::from_millis(ending_ms));
            let passes =
                |event, requests| Round::new(event, &lost(requests), &queued, ending).failures.is_empty();
            assert!(
                passes(Event::Kill, requests_max) && !passes(Event::Kill, requests_max + 1),
                "{ending_ms}"
            );
            assert!(passes(Event::Stop, 224) && !passes(Event::Stop, 225));
        }
    }

    #[test]
    fn requests_that_the_driver_refuses_are_known_while_the_interface_is_down() {
        let many = Load { sent: 1500, ..load() };
        let round = Round::new(Event::Down, &many, &changes(10), None);
        assert_eq!((round.drops["driver/down"], round.unaccounted), (500, 0));
        assert_eq!(failures(Event::Kill, &many, &changes(10)).len(), 1);
    }

    #[test]
    fn each_other_fault_is_told() {
        let faults: [(Load, Changes, &str); 6] = [
            (load(), Changes { frames_free: 63, ..changes(10) }, "63 of 64 frames"),
            (load(), Changes { frames: 0, frames_free: 0, ..changes(10) }, "0 of 0 frames"),
            (Load { wrong: 2, ..load() }, changes(10), "2 replies are wrong"),
            (Load { errors: 3, ..load() }, changes(10), "3 replies are errors"),
            (Load { failure: Some("silence".to_owned()), ..load() }, changes(10), "silence"),
            (Load { sent: 10, replied: 0, ..load() }, changes(10), "no request was answered"),
        ];
        for (load, changes, text) in faults {
            let found = failures(Event::Reload, &load, &changes);
            assert!(found.len() == 1 && found[0].contains(text), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_denied_source_gets_few_errors() {
        for (errors, passes) in [(1, true), (2, false)] {
            let load = Load { errors, ..load() };
            assert_eq!(failures(Event::Deny, &load, &changes(10)).is_empty(), passes, "{errors}");
        }
    }

    #[test]
    fn a_list_and_a_limit_that_have_no_effect_are_told() {
        for (denied, limited, text) in [(10, 0, "tracker/rate_limited"), (0, 10, "program/denied")] {
            let drops = [("program/denied", denied), ("tracker/rate_limited", limited)];
            let drops = drops.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
            let found = failures(Event::Deny, &load(), &Changes { drops, ..changes(10) });
            assert_eq!(found, [format!("{text}: nothing was dropped")]);
        }
    }

    #[test]
    fn a_soak_passes_only_with_every_disturbance() {
        let mut result = SoakResult::default();
        for event in Event::ALL {
            assert!(!result.passed());
            result.add(Round::new(event, &load(), &changes(10), None));
        }
        assert!(result.passed() && result.summary().ends_with("passed\n"));
        result.add(Round::new(Event::Reload, &load(), &changes(9), None));
        assert!(!result.passed() && result.summary().ends_with("FAILED: 1 rounds\n"));
    }
}
