//! Clients of a tracker, one for each protocol. They block, for no longer than their timeout.
//!
//! They use the codecs of the tracker. `shoal-conform` has an encoder of its own, and the clients of [`crate::interop`] are real ones.

pub mod http;
#[cfg(feature = "tls")]
pub mod tls;
pub mod udp;
pub mod websocket;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// A connection, plain or over TLS.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// Connects from `source`, or from any address. The timeout also applies to each later read and write.
///
/// # Errors
/// Returns an error if there is no connection in time.
pub fn tcp(
    source: impl Into<Option<IpAddr>>,
    target: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = unconnected(source.into(), target, timeout)?;
    connect(&socket, &target)?;
    set_tcp_nodelay(&socket, true)?;
    Ok(socket.into())
}

/// Connects with a receive buffer of a few KiB, for a client that does not read.
///
/// # Errors
/// Returns an error if there is no connection in time.
pub fn tcp_with_small_window(source: IpAddr, target: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = unconnected(Some(source), target, timeout)?;
    set_socket_recv_buffer_size(&socket, 4096)?;
    connect(&socket, &target)?;
    Ok(socket.into())
}

fn unconnected(source: Option<IpAddr>, target: SocketAddr, timeout: Duration) -> io::Result<OwnedFd> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux the first one limits connect as well (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
    if let Some(source) = source {
        bind(&socket, &SocketAddr::new(source, 0))?;
    }
    Ok(socket)
}

/// Returns whether the error is a timeout.
#[must_use]
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
