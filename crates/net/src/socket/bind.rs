//! Opens and binds the sockets of one address.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socket_with};

use super::{BindError, BoundSocket, options};
use crate::inherited::{self, InheritedSockets};

/// The settings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// The address to listen on. With port 0 the kernel chooses a port, the same for all workers.
    pub addr: SocketAddr,
    /// Bytes of received datagrams that may wait for the worker, as in `SO_RCVBUF`. The kernel's overhead counts too (a
    /// small datagram takes about 800 bytes), so the kernel doubles the number.
    pub recv_buffer_bytes: usize,
    /// Bytes of replies that may wait for the device, as in `SO_SNDBUF`.
    pub send_buffer_bytes: usize,
}

impl SocketSettings {
    /// The kernel's buffer in each socket of a tracker for replies that wait for the network card. A worker answers one
    /// batch before it reads the next, so this holds many batches. The sysctl net.core.wmem_max caps the size.
    pub const SEND_BUFFER_BYTES: usize = 1 << 20;
}

/// A socket buffer that the kernel made smaller than configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferShortfall {
    /// The address of the socket.
    pub addr: SocketAddr,
    /// The kernel parameter that limits the buffer.
    pub sysctl: &'static str,
    /// The configured size.
    pub wanted_bytes: usize,
    /// The actual size.
    pub granted_bytes: usize,
}

/// Binds one socket for each worker to the same address, after the inherited ones. If the kernel allows no more sockets
/// there, because another user has bound the inherited ones, workers share sockets.
pub(super) fn bind_group(
    wanted: &SocketSettings,
    workers: NonZeroUsize,
    inherited: &InheritedSockets,
) -> Result<Vec<BoundSocket>, BindError> {
    let bind = |socket: &OwnedFd, addr| rustix::net::bind(socket, &addr).map_err(BindError::at(addr, "bind"));
    let share = |socket: &OwnedFd, addr| {
        sockopt::set_socket_reuseport(socket, true).map_err(BindError::at(addr, "SO_REUSEPORT"))
    };
    let adopted = inherited.datagrams(wanted.addr);
    if !adopted.is_empty() {
        return adopt_group(wanted, workers, adopted);
    }
    let first = open(wanted)?;
    // This fails if another socket is bound to the address, so other sockets of this user may join only afterwards.
    bind(&first, wanted.addr)?;
    share(&first, wanted.addr)?;
    let first = describe(first.into(), wanted)?;
    let shared = SocketSettings { addr: first.local, ..*wanted };
    let mut group = vec![first];
    for _ in 1..workers.get() {
        let next = open(&shared)?;
        share(&next, shared.addr)?;
        bind(&next, shared.addr)?;
        group.push(describe(next.into(), &shared)?);
    }
    Ok(group)
}

fn adopt_group(
    wanted: &SocketSettings,
    workers: NonZeroUsize,
    adopted: Vec<Arc<OwnedFd>>,
) -> Result<Vec<BoundSocket>, BindError> {
    let mut group = Vec::new();
    for socket in adopted.into_iter().take(workers.get()) {
        prepare(&socket, wanted)?;
        inherited::share(&socket).map_err(BindError::at(wanted.addr, "SO_REUSEPORT"))?;
        group.push(BoundSocket { is_inherited: true, ..describe(socket, wanted)? });
    }
    let bound = group.len();
    for worker in bound..workers.get() {
        let shared = SocketSettings { addr: group[0].local, ..*wanted };
        let next = open(&shared)?;
        inherited::share(&next).map_err(BindError::at(shared.addr, "SO_REUSEPORT"))?;
        let socket = match rustix::net::bind(&next, &shared.addr) {
            Ok(()) => describe(next.into(), &shared)?,
            Err(_) => BoundSocket {
                is_inherited: true,
                ..describe(Arc::clone(&group[worker % bound].socket), &shared)?
            },
        };
        group.push(socket);
    }
    Ok(group)
}

/// Returns sockets that another process has just bound for this one, as its own.
pub(super) fn own_group(group: Vec<BoundSocket>) -> Vec<BoundSocket> {
    group.into_iter().map(|bound| BoundSocket { is_inherited: false, ..bound }).collect()
}

