//! The peers of a sample of torrents, counted by scrapes over UDP.
//!
//! The load announces to torrents with even numbers; the sample has odd ones.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use shoal_base::InfoHash;
use shoal_load::info_hash;
use shoal_wire::udp::{ConnectionId, Reply, Request, TransactionId};

/// Torrents of a scrape: fewer than the 74 of BEP 15, for trackers that answer fewer.
const HASHES: usize = 50;

/// Timeout of a request, and how often it is sent.
const TIMEOUT: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 6;

const PACKET_BYTES_MAX: usize = 2048;

/// The address of the client.
const CLIENT: (&str, u16) = ("127.0.4.1", 0);

/// A sample of torrents.
#[derive(Debug)]
pub(crate) struct Sample {
    target: SocketAddr,
    hashes: Vec<InfoHash>,
}

impl Sample {
    /// Returns at most `most` of the torrents with odd numbers, evenly spread. They include the first one, which is the
    /// most popular of them.
    pub(crate) fn new(target: SocketAddr, seed: u64, torrents: u32, most: u32) -> Self {
        let odd = torrents / 2;
        let count = odd.min(most);
        let number = |index: u32| u64::from(index) * u64::from(odd) / u64::from(count.max(1)) * 2 + 1;
        let hash = |index| info_hash(seed, u32::try_from(number(index)).unwrap_or(1));
        Self { target, hashes: (0..count).map(hash).collect() }
    }

    /// Returns the number of torrents.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Counts the peers now.
    ///
    /// # Errors
    /// Returns an error, as a sentence, if the tracker does not answer or refuses.
    pub(crate) fn count(&self) -> Result<u64, String> {
        let mut client =
            Client::open(self.target).map_err(|error| format!("no socket for scrapes: {error}"))?;
        self.hashes.chunks(HASHES).map(|hashes| client.count(hashes)).sum()
    }
}

/// A client that scrapes.
struct Client {
    socket: UdpSocket,
    connection_id: Option<ConnectionId>,
    transaction_id: u32,
}

impl Client {
    fn open(target: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(CLIENT)?;
        socket.connect(target)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { socket, connection_id: None, transaction_id: 0 })
    }

    /// Counts the peers of a few torrents.
    fn count(&mut self, hashes: &[InfoHash]) -> Result<u64, String> {
        let mut refusal = None;
        for _ in 0..ATTEMPTS {
            match self.attempt(hashes) {
                Some(Ok(peers)) => return Ok(peers),
                // The tracker may have forgotten the connection id.
                other => {
                    refusal = other.and_then(Result::err).or(refusal);
                    self.connection_id = None;
                }
            }
        }
        Err(refusal.unwrap_or_else(|| "scrapes were not answered".to_owned()))
    }

    /// Asks once. Returns the peers or the tracker's refusal, or `None` if there is no answer.
    fn attempt(&mut self, hashes: &[InfoHash]) -> Option<Result<u64, String>> {
        let mut packet = [0; PACKET_BYTES_MAX];
        let connection_id = match self.connection_id {
            Some(connection_id) => connection_id,
            None => {
                let transaction_id = self.next();
                match self.exchange(&Request::Connect { transaction_id }, transaction_id, &mut packet)? {
                    Reply::Connect { connection_id, .. } => *self.connection_id.insert(connection_id),
                    _ => return None,
                }
            }
        };
        let transaction_id = self.next();
        let scrape = Request::Scrape { connection_id, transaction_id, info_hashes: hashes };
        match self.exchange(&scrape, transaction_id, &mut packet)? {
            Reply::Scrape { entries, .. } if entries.len() == hashes.len() => {
                let peers = entries
                    .iter()
                    .map(|entry| [entry.seeders, entry.leechers].map(|count| u64::from(count.get())));
                Some(Ok(peers.flatten().sum()))
            }
            Reply::Error { message, .. } => {
                Some(Err(format!("a scrape was refused: {}", String::from_utf8_lossy(message))))
            }
            _ => None,
        }
    }

    fn next(&mut self) -> TransactionId {
        self.transaction_id = self.transaction_id.wrapping_add(1);
        TransactionId(self.transaction_id)
    }

    /// Sends a request and waits for its reply. Replies to earlier ones are skipped.
    fn exchange<'p>(
        &self,
        request: &Request<'_>,
        of: TransactionId,
        packet: &'p mut [u8; PACKET_BYTES_MAX],
    ) -> Option<Reply<'p>> {
        let length = request.encode(packet).expect("every request fits into the packet");
        // A closed port is reported on the next call. It counts as silence.
        self.socket.send(&packet[..length]).ok()?;
        loop {
            let length = self.socket.recv(packet).ok()?;
            let id = packet.get(4..8).filter(|_| length >= 8)?;
            if id == of.0.to_be_bytes() {
                return Reply::decode(&packet[..length]).ok();
            }
        }
    }
}
