//! A run: start, fill, and then under load one event after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use shoal_compare::load::LoadSpec;
use shoal_compare::topology::{allowed, keep_on};
use shoal_load::{Clock, Pace, Plan, Progress, Report, Session, Stop, Watch, nanoseconds, udp};

use crate::chaos::counters::Counters;
use crate::chaos::disk;
use crate::chaos::event::EventKind;
use crate::chaos::full_load::FullLoad;
use crate::chaos::load::{Load, LoadPlan};
use crate::chaos::measure::{self, Window, milliseconds};
use crate::chaos::record::{Lane, Ledger};
use crate::chaos::result::{ChaosResult, EventResult, PeerCounts, SCHEMA_VERSION, Settings, WebSocketEnd};
use crate::chaos::sample::Sample;
use crate::chaos::socket_drops;
use crate::chaos::threshold::{Threshold, judge};
use crate::chaos::tracker::{DENIED, Subject, Tracker};
use crate::chaos::websocket::WebSockets;

/// A run against one tracker.
#[derive(Clone, Debug)]
pub struct ChaosPlan {
    /// The tracker.
    pub subject: Subject,
    /// The torrents and peers of the fill, and the network.
    pub load: LoadSpec,
    /// Requests a second of each lane. Full load has none.
    pub rates: Vec<(Lane, f64)>,
    /// The rate over UDP as a share of what the tracker answers in a closed loop, instead of that in `rates`.
    pub share: Option<f64>,
    /// The number of connections with keep-alive.
    pub connections: usize,
    /// The number of WebTorrent clients that stay connected.
    pub websockets: usize,
    /// A request counts as lost after this time without an answer.
    pub timeout: Duration,
    /// The events, in their order.
    pub events: Vec<EventKind>,
    /// They are repeated until this time is over.
    pub duration: Duration,
    /// The time of load before an event, and after it.
    pub settle: Duration,
    /// The length of a pause.
    pub pause: Duration,
    /// Most torrents whose peers are counted.
    pub sample: u32,
    /// The most that figures may be.
    pub thresholds: Vec<Threshold>,
}

