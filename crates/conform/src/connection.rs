//! A connection to a tracker, over TCP or TLS: bytes out, bytes in, and an end. Knows nothing of what is said over it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::context::{Context, Target};
use crate::deadline::{Deadline, Timed};
use crate::trust;

/// What came of waiting for bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Bytes(Vec<u8>),
    /// The tracker will send no more.
    End,
    /// Nothing in that time.
    Silence,
}

/// An open connection. Closed on drop.
pub(crate) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// The deadline of the case.
    deadline: Deadline,
    /// The longest time that sending may take.
    send_time_max: Duration,
}

impl Connection {
    /// Connects to `tracker` from `source`, or from where the kernel chooses.
    pub(crate) fn open(
        context: &Context<'_>,
        tracker: SocketAddr,
        source: Option<IpAddr>,
    ) -> io::Result<Self> {
        let (target, deadline) = (context.target, context.deadline);
        let patience = target.timing.reply * 3;
        // The kernel finds a free port much faster when it connects than when it binds.
        let socket = match source.filter(|&source| usual_source(tracker).ok() != Some(source)) {
            None => TcpStream::connect_timeout(&tracker, patience)?,
            Some(source) => connect_from(source, tracker, patience)?,
        };
        // Cases that split a request mean it.
        socket.set_nodelay(true)?;
        let tls = if target.scheme.is_tls() {
            let socket = Timed { socket: &socket, deadline: deadline.within(patience) };
            Some(Box::new(handshake(target, socket)?))
        } else {
            None
        };
        Ok(Self { socket, tls, deadline, send_time_max: patience })
    }

    /// Where it comes from.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends all of it at once, as far as the kernel does so.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut socket = Timed { socket: &self.socket, deadline: self.deadline.within(self.send_time_max) };
        match &mut self.tls {
            None => socket.write_all(bytes),
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut socket);
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Says that nothing more will be sent, and still hears. Over TLS this is a close_notify (RFC 8446, 6.1).
    pub(crate) fn finish_sending(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            let mut socket =
                Timed { socket: &self.socket, deadline: self.deadline.within(self.send_time_max) };
            tls.send_close_notify();
            while tls.wants_write() {
                tls.write_tls(&mut socket)?;
            }
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Waits for bytes.
    pub(crate) fn hear(&mut self, patience: Duration) -> io::Result<Heard> {
        let patience = patience.max(Duration::from_millis(1));
        let mut socket = Timed { socket: &self.socket, deadline: self.deadline.within(patience) };
        let mut buffer = [0; 16_384];
        let read = match &mut self.tls {
            None => socket.read(&mut buffer),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut socket).read(&mut buffer),
        };
        match read {
            Ok(0) => Ok(Heard::End),
            Ok(bytes) => Ok(Heard::Bytes(buffer[..bytes].to_vec())),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Heard::Silence),
                ErrorKind::Interrupted => self.hear(patience),
                // Who closes before it has read all that was sent resets the connection, and over TLS many close
                // without a word.
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                    Ok(Heard::End)
                }
                _ => Err(error),
            },
        }
    }
}

/// Where the kernel would send from. Connecting a UDP socket asks it, and sends nothing.
fn usual_source(tracker: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if tracker.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(tracker)?;
    Ok(socket.local_addr()?.ip())
}

/// The standard library cannot choose where a connection comes from.
fn connect_from(source: IpAddr, tracker: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let family = if tracker.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    // Linux holds connect to it, too (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &tracker)?;
    Ok(socket.into())
}

/// The whole handshake, so that a tracker without TLS shows here and not in the first case.
fn handshake(target: &Target, mut socket: Timed<'_>) -> io::Result<ClientConnection> {
    let name = ServerName::try_from(name(&target.host).to_owned())
        .unwrap_or_else(|_| ServerName::IpAddress(target.address.ip().into()));
    let mut tls = ClientConnection::new(Arc::clone(trust::anybody()), name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(tls)
}

/// The host without its port, and without the brackets of IPv6.
fn name(host: &str) -> &str {
    let without_port = match host.rsplit_once(':') {
        Some((name, _)) if host.parse::<Ipv6Addr>().is_err() => name,
        _ => host,
    };
    without_port.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_name_has_no_port() {
        for (host, expected) in [
            ("a.example:443", "a.example"),
            ("a.example", "a.example"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("::1", "::1"),
        ] {
            assert_eq!(name(host), expected);
        }
    }
}
