//! Sockets bound to a source address, with a limit on every wait.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// Connects from `source`, and limits each later read and write to `patience` as well.
pub(crate) fn tcp(source: IpAddr, target: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = unconnected(source, target, patience)?;
    connect(&socket, &target)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The same with a receive buffer of a few KiB, for a client that does not read.
pub(crate) fn tcp_with_small_window(
    source: IpAddr,
    target: SocketAddr,
    patience: Duration,
) -> io::Result<TcpStream> {
    let socket = unconnected(source, target, patience)?;
    set_socket_recv_buffer_size(&socket, 4096)?;
    connect(&socket, &target)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

fn unconnected(source: IpAddr, target: SocketAddr, patience: Duration) -> io::Result<OwnedFd> {
    let socket = socket_with(family(target), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux this limits the connecting as well (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    Ok(socket)
}

/// Makes a close of the connection a reset.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Returns a UDP socket of `source` that talks with `target` alone.
pub(crate) fn udp(source: IpAddr, target: SocketAddr, patience: Duration) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(source, 0))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(patience))?;
    Ok(socket)
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}
