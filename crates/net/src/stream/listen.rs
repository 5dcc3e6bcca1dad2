//! Opens the listeners of all workers.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socket_with, sockopt};
use shoal_base::transport::stream::ListenAddress;

use super::socket_file::SocketFile;
use super::{Budget, SourceLimiter, SourceLimits, Sources, StreamCounters};
use crate::inherited::{self, InheritedSockets, fits, places};
use crate::socket::options;

/// Maximum number of connections that wait to be accepted. The kernel caps it at the sysctl net.core.somaxconn.
pub const BACKLOG: i32 = 4096;

/// Seconds for which the kernel retains a connection until its first bytes arrive (`tcp(7)`, TCP_DEFER_ACCEPT). The
/// client sends first in all these protocols, so an accepted connection has input at once, and a connection without
/// input costs the worker nothing.
const DEFER_ACCEPT_S: i32 = 5;

/// Maximum number of bytes that the kernel buffers for a connection before it can send them. Without a limit it takes
/// some MiB for each peer that does not read, from memory that all connections of the host share (`tcp(7)`, tcp_mem).
/// Bytes in flight do not count, so peers that read are not slowed down.
const KERNEL_UNSENT_BYTES_MAX: i32 = 256 * 1024;

/// The listeners of one worker, and the counters and limits of its connections. A listener is closed with the last copy.
#[derive(Clone, Debug)]
pub struct StreamListeners {
    pub(super) listeners: Vec<StreamListener>,
    pub(super) sources: Arc<Sources>,
    pub(super) counters: Arc<StreamCounters>,
    pub(super) budget: Arc<Budget>,
}

#[derive(Clone, Debug)]
pub(super) struct StreamListener {
    /// Removes the file of a Unix socket with its last worker. This field comes first, because the file has to be
    /// removed before the socket closes.
    file: Option<Arc<SocketFile>>,
    pub(super) socket: Arc<OwnedFd>,
    local: ListenAddress,
    /// Whether this process was given the socket.
    is_inherited: bool,
    /// Whether several workers accept from this socket.
    pub(super) is_shared: bool,
}

/// The error that an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", explain(address, doing, source))]
pub struct ListenError {
    /// The address.
    pub address: ListenAddress,
    /// The call or option that failed.
    doing: &'static str,
    source: io::Error,
}

impl StreamListener {
    pub(super) const fn is_tcp(&self) -> bool {
        matches!(self.local, ListenAddress::Tcp(_))
    }
}

impl StreamListeners {
    /// Opens the listeners of all workers. For TCP, each worker has its own socket, among which the kernel distributes
    /// the connections (`SO_REUSEPORT`). The first is bound alone, so that a port in use by another program is an
    /// error. A Unix socket has one listener, from which all workers accept. Fails if an address cannot be listened on.
    pub fn bind(addresses: &[ListenAddress], workers: NonZeroUsize) -> Result<Vec<Self>, ListenError> {
        Self::bind_or_inherit(addresses, workers, &InheritedSockets::default())
    }

    /// Like [`bind`](Self::bind), but uses the given sockets with fitting addresses.
    pub fn bind_or_inherit(
        addresses: &[ListenAddress],
        workers: NonZeroUsize,
        inherited: &InheritedSockets,
    ) -> Result<Vec<Self>, ListenError> {
        let sources = Arc::<Sources>::default();
        let empty = || Self {
            listeners: Vec::new(),
            sources: Arc::clone(&sources),
            counters: Arc::default(),
            budget: Arc::default(),
        };
        let mut sets: Vec<_> = (0..workers.get()).map(|_| empty()).collect();
        for address in addresses {
            for (set, listener) in sets.iter_mut().zip(open_group(address, workers, inherited)?) {
                set.listeners.push(listener);
            }
        }
        Ok(sets)
    }

    /// Returns the listeners of running workers for other addresses. Listeners of remaining addresses are the same, and
    /// new ones come from the `given` sockets. The counters and limits come from `workers`. Fails as
    /// [`bind`](Self::bind) does.
    pub fn change(
        workers: &[Self],
        addresses: &[ListenAddress],
        given: &InheritedSockets,
    ) -> Result<Vec<Self>, ListenError> {
        let Some(count) = NonZeroUsize::new(workers.len()) else { return Ok(Vec::new()) };
        let mut changed: Vec<_> = workers.iter().map(Self::without_addresses).collect();
        for (address, place) in addresses.iter().zip(Self::places(workers, addresses)) {
            let group = match place {
                Some(place) => workers.iter().map(|worker| worker.listeners[place].clone()).collect(),
                None => own_group(open_group(address, count, given)?)?,
            };
            for (worker, listener) in changed.iter_mut().zip(group) {
                worker.listeners.push(listener);
            }
        }
        Ok(changed)
    }

