//! Ports of the loopback address for the trackers.
//!
//! Over TCP a port stays taken for a minute after its tracker has ended, where the tracker was the one to close
//! connections (TIME-WAIT). Most trackers bind all the same (`SO_REUSEADDR`), but not all: so each run gets a port of its
//! own unless the user names one.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use rustix::net::{AddressFamily, SocketType, bind, socket};

const ATTEMPTS_MAX: usize = 64;

/// Whether nobody listens on this port, neither by UDP nor by TCP. Whoever did would be measured in place of the
/// tracker.
///
/// # Errors
/// Where somebody does.
pub(crate) fn check(port: u16) -> io::Result<()> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(())
}

/// A port that neither UDP nor TCP has in use, nor had a moment ago.
///
/// # Errors
/// Where none is found.
pub(crate) fn free() -> io::Result<u16> {
    for _ in 0..ATTEMPTS_MAX {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = udp.local_addr()?.port();
        if is_unused(port)? {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free for both UDP and TCP"))
}

/// Unlike a listener of the standard library, this one does not overlook connections in TIME-WAIT.
fn is_unused(port: u16) -> io::Result<bool> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    Ok(bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_port_with_a_listener_is_told() {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = tcp.local_addr().unwrap().port();
        assert_eq!(check(port).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(check(udp.local_addr().unwrap().port()).is_err());
        check(free().unwrap()).unwrap();
    }

    #[test]
    fn a_port_in_time_wait_is_not_free_and_not_taken() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        // The side that closes first is the one that waits.
        drop(listener.accept().unwrap());
        client.read_to_end(&mut Vec::new()).unwrap();
        drop((client, listener));
        assert!(!is_unused(address.port()).unwrap());
        check(address.port()).unwrap();
    }
}