/// A step of a run, for a display.
#[derive(Debug)]
pub enum RunEvent<'e> {
    /// The tracker starts.
    Starting,
    /// Peers are announced.
    Filling(&'e Progress),
    /// The most that it answers is measured.
    Measuring(&'e Progress),
    /// An event begins, after this number of others.
    Event(EventKind, usize),
    /// The figures are computed.
    Computing,
}

/// A result, and the answers of each lane over time around each event, for plots.
#[derive(Debug)]
pub struct Outcome {
    /// The result.
    pub result: ChaosResult,
    /// For each event, its window and the answers of each lane in each part of it.
    pub answers: Vec<OverTime>,
}

/// A window, and the answers of each lane in each part of it.
pub type OverTime = (Window, Vec<(Lane, Vec<u64>)>);

/// Parts of a window in a plot.
const BUCKETS: usize = 300;

/// Requests in flight of the closed loop that measures the most that a tracker answers, and how long it lasts.
const CLOSED_WINDOW: usize = 256;
const CLOSED_TIME: Duration = Duration::from_secs(3);

/// How long a configuration is in force, and how long the interface is down.
const BRIEFLY: Duration = Duration::from_secs(1);

/// A limit of connection ids that full load exceeds, and one that it does not.
const CONNECTS_FEW: u32 = 1000;
const CONNECTS_MANY: u32 = 1_000_000;

/// An event while the load went on, whose figures are still to be computed.
struct Seen {
    window: Window,
    /// When the new process was started, or the pause ended.
    started_ns: Option<u64>,
    result: EventResult,
}

/// The actions of an event.
#[derive(Default)]
struct Done {
    started_ns: Option<u64>,
    note: Option<String>,
}

/// Prepares this process for a run with these events. It may start again in another mount namespace.
///
/// # Errors
/// Returns an error if the host does not permit it.
pub fn prepare(events: &[EventKind]) -> Result<()> {
    if events.contains(&EventKind::DiskFull) { disk::enter_namespace() } else { Ok(()) }
}

/// Runs it. `cancel` ends it after the current event.
///
/// # Errors
/// Returns an error if the tracker cannot be started and filled, or this host refuses something.
pub fn run(
    plan: &ChaosPlan,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&RunEvent<'_>),
) -> Result<Outcome> {
    let before = allowed()?;
    keep_on(&plan.subject.assignment.load).context("cannot pin this thread to the processors of the load")?;
    let outcome = start_and_run(plan, cancel, observer);
    keep_on(&before)?;
    outcome
}

fn start_and_run(
    plan: &ChaosPlan,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&RunEvent<'_>),
) -> Result<Outcome> {
    observer(&RunEvent::Starting);
    let disk_may_be_full = plan.events.contains(&EventKind::DiskFull);
    let tracker = Tracker::start(&plan.subject, &plan.load, disk_may_be_full)?;
    let (session, fill_s, most_per_s) = fill(plan, &tracker, cancel, observer)?;
    let session = plan.load.at_driver.then_some(session);
    let mut rates = plan.rates.clone();
    if let (Some(share), Some(most)) = (plan.share, most_per_s) {
        let udp = rates.iter_mut().filter(|(lane, _)| *lane == Lane::Udp);
        udp.for_each(|(_, rate)| *rate = (share * most).max(1.0));
    }
    let population = plan.load.population;
    let settings = Settings {
        torrents: population.torrents,
        peers: population.peers,
        fill_s,
        resident_bytes: tracker.resident_bytes(),
        rates: rates.clone(),
        most_per_s,
        websockets: plan.websockets,
        timeout_ms: u64::try_from(plan.timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let load_plan = LoadPlan {
        target: tracker.address,
        torrents: population.torrents,
        seed: plan.load.seed,
        load_peers: LoadPlan::load_peers_for(population.torrents),
        rates,
        connections: plan.connections,
        timeout: plan.timeout,
    };
    let load = Load::start(&load_plan).context("the load cannot be started")?;
    let websockets = WebSockets::open(tracker.address, plan.websockets, &load)?;
    // The addresses of its client are those of the loopback interface.
    let sample = if session.is_none() { plan.sample } else { 0 };
    let sample = Sample::new(tracker.address, plan.load.seed, population.torrents, sample);
    let mut stage = Stage { plan, tracker, load, sample, session, seen: Vec::new() };
    let failure = stage.all_events(cancel, observer).err().map(|error| format!("{error:#}"));
    observer(&RunEvent::Computing);
    let Stage { load, seen, tracker, .. } = stage;
    let ends = websockets.end();
    let ledgers = load.end();
    drop(tracker);
    let over_time = |window: &Window| {
        let lane =
            |(lane, ledger): &(Lane, Ledger)| (*lane, measure::answers_over_time(ledger, window, BUCKETS));
        (*window, ledgers.iter().map(lane).collect())
    };
    let answers = seen.iter().map(|seen| over_time(&seen.window)).collect();
    let result = ChaosResult {
        schema_version: SCHEMA_VERSION,
        tracker: plan.subject.description.title.clone(),
        version: plan.subject.installation.version.clone(),
        settings,
        events: seen.into_iter().map(|seen| seen.computed(plan, &ledgers, &ends)).collect(),
        malformed: ledgers.iter().map(|(_, ledger)| ledger.malformed).sum(),
        load_late_ms: milliseconds(ledgers.iter().map(|(_, ledger)| ledger.latest_ns).max().unwrap_or(0)),
        failure,
    };
    Ok(Outcome { result, answers })
}

/// Announces all peers, and measures the most that the tracker answers if a share of it is asked for. Returns the time of
/// the fill in seconds, and the replies a second, after the session.
fn fill(
    plan: &ChaosPlan,
    tracker: &Tracker,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&RunEvent<'_>),
) -> Result<(Session, f64, Option<f64>)> {
    let load: Plan = plan.load.plan(tracker.address, &plan.subject.assignment, false);
    let mut session = None;
    let patience = plan.subject.description.start_patience();
    let (clock, mut refusal) = (Clock::start(), None);
    while session.is_none() {
        let hook = tracker.network.hook();
        match hook.map_or_else(|| udp::open(&load), |hook| udp::open_at_driver(&load, hook)) {
            Ok(opened) => session = Some(opened),
            Err(error) => refusal = Some(error),
        }
        let is_over = Duration::from_nanos(clock.now_ns()) > patience || !tracker.is_running();
        if session.is_none() && (is_over || cancel.load(Ordering::Relaxed)) {
            let error = refusal.map_or_else(String::new, |error| error.to_string());
            bail!("the tracker does not serve UDP: {error}{}", tracker.last_words());
        }
    }
    let mut session = session.context("the load cannot be opened")?;
    let mut progress = |progress: &Progress| observer(&RunEvent::Filling(progress));
    let filled = session.fill(&mut Watch { cancel, progress: &mut progress });
    check(&filled).with_context(|| format!("the fill{}", tracker.last_words()))?;
    let most_per_s = plan.share.map(|_| {
        let mut progress = |progress: &Progress| observer(&RunEvent::Measuring(progress));
        let stop = Stop { after: Some(CLOSED_TIME), requests: None };
        let pace = Pace::Closed { window: CLOSED_WINDOW };
        let report = session.run(pace, stop, &mut Watch { cancel, progress: &mut progress });
        check(&report).map(|()| report.responses_per_s)
    });
    let most_per_s = most_per_s.transpose()?;
    Ok((session, filled.elapsed_s, most_per_s))
}

fn check(report: &Report) -> Result<()> {
    if let Some(failure) = &report.failure {
        bail!("{failure}");
    }
    ensure!(!report.ended_early, "interrupted");
    Ok(())
}

/// A run while its load goes on.
struct Stage<'p> {
    plan: &'p ChaosPlan,
    tracker: Tracker,
    load: Load,
    sample: Sample,
    /// The generator of full load, between two events.
    session: Option<Session>,
    seen: Vec<Seen>,
}

impl Stage<'_> {
    fn all_events(&mut self, cancel: &AtomicBool, observer: &mut dyn FnMut(&RunEvent<'_>)) -> Result<()> {
        // A kill then costs nothing that was there before the load began.
        if self.tracker.can_snapshot() {
            self.tracker.snapshot().context("the first snapshot")?;
        }
        let (events, end_ns) = (&self.plan.events, self.load.now_ns() + nanoseconds(self.plan.duration));
        for (index, event) in events.iter().cycle().enumerate() {
            if index >= events.len() && self.load.now_ns() >= end_ns {
                break;
            }
            ensure!(!cancel.load(Ordering::Relaxed), "interrupted");
            observer(&RunEvent::Event(*event, index));
            self.event(*event)?;
        }
        Ok(())
    }

    /// Carries out an event, with some time of load before and after it. Afterwards the tracker runs.
    fn event(&mut self, event: EventKind) -> Result<()> {
        if self.tracker.is_damaged() {
            self.stop_and_start(|tracker| tracker.repair().map(|()| None)).context("after the damage")?;
        }
        let before = self.sample.count();
        let drops = socket_drops::read(self.load.udp_ports());
        let full_load = self.session.take().map(|session| FullLoad::begin(session, &self.tracker));
        let mut full_load = full_load.transpose()?;
        let began_ns = self.load.now_ns();
        thread::sleep(self.plan.settle);
        if let Some(full_load) = &mut full_load {
            full_load.look(&self.tracker)?;
        }
        let acted_ns = self.load.now_ns();
        let done = self.act(event);
        let done_ns = self.load.now_ns();
        let has_ended = !self.tracker.is_running();
        if has_ended {
            self.tracker.start_again()?;
            self.wait_for_answer(self.load.now_ns())?;
        }
        thread::sleep(self.plan.settle);
        let ended_ns = self.load.now_ns();
        let drops = socket_drops::read(self.load.udp_ports()).since(drops);
        let (done, mut failure) = match done {
            Ok(_) if has_ended => (Done::default(), Some("the tracker ended".to_owned())),
            Ok(done) => (done, None),
            Err(error) => (Done::default(), Some(format!("{error:#}"))),
        };
        let mut account = None;
        if let Some(full_load) = full_load {
            let until_start = done.started_ns.map(|ns| Duration::from_nanos(ns.saturating_sub(acted_ns)));
            let (session, of_event, fault) = full_load.end(event, until_start, &self.tracker)?;
            (self.session, account, failure) = (Some(session), Some(of_event), failure.or(fault));
        }
        let (peers, scrape_failure) = match (before, self.sample.count()) {
            (Ok(before), Ok(after)) => {
                let peers = PeerCounts { torrents: self.sample.len(), before, after };
                (Some(peers).filter(|peers| peers.torrents > 0), None)
            }
            (Err(error), _) | (_, Err(error)) => (None, Some(error)),
        };
        let result = EventResult {
            event,
            took_ms: milliseconds(done_ns - acted_ns),
            peers,
            account,
            drops,
            state_bytes: self.tracker.state_file().map(|(_, size)| size),
            note: done.note.or(scrape_failure),
            failure,
            ..EventResult::default()
        };
        let window = Window { began_ns, acted_ns, done_ns, ended_ns };
        self.seen.push(Seen { window, started_ns: done.started_ns, result });
        Ok(())
    }

    fn act(&mut self, event: EventKind) -> Result<Done> {
        match event {
            EventKind::Pause => {
                self.tracker.pause(self.plan.pause);
                self.answer_of(None)
            }
            EventKind::Reload => {
                for variant in 0..4 {
                    self.tracker.reload(None, CONNECTS_MANY - variant)?;
                    thread::sleep(BRIEFLY);
                }
                self.tracker.reload(None, 0).map(|()| Done::default())
            }
            EventKind::Deny => {
                self.tracker.reload(None, CONNECTS_FEW)?;
                thread::sleep(BRIEFLY);
                self.tracker.reload(Some(DENIED), 0)?;
                thread::sleep(BRIEFLY);
                self.tracker.reload(None, 0).map(|()| Done::default())
            }
            EventKind::Down => self.tracker.interrupt(BRIEFLY).map(|()| Done::default()),
            EventKind::Restart => self.stop_and_start(|_| Ok(None)),
            EventKind::Damage => self.stop_and_start(|tracker| {
                tracker.damage(disk::change_a_byte)?;
                Ok(Some("a byte in the middle of its state was changed"))
            }),
            EventKind::Truncate => self.stop_and_start(|tracker| {
                tracker.damage(disk::truncate)?;
                Ok(Some("the last quarter of its state was cut off"))
            }),
            EventKind::Kill => {
                self.tracker.kill();
                let started_ns = self.load.now_ns();
                self.tracker.start_again()?;
                self.wait_for_answer(started_ns)?;
                Ok(Done { started_ns: Some(started_ns), note: None })
            }
            EventKind::Upgrade => {
                self.tracker.upgrade()?;
                self.answer_of(None)
            }
            EventKind::Snapshot => self.tracker.snapshot().map(|()| Done::default()),
            EventKind::DiskFull => {
                self.tracker.disk()?.fill()?;
                let refused = self.tracker.snapshot().err();
                self.tracker.disk()?.free()?;
                ensure!(self.tracker.is_running(), "the tracker ended{}", self.tracker.last_words());
                self.tracker.snapshot().context("with room on the disk")?;
                let note = match refused {
                    Some(_) => "the snapshot failed while the disk was full, and succeeded when it was not",
                    None => "the snapshot succeeded although the disk was full",
                };
                Ok(Done { started_ns: None, note: Some(note.to_owned()) })
            }
        }
    }

    /// Asks the tracker to exit, and starts it again after `between`, which may return a remark.
    fn stop_and_start(
        &mut self,
        between: impl FnOnce(&mut Tracker) -> Result<Option<&'static str>>,
    ) -> Result<Done> {
        let killed = self.tracker.stop();
        let note = between(&mut self.tracker);
        let started_ns = self.load.now_ns();
        self.tracker.start_again()?;
        self.wait_for_answer(started_ns)?;
        let note = note?;
        let note = if killed { Some("it did not exit when asked, and was killed") } else { note };
        Ok(Done { started_ns: Some(started_ns), note: note.map(str::to_owned) })
    }

    /// Waits for an answer to a request that was due from now on.
    fn answer_of(&self, note: Option<String>) -> Result<Done> {
        let started_ns = self.load.now_ns();
        self.wait_for_answer(started_ns)?;
        Ok(Done { started_ns: Some(started_ns), note })
    }

    /// Waits for an answer to a request that was due at `since_ns` or later.
    fn wait_for_answer(&self, since_ns: u64) -> Result<()> {
        if self.plan.load.at_driver {
            return Counters::read(&self.tracker).map(drop);
        }
        let patience = self.plan.subject.description.start_patience();
        let has_answered = || self.load.last_answered_due_ns() >= since_ns;
        let is_decided = self.tracker.wait_until(patience, || has_answered() || !self.tracker.is_running());
        let has_answered = has_answered();
        ensure!(has_answered || !is_decided, "the tracker ended{}", self.tracker.last_words());
        let patience_s = patience.as_secs();
        ensure!(
            has_answered,
            "no answer within {patience_s} s (start.patience_s){}",
            self.tracker.last_words()
        );
        Ok(())
    }
}

impl Seen {
    /// Computes the figures of the event.
    fn computed(self, plan: &ChaosPlan, ledgers: &[(Lane, Ledger)], ends: &[WebSocketEnd]) -> EventResult {
        let Self { window, started_ns, mut result } = self;
        let first_answer_ns =
            |started_ns| Some(measure::first_answered_ns(ledgers, started_ns)?.saturating_sub(started_ns));
        result.first_answer_ms = started_ns.and_then(first_answer_ns).map(milliseconds);
        let lane = |(lane, ledger): &(Lane, Ledger)| measure::lane(*lane, ledger, &window, plan.timeout);
        result.lanes = ledgers.iter().map(lane).collect();
        result.websockets = (plan.websockets > 0).then(|| measure::websockets(ends, &window));
        result.findings = judge(&result, &plan.thresholds);
        result
    }
}
