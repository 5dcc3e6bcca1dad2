//! The account of a closed loop around an event: what became of its requests.
//!
//! It depends on figures only. It must not know a tracker.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use shoal_load::Report;

use crate::chaos::counters::{Counters, QUEUE_FULL, QUEUED};
use crate::chaos::event::EventKind;

/// Requests in flight: as many as the generator at the driver hook can have.
pub(crate) const WINDOW: u32 = 224;

/// A request is given up after this time, and another one takes its place.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(200);

/// The counters that show that a denied source and a limit were in force.
const DENY_DROPS: [&str; 2] = ["program/denied", "tracker/rate_limited"];

/// The requests of a closed loop around an event, and the frames of the tracker after it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Account {
    /// Requests that were sent.
    pub sent: u64,
    /// Replies of any kind, late ones as well.
    pub replied: u64,
    /// Good replies per second.
    pub responses_per_s: f64,
    /// Replies that are errors.
    pub errors: u64,
    /// Replies that break a rule.
    pub wrong: u64,
    /// Datagrams that were dropped, by counter.
    pub drops: BTreeMap<String, u64>,
    /// Requests that were neither answered nor found in a counter. Below 0, more was counted than was missing.
    pub unaccounted: i64,
    /// Requests that the load may have sent once more while a killed process ended, and that are not counted either.
    pub repeated_max: u64,
    /// How long the process took from SIGKILL or SIGTERM to its end, in milliseconds.
    pub ending_ms: Option<u64>,
    /// Frames of the AF_XDP sockets, and how many were free when the counters had settled.
    pub frames: u64,
    /// See `frames`.
    pub frames_free: u64,
}

impl Account {
    /// Returns the account of a load around an event, in which the process has taken `ending` to end, if it has ended.
    pub(crate) fn new(
        event: EventKind,
        load: &Report,
        drops: BTreeMap<String, u64>,
        counters: &Counters,
        ending: Option<Duration>,
    ) -> Self {
        let wrong = load.wrong.total();
        let account = Self {
            sent: load.requests.total(),
            replied: load.responses.total() + load.errors + wrong + load.late,
            responses_per_s: load.responses_per_s,
            errors: load.errors,
            wrong,
            drops,
            ending_ms: ending.map(|ending| u64::try_from(ending.as_millis()).unwrap_or(u64::MAX)),
            frames: counters.frames,
            frames_free: counters.frames_free,
            ..Self::default()
        };
        account.balanced(event)
    }

