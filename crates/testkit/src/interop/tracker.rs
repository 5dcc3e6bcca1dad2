//! The tracker under test on its own host, and how another host sees it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::interop::metrics::Metrics;
use crate::interop::network::Host;
use crate::interop::route::{HTTPS_PORT, Protocol, TRACKER_PORT};
use crate::interop::workers;
use crate::process::{Process, remove_settings, wait_for};
use crate::tools;

/// The default address of the control listener of `shoal`.
const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6970);

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Twice the time in which the tracker promises to end after SIGTERM, because the machine may be busy.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The running tracker. Unless a test needs more, it runs without a configuration file, as for a new user.
#[derive(Debug)]
pub struct Tracker {
    process: Process,
    host: Host,
    observer: Host,
    tracker_view: PathBuf,
}

/// A configuration key, as its environment variable, and the value.
pub type Setting = (&'static str, &'static str);

/// The counts of a torrent in a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have everything.
    pub seeders: u32,
    /// Completed downloads.
    pub completed: u32,
    /// Peers that do not have everything.
    pub leechers: u32,
}

impl Tracker {
    /// Starts it on `host` and waits until it is healthy. `tracker_view` is the program that queries it, on `observer`
    /// and on `host`.
    ///
    /// # Errors
    /// Returns an error if the tracker does not build, start or answer.
    pub fn start(
        [host, observer]: [Host; 2],
        configuration: Option<&Path>,
        settings: &[Setting],
        tracker_view: &Path,
        directory: &Path,
    ) -> Result<Self> {
        let mut command = host.command_at(tools::shoal()?)?;
        if let Some(configuration) = configuration {
            command.arg("--config").arg(configuration);
        }
        remove_settings(&mut command).envs(settings.iter().copied());
        let process =
            Process::start(command, &directory.join("shoal.log")).context("cannot start the tracker")?;
        let mut tracker = Self { process, host, observer, tracker_view: tracker_view.to_owned() };
        let healthy = wait_for("the tracker should be healthy", START_TIMEOUT, || {
            let status = tracker.process.ended()?;
            ensure!(status.is_none(), "the tracker has ended");
            Ok(tracker.control("/health").ok())
        });
        healthy.with_context(|| tracker.process.report())?;
        Ok(tracker)
    }

    /// Returns the host that it runs on.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns its address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.host.address
    }

    /// Returns the counts of a torrent.
    ///
    /// # Errors
    /// Returns an error if the tracker does not answer correctly.
    pub fn scrape(&self, protocol: Protocol, info_hash: &[u8; 20]) -> Result<Counts> {
        let output = self.view(&self.observer, ["scrape", &self.url(protocol), &hex(info_hash)])?;
        let numbers: Vec<u32> = output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [seeders, completed, leechers] = numbers[..] else {
            anyhow::bail!("an unexpected scrape: {output}")
        };
        Ok(Counts { seeders, completed, leechers })
    }

    /// Returns the peers that the tracker hands to a new peer, sorted.
    ///
    /// # Errors
    /// Returns an error if the tracker does not answer correctly.
    pub fn peers(&self, protocol: Protocol, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
        let output = self.view(&self.observer, ["peers", &self.url(protocol), &hex(info_hash)])?;
        let mut peers: Vec<SocketAddr> = output.lines().map(str::parse).collect::<Result<_, _>>()?;
        peers.sort_unstable();
        Ok(peers)
    }

    /// Returns its metrics.
    ///
    /// # Errors
    /// Returns an error if it does not serve them.
    pub fn metrics(&self) -> Result<Metrics> {
        self.control("/metrics").map(Metrics::new)
    }

    /// Returns a page of the control listener. Any status other than 200 is an error.
    fn control(&self, path: &str) -> Result<String> {
        self.view(&self.host, ["get", &format!("http://{CONTROL}"), path])
    }

    /// Returns the number of its workers that hold connections of clients.
    ///
    /// # Errors
    /// Returns an error if the kernel does not provide the information.
    pub fn workers_in_use(&self) -> Result<usize> {
        workers::in_use(self.process.pid(), &[TRACKER_PORT, HTTPS_PORT])
    }

    /// Stops it as an operator would, and checks its exit status.
    ///
    /// # Errors
    /// Returns an error if it takes too long or does not exit with code 0.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.quit(Signal::TERM, STOP_TIMEOUT)?;
        ensure!(status.success(), "the tracker should exit with code 0: {status}");
        Ok(())
    }

    /// Returns whether its log contains a text.
    #[must_use]
    pub fn has_logged(&self, text: &str) -> bool {
        self.process.log().contains(text)
    }

    /// Returns the end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.report()
    }

    fn url(&self, protocol: Protocol) -> String {
        format!("{}://{}", protocol.scheme(), SocketAddr::new(self.host.address, TRACKER_PORT))
    }

    /// Runs `tracker-view` on the host `from` and returns its output.
    fn view<const N: usize>(&self, from: &Host, arguments: [&str; N]) -> Result<String> {
        let mut command: Command = from.command_at(&self.tracker_view)?;
        let output = command.args(arguments).output().context("cannot run tracker-view")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tracker-view {}: {}", arguments.join(" "), errors.trim());
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Returns an info hash as hexadecimal digits.
pub(crate) fn hex(info_hash: &[u8; 20]) -> String {
    info_hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
