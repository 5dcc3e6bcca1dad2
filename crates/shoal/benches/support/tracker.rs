//! The tracker that is measured.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use shoal_testkit::client::http::{Client, Response};
use shoal_testkit::process::remove_settings;
use shoal_testkit::tracker;

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
    #[allow(dead_code, reason = "one of the benchmarks only drops it")]
    pub(crate) process: tracker::Tracker,
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
        let mut command = without_settings(pinned(0, PROGRAM));
        command.arg("--config").arg(&config).env("SHOAL_CONTROL_ADMIN_TOKEN", TOKEN);
        let process = tracker::Tracker::start(&mut command, PATIENCE);
        let (udp, http, control) = (process.udp[0], process.http[0], process.control);
        Self { process, udp, http, control }
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

/// A load that goes on until this is dropped.
pub(crate) struct Load(Child);

impl Load {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
    remove_settings(&mut command);
    command.stdin(Stdio::null());
    command
}
