//! A Shoal under test, which logs JSON: it says in its log where it serves, and what it does.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, wait_for, wait_for_every};

/// A pause between two looks at the log. Tests send signals as soon as a line comes.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A running tracker. Killed on drop, with all processes that have taken over from it.
#[derive(Debug)]
pub struct Tracker {
    process: Process,
    /// How long it may take to do anything.
    patience: Duration,
    /// The bytes of the log up to the last line that was waited for.
    taken: AtomicU64,
    /// Where it serves UDP, in the order of its configuration.
    pub udp: Vec<SocketAddr>,
    /// Where it serves plain HTTP over TCP, likewise.
    pub http: Vec<SocketAddr>,
    /// Where it serves TLS over TCP, likewise.
    pub tls: Vec<SocketAddr>,
    /// Where it serves operators.
    pub control: SocketAddr,
    /// Whether its process ids are those of another namespace.
    is_elsewhere: bool,
    /// The folder of the log. It is removed last.
    _folder: TempDir,
}

impl Tracker {
    /// Starts the tracker of a command, whose log goes to a file, and waits until it is ready.
    ///
    /// # Panics
    /// Panics if it does not start in time, or does not log JSON.
    #[must_use]
    pub fn start(command: &mut Command, patience: Duration) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a log");
        let log = folder.path().join("shoal.log");
        // A program that a test has just written is still open for writing in a process that another test is about to start.
        let process =
            wait_for("the program should be written", patience, || {
                match Process::start_with_stdio(command, &log) {
                    Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => Ok(None),
                    started => Ok(Some(started?)),
                }
            });
        let mut tracker = Self {
            process: process.expect("the program was built"),
            patience,
            taken: AtomicU64::new(0),
            udp: Vec::new(),
            http: Vec::new(),
            tls: Vec::new(),
            control: SocketAddr::from(([0; 4], 0)),
            is_elsewhere: false,
            _folder: folder,
        };
        let ready = tracker.wait_for_line("ready");
        // Unix sockets are no addresses.
        let addresses = |field: &str| -> Vec<SocketAddr> {
            let text = ready[field].as_str().expect("the ready line tells of every kind of listener");
            text.split(", ").filter_map(|address| address.parse().ok()).collect()
        };
        (tracker.udp, tracker.http, tracker.tls) = (addresses("udp"), addresses("http"), addresses("tls"));
        if let Some(address) = addresses("control").first() {
            tracker.control = *address;
        }
        tracker
    }

    /// Marks it as one in a namespace of process ids of its own, which kills its successors itself.
    #[must_use]
    pub fn elsewhere(mut self) -> Self {
        self.is_elsewhere = true;
        self
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Panics if it has been waited for.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it has not been waited for");
    }

    /// Waits for the next log line with this message and returns its fields.
    ///
    /// # Panics
    /// Panics if the tracker does not log it in time.
    pub fn wait_for_line(&self, message: &str) -> Value {
        let what = format!("{message:?} should be logged");
        let found = wait_for_every(LOOK_EVERY, &what, self.patience, || {
            let log = self.process.log_from(self.taken.load(Ordering::Relaxed));
            for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                self.taken.fetch_add(line.len() as u64, Ordering::Relaxed);
                let Ok(mut line) = serde_json::from_str::<Value>(line) else { continue };
                if line["fields"]["message"].as_str().is_some_and(|text| text.starts_with(message)) {
                    return Ok(Some(line["fields"].take()));
                }
            }
            Ok(None)
        });
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Returns everything that it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits for its end, but no longer than `patience`.
    ///
    /// # Panics
    /// Panics if it does not end in time.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        let ended =
            wait_for_every(LOOK_EVERY, "the tracker should end", patience, || Ok(self.process.ended()?));
        ended.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Returns the processes that have taken over from it, one after another.
    #[must_use]
    pub fn successors(&self) -> Vec<Pid> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let handed = lines.filter(|line| line["fields"]["message"] == "the new process serves");
        handed.filter_map(|line| Pid::from_raw(line["fields"]["pid"].as_i64()?.try_into().ok()?)).collect()
    }

    /// Ends it as an operator does.
    ///
    /// # Panics
    /// Panics if it does not end in time.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(self.patience)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let successors = if self.is_elsewhere { Vec::new() } else { self.successors() };
        for successor in successors {
            // The call fails if it has ended.
            let _ = kill_process(successor, Signal::KILL);
        }
        if thread::panicking() {
            eprintln!("the log of the tracker:\n{}", self.log());
        }
    }
}
