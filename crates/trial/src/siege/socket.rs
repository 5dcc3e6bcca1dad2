//! Sockets that are bound to a source address and have timeouts.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// Connects from `source`. The timeout also applies to each later read and write.
pub(crate) fn tcp(source: IpAddr, target: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = unconnected(source, target, timeout)?;
    connect(&socket, &target)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects with a receive buffer of a few KiB, for a client that does not read.
pub(crate) fn tcp_with_small_window(
    source: IpAddr,
    target: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = unconnected(source, target, timeout)?;
    set_socket_recv_buffer_size(&socket, 4096)?;
    connect(&socket, &target)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(timeout))?;
    Ok(stream)
}

fn unconnected(source: IpAddr, target: SocketAddr, timeout: Duration) -> io::Result<OwnedFd> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux this limits connect as well (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    Ok(socket)
}

/// Makes closing the connection send a reset.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Opens a UDP socket that is bound to `source` and connected to `target`.
pub(crate) fn udp(source: IpAddr, target: SocketAddr, timeout: Duration) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(source, 0))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(timeout))?;
    Ok(socket)
}
