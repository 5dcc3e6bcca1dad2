//! Opens the listeners of all workers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socket_with, sockopt};

use super::socket_file::SocketFile;
use super::{Budget, SourceLimiter, SourceLimits, Sources, StreamCounters};
use crate::socket::options;

/// Connections that may wait to be accepted. The kernel caps it at the sysctl net.core.somaxconn.
pub(super) const BACKLOG: i32 = 4096;

/// Seconds for which the kernel keeps a connection to itself until its first bytes arrive (`tcp(7)`,
/// TCP_DEFER_ACCEPT). In all these protocols the client speaks first, so a connection that is accepted has something
/// to be answered at once, and one on which nobody speaks costs the worker nothing.
const DEFER_ACCEPT_S: i32 = 5;

/// Bytes that the kernel takes for a connection before it can send them. Without a limit it takes some MiB for each peer
/// that does not read, and from memory that all connections of the host share (`tcp(7)`, tcp_mem). What is on its way
/// does not count, so that nobody is slowed down who reads.
const KERNEL_UNSENT_BYTES_MAX: i32 = 256 * 1024;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP. With port 0 the kernel chooses one, the same for all workers.
    Tcp(SocketAddr),
    /// A Unix socket, whose file is made anew.
    Unix(PathBuf),
}

/// What one worker accepts connections from, and where it counts them.
#[derive(Debug)]
pub struct StreamListeners {
    pub(super) listeners: Vec<StreamListener>,
    pub(super) sources: Arc<Sources>,
    pub(super) counters: Arc<StreamCounters>,
    pub(super) budget: Arc<Budget>,
}

/// One listening socket.
#[derive(Debug)]
pub(super) struct StreamListener {
    /// Removes the file of a Unix socket with its last worker. It stands first, because it has to go before the socket.
    _file: Option<Arc<SocketFile>>,
    pub(super) socket: Arc<OwnedFd>,
    local: ListenAddress,
}

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", explain(address, doing, source))]
pub struct ListenError {
    /// Which one.
    pub address: ListenAddress,
    /// The call or option that failed.
    doing: &'static str,
    /// How it failed.
    source: io::Error,
}

impl StreamListener {
    pub(super) const fn is_tcp(&self) -> bool {
        matches!(self.local, ListenAddress::Tcp(_))
    }
}

impl StreamListeners {
    /// Opens the listeners of all workers. On TCP each worker has a socket of its own, among which the kernel spreads
    /// the connections (`SO_REUSEPORT`), and the first is bound alone, so that a port that anyone else uses is an error;
    /// of a Unix socket there is one, which all workers accept from.
    ///
    /// # Errors
    /// Where an address cannot be listened on.
    pub fn bind(addresses: &[ListenAddress], workers: NonZeroUsize) -> Result<Vec<Self>, ListenError> {
        let sources = Arc::<Sources>::default();
        let empty = || Self {
            listeners: Vec::new(),
            sources: Arc::clone(&sources),
            counters: Arc::default(),
            budget: Arc::default(),
        };
        let mut sets: Vec<_> = (0..workers.get()).map(|_| empty()).collect();
        for address in addresses {
            let group = match address {
                ListenAddress::Tcp(addr) => bind_tcp_group(*addr, workers)?,
                ListenAddress::Unix(path) => bind_unix_group(path, workers)?,
            };
            for (set, listener) in sets.iter_mut().zip(group) {
                set.listeners.push(listener);
            }
        }
        Ok(sets)
    }

    /// Where the listeners are bound, in the order of the settings; ports are the real ones.
    pub fn local_addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        self.listeners.iter().map(|listener| &listener.local)
    }

    /// By which the service of the worker asks whether a source may have one connection more.
    #[must_use]
    pub fn source_limiter(&self, limits: SourceLimits) -> SourceLimiter {
        SourceLimiter::new(Arc::clone(&self.sources), limits, self.counters())
    }

    /// What the worker counts.
    #[must_use]
    pub fn counters(&self) -> Arc<StreamCounters> {
        Arc::clone(&self.counters)
    }

    /// What the worker's connections may hold, and do.
    #[must_use]
    pub fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }
}

