//! Idle connections: how much memory each takes.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, TcpStream};

use anyhow::{Context, Result, bail};
use shoal_base::PeerId;
use shoal_load::info_hash;
use shoal_testkit::client;

use crate::load::Transport;
use crate::probe::Endpoint;

/// Connections come from this many addresses in turn, because a tracker may limit the connections of an address.
const SOURCES: u32 = 64;
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// Most attempts to open a connection that times out.
const ATTEMPTS_MAX: usize = 5;

/// Peers in a torrent, if each connection has its own peer.
const PEERS_PER_TORRENT: usize = 50;

/// Descriptors that this process and a tracker need for other purposes.
const OTHER_DESCRIPTORS: u64 = 200;

/// Open connections, each of which has carried one announce.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    connections: Vec<TcpStream>,
}

impl Idle {
    /// Opens another connection and announces on it. The torrents are those of the load with this seed.
    pub(crate) fn add(&mut self, endpoint: &Endpoint, transport: Transport, seed: u64) -> Result<()> {
        let number = self.connections.len();
        // A busy machine may cause a timeout, and the next attempt may succeed.
        let is_timeout = |error: &anyhow::Error| error.downcast_ref().is_some_and(client::is_timeout);
        let mut attempts = 1;
        let announced = loop {
            let announced = announce(endpoint, transport, seed, number);
            if attempts == ATTEMPTS_MAX || !announced.as_ref().is_err_and(is_timeout) {
                break announced;
            }
            attempts += 1;
        };
        let (refusal, connection) = announced.with_context(|| format!("connection {} failed", number + 1))?;
        if let Some(reason) = refusal {
            bail!("connection {}: the tracker refused: {reason}", number + 1);
        }
        self.connections.push(connection);
        Ok(())
    }

    pub(crate) fn opened(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of connections that the tracker has not closed.
    pub(crate) fn still_open(&self) -> usize {
        self.connections.iter().filter(|connection| is_open(connection)).count()
    }
}

/// Opens connection `number` and announces on it. All connections of HTTP announce one peer, so that the swarms do not
/// grow. Each WebSocket announces its own, since a peer belongs to one connection. Returns why the tracker refuses.
fn announce(
    endpoint: &Endpoint,
    transport: Transport,
    seed: u64,
    number: usize,
) -> Result<(Option<String>, TcpStream)> {
    let source = u32::try_from(number).unwrap_or(0) % SOURCES;
    let source = Some(IpAddr::from(Ipv4Addr::from(u32::from(FIRST_SOURCE) + source)));
    if let Transport::Udp | Transport::Http(_) = transport {
        return endpoint.announce_http(source, info_hash(seed, 0), "started");
    }
    let torrent = u32::try_from(number / PEERS_PER_TORRENT).unwrap_or(0);
    let mut peer_id = PeerId(*b"-SL0001-000000000000");
    peer_id.0[12..].copy_from_slice(format!("{:08}", number % 100_000_000).as_bytes());
    endpoint.announce_ws(source, info_hash(seed, torrent), peer_id)
}

/// Returns whether a connection is open. Unsolicited input, such as TLS tickets, does not close it.
fn is_open(mut connection: &TcpStream) -> bool {
    if connection.set_nonblocking(true).is_err() {
        return false;
    }
    let mut piece = [0; 4096];
    loop {
        match connection.read(&mut piece) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Returns the most connections that this process and its tracker can have with this limit on open files.
pub fn connections_max(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::load::HttpTransport;

    const HTTP: Transport =
        Transport::Http(HttpTransport { tls: false, keep_alive: true, resumption: false });

    #[test]
    fn connections_that_the_tracker_closes_do_not_count() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = Endpoint { tracker: listener.local_addr().unwrap(), tls: None };
        let tracker = thread::spawn(move || {
            let serve = |_| {
                let (mut connection, from) = listener.accept().unwrap();
                let _ = connection.read(&mut [0; 1024]).unwrap();
                connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nde").unwrap();
                (connection, from.ip())
            };
            let mut all: Vec<_> = (0..3).map(serve).collect();
            // Unsolicited input does not end a connection.
            all[0].0.write_all(b"psst").unwrap();
            all.remove(1);
            all
        });
        let mut idle = Idle::default();
        (0..3).for_each(|_| idle.add(&endpoint, HTTP, 1).unwrap());
        let sources = tracker.join().unwrap();
        assert_eq!(idle.still_open(), 2);
        assert_ne!(sources[0].1, sources[1].1, "they come from several addresses");
    }

    #[test]
    fn a_refusal_has_a_reason() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = Endpoint { tracker: listener.local_addr().unwrap(), tls: None };
        let tracker = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 1024]).unwrap();
            connection.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let message = Idle::default().add(&endpoint, HTTP, 1).unwrap_err().to_string();
        tracker.join().unwrap();
        assert!(message.contains("connection 1") && message.contains("503"), "{message}");
    }

    #[test]
    fn descriptors_leave_room_for_the_rest() {
        assert_eq!(connections_max(20_000), 19_800);
        assert_eq!(connections_max(100), 0);
    }
}
