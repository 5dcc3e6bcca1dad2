//! A soak of the XDP data path: full load from the driver hook, round after round, while the tracker is reloaded, upgraded,
//! stopped, killed, and its interface goes down.
//!
//! Each round has one disturbance and ends with a pause. In the pause, all frames of the AF_XDP sockets must be free again, and every
//! request of the round must be answered or be found in a counter of the tracker, of the kernel or of a driver (`ledger`). So
//! each process is checked at most one round before its end.
//!
//! A worker that fails ends its process, and cannot be made to fail from outside. So its restart is that of the process.

mod counters;
mod ledger;
mod tracker;

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;
use shoal_compare::cpu_assignment::CpuAssignment;
use shoal_compare::network::VethPair;
use shoal_compare::topology::allowed;
use shoal_load::udp::DriverHook;
use shoal_load::{Clock, Mix, Pace, Plan, Population, Progress, Report, Session, Sources, Stop, Watch, udp};
use shoal_net::Backend;

use self::counters::Counters;
use self::ledger::Load;
pub use self::ledger::{Event, Round, SoakResult};
use self::tracker::Tracker;

/// A soak.
#[derive(Clone, Debug)]
pub struct SoakPlan {
    /// The program of the tracker.
    pub shoal: PathBuf,
    /// How long it lasts. Every disturbance happens once at least.
    pub duration: Duration,
    /// The duration of the load of a round.
    pub round: Duration,
}

/// Requests in flight: as many as the generator at the driver hook can have.
pub const WINDOW: u32 = 224;

/// A request is given up after this time, and another one takes its place.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Addresses and ports that requests come from.
const SOURCES: usize = 16;

/// The address that is denied at times: the last source.
const DENIED: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 16);

/// The limit of connection ids that the load exceeds at times.
const CONNECTS_PER_S: u32 = 1000;

const TORRENTS: u32 = 50_000;
const PEERS: u32 = 100_000;

/// How long counters may take to settle after the load.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_POLL: Duration = Duration::from_millis(250);

/// How long a configuration is in force, how long one that drops requests is, and how long the interface is down.
const RELOAD_PAUSE: Duration = Duration::from_millis(300);
const DENY_PAUSE: Duration = Duration::from_millis(400);
const DOWN_PAUSE: Duration = Duration::from_millis(300);

/// Runs a soak. Calls `on_round` after each round, with the share of the time that is over.
///
/// # Errors
/// If this process is not root, the tracker does not start, or the kernel lacks something. A figure that misses its bar is
/// no error.
pub fn run(
    plan: &SoakPlan,
    cancel: &AtomicBool,
    on_round: &mut dyn FnMut(&Round, f64),
) -> Result<SoakResult> {
    let pair = VethPair::new()?;
    let hook = DriverHook::attach(pair.load_interface())?;
    let assignment = assignment()?;
    pair.assign(&assignment)?;
    let tracker = Tracker::start(&plan.shoal, &pair, &assignment)?;
    let mut soak = Soak { pair: &pair, assignment: &assignment, tracker, processes: 1 };
    let mut session = soak.open_session(&hook)?;
    let fill = session.fill(&mut Watch { cancel, progress: &mut |_: &Progress| {} });
    ensure!(fill.failure.is_none(), "the tracker cannot be filled: {fill:?}");
    let clock = Clock::start();
    let elapsed = || Duration::from_nanos(clock.now_ns());
    let mut result = SoakResult::default();
    for (number, event) in Event::ALL.into_iter().cycle().enumerate() {
        if cancel.load(Ordering::Relaxed) || (number >= Event::ALL.len() && elapsed() >= plan.duration) {
            break;
        }
        let round = soak.round(event, plan.round, &mut session, cancel)?;
        on_round(&round, (elapsed().as_secs_f64() / plan.duration.as_secs_f64()).min(1.0));
        result.add(round);
    }
    result.processes = soak.processes;
    result.elapsed_s = elapsed().as_secs_f64();
    drop(session);
    soak.tracker.stop()?;
    Ok(result)
}

/// The parts of a soak that rounds share.
struct Soak<'s> {
    pair: &'s VethPair,
    assignment: &'s CpuAssignment,
    tracker: Tracker<'s>,
    /// How many processes of the tracker there were.
    processes: u32,
}

/// The outcome of a disturbance.
struct Disturbed {
    /// The counters from which those of the round count on: those of a process that has ended are taken over to those of the next
    /// one.
    earlier: Counters,
    /// How long the process took to end, if one has ended without a successor.
    ending: Option<Duration>,
}

