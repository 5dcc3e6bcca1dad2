//! The tracker under test: its folder, its process, and the signals and commands that disturb it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, kill_process};
use shoal_compare::configuration;
use shoal_compare::cpu_assignment::CpuAssignment;
use shoal_compare::description::{ChaosOptions, Description, StopSignal};
use shoal_compare::installation::Installation;
use shoal_compare::load::LoadSpec;
use shoal_compare::network::{Network, VethPair};
use shoal_compare::port;
use shoal_compare::process::{Process, Program};
use shoal_compare::template::Values;
use shoal_load::{Clock, nanoseconds};
use shoal_testkit::process::resident_bytes;
use tempfile::TempDir;

use crate::chaos::disk::{self, StateDisk};

const POLL: Duration = Duration::from_millis(2);

/// Time for a hand-over, with that in which the old process closes its WebSockets.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(600);

/// The copy of the state before it was damaged, in the folder of the tracker.
const UNDAMAGED: &str = "undamaged";

/// Lines of its output in a message.
const LAST_LINES: usize = 3;

/// Addresses that full load comes from, the last of which is denied at times.
pub(crate) const SOURCES: u8 = 16;
pub(crate) const DENIED: Ipv4Addr = {
    let [a, b, c, d] = VethPair::FIRST_SOURCE.octets();
    Ipv4Addr::new(a, b, c, d + SOURCES - 1)
};

/// The number of denied networks that send nothing.
const NETWORKS: u32 = 2000;

/// A tracker that can take part.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its description, with what differs for chaos applied.
    pub description: Description,
    /// The ways to disturb it.
    pub options: ChaosOptions,
    /// Its program.
    pub installation: Installation,
    /// The processors that it and the load have.
    pub assignment: CpuAssignment,
}

/// A tracker and its process, which ends with it.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(crate) address: SocketAddr,
    pub(crate) control_port: u16,
    subject: Subject,
    program: Program,
    process: Process,
    values: Values,
    /// The number of the configuration, which makes each list of networks another one.
    reloads: u32,
    clock: Clock,
    disk: Option<StateDisk>,
    state: Option<PathBuf>,
    /// The file of its state that was damaged. Its content is in [`UNDAMAGED`].
    damaged: Option<PathBuf>,
    pub(crate) network: Network,
    /// Its files. They are removed last.
    folder: TempDir,
}

impl Tracker {
    /// Starts it on a free port. Its state is on a file system of its own if that shall be full at times.
    pub(crate) fn start(subject: &Subject, load: &LoadSpec, disk_may_be_full: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("shoal-lab-").tempdir();
        let folder = folder.context("cannot create a temporary folder")?;
        // Some trackers switch to another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let (port, control_port) = (port::free()?, port::free()?);
        let network = Network::new(load.network)?;
        network.assign(&subject.assignment)?;
        let address = SocketAddr::from((network.tracker_ip(), port));
        let workers = subject.assignment.tracker.len();
        let (path, interface) = (folder.path().display().to_string(), network.tracker_interface());
        let mut values = configuration::values(address, workers, &path, load, 0, interface);
        values.set("control_port", control_port);
        set_limits(&mut values, 0, None, 0)?;
        let description = &subject.description;
        write_files(folder.path(), description, &values)?;
        if description.whitelist {
            configuration::write_whitelist(folder.path(), load)?;
        }
        let state = subject.options.state.as_ref().map(|name| folder.path().join(name));
        let disk = state.as_deref().filter(|_| disk_may_be_full).map(StateDisk::mount).transpose()?;
        let program = Program {
            file: subject.installation.program.clone(),
            arguments: configuration::arguments(description, &values)?,
            environment: configuration::environment(description, &values)?,
            folder: folder.path().to_owned(),
            processors: subject.assignment.tracker.clone(),
        };
        let process = network.on_tracker_side(|| program.start())?;
        let process = process.with_context(|| format!("cannot start {}", program.file.display()))?;
        let (subject, clock) = (subject.clone(), Clock::start());
        Ok(Self {
            address,
            control_port,
            subject,
            program,
            process,
            values,
            reloads: 0,
            clock,
            disk,
            state,
            damaged: None,
            network,
            folder,
        })
    }

