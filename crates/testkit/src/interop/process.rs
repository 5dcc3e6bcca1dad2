//! The processes of a test: their logs, their end, and bounded waits for what they do.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

const LOG_LINES_MAX: usize = 60;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A running program. It is killed on drop.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` and sends all its output to a file in `directory`.
    ///
    /// # Errors
    /// Returns an error if the log cannot be created or the program cannot be started.
    pub fn spawn(name: &str, mut command: Command, directory: &Path) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        // Opened for appending, because some programs reopen their output by the name that the kernel shows.
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().context("cannot share the log of a process")?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Returns the name given at the start.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the exit status, if the process has ended.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Sends `signal` and waits until the process has ended.
    ///
    /// # Errors
    /// Returns an error if it had already ended, or still runs after `limit`.
    pub fn quit(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            anyhow::bail!("{} should still be running, but ended: {status}", self.name);
        }
        kill_process(self.pid(), signal).with_context(|| format!("cannot signal {}", self.name))?;
        wait_for(&format!("{} should quit", self.name), limit, || self.ended())
    }

    /// Returns the last lines of the output, with the name of the process as the heading.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let output = fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let lines = output.split(['\n', '\r']).map(str::trim_end).filter(|line| !line.is_empty());
        let mut lines: Vec<&str> = lines.collect();
        lines.dedup();
        let skipped = lines.len().saturating_sub(LOG_LINES_MAX);
        format!("--- {} ({skipped} earlier lines left out)\n{}\n", self.name, lines[skipped..].join("\n"))
    }

    /// Returns whether its output contains `text`.
    #[must_use]
    pub fn has_said(&self, text: &str) -> bool {
        let output = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&output).contains(text)
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
/// Calls `probe` repeatedly until it returns a value.
///
/// # Errors
/// Returns the first error of `probe`, or an error that names `what` if there is no value after `limit`.
pub fn wait_for<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = now() + limit;
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        if now() >= deadline {
            bail!("timed out after {} s: {what}", limit.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clients run in real time, and so do the timeouts of the tests"
)]
fn now() -> Instant {
    Instant::now()
}
