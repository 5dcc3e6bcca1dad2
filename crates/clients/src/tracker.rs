//! The tracker under test, on a host of its own, and what another host sees of it.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::metrics::Metrics;
use crate::network::{FIRST_HOST, Host, Network};
use crate::patience::wait_for;
use crate::process::Process;
use crate::tools;

/// Where `shoal` listens by default.
const UDP_PORT: u16 = 6969;
const CONTROL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6970);

const START_WAIT: Duration = Duration::from_secs(20);
/// What the tracker promises of SIGTERM, and as much again for a busy machine.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The built tracker, started as a newcomer would: without a word of configuration.
#[derive(Debug)]
pub struct Tracker {
    process: Process,
    host: Host,
    observer: Host,
    view: PathBuf,
}

/// The scrape of one torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have everything.
    pub seeders: u32,
    /// Downloads completed.
    pub completed: u32,
    /// Peers that do not have everything.
    pub leechers: u32,
}

impl Tracker {
    /// Starts it on the first host of `network` and waits until it is healthy. `view` is the `tracker-view` program.
    ///
    /// # Errors
    /// Where it does not build, start or answer.
    pub fn start(network: &mut Network, view: &Path, directory: &Path) -> Result<Self> {
        let (host, observer) = (network.host()?, network.host()?);
        let mut command = host.command_at(tools::shoal()?)?;
        let configured = env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SHOAL_"));
        configured.for_each(|(name, _)| _ = command.env_remove(name));
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

    /// The announce URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("udp://{FIRST_HOST}:{UDP_PORT}/announce")
    }

    /// A torrent's counts, asked for by UDP.
    ///
    /// # Errors
    /// Where the tracker does not answer as it should.
    pub fn scrape(&self, info_hash: &[u8; 20]) -> Result<Counts> {
        let output = self.look(&self.observer, ["scrape", &self.address().to_string(), &hex(info_hash)])?;
        let numbers: Vec<u32> = output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [seeders, completed, leechers] = numbers[..] else { anyhow::bail!("a strange scrape: {output}") };
        Ok(Counts { seeders, completed, leechers })
    }

    /// The peers that the tracker hands to a newcomer, sorted, asked for by UDP.
    ///
    /// # Errors
    /// Where the tracker does not answer as it should.
    pub fn peers(&self, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
        let output = self.look(&self.observer, ["peers", &self.address().to_string(), &hex(info_hash)])?;
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
        self.look(&self.host, ["get", &CONTROL.to_string(), path])
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

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host.address, UDP_PORT)
    }

    fn look<const N: usize>(&self, from: &Host, arguments: [&str; N]) -> Result<String> {
        let mut command: Command = from.command_at(&self.view)?;
        let output = command.args(arguments).output().context("cannot run tracker-view")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tracker-view {}: {}", arguments.join(" "), errors.trim());
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn hex(info_hash: &[u8; 20]) -> String {
    info_hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
