//! The tracker that is measured, and the load on it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal");

/// Time for something that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the milliseconds of a clock that all threads share.
pub(crate) fn now_ms() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// A running tracker, killed on drop.
pub(crate) struct Tracker {
    child: Child,
    config: PathBuf,
    pub(crate) udp: SocketAddr,
    pub(crate) http: SocketAddr,
    control: SocketAddr,
}

impl Tracker {
    /// Starts a tracker with a configuration file in `directory`.
    pub(crate) fn start(directory: &Path, settings: &[(&str, &str)]) -> Self {
        let config = directory.join("shoal.toml");
        let mut text = String::new();
        // Many clients of one address announce.
        let own = [
            ("udp.listen", "[\"127.0.0.1:0\"]"),
            ("http.listen", "[\"127.0.0.1:0\"]"),
            ("control.listen", "\"127.0.0.1:0\""),
            ("announce.peers_per_address_max", "0"),
            ("log.format", "\"json\""),
        ];
        for (key, value) in own {
            text.push_str(&format!("{key} = {value}\n"));
        }
        for (key, value) in settings {
            text.push_str(&format!("{key} = [{value:?}]\n"));
        }
        fs::write(&config, text).unwrap();
        let mut child = without_settings(pinned(0, PROGRAM));
        child.arg("--config").arg(&config).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let (sender, lines) = channel();
        let log = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                // The log is read to its end, even if it is of no use any more.
                if let Ok(line) = serde_json::from_str::<Value>(&line) {
                    let _ = sender.send(line["fields"].clone());
                }
            }
        });
        let ready = wait_for_line(&lines, "ready");
        let address = |field: &str| ready[field].as_str().unwrap().parse().unwrap();
        let (udp, http, control) = (address("udp"), address("http"), address("control"));
        Self { child, config, udp, http, control }
    }

    /// Denies a torrent, as an operator does.
    pub(crate) fn deny(&self, info_hash: &[u8; 20]) {
        let hash: String = info_hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut add = without_settings(Command::new(PROGRAM));
        add.args(["access", "add", "--deny", &hash, "--reason", "a notice", "--config"]).arg(&self.config);
        let output = add.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits until the deny list has so many entries.
    pub(crate) fn wait_for_entries(&self, entries: usize) {
        let begin_ms = now_ms();
        while self.entries() != Some(entries) {
            assert!(now_ms() - begin_ms < PATIENCE.as_secs_f64() * 1e3, "the list applies");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the number of entries of the deny list, by the metrics.
    fn entries(&self) -> Option<usize> {
        let mut stream = TcpStream::connect(self.control).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("shoal_list_torrents{list=\"deny\"} "))?;
        line.parse().ok()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for_line(lines: &Receiver<Value>, message: &str) -> Value {
    loop {
        let line = lines.recv_timeout(PATIENCE).unwrap();
        if line["message"] == message {
            return line;
        }
    }
}

/// Returns a program that is to run on one processor, by util-linux.
fn pinned(processor: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &processor.to_string()]).arg(program);
    command
}

/// Returns the command without settings of this environment.
fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SHOAL_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// `shoal-lab`, which puts load on a tracker.
pub(crate) struct Lab {
    pub(crate) program: PathBuf,
}

/// A load that ends when this is dropped.
pub(crate) struct Load(Child);

/// The result of a measurement.
pub(crate) struct Measured {
    pub(crate) responses_per_s: f64,
    pub(crate) lost: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Lab {
    /// Puts load on the tracker over every protocol, at fixed rates: a generator that saturates the machine would measure
    /// how long the clients of the benchmark wait for a processor. `scale` multiplies the rates.
    pub(crate) fn load_every_protocol(&self, tracker: &Tracker, scale: u32) -> Vec<Load> {
        let (udp, http) = (tracker.udp.to_string(), tracker.http.to_string());
        let start = |(protocol, target, rate): (&str, &str, u32)| {
            let rate = (rate * scale).to_string();
            let mut lab = Command::new(&self.program);
            lab.args(["load", protocol, target, "--rate", &rate, "--duration", "10m"]);
            lab.args(["--torrents", "2000", "--peers", "10000"]);
            Load(lab.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let loads = [("udp", &*udp, 10_000), ("http", &http, 2000), ("ws", &http, 500)].map(start).into();
        // They fill the tracker first.
        thread::sleep(Duration::from_secs(10));
        loads
    }

    /// Asks over UDP at this rate, or else at 30,000 requests a second, for 8 seconds, from processor 1.
    pub(crate) fn measure_udp(&self, tracker: &Tracker, rate: Option<u32>) -> Measured {
        let (target, rate) = (tracker.udp.to_string(), rate.unwrap_or(30_000).to_string());
        let mut lab = pinned(1, &self.program);
        lab.args(["load", "udp", &target, "--rate", &rate, "--duration", "8s", "--json"]);
        let output = lab.args(["--torrents", "20000", "--peers", "100000"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let run = &report["run"];
        let number = |value: &Value| value.as_f64().unwrap();
        Measured {
            responses_per_s: number(&run["responses_per_s"]),
            lost: number(&run["lost"]),
            p50_us: number(&run["latency"]["p50_us"]),
            p99_us: number(&run["latency"]["p99_us"]),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
