//! The tracker under attack: started with a configuration of its own, watched, and stopped.
//!
//! It listens on the addresses of the siege's network alone, each time on other ports, and dies with the siege.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::http::{HttpClient, Response};
use crate::source::{PROXIES, TRACKER_V4, TRACKER_V6};
use crate::{clock, usage};

/// Longest wait for a tracker to be ready.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// Longest wait for a tracker to end after SIGTERM: several times what it promises, for a busy machine.
const STOP_TIME_MAX: Duration = Duration::from_secs(6);

/// A pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ports below those that the kernel hands out in the namespace.
const PORT_MIN: u16 = 2000;
const PORTS_PER_TRACKER: u16 = 8;

/// A program and the configuration keys that it knows.
pub struct Program {
    path: PathBuf,
    keys: Vec<String>,
    folder: PathBuf,
}

/// A running tracker. Killed when dropped.
pub(crate) struct Tracker {
    child: Child,
    port: u16,
    log: PathBuf,
    /// Whether it was asked to end, since a second request would end it at once.
    is_ending: AtomicBool,
    /// The file of the certificate that it reads at a SIGHUP.
    pub(crate) certificate: PathBuf,
}

impl Program {
    /// Asks the program at `path` which keys it knows, and has it make a certificate in `folder`.
    ///
    /// # Errors
    /// If it is not there, or is no tracker.
    pub fn find(path: &Path, folder: &Path) -> Result<Self> {
        let output = Command::new(path).arg("config").output();
        let output = output.with_context(|| format!("cannot run {}", path.display()))?;
        ensure!(output.status.success(), "{} config failed", path.display());
        let keys = keys(&String::from_utf8_lossy(&output.stdout));
        let program = Self { path: path.to_owned(), keys, folder: folder.to_owned() };
        let mut command = Command::new(path);
        command.args(["tls", "self-signed", "--name", "localhost", "--cert"]).arg(program.certificate());
        let output = command.arg("--key").arg(program.key()).output().context("cannot make a certificate")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(program)
    }

