//! The process of the tracker under attack: starts it with its own configuration, observes it and stops it.
//!
//! The tracker listens only on addresses of the siege's network, each time on other ports, and ends with the siege.
//!
//! A setting that the tracker does not know is left out. The same attacks can therefore run against earlier versions,
//! and show that they succeed there.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use shoal_testkit::process::{self, Process, wait_for, wait_for_every};

use crate::measure;
use crate::siege::address::{PROXIES, TRACKER_V4, TRACKER_V6};
use crate::siege::attack::{FOLDER, PORT, Preparation};
use crate::siege::http::{HttpClient, Response};

/// The maximum time until a tracker is ready.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// The maximum time until a tracker ends after SIGTERM: several times its promise, for a busy machine.
const STOP_TIME_MAX: Duration = Duration::from_secs(6);

/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The first port, below those that the kernel assigns in the namespace.
const PORT_MIN: u16 = 2000;
const PORTS_PER_TRACKER: u16 = 8;

/// The beginnings of the keys that are about sources. All attacks share settings of these, except the attacks on the defaults.
const KEYS_OF_SOURCES: [&str; 3] = ["address.", "bans.", "limits."];

/// A tracker program and its configuration keys.
pub struct Program {
    path: PathBuf,
    keys: Vec<String>,
    folder: PathBuf,
}

/// A running tracker, killed on drop.
pub(crate) struct Tracker {
    process: Process,
    /// The process that has taken over from that one, or 0.
    successor: AtomicI32,
    port: u16,
    /// The program by which it was started, a link that attacks can replace.
    program: PathBuf,
    /// Whether SIGTERM was sent, since a second one would end the tracker at once.
    is_ending: AtomicBool,
    /// The certificate file that the tracker reads again on SIGHUP.
    pub(crate) certificate: PathBuf,
    /// The folder that settings name by [`FOLDER`].
    pub(crate) folder: PathBuf,
}

impl Program {
    /// Determines the keys of the program at `path` and creates a certificate in `folder` with it.
    ///
    /// # Errors
    /// Returns an error if the program does not exist or is not a tracker.
    pub fn find(path: &Path, folder: &Path) -> Result<Self> {
        let output = Command::new(path).args(["config", "--all"]).output();
        let output = output.with_context(|| format!("cannot run {}", path.display()))?;
        ensure!(output.status.success(), "{} config failed", path.display());
        let keys = keys(&String::from_utf8_lossy(&output.stdout));
        let program = Self { path: path.to_owned(), keys, folder: folder.to_owned() };
        let mut command = Command::new(path);
        command.args(["tls", "self-signed", "--name", "localhost", "--cert"]).arg(program.certificate());
        let output =
            command.arg("--key").arg(program.key()).output().context("cannot create a certificate")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(program)
    }

