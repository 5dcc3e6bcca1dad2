//! Finds out which workers of the tracker hold connections, from the kernel's view of its epoll instances.
//!
//! The tracker does not reveal which of its workers holds a connection. But each worker that uses epoll waits at its
//! own instance, and the kernel lists the descriptors that an instance watches.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::Pid;

/// `TCP_ESTABLISHED` of `net/tcp_states.h`, as `/proc/net/tcp` writes it.
const ESTABLISHED: &str = "01";

/// Returns the number of workers of `process` that hold connections to one of `ports`. The process has to use epoll.
///
/// # Errors
/// Returns an error if the kernel does not provide the information.
pub fn in_use(process: Pid, ports: &[u16]) -> Result<usize> {
    let process = Path::new("/proc").join(process.as_raw_nonzero().to_string());
    // The inodes of all connections to the ports in its network namespace.
    let mut connections = Vec::new();
    for family in ["tcp", "tcp6"] {
        let table = fs::read_to_string(process.join("net").join(family));
        let table = table.context("cannot read connections")?;
        connections.extend(table.lines().filter_map(|line| connection(line, ports)).map(str::to_owned));
    }
    let (mut instances, mut descriptors) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(process.join("fd")).context("cannot list descriptors")? {
        let path = entry?.path();
        // A descriptor that was closed in the meantime is left out.
        let (Some(number), Ok(target)) = (path.file_name(), fs::read_link(&path)) else { continue };
        let [descriptor, target] =
            [number, target.as_os_str()].map(|text| text.to_string_lossy().into_owned());
        if target.ends_with("[eventpoll]") {
            instances.push(descriptor);
        } else if connections.iter().any(|inode| target == format!("socket:[{inode}]")) {
            descriptors.insert(descriptor);
        }
    }
    let held = instances.iter().map(|instance| {
        // An instance that was closed in the meantime watches nothing.
        let watched = fs::read_to_string(process.join("fdinfo").join(instance)).unwrap_or_default();
        let watched = watched.lines().filter_map(watched_descriptor);
        watched.filter(|&descriptor| descriptors.contains(descriptor)).map(str::to_owned).collect()
    });
    // A worker may have several descriptors for its instance, all of which show the same connections.
    let distinct: BTreeSet<BTreeSet<String>> = held.filter(|held: &BTreeSet<_>| !held.is_empty()).collect();
    Ok(distinct.len())
}

/// Returns the inode from a line of `/proc/net/tcp`, if the line is a connection to one of `ports`. The fields are the
/// number, the local address, the remote address, the state, and so on; the tenth is the inode.
fn connection<'a>(line: &'a str, ports: &[u16]) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    let local = words.nth(1)?;
    let state = words.nth(1)?;
    let is_wanted = ports.iter().any(|port| local.ends_with(&format!(":{port:04X}")));
    (is_wanted && state == ESTABLISHED).then(|| words.nth(5)).flatten()
}

/// Returns the watched descriptor from a line of the `fdinfo` of an epoll instance: `tfd: 7 events: …`.
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
