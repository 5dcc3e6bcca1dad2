//! The network namespace of the siege and its tracker, from which nothing else can be reached.
//!
//! The program starts itself again inside a new network namespace, whose only interface is loopback. The namespace
//! disappears when the last process of the siege ends. Without root, a user namespace is created as well.
//!
//! The namespace owns all of 127.0.0.0/8 and 11.0.0.0/8 and, apart from the honest clients, one IPv6 /32. An attack can therefore use
//! as many sources, /64s and /48s as it needs.

use std::env;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use shoal_testkit::namespace::Namespace;
use shoal_testkit::network::ip;

use crate::siege::address::{PREFIXES_V6, PUBLIC_V4};

/// The environment variable that marks the inner program. Its value identifies the outer namespace.
const OUTSIDE: &str = "SHOAL_SIEGE_OUTSIDE";

/// The file that identifies the network namespace of this process.
const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// Returns whether this process is already inside.
///
/// # Errors
/// Returns an error if the namespace cannot be identified, or if the variable is set outside.
pub fn is_inside() -> Result<bool> {
    is_inside_of(OWN_NAMESPACE, OUTSIDE)
}

/// Returns whether the variable is set, whose value is the namespace of this file as it was outside.
pub(crate) fn is_inside_of(file: &str, variable: &str) -> Result<bool> {
    let Some(outside) = env::var_os(variable) else { return Ok(false) };
    ensure!(outside != own(file)?.as_str(), "{variable} is set, but this is not another namespace: unset it");
    Ok(true)
}

/// Runs this program again inside, with the same arguments, and returns its exit code.
///
/// # Errors
/// Returns an error if the kernel refuses the namespace.
pub fn enter() -> Result<ExitCode> {
    let namespace = Namespace::new()?;
    let program = env::current_exe().context("cannot locate this program")?;
    let mut command = namespace.command(&program)?;
    let status = command.args(env::args_os().skip(1)).env(OUTSIDE, own(OWN_NAMESPACE)?).status();
    let status = status.context("cannot run nsenter (package util-linux)")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(2)))
}

/// Brings up the loopback interface, with whole prefixes of IPv6 addresses and all ports.
///
/// # Errors
/// Returns an error if the kernel refuses.
pub fn prepare() -> Result<()> {
    ip("link set lo up");
    ip(&format!("route add local {PUBLIC_V4} dev lo"));
    PREFIXES_V6.iter().for_each(|prefix| ip(&format!("route add local {prefix} dev lo")));
    // This allows binding any address of the prefixes, although no interface has it.
    set("/proc/sys/net/ipv6/ip_nonlocal_bind", "1")?;
    set("/proc/sys/net/ipv4/ip_local_port_range", "10000 65535")
}

/// Returns whether this process has the rights of root outside as well, so that it may load programs into the kernel.
pub fn is_privileged() -> bool {
    // Outside of all user namespaces, every user is mapped to itself (user_namespaces(7)).
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the namespace of this process that a file identifies.
pub(crate) fn own(file: &str) -> Result<String> {
    let namespace = fs::read_link(file).with_context(|| format!("cannot read {file}"))?;
    Ok(namespace.to_string_lossy().into_owned())
}

fn set(file: &str, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| format!("cannot write {value} to {file}"))
}
