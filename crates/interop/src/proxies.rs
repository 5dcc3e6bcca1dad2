//! Proxies in front of the tracker, on a host of their own, so that their address is not the tracker's.

mod hitch;
mod nginx;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::certificate::Certificate;
use crate::network::Host;
use crate::patience::wait_for;
use crate::process::Process;
use crate::way::{HITCH_V1_PORT, HITCH_V2_PORT, NGINX_STREAM_PORT, Way};

const START_WAIT: Duration = Duration::from_secs(20);
const STOP_WAIT: Duration = Duration::from_secs(20);

/// The proxies of a test.
#[derive(Debug)]
pub struct Proxies {
    processes: Vec<Process>,
}

/// What every proxy has to know.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Where the proxies run.
    pub host: &'a Host,
    /// The tracker's address.
    pub tracker: IpAddr,
    /// The tracker's Unix socket.
    pub socket: &'a Path,
    /// What they show to clients.
    pub certificate: &'a Certificate,
    /// Where their files go.
    pub directory: &'a Path,
    /// The `tracker-view` program.
    pub view: &'a Path,
}

impl Proxies {
    /// Starts those that `ways` lead through, and waits until they listen.
    ///
    /// # Errors
    /// Where one is missing, or does not start.
    pub fn start(around: Surroundings<'_>, ways: &[Way]) -> Result<Self> {
        let mut proxies = Self { processes: Vec::new() };
        if ways.iter().any(|way| way.needs_nginx()) {
            proxies.add(around, nginx::start(around)?, NGINX_STREAM_PORT)?;
        }
        if ways.contains(&Way::HitchV1) {
            proxies.add(around, hitch::start(around, hitch::Header::V1)?, HITCH_V1_PORT)?;
        }
        if ways.iter().any(|way| way.needs_hitch_v2()) {
            proxies.add(around, hitch::start(around, hitch::Header::V2)?, HITCH_V2_PORT)?;
        }
        Ok(proxies)
    }

    /// Ends them, the last first.
    ///
    /// # Errors
    /// Where one has ended before, or takes too long.
    pub fn stop(&mut self) -> Result<()> {
        while let Some(mut process) = self.processes.pop() {
            let quit = process.quit(Signal::TERM, STOP_WAIT);
            quit.with_context(|| process.tail())?;
        }
        Ok(())
    }

    /// Their last words.
    #[must_use]
    pub fn tails(&self) -> String {
        self.processes.iter().map(Process::tail).collect()
    }

    fn add(&mut self, around: Surroundings<'_>, mut process: Process, port: u16) -> Result<()> {
        let address = format!("http://{}", SocketAddr::new(around.host.address, port));
        let listening = wait_for(&format!("{} should listen", process.name()), START_WAIT, || {
            let ended = process.ended()?;
            ensure!(ended.is_none(), "it has ended: {ended:?}");
            let mut command = around.host.command_at(around.view)?;
            let output =
                command.args(["connect", &address, "/"]).output().context("cannot run tracker-view")?;
            Ok(output.status.success().then_some(()))
        });
        listening.with_context(|| process.tail())?;
        self.processes.push(process);
        Ok(())
    }
}

/// A directory of its own for a proxy's files.
fn directory_of(around: Surroundings<'_>, name: &str) -> Result<PathBuf> {
    let path = around.directory.join(name);
    std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}
