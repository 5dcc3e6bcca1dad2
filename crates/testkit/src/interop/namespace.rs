//! Network namespaces that live no longer than the test that created them.
//!
//! An idle process holds each namespace and reads a pipe from the test. However the test ends, the pipe closes, the
//! process exits, and the kernel removes the namespace with every device in it. The network of the host itself is
//! never changed. If the test does not run as root, everything happens inside a user namespace.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::tools;

/// A network namespace, and a mount namespace that it shares with the other namespaces of the test.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    /// Whether it belongs to a user namespace that a process has to enter as well.
    in_user_namespace: bool,
}

impl Namespace {
    /// Creates the first namespace of a test. Its processes see `hosts` as `/etc/hosts`, as do those of its siblings.
    ///
    /// # Errors
    /// Returns an error, with advice, if the kernel refuses.
    pub fn with_hosts(hosts: &Path) -> Result<Self> {
        let in_user_namespace = !rustix::process::geteuid().is_root();
        let mut command = Command::new(tools::program("unshare")?);
        if in_user_namespace {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--net", "--", "sh", "-c"]);
        command.arg("mount --bind \"$0\" /etc/hosts && echo ready && exec cat").arg(hosts);
        Self::spawn_holder(command, in_user_namespace).context(
            "cannot create namespaces: run the tests as root, or allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0)",
        )
    }

    /// Creates a namespace that is not connected to this one yet.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn sibling(&self) -> Result<Self> {
        let mut command = self.command(&tools::program("unshare")?)?;
        command.args(["--net", "--", "sh", "-c", "echo ready && exec cat"]);
        Self::spawn_holder(command, self.in_user_namespace)
    }

    /// Returns a command that runs inside the namespace and is killed if the test dies.
    ///
    /// # Errors
    /// Returns an error if the tools to enter a namespace are missing.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(tools::program("nsenter")?);
        command.args(["--target", &self.pid(), "--mount", "--net"]);
        if self.in_user_namespace {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
        Ok(command)
    }

    /// Runs the lines of an `ip -batch` script.
    ///
    /// # Errors
    /// Returns an error if a line fails.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = self.command(&tools::program("ip")?)?;
        let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("ip has a stdin")?.write_all(lines.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "ip: {}\n{lines}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Returns the process id that names the namespace for `ip`.
    #[must_use]
    pub fn pid(&self) -> String {
        self.holder.id().to_string()
    }

    /// Starts the holder and waits for its message that the namespace exists. Until then its process id stands for the
    /// old namespace.
    fn spawn_holder(mut command: Command, in_user_namespace: bool) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("the holder has a stdout")?).read_line(&mut line)?;
        if line != "ready\n" {
            let output = holder.wait_with_output()?;
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Self { holder, in_user_namespace })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The holder may already be gone, if something else killed it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
