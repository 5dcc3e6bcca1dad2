//! One run of one tracker on one number of cores: start, wait for an answer, fill, load, time, stop.
//!
//! A failure ends the run but not the comparison. It becomes part of the round, beside earlier measurements.
//!
//! The load comes from a `generator`, and a `spinner` may share the processors of the tracker.

mod generator;
mod spinner;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use shoal_load::{Pace, Progress, Report, Stop, Watch, info_hash};
use tempfile::TempDir;

use self::generator::Generator;
use self::spinner::Spinners;
use crate::accounting::sampling::Sampler;
use crate::accounting::{Snapshot, resident_bytes, threads};
use crate::certificate::Certificate;
use crate::configuration;
use crate::cpu_assignment::CpuAssignment;
use crate::description::{Description, StopSignal};
use crate::idle::Idle;
use crate::installation::Installation;
use crate::load::{LoadSpec, Measure, Transport, WsTransport};
use crate::machine;
use crate::network::Network;
use crate::plan::{ComparisonEvent, Interrupt, Observer, Phase};
use crate::port;
use crate::probe::{Endpoint, Probe, ProbeResult};
use crate::process::{Process, Program, TAIL_LINES_MAX, describe_exit};
use crate::result::{CpuTime, IdleConnections, IdleStep, Machine, Round, SlowReaderRound, Usage};
use crate::template::Values;
use crate::topology::{allowed, keep_on, pin_thread};

pub(crate) struct Run<'r> {
    pub(crate) description: &'r Description,
    pub(crate) installation: &'r Installation,
    pub(crate) assignment: &'r CpuAssignment,
    pub(crate) load: &'r LoadSpec,
    /// Present if the load uses TLS.
    pub(crate) certificate: Option<&'r Certificate>,
    pub(crate) port: Option<u16>,
    pub(crate) network: &'r Network,
    /// The length of an echo's announce replies.
    pub(crate) announce_reply_bytes: usize,
    pub(crate) interrupt: &'r Interrupt,
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    /// The address that the load uses.
    public: SocketAddr,
    /// The address of the tracker. It differs only if there is a front proxy.
    tracker: SocketAddr,
}

