//! The account of a closed loop around an event: what became of its requests, and whether that is as it should be.
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

/// Of how many requests one may be answered by an error if a source is denied. In five seconds there was one among 6,000 to 11,000.
const REQUESTS_PER_ERROR: u64 = 1000;

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
    /// The most of them that there may be.
    pub unaccounted_max: u32,
    /// How long the process took from SIGKILL or SIGTERM to its end, in milliseconds.
    pub ending_ms: Option<u64>,
    /// Frames of the AF_XDP sockets, and how many were free when the counters had settled.
    pub frames: u64,
    /// See `frames`.
    pub frames_free: u64,
    /// The faults that were found.
    pub failures: Vec<String>,
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
            failures: load.failure.iter().map(|reason| format!("the load ended early: {reason}")).collect(),
            ..Self::default()
        };
        account.judged(event)
    }

    /// Computes the balance, and adds the faults.
    fn judged(mut self, event: EventKind) -> Self {
        let queued = self.drops.remove(QUEUED).unwrap_or(0);
        let of_queue = queued + self.drops.get(QUEUE_FULL).copied().unwrap_or(0);
        // The driver does not count what it refuses while the other end is down.
        let refused = self.sent.saturating_sub(of_queue);
        if event == EventKind::Down && refused > 0 {
            self.drops.insert("driver/down".to_owned(), refused);
        }
        let dropped: u64 = self.drops.values().sum();
        let unaccounted = i128::from(self.sent) - i128::from(self.replied) - i128::from(dropped);
        self.unaccounted = i64::try_from(unaccounted).unwrap_or(i64::MIN);
        self.unaccounted_max = self.unaccounted_max(event);
        // Workers refuse a denied source by errors until the program drops what it sends, a quarter of a second later at most.
        let errors_max = if event == EventKind::Deny { self.sent / REQUESTS_PER_ERROR } else { 0 };
        let Self { replied, errors, wrong, unaccounted, unaccounted_max, frames, frames_free, .. } = self;
        let faults = [
            (
                !(0..=i64::from(unaccounted_max)).contains(&unaccounted),
                format!("{unaccounted} requests are unaccounted for, at most {unaccounted_max} may be"),
            ),
            (frames == 0 || frames_free != frames, format!("{frames_free} of {frames} frames are free")),
            (replied == 0, "no request was answered".to_owned()),
            (wrong > 0, format!("{wrong} replies are wrong")),
            (errors > errors_max, format!("{errors} replies are errors")),
        ];
        let nothing = |name| (!self.drops.contains_key(name), format!("{name}: nothing was dropped"));
        let of_deny = DENY_DROPS.map(nothing).into_iter().filter(|_| event == EventKind::Deny);
        let faults: Vec<_> = faults.into_iter().chain(of_deny).filter(|(is_fault, _)| *is_fault).collect();
        self.failures.extend(faults.into_iter().map(|(_, text)| text));
        self
    }

    /// Returns how many requests may get lost uncounted. Those are on their way when a process ends at once, or when the queue of
    /// an interface vanishes with what is in it.
    ///
    /// A process that is killed has no thread any more when the kernel begins to close its sockets and to detach its program. Until
    /// that is done, the program hands requests to rings that end with it. The load sends each request that is not answered once
    /// more after its timeout. So the time in which the process has ended decides how many there are.
    fn unaccounted_max(&self, event: EventKind) -> u32 {
        let repeats = u128::from(self.ending_ms.unwrap_or(0)) / TIMEOUT.as_millis();
        match event {
            EventKind::Restart | EventKind::Down => WINDOW,
            EventKind::Kill => WINDOW.saturating_mul(1 + u32::try_from(repeats).unwrap_or(u32::MAX - 1)),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn failures(event: EventKind, account: Account) -> Vec<String> {
        account.judged(event).failures
    }

    #[test]
    fn an_account_is_good_if_every_request_is_accounted_for() {
        for event in EventKind::ALL {
            assert_eq!(failures(event, dropping(10)), Vec::<String>::new());
        }
    }

    #[test]
    fn requests_may_be_missing_only_where_a_process_or_an_interface_has_ended() {
        for event in EventKind::ALL {
            assert_eq!(failures(event, dropping(9)).is_empty(), LOSING.contains(&event), "{event}");
            let mut many = Account { sent: 1235, ..dropping(10) };
            // The driver has taken all of them, so the interface is no excuse.
            many.drops.insert(QUEUED.to_owned(), 1235);
            assert!(!failures(event, many).is_empty(), "{event}");
            // More was counted than is missing.
            assert!(!failures(event, dropping(11)).is_empty(), "{event}");
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
        let down = many().judged(EventKind::Down);
        assert_eq!((down.drops["driver/down"], down.unaccounted), (500, 0));
        assert_eq!(failures(EventKind::Kill, many()).len(), 1);
    }

    #[test]
    fn each_other_fault_is_told() {
        let good = || dropping(10);
        let faults: [(EventKind, Account, &str); 9] = [
            (EventKind::Reload, Account { frames_free: 63, ..good() }, "63 of 64 frames are free"),
            (EventKind::Reload, Account { frames: 0, frames_free: 0, ..good() }, "0 of 0 frames are free"),
            (EventKind::Reload, Account { wrong: 2, ..good() }, "2 replies are wrong"),
            (EventKind::Reload, Account { errors: 1, ..good() }, "1 replies are errors"),
            (EventKind::Deny, Account { errors: 2, ..good() }, "2 replies are errors"),
            (EventKind::Reload, Account { sent: 10, replied: 0, ..good() }, "no request was answered"),
            (EventKind::Reload, Account { failures: vec!["silence".to_owned()], ..good() }, "silence"),
            (EventKind::Deny, account([("program/denied", 10)]), "tracker/rate_limited: nothing was dropped"),
            (EventKind::Deny, account([("tracker/rate_limited", 10)]), "program/denied: nothing was dropped"),
        ];
        for (event, account, text) in faults {
            assert_eq!(failures(event, account), [text]);
        }
        assert_eq!(failures(EventKind::Deny, Account { errors: 1, ..good() }), Vec::<String>::new());
    }
}
