//! One run of one tracker on one number of cores: start it, wait until it answers, fill it, load it, time it, stop it.
//!
//! Whatever goes wrong ends the run, not the comparison: it is written into the round, beside what was measured before.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use shoal_load::{Progress, Report, Watch, info_hash};
use tempfile::TempDir;

use crate::account::{Snapshot, resident_bytes, threads};
use crate::certificate::Certificate;
use crate::clock;
use crate::configuration;
use crate::description::{Description, StopSignal, WHITELIST};
use crate::division::Division;
use crate::find::Found;
use crate::generator::Session;
use crate::http::Client;
use crate::idle::Idle;
use crate::load::{Load, Measure, Transport, Ws};
use crate::order::{Event, Interrupt, Observer, Phase};
use crate::port;
use crate::probe::{Answer, Probe};
use crate::process::{Process, Program, in_words};
use crate::result::{BesideDeaf, IdleConnections, IdleStep, Machine, Round, Usage};
use crate::template::Values;
use crate::topology::{allowed, bring_back, keep_on};

/// What a run needs to know.
pub(crate) struct Run<'r> {
    pub(crate) description: &'r Description,
    pub(crate) found: &'r Found,
    pub(crate) division: &'r Division,
    pub(crate) load: &'r Load,
    /// Where the load is HTTPS.
    pub(crate) certificate: Option<&'r Certificate>,
    pub(crate) port: Option<u16>,
    /// How long an echo's announce replies should be.
    pub(crate) announce_reply_bytes: usize,
    pub(crate) interrupt: &'r Interrupt,
}

/// Where everybody listens.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    /// Where the load comes.
    public: SocketAddr,
    /// Where the tracker is: another place only if something stands before it.
    tracker: SocketAddr,
}

