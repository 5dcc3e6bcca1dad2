//! Opens the sockets of a client.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socket_with, sockopt};

use super::{BoundSocket, SOCKETS_MAX};

/// The settings of a client's sockets.
#[derive(Clone, Copy, Debug)]
pub struct ClientSettings<'s> {
    /// The address of each socket. With port 0 the kernel chooses a port.
    pub locals: &'s [SocketAddr],
    /// The server that all sockets are connected to.
    pub server: SocketAddr,
    /// As in `SO_RCVBUF`; the kernel may grant less.
    pub recv_buffer_bytes: usize,
    /// As in `SO_SNDBUF`; the kernel may grant less.
    pub send_buffer_bytes: usize,
}

/// The error that the sockets of a client could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The client needs more sockets than a worker can have.
    #[error("{0} sockets of one worker are too many: at most {SOCKETS_MAX}")]
    TooMany(usize),
    /// The event descriptor that wakes a worker could not be created.
    #[error("cannot create the event descriptor of a worker: {0}")]
    Waker(String),
    /// A socket could not be opened.
    #[error("cannot open a UDP socket from {local} to {server}: {}", explain(*local, doing, *errno))]
    Socket {
        /// The address to bind it to.
        local: SocketAddr,
        /// The address to connect it to.
        server: SocketAddr,
        /// The call or option that failed.
        doing: &'static str,
        /// The error of the call.
        errno: Errno,
    },
}

pub(super) fn open(local: SocketAddr, settings: &ClientSettings<'_>) -> Result<BoundSocket, ConnectError> {
    let server = settings.server;
    let at = |doing| move |errno| ConnectError::Socket { local, server, doing, errno };
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd =
        socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP)).map_err(at("socket"))?;
    sockopt::set_socket_recv_buffer_size(&socket, settings.recv_buffer_bytes).map_err(at("SO_RCVBUF"))?;
    sockopt::set_socket_send_buffer_size(&socket, settings.send_buffer_bytes).map_err(at("SO_SNDBUF"))?;
    rustix::net::bind(&socket, &local).map_err(at("bind"))?;
    rustix::net::connect(&socket, &server).map_err(at("connect"))?;
    let local = getsockname(&socket).map_err(at("getsockname"))?;
    let local = SocketAddr::try_from(local).map_err(at("getsockname"))?;
    Ok(BoundSocket { socket: Arc::new(socket), local, shortfalls: Vec::new(), is_inherited: false })
}

fn explain(local: SocketAddr, doing: &str, errno: Errno) -> String {
    match errno {
        Errno::MFILE | Errno::NFILE => {
            "there are no more file descriptors: raise the limit (ulimit -n), or ask for fewer sockets"
                .to_owned()
        }
        Errno::ADDRINUSE | Errno::AGAIN => format!("{} has no free port", local.ip()),
        Errno::ADDRNOTAVAIL => format!("this host does not have the address {}", local.ip()),
        Errno::NETUNREACH | Errno::HOSTUNREACH => "no route leads there".to_owned(),
        Errno::INVAL if local.ip().is_loopback() => {
            "a loopback address reaches this host only: choose another source address".to_owned()
        }
        _ => format!("{doing}: {errno}"),
    }
}