    /// Returns the addresses of the listeners that [`change`](Self::change) needs.
    pub fn missing<'a>(
        workers: &[Self],
        addresses: &'a [ListenAddress],
    ) -> impl Iterator<Item = &'a ListenAddress> {
        let places = Self::places(workers, addresses);
        addresses.iter().zip(places).filter(|(_, place)| place.is_none()).map(|(address, _)| address)
    }

    fn places(workers: &[Self], addresses: &[ListenAddress]) -> Vec<Option<usize>> {
        let locals: Vec<_> = workers.first().map(Self::local_addresses).into_iter().flatten().collect();
        places(&locals, addresses, |local, wanted| serves(local, wanted))
    }

    /// Leaves the files of Unix sockets to another process, which uses the sockets after this one.
    pub fn leave_files(&self) {
        self.listeners.iter().filter_map(|listener| listener.file.as_ref()).for_each(|file| file.leave());
    }

    fn without_addresses(&self) -> Self {
        Self {
            listeners: Vec::new(),
            sources: Arc::clone(&self.sources),
            counters: self.counters(),
            budget: self.budget(),
        }
    }

    pub(super) fn contains(&self, listener: &StreamListener) -> bool {
        self.listeners.iter().any(|other| Arc::ptr_eq(&other.socket, &listener.socket))
    }

    /// Opens the listeners of one address for another process: one for each worker, or a single one for a Unix socket,
    /// whose file stays. The other process uses them as [`InheritedSockets`]. Fails as [`bind`](Self::bind) does.
    pub fn bind_for_others(
        address: &ListenAddress,
        workers: NonZeroUsize,
    ) -> Result<Vec<OwnedFd>, ListenError> {
        match address {
            ListenAddress::Tcp(address) => bind_tcp(*address, workers).map(|(sockets, _)| sockets),
            ListenAddress::Unix(path) => {
                let (socket, file) = bind_unix(path)?;
                file.leave();
                Ok(vec![socket])
            }
        }
    }

    /// Returns the addresses of the listeners, in the order of the settings, with the actual ports.
    pub fn local_addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        self.listeners.iter().map(|listener| &listener.local)
    }

    /// Returns the listeners that this process has bound itself. Workers share listeners of Unix sockets.
    pub fn own_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let own = self.listeners.iter().filter(|listener| !listener.is_inherited);
        own.map(|listener| listener.socket.as_fd())
    }

    /// Returns all listeners, in the order of the settings.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd())
    }

    /// Returns the limiter that the worker's service asks whether a source may have one more connection.
    pub fn source_limiter(&self, limits: SourceLimits) -> SourceLimiter {
        SourceLimiter::new(Arc::clone(&self.sources), limits, self.counters())
    }

    /// Returns the counters of the worker's connections.
    pub fn counters(&self) -> Arc<StreamCounters> {
        Arc::clone(&self.counters)
    }

    /// Returns the memory budget of the worker's connections.
    pub fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }
}

fn open_group(
    address: &ListenAddress,
    workers: NonZeroUsize,
    inherited: &InheritedSockets,
) -> Result<Vec<StreamListener>, ListenError> {
    let adopted = inherited.listeners(address);
    match address {
        _ if !adopted.is_empty() => adopt_group(address, workers, adopted),
        ListenAddress::Tcp(addr) => bind_tcp_group(*addr, workers),
        ListenAddress::Unix(path) => bind_unix_group(path, workers),
    }
}

/// Returns listeners that another process has just bound for this one, as its own. The file of a Unix socket is removed
/// with the last of them.
fn own_group(mut group: Vec<StreamListener>) -> Result<Vec<StreamListener>, ListenError> {
    if let Some(StreamListener { local: address @ ListenAddress::Unix(path), file: None, .. }) = group.first()
    {
        let file = SocketFile::of(path).map_err(ListenError::at(address.clone(), "stat"))?;
        let file = Arc::new(file);
        group.iter_mut().for_each(|listener| listener.file = Some(Arc::clone(&file)));
    }
    group.iter_mut().for_each(|listener| listener.is_inherited = false);
    Ok(group)
}

fn bind_tcp_group(addr: SocketAddr, workers: NonZeroUsize) -> Result<Vec<StreamListener>, ListenError> {
    let (sockets, local) = bind_tcp(addr, workers)?;
    let listener = |socket| StreamListener {
        file: None,
        socket: Arc::new(socket),
        local: ListenAddress::Tcp(local),
        is_inherited: false,
        is_shared: false,
    };
    Ok(sockets.into_iter().map(listener).collect())
}

/// Returns a listener for each worker, and their address with the actual port.
fn bind_tcp(addr: SocketAddr, workers: NonZeroUsize) -> Result<(Vec<OwnedFd>, SocketAddr), ListenError> {
    let first = open_tcp(addr)?;
    let at = |doing| ListenError::at(ListenAddress::Tcp(addr), doing);
    rustix::net::bind(&first, &addr).map_err(at("bind"))?;
    // Only now may other sockets join, all of this program: see `crate::Sockets::bind`.
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
    Ok((sockets, local))
}

