//! The tracker of a soak: its configuration, which changes, and its processes.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use shoal_compare::cpu_assignment::CpuAssignment;
use shoal_compare::network::VethPair;
use shoal_compare::process::{Process, Program, TAIL_LINES_MAX};
use shoal_load::Clock;
use shoal_testkit::client::http::Client;
use shoal_testkit::process::wait_for;
use tempfile::TempDir;

use super::counters::Counters;

const PORT: u16 = 6969;

/// The control listener, on the loopback interface of the tracker's side.
const CONTROL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 6970);
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of networks of the list that send nothing.
const NETWORKS: u32 = 2000;

/// How long a process may take to serve, to hand over, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A tracker and its process, which ends with it.
pub(super) struct Tracker<'p> {
    pair: &'p VethPair,
    program: Program,
    process: Process,
    /// The number of the configuration, which makes each list another one.
    reloads: u32,
    folder: TempDir,
}

impl<'p> Tracker<'p> {
    /// Returns the address of the tracker.
    pub(super) fn address() -> SocketAddr {
        (VethPair::TRACKER, PORT).into()
    }

    pub(super) fn start(shoal: &Path, pair: &'p VethPair, assignment: &CpuAssignment) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("shoal-soak-").tempdir();
        let folder = folder.context("cannot create a temporary folder")?;
        configure(folder.path(), pair.tracker_interface(), 0, &[], 0)?;
        let program = Program {
            file: shoal.to_owned(),
            arguments: vec!["--config".to_owned(), file(&folder).display().to_string()],
            environment: Vec::new(),
            folder: folder.path().to_owned(),
            processors: assignment.tracker.clone(),
        };
        let process = pair.on_tracker_side(|| program.start())?;
        let process = process.with_context(|| format!("cannot start {}", shoal.display()))?;
        Ok(Self { pair, program, process, reloads: 0, folder })
    }

    /// Reloads with another list of networks, which also contains these addresses, and with another limit of connection ids.
    pub(super) fn reload(&mut self, denied: &[Ipv4Addr], connects_per_s: u32) -> Result<()> {
        self.reloads += 1;
        configure(self.folder.path(), self.pair.tracker_interface(), self.reloads, denied, connects_per_s)?;
        self.process.signal(Signal::HUP);
        Ok(())
    }

    /// Makes it hand over to a new process, and waits until the old one has ended.
    pub(super) fn upgrade(&mut self) -> Result<()> {
        let old = *self.process.members().first().context("the tracker does not run")?;
        rustix::process::kill_process(old, Signal::USR2).context("cannot signal the tracker")?;
        self.wait_until("the old process should end", |tracker| !tracker.process.members().contains(&old))?;
        ensure!(
            !self.process.members().is_empty(),
            "the tracker ended instead of handing over: {}",
            self.log()
        );
        self.wait_until_it_serves()
    }

    /// Ends its process by a signal, and starts it again. Returns the time from the signal to the end, at which the kernel has closed
    /// its sockets and detached its program.
    pub(super) fn restart(&mut self, signal: Signal) -> Result<Duration> {
        let clock = Clock::start();
        self.process.signal(signal);
        self.wait_until_it_has_ended()?;
        let ending = Duration::from_nanos(clock.now_ns());
        self.pair
            .on_tracker_side(|| self.program.start_again(&mut self.process))?
            .context("cannot start the tracker again")?;
        self.wait_until_it_serves()?;
        Ok(ending)
    }

    /// Stops it for good.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.process.signal(Signal::TERM);
        self.wait_until_it_has_ended()
    }

    fn wait_until_it_has_ended(&mut self) -> Result<()> {
        self.wait_until("the tracker should end", |tracker| tracker.process.members().is_empty())
    }

    /// Waits until it has its data path.
    pub(super) fn wait_until_it_serves(&mut self) -> Result<()> {
        self.wait_until("the tracker should serve", |tracker| {
            tracker.try_counters().is_ok_and(|counters| counters.frames > 0)
        })
    }

    fn wait_until(&self, what: &str, is_true: impl Fn(&Self) -> bool) -> Result<()> {
        wait_for(what, PATIENCE, || Ok(is_true(self).then_some(()))).with_context(|| self.log())
    }

    /// Returns its counters and those of the kernel on its side. The listener may ask to be asked less often.
    pub(super) fn counters(&mut self) -> Result<Counters> {
        let counters = wait_for("the tracker should have metrics", PATIENCE, || Ok(self.try_counters().ok()));
        counters.with_context(|| self.log())
    }

    fn try_counters(&self) -> Result<Counters> {
        self.pair.on_tracker_side(|| {
            let mut counters = Counters::of_tracker(&metrics()?);
            let [snmp, devices] =
                ["snmp", "dev"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")));
            counters.add_kernel(&snmp?, &devices?, self.pair.tracker_interface());
            Ok(counters)
        })?
    }

    fn log(&self) -> String {
        self.process.log_tail(TAIL_LINES_MAX).join(" | ")
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("shoal.toml")
}

/// Writes the configuration and its list. `number` makes the list another one.
fn configure(
    folder: &Path,
    interface: &str,
    number: u32,
    denied: &[Ipv4Addr],
    connects_per_s: u32,
) -> Result<()> {
    let mut networks = String::new();
    for network in 0..NETWORKS {
        let bits = 0x0a00_0000 | (network.wrapping_mul(2_654_435_761).wrapping_add(number) & 0x00ff_ff00);
        writeln!(networks, "{}/{}", Ipv4Addr::from(bits), 24 + network % 8)?;
    }
    denied.iter().try_for_each(|address| writeln!(networks, "{address}"))?;
    let list = folder.join("denied");
    fs::write(&list, networks).with_context(|| format!("cannot write {}", list.display()))?;
    let text = format!(
        "[udp]\nlisten = [\"{}\"]\nio = \"mmsg\"\n[udp.xdp]\ninterfaces = [{interface:?}]\n[http]\nlisten = []\n\
         [announce]\npeers_per_address_max = 0\n[workers]\ncount = 1\n[control]\nlisten = \"{}:{}\"\n\
         [connection_id]\nkey = \"{}\"\n[access]\nnetworks_deny = [{:?}]\n\
         [limits]\nudp_connects_per_s = {connects_per_s}\nburst_s = 1\n",
        Tracker::address(),
        CONTROL.0,
        CONTROL.1,
        // Ids stay valid over a restart, as with a state.
        "5a".repeat(16),
        list.display().to_string(),
    );
    fs::write(folder.join("shoal.toml"), text).context("cannot write the configuration")
}

/// Returns the metrics of the tracker on this side.
fn metrics() -> Result<String> {
    let mut client = Client::open(None, CONTROL.into(), None, CONTROL_TIMEOUT)?;
    let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n";
    let response = client.request(request)?;
    ensure!(response.status == 200, "the reply is {}", response.head.lines().next().unwrap_or_default());
    Ok(String::from_utf8(response.body)?)
}