    /// Tells whether the program has a key.
    #[must_use]
    pub fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// Starts it with these settings on top of the usual ones, and waits until it is healthy.
    pub(crate) fn start<'s>(
        &self,
        settings: impl Iterator<Item = (&'s str, &'s str)>,
        open_files_max: Option<u32>,
    ) -> Result<Tracker> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORT_MIN + number % 900 * PORTS_PER_TRACKER;
        let certificate = self.folder.join(format!("cert-{number}.pem"));
        fs::copy(self.certificate(), &certificate).context("cannot copy a certificate")?;
        let log = self.folder.join(format!("shoal-{number}.log"));
        let mut command = self.command(open_files_max);
        let mut all = self.usual(port, &certificate);
        all.extend(
            settings
                .map(|(key, value)| (key.to_owned(), value.replace("PROXY_PORT", &(port + 2).to_string()))),
        );
        for (key, value) in all.iter().filter(|(key, _)| self.knows(key)) {
            command.env(format!("SHOAL_{}", key.replace('.', "_").to_uppercase()), value);
        }
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn();
        let mut tracker = Tracker {
            child: child.context("cannot start the tracker")?,
            port,
            log,
            is_ending: AtomicBool::new(false),
            certificate,
        };
        tracker.wait_until_healthy()?;
        Ok(tracker)
    }

    /// Returns a command in a clean environment; the tracker does not outlive this process.
    fn command(&self, open_files_max: Option<u32>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(count) = open_files_max {
            command.args(["prlimit", &format!("--nofile={count}:{count}"), "--"]);
        }
        command.arg(&self.path);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SHOAL_"))
        {
            command.env_remove(name);
        }
        command
    }

    fn usual(&self, port: u16, certificate: &Path) -> BTreeMap<String, String> {
        let both = |port: u16| format!("{TRACKER_V4}:{port},[{TRACKER_V6}]:{port}");
        let plain = format!("{},{TRACKER_V4}:{} proxy-protocol", both(port), port + 2);
        let settings = [
            ("udp.listen", both(port)),
            ("http.listen", plain),
            ("tls.listen", both(port + 1)),
            ("tls.certificates", certificate.display().to_string()),
            ("tls.keys", self.key().display().to_string()),
            ("proxy.trusted", PROXIES.to_owned()),
            ("control.listen", format!("{TRACKER_V4}:{}", port + 3)),
            ("workers.count", "2".to_owned()),
            ("store.memory_max", "64MiB".to_owned()),
            ("memory.max", "256MiB".to_owned()),
            ("log.format", "json".to_owned()),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl Tracker {
    /// Returns where `source` reaches UDP: each family has its address.
    pub(crate) fn udp(&self, source: IpAddr) -> SocketAddr {
        self.at(source, 0)
    }

    /// Returns where `source` reaches plain HTTP.
    pub(crate) fn http(&self, source: IpAddr) -> SocketAddr {
        self.at(source, 0)
    }

    /// Returns where `source` reaches TLS.
    pub(crate) fn tls(&self, source: IpAddr) -> SocketAddr {
        self.at(source, 1)
    }

    /// Returns where connections begin with a PROXY header.
    pub(crate) fn proxied(&self) -> SocketAddr {
        self.at(TRACKER_V4.into(), 2)
    }

    /// Returns where operators look.
    pub(crate) fn control(&self) -> SocketAddr {
        self.at(TRACKER_V4.into(), 3)
    }

    fn at(&self, source: IpAddr, offset: u16) -> SocketAddr {
        let ip = if source.is_ipv4() { IpAddr::V4(TRACKER_V4) } else { IpAddr::V6(TRACKER_V6) };
        SocketAddr::new(ip, self.port + offset)
    }

    /// Asks the control listener for a page.
    pub(crate) fn ask_control(&self, path: &str, patience: Duration) -> Result<Response> {
        let mut client = HttpClient::open(TRACKER_V4.into(), self.control(), None, patience)?;
        client.ask(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.control()).as_bytes())
    }

    /// Returns nanoseconds of processor time so far.
    pub(crate) fn cpu_ns(&self) -> u64 {
        usage::cpu_ns(self.child.id())
    }

    /// Returns resident bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        usage::resident_bytes(self.child.id())
    }

    /// Sends a signal; SIGTERM only once.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        if signal == Signal::TERM && self.is_ending.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), signal).context("cannot signal the tracker")
    }

    /// Returns its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it as an operator does and returns how long that took; an error if it does not end well.
    pub(crate) fn stop(&mut self) -> Result<Duration> {
        let began = clock::now();
        if self.ended().is_none() {
            self.signal(Signal::TERM)?;
        }
        while clock::now() < began + STOP_TIME_MAX {
            if let Some(status) = self.ended() {
                ensure!(status.success(), "it ended with {status}");
                return Ok(clock::now() - began);
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("it does not end after SIGTERM");
    }

    /// Returns the end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    fn wait_until_healthy(&mut self) -> Result<()> {
        let deadline = clock::now() + START_TIME_MAX;
        while clock::now() < deadline {
            if let Some(status) = self.ended() {
                bail!("the tracker ended at its start with {status}:\n{}", self.log_tail());
            }
            if self.ask_control("/health", START_TIME_MAX).is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("the tracker is not healthy after its start:\n{}", self.log_tail())
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the keys of a default configuration, as `section.key`.
fn keys(text: &str) -> Vec<String> {
    let (mut section, mut keys) = ("", Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            keys.push(format!("{section}.{key}"));
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::keys;

    #[test]
    fn keys_are_those_of_the_default_file() {
        let text = "# a = b\n[udp]\n\n# x\nlisten = [\"a\"]\n[store]\nmemory_max = \"auto\"\n";
        assert_eq!(keys(text), ["udp.listen", "store.memory_max"]);
    }
}
