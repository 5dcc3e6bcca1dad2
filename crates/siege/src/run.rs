//! One attack from the start of its tracker to the verdict.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::attack::{Attack, Form};
use crate::clock;
use crate::context::Context;
use crate::honest::{Account, Crowd, Protocol};
use crate::number::{as_f64, count};
use crate::tls::TlsClient;
use crate::tracker::{Program, Tracker};
use crate::verdict::{self, Honest, Measured, breaches};

/// The time in which memory has to be back.
const MEMORY_RETURN_TIME_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks at the memory of the tracker.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// The pause between two polls of `/health`, and the patience with one.
const POLL_EVERY: Duration = Duration::from_millis(150);
const POLL_PATIENCE: Duration = Duration::from_secs(3);

/// The outcome of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its layer and name.
    pub id: String,
    /// The attempt, in words.
    pub tries: &'static str,
    /// The promise, in words.
    pub promise: &'static str,
    /// Every promise that was broken, in words.
    pub breaches: Vec<String>,
    /// Measurements.
    pub measured: Measured,
    /// The end of the tracker's log, if a promise was broken.
    pub log_tail: Option<String>,
}

impl Outcome {
    /// Tells whether every promise was kept.
    #[must_use]
    pub fn has_held(&self) -> bool {
        self.breaches.is_empty()
    }
}

/// Runs an attack against a tracker of its own. `overrides` are settings that win over those of the attack.
///
/// # Errors
/// If the tracker does not start, if honest clients are not served before the attack, or if the attack cannot be run.
pub fn run(
    attack: &Attack,
    program: &Program,
    form: Form,
    overrides: &[(String, String)],
) -> Result<Outcome> {
    let settings = attack.settings.iter().chain(match form {
        Form::Short => &[],
        Form::Full => attack.settings_full,
    });
    let overrides = overrides.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut tracker = program.start(settings.copied().chain(overrides), attack.open_files_max)?;
    let tls = TlsClient::new()?;
    let measured = measure(attack, &mut tracker, &tls, form).with_context(|| attack.id())?;
    let breaches = breaches(&attack.bars, &measured, form);
    let log_tail = (!breaches.is_empty()).then(|| tracker.log_tail());
    Ok(Outcome {
        id: attack.id(),
        tries: attack.tries,
        promise: attack.promise,
        breaches,
        measured,
        log_tail,
    })
}

fn measure(attack: &Attack, tracker: &mut Tracker, tls: &TlsClient, form: Form) -> Result<Measured> {
    let crowd = Crowd::start(tracker, tls)?;
    let mut measured = Measured { resident_before_bytes: tracker.resident_bytes(), ..Measured::default() };
    let watch = Watch::default();
    let (context, recovery) = thread::scope(|scope| {
        scope.spawn(|| watch.sample(tracker));
        scope.spawn(|| watch.poll(tracker));
        let result = besiege(attack, tracker, tls, form, &crowd, &mut measured);
        watch.is_over.store(true, Ordering::Relaxed);
        result
    })?;
    measured.recovery_ms = recovery.map(ms);
    measured.health_polls = watch.polls.load(Ordering::Relaxed);
    measured.unhealthy = watch.unhealthy.load(Ordering::Relaxed);
    measured.resident_peak_bytes = watch.peak_bytes.load(Ordering::Relaxed);
    measured.honest =
        crowd.stop().into_iter().map(|(protocol, account)| summarise(protocol, account)).collect();
    (attack.finish)(&context)?;
    (measured.hostile_messages, measured.hostile_bytes) = context.spent();
    measured.claims = context.claims();
    drop(context);
    if let Err(error) = tracker.stop() {
        measured.bad_end = Some(format!("{error:#}"));
    }
    Ok(measured)
}

/// Attacks, waits for the honest clients to be served again, and for memory to go back.
fn besiege<'t>(
    attack: &Attack,
    tracker: &'t Tracker,
    tls: &'t TlsClient,
    form: Form,
    crowd: &Crowd,
    measured: &mut Measured,
) -> Result<(Context<'t>, Option<Duration>)> {
    let (began, cpu_before) = (clock::now(), tracker.cpu_ns());
    let context = Context::new(tracker, tls, form);
    crowd.set_under_attack(true);
    (attack.run)(&context)?;
    context.wait_for_window();
    crowd.set_under_attack(false);
    let ended = clock::now();
    measured.took_ms = ms(ended - began);
    measured.cpu_ms = as_f64(tracker.cpu_ns().saturating_sub(cpu_before)) / 1e6;
    let recovery = crowd.wait_for_answers(ended).ok();
    measured.resident_after_bytes = settle(attack, tracker, form, measured.resident_before_bytes, ended);
    Ok((context, recovery))
}

/// Waits until memory is back, or as long as it may take, and returns what is resident then.
fn settle(attack: &Attack, tracker: &Tracker, form: Form, before_bytes: u64, ended: Instant) -> u64 {
    loop {
        let resident = tracker.resident_bytes();
        let is_back = verdict::is_returned(before_bytes, resident) || !attack.bars.is_memory_returned;
        if clock::now() >= ended + MEMORY_RETURN_TIME_MAX || (form == Form::Short && is_back) {
            return resident;
        }
        thread::sleep(SAMPLE_EVERY);
    }
}

/// Counters that are kept all the time.
#[derive(Default)]
struct Watch {
    is_over: AtomicBool,
    peak_bytes: AtomicU64,
    polls: AtomicU64,
    unhealthy: AtomicU64,
}

impl Watch {
    fn sample(&self, tracker: &Tracker) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(tracker.resident_bytes(), Ordering::Relaxed);
            thread::sleep(SAMPLE_EVERY);
        }
    }

    fn poll(&self, tracker: &Tracker) {
        while !self.is_over.load(Ordering::Relaxed) {
            let next = clock::now() + POLL_EVERY;
            let is_healthy =
                tracker.ask_control("/health", POLL_PATIENCE).is_ok_and(|response| response.status == 200);
            self.polls.fetch_add(1, Ordering::Relaxed);
            self.unhealthy.fetch_add(u64::from(!is_healthy), Ordering::Relaxed);
            clock::sleep_until(next);
        }
    }
}

fn summarise(protocol: Protocol, account: Account) -> Honest {
    let mut latencies = account.latencies_us;
    latencies.sort_unstable();
    let at = |share: usize| {
        let index = (latencies.len() * share / 100).min(latencies.len().saturating_sub(1));
        f64::from(latencies.get(index).copied().unwrap_or(0)) / 1000.0
    };
    Honest {
        protocol,
        turns: account.turns,
        answered: account.answered,
        lost: account.lost,
        p50_ms: at(50),
        p99_ms: at(99),
        failure: account.failure,
    }
}

fn ms(duration: Duration) -> f64 {
    as_f64(count(usize::try_from(duration.as_micros()).unwrap_or(0))) / 1000.0
}
