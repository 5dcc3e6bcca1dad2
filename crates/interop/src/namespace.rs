//! Network namespaces that live no longer than the test that made them.
//!
//! A namespace is held by an idle process that reads a pipe from the test. However the test ends, the pipe closes,
//! the process exits, and the kernel takes the namespace with every device in it. Nothing of the host's own network
//! is touched. Where the test does not run as root, everything happens inside a user namespace.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::tools;

/// One network namespace, and a mount namespace that it shares with the others of the test.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    /// Whether it belongs to a user namespace that has to be entered as well.
    in_user_namespace: bool,
}

impl Namespace {
    /// The first namespace of a test, in which `hosts` is seen as `/etc/hosts`. All others come from it.
    ///
    /// # Errors
    /// Where the kernel refuses, with what could be done about it.
    pub fn first(hosts: &Path) -> Result<Self> {
        let in_user_namespace = !rustix::process::geteuid().is_root();
        let mut command = Command::new(tools::program("unshare")?);
        if in_user_namespace {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--net", "--", "sh", "-c"]);
        command.arg("mount --bind \"$0\" /etc/hosts && echo ready && exec cat").arg(hosts);
        Self::hold(command, in_user_namespace).context(
            "cannot make namespaces: run the tests as root, or allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0)",
        )
    }

    /// A namespace beside this one, connected with nothing yet.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn another(&self) -> Result<Self> {
        let mut command = self.command(&tools::program("unshare")?)?;
        command.args(["--net", "--", "sh", "-c", "echo ready && exec cat"]);
        Self::hold(command, self.in_user_namespace)
    }

    /// A command that will run inside, and be killed should the test die.
    ///
    /// # Errors
    /// Where the tools to enter a namespace are missing.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(tools::program("nsenter")?);
        command.args(["--target", &self.pid(), "--mount", "--net"]);
        if self.in_user_namespace {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
        Ok(command)
    }

    /// Runs lines of `ip -batch`.
    ///
    /// # Errors
    /// Where one of them fails.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = self.command(&tools::program("ip")?)?;
        let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("ip has a stdin")?.write_all(lines.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "ip: {}\n{lines}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The process id by which `ip` names the namespace.
    #[must_use]
    pub fn pid(&self) -> String {
        self.holder.id().to_string()
    }

    /// Starts the holder. It says when its namespace exists; until then its process id stands for the old one.
    fn hold(mut command: Command, in_user_namespace: bool) -> Result<Self> {
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
        // It may be gone already, if somebody else ended it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
