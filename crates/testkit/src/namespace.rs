//! Network namespaces that live no longer than the program that created them.
//!
//! An idle process holds each namespace and reads a pipe from the program. However the program ends, the pipe closes, the
//! process exits, and the kernel removes the namespace with every device in it. The network of the host itself is
//! never changed. If the program does not run as root, everything happens inside a user namespace.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::tools;

/// A network namespace, which may share a mount namespace with its siblings.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    network: File,
    /// The namespaces that a process has to enter, apart from a user namespace.
    kinds: &'static [&'static str],
    /// Whether it belongs to a user namespace that a process has to enter as well.
    in_user_namespace: bool,
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Returns an error, with advice, if the kernel refuses.
    pub fn new() -> Result<Self> {
        Self::first(&["--net"], "echo ready && exec cat", Path::new(""))
    }

    /// Creates a namespace. Its processes see `hosts` as `/etc/hosts`, as do those of its siblings.
    ///
    /// # Errors
    /// Returns an error, with advice, if the kernel refuses.
    pub fn with_hosts(hosts: &Path) -> Result<Self> {
        let script = "mount --bind \"$0\" /etc/hosts && echo ready && exec cat";
        Self::first(&["--mount", "--net"], script, hosts)
    }

    fn first(kinds: &'static [&'static str], script: &str, argument: &Path) -> Result<Self> {
        let in_user_namespace = !rustix::process::geteuid().is_root();
        let mut command = Command::new(tools::program("unshare")?);
        if in_user_namespace {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(kinds).args(["--", "sh", "-c", script]).arg(argument);
        Self::spawn_holder(command, kinds, in_user_namespace).context(
            "cannot create namespaces: run this as root, or allow unprivileged user namespaces \
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
        Self::spawn_holder(command, self.kinds, self.in_user_namespace)
    }

    /// Returns a command that runs inside the namespace and is killed if this thread dies.
    ///
    /// # Errors
    /// Returns an error if the tools to enter a namespace are missing.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(tools::program("nsenter")?);
        command.args(["--target", &self.pid()]).args(self.kinds);
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

    /// Runs a program inside, and returns its output.
    ///
    /// # Errors
    /// Returns an error if it is missing or fails.
    pub fn run_program(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self.command(&tools::program(program)?)?.args(arguments).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), errors.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Moves this thread inside.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses, as it does without the rights of root.
    pub fn enter(&self) -> Result<()> {
        enter(&self.network)
    }

    /// Runs a job on a thread inside. The sockets that it opens belong to the namespace.
    ///
    /// # Panics
    /// Panics without the rights of root, or if the job does.
    #[track_caller]
    pub fn run<R: Send>(&self, job: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            self.enter().expect("this takes the rights of root");
            job()
        };
        thread::scope(|scope| scope.spawn(inside).join()).expect("see above")
    }

    /// Starts the holder and waits for its message that the namespace exists. Until then its process id stands for the
    /// old namespace.
    fn spawn_holder(
        mut command: Command,
        kinds: &'static [&'static str],
        in_user_namespace: bool,
    ) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A Ctrl-C at the terminal does not reach it.
        command.process_group(0);
        let mut holder = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("the holder has a stdout")?).read_line(&mut line)?;
        if line != "ready\n" {
            let output = holder.wait_with_output()?;
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let network = File::open(format!("/proc/{}/ns/net", holder.id()));
        let network = network.context("cannot open a network namespace")?;
        Ok(Self { holder, network, kinds, in_user_namespace })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The holder may already be gone, if something else killed it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns the network namespace of this thread.
///
/// # Errors
/// Returns an error if the kernel does not tell.
pub fn own() -> Result<File> {
    File::open("/proc/thread-self/ns/net").context("cannot open the network namespace of this thread")
}

/// Moves this thread into a network namespace.
///
/// # Errors
/// Returns an error if the kernel refuses, as it does without the rights of root.
pub fn enter(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot enter a network namespace")
}
