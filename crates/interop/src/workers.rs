//! Which workers of the tracker serve, as the kernel tells it.
//!
//! The tracker does not say which of its workers holds a connection, since that is nobody's business. But each worker
//! that serves by epoll waits at an instance of its own, and the kernel lists what is waited for there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::Pid;

/// `TCP_ESTABLISHED` of `net/tcp_states.h`, as `/proc/net/tcp` writes it.
const ESTABLISHED: &str = "01";

/// How many workers of `process`, which serves by epoll, hold connections to one of `ports`.
///
/// # Errors
/// Where the kernel does not tell.
pub fn in_use(process: Pid, ports: &[u16]) -> Result<usize> {
    let process = Path::new("/proc").join(process.as_raw_nonzero().to_string());
    let connections = connections(&process, ports)?;
    let (mut instances, mut descriptors) = (Vec::new(), BTreeSet::new());
    for (descriptor, target) in descriptors_of(&process)? {
        if target.ends_with("[eventpoll]") {
            instances.push(descriptor);
        } else if connections.iter().any(|inode| target == format!("socket:[{inode}]")) {
            descriptors.insert(descriptor);
        }
    }
    let held = instances.iter().map(|instance| {
        // One that was closed meanwhile holds nothing.
        let watched = fs::read_to_string(process.join("fdinfo").join(instance)).unwrap_or_default();
        let watched = watched.lines().filter_map(watched_descriptor);
        watched.filter(|&descriptor| descriptors.contains(descriptor)).map(str::to_owned).collect()
    });
    // A worker has several descriptors of its instance, through each of which the same connections are seen.
    let distinct: BTreeSet<BTreeSet<String>> = held.filter(|held: &BTreeSet<_>| !held.is_empty()).collect();
    Ok(distinct.len())
}

/// The descriptors of a process by their numbers, and what they stand for.
fn descriptors_of(process: &Path) -> Result<Vec<(String, String)>> {
    let entries = fs::read_dir(process.join("fd")).context("cannot list descriptors")?;
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    // Those that were closed meanwhile are left out.
    let targets = paths.iter().filter_map(|path| Some((path.file_name()?, fs::read_link(path).ok()?)));
    let text = targets.map(|(name, target)| (name.to_string_lossy().into(), target.to_string_lossy().into()));
    Ok(text.collect())
}

/// The inodes of all connections to `ports` in the network of a process.
fn connections(process: &Path, ports: &[u16]) -> Result<Vec<String>> {
    let mut inodes = Vec::new();
    for family in ["tcp", "tcp6"] {
        let table =
            fs::read_to_string(process.join("net").join(family)).context("cannot read connections")?;
        inodes.extend(table.lines().filter_map(|line| connection(line, ports)).map(str::to_owned));
    }
    Ok(inodes)
}

/// The inode of a line of `/proc/net/tcp`, if it is a connection to one of `ports`: number, local address, remote address,
/// state, and what else there is, with the inode as the tenth.
fn connection<'a>(line: &'a str, ports: &[u16]) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    let local = words.nth(1)?;
    let state = words.nth(1)?;
    let is_wanted = ports.iter().any(|port| local.ends_with(&format!(":{port:04X}")));
    (is_wanted && state == ESTABLISHED).then(|| words.nth(5)).flatten()
}

/// What a line of the `fdinfo` of an epoll instance says is waited for: `tfd: 7 events: …`.
fn watched_descriptor(line: &str) -> Option<&str> {
    line.strip_prefix("tfd:")?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::{connection, watched_descriptor};

    #[test]
    fn connections_to_the_port_are_found() {
        let line = "   1: 0100007F:1B39 0200007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 \
                    71234 1 0000000000000000 20 4 30 10 -1";
        assert_eq!(connection(line, &[443, 6969]), Some("71234"));
        assert_eq!(connection(line, &[6970]), None);
        assert_eq!(connection(&line.replace(" 01 ", " 0A "), &[6969]), None, "a listener is no connection");
    }

    #[test]
    fn watched_descriptors_are_read() {
        let line = "tfd:       12 events:       19 data:               1b  pos:0 ino:3f1 sdev:8";
        assert_eq!(watched_descriptor(line), Some("12"));
        assert_eq!(watched_descriptor("pos:\t0"), None);
    }
}