impl Run<'_> {
    /// Runs, as round number `round`.
    pub(crate) fn run(&self, round: usize, observer: &mut Observer<'_>) -> Round {
        let mut outcome = Round {
            round,
            began: clock::timestamp(),
            failure: None,
            fill: None,
            load: None,
            latency: None,
            usage: None,
            resident_before_bytes: None,
            resident_filled_bytes: None,
            resident_loaded_bytes: None,
            idle: None,
            deaf: None,
        };
        // This thread must not disturb the tracker either.
        let before = allowed().ok();
        let kept = keep_on(&self.division.load).context("cannot keep to the processors of the load");
        let end = kept.and_then(|()| self.on_stage(&mut outcome, observer));
        if let Some(before) = before {
            // What was allowed before is allowed again, unless somebody took it away meanwhile.
            let _ = keep_on(&before);
        }
        outcome.failure = end.err().map(|error| format!("{error:#}"));
        outcome
    }

    fn on_stage(&self, outcome: &mut Round, observer: &mut Observer<'_>) -> Result<()> {
        let addresses = self.addresses()?;
        observer(&Event::Phase(Phase::Starting));
        let folder = self.folder(addresses)?;
        let mut process = self.start(addresses, folder.path())?;
        let end = self.measure(addresses.public, &mut process, outcome, observer);
        observer(&Event::Phase(Phase::Stopping));
        let died = process.ended().ok().flatten();
        let end = match (end, died) {
            (_, Some(status)) => Err(its_end(status)),
            (end, None) => end,
        };
        let tail = process.tail();
        let signal = match self.description.stop.signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
        };
        // Who wants the end at once does not want to wait for a tracker that writes its memoirs.
        let hurried = || if self.interrupt.is_at_once() { HURRIED_PATIENCE } else { Duration::MAX };
        process.stop(signal, || self.description.stop_patience().min(hurried()));
        end.map_err(|error| {
            if tail.is_empty() { error } else { anyhow::anyhow!("{error:#}; it said: {}", tail.join(" | ")) }
        })
    }

    fn addresses(&self) -> Result<Addresses> {
        let free = || port::free().context("no free port");
        let public = match self.port {
            Some(port) => {
                port::check(port)
                    .with_context(|| format!("--port {port}: somebody listens there already"))?;
                port
            }
            None => free()?,
        };
        let tracker = if self.found.front.is_some() { free()? } else { public };
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Addresses { public: at(public), tracker: at(tracker) })
    }

    /// A temporary folder with all that the tracker wants in it. Others may read it, since some trackers become another
    /// user.
    fn folder(&self, addresses: Addresses) -> Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("shoal-lab-").tempdir();
        let folder = folder.context("cannot make a temporary folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let values = self.values(addresses.tracker, folder.path());
        for (name, text) in configuration::files(self.description, &values)? {
            let file = folder.path().join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.description.whitelist {
            let file = folder.path().join(WHITELIST);
            write_whitelist(&file, self.load).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if let Some(certificate) = self.certificate {
            certificate.write(folder.path())?;
        }
        Ok(folder)
    }

    /// Starts the tracker, and what stands before it.
    fn start(&self, addresses: Addresses, folder: &Path) -> Result<Process> {
        let values = self.values(addresses.tracker, folder);
        let tracker = Program {
            file: self.found.program.clone(),
            arguments: configuration::arguments(self.description, &values)?,
            environment: configuration::environment(self.description, &values)?,
            folder: folder.to_owned(),
            processors: self.division.tracker.clone(),
        };
        let start = |program: &Program| format!("cannot start {}", program.file.display());
        let mut process = tracker.start().with_context(|| start(&tracker))?;
        let mut values = self.values(addresses.public, folder);
        values.set("backend_port", addresses.tracker.port());
        let arguments = configuration::front_arguments(self.description, &values)?;
        if let (Some(file), Some(arguments)) = (self.found.front.clone(), arguments) {
            let front = Program { file, arguments, environment: Vec::new(), ..tracker };
            process.add(&front).with_context(|| start(&front))?;
        }
        Ok(process)
    }

    fn values(&self, address: SocketAddr, folder: &Path) -> Values {
        let workers = self.division.tracker.len();
        configuration::values(
            address,
            workers,
            &folder.display().to_string(),
            self.load,
            self.announce_reply_bytes,
        )
    }

    fn measure(
        &self,
        address: SocketAddr,
        process: &mut Process,
        outcome: &mut Round,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        self.wait_until_it_answers(address, process)?;
        for thread in threads(process.group())? {
            // It may have ended just now; and who became another user, before whom a user is powerless, stays where it is.
            let _ = bring_back(thread, &self.division.tracker);
        }
        match self.load.measure {
            Measure::Load => self.load(address, process, outcome, observer),
            Measure::Idle { connections } => {
                observer(&Event::Phase(Phase::Idling));
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
        observer(&Event::Phase(Phase::Preparing));
        let deaf = match self.load.transport {
            Transport::Ws(Ws { deaf, .. }) => deaf,
            Transport::Udp | Transport::Http(_) => 0,
        };
        let load = if self.description.ceiling { self.load.of_ceiling() } else { self.load.clone() };
        let load = load.beside_deaf(0);
        let mut session = self.session(&load, address)?;
        outcome.resident_before_bytes = Some(resident_bytes(process.group())?);
        // What is not filled is opened while it is measured, but connections that stand are to be there before.
        if !self.description.ceiling || load.transport.standing() > 0 {
            observer(&Event::Phase(Phase::Filling));
            self.load_it(&mut outcome.fill, process, observer, |watch| session.fill(watch))?;
        }
        outcome.resident_filled_bytes = Some(resident_bytes(process.group())?);
        observer(&Event::Phase(Phase::Loading));
        self.closed_loop(&mut session, process, outcome, observer)?;
        outcome.resident_loaded_bytes = Some(resident_bytes(process.group())?);
        if let Some((pace, stop)) = load.open() {
            observer(&Event::Phase(Phase::Timing));
            self.load_it(&mut outcome.latency, process, observer, |watch| session.run(pace, stop, watch))?;
        }
        if deaf > 0 && !self.description.ceiling {
            drop(session);
            let beside = outcome.deaf.insert(BesideDeaf::default());
            self.measure_beside_deaf(&load.beside_deaf(deaf), address, process, beside, observer)?;
        }
        Ok(())
    }

    fn session(&self, load: &Load, address: SocketAddr) -> Result<Session> {
        let plan = load.plan(address, self.division, !self.description.own_address_tolerated);
        let connections = load.window_of_worker(self.division);
        Ok(Session::open(&plan, load.transport, connections, self.description.ceiling)?)
    }

    /// All of it once more, on connections of which some are never read. The closed loop comes first, so that what is
    /// never read piles up as fast as can be.
    fn measure_beside_deaf(
        &self,
        load: &Load,
        address: SocketAddr,
        process: &mut Process,
        outcome: &mut BesideDeaf,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let mut session = self.session(load, address)?;
        observer(&Event::Phase(Phase::Filling));
        self.load_it(&mut outcome.fill, process, observer, |watch| session.fill(watch))?;
        observer(&Event::Phase(Phase::Loading));
        let (pace, stop) = load.closed(self.division);
        self.load_it(&mut outcome.load, process, observer, |watch| session.run(pace, stop, watch))?;
        if let Some((pace, stop)) = load.open() {
            observer(&Event::Phase(Phase::Timing));
            self.load_it(&mut outcome.latency, process, observer, |watch| session.run(pace, stop, watch))?;
        }
        outcome.resident_bytes = Some(resident_bytes(process.group())?);
        Ok(())
    }

    /// Opens connections, leaves them alone, and reads what they cost. Fewer than were wanted are measured, too.
    fn idle(
        &self,
        address: SocketAddr,
        wanted: usize,
        process: &mut Process,
        outcome: &mut Round,
    ) -> Result<()> {
        let client = self.client(address)?;
        let resident_before_bytes = resident_bytes(process.group())?;
        let mut idle = Idle::default();
        let (mut failure, mut steps) = (None, Vec::new());
        for number in 0..wanted {
            self.check_goes_on(process)?;
            if number == IDLE_STEP {
                let (open, resident_bytes) = self.settled(&idle, process)?;
                steps.push(IdleStep { open, resident_bytes });
            }
            let added = idle.add(&client, self.load.transport, self.load.seed);
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

    /// How many connections are open once they were left alone for a while, and resident bytes.
    fn settled(&self, idle: &Idle, process: &mut Process) -> Result<(usize, u64)> {
        std::thread::sleep(SETTLING);
        self.check_goes_on(process)?;
        let resident_bytes = resident_bytes(process.group())?;
        Ok((idle.still_open(), resident_bytes))
    }

    fn client(&self, address: SocketAddr) -> Result<Client> {
        let tls = self.certificate.map(Certificate::client);
        Client::new(address, tls).context("no client for the tracker")
    }

    /// The closed loop, and what it cost.
    ///
    /// A run ends with a wait for the last replies, in which the tracker has nothing to do. So what processors did is
    /// read at the last look while requests were still being sent; CPU time is read when every reply is in.
    fn closed_loop(
        &self,
        session: &mut Session,
        process: &mut Process,
        outcome: &mut Round,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let ((pace, stop), processors, group) =
            (self.load.closed(self.division), self.division.all(), process.group());
        let before = Snapshot::take(group, &processors)?;
        let mut at_work = None;
        let mut watching = |event: &Event<'_>| {
            if matches!(event, Event::Progress(progress) if progress.elapsed <= self.load.duration) {
                at_work = Snapshot::take(group, &processors).ok();
            }
            observer(event);
        };
        let end =
            self.load_it(&mut outcome.load, process, &mut watching, |watch| session.run(pace, stop, watch));
        // A process that ended meanwhile has no account any more; then the end says so.
        let after = Snapshot::take(group, &processors).ok();
        outcome.usage = after.map(|after| {
            let last_look = at_work.as_ref().map(|at_work| before.until(at_work).cpu_time());
            let at_work = before.until(at_work.as_ref().unwrap_or(&after));
            let elapsed_s = outcome.load.as_ref().map_or(at_work.elapsed_s, |load| load.elapsed_s);
            let (processors, steal) = (at_work.processors, at_work.steal);
            Usage { elapsed_s, processors, steal, at_work: last_look, ..before.until(&after) }
        });
        end
    }

    /// Loads the tracker and keeps the report, also of a load that ends early because the tracker is gone, or because
    /// the user has had enough.
    fn load_it(
        &self,
        report: &mut Option<Report>,
        process: &mut Process,
        observer: &mut Observer<'_>,
        load: impl FnOnce(&mut Watch<'_>) -> Report,
    ) -> Result<()> {
        let cancel = AtomicBool::new(false);
        let mut progress = |progress: &Progress| {
            observer(&Event::Progress(progress));
            let is_gone = !matches!(process.ended(), Ok(None));
            if is_gone || self.interrupt.is_at_once() {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        let report = report.insert(load(&mut Watch { cancel: &cancel, progress: &mut progress }));
        self.check_goes_on(process)?;
        if let Some(failure) = &report.failure {
            bail!("{failure}");
        }
        Ok(())
    }

    /// Whether there is a reason not to go on: the tracker is gone, or the user wants to be.
    fn check_goes_on(&self, process: &mut Process) -> Result<()> {
        ensure!(!self.interrupt.is_at_once(), "interrupted");
        if let Some(status) = process.ended()? {
            return Err(its_end(status));
        }
        Ok(())
    }

    fn wait_until_it_answers(&self, address: SocketAddr, process: &mut Process) -> Result<()> {
        let patience = self.description.start_patience();
        let deadline = clock::now() + patience;
        let mut probe = match self.load.transport {
            Transport::Udp => Probe::over_udp(address, self.description.whitelist)
                .context("no socket to ask the tracker by")?,
            Transport::Http(_) => Probe::over_http(self.client(address)?),
            Transport::Ws(_) => Probe::over_ws(self.client(address)?),
        };
        let mut refusal = None;
        while clock::now() < deadline {
            self.check_goes_on(process)?;
            match probe.ask(info_hash(self.load.seed, 0)) {
                Answer::Serves => return Ok(()),
                Answer::Refuses(words) => refusal = Some(words),
                Answer::Silence => {}
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        let (patience_s, question) = (patience.as_secs(), probe.question());
        match refusal {
            None => bail!("it did not answer {question} within {patience_s} s (start.patience_s)"),
            Some(words) => bail!("it still refused the load's torrents after {patience_s} s: {words}"),
        }
    }
}

/// Why a tracker is not there any more. One that ends at once without an error has most likely become a daemon.
fn its_end(status: ExitStatus) -> anyhow::Error {
    let advice = if status.success() { ": it must stay in the foreground" } else { "" };
    anyhow::anyhow!("the tracker {}{advice}", in_words(status))
}

const HURRIED_PATIENCE: Duration = Duration::from_secs(1);

const PROBE_PAUSE: Duration = Duration::from_millis(20);

/// How long connections are left alone before memory is read: a tracker may need a moment to give back what they needed
/// when they came. It is less than any tracker's patience with them.
const SETTLING: Duration = Duration::from_secs(2);

/// With so many connections memory is read on the way, so that it can be seen whether each costs the same.
const IDLE_STEP: usize = 1000;

/// How many connections are opened between two looks at whether the machine bears them.
const MEMORY_CHECK_PERIOD: usize = 250;

/// A tracker whose idle connections take half of the machine's memory has been seen enough of.
fn check_memory(opened: usize, process: &Process) -> Result<()> {
    if !opened.is_multiple_of(MEMORY_CHECK_PERIOD) {
        return Ok(());
    }
    let (resident, all) = (resident_bytes(process.group())?, Machine::this().memory_bytes);
    ensure!(resident < all / 2, "{opened} connections took half of this machine's memory: {resident} bytes");
    Ok(())
}

/// The info hashes of the load, in hexadecimal, one to a line. There may be ten million of them, so no formatting.
fn write_whitelist(file: &Path, load: &Load) -> std::io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = BufWriter::new(File::create(file)?);
    let mut line = [b'\n'; 41];
    for torrent in 0..load.population.torrents {
        for (digits, byte) in line.chunks_exact_mut(2).zip(info_hash(load.seed, torrent).0) {
            digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        out.write_all(&line)?;
    }
    out.flush()
}