/// Uses the given listeners. If there are fewer than workers, and the kernel allows no more at this address, workers
/// share listeners.
fn adopt_group(
    address: &ListenAddress,
    workers: NonZeroUsize,
    adopted: Vec<Arc<OwnedFd>>,
) -> Result<Vec<StreamListener>, ListenError> {
    let at = |doing| ListenError::at(address.clone(), doing);
    let mut sockets: Vec<Arc<OwnedFd>> = adopted.into_iter().take(workers.get()).collect();
    let count = sockets.len();
    let mut local = address.clone();
    for socket in &sockets {
        if let ListenAddress::Tcp(_) = address {
            prepare_tcp(socket).map_err(|(doing, errno)| at(doing)(errno))?;
            inherited::share(socket).map_err(at("SO_REUSEPORT"))?;
            let bound = getsockname(socket).and_then(SocketAddr::try_from).map_err(at("getsockname"))?;
            local = ListenAddress::Tcp(bound);
        }
        match rustix::net::listen(socket, BACKLOG) {
            // A sandbox forbids this. The socket listens already, with a backlog that the giver has chosen.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(at("listen")(errno)),
        }
    }
    if let ListenAddress::Tcp(local) = local {
        while sockets.len() < workers.get() {
            let next = open_tcp(local)?;
            inherited::share(&next).map_err(at("SO_REUSEPORT"))?;
            if rustix::net::bind(&next, &local).is_err() {
                break;
            }
            rustix::net::listen(&next, BACKLOG).map_err(at("listen"))?;
            sockets.push(Arc::new(next));
        }
    }
    let is_shared = sockets.len() < workers.get();
    let listener = |worker: usize| StreamListener {
        file: None,
        socket: Arc::clone(&sockets[worker % sockets.len()]),
        local: local.clone(),
        is_inherited: worker % sockets.len() < count,
        is_shared,
    };
    Ok((0..workers.get()).map(listener).collect())
}

/// Creates a socket with the options that accepted connections inherit.
fn open_tcp(addr: SocketAddr) -> Result<OwnedFd, ListenError> {
    let at = |doing| ListenError::at(ListenAddress::Tcp(addr), doing);
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(at("socket"))?;
    if addr.is_ipv6() {
        // IPv4 has its own listeners.
        sockopt::set_ipv6_v6only(&socket, true).map_err(at("IPV6_V6ONLY"))?;
    }
    // A restarted tracker does not wait until the kernel has forgotten the previous one's connections.
    sockopt::set_socket_reuseaddr(&socket, true).map_err(at("SO_REUSEADDR"))?;
    prepare_tcp(&socket).map_err(|(doing, errno)| at(doing)(errno))?;
    Ok(socket)
}

/// Sets the options that can still be set after the socket was bound. Returns the option that failed.
fn prepare_tcp(socket: &OwnedFd) -> Result<(), (&'static str, Errno)> {
    let at = |doing| move |errno| (doing, errno);
    // A reply is handed over whole, so there is nothing to wait for.
    sockopt::set_tcp_nodelay(socket, true).map_err(at("TCP_NODELAY"))?;
    options::defer_accept(socket, DEFER_ACCEPT_S).map_err(at("TCP_DEFER_ACCEPT"))?;
    options::limit_unsent(socket, KERNEL_UNSENT_BYTES_MAX).map_err(at("TCP_NOTSENT_LOWAT"))
}

fn bind_unix_group(path: &Path, workers: NonZeroUsize) -> Result<Vec<StreamListener>, ListenError> {
    let (socket, file) = bind_unix(path)?;
    let (file, socket) = (Arc::new(file), Arc::new(socket));
    let listener = |_| StreamListener {
        file: Some(Arc::clone(&file)),
        socket: Arc::clone(&socket),
        local: ListenAddress::Unix(path.to_owned()),
        is_inherited: false,
        is_shared: workers.get() > 1,
    };
    Ok((0..workers.get()).map(listener).collect())
}

fn bind_unix(path: &Path) -> Result<(OwnedFd, SocketFile), ListenError> {
    let at = |doing| ListenError::at(ListenAddress::Unix(path.to_owned()), doing);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(at("socket"))?;
    let file = SocketFile::bind(&socket, path).map_err(at("bind"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(at("listen"))?;
    Ok((socket, file))
}

/// Returns whether a listener that is bound at `local` can be used where `wanted` would be bound.
pub(crate) fn serves(local: &ListenAddress, wanted: &ListenAddress) -> bool {
    match (local, wanted) {
        (ListenAddress::Tcp(local), ListenAddress::Tcp(wanted)) => fits(*local, *wanted),
        _ => local == wanted,
    }
}

impl ListenError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns whether this host has no addresses of the family at all, see [`crate::BindError::is_family_missing`].
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

fn explain(address: &ListenAddress, doing: &str, source: &io::Error) -> String {
    match (address, Errno::from_io_error(source)) {
        (ListenAddress::Tcp(addr), Some(errno)) => crate::socket::explain(*addr, doing, errno),
        (ListenAddress::Unix(_), Some(Errno::ADDRINUSE)) => {
            "the file already exists: another program listens on it, or it is not a socket".to_owned()
        }
        (ListenAddress::Unix(_), Some(Errno::NAMETOOLONG)) => {
            "a path of a Unix socket has at most 107 bytes".to_owned()
        }
        _ => format!("{doing}: {source}"),
    }
}
