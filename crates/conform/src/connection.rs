//! A connection to a tracker, over TCP or TLS, that writes and reads bytes. It does not interpret them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::case::{Checked, Unmet, ensure};
use crate::certificate::AnyCertificate;
use crate::context::Context;
use crate::deadline::{Deadline, TimedSocket};

pub(crate) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    deadline: Deadline,
    /// The time after which an unfinished write fails.
    write_timeout: Duration,
    pub(crate) unread: Vec<u8>,
    /// Whether the tracker has closed its side.
    pub(crate) has_ended: bool,
}

impl Connection {
    /// Connects to `tracker` from `source`, or from an address that the kernel chooses.
    pub(crate) fn open(
        context: &Context<'_>,
        tracker: SocketAddr,
        source: Option<IpAddr>,
    ) -> io::Result<Self> {
        let (target, deadline) = (context.target, context.deadline);
        let timeout = target.timing.reply * 3;
        // The kernel finds a free port much faster when it connects than when it binds.
        let socket = match source.filter(|&source| usual_source(tracker).ok() != Some(source)) {
            None => TcpStream::connect_timeout(&tracker, timeout)?,
            Some(source) => connect_from(source, tracker, timeout)?,
        };
        // A case that splits a request relies on separate segments.
        socket.set_nodelay(true)?;
        let tls = if target.scheme.is_tls() {
            let mut socket = TimedSocket { socket: &socket, deadline: deadline.within(timeout) };
            let name = ServerName::try_from(name(&target.host).to_owned())
                .unwrap_or_else(|_| ServerName::IpAddress(target.address.ip().into()));
            let mut tls =
                ClientConnection::new(Arc::clone(&ANY_CERTIFICATE), name).map_err(io::Error::other)?;
            // The handshake ends here, so that a tracker without TLS is detected now and not in the first case.
            while tls.is_handshaking() {
                tls.complete_io(&mut socket)?;
            }
            Some(Box::new(tls))
        } else {
            None
        };
        Ok(Self { socket, tls, deadline, write_timeout: timeout, unread: Vec::new(), has_ended: false })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Writes all bytes, in one segment as far as the kernel permits.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut socket =
            TimedSocket { socket: &self.socket, deadline: self.deadline.within(self.write_timeout) };
        match &mut self.tls {
            None => socket.write_all(bytes),
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut socket);
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Closes the sending side; the connection can still be read. Over TLS this sends a close_notify (RFC 8446, 6.1).
    pub(crate) fn close_write(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            let mut socket =
                TimedSocket { socket: &self.socket, deadline: self.deadline.within(self.write_timeout) };
            tls.send_close_notify();
            while tls.wants_write() {
                tls.write_tls(&mut socket)?;
            }
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Waits up to `timeout` for bytes, or the end, of a connection that carries `what`. Returns whether either came.
    pub(crate) fn wait(&mut self, timeout: Duration, what: &str) -> Checked<bool> {
        if self.has_ended {
            return Ok(false);
        }
        let limit = self.deadline.bound(timeout)?;
        let deadline = self.deadline.within(limit.max(Duration::from_millis(1)));
        let mut socket = TimedSocket { socket: &self.socket, deadline };
        let mut buffer = [0; 16_384];
        let read = match &mut self.tls {
            None => socket.read(&mut buffer),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut socket).read(&mut buffer),
        };
        match read {
            Ok(0) => self.has_ended = true,
            Ok(bytes) => self.unread.extend(&buffer[..bytes]),
            Err(error) => match error.kind() {
                // A wait that the deadline cut short says nothing about the time between two bytes.
                ErrorKind::WouldBlock | ErrorKind::TimedOut if limit < timeout => {
                    return Err(self.deadline.passed());
                }
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(false),
                ErrorKind::Interrupted => return self.wait(timeout, what),
                // A peer that closes with unread input resets the connection, and over TLS many peers close without a
                // close_notify.
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                    self.has_ended = true;
                }
                _ => ensure(
                    false,
                    format!("a connection that carries {what}"),
                    format!("the connection fails: {error}"),
                )?,
            },
        }
        Ok(true)
    }
}

/// Checks that the target accepts connections, over TLS if its scheme says so. `scheme` is the scheme without TLS.
pub(crate) fn probe(context: &Context<'_>, scheme: &str) -> Result<(), String> {
    let (target, address) = (context.target, context.target.address);
    let opened = Connection::open(context, address, target.sources.first().copied());
    opened.map(drop).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => format!(
            "nothing listens on TCP {address} (connection refused): start the tracker, or correct the port"
        ),
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            if target.scheme.is_tls() =>
        {
            format!("{address} does not accept TLS ({error}): use {scheme}:// rather than {scheme}s://?")
        }
        _ => format!("no connection to {address}: {error}"),
    })
}

pub(crate) fn connect_error(error: &io::Error, tracker: SocketAddr) -> Unmet {
    if error.kind() == ErrorKind::AddrNotAvailable {
        return Unmet::NotSupported(format!("cannot connect to {tracker} from here: {error}"));
    }
    Unmet::Fail {
        expected: "a tracker that accepts connections".to_owned(),
        seen: format!("no connection to {tracker}: {error}"),
    }
}

/// Returns the source address that the kernel would choose. Connecting a UDP socket determines it without sending.
fn usual_source(tracker: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if tracker.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(tracker)?;
    Ok(socket.local_addr()?.ip())
}

/// Connects from `source`, which the standard library cannot do.
fn connect_from(source: IpAddr, tracker: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if tracker.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    // On Linux this limits connect as well (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    connect(&socket, &tracker)?;
    Ok(socket.into())
}

fn name(host: &str) -> &str {
    let without_port = match host.rsplit_once(':') {
        Some((name, _)) if host.parse::<Ipv6Addr>().is_err() => name,
        _ => host,
    };
    without_port.trim_start_matches('[').trim_end_matches(']')
}

/// A TLS configuration that accepts any certificate, because no rule of the suite concerns its name or issuer.
static ANY_CERTIFICATE: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let mut configuration = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites of the default versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(configuration)
});

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_host_name_has_no_port() {
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
