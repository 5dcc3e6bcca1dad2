//! Ports for programs that cannot choose one themselves and tell it.

use std::fs::{self, OpenOptions, TryLockError};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::{env, io, mem};

use anyhow::{Result, ensure};

/// Ports that the kernel gives to no program by itself (net.ipv4.ip_local_port_range), so that they stay free until a test
/// uses them: neither another socket nor a connection that another test makes meanwhile takes one.
const PORTS: Range<u16> = 10_000..32_000;

/// Maximum number of ports to try.
const PORTS_TRIED_MAX: usize = 1000;

/// Returns ports that nothing uses at present, neither for TCP nor for UDP, and that no other test gets before this process ends.
///
/// # Errors
/// Returns an error if there are none.
pub fn unused_ports<const N: usize>() -> Result<[u16; N]> {
    // All are open at the same time, so that they differ.
    let mut open = Vec::new();
    for _ in 0..PORTS_TRIED_MAX {
        if open.len() == N {
            break;
        }
        let address = (Ipv4Addr::LOCALHOST, fastrand::u16(PORTS));
        if !reserve(address.1)? {
            continue;
        }
        if let (Ok(tcp), Ok(udp)) = (TcpListener::bind(address), UdpSocket::bind(address)) {
            open.push((tcp, udp));
        }
    }
    ensure!(open.len() == N, "there are no unused ports");
    let mut ports = [0; N];
    for (port, (tcp, _)) in ports.iter_mut().zip(&open) {
        *port = tcp.local_addr()?.port();
    }
    Ok(ports)
}

/// Reserves a port for this process. Returns whether no process has it.
fn reserve(port: u16) -> io::Result<bool> {
    let folder = env::temp_dir().join("shoal-test-ports");
    fs::create_dir_all(&folder)?;
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(port.to_string()))?;
    match file.try_lock() {
        Ok(()) => {
            // The lock ends with the process.
            mem::forget(file);
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_once() {
        let ports: [u16; 3] = unused_ports().unwrap();
        assert!(ports.iter().all(|port| !reserve(*port).unwrap()));
    }
}
