//! Free ports of the loopback address.
//!
//! A tracker that closes connections first leaves its TCP port in use for a minute (TIME-WAIT). Not every tracker can
//! bind it anyway (`SO_REUSEADDR`), so each run gets its own port unless the user names one.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use rustix::net::{AddressFamily, SocketType, bind, socket};

const ATTEMPTS_MAX: usize = 64;

/// Checks that no program listens on this port over UDP or TCP. It would be measured instead of the tracker.
pub fn check(port: u16) -> io::Result<()> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(())
}

/// Returns a port that neither UDP nor TCP uses, nor has used recently.
pub fn free() -> io::Result<u16> {
    for _ in 0..ATTEMPTS_MAX {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = udp.local_addr()?.port();
        if is_unused(port)? {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free for both UDP and TCP"))
}

/// Returns whether the TCP port is unused. Unlike a listener of the standard library, this detects TIME-WAIT.
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
    fn a_port_with_a_listener_is_refused() {
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
        // The side that closes first enters TIME-WAIT.
        drop(listener.accept().unwrap());
        client.read_to_end(&mut Vec::new()).unwrap();
        drop((client, listener));
        assert!(!is_unused(address.port()).unwrap());
        check(address.port()).unwrap();
    }
}
