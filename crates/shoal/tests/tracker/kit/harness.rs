//! Starts the built tracker in many ways.

use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shoal_testkit::process::remove_settings;
use shoal_testkit::tracker;

/// Longest wait for anything that a healthy tracker does, on a machine that builds at the same time and stands still at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A pause between two looks at something that gives no signal.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal");

/// The default settings of tests: two workers, so that errors in sharing show, little memory, and the default limits, also for
/// the loopback addresses of clients.
const SETTINGS: [(&str, &str); 8] = [
    ("SHOAL_LIMITS_EXEMPT", ""),
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
pub(crate) struct Tracker(tracker::Tracker);

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
    remove_settings(&mut command);
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
        Self::spawn(command(&SETTINGS).envs(settings.iter().copied()))
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
        Self::spawn(command.arg("--config").arg(path).envs(settings.iter().copied()))
    }

    /// The same, but the file alone says where the tracker serves.
    pub(crate) fn start_where_file_says(path: &Path) -> Self {
        let mut command = command(&SETTINGS);
        command.env_remove("SHOAL_UDP_LISTEN").env_remove("SHOAL_HTTP_LISTEN");
        Self::spawn(command.arg("--config").arg(path))
    }

    /// Starts the program in a file, instead of the built one.
    pub(crate) fn start_program(program: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = with_environment(Command::new(program), &SETTINGS);
        Self::spawn(command.envs(settings.iter().copied()))
    }

    /// Starts the tracker, and closes the pipe of its log once it is ready.
    pub(crate) fn start_with_log_closed(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("there is room for a pipe");
        let mut shell = Command::new("sh");
        let script = "mkfifo \"$1\" && { sed /ready/q \"$1\" >&2 & exec \"$0\" 2>\"$1\"; }";
        shell.args(["-c", script, PROGRAM]).arg(directory.path().join("log"));
        Self::spawn(with_environment(shell, &SETTINGS).envs(settings.iter().copied()))
    }

    /// The same, but it may have no more than so many files open.
    pub(crate) fn start_with_open_files_max(count: u16, settings: &[(&str, &str)]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n \"$1\" && exec \"$0\"", PROGRAM, &count.to_string()]);
        Self::spawn(with_environment(shell, &SETTINGS).envs(settings.iter().copied()))
    }

    /// Starts a tracker that alone sees a small file system at `directory`. Needs the rights of root.
    pub(crate) fn start_with_file_system(directory: &Path, settings: &[(&str, &str)]) -> Self {
        let mut shell = Command::new("unshare");
        let script = "mount -t tmpfs -o size=64k,mode=700 none \"$1\" && exec \"$0\"";
        shell.args(["--mount", "sh", "-c", script, PROGRAM]).arg(directory);
        Self::spawn(with_environment(shell, &SETTINGS).envs(settings.iter().copied()))
    }

    /// Starts a tracker with two sockets that a service manager passes under these names.
    pub(crate) fn start_with_sockets(sockets: [OwnedFd; 2], names: &str, settings: &[(&str, &str)]) -> Self {
        Self::spawn(&mut with_sockets(sockets, names, settings))
    }

    /// Starts the tracker of a command that runs it in a container.
    pub(crate) fn start_in_container(command: &mut Command) -> Self {
        Self(tracker::Tracker::start(command, PATIENCE).elsewhere())
    }

    fn spawn(command: &mut Command) -> Self {
        Self(tracker::Tracker::start(command, PATIENCE))
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.pid().as_raw_nonzero().get())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it has not been waited for");
    }

    /// Returns the processes that have taken over from it, one after another.
    pub(crate) fn successors(&self) -> Vec<Pid> {
        self.0.successors().into_iter().map(|pid| Pid::from_raw(pid.as_raw_nonzero().get())).collect()
    }
}

impl Deref for Tracker {
    type Target = tracker::Tracker;

    fn deref(&self) -> &tracker::Tracker {
        &self.0
    }
}

impl DerefMut for Tracker {
    fn deref_mut(&mut self) -> &mut tracker::Tracker {
        &mut self.0
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
