//! Connections that stay and do nothing: how much memory each takes.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, ensure};
use shoal_load::info_hash;
use shoal_types::PeerId;

use crate::http::{Client, Event};
use crate::load::Transport;
use crate::ws;

/// Connections come from so many addresses in turn, from this one on, because a tracker may limit those of one address.
const SOURCES: u32 = 64;
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// How often a connection is asked for that is not there in time.
const ATTEMPTS_MAX: usize = 5;

/// Where each connection has a peer of its own, so many of them are in a torrent.
const PEERS_OF_TORRENT: usize = 50;

/// Descriptors that this process and a tracker need besides those of the connections.
const OTHER_DESCRIPTORS: u64 = 200;

/// Open connections, each of which has carried one announce.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    connections: Vec<TcpStream>,
}

impl Idle {
    /// Opens one more and announces on it, in torrents of the load that has this seed.
    ///
    /// # Errors
    /// Where the tracker refuses, or this host has no more.
    pub(crate) fn add(&mut self, client: &Client, transport: Transport, seed: u64) -> Result<()> {
        let number = self.connections.len();
        let step = u32::try_from(number).unwrap_or(0) % SOURCES;
        let local = Ipv4Addr::from(u32::from(FIRST_SOURCE) + step);
        let announce = || match transport {
            Transport::Udp | Transport::Http(_) => over_http(client, local, seed),
            Transport::Ws(_) => over_ws(client, local, seed, number),
        };
        let mut attempts = 1;
        let announced = loop {
            let announced = announce();
            if attempts == ATTEMPTS_MAX || !announced.as_ref().is_err_and(is_late) {
                break announced;
            }
            attempts += 1;
        };
        let (refusal, connection) = announced.with_context(|| format!("connection {} failed", number + 1))?;
        if let Some(words) = refusal {
            ensure!(false, "connection {}: the tracker refused: {words}", number + 1);
        }
        self.connections.push(connection);
        Ok(())
    }

    /// How many were opened.
    pub(crate) fn opened(&self) -> usize {
        self.connections.len()
    }

    /// How many the tracker has not closed.
    pub(crate) fn still_open(&self) -> usize {
        self.connections.iter().filter(|connection| is_open(connection)).count()
    }
}

/// A machine that is busy with something else is late, and then it may be in time the next time.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// All announce the same peer, so that what grows are the connections and not the swarms.
fn over_http(client: &Client, local: Ipv4Addr, seed: u64) -> io::Result<(Option<String>, TcpStream)> {
    let mut connection = client.connect_from(local)?;
    let reply = connection.announce(info_hash(seed, 0), Event::Started)?;
    Ok((reply.refusal(), connection.into_idle()))
}

/// Each announces a peer of its own, since a peer lives on one connection.
fn over_ws(
    client: &Client,
    local: Ipv4Addr,
    seed: u64,
    number: usize,
) -> io::Result<(Option<String>, TcpStream)> {
    let mut connection = ws::Connection::open(client.connect_from(local)?)?;
    let torrent = u32::try_from(number / PEERS_OF_TORRENT).unwrap_or(0);
    let mut peer_id = PeerId(*b"-SL0001-000000000000");
    peer_id.0[12..].copy_from_slice(format!("{:08}", number % 100_000_000).as_bytes());
    let refusal = connection.announce(info_hash(seed, torrent), peer_id, shoal_types::Event::Started)?;
    Ok((refusal, connection.into_idle()))
}

/// A connection is open as long as nothing tells its end. What the tracker sent by itself, such as tickets of TLS, does
/// not.
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

/// How many connections at most this process, and a tracker that it starts, may have by the limit on open files.
#[must_use]
pub fn connections_max(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::load::Http;

    const HTTP: Transport = Transport::Http(Http { tls: false, keep_alive: true, resumption: false });

    #[test]
    fn those_that_the_tracker_closes_do_not_count() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = Client::new(listener.local_addr().unwrap(), None).unwrap();
        let tracker = thread::spawn(move || {
            let serve = |_| {
                let (mut connection, from) = listener.accept().unwrap();
                let _ = connection.read(&mut [0; 1024]).unwrap();
                connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nde").unwrap();
                (connection, from.ip())
            };
            let mut all: Vec<_> = (0..3).map(serve).collect();
            // Something that nobody asked for is no end.
            all[0].0.write_all(b"psst").unwrap();
            all.remove(1);
            all
        });
        let mut idle = Idle::default();
        (0..3).for_each(|_| idle.add(&client, HTTP, 1).unwrap());
        let sources = tracker.join().unwrap();
        assert_eq!(idle.still_open(), 2);
        assert_ne!(sources[0].1, sources[1].1, "they come from several addresses");
    }

    #[test]
    fn a_refusal_is_told_with_its_words() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = Client::new(listener.local_addr().unwrap(), None).unwrap();
        let tracker = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 1024]).unwrap();
            connection.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let told = Idle::default().add(&client, HTTP, 1).unwrap_err().to_string();
        tracker.join().unwrap();
        assert!(told.contains("connection 1") && told.contains("503"), "{told}");
    }

    #[test]
    fn descriptors_leave_room_for_the_rest() {
        assert_eq!(connections_max(20_000), 19_800);
        assert_eq!(connections_max(100), 0);
    }
}