/// Gives a socket the buffers of these settings.
pub(super) fn resize(bound: &mut BoundSocket, wanted: &SocketSettings) -> Result<(), BindError> {
    prepare(&bound.socket, wanted)?;
    bound.shortfalls = describe(Arc::clone(&bound.socket), wanted)?.shortfalls;
    Ok(())
}

/// Opens a socket with all options that must be set before datagrams arrive.
fn open(wanted: &SocketSettings) -> Result<OwnedFd, BindError> {
    let at = |doing| BindError::at(wanted.addr, doing);
    let family = if wanted.addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP)).map_err(at("socket"))?;
    if wanted.addr.is_ipv6() {
        // IPv4 has its own sockets, so that a peer never appears as ::ffff:a.b.c.d.
        sockopt::set_ipv6_v6only(&socket, true).map_err(at("IPV6_V6ONLY"))?;
    }
    prepare(&socket, wanted)?;
    Ok(socket)
}

/// Sets all options that can still be set after the socket was bound.
fn prepare(socket: &OwnedFd, wanted: &SocketSettings) -> Result<(), BindError> {
    let at = |doing| BindError::at(wanted.addr, doing);
    let is_wildcard = wanted.addr.ip().is_unspecified();
    if wanted.addr.is_ipv4() {
        // A reply is sent with its own size, and without the bit that forbids routers to fragment it. It fits an
        // Ethernet frame. If a tunnel on the path is narrower, two fragments serve the client better than an ICMP error
        // to the tracker, which keeps no reply to send again. ICMP reports about the path are ignored (OMIT, not DONT),
        // because forged ones could make the tracker fragment small replies.
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::OMIT).map_err(at("IP_MTU_DISCOVER"))?;
        if is_wildcard {
            options::report_local_v4(socket).map_err(at("IP_PKTINFO"))?;
        }
    } else {
        // Routers do not fragment IPv6, so the sender has to do it for narrow tunnels, based on ICMP reports about the
        // path (DONT, not OMIT, which would send into a black hole). A forged report can at worst reduce the size to
        // 1280 bytes.
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DONT)
            .map_err(at("IPV6_MTU_DISCOVER"))?;
        if is_wildcard {
            options::report_local_v6(socket).map_err(at("IPV6_RECVPKTINFO"))?;
        }
    }
    sockopt::set_socket_recv_buffer_size(socket, wanted.recv_buffer_bytes).map_err(at("SO_RCVBUF"))?;
    sockopt::set_socket_send_buffer_size(socket, wanted.send_buffer_bytes).map_err(at("SO_SNDBUF"))?;
    Ok(())
}

fn describe(socket: Arc<OwnedFd>, wanted: &SocketSettings) -> Result<BoundSocket, BindError> {
    let at = |doing| BindError::at(wanted.addr, doing);
    let local = getsockname(&socket).map_err(at("getsockname"))?;
    let local = SocketAddr::try_from(local).map_err(at("getsockname"))?;
    // The kernel reports its doubled number (`socket(7)`, SO_RCVBUF).
    let recv_bytes = sockopt::socket_recv_buffer_size(&socket).map_err(at("SO_RCVBUF"))? / 2;
    let send_bytes = sockopt::socket_send_buffer_size(&socket).map_err(at("SO_SNDBUF"))? / 2;
    let shortfalls = [
        ("net.core.rmem_max", wanted.recv_buffer_bytes, recv_bytes),
        ("net.core.wmem_max", wanted.send_buffer_bytes, send_bytes),
    ];
    let shortfalls = shortfalls
        .into_iter()
        .filter(|(_, wanted_bytes, granted_bytes)| granted_bytes < wanted_bytes)
        .map(|(sysctl, wanted_bytes, granted_bytes)| BufferShortfall {
            addr: local,
            sysctl,
            wanted_bytes,
            granted_bytes,
        })
        .collect();
    Ok(BoundSocket { socket, local, shortfalls, is_inherited: false })
}

impl fmt::Display for BufferShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, sysctl, wanted_bytes, granted_bytes } = self;
        write!(
            f,
            "the kernel grants {addr} a socket buffer of {granted_bytes} bytes instead of {wanted_bytes}: \
             raise {sysctl}, or ask for less"
        )
    }
}
