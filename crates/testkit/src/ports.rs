//! Ports for programs that cannot choose one themselves and tell it.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;

use anyhow::{Result, ensure};

/// Ports that the kernel gives to no program by itself (net.ipv4.ip_local_port_range), so that they stay free until a test
/// uses them: neither another socket nor a connection that another test makes meanwhile takes one.
const PORTS: Range<u16> = 10_000..32_000;

/// Maximum number of ports to try.
const PORTS_TRIED_MAX: usize = 1000;

/// Returns ports that nothing uses at present, neither for TCP nor for UDP.
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
