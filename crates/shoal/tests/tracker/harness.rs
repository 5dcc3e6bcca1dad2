//! Starts the built tracker, learns from its ready line where it listens, and makes sure that it ends.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longest wait for anything that a healthy tracker does, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A pause between two looks at something that gives no signal.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal");

/// The default settings of tests: two workers, so that errors in sharing show, and little memory.
const SETTINGS: [(&str, &str); 7] = [
    ("SHOAL_UDP_LISTEN", "127.0.0.1:0,[::1]:0"),
    ("SHOAL_HTTP_LISTEN", "127.0.0.1:0,[::1]:0"),
    ("SHOAL_CONTROL_LISTEN", "127.0.0.1:0"),
    ("SHOAL_WORKERS_COUNT", "2"),
    ("SHOAL_STORE_MEMORY_MAX", "256MiB"),
    ("SHOAL_LOG_FORMAT", "json"),
    ("RUNTIME_DIRECTORY", RUNTIME_DIRECTORY),
];

/// Where the trackers of tests have their control sockets, which clients do not find unless they are told.
pub(crate) const RUNTIME_DIRECTORY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/run");

/// A running tracker. Killed on drop, if it still runs by then.
pub(crate) struct Tracker {
    child: Child,
    log: Log,
    /// Where it serves UDP, in the order of its configuration.
    pub(crate) udp: Vec<SocketAddr>,
    /// Where it serves plain HTTP over TCP, likewise.
    pub(crate) http: Vec<SocketAddr>,
    /// Where it serves TLS over TCP, likewise.
    pub(crate) tls: Vec<SocketAddr>,
    /// Where it serves operators.
    pub(crate) control: SocketAddr,
}

/// The log of a tracker: lines as they come, and all lines so far for when a test fails.
struct Log {
    lines: Receiver<String>,
    seen: Arc<Mutex<Vec<String>>>,
}

/// The program, with a clean environment of these settings.
pub(crate) fn command(settings: &[(&str, &str)]) -> Command {
    with_environment(Command::new(PROGRAM), settings)
}

/// The program in a session of its own, whose terminal is its standard input.
pub(crate) fn command_in_session(settings: &[(&str, &str)]) -> Command {
    let mut setsid = Command::new("setsid");
    setsid.args(["--ctty", PROGRAM]);
    with_environment(setsid, settings)
}

/// Gives a command a clean environment of these settings.
fn with_environment(mut command: Command, settings: &[(&str, &str)]) -> Command {
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.to_string_lossy().starts_with("SHOAL_")) {
        command.env_remove(name);
    }
    command.env_remove("NO_COLOR").envs(settings.iter().copied()).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    command(settings).args(arguments).output().expect("the program was built")
}

/// Returns a command that starts the program with two sockets and their names, as a service manager passes them.
fn with_sockets([first, second]: [OwnedFd; 2], names: &str, settings: &[(&str, &str)]) -> Command {
    let mut shell = Command::new("sh");
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null && LISTEN_PID=$$ exec \"$0\"";
    shell.args(["-c", script, PROGRAM]);
    let mut command = with_environment(shell, &SETTINGS);
    command.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", names).envs(settings.iter().copied());
    command.stdin(Stdio::from(first)).stdout(Stdio::from(second));
    command
}

/// Runs the program with two sockets to its end.
pub(crate) fn run_with_sockets(sockets: [OwnedFd; 2], names: &str, settings: &[(&str, &str)]) -> Output {
    let child = with_sockets(sockets, names, settings).stderr(Stdio::piped()).spawn();
    child.and_then(Child::wait_with_output).expect("the program was built")
}

/// Runs the program to its end, as the user of a tracker on its host, without a token.
pub(crate) fn run_locally(tracker: &Tracker, arguments: &[&str]) -> Output {
    let url = format!("http://{}", tracker.control);
    run(arguments, &[("SHOAL_CONTROL_URL", &url), ("RUNTIME_DIRECTORY", RUNTIME_DIRECTORY)])
}

