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
use shoal_load::udp::Session;
use shoal_load::{Progress, Report, Watch, info_hash};
use tempfile::TempDir;

use crate::account::{Snapshot, resident_bytes};
use crate::clock;
use crate::configuration;
use crate::description::{Description, StopSignal, WHITELIST};
use crate::division::Division;
use crate::find::Found;
use crate::load::Load;
use crate::order::{Event, Interrupt, Observer, Phase};
use crate::probe::{Probe, free_port, is_free};
use crate::process::{Process, Program, in_words};
use crate::result::{Round, Usage};
use crate::topology::{allowed, keep_on};

/// What a run needs to know.
pub(crate) struct Run<'r> {
    pub(crate) description: &'r Description,
    pub(crate) found: &'r Found,
    pub(crate) division: &'r Division,
    pub(crate) load: &'r Load,
    pub(crate) port: Option<u16>,
    /// How long an echo's announce replies should be.
    pub(crate) announce_reply_bytes: usize,
    pub(crate) interrupt: &'r Interrupt,
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
        let port = match self.port {
            Some(port) => {
                is_free(port).with_context(|| format!("--port {port}: somebody listens there already"))?;
                port
            }
            None => free_port().context("no free port")?,
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        observer(&Event::Phase(Phase::Starting));
        let folder = self.folder(address)?;
        let mut process = self.start(address, folder.path())?;
        let end = self.measure(address, &mut process, outcome, observer);
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

    /// A temporary folder with all that the tracker wants in it. Others may read it, since some trackers become another
    /// user.
    fn folder(&self, address: SocketAddr) -> Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("shoal-lab-").tempdir();
        let folder = folder.context("cannot make a temporary folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let values = self.values(address, folder.path());
        for (name, text) in configuration::files(self.description, &values)? {
            let file = folder.path().join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.description.whitelist {
            let file = folder.path().join(WHITELIST);
            write_whitelist(&file, self.load).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(folder)
    }

    fn start(&self, address: SocketAddr, folder: &Path) -> Result<Process> {
        let values = self.values(address, folder);
        let program = Program {
            file: self.found.program.clone(),
            arguments: configuration::arguments(self.description, &values)?,
            environment: configuration::environment(self.description, &values)?,
            folder: folder.to_owned(),
            processors: self.division.tracker.clone(),
        };
        program.start().with_context(|| format!("cannot start {}", program.file.display()))
    }

    fn values(&self, address: SocketAddr, folder: &Path) -> crate::template::Values {
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
        observer(&Event::Phase(Phase::Preparing));
        let plan = self.load.plan(address, self.division, !self.description.own_address_tolerated);
        let mut session = Session::open(&plan)?;
        outcome.resident_before_bytes = Some(resident_bytes(process.group())?);
        if !self.description.ceiling {
            observer(&Event::Phase(Phase::Filling));
            self.load_it(&mut outcome.fill, process, observer, |watch| session.fill(watch))?;
        }
        outcome.resident_filled_bytes = Some(resident_bytes(process.group())?);
        observer(&Event::Phase(Phase::Loading));
        self.closed_loop(&mut session, process, outcome, observer)?;
        if let Some((pace, stop)) = self.load.open() {
            observer(&Event::Phase(Phase::Timing));
            self.load_it(&mut outcome.latency, process, observer, |watch| session.run(pace, stop, watch))?;
        }
        Ok(())
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
            let at_work = before.until(at_work.as_ref().unwrap_or(&after));
            let elapsed_s = outcome.load.as_ref().map_or(at_work.elapsed_s, |load| load.elapsed_s);
            let (processors, steal) = (at_work.processors, at_work.steal);
            Usage { elapsed_s, processors, steal, ..before.until(&after) }
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
        let mut probe = Probe::new(address).context("no socket to ask the tracker by")?;
        let mut refusal = None;
        while clock::now() < deadline {
            self.check_goes_on(process)?;
            let Some(id) = probe.connect() else {
                std::thread::sleep(PROBE_PAUSE);
                continue;
            };
            if !self.description.whitelist {
                return Ok(());
            }
            // A tracker with a white list may answer before it has read it.
            match probe.serves(id, info_hash(self.load.seed, 0)) {
                Some(Ok(())) => return Ok(()),
                Some(Err(words)) => refusal = Some(words),
                None => {}
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        let patience_s = patience.as_secs();
        match refusal {
            None => bail!("it did not answer a connect within {patience_s} s (start.patience_s)"),
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
