//! The verdict on an attack, which compares the measurements with the promises.
//!
//! It depends on figures only, so that it can be tested without a tracker. It must not know any attack.
//!
//! The short mode judges counts and states, because it runs on busy machines. The full mode judges time as well.

use serde::Serialize;

use crate::siege::attack::{Limits, Mode};
use crate::siege::context::Check;
use crate::siege::honest::Protocol;

/// The maximum ratio of memory ten seconds after an attack to memory before it.
const RETURNED_RATIO_MAX: f64 = 1.3;

/// Normal variation of resident memory, which is not a leak.
const RESIDENT_NOISE_BYTES: u64 = 4 << 20;

/// The minimum share of honest requests in short mode, where one lost request is several per cent.
const HONEST_SHARE_MIN_SHORT: f64 = 0.9;

/// In short mode, one of this many polls of `/health` may fail.
const UNHEALTHY_ONE_IN_SHORT: u64 = 5;

/// Measurements of one protocol.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Honest {
    /// The protocol.
    pub protocol: Protocol,
    /// Requests that were due.
    #[serde(rename = "turns")]
    pub due: u64,
    /// Requests that were answered correctly.
    pub answered: u64,
    /// Persistent connections that were lost.
    pub lost: u64,
    /// The median latency in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of latency in milliseconds.
    pub p99_ms: f64,
    /// The same before the attack, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calm_p99_ms: Option<f64>,
    /// The first failure.
    pub failure: Option<String>,
}

/// Measurements under one attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// The honest clients, by protocol.
    pub honest: Vec<Honest>,
    /// The number of polls of `/health`.
    pub health_polls: u64,
    /// The number of polls with another status than 200.
    pub unhealthy: u64,
    /// Resident bytes before the attack.
    pub resident_before_bytes: u64,
    /// The maximum of resident bytes.
    pub resident_peak_bytes: u64,
    /// Resident bytes after the attack: when memory was returned, or after ten seconds.
    pub resident_after_bytes: u64,
    /// Processor time of the tracker during the attack, in milliseconds.
    pub cpu_ms: f64,
    /// The duration of the attack in milliseconds.
    pub took_ms: f64,
    /// The bytes that the attack sent.
    pub hostile_bytes: u64,
    /// The datagrams, connections, requests and frames that the attack sent.
    pub hostile_messages: u64,
    /// The time after the attack until every honest client was answered again; `None` if that did not happen.
    pub recovery_ms: Option<f64>,
    /// The reason why the tracker did not stop cleanly.
    pub bad_end: Option<String>,
    /// The checks by the attack itself.
    #[serde(rename = "claims")]
    pub checks: Vec<Check>,
}

impl Honest {
    /// Returns the share of requests that were answered correctly.
    pub fn share(&self) -> f64 {
        crate::measure::ratio(self.answered, self.due)
    }
}

impl Measured {
    /// Returns the minimum share of all protocols.
    pub fn share(&self) -> f64 {
        self.honest.iter().map(Honest::share).fold(1.0, f64::min)
    }

    /// Returns the maximum 99th percentile of all protocols.
    pub fn p99_ms(&self) -> f64 {
        self.honest.iter().map(|honest| honest.p99_ms).fold(0.0, f64::max)
    }

    /// Returns the maximum median of all protocols.
    pub fn p50_ms(&self) -> f64 {
        self.honest.iter().map(|honest| honest.p50_ms).fold(0.0, f64::max)
    }

    /// Returns the number of persistent connections of honest clients that were lost.
    pub fn lost(&self) -> u64 {
        self.honest.iter().map(|honest| honest.lost).sum()
    }

    /// Returns the processor time for each unit of `spent`, in microseconds.
    pub fn cpu_us_per(&self, spent: u64) -> f64 {
        if spent == 0 { 0.0 } else { self.cpu_ms * 1000.0 / crate::measure::as_f64(spent) }
    }
}

/// Describes every broken promise. The result is empty if the tracker held.
pub fn breaches(limits: &Limits, measured: &Measured, mode: Mode) -> Vec<String> {
    let mut breaches = Vec::new();
    check_honest(limits, measured, mode, &mut breaches);
    let unhealthy_max = match mode {
        // A worker has to report within a second, which a busy machine sometimes prevents.
        Mode::Short => limits.unhealthy_max.max(measured.health_polls / UNHEALTHY_ONE_IN_SHORT),
        Mode::Full => limits.unhealthy_max,
    };
    if measured.unhealthy > unhealthy_max {
        breaches.push(format!(
            "/health was not 200 in {} of {} polls",
            measured.unhealthy, measured.health_polls
        ));
    }
    let mib = |bytes: u64| crate::measure::as_f64(bytes) / f64::from(1 << 20);
    let [before, peak, after] =
        [measured.resident_before_bytes, measured.resident_peak_bytes, measured.resident_after_bytes];
    if peak > limits.resident_bytes_max {
        breaches.push(format!(
            "{:.0} MiB resident, {:.0} allowed",
            mib(peak),
            mib(limits.resident_bytes_max)
        ));
    }
    if limits.is_memory_returned && !is_returned(before, after) {
        breaches.push(format!("{:.0} MiB still resident, {:.0} before", mib(after), mib(before)));
    }
    if measured.recovery_ms.is_none() {
        breaches.push("honest clients are not all served after the attack".to_owned());
    }
    if let Some(reason) = &measured.bad_end {
        breaches.push(format!("the tracker did not stop cleanly: {reason}"));
    }
    let failed = measured.checks.iter().filter(|check| !check.held);
    breaches.extend(failed.map(|check| format!("{}: {}", check.what, check.found)));
    breaches
}