impl Tracker {
    /// Starts a tracker on free ports of the loopback addresses, with `settings` on top of the usual ones, and waits
    /// until it is ready.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::spawn(command(&SETTINGS).envs(settings.iter().copied()), false)
    }

    /// The same with a configuration file of this text, which `settings` override.
    pub(crate) fn start_with_file(text: &str, settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("there is room for a file");
        let file = directory.path().join("shoal.toml");
        std::fs::write(&file, text).expect("there is room for a file");
        Self::start_with_path(&file, settings)
    }

    /// The same with the configuration file at `path`, which the test can change later.
    pub(crate) fn start_with_path(path: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = command(&SETTINGS);
        Self::spawn(command.arg("--config").arg(path).envs(settings.iter().copied()), false)
    }

    /// The same, but the file alone says where the tracker serves.
    pub(crate) fn start_where_file_says(path: &Path) -> Self {
        let mut command = command(&SETTINGS);
        command.env_remove("SHOAL_UDP_LISTEN").env_remove("SHOAL_HTTP_LISTEN");
        Self::spawn(command.arg("--config").arg(path), false)
    }

    /// Starts the program in a file, instead of the built one.
    pub(crate) fn start_program(program: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = with_environment(Command::new(program), &SETTINGS);
        Self::spawn(command.envs(settings.iter().copied()), false)
    }

    /// Starts the tracker, and closes the pipe of its log once it is ready.
    pub(crate) fn start_with_log_closed(settings: &[(&str, &str)]) -> Self {
        let tracker = Self::spawn(command(&SETTINGS).envs(settings.iter().copied()), true);
        assert_eq!(tracker.log.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        tracker
    }

    /// The same, but it may have no more than so many files open.
    pub(crate) fn start_with_open_files_max(count: u16, settings: &[(&str, &str)]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n \"$1\" && exec \"$0\"", PROGRAM, &count.to_string()]);
        Self::spawn(with_environment(shell, &SETTINGS).envs(settings.iter().copied()), false)
    }

    /// Starts a tracker that alone sees a small file system at `directory`. Needs the rights of root.
    pub(crate) fn start_with_file_system(directory: &Path, settings: &[(&str, &str)]) -> Self {
        let mut shell = Command::new("unshare");
        let script = "mount -t tmpfs -o size=64k,mode=700 none \"$1\" && exec \"$0\"";
        shell.args(["--mount", "sh", "-c", script, PROGRAM]).arg(directory);
        Self::spawn(with_environment(shell, &SETTINGS).envs(settings.iter().copied()), false)
    }

    /// Starts a tracker with two sockets that a service manager passes under these names.
    pub(crate) fn start_with_sockets(sockets: [OwnedFd; 2], names: &str, settings: &[(&str, &str)]) -> Self {
        Self::spawn(&mut with_sockets(sockets, names, settings), false)
    }

    fn spawn(command: &mut Command, close_log: bool) -> Self {
        command.stderr(Stdio::piped());
        // A program that a test has just written is still open for writing in a process that another test is about to start.
        let start = || Some(command.spawn()).filter(|child| !child.as_ref().is_err_and(is_busy));
        let mut child = eventually("the program is written", start).expect("the program was built");
        let log = Log::follow(child.stderr.take().expect("it was asked for"), close_log);
        let nowhere = SocketAddr::from(([0; 4], 0));
        let mut tracker =
            Self { child, log, udp: Vec::new(), http: Vec::new(), tls: Vec::new(), control: nowhere };
        let ready = tracker.wait_for_line("ready");
        // Unix sockets are no addresses.
        let addresses = |field: &str| -> Vec<SocketAddr> {
            let text = ready[field].as_str().expect("the ready line tells of every kind of listener");
            text.split(", ").filter_map(|address| address.parse().ok()).collect()
        };
        (tracker.udp, tracker.http, tracker.tls) = (addresses("udp"), addresses("http"), addresses("tls"));
        if let Ok(address) = ready["control"].as_str().expect("the ready line tells of control").parse() {
            tracker.control = address;
        }
        tracker
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("process ids are small"))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it has not been waited for");
    }

    /// Waits for the log line with this message and returns its fields.
    pub(crate) fn wait_for_line(&self, message: &str) -> Value {
        loop {
            let line = match self.log.lines.recv_timeout(PATIENCE) {
                Ok(line) => line,
                Err(error) => panic!("{}: {message:?} was not logged\n{}", reason(error), self.log()),
            };
            let Ok(mut line) = serde_json::from_str::<Value>(&line) else { continue };
            if line["fields"]["message"].as_str().is_some_and(|text| text.starts_with(message)) {
                return line["fields"].take();
            }
        }
    }

    /// Everything that it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.seen.lock().expect("no thread panics with it").join("\n")
    }

    /// Waits for its end, but no longer than `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> ExitStatus {
        let looks = patience.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks {
            if let Some(status) = self.child.try_wait().expect("it is a child of this process") {
                return status;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("the tracker did not end within {patience:?}\n{}", self.log());
    }

    /// Returns the processes that have taken over from it, one after another.
    pub(crate) fn successors(&self) -> Vec<Pid> {
        let seen = self.log.seen.lock().expect("no thread panics with it");
        let lines = seen.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let fields = lines.map(|line| line["fields"].clone());
        let handed = fields.filter(|fields| fields["message"] == "the new process serves");
        handed.filter_map(|fields| Some(Pid::from_raw(fields["pid"].as_i64()?.try_into().ok()?))).collect()
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(PATIENCE)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // Both fail where the tracker has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for successor in self.successors() {
            let _ = kill(successor, Signal::SIGKILL);
        }
        if thread::panicking() {
            eprintln!("the log of the tracker:\n{}", self.log());
        }
    }
}

impl Log {
    /// Reads to the end, so that the tracker never waits for a full pipe; or to the ready line, and closes the pipe.
    fn follow(stderr: ChildStderr, close_when_ready: bool) -> Self {
        let (sender, lines) = channel();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let copy = Arc::clone(&seen);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                copy.lock().expect("no thread panics with it").push(line.clone());
                let is_last = close_when_ready && line.contains("\"ready\"");
                let _ = sender.send(line);
                if is_last {
                    break;
                }
            }
        });
        Self { lines, seen }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ExecutableFileBusy
}

fn reason(error: RecvTimeoutError) -> &'static str {
    match error {
        RecvTimeoutError::Timeout => "waited in vain",
        RecvTimeoutError::Disconnected => "the tracker has ended",
    }
}

/// Looks again and again until `look` finds something, for what gives no signal.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / LOOK_EVERY.as_millis() {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("waited in vain: {what}");
}
