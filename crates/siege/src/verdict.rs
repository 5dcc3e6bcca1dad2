//! The judgement over one attack: what was measured, held against what was promised.
//!
//! Judges figures only, so that it can be tested without a tracker. Must not know any attack.

use serde::Serialize;

use crate::attack::{Bars, Form};
use crate::context::Claim;
use crate::honest::Protocol;

/// How much more than before memory may be ten seconds after an attack.
const RETURNED_RATIO_MAX: f64 = 1.3;

/// Resident bytes that come and go by themselves, which the ratio above must not mistake for a leak.
const RESIDENT_NOISE_BYTES: u64 = 4 << 20;

/// Share of honest requests that the short form demands at least, in which one lost request weighs several per cent.
const HONEST_SHARE_MIN_SHORT: f64 = 0.9;

/// Of so many polls of `/health` one may fail in the short form.
const UNHEALTHY_ONE_IN_SHORT: u64 = 5;

/// Measurements of one protocol.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Honest {
    /// The protocol.
    pub protocol: Protocol,
    /// Requests that were due.
    pub turns: u64,
    /// Those that were answered, and rightly.
    pub answered: u64,
    /// Standing connections that were lost.
    pub lost: u64,
    /// Median of the latencies in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The first failure.
    pub failure: Option<String>,
}

/// Measurements under one attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Honest clients by protocol.
    pub honest: Vec<Honest>,
    /// Polls of `/health`.
    pub health_polls: u64,
    /// Those that were not 200.
    pub unhealthy: u64,
    /// Resident bytes before the attack.
    pub resident_before_bytes: u64,
    /// Most resident bytes at any moment.
    pub resident_peak_bytes: u64,
    /// Resident bytes after the attack: when they were back, or after ten seconds.
    pub resident_after_bytes: u64,
    /// Processor time of the tracker in the time of the attack, in milliseconds.
    pub cpu_ms: f64,
    /// How long the attack took, in milliseconds.
    pub took_ms: f64,
    /// Bytes that the attack sent.
    pub hostile_bytes: u64,
    /// Datagrams, connections, requests and frames that it sent.
    pub hostile_messages: u64,
    /// How long it took after the attack until every honest client was answered again; nothing if that did not happen.
    pub recovery_ms: Option<f64>,
    /// Why the tracker did not end well afterwards.
    pub bad_end: Option<String>,
    /// Findings of the attack itself.
    pub claims: Vec<Claim>,
}

impl Honest {
    /// Returns the share that was answered rightly.
    #[must_use]
    pub fn share(&self) -> f64 {
        crate::number::ratio(self.answered, self.turns)
    }
}

impl Measured {
    /// Returns the least share of all protocols.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.honest.iter().map(Honest::share).fold(1.0, f64::min)
    }

    /// Returns the longest 99th percentile of all protocols.
    #[must_use]
    pub fn p99_ms(&self) -> f64 {
        self.honest.iter().map(|honest| honest.p99_ms).fold(0.0, f64::max)
    }

    /// Returns the longest median of all protocols.
    #[must_use]
    pub fn p50_ms(&self) -> f64 {
        self.honest.iter().map(|honest| honest.p50_ms).fold(0.0, f64::max)
    }

    /// Returns how many standing connections of honest clients were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.honest.iter().map(|honest| honest.lost).sum()
    }

    /// Returns microseconds of processor time for each unit of `spent`.
    #[must_use]
    pub fn cpu_us_per(&self, spent: u64) -> f64 {
        if spent == 0 { 0.0 } else { self.cpu_ms * 1000.0 / crate::number::as_f64(spent) }
    }
}

/// Returns every promise that was broken, in words; none if the attack was held.
#[must_use]
pub fn breaches(bars: &Bars, measured: &Measured, form: Form) -> Vec<String> {
    let mut breaches = Vec::new();
    honest(bars, measured, form, &mut breaches);
    let unhealthy_max = match form {
        // A worker has a second to give a sign of life, which a busy machine may take away now and then.
        Form::Short => bars.unhealthy_max.max(measured.health_polls / UNHEALTHY_ONE_IN_SHORT),
        Form::Full => bars.unhealthy_max,
    };
    if measured.unhealthy > unhealthy_max {
        breaches.push(format!(
            "/health was not 200 in {} of {} polls",
            measured.unhealthy, measured.health_polls
        ));
    }
    memory(bars, measured, &mut breaches);
    if measured.recovery_ms.is_none() {
        breaches.push("honest clients are not all served after the attack".to_owned());
    }
    if let Some(reason) = &measured.bad_end {
        breaches.push(format!("the tracker did not end well: {reason}"));
    }
    let broken = measured.claims.iter().filter(|claim| !claim.held);
    breaches.extend(broken.map(|claim| format!("{}: {}", claim.what, claim.found)));
    breaches
}

