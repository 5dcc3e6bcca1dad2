//! The tracker under test, on a host of its own, and what another host sees of it.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::metrics::Metrics;
use crate::network::Host;
use crate::patience::wait_for;
use crate::process::Process;
use crate::tools;
use crate::way::{HTTPS_PORT, Protocol, TRACKER_PORT};
use crate::workers;

/// Where `shoal` tells of itself by default.
const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6970);

const START_WAIT: Duration = Duration::from_secs(20);
/// What the tracker promises of SIGTERM, and as much again for a busy machine.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The built tracker. Where no test asks for more, it is started as a newcomer would: without a configuration file.
#[derive(Debug)]
pub struct Tracker {
    process: Process,
    host: Host,
    observer: Host,
    view: PathBuf,
}

/// A key of the tracker's configuration, as its environment names it, and the value.
pub type Setting = (&'static str, &'static str);

/// The scrape of one torrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have everything.
    pub seeders: u32,
    /// Downloads completed.
    pub completed: u32,
    /// Peers that do not have everything.
    pub leechers: u32,
}

impl Tracker {
    /// Starts it on `host` and waits until it is healthy. `view` is the `tracker-view` program, which runs on
    /// `observer` as well.
    ///
    /// # Errors
    /// Where it does not build, start or answer.
    pub fn start(
        [host, observer]: [Host; 2],
        configuration: Option<&Path>,
        settings: &[Setting],
        view: &Path,
        directory: &Path,
    ) -> Result<Self> {
        let mut command = host.command_at(tools::shoal()?)?;
        if let Some(configuration) = configuration {
            command.arg("--config").arg(configuration);
        }
        let configured = env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SHOAL_"));
        configured.for_each(|(name, _)| _ = command.env_remove(name));
        command.envs(settings.iter().copied());
        let process = Process::spawn("shoal", command, directory)?;
        let mut tracker = Self { process, host, observer, view: view.to_owned() };
        let healthy = wait_for("the tracker should be healthy", START_WAIT, || {
            let status = tracker.process.ended()?;
            ensure!(status.is_none(), "the tracker has ended");
            Ok(tracker.control("/health").ok())
        });
        healthy.with_context(|| tracker.process.tail())?;
        Ok(tracker)
    }

    /// Its address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.host.address
    }

    /// A torrent's counts.
    ///
    /// # Errors
    /// Where the tracker does not answer as it should.
    pub fn scrape(&self, protocol: Protocol, info_hash: &[u8; 20]) -> Result<Counts> {
        let output = self.look(&self.observer, ["scrape", &self.url(protocol), &hex(info_hash)])?;
        let numbers: Vec<u32> = output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [seeders, completed, leechers] = numbers[..] else { anyhow::bail!("a strange scrape: {output}") };
        Ok(Counts { seeders, completed, leechers })
    }

    /// The peers that the tracker hands to a newcomer, sorted.
    ///
    /// # Errors
    /// Where the tracker does not answer as it should.
    pub fn peers(&self, protocol: Protocol, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
        let output = self.look(&self.observer, ["peers", &self.url(protocol), &hex(info_hash)])?;
        let mut peers: Vec<SocketAddr> = output.lines().map(str::parse).collect::<Result<_, _>>()?;
        peers.sort_unstable();
        Ok(peers)
    }

    /// Its own account.
    ///
    /// # Errors
    /// Where it gives none.
    pub fn metrics(&self) -> Result<Metrics> {
        self.control("/metrics").map(Metrics::new)
    }

    /// A page of the control listener; an error unless its status is 200.
    fn control(&self, path: &str) -> Result<String> {
        self.look(&self.host, ["get", &format!("http://{CONTROL}"), path])
    }

    /// How many of its workers hold connections of clients.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn workers_in_use(&self) -> Result<usize> {
        workers::in_use(self.process.pid(), &[TRACKER_PORT, HTTPS_PORT])
    }

    /// Ends it, as the operator would, and makes sure that it ends well.
    ///
    /// # Errors
    /// Where it takes too long or exits with another code than 0.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.quit(Signal::TERM, STOP_WAIT)?;
        ensure!(status.success(), "the tracker should exit with code 0: {status}");
        Ok(())
    }

    /// Its last words.
    #[must_use]
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    fn url(&self, protocol: Protocol) -> String {
        format!("{}://{}", protocol.scheme(), SocketAddr::new(self.host.address, TRACKER_PORT))
    }

    fn look<const N: usize>(&self, from: &Host, arguments: [&str; N]) -> Result<String> {
        let mut command: Command = from.command_at(&self.view)?;
        let output = command.args(arguments).output().context("cannot run tracker-view")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tracker-view {}: {}", arguments.join(" "), errors.trim());
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// An info hash in hexadecimal digits.
pub(crate) fn hex(info_hash: &[u8; 20]) -> String {
    info_hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
