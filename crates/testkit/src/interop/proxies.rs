//! Proxies in front of the tracker, on their own host, so that their address is not the tracker's.

mod hitch;
mod nginx;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::interop::ingress::Certificate;
use crate::interop::network::Host;
use crate::interop::route::{HITCH_V1_PORT, HITCH_V2_PORT, NGINX_STREAM_PORT, Route};
use crate::process::{Process, wait_for};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The proxies of a test.
#[derive(Debug)]
pub struct Proxies {
    processes: Vec<Process>,
}

/// The environment of every proxy.
#[derive(Clone, Copy, Debug)]
pub struct ProxyEnvironment<'a> {
    /// The host of the proxies.
    pub host: &'a Host,
    /// The tracker's address.
    pub tracker: IpAddr,
    /// The tracker's Unix socket.
    pub socket: &'a Path,
    /// The certificate of the proxies.
    pub certificate: &'a Certificate,
    /// The directory of their files.
    pub directory: &'a Path,
    /// The `tracker-view` program.
    pub tracker_view: &'a Path,
}

impl Proxies {
    /// Starts the proxies of `routes` and waits until they listen.
    ///
    /// # Errors
    /// Returns an error if one is missing or does not start.
    pub fn start(environment: ProxyEnvironment<'_>, routes: &[Route]) -> Result<Self> {
        let mut proxies = Self { processes: Vec::new() };
        if routes.iter().any(|route| route.needs_nginx()) {
            proxies.add(environment, nginx::start(environment)?, NGINX_STREAM_PORT)?;
        }
        if routes.contains(&Route::HitchV1) {
            proxies.add(environment, hitch::start(environment, hitch::Header::V1)?, HITCH_V1_PORT)?;
        }
        if routes.iter().any(|route| route.needs_hitch_v2()) {
            proxies.add(environment, hitch::start(environment, hitch::Header::V2)?, HITCH_V2_PORT)?;
        }
        Ok(proxies)
    }

    /// Stops them, the last first.
    ///
    /// # Errors
    /// Returns an error if one has already ended, or takes too long.
    pub fn stop(&mut self) -> Result<()> {
        while let Some(mut process) = self.processes.pop() {
            let quit = process.quit(Signal::TERM, STOP_TIMEOUT);
            quit.with_context(|| process.report())?;
        }
        Ok(())
    }

    /// Returns the ends of their logs.
    #[must_use]
    pub fn log_tails(&self) -> String {
        self.processes.iter().map(Process::report).collect()
    }

    /// Waits until a proxy listens on `port`, and adds it.
    fn add(&mut self, environment: ProxyEnvironment<'_>, mut process: Process, port: u16) -> Result<()> {
        let address = format!("http://{}", SocketAddr::new(environment.host.address, port));
        let listening = wait_for(&format!("{} should listen", process.name()), START_TIMEOUT, || {
            let ended = process.ended()?;
            ensure!(ended.is_none(), "it has ended: {ended:?}");
            let mut command = environment.host.command_at(environment.tracker_view)?;
            let output =
                command.args(["connect", &address, "/"]).output().context("cannot run tracker-view")?;
            Ok(output.status.success().then_some(()))
        });
        listening.with_context(|| process.report())?;
        self.processes.push(process);
        Ok(())
    }
}

/// Creates a directory for the files of one proxy.
fn create_directory(environment: ProxyEnvironment<'_>, name: &str) -> Result<PathBuf> {
    let path = environment.directory.join(name);
    std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}
