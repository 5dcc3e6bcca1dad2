//! A network of its own, in which the siege and its tracker run and from which nothing else can be reached.
//!
//! The program starts itself once more inside a new network namespace, whose only card is a loopback. The namespace is
//! gone when the last process of the siege ends. Without root, all this happens in a user namespace.

use std::env;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::source::PREFIX_V6;

/// The environment variable that tells the inner program that it is inside: the identity of the namespace outside.
const OUTSIDE: &str = "SHOAL_SIEGE_OUTSIDE";

/// The file that identifies the network namespace of this process.
const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// Tells whether this process is already inside.
///
/// # Errors
/// If the kernel does not tell, or if something pretends.
pub fn is_inside() -> Result<bool> {
    let Some(outside) = env::var_os(OUTSIDE) else { return Ok(false) };
    ensure!(outside != own()?.as_str(), "{OUTSIDE} is set, but this is no network of its own: unset it");
    Ok(true)
}

/// Runs this program again inside, with the same arguments, and returns its exit code.
///
/// # Errors
/// If the kernel refuses the namespace.
pub fn enter() -> Result<ExitCode> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let program = env::current_exe().context("cannot tell where this program is")?;
    command.args(["--net", "--"]).arg(program).args(env::args_os().skip(1)).env(OUTSIDE, own()?);
    let status = command.status().context("cannot run unshare (package util-linux)")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(2)))
}

/// Brings the loopback up, with a whole prefix of IPv6 addresses and all ports.
///
/// # Errors
/// If the kernel refuses.
pub fn prepare() -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["-6", "route", "add", "local", PREFIX_V6, "dev", "lo"])?;
    // Any address of the prefix can be bound then, although no card has it.
    set("/proc/sys/net/ipv6/ip_nonlocal_bind", "1")?;
    set("/proc/sys/net/ipv4/ip_local_port_range", "10000 65535")
}

fn own() -> Result<String> {
    let namespace = fs::read_link(OWN_NAMESPACE).context("cannot tell the network namespace")?;
    Ok(namespace.to_string_lossy().into_owned())
}

fn set(file: &str, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| format!("cannot write {value} to {file}"))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ip");
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.context("cannot run ip (package iproute2)")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), errors.trim());
    Ok(())
}