impl Run<'_> {
    pub(crate) fn run(&self, round: usize, observer: &mut Observer<'_>) -> Round {
        let mut outcome = Round { round, began: machine::timestamp(), ..Round::default() };
        // This thread must not disturb the tracker either.
        let before = allowed().ok();
        let pinned =
            keep_on(&self.assignment.load).context("cannot pin this thread to the processors of the load");
        let pinned = pinned.and_then(|()| self.network.assign(self.assignment));
        let end = pinned.and_then(|()| self.start_and_measure(&mut outcome, observer));
        if let Some(before) = before {
            // This fails only if the processors are no longer allowed.
            let _ = keep_on(&before);
        }
        outcome.failure = end.err().map(|error| format!("{error:#}"));
        outcome
    }

    fn start_and_measure(&self, outcome: &mut Round, observer: &mut Observer<'_>) -> Result<()> {
        let addresses = self.addresses()?;
        observer(&ComparisonEvent::Phase(Phase::Starting));
        let folder = self.folder(addresses)?;
        let mut process = self.start(addresses, folder.path())?;
        let end = self.measure(addresses.public, &mut process, outcome, observer);
        observer(&ComparisonEvent::Phase(Phase::Stopping));
        let end = match (end, process.ended().ok().flatten()) {
            (_, Some(status)) => Err(unexpected_exit(status)),
            (end, None) => end,
        };
        let log_tail = process.log_tail(TAIL_LINES_MAX);
        let signal = match self.description.stop.signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
        };
        // A user who wants to stop at once does not wait for a tracker that stops slowly.
        let limit = || if self.interrupt.is_immediate() { INTERRUPTED_PATIENCE } else { Duration::MAX };
        process.stop(signal, || self.description.stop_patience().min(limit()));
        end.map_err(|error| match log_tail.is_empty() {
            true => error,
            false => anyhow::anyhow!("{error:#}; its output: {}", log_tail.join(" | ")),
        })
    }

    fn addresses(&self) -> Result<Addresses> {
        let free = || port::free().context("no free port");
        let public = match self.port {
            Some(port) => {
                port::check(port).with_context(|| format!("--port {port}: the port is already in use"))?;
                port
            }
            None => free()?,
        };
        let tracker = if self.installation.front.is_some() { free()? } else { public };
        let at = |port: u16| SocketAddr::new(self.network.tracker_ip(), port);
        Ok(Addresses { public: at(public), tracker: at(tracker) })
    }

    /// Creates a temporary folder for the tracker's files. All may read it, since some trackers switch to another user.
    fn folder(&self, addresses: Addresses) -> Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("shoal-lab-").tempdir();
        let folder = folder.context("cannot create a temporary folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let values = self.values(addresses.tracker, folder.path());
        for (name, text) in configuration::files(self.description, &values)? {
            let file = folder.path().join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.description.whitelist {
            configuration::write_whitelist(folder.path(), self.load)
                .context("cannot write the white list")?;
        }
        if let Some(certificate) = self.certificate {
            certificate.write(folder.path())?;
        }
        Ok(folder)
    }

    fn start(&self, addresses: Addresses, folder: &Path) -> Result<Process> {
        let values = self.values(addresses.tracker, folder);
        let tracker = Program {
            file: self.installation.program.clone(),
            arguments: configuration::arguments(self.description, &values)?,
            environment: configuration::environment(self.description, &values)?,
            folder: folder.to_owned(),
            processors: self.assignment.tracker.clone(),
        };
        let start = |program: &Program| format!("cannot start {}", program.file.display());
        let started = self.network.on_tracker_side(|| tracker.start())?;
        let mut process = started.with_context(|| start(&tracker))?;
        let mut values = self.values(addresses.public, folder);
        values.set("backend_port", addresses.tracker.port());
        let arguments = configuration::front_arguments(self.description, &values)?;
        if let (Some(file), Some(arguments)) = (self.installation.front.clone(), arguments) {
            let front = Program { file, arguments, environment: Vec::new(), ..tracker };
            self.network.on_tracker_side(|| front.join(&mut process))?.with_context(|| start(&front))?;
        }
        Ok(process)
    }

    fn values(&self, address: SocketAddr, folder: &Path) -> Values {
        let workers = self.assignment.tracker.len();
        configuration::values(
            address,
            workers,
            &folder.display().to_string(),
            self.load,
            self.announce_reply_bytes,
            self.network.tracker_interface(),
        )
    }

    fn measure(
        &self,
        address: SocketAddr,
        process: &mut Process,
        outcome: &mut Round,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        self.wait_for_answer(address, process)?;
        for thread in threads(process.group())? {
            // This fails if the thread has ended, or, unless we are root, if it belongs to another user.
            let _ = pin_thread(thread, &self.assignment.tracker);
        }
        match self.load.measure {
            Measure::Load => self.load(address, process, outcome, observer),
            Measure::Idle { connections } => {
                observer(&ComparisonEvent::Phase(Phase::Idling));
                self.idle(address, connections, process, outcome)
            }
        }
    }

    fn load(
        &self,
        address: SocketAddr,
        process: &mut Process,
        outcome: &mut Round,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        observer(&ComparisonEvent::Phase(Phase::Preparing));
        let slow_readers = match self.load.transport {
            Transport::Ws(WsTransport { slow_readers, .. }) => slow_readers,
            Transport::Udp | Transport::Http(_) => 0,
        };
        let load = if self.description.ceiling { self.load.for_echo() } else { self.load.clone() };
        let load = load.with_slow_readers(0);
        let mut generator = self.generator(&load, address)?;
        outcome.resident_before_bytes = Some(resident_bytes(process.group())?);
        // A ceiling has no peers to fill, but long-lived connections have to be open before the measurement.
        if !self.description.ceiling || load.transport.open_connections() > 0 {
            observer(&ComparisonEvent::Phase(Phase::Filling));
            self.run_load(&mut outcome.fill, process, observer, |watch| generator.fill(watch))?;
        }
        outcome.resident_filled_bytes = Some(resident_bytes(process.group())?);
        observer(&ComparisonEvent::Phase(Phase::Loading));
        self.closed_loop(&mut generator, process, outcome, observer)?;
        outcome.resident_loaded_bytes = Some(resident_bytes(process.group())?);
        if let Some(open) = load.open() {
            observer(&ComparisonEvent::Phase(Phase::Timing));
            self.open_loop(&mut generator, open, process, outcome, observer)?;
        }
        if slow_readers > 0 && !self.description.ceiling {
            drop(generator);
            let second = outcome.slow_readers.insert(SlowReaderRound::default());
            let load = load.with_slow_readers(slow_readers);
            self.measure_with_slow_readers(&load, address, process, second, observer)?;
        }
        Ok(())
    }

    fn generator(&self, load: &LoadSpec, address: SocketAddr) -> Result<Generator> {
        let plan = load.plan(address, self.assignment, !self.description.own_address_tolerated);
        let connections = load.window_of_worker(self.assignment);
        let hook = self.network.hook().filter(|_| load.at_driver);
        Ok(Generator::open(&plan, load.transport, connections, self.description.ceiling, hook)?)
    }

    /// Measures everything again with slow readers, the closed loop first, so that unread messages pile up quickly.
    fn measure_with_slow_readers(
        &self,
        load: &LoadSpec,
        address: SocketAddr,
        process: &mut Process,
        outcome: &mut SlowReaderRound,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let mut generator = self.generator(load, address)?;
        observer(&ComparisonEvent::Phase(Phase::Filling));
        self.run_load(&mut outcome.fill, process, observer, |watch| generator.fill(watch))?;
        observer(&ComparisonEvent::Phase(Phase::Loading));
        let (pace, stop) = load.closed(self.assignment);
        self.run_load(&mut outcome.load, process, observer, |watch| generator.run(pace, stop, watch))?;
        if let Some((pace, stop)) = load.open() {
            observer(&ComparisonEvent::Phase(Phase::Timing));
            self.run_load(&mut outcome.latency, process, observer, |watch| generator.run(pace, stop, watch))?;
        }
        outcome.resident_bytes = Some(resident_bytes(process.group())?);
        Ok(())
    }

    /// Opens connections, leaves them idle, and reads their memory. Fewer connections than requested are measured, too.
    fn idle(
        &self,
        address: SocketAddr,
        wanted: usize,
        process: &mut Process,
        outcome: &mut Round,
    ) -> Result<()> {
        let endpoint = self.endpoint(address);
        let resident_before_bytes = resident_bytes(process.group())?;
        let mut idle = Idle::default();
        let (mut failure, mut steps) = (None, Vec::new());
        for number in 0..wanted {
            self.check_running(process)?;
            if number == IDLE_STEP {
                let (open, resident_bytes) = self.settled(&idle, process)?;
                steps.push(IdleStep { open, resident_bytes });
            }
            let added = idle.add(&endpoint, self.load.transport, self.load.seed);
            let added = added.and_then(|()| check_memory(idle.opened(), process));
            if let Err(error) = added {
                failure = Some(format!("{error:#}"));
                break;
            }
        }
        let (open, resident_open_bytes) = self.settled(&idle, process)?;
        outcome.idle = Some(IdleConnections {
            wanted,
            open,
            failure,
            resident_before_bytes,
            resident_open_bytes,
            steps,
        });
        Ok(())
    }

    /// Waits a while, then returns the number of open connections and the resident bytes.
    fn settled(&self, idle: &Idle, process: &mut Process) -> Result<(usize, u64)> {
        std::thread::sleep(SETTLE_TIME);
        self.check_running(process)?;
        let resident_bytes = resident_bytes(process.group())?;
        Ok((idle.still_open(), resident_bytes))
    }

    fn endpoint(&self, tracker: SocketAddr) -> Endpoint {
        Endpoint { tracker, tls: self.certificate.map(Certificate::client) }
    }

    /// Runs the closed loop and measures its cost. The load ends with a wait for the last replies, so the busy share of
    /// processors is taken from the last sample before it; CPU time is read at the end.
    fn closed_loop(
        &self,
        generator: &mut Generator,
        process: &mut Process,
        outcome: &mut Round,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let ((pace, stop), processors, group) =
            (self.load.closed(self.assignment), self.assignment.all(), process.group());
        let (trackers, spinners) = (&self.assignment.tracker, self.load.spinners);
        let _spinning = Spinners::start(trackers, spinners).context("cannot start the spinning threads")?;
        let sampler = threads(group).and_then(|threads| Sampler::start(&threads)).ok();
        let snapshot = || Snapshot::take(group, sampler.as_ref(), &processors);
        let (before, received) = (snapshot()?, self.network.receive_s());
        let mut at_work = None;
        let mut sampling = |event: &ComparisonEvent<'_>| {
            let is_sending = |progress: &Progress| progress.elapsed <= self.load.duration;
            if matches!(event, ComparisonEvent::Progress(progress) if is_sending(progress)) {
                at_work = snapshot().ok();
            }
            observer(event);
        };
        let end = self
            .run_load(&mut outcome.load, process, &mut sampling, |watch| generator.run(pace, stop, watch));
        // A process that has exited has no counters any more. Then `end` is the error.
        let after = snapshot().ok();
        outcome.usage = after.map(|after| {
            let last_sample = at_work.as_ref().map(|at_work| before.until(at_work).cpu);
            let at_work = at_work.as_ref().unwrap_or(&after);
            let ready_share = before.ready_share(at_work, trackers.len());
            let at_work = before.until(at_work);
            let elapsed_s = outcome.load.as_ref().map_or(at_work.cpu.elapsed_s, |load| load.elapsed_s);
            let (processors, steal) = (at_work.processors, at_work.steal);
            let cpu = CpuTime { elapsed_s, ..before.until(&after).cpu };
            let receive_s = received.and_then(|received| Some(self.network.receive_s()? - received));
            let at_work = last_sample;
            Usage { cpu, processors, steal, at_work, ready_share, spinners, receive_s }
        });
        end
    }

    /// Runs the open loop and measures its cost. Nothing samples the tracker, which waits after nearly each request: the
    /// timer of the samples would start and end with each wait.
    fn open_loop(
        &self,
        generator: &mut Generator,
        (pace, stop): (Pace, Stop),
        process: &mut Process,
        outcome: &mut Round,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let (processors, group) = (self.assignment.all(), process.group());
        let snapshot = || Snapshot::take(group, None, &processors);
        let before = snapshot()?;
        let end =
            self.run_load(&mut outcome.latency, process, observer, |watch| generator.run(pace, stop, watch));
        outcome.latency_usage = snapshot().ok().map(|after| before.until(&after));
        end
    }

    /// Runs the load and stores the report, even if the tracker has exited or the user has interrupted the run.
    fn run_load(
        &self,
        report: &mut Option<Report>,
        process: &mut Process,
        observer: &mut Observer<'_>,
        load: impl FnOnce(&mut Watch<'_>) -> Report,
    ) -> Result<()> {
        let cancel = AtomicBool::new(false);
        let mut progress = |progress: &Progress| {
            observer(&ComparisonEvent::Progress(progress));
            let has_exited = !matches!(process.ended(), Ok(None));
            if has_exited || self.interrupt.is_immediate() {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        let report = report.insert(load(&mut Watch { cancel: &cancel, progress: &mut progress }));
        self.check_running(process)?;
        if let Some(failure) = &report.failure {
            bail!("{failure}");
        }
        Ok(())
    }

    /// Checks that the tracker runs and the user has not interrupted the run.
    fn check_running(&self, process: &mut Process) -> Result<()> {
        ensure!(!self.interrupt.is_immediate(), "interrupted");
        if let Some(status) = process.ended()? {
            return Err(unexpected_exit(status));
        }
        Ok(())
    }

    fn wait_for_answer(&self, address: SocketAddr, process: &mut Process) -> Result<()> {
        let patience = self.description.start_patience();
        let deadline = machine::now() + patience;
        let probe = match self.load.transport {
            Transport::Udp => {
                let probe = Probe::udp(address, self.description.whitelist);
                probe.context("cannot open a socket for the probe")?
            }
            Transport::Http(_) => Probe::Http(self.endpoint(address)),
            Transport::Ws(_) => Probe::Ws(self.endpoint(address)),
        };
        let mut refusal = None;
        while machine::now() < deadline {
            self.check_running(process)?;
            match probe.ask(info_hash(self.load.seed, 0)) {
                ProbeResult::Serves => return Ok(()),
                ProbeResult::Refuses(reason) => refusal = Some(reason),
                ProbeResult::Silence => {}
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        let (patience_s, question) = (patience.as_secs(), probe.question());
        match refusal {
            None => bail!("it did not answer {question} within {patience_s} s (start.patience_s)"),
            Some(reason) => bail!("it still refused the load's torrents after {patience_s} s: {reason}"),
        }
    }
}

/// Describes an exit in the middle of a run. A tracker that exits at once without an error is probably a daemon.
fn unexpected_exit(status: ExitStatus) -> anyhow::Error {
    let advice = if status.success() { ": it must stay in the foreground" } else { "" };
    anyhow::anyhow!("the tracker {}{advice}", describe_exit(status))
}

const INTERRUPTED_PATIENCE: Duration = Duration::from_secs(1);

const PROBE_PAUSE: Duration = Duration::from_millis(20);

/// How long connections are idle before memory is read. A tracker may need a moment to release the memory that it used
/// when they were opened. This is shorter than the idle timeout of any tracker.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The number of connections at which memory is read for the first time, to show whether each costs the same.
const IDLE_STEP: usize = 1000;

/// The number of connections that are opened between two checks of the machine's memory.
const MEMORY_CHECK_PERIOD: usize = 250;

/// Checks that the idle connections of a tracker take less than half of the machine's memory.
fn check_memory(opened: usize, process: &Process) -> Result<()> {
    if !opened.is_multiple_of(MEMORY_CHECK_PERIOD) {
        return Ok(());
    }
    let (resident, all) = (resident_bytes(process.group())?, Machine::this().memory_bytes);
    ensure!(resident < all / 2, "{opened} connections took half of this machine's memory: {resident} bytes");
    Ok(())
}
