//! A process of a test: its output kept for the case of failure, its end made sure of.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::wait_for;

const LOG_LINES_MAX: usize = 60;

/// A running program. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with all its output going to a file in `directory`.
    ///
    /// # Errors
    /// Where the log cannot be created or the program not be started.
    pub fn spawn(name: &str, mut command: Command, directory: &Path) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        // For appending, because some programs open their output once more by the name that the kernel gives it.
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().context("cannot share the log of a process")?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The name given at the start.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Asks it to quit by `signal` and waits until it has.
    ///
    /// # Errors
    /// Where it has ended before, or is still there after `limit`.
    pub fn quit(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            anyhow::bail!("{} should still be running, but ended: {status}", self.name);
        }
        kill_process(self.pid(), signal).with_context(|| format!("cannot signal {}", self.name))?;
        wait_for(&format!("{} should quit", self.name), limit, || self.ended())
    }

    /// The last lines of its output, under its name.
    #[must_use]
    pub fn tail(&self) -> String {
        let output = fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let lines = output.split(['\n', '\r']).map(str::trim_end).filter(|line| !line.is_empty());
        let mut lines: Vec<&str> = lines.collect();
        lines.dedup();
        let skipped = lines.len().saturating_sub(LOG_LINES_MAX);
        format!("--- {} ({skipped} earlier lines left out)\n{}\n", self.name, lines[skipped..].join("\n"))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nobody to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
