//! The run of one attack, from the start of its tracker to the verdict.
//!
//! A run starts a tracker, starts honest clients of every protocol, and waits until each has received a reply. It runs
//! the attack while it samples memory and polls `/health`, waits for recovery, and stops the tracker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use shoal_testkit::client::tls::Tls;
use shoal_testkit::nats::Server;

use crate::measure;
use crate::measure::{as_f64, percentile};
use crate::siege::attack::{Attack, Mode};
use crate::siege::cluster::{self, Cluster};
use crate::siege::context::Context;
use crate::siege::honest::{HonestClients, Phase, Protocol, Tally};
use crate::siege::tracker::{Program, Tracker};
use crate::siege::verdict::{self, Honest, Measured, breaches};
use crate::siege::wire::{self, Wire};

/// The time within which memory has to be returned.
const MEMORY_RETURN_TIME_MAX: Duration = Duration::from_secs(10);

/// The interval at which the memory of the tracker is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The time for which honest clients are observed before an attack, if their latencies under it are compared.
const CALM_TIME: Duration = Duration::from_secs(10);

/// The interval and the timeout of polls of `/health`.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// The outcome of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The layer and the name of the attack.
    pub id: String,
    /// A description of the attempt.
    pub tries: &'static str,
    /// A description of the promise.
    pub promise: &'static str,
    /// Descriptions of the broken promises.
    pub breaches: Vec<String>,
    /// The measurements.
    pub measured: Measured,
    /// The end of the tracker's log, if a promise was broken.
    pub log_tail: Option<String>,
}

impl Outcome {
    /// Returns whether every promise held.
    pub fn has_held(&self) -> bool {
        self.breaches.is_empty()
    }
}

/// Runs an attack against a new tracker. `overrides` are settings that take precedence over those of the attack.
///
/// # Errors
/// Returns an error if the tracker does not start, if honest clients are not served before the attack, or if the attack
/// cannot be run.
pub fn run(
    attack: &Attack,
    program: &Program,
    mode: Mode,
    overrides: &[(String, String)],
) -> Result<Outcome> {
    if attack.is_on_wire {
        wire::with_wire(|wire| run_on(attack, program, mode, overrides, Some(wire)))
    } else {
        run_on(attack, program, mode, overrides, None)
    }
}

