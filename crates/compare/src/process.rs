//! The process of a tracker: its program, pinned to its processors.

use std::env;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

pub use shoal_testkit::process::Process;
use shoal_testkit::process::command;

use crate::topology::{allowed, keep_on};

/// Most lines of output in an error message.
pub const TAIL_LINES_MAX: usize = 12;

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path.
    pub file: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables in addition to `PATH` and `HOME`.
    pub environment: Vec<(String, String)>,
    /// Its working directory, which also gets its output.
    pub folder: PathBuf,
    /// The processors that it may use.
    pub processors: Vec<usize>,
}

impl Program {
    /// Starts it as the leader of a process group.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(&self) -> io::Result<Process> {
        self.pinned(|command| Process::start(command, &self.folder.join("output.log")))
    }

    /// Starts it again, in place of what is left of its process.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start_again(&self, process: &mut Process) -> io::Result<()> {
        self.pinned(|command| process.start_again(command))
    }

    /// Starts it in the group of another program.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn join(&self, process: &mut Process) -> io::Result<()> {
        self.pinned(|command| process.add(command))
    }

    /// Starts the command, in a clean environment, on its processors, which it inherits from this thread.
    fn pinned<T>(&self, start: impl FnOnce(Command) -> io::Result<T>) -> io::Result<T> {
        let mut command = command(&self.file);
        command.args(&self.arguments).current_dir(&self.folder).env_clear();
        command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let own_processors = allowed()?;
        keep_on(&self.processors)?;
        let started = start(command);
        keep_on(&own_processors)?;
        started
    }
}

/// Describes an exit status.
#[must_use]
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_pinned_in_a_clean_environment() {
        let folder = tempfile::tempdir().unwrap();
        let script = "env | grep -c -e CARGO; echo $COLOUR; grep Cpus_allowed_list /proc/self/status; exit 3";
        let first = allowed().unwrap()[0];
        let program = Program {
            file: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("COLOUR".into(), "red".into())],
            folder: folder.path().to_owned(),
            processors: vec![first],
        };
        let mut process = program.start().unwrap();
        let status = loop {
            if let Some(status) = process.ended().unwrap() {
                break status;
            }
        };
        assert_eq!(describe_exit(status), "ended with exit code 3");
        assert_eq!(process.log_tail(TAIL_LINES_MAX), ["0", "red", &format!("Cpus_allowed_list: {first}")]);
    }
}
