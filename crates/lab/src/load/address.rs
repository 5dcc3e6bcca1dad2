//! The addresses of a tracker, the choice of one of them, and the address of this host towards it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use shoal_wire::udp::{Request, TransactionId};

use crate::terminal;

/// Time to wait for an answer at one of several addresses.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses of a tracker in the order of the resolver, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses(Vec<SocketAddr>);

impl Addresses {
    /// Resolves a HOST:PORT.
    pub(super) fn resolve(host: &str, accepted: &str) -> Result<Self> {
        let addresses = host.to_socket_addrs().map_err(|error| anyhow!("{error}; {accepted}"))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let first = addresses.first().with_context(|| format!("the name has no address; {accepted}"))?;
        ensure!(first.port() != 0, "port 0 is not valid; {accepted}");
        Ok(Self(addresses))
    }

    /// Returns the first address at which the tracker answers over TCP. A single address is returned untried.
    pub(super) fn choose_tcp(&self, source: Option<IpAddr>) -> Result<SocketAddr> {
        self.choose(source, |address| TcpStream::connect_timeout(&address, PROBE_TIMEOUT).map(drop))
    }

    /// Returns the first address at which the tracker answers a connect request (BEP 15). A single address is returned
    /// untried.
    pub(super) fn choose_udp(&self, source: Option<IpAddr>) -> Result<SocketAddr> {
        self.choose(source, |address| {
            let socket = UdpSocket::bind((any(address), 0))?;
            socket.connect(address)?;
            socket.set_read_timeout(Some(PROBE_TIMEOUT))?;
            let mut packet = [0; 64];
            let request = Request::Connect { transaction_id: TransactionId(0x5348_0000) };
            let length = request.encode(&mut packet).map_err(io::Error::other)?;
            socket.send(&packet[..length])?;
            socket.recv(&mut packet).map(drop)
        })
    }

    /// Tries the addresses in turn, those of the family of `source` only, and says which one is used.
    fn choose(
        &self,
        source: Option<IpAddr>,
        try_one: impl Fn(SocketAddr) -> io::Result<()>,
    ) -> Result<SocketAddr> {
        let is_of_family = |address: &SocketAddr| source.is_none_or(|ip| ip.is_ipv4() == address.is_ipv4());
        let suitable: Vec<SocketAddr> = self.0.iter().copied().filter(is_of_family).collect();
        let mut failures = Vec::new();
        match suitable[..] {
            // The session refuses a source of another family, and says so.
            [] => return Ok(self.0[0]),
            [only] => return Ok(only),
            _ => {}
        }
        for address in suitable {
            match try_one(address) {
                Ok(()) => {
                    terminal::note(&format!("shoal-lab: the tracker answers at {address}"));
                    return Ok(address);
                }
                Err(error) => failures.push(format!("{address}: {error}")),
            }
        }
        bail!("the tracker answers at none of its addresses: {}", failures.join("; "))
    }
}

/// Returns the unspecified address of the same family.
const fn any(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Returns the address from which this host would send to `target`.
pub(super) fn source_for(target: SocketAddr) -> Result<IpAddr> {
    let loopback = target.ip().is_loopback();
    match target {
        SocketAddr::V4(_) if loopback => Ok(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) if loopback => Ok(Ipv6Addr::LOCALHOST.into()),
        _ => {
            let route = UdpSocket::bind((any(target), 0)).and_then(|socket| {
                socket.connect(target)?;
                socket.local_addr()
            });
            Ok(route.with_context(|| format!("there is no route to {target}"))?.ip())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    /// Returns an address at which nothing listens.
    fn closed() -> SocketAddr {
        UdpSocket::bind(LOCAL).unwrap().local_addr().unwrap()
    }

    #[test]
    fn the_first_address_that_answers_is_chosen() {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let open = listener.local_addr().unwrap();
        assert_eq!(Addresses(vec![closed(), open, closed()]).choose_tcp(None).unwrap(), open);

        let tracker = UdpSocket::bind(LOCAL).unwrap();
        let open = tracker.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let (length, from) = tracker.recv_from(&mut [0; 64]).unwrap();
            assert_eq!(length, 16);
            tracker.send_to(&[0; 16], from).unwrap();
        });
        assert_eq!(Addresses(vec![closed(), open]).choose_udp(None).unwrap(), open);
        answers.join().unwrap();
    }

    #[test]
    fn a_single_address_is_not_tried() {
        let only = closed();
        assert_eq!(Addresses(vec![only]).choose_tcp(None).unwrap(), only);
        assert_eq!(Addresses(vec![only]).choose_udp(None).unwrap(), only);
    }

    #[test]
    fn the_source_decides_the_family() {
        let (v4, v6) = (closed(), "[::1]:6969".parse().unwrap());
        let both = Addresses(vec![v6, v4]);
        assert_eq!(both.choose_tcp(Some(Ipv4Addr::LOCALHOST.into())).unwrap(), v4);
        assert_eq!(both.choose_udp(Some(Ipv6Addr::LOCALHOST.into())).unwrap(), v6);
        assert_eq!(Addresses(vec![v4]).choose_tcp(Some(Ipv6Addr::LOCALHOST.into())).unwrap(), v4);
    }

    #[test]
    fn an_error_names_all_addresses() {
        let (first, second) = (closed(), closed());
        let error = Addresses(vec![first, second]).choose_tcp(None).unwrap_err().to_string();
        assert!(error.contains(&first.to_string()) && error.contains(&second.to_string()), "{error}");
    }
}
