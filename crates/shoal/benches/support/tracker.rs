//! The tracker that is measured.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use shoal_testkit::client::http::{Client, Response};

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal");

/// The name of its configuration file.
pub(crate) const CONFIG: &str = "shoal.toml";

/// The token of the control listener.
pub(crate) const TOKEN: &str = "a-token-of-the-benchmark";

/// Time for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the milliseconds of a clock that all threads share.
pub(crate) fn now_ms() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// A running tracker, killed on drop.
pub(crate) struct Tracker {
    pub(crate) child: Child,
    pub(crate) udp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) control: SocketAddr,
}

impl Tracker {
    /// Starts a tracker on processor 0, with a configuration file in `directory`. The settings are keys and values of TOML.
    pub(crate) fn start(directory: &Path, settings: &[(&str, &str)]) -> Self {
        let config = directory.join(CONFIG);
        let mut text = String::new();
        // Many clients of one address announce.
        let own = [
            ("udp.listen", "[\"127.0.0.1:0\"]"),
            ("http.listen", "[\"127.0.0.1:0\"]"),
            ("control.listen", "\"127.0.0.1:0\""),
            ("announce.peers_per_address_max", "0"),
            ("log.format", "\"json\""),
        ];
        let is_set = |key: &str| settings.iter().any(|(set, _)| *set == key);
        for (key, value) in own.iter().filter(|(key, _)| !is_set(key)).chain(settings) {
            text.push_str(&format!("{key} = {value}\n"));
        }
        fs::write(&config, text).unwrap();
        let mut child = without_settings(pinned(0, PROGRAM));
        child.arg("--config").arg(&config).env("SHOAL_CONTROL_ADMIN_TOKEN", TOKEN).stderr(Stdio::piped());
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
        Self { child, udp, http, control }
    }

    /// Asks the control listener, with further header fields and a body.
    pub(crate) fn control(&self, what: &str, fields: &str, body: &str) -> Response {
        let head =
            format!("{what} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{fields}\r\n");
        let mut client = Client::open(None, self.control, None, PATIENCE).unwrap();
        client.request((head + body).as_bytes()).unwrap()
    }

    /// Returns the value of a metric, whose name includes its labels.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = String::from_utf8(self.control("GET /metrics", "", "").body).unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
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
pub(crate) fn pinned(processor: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &processor.to_string()]).arg(program);
    command
}

/// Returns the command without settings of this environment.
pub(crate) fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SHOAL_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}