/// Runs an attack, which may use a wire.
fn run_on(
    attack: &Attack,
    program: &Program,
    mode: Mode,
    overrides: &[(String, String)],
    wire: Option<&Wire<'_>>,
) -> Result<Outcome> {
    let settings = attack.settings.iter().chain(match mode {
        Mode::Short => &[],
        Mode::Full => attack.settings_full,
    });
    let overrides = overrides.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let of_cluster = cluster::SETTINGS.iter().filter(|_| attack.is_of_cluster);
    let settings: Vec<_> = of_cluster.chain(settings).copied().chain(overrides).collect();
    let nats = attack.is_of_cluster.then(cluster::start_nats).transpose()?;
    let url = nats.as_ref().map_or_else(String::new, Server::url);
    let settings: Vec<_> =
        settings.into_iter().map(|(key, value)| (key, value.replace(cluster::NATS, &url))).collect();
    let start = || {
        let settings = settings.iter().map(|(key, value)| (*key, value.as_str()));
        program.start(settings, attack.has_defaults, attack.open_files_max, attack.prepare)
    };
    let mut tracker = start()?;
    let cluster = nats.map(|nats| Cluster::new(nats, &tracker, start()?)).transpose()?;
    let tls = Tls::new()?;
    let measured =
        measure(attack, &mut tracker, (cluster.as_ref(), wire), &tls, mode).with_context(|| attack.id())?;
    let breaches = breaches(&attack.limits, &measured, mode);
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

/// Runs the attack while memory is sampled and `/health` is polled.
fn measure(
    attack: &Attack,
    tracker: &mut Tracker,
    others: (Option<&Cluster>, Option<&Wire<'_>>),
    tls: &Tls,
    mode: Mode,
) -> Result<Measured> {
    let nodes: Vec<&Tracker> =
        core::iter::once(&*tracker).chain(others.0.map(|cluster| &cluster.other)).collect();
    let clients = HonestClients::start(&nodes, tls, others.1, attack.has_defaults)?;
    if attack.limits.p99_ratio_max.is_some() && mode == Mode::Full {
        clients.set_phase(Phase::Calm);
        thread::sleep(CALM_TIME);
    }
    let mut measured = Measured { resident_before_bytes: tracker.resident_bytes(), ..Measured::default() };
    let (context, is_over) = (Context::new(tracker, others, tls, mode), AtomicBool::new(false));
    thread::scope(|scope| {
        let memory = scope.spawn(|| {
            let mut peak_bytes = 0;
            while !is_over.load(Ordering::Relaxed) {
                peak_bytes = nodes.iter().map(|node| node.resident_bytes()).fold(peak_bytes, u64::max);
                thread::sleep(SAMPLE_INTERVAL);
            }
            peak_bytes
        });
        let health = scope.spawn(|| {
            let (mut polls, mut unhealthy) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let next = measure::now() + POLL_INTERVAL;
                let response = context.tracker.request_control("/health", POLL_TIMEOUT);
                let is_healthy = response.is_ok_and(|response| response.status == 200);
                (polls, unhealthy) = (polls + 1, unhealthy + u64::from(!is_healthy));
                measure::sleep_until(next);
            }
            (polls, unhealthy)
        });
        let result = attack_and_recover(attack, &context, &clients, &mut measured);
        is_over.store(true, Ordering::Relaxed);
        measured.resident_peak_bytes = memory.join().expect("reading memory does not panic");
        (measured.health_polls, measured.unhealthy) = health.join().expect("a request does not panic");
        result
    })?;
    measured.honest =
        clients.stop().into_iter().map(|(protocol, tally)| summarise(protocol, tally)).collect();
    (attack.finish)(&context)?;
    (measured.hostile_messages, measured.hostile_bytes) = context.spent();
    measured.checks = context.checks();
    drop(context);
    if let Err(error) = tracker.stop() {
        measured.bad_end = Some(format!("{error:#}"));
    }
    Ok(measured)
}

/// Runs the attack, then waits until the honest clients are served again and memory is returned.
fn attack_and_recover(
    attack: &Attack,
    context: &Context<'_>,
    clients: &HonestClients,
    measured: &mut Measured,
) -> Result<()> {
    let (tracker, began) = (context.tracker, measure::now());
    let cpu_before = tracker.cpu_ns();
    clients.set_phase(Phase::Attack);
    (attack.run)(context)?;
    context.wait_for_window();
    clients.set_phase(Phase::Other);
    let ended = measure::now();
    measured.took_ms = ms(ended - began);
    measured.cpu_ms = as_f64(tracker.cpu_ns().saturating_sub(cpu_before)) / 1e6;
    measured.recovery_ms = clients.wait_for_replies(ended).ok().map(ms);
    loop {
        let resident = tracker.resident_bytes();
        measured.resident_after_bytes = resident;
        let is_returned = !attack.limits.is_memory_returned
            || verdict::is_returned(measured.resident_before_bytes, resident);
        if measure::now() >= ended + MEMORY_RETURN_TIME_MAX || (context.mode == Mode::Short && is_returned) {
            return Ok(());
        }
        thread::sleep(SAMPLE_INTERVAL);
    }
}

/// Summarises the requests of one protocol.
fn summarise(protocol: Protocol, tally: Tally) -> Honest {
    let [mut latencies, mut calm] = [tally.latencies_us, tally.calm_latencies_us];
    [&mut latencies, &mut calm].into_iter().for_each(|all| all.sort_unstable());
    let at = |percent| f64::from(percentile(&latencies, percent)) / 1000.0;
    Honest {
        protocol,
        due: tally.due,
        answered: tally.answered,
        lost: tally.lost,
        p50_ms: at(50),
        p99_ms: at(99),
        calm_p99_ms: (!calm.is_empty()).then(|| f64::from(percentile(&calm, 99)) / 1000.0),
        failure: tally.failure,
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
