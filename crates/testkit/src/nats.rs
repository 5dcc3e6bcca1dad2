//! Real NATS servers on loopback, for tests: one, a cluster of three, or a leaf node, each with JetStream. The program
//! is the one that `cargo xtask setup` installs.
//!
//! A server ends when its value is dropped, or with the thread that started it. It can be killed before and started
//! again on the same port, as a server that an operator repairs.

mod config;
mod jwt;
mod tls;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::ports::unused_ports;
use crate::process::{self, Process, wait_for};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

pub use config::{Access, Options};
pub use jwt::Operator;
pub use tls::Tls;

/// The number of servers in a [`Cluster`].
pub const CLUSTER_SERVERS: usize = 3;

/// How long a server may take until it is ready, on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// A NATS server.
#[derive(Debug)]
pub struct Server {
    name: String,
    ports: Ports,
    directory: TempDir,
    scheme: &'static str,
    process: Option<Process>,
}

/// Where a server listens on loopback. The ports are its own until the test ends, so it can be started on them again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) route: u16,
    pub(crate) leaf: u16,
}

impl Server {
    /// Starts a server of its own.
    ///
    /// # Errors
    /// Returns an error if the program is missing or does not start.
    pub fn start(options: &Options) -> Result<Self> {
        let mut server = Self::prepare("single", Ports::unused()?, options, &[], None)?;
        server.restart()?;
        Ok(server)
    }

    /// Starts a server that is a leaf node of `hub`, whose options are these.
    ///
    /// # Errors
    /// Returns an error if the program is missing or does not start.
    pub fn start_leaf(hub: &Self, options_of_hub: &Options) -> Result<Self> {
        let remote = format!("nats-leaf://{}127.0.0.1:{}", options_of_hub.user_info(), hub.ports.leaf);
        let mut server = Self::prepare("leaf", Ports::unused()?, &Options::default(), &[], Some(&remote))?;
        server.restart()?;
        Ok(server)
    }

    /// Returns the URL for clients: `nats://127.0.0.1:PORT`, or `tls://localhost:PORT` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let host = if self.scheme == "tls" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}", self.scheme, self.ports.client)
    }

    /// Returns the port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.client
    }

    /// Returns the id of the process, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::group)
    }

    /// Returns everything that the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Kills the server without any notice to its clients.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it runs, starts it on the same ports, and waits until it accepts clients.
    ///
    /// # Errors
    /// Returns an error if the program is missing or does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.spawn()?;
        wait_until_ready(|| self.is_ready(|_| true)).with_context(|| self.log())
    }

    /// Writes the configuration of a server, and starts nothing.
    fn prepare(
        name: &str,
        ports: Ports,
        options: &Options,
        routes: &[u16],
        remote: Option<&str>,
    ) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create the directory of a NATS server")?;
        let text = config::text(name, ports, options, routes, remote, directory.path());
        fs::write(config_file(directory.path()), text).context("cannot write the configuration of NATS")?;
        let scheme = if options.tls.is_some() { "tls" } else { "nats" };
        Ok(Self { name: name.to_owned(), ports, directory, scheme, process: None })
    }

    fn spawn(&mut self) -> Result<()> {
        self.kill();
        let program = tools::nats_server()?;
        // A test that is killed drops nothing.
        let mut command = process::command(&program);
        command.arg("--config").arg(config_file(self.directory.path()));
        self.process = Some(Process::start(command, &self.log_file()).context("cannot start NATS")?);
        Ok(())
    }

    /// Returns whether the server accepts clients, and greets them with information that `is_ready` accepts.
    fn is_ready(&mut self, is_ready: impl Fn(&Value) -> bool) -> Result<bool> {
        let process = self.process.as_mut().context("the server was not started")?;
        if let Some(status) = process.ended().context("cannot wait for NATS")? {
            bail!("NATS server {} has ended ({status}):\n{}", self.name, self.log());
        }
        Ok(self.information().is_ok_and(|information| is_ready(&information)))
    }

    /// Returns the information with which the server greets a client.
    fn information(&self) -> Result<Value> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.client));
        let connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line)?;
        let json = line.strip_prefix("INFO ").context("a NATS server begins with INFO")?;
        Ok(serde_json::from_str(json)?)
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the log of NATS server {}:\n{}", self.name, self.log());
        }
    }
}

/// A cluster of three NATS servers, with routes between all of them.
#[derive(Debug)]
pub struct Cluster {
    /// The servers.
    pub servers: Vec<Server>,
}

impl Cluster {
    /// Starts the servers, and waits until each knows the others.
    ///
    /// # Errors
    /// Returns an error if the program is missing or a server does not start.
    pub fn start(options: &Options) -> Result<Self> {
        let ports = (0..CLUSTER_SERVERS).map(|_| Ports::unused()).collect::<Result<Vec<_>>>()?;
        let routes: Vec<u16> = ports.iter().map(|ports| ports.route).collect();
        let prepare = |(index, &ports): (usize, &Ports)| {
            Server::prepare(&format!("server-{index}"), ports, options, &routes, None)
        };
        let servers = ports.iter().enumerate().map(prepare).collect::<Result<Vec<_>>>()?;
        let mut cluster = Self { servers };
        cluster.servers.iter_mut().try_for_each(Server::spawn)?;
        cluster.wait_until_complete()?;
        Ok(cluster)
    }

    /// Returns the URLs of all servers, separated by commas.
    #[must_use]
    pub fn urls(&self) -> String {
        self.servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// Waits until each running server knows all running ones.
    ///
    /// # Errors
    /// Returns an error if that takes too long or one has ended.
    pub fn wait_until_complete(&mut self) -> Result<()> {
        let count = self.servers.iter().filter(|server| server.process.is_some()).count();
        let knows_all = |information: &Value| {
            information["connect_urls"].as_array().is_some_and(|urls| urls.len() == count)
        };
        // All of them are looked at each time: one that has ended would keep the others waiting.
        let all_are_ready = || {
            let mut running = self.servers.iter_mut().filter(|server| server.process.is_some());
            running.try_fold(true, |all, server| Ok(server.is_ready(knows_all)? && all))
        };
        wait_until_ready(all_are_ready)
    }
}

impl Ports {
    /// Returns ports that nothing uses at present.
    fn unused() -> Result<Self> {
        let [client, route, leaf] = unused_ports()?;
        Ok(Self { client, route, leaf })
    }
}

/// Looks again and again until something is ready.
fn wait_until_ready(mut is_ready: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for("NATS should be ready", START_TIME_MAX, || Ok(is_ready()?.then_some(())))
}

fn config_file(directory: &Path) -> PathBuf {
    directory.join("nats.conf")
}

/// Writes a file that only its owner may read, as clients demand of secrets.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write_secret(file: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    ensure!(file.is_file(), "{} is no file", file.display());
    Ok(())
}
