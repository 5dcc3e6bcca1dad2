//! Connections that stay and do nothing: how much memory each takes.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, ensure};
use shoal_protocol::InfoHash;

use crate::http::{Client, Event};

/// Connections come from so many addresses in turn, from this one on, because a tracker may limit those of one address.
const SOURCES: u32 = 64;
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// Descriptors that this process and a tracker need besides those of the connections.
const OTHER_DESCRIPTORS: u64 = 200;

/// Open connections, each of which has carried one announce.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    connections: Vec<TcpStream>,
}

impl Idle {
    /// Opens one more and announces on it. All announce the same peer, so that what grows are the connections and not
    /// the swarms.
    ///
    /// # Errors
    /// Where the tracker refuses, or this host has no more.
    pub(crate) fn add(&mut self, client: &Client, info_hash: InfoHash) -> Result<()> {
        let number = self.connections.len();
        let step = u32::try_from(number).unwrap_or(0) % SOURCES;
        let local = Ipv4Addr::from(u32::from(FIRST_SOURCE) + step);
        let announced = client.connect_from(local).and_then(|mut connection| {
            let reply = connection.announce(info_hash, Event::Started)?;
            Ok((reply, connection))
        });
        let (reply, connection) = announced.with_context(|| format!("connection {} failed", number + 1))?;
        if let Some(words) = reply.refusal() {
            ensure!(false, "connection {}: the tracker refused: {words}", number + 1);
        }
        self.connections.push(connection.into_idle());
        Ok(())
    }

    /// How many the tracker has not closed.
    pub(crate) fn still_open(&self) -> usize {
        self.connections.iter().filter(|connection| is_open(connection)).count()
    }
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
        (0..3).for_each(|_| idle.add(&client, InfoHash([1; 20])).unwrap());
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
        let told = Idle::default().add(&client, InfoHash([1; 20])).unwrap_err().to_string();
        tracker.join().unwrap();
        assert!(told.contains("connection 1") && told.contains("503"), "{told}");
    }

    #[test]
    fn descriptors_leave_room_for_the_rest() {
        assert_eq!(connections_max(20_000), 19_800);
        assert_eq!(connections_max(100), 0);
    }
}