    /// Starts it again.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let Self { network, program, process, .. } = self;
        network.on_tracker_side(|| program.start_again(process))?.context("cannot start the tracker again")
    }

    /// Returns whether any of its processes runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.process.members().is_empty()
    }

    /// Asks it to exit and waits until it has. Returns whether it had to be killed.
    pub(crate) fn stop(&self) -> bool {
        self.process.signal(match self.subject.description.stop.signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
        });
        let exited = self.wait_until(self.subject.description.stop_patience(), || !self.is_running());
        if !exited {
            self.kill();
        }
        !exited
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&self) {
        self.process.signal(Signal::KILL);
        self.wait_until(Duration::MAX, || !self.is_running());
    }

    /// Stops it for a while.
    pub(crate) fn pause(&self, time: Duration) {
        self.process.signal(Signal::STOP);
        thread::sleep(time);
        self.process.signal(Signal::CONT);
    }

    /// Makes it read its configuration again, with another list of networks, which may contain a source of the load, and with another
    /// limit of connection ids.
    pub(crate) fn reload(&mut self, denied: Option<Ipv4Addr>, connects_per_s: u32) -> Result<()> {
        self.reloads += 1;
        set_limits(&mut self.values, self.reloads, denied, connects_per_s)?;
        write_files(self.folder.path(), &self.subject.description, &self.values)?;
        self.process.signal(Signal::HUP);
        Ok(())
    }

    /// Takes its interface down for a while.
    pub(crate) fn interrupt(&self, time: Duration) -> Result<()> {
        self.pair()?.interrupt(time, &self.subject.assignment)
    }

    /// Returns its network, if that is a pair of virtual interfaces.
    pub(crate) fn pair(&self) -> Result<&VethPair> {
        match &self.network {
            Network::Veth { pair, .. } => Ok(pair),
            Network::Loopback => bail!("the tracker has no interface of its own"),
        }
    }

    /// Makes it hand over to a new process, and waits until the old one has ended.
    pub(crate) fn upgrade(&self) -> Result<()> {
        let old = self.process.members();
        let main = *old.first().context("the tracker does not run")?;
        match (&self.subject.options.upgrade, self.subject.options.upgrade_signal) {
            (Some(arguments), _) => self.command(&arguments.clone())?,
            (None, Some(signal)) => kill_process(main, signal.signal()).context("the signal was refused")?,
            (None, None) => bail!("its description has no way to upgrade it"),
        }
        let ended = self.wait_until(UPGRADE_PATIENCE, || !self.process.members().contains(&main));
        ensure!(ended, "the old process still runs after {} s", UPGRADE_PATIENCE.as_secs());
        ensure!(self.is_running(), "the tracker ended instead of handing over{}", self.last_words());
        Ok(())
    }

    /// Makes it write its state, and waits until it has.
    pub(crate) fn snapshot(&self) -> Result<()> {
        let arguments = self.subject.options.snapshot.clone();
        self.command(&arguments.context("its description has no way to write a snapshot")?)
    }

    /// Returns whether a snapshot can be requested.
    pub(crate) fn can_snapshot(&self) -> bool {
        self.subject.options.snapshot.is_some()
    }

    /// Returns the file system of its state.
    pub(crate) fn disk(&self) -> Result<&StateDisk> {
        self.disk.as_ref().context("its state is not on a file system of its own")
    }

    /// Returns the largest file of its state, and its size.
    pub(crate) fn state_file(&self) -> Option<(PathBuf, u64)> {
        disk::largest_file(self.state.as_deref()?)
    }

    /// Damages the largest file of its state, of which a copy is kept.
    pub(crate) fn damage(&mut self, damage: fn(&Path) -> io::Result<()>) -> Result<()> {
        let (file, _) = self.state_file().context("there is no state to damage")?;
        fs::copy(&file, self.folder.path().join(UNDAMAGED)).context("its state cannot be copied")?;
        damage(&file).context("its state cannot be damaged")?;
        self.damaged = Some(file);
        Ok(())
    }

    /// Returns whether its state was damaged and not repaired since.
    pub(crate) const fn is_damaged(&self) -> bool {
        self.damaged.is_some()
    }

    /// Puts the copy of its state in place of what it has written since the damage.
    pub(crate) fn repair(&mut self) -> Result<()> {
        let Some(file) = self.damaged.take() else { return Ok(()) };
        fs::copy(self.folder.path().join(UNDAMAGED), file).context("its state cannot be repaired")?;
        Ok(())
    }

    /// Returns the resident memory of all its processes in bytes, if the kernel tells it.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.process.members().into_iter().map(resident_bytes).sum()
    }

    /// Returns the end of its output, for a message.
    pub(crate) fn last_words(&self) -> String {
        let lines = self.process.log_tail(LAST_LINES);
        if lines.is_empty() { String::new() } else { format!("; its output: {}", lines.join(" | ")) }
    }

    /// Waits for a condition. Returns whether it came true in time.
    pub(crate) fn wait_until(&self, patience: Duration, is_true: impl Fn() -> bool) -> bool {
        let deadline_ns = self.clock.now_ns().saturating_add(nanoseconds(patience));
        loop {
            if is_true() {
                return true;
            }
            if self.clock.now_ns() >= deadline_ns {
                return false;
            }
            thread::sleep(POLL);
        }
    }

    /// Runs its program with other arguments, beside the running process.
    fn command(&self, arguments: &[String]) -> Result<()> {
        let arguments: Vec<String> =
            arguments.iter().map(|argument| self.values.expand(argument)).collect::<Result<_, _>>()?;
        let mut command = Command::new(&self.program.file);
        command.args(&arguments).current_dir(&self.program.folder).stdin(Stdio::null());
        let output =
            command.output().with_context(|| format!("cannot run {}", self.program.file.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", arguments.join(" "), errors.trim());
        Ok(())
    }
}

/// Sets the placeholders of denied networks and of the limit of connection ids. `number` makes the list another one.
fn set_limits(values: &mut Values, number: u32, denied: Option<Ipv4Addr>, connects_per_s: u32) -> Result<()> {
    let mut networks = String::new();
    for network in 0..NETWORKS {
        let bits = 0x0a00_0000 | (network.wrapping_mul(2_654_435_761).wrapping_add(number) & 0x00ff_ff00);
        writeln!(networks, "{}/{}", Ipv4Addr::from(bits), 24 + network % 8)?;
    }
    denied.iter().try_for_each(|address| writeln!(networks, "{address}"))?;
    values.set("denied", networks);
    values.set("connects_per_s", connects_per_s);
    Ok(())
}

fn write_files(folder: &Path, description: &Description, values: &Values) -> Result<()> {
    for (name, text) in configuration::files(description, values)? {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
