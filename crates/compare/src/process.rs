//! A tracker's process: pinned to its processors, its errors kept, its end made sure of.
//!
//! It is the leader of a process group, so that a Ctrl-C at the terminal does not reach it, and whatever it starts
//! ends with it.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::clock;
use crate::topology::keep_on;

const POLL: Duration = Duration::from_millis(20);

/// Most lines of its output that are told when it fails.
const TAIL_LINES_MAX: usize = 12;

/// A program that is about to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is.
    pub file: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables besides `PATH` and `HOME`.
    pub environment: Vec<(String, String)>,
    /// Where it works, and where its output goes.
    pub folder: PathBuf,
    /// The processors that it may use.
    pub processors: Vec<usize>,
}

/// A running program. It ends when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: PathBuf,
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(&self) -> io::Result<Process> {
        let output = self.folder.join("output.log");
        let file = File::create(&output)?;
        let mut command = Command::new(&self.file);
        command.args(&self.arguments).current_dir(&self.folder).process_group(0);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).env_clear();
        command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // A child inherits the processors of the thread that starts it.
        let start = || keep_on(&self.processors).and_then(|()| command.spawn());
        let child = thread::scope(|scope| scope.spawn(start).join());
        let child = child.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Process { child, output })
    }
}

impl Process {
    /// The number of its process group, which is that of the process.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks it to end by `signal`, and kills it where it has not after `patience`. Says whether it had to be killed.
    pub fn stop(&mut self, signal: Signal, patience: Duration) -> bool {
        self.signal(signal);
        let deadline = clock::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) {
            if clock::now() >= deadline {
                self.kill();
                return true;
            }
            thread::sleep(POLL);
        }
        self.kill();
        false
    }

    /// The last lines of its output, without empty ones.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES_MAX)..].iter().map(ToString::to_string).collect()
    }

    fn signal(&self, signal: Signal) {
        // Nobody may be left in the group, and then there is nobody to tell.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Ends the whole group at once.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An exit status in words.
#[must_use]
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::allowed;

    fn shell(folder: &tempfile::TempDir, script: &str) -> Process {
        let program = Program {
            file: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("COLOUR".into(), "red".into())],
            folder: folder.path().to_owned(),
            processors: allowed().unwrap()[..1].to_vec(),
        };
        program.start().unwrap()
    }

    fn wait(process: &mut Process) -> ExitStatus {
        loop {
            if let Some(status) = process.ended().unwrap() {
                return status;
            }
            thread::sleep(POLL);
        }
    }

    #[test]
    fn it_runs_pinned_in_a_clean_environment() {
        let folder = tempfile::tempdir().unwrap();
        let script = "env | grep -c -e CARGO; echo $COLOUR; grep Cpus_allowed_list /proc/self/status; exit 3";
        let mut process = shell(&folder, script);
        assert_eq!(in_words(wait(&mut process)), "ended with exit code 3");
        let first = allowed().unwrap()[0];
        assert_eq!(process.tail(), ["0", "red", &format!("Cpus_allowed_list:\t{first}")]);
    }

    #[test]
    fn it_is_killed_where_it_does_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
        while process.tail().is_empty() {
            thread::sleep(POLL);
        }
        assert!(process.stop(Signal::TERM, Duration::from_millis(200)));
        assert_eq!(in_words(wait(&mut process)), "was ended by signal 9");
    }

    #[test]
    fn what_it_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "sleep 600 & echo $!; wait");
        while process.tail().is_empty() {
            thread::sleep(POLL);
        }
        let grandchild: i32 = process.tail()[0].parse().unwrap();
        assert!(!process.stop(Signal::TERM, Duration::from_secs(5)));
        let gone = || {
            let status = fs::read_to_string(format!("/proc/{grandchild}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        };
        let patience = clock::now() + Duration::from_secs(5);
        while !gone() {
            assert!(clock::now() < patience, "the grandchild is still there");
            thread::sleep(POLL);
        }
    }
}