fn honest(bars: &Bars, measured: &Measured, form: Form, breaches: &mut Vec<String>) {
    let share_min = match form {
        Form::Short => bars.honest_share_min.min(HONEST_SHARE_MIN_SHORT),
        Form::Full => bars.honest_share_min,
    };
    for honest in &measured.honest {
        let (name, failure) =
            (honest.protocol.word(), honest.failure.as_deref().unwrap_or("no reason known"));
        if honest.turns == 0 || honest.share() < share_min {
            breaches.push(format!("{name}: {} of {} answered ({failure})", honest.answered, honest.turns));
        }
        if honest.lost > 0 {
            breaches.push(format!("{name}: {} honest sockets were lost ({failure})", honest.lost));
        }
        if form == Form::Full && honest.p99_ms > f64::from(bars.p99_ms_max) {
            breaches.push(format!("{name}: p99 of {:.0} ms", honest.p99_ms));
        }
    }
}

fn memory(bars: &Bars, measured: &Measured, breaches: &mut Vec<String>) {
    let mib = |bytes: u64| crate::number::as_f64(bytes) / f64::from(1 << 20);
    if measured.resident_peak_bytes > bars.resident_bytes_max {
        let (peak, max) = (mib(measured.resident_peak_bytes), mib(bars.resident_bytes_max));
        breaches.push(format!("{peak:.0} MiB resident, {max:.0} allowed"));
    }
    if bars.is_memory_returned && !is_returned(measured.resident_before_bytes, measured.resident_after_bytes)
    {
        let (before, after) = (mib(measured.resident_before_bytes), mib(measured.resident_after_bytes));
        breaches.push(format!("{after:.0} MiB still resident, {before:.0} before"));
    }
}

/// Tells whether memory is back at its level.
pub(crate) fn is_returned(before_bytes: u64, after_bytes: u64) -> bool {
    let allowed = crate::number::as_f64(before_bytes) * RETURNED_RATIO_MAX;
    crate::number::as_f64(after_bytes.saturating_sub(RESIDENT_NOISE_BYTES)) <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let honest = Honest {
            protocol: Protocol::Http,
            turns: 100,
            answered: 100,
            lost: 0,
            p50_ms: 1.0,
            p99_ms: 5.0,
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

    fn broken(change: impl FnOnce(&mut Measured), form: Form) -> Vec<String> {
        let mut measured = measured();
        change(&mut measured);
        breaches(&Bars::USUAL, &measured, form)
    }

    #[test]
    fn what_keeps_every_bar_has_held() {
        assert!(broken(|_| {}, Form::Full).is_empty());
    }

    #[test]
    fn each_broken_bar_is_told() {
        type Change = (fn(&mut Measured), &'static str);
        let changes: [Change; 9] = [
            (|m| m.honest[0].answered = 80, "80 of 100"),
            (|m| m.honest[0].turns = 0, "0 answered"),
            (|m| m.honest[0].lost = 1, "sockets were lost"),
            (|m| m.unhealthy = 3, "/health"),
            (|m| m.resident_peak_bytes = 300 << 20, "allowed"),
            (|m| m.resident_after_bytes = 40 << 20, "still resident"),
            (|m| m.recovery_ms = None, "not all served"),
            (|m| m.bad_end = Some("it hangs".into()), "it hangs"),
            (
                |m| m.claims.push(Claim { what: "share".into(), found: "97 %".into(), held: false }),
                "share: 97 %",
            ),
        ];
        for form in [Form::Short, Form::Full] {
            for (change, words) in changes {
                let broken = broken(change, form);
                assert!(broken.len() == 1 && broken[0].contains(words), "{words}: {broken:?}");
            }
        }
    }

    #[test]
    fn latency_counts_in_the_full_form_alone() {
        assert!(broken(|m| m.honest[0].p99_ms = 5000.0, Form::Short).is_empty());
        assert_eq!(broken(|m| m.honest[0].p99_ms = 5000.0, Form::Full).len(), 1);
    }

    #[test]
    fn one_slow_poll_of_ten_is_no_breach_in_the_short_form() {
        assert!(broken(|m| m.unhealthy = 1, Form::Short).is_empty());
        assert_eq!(broken(|m| m.unhealthy = 1, Form::Full).len(), 1);
    }

    #[test]
    fn one_lost_request_of_few_is_no_breach_in_the_short_form() {
        let few = |m: &mut Measured| (m.honest[0].turns, m.honest[0].answered) = (30, 29);
        assert!(broken(few, Form::Short).is_empty());
        assert_eq!(broken(few, Form::Full).len(), 1);
    }
}