impl Soak<'_> {
    /// Connects the generator. Each attempt fails while the tracker starts.
    fn open_session(&mut self, hook: &DriverHook) -> Result<Session> {
        self.tracker.wait_until_it_serves()?;
        let processor = self.assignment.load[0];
        udp::open_at_driver(&load(processor), hook).context("the generator cannot be connected")
    }

    /// Puts load on the tracker, disturbs it meanwhile, and checks what is left.
    fn round(
        &mut self,
        event: Event,
        duration: Duration,
        session: &mut Session,
        cancel: &AtomicBool,
    ) -> Result<Round> {
        let before = self.read()?;
        let (report, disturbed) = thread::scope(|scope| {
            let run = || {
                let stop = Stop { after: Some(duration), requests: None };
                let mut watch = Watch { cancel, progress: &mut |_: &Progress| {} };
                session.run(Pace::Closed { window: WINDOW as usize }, stop, &mut watch)
            };
            let load = scope.spawn(run);
            thread::sleep(duration / 3);
            let disturbed = self.disturb(event, &before);
            let report = load.join().map_err(|_panic| anyhow!("the load has panicked"))?;
            Ok::<(Report, Disturbed), anyhow::Error>((report, disturbed?))
        })?;
        let changes = self.settle()?.since(&disturbed.earlier);
        Ok(Round::new(event, &Load::of(&report), &changes, disturbed.ending))
    }

    /// Disturbs the tracker.
    fn disturb(&mut self, event: Event, before: &Counters) -> Result<Disturbed> {
        let last = self.read()?;
        let (mut earlier, mut ending) = (before.clone(), None);
        match event {
            Event::Reload => {
                for variant in 0..4 {
                    self.tracker.reload(&[], 1_000_000 - variant)?;
                    thread::sleep(RELOAD_PAUSE);
                }
                self.tracker.reload(&[], 0)?;
            }
            Event::Deny => {
                self.tracker.reload(&[], CONNECTS_PER_S)?;
                thread::sleep(DENY_PAUSE);
                self.tracker.reload(&[DENIED], 0)?;
                thread::sleep(DENY_PAUSE);
                self.tracker.reload(&[], 0)?;
            }
            Event::Down => self.pair.interrupt(DOWN_PAUSE, self.assignment)?,
            Event::Upgrade | Event::Stop | Event::Kill => {
                match event {
                    Event::Upgrade => self.tracker.upgrade()?,
                    Event::Stop => ending = Some(self.tracker.restart(Signal::TERM)?),
                    _ => ending = Some(self.tracker.restart(Signal::KILL)?),
                }
                self.processes += 1;
                earlier.begin_anew(&last);
            }
        }
        Ok(Disturbed { earlier, ending })
    }

    /// Waits until all frames are free and nothing is counted any more, or for too long. Returns the last counters.
    fn settle(&mut self) -> Result<Counters> {
        let mut last = self.read()?;
        for _ in 0..SETTLE_MAX.as_millis() / SETTLE_POLL.as_millis() {
            thread::sleep(SETTLE_POLL);
            let next = self.read()?;
            let is_settled = next.are_all_frames_free() && next.has_same_drops(&last);
            last = next;
            if is_settled {
                break;
            }
        }
        Ok(last)
    }

    fn read(&mut self) -> Result<Counters> {
        let [load, tracker] = self.pair.driver_counts()?;
        let mut counters = self.tracker.counters()?;
        counters.add_drivers(&load, &tracker);
        Ok(counters)
    }
}

/// Returns the first and the last processor that this process may use, which may be the same.
fn assignment() -> Result<CpuAssignment> {
    let processors = allowed()?;
    let (first, last) = processors.first().zip(processors.last()).context("there is no processor")?;
    Ok(CpuAssignment { cores: 1, tracker: vec![*first], load: vec![*last] })
}

/// Returns the published mix, on fewer torrents.
fn load(processor: usize) -> Plan {
    let preset = shoal_load::PRESETS[0];
    let sources = NonZeroUsize::new(SOURCES).unwrap_or(NonZeroUsize::MIN);
    Plan {
        target: Tracker::address(),
        population: Population { torrents: TORRENTS, peers: PEERS, ..preset.population },
        // Most requests go through the AF_XDP sockets.
        mix: Mix { connect: 10, ..preset.mix },
        numwant: preset.numwant,
        scrape_hashes_max: preset.scrape_hashes_max,
        sources: Sources {
            first: VethPair::FIRST_SOURCE.into(),
            addresses: sources,
            sockets_per_worker: sources,
        },
        workers: vec![Some(processor)],
        seed: 1,
        io: Backend::Mmsg,
        timeout: TIMEOUT,
        own_address_is_wrong: false,
    }
}