    /// Computes the balance.
    ///
    /// A process that is killed has no thread any more when the kernel begins to close its sockets and to detach its program. Until
    /// that is done, the program hands requests to rings that end with it. The load sends each request that is not answered once
    /// more after its timeout.
    fn balanced(mut self, event: EventKind) -> Self {
        let queued = self.drops.remove(QUEUED).unwrap_or(0);
        let of_queue = queued + self.drops.get(QUEUE_FULL).copied().unwrap_or(0);
        // The driver does not count what it refuses while the other end is down.
        let refused = self.sent.saturating_sub(of_queue);
        if event == EventKind::Down && refused > 0 {
            self.drops.insert("driver/down".to_owned(), refused);
        }
        let dropped = self.drops.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let unaccounted = i128::from(self.sent) - i128::from(self.replied) - i128::from(dropped);
        self.unaccounted = i64::try_from(unaccounted).unwrap_or(i64::MIN);
        if event == EventKind::Kill {
            let timeout_ms = u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX);
            self.repeated_max = u64::from(WINDOW).saturating_mul(self.ending_ms.unwrap_or(0) / timeout_ms);
        }
        self
    }

    /// Returns the requests that were neither answered nor counted, without those that may have been sent once more.
    pub(crate) fn unaccounted_once(&self) -> u64 {
        u64::try_from(self.unaccounted).unwrap_or(0).saturating_sub(self.repeated_max)
    }

    /// Returns by how much more was counted than was missing.
    pub(crate) fn overcounted(&self) -> u64 {
        self.unaccounted.min(0).unsigned_abs()
    }

    /// Returns why the event or the load had no effect, if it had none.
    pub(crate) fn failure(&self, event: EventKind) -> Option<String> {
        let idle = DENY_DROPS.iter().find(|name| !self.drops.contains_key(**name));
        match idle {
            _ if self.replied == 0 => Some("no request was answered".to_owned()),
            Some(name) if event == EventKind::Deny => Some(format!("{name}: nothing was dropped")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::threshold::{Figure, tests::failures_of};

    const LOSING: [EventKind; 3] = [EventKind::Restart, EventKind::Kill, EventKind::Down];

    /// Returns the account of a thousand requests, ten of which have no reply.
    fn account<const N: usize>(drops: [(&str, u64); N]) -> Account {
        let drops = drops.into_iter().chain([(QUEUED, 1000)]).filter(|(_, count)| *count > 0);
        let drops = drops.map(|(name, count)| (name.to_owned(), count)).collect();
        Account { sent: 1000, replied: 990, drops, frames: 64, frames_free: 64, ..Account::default() }
    }

    /// Returns the same, if this many were dropped.
    fn dropping(drops: u64) -> Account {
        account([("program/denied", drops.saturating_sub(1)), ("tracker/rate_limited", drops.min(1))])
    }

    /// Returns the figures that are beyond their thresholds.
    fn failures(event: EventKind, account: Account) -> Vec<Figure> {
        failures_of(event, account.balanced(event))
    }

    #[test]
    fn requests_may_be_missing_only_where_a_process_or_an_interface_has_ended() {
        for (event, _) in EventKind::ALL {
            assert_eq!(failures(event, dropping(10)), []);
            assert_eq!(failures(event, dropping(9)).is_empty(), LOSING.contains(&event), "{event}");
            let mut many = Account { sent: 1235, ..dropping(10) };
            // The driver has taken all of them, so the interface is no excuse.
            many.drops.insert(QUEUED.to_owned(), 1235);
            assert_eq!(failures(event, many), [Figure::Unaccounted], "{event}");
            assert_eq!(failures(event, dropping(11)), [Figure::Overcounted], "{event}");
        }
    }

    #[test]
    fn requests_are_lost_again_while_a_killed_process_ends() {
        for (ending_ms, requests_max) in [(0, 224), (199, 224), (200, 448), (450, 672)] {
            let passes = |event, requests: u64| {
                let account = Account { sent: 990 + requests, ending_ms: Some(ending_ms), ..account([]) };
                failures(event, account).is_empty()
            };
            assert!(passes(EventKind::Kill, requests_max) && !passes(EventKind::Kill, requests_max + 1));
            assert!(passes(EventKind::Restart, 224) && !passes(EventKind::Restart, 225));
        }
    }

    #[test]
    fn requests_that_the_driver_refuses_are_known_while_the_interface_is_down() {
        let many = || Account { sent: 1500, ..dropping(10) };
        let down = many().balanced(EventKind::Down);
        assert_eq!((down.drops["driver/down"], down.unaccounted), (500, 0));
        assert_eq!(failures(EventKind::Kill, many()), [Figure::Unaccounted]);
    }

    #[test]
    fn each_other_fault_is_told() {
        let faults = [
            (EventKind::Reload, Account { frames_free: 63, ..dropping(10) }, Figure::FramesInUse),
            (EventKind::Reload, Account { wrong: 2, ..dropping(10) }, Figure::Wrong),
            (EventKind::Reload, Account { errors: 1, ..dropping(10) }, Figure::ErrorsPerThousand),
            (EventKind::Deny, Account { errors: 2, ..dropping(10) }, Figure::ErrorsPerThousand),
        ];
        for (event, account, figure) in faults {
            assert_eq!(failures(event, account), [figure]);
        }
        assert_eq!(failures(EventKind::Deny, Account { errors: 1, ..dropping(10) }), []);
    }

    #[test]
    fn an_event_without_effect_has_failed() {
        let idle = [
            (EventKind::Reload, Account { replied: 0, ..dropping(10) }, "no request was answered"),
            (EventKind::Deny, account([("program/denied", 10)]), "tracker/rate_limited: nothing was dropped"),
            (EventKind::Deny, account([("tracker/rate_limited", 10)]), "program/denied: nothing was dropped"),
        ];
        for (event, account, reason) in idle {
            assert_eq!(account.failure(event).as_deref(), Some(reason));
        }
        assert_eq!(
            (dropping(10).failure(EventKind::Deny), account([]).failure(EventKind::Reload)),
            (None, None)
        );
    }
}