fn bind_tcp_group(addr: SocketAddr, workers: NonZeroUsize) -> Result<Vec<StreamListener>, ListenError> {
    let first = open_tcp(addr)?;
    let at = |doing| ListenError::at(ListenAddress::Tcp(addr), doing);
    rustix::net::bind(&first, &addr).map_err(at("bind"))?;
    // Only now others may join, all of this program: see `crate::Sockets::bind`.
    sockopt::set_socket_reuseport(&first, true).map_err(at("SO_REUSEPORT"))?;
    let local = getsockname(&first).and_then(SocketAddr::try_from).map_err(at("getsockname"))?;
    let mut sockets = vec![first];
    for _ in 1..workers.get() {
        let next = open_tcp(addr)?;
        sockopt::set_socket_reuseport(&next, true).map_err(at("SO_REUSEPORT"))?;
        rustix::net::bind(&next, &local).map_err(at("bind"))?;
        sockets.push(next);
    }
    for socket in &sockets {
        rustix::net::listen(socket, BACKLOG).map_err(at("listen"))?;
    }
    let listener =
        |socket| StreamListener { _file: None, socket: Arc::new(socket), local: ListenAddress::Tcp(local) };
    Ok(sockets.into_iter().map(listener).collect())
}

/// A socket with the options that accepted connections inherit.
fn open_tcp(addr: SocketAddr) -> Result<OwnedFd, ListenError> {
    let at = |doing| ListenError::at(ListenAddress::Tcp(addr), doing);
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(at("socket"))?;
    if addr.is_ipv6() {
        // IPv4 has listeners of its own.
        sockopt::set_ipv6_v6only(&socket, true).map_err(at("IPV6_V6ONLY"))?;
    }
    // A restarted tracker does not wait for the connections of the last one to be forgotten.
    sockopt::set_socket_reuseaddr(&socket, true).map_err(at("SO_REUSEADDR"))?;
    // An answer is handed over whole, so there is nothing to wait for.
    sockopt::set_tcp_nodelay(&socket, true).map_err(at("TCP_NODELAY"))?;
    options::defer_accept(&socket, DEFER_ACCEPT_S).map_err(at("TCP_DEFER_ACCEPT"))?;
    options::limit_unsent(&socket, KERNEL_UNSENT_BYTES_MAX).map_err(at("TCP_NOTSENT_LOWAT"))?;
    Ok(socket)
}

fn bind_unix_group(path: &Path, workers: NonZeroUsize) -> Result<Vec<StreamListener>, ListenError> {
    let at = |doing| ListenError::at(ListenAddress::Unix(path.to_owned()), doing);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(at("socket"))?;
    let file = SocketFile::bind(&socket, path).map_err(at("bind"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(at("listen"))?;
    let (file, socket) = (Arc::new(file), Arc::new(socket));
    let listener = |_| StreamListener {
        _file: Some(Arc::clone(&file)),
        socket: Arc::clone(&socket),
        local: ListenAddress::Unix(path.to_owned()),
    };
    Ok((0..workers.get()).map(listener).collect())
}

impl ListenError {
    /// Which kind of fault it was.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether this host lacks the address family altogether, see [`crate::BindError::is_family_missing`].
    #[must_use]
    pub fn is_family_missing(&self) -> bool {
        let ListenAddress::Tcp(addr) = self.address else { return false };
        match Errno::from_io_error(&self.source) {
            Some(Errno::AFNOSUPPORT) => true,
            Some(Errno::ADDRNOTAVAIL) => addr.ip().is_unspecified(),
            _ => false,
        }
    }

    fn at(address: ListenAddress, doing: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { address, doing, source: errno.into() }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn explain(address: &ListenAddress, doing: &str, source: &io::Error) -> String {
    match (address, Errno::from_io_error(source)) {
        (ListenAddress::Tcp(addr), Some(errno)) => crate::socket::explain(*addr, doing, errno),
        (ListenAddress::Unix(_), Some(Errno::ADDRINUSE)) => {
            "the file is there already, and either another program listens on it or it is no socket"
                .to_owned()
        }
        (ListenAddress::Unix(_), Some(Errno::NAMETOOLONG)) => {
            "a path of a Unix socket has at most 107 bytes".to_owned()
        }
        _ => format!("{doing}: {source}"),
    }
}
