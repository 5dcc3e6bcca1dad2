//! Sockets that this process was given: a service manager has bound them, or has kept them since the last process.
//!
//! Such a socket replaces one that would be bound to the same address. The requests that wait in it are served.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType, getsockname, sockopt};

use crate::stream::{ListenAddress, serves};

/// Sockets that were given to this process.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<InheritedSocket>);

/// A socket that was given to this process.
#[derive(Debug)]
pub struct InheritedSocket {
    /// The name that the giver chose.
    pub name: String,
    /// The use of the socket, and its address.
    pub kind: SocketKind,
    socket: Arc<OwnedFd>,
}

/// The use of a socket, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// UDP.
    Datagrams(SocketAddr),
    /// Connections.
    Connections(ListenAddress),
}

impl InheritedSockets {
    /// Adds a socket. Fails if it is neither a UDP socket nor one that listens for connections.
    pub fn add(&mut self, name: String, socket: OwnedFd) -> io::Result<()> {
        let kind = identify(&socket)?;
        rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        self.0.push(InheritedSocket { name, kind, socket: Arc::new(socket) });
        Ok(())
    }

    /// Removes and returns unused sockets.
    pub fn extract(&mut self, is_unused: impl FnMut(&InheritedSocket) -> bool) -> Vec<InheritedSocket> {
        let (unused, used) = std::mem::take(&mut self.0).into_iter().partition(is_unused);
        self.0 = used;
        unused
    }

    /// Removes and returns the sockets of each address beyond a number.
    pub fn extract_beyond(&mut self, count_max: usize) -> Vec<InheritedSocket> {
        let mut seen: Vec<SocketKind> = Vec::new();
        self.extract(|socket| {
            seen.push(socket.kind.clone());
            seen.iter().filter(|kind| **kind == socket.kind).count() > count_max
        })
    }

    /// Returns a listener for this address, if there is one.
    pub fn listener(&self, address: &ListenAddress) -> Option<Arc<OwnedFd>> {
        self.listeners(address).into_iter().next()
    }

    pub(crate) fn datagrams(&self, wanted: SocketAddr) -> Vec<Arc<OwnedFd>> {
        self.of_one_address(|kind| match kind {
            SocketKind::Datagrams(local) => fits(*local, wanted),
            SocketKind::Connections(_) => false,
        })
    }

    pub(crate) fn listeners(&self, wanted: &ListenAddress) -> Vec<Arc<OwnedFd>> {
        self.of_one_address(|kind| kind.listens_at(wanted))
    }

    fn of_one_address(&self, is_wanted: impl Fn(&SocketKind) -> bool) -> Vec<Arc<OwnedFd>> {
        // Port 0 fits several sockets.
        let Some(first) = self.0.iter().find(|socket| is_wanted(&socket.kind)) else { return Vec::new() };
        let same = self.0.iter().filter(|socket| socket.kind == first.kind);
        same.map(|socket| Arc::clone(&socket.socket)).collect()
    }
}

impl AsFd for InheritedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl SocketKind {
    /// Returns whether this is a UDP socket that can be used for an address.
    pub fn receives_at(&self, wanted: SocketAddr) -> bool {
        matches!(self, Self::Datagrams(local) if fits(*local, wanted))
    }

    /// Returns whether this is a listener that can be used for an address.
    pub fn listens_at(&self, wanted: &ListenAddress) -> bool {
        matches!(self, Self::Connections(local) if serves(local, wanted))
    }
}

impl fmt::Display for SocketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagrams(address) => write!(f, "UDP {address}"),
            Self::Connections(address) => write!(f, "{address}"),
        }
    }
}

/// Returns for each wanted address the place of a socket that is already bound there, if any. Each socket is used once.
pub(crate) fn places<L, W>(locals: &[L], wanted: &[W], is_at: impl Fn(&L, &W) -> bool) -> Vec<Option<usize>> {
    let mut is_used = vec![false; locals.len()];
    let place = |wanted| {
        let place = (0..locals.len()).find(|&place| !is_used[place] && is_at(&locals[place], wanted))?;
        is_used[place] = true;
        Some(place)
    };
    wanted.iter().map(place).collect()
}

/// Returns whether a socket bound to `local` can be used where `wanted` would be bound.
pub(crate) fn fits(local: SocketAddr, wanted: SocketAddr) -> bool {
    local.ip() == wanted.ip() && (wanted.port() == 0 || local.port() == wanted.port())
}

fn identify(socket: &OwnedFd) -> io::Result<SocketKind> {
    let other = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
    let kind = sockopt::socket_type(socket)?;
    let local = getsockname(socket)?;
    let family = local.address_family();
    if family == AddressFamily::INET6 && !sockopt::ipv6_v6only(socket)? {
        // Otherwise, IPv4 clients would appear as IPv6 ones.
        return Err(other("it serves IPv4 as well as IPv6; set BindIPv6Only=ipv6-only in its unit"));
    }
    if kind == SocketType::DGRAM && family != AddressFamily::UNIX {
        return Ok(SocketKind::Datagrams(ip_address(local)?));
    }
    if kind != SocketType::STREAM || !sockopt::socket_acceptconn(socket)? {
        return Err(other("it is neither a UDP socket nor one that listens for connections"));
    }
    Ok(SocketKind::Connections(if family == AddressFamily::UNIX {
        let local = SocketAddrUnix::try_from(local)?;
        let path = local.path().ok_or_else(|| other("it has no path"))?;
        ListenAddress::Unix(PathBuf::from(path.to_string_lossy().into_owned()))
    } else {
        ListenAddress::Tcp(ip_address(local)?)
    }))
}

fn ip_address(address: SocketAddrAny) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(address)
}

/// Lets further sockets of this program be bound to this socket's address.
pub(crate) fn share(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_socket_reuseport(socket, true)
}