    /// Returns the version of the program at `path`, with its commit and its profile.
    ///
    /// # Errors
    /// Returns an error if the program cannot be run.
    pub fn version(path: &Path) -> Result<String> {
        let output = Command::new(path).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}", path.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns whether the program has a configuration key.
    pub fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// Starts the tracker with the settings of all attacks and these, after `prepare`, and waits until it is healthy. With
    /// `has_defaults`, it keeps its default settings about sources.
    pub(crate) fn start<'s>(
        &self,
        settings: impl Iterator<Item = (&'s str, &'s str)>,
        has_defaults: bool,
        open_files_max: Option<u32>,
        prepare: Preparation,
    ) -> Result<Tracker> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORT_MIN + number % 900 * PORTS_PER_TRACKER;
        let certificate = self.folder.join(format!("cert-{number}.pem"));
        fs::copy(self.certificate(), &certificate).context("cannot copy a certificate")?;
        let log = self.folder.join(format!("shoal-{number}.log"));
        let mut all = self.default_settings(port, &certificate);
        let is_of_sources = |key: &str| KEYS_OF_SOURCES.iter().any(|begin| key.starts_with(begin));
        all.retain(|key, _| !has_defaults || !is_of_sources(key));
        let folder = self.folder.join(format!("tracker-{number}"));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let program = folder.join("shoal");
        symlink(std::path::absolute(&self.path)?, &program).context("cannot link the program")?;
        let mut command = command(&program, open_files_max);
        fs::write(folder.join("jwks.json"), include_bytes!("../../keys/jwks.json"))?;
        fs::write(folder.join("control_tokens"), include_bytes!("../../keys/control_tokens"))?;
        prepare(&folder)?;
        let folder_text = folder.display().to_string();
        let replaced = |value: &str| value.replace(FOLDER, &folder_text).replace(PORT, &port.to_string());
        all.extend(settings.map(|(key, value)| (key.to_owned(), replaced(value))));
        for (key, value) in all.iter().filter(|(key, _)| self.knows(key)) {
            command.env(format!("SHOAL_{}", key.replace('.', "_").to_uppercase()), value);
        }
        command.env("RUNTIME_DIRECTORY", &folder);
        let mut tracker = Tracker {
            process: Process::start(command, &log).context("cannot start the tracker")?,
            successor: AtomicI32::new(0),
            port,
            program,
            is_ending: AtomicBool::new(false),
            certificate,
            folder,
        };
        tracker.wait_until_healthy()?;
        Ok(tracker)
    }

    /// Returns the settings that all attacks share.
    fn default_settings(&self, port: u16, certificate: &Path) -> BTreeMap<String, String> {
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
            // The attackers are on this host, whose addresses have no limits by default.
            ("limits.exempt", String::new()),
            // Scrapes do not count peers of private addresses that are kept apart, which those of this host are.
            ("address.private", "serve".to_owned()),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Returns the command of a tracker with a limit on its open files.
fn command(program: &Path, open_files_max: Option<u32>) -> Command {
    let Some(count) = open_files_max else { return process::command(program) };
    let mut command = process::command(Path::new("prlimit"));
    command.arg(format!("--nofile={count}:{count}")).arg("--").arg(program);
    command
}

impl Tracker {
    /// Returns the UDP address for `source`, in the same family.
    pub(crate) fn udp(&self, source: IpAddr) -> SocketAddr {
        self.at(source, 0)
    }

    /// Returns the plain HTTP address for `source`.
    pub(crate) fn http(&self, source: IpAddr) -> SocketAddr {
        self.at(source, 0)
    }

    /// Returns the TLS address for `source`.
    pub(crate) fn tls(&self, source: IpAddr) -> SocketAddr {
        self.at(source, 1)
    }

    /// Returns the address for connections with a PROXY header.
    pub(crate) fn proxied(&self) -> SocketAddr {
        self.at(TRACKER_V4.into(), 2)
    }

    /// Returns the address of the control listener.
    pub(crate) fn control(&self) -> SocketAddr {
        self.at(TRACKER_V4.into(), 3)
    }

    fn at(&self, source: IpAddr, offset: u16) -> SocketAddr {
        let ip = if source.is_ipv4() { IpAddr::V4(TRACKER_V4) } else { IpAddr::V6(TRACKER_V6) };
        SocketAddr::new(ip, self.port + offset)
    }

    /// Requests a page from the control listener.
    pub(crate) fn request_control(&self, path: &str, timeout: Duration) -> Result<Response> {
        let mut client = HttpClient::open(IpAddr::from(TRACKER_V4), self.control(), None, timeout)?;
        client.request(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.control()).as_bytes())
    }

    /// Returns the processor time so far, in nanoseconds, of all threads that still run.
    pub(crate) fn cpu_ns(&self) -> u64 {
        process::cpu_ns(self.pid())
    }

    /// Returns the resident memory, or 0 after the end of the process.
    pub(crate) fn resident_bytes(&self) -> u64 {
        process::resident_bytes(self.pid()).unwrap_or(0)
    }

    /// Returns the maximum that the resident memory has ever had, or 0 after the end of the process.
    pub(crate) fn resident_peak_bytes(&self) -> u64 {
        process::resident_peak_bytes(self.pid()).unwrap_or(0)
    }

    /// Returns the number of open files and sockets (proc_pid_fd(5)), or 0 after the end of the process.
    pub(crate) fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_nonzero())).map_or(0, Iterator::count)
    }

    /// Sends a signal, but SIGTERM only once.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        if signal == Signal::TERM && self.is_ending.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        kill_process(self.pid(), signal).context("cannot signal the tracker")
    }

    /// Returns the process that serves.
    fn pid(&self) -> Pid {
        Pid::from_raw(self.successor.load(Ordering::Relaxed)).unwrap_or_else(|| self.process.pid())
    }

    /// Makes a new process take over, and returns how long no request was answered.
    ///
    /// # Errors
    /// Returns an error if it does not take over in time.
    pub(crate) fn upgrade(&self) -> Result<Duration> {
        let old = self.pid();
        self.signal(Signal::USR2)?;
        let taken_over = || Ok(self.handed().filter(|(new, _)| *new != old));
        let handed = wait_for("a new process should take over", START_TIME_MAX, taken_over);
        let (new, gap_ms) = handed.with_context(|| self.log_tail())?;
        self.successor.store(new.as_raw_nonzero().get(), Ordering::Relaxed);
        Ok(Duration::from_millis(gap_ms))
    }

    /// Puts a script of the shell in the place of the program, which the next upgrade starts.
    pub(crate) fn replace_program(&self, script: &str) -> Result<()> {
        fs::remove_file(&self.program).context("cannot remove the program")?;
        fs::write(&self.program, format!("#!/bin/sh\n{script}\n")).context("cannot write a program")?;
        Ok(fs::set_permissions(&self.program, Permissions::from_mode(0o755))?)
    }

    /// Waits until the log contains a text.
    ///
    /// # Errors
    /// Returns an error if it does not in time.
    pub(crate) fn wait_for_log(&self, text: &str) -> Result<()> {
        let logged = || Ok(self.has_logged(text).then_some(()));
        wait_for(&format!("{text:?} should be logged"), START_TIME_MAX, logged)
            .with_context(|| self.log_tail())
    }

    /// Returns whether the log contains a text.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.process.log().contains(text)
    }

    /// Waits until nothing is bound to the UDP port, but no longer than `time_max`. Returns how long that took.
    pub(crate) fn wait_until_free(&self, time_max: Duration) -> Option<Duration> {
        let began = measure::now();
        let free =
            || Ok(UdpSocket::bind(self.udp(TRACKER_V4.into())).is_ok().then(|| measure::now() - began));
        wait_for_every(CHECK_INTERVAL, "the port should be free", time_max, free).ok()
    }

    /// Follows a process that has taken over from this one, if there is one, so that it ends with the attack.
    pub(crate) fn follow_successor(&self) {
        if let Some((pid, _)) = self.handed() {
            self.successor.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
            self.is_ending.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the last process that has taken over, and the gap in milliseconds.
    fn handed(&self) -> Option<(Pid, u64)> {
        let log = self.process.log();
        let line = log.lines().rfind(|line| line.contains("the new process serves"))?;
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let pid = i32::try_from(line["fields"]["pid"].as_i64()?).ok()?;
        Some((Pid::from_raw(pid)?, line["fields"]["gap_ms"].as_u64()?))
    }

    /// Returns the exit status, if the tracker has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.ended().ok().flatten()?;
        // A successor is not a child.
        self.process.members().is_empty().then_some(status)
    }

    /// Stops the tracker with SIGTERM and returns how long that took.
    ///
    /// # Errors
    /// Returns an error if the tracker does not end in time and with success.
    pub(crate) fn stop(&mut self) -> Result<Duration> {
        let began = measure::now();
        if self.ended().is_none() {
            self.signal(Signal::TERM)?;
        }
        let status = wait_for("the tracker should end after SIGTERM", STOP_TIME_MAX, || Ok(self.ended()))?;
        ensure!(status.success(), "the tracker ended with {status}");
        Ok(measure::now() - began)
    }

    /// Returns the size of the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        measure::count(self.process.log().len())
    }

    /// Returns the last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.process.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    fn wait_until_healthy(&mut self) -> Result<()> {
        let healthy = wait_for("the tracker should be healthy", START_TIME_MAX, || {
            if let Some(status) = self.ended() {
                bail!("the tracker ended during its start with {status}");
            }
            let response = self.request_control("/health", START_TIME_MAX);
            Ok(response.is_ok_and(|response| response.status == 200).then_some(()))
        });
        healthy.with_context(|| self.log_tail())
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