fn check_honest(limits: &Limits, measured: &Measured, mode: Mode, breaches: &mut Vec<String>) {
    let share_min = match mode {
        Mode::Short => limits.honest_share_min.min(HONEST_SHARE_MIN_SHORT),
        Mode::Full => limits.honest_share_min,
    };
    for honest in &measured.honest {
        let (name, failure) =
            (honest.protocol.as_str(), honest.failure.as_deref().unwrap_or("unknown reason"));
        if honest.due == 0 || honest.share() < share_min {
            breaches.push(format!("{name}: {} of {} answered ({failure})", honest.answered, honest.due));
        }
        if honest.lost > 0 {
            breaches.push(format!("{name}: {} honest sockets were lost ({failure})", honest.lost));
        }
        if mode == Mode::Full && honest.p99_ms > f64::from(limits.p99_ms_max) {
            breaches.push(format!("{name}: p99 of {:.0} ms", honest.p99_ms));
        }
        let ratio = limits.p99_ratio_max.zip(honest.calm_p99_ms);
        if let Some((ratio_max, calm_ms)) = ratio.filter(|_| mode == Mode::Full)
            && honest.p99_ms > ratio_max * calm_ms
        {
            breaches.push(format!("{name}: p99 of {:.1} ms, and {calm_ms:.1} ms before", honest.p99_ms));
        }
    }
}

/// Returns whether memory has returned to its level.
pub(crate) fn is_returned(before_bytes: u64, after_bytes: u64) -> bool {
    let allowed = crate::measure::as_f64(before_bytes) * RETURNED_RATIO_MAX;
    crate::measure::as_f64(after_bytes.saturating_sub(RESIDENT_NOISE_BYTES)) <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let honest = Honest {
            protocol: Protocol::Http,
            due: 100,
            answered: 100,
            lost: 0,
            p50_ms: 1.0,
            p99_ms: 5.0,
            calm_p99_ms: Some(2.0),
            failure: None,
        };
        Measured {
            honest: vec![honest],
            health_polls: 10,
            resident_before_bytes: 20 << 20,
            resident_peak_bytes: 60 << 20,
            resident_after_bytes: 25 << 20,
            recovery_ms: Some(3.0),
            ..Measured::default()
        }
    }

    fn broken(change: impl FnOnce(&mut Measured), mode: Mode) -> Vec<String> {
        let mut measured = measured();
        change(&mut measured);
        breaches(&Limits::USUAL, &measured, mode)
    }

    #[test]
    fn measurements_within_every_limit_have_no_breach() {
        assert!(broken(|_| {}, Mode::Full).is_empty());
    }

    #[test]
    fn each_exceeded_limit_is_reported() {
        type Change = (fn(&mut Measured), &'static str);
        let changes: [Change; 9] = [
            (|m| m.honest[0].answered = 80, "80 of 100"),
            (|m| m.honest[0].due = 0, "0 answered"),
            (|m| m.honest[0].lost = 1, "sockets were lost"),
            (|m| m.unhealthy = 3, "/health"),
            (|m| m.resident_peak_bytes = 300 << 20, "allowed"),
            (|m| m.resident_after_bytes = 40 << 20, "still resident"),
            (|m| m.recovery_ms = None, "not all served"),
            (|m| m.bad_end = Some("it hangs".into()), "it hangs"),
            (
                |m| m.checks.push(Check { what: "share".into(), found: "97 %".into(), held: false }),
                "share: 97 %",
            ),
        ];
        for mode in [Mode::Short, Mode::Full] {
            for (change, text) in changes {
                let broken = broken(change, mode);
                assert!(broken.len() == 1 && broken[0].contains(text), "{text}: {broken:?}");
            }
        }
    }

    #[test]
    fn latency_counts_only_in_full_mode() {
        assert!(broken(|m| m.honest[0].p99_ms = 5000.0, Mode::Short).is_empty());
        assert_eq!(broken(|m| m.honest[0].p99_ms = 5000.0, Mode::Full).len(), 1);
    }

    #[test]
    fn latency_is_compared_only_where_an_attack_promises_it() {
        let limits = Limits { p99_ratio_max: Some(3.0), ..Limits::USUAL };
        let (within, mut beyond) = (measured(), measured());
        beyond.honest[0].p99_ms = 6.5;
        assert!(breaches(&limits, &within, Mode::Full).is_empty());
        assert!(breaches(&limits, &beyond, Mode::Short).is_empty());
        assert!(breaches(&Limits::USUAL, &beyond, Mode::Full).is_empty());
        assert_eq!(breaches(&limits, &beyond, Mode::Full), ["HTTP: p99 of 6.5 ms, and 2.0 ms before"]);
    }

    #[test]
    fn one_failed_poll_of_ten_is_allowed_in_short_mode() {
        assert!(broken(|m| m.unhealthy = 1, Mode::Short).is_empty());
        assert_eq!(broken(|m| m.unhealthy = 1, Mode::Full).len(), 1);
    }

    #[test]
    fn one_lost_request_of_few_is_allowed_in_short_mode() {
        let few = |m: &mut Measured| (m.honest[0].due, m.honest[0].answered) = (30, 29);
        assert!(broken(few, Mode::Short).is_empty());
        assert_eq!(broken(few, Mode::Full).len(), 1);
    }
}
