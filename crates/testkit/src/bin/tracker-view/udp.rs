//! Queries over UDP (BEP 15).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result, bail, ensure};

use super::{ANSWER_WAIT, OBSERVER_ID, OBSERVER_PORT, compact_peers};

const ATTEMPTS: u32 = 5;

/// BEP 15, "connect".
const PROTOCOL_ID: u64 = 0x417_2710_1980;
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const EVENT_STARTED: u32 = 2;
const EVENT_STOPPED: u32 = 3;

/// Scrapes a torrent (BEP 15, "scrape") and returns its seeders, completed downloads and leechers.
pub(crate) fn scrape(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<[u32; 3]> {
    let session = Session::open(tracker)?;
    let reply = session.ask(SCRAPE, info_hash)?;
    ensure!(reply.len() == 20, "a scrape reply of {} bytes for one torrent", reply.len());
    Ok([number(&reply, 8)?, number(&reply, 12)?, number(&reply, 16)?])
}

/// Joins a swarm as a leecher (BEP 15, "announce"), returns the other peers, and leaves.
pub(crate) fn peers(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<Vec<SocketAddr>> {
    let session = Session::open(tracker)?;
    let reply = session.ask(ANNOUNCE, &announce(info_hash, EVENT_STARTED))?;
    session.ask(ANNOUNCE, &announce(info_hash, EVENT_STOPPED))?;
    ensure!(reply.len() >= 20, "an announce reply of {} bytes", reply.len());
    compact_peers(&reply[20..], if tracker.is_ipv4() { 6 } else { 18 })
}

/// A connection id, and the socket to which it was issued.
struct Session {
    socket: UdpSocket,
    connection_id: u64,
}

impl Session {
    fn open(tracker: SocketAddr) -> Result<Self> {
        let local: IpAddr =
            if tracker.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(tracker)?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        let unconnected = Self { socket, connection_id: PROTOCOL_ID };
        let reply = unconnected.ask(CONNECT, &[])?;
        let connection_id = reply.get(8..16).context("a connect reply has 16 bytes")?.try_into()?;
        Ok(Self { connection_id: u64::from_be_bytes(connection_id), ..unconnected })
    }

    /// Sends a request until its reply arrives, and returns the reply.
    fn ask(&self, action: u32, rest: &[u8]) -> Result<Vec<u8>> {
        let transaction = fastrand::u32(..);
        let mut request = self.connection_id.to_be_bytes().to_vec();
        request.extend_from_slice(&action.to_be_bytes());
        request.extend_from_slice(&transaction.to_be_bytes());
        request.extend_from_slice(rest);
        let mut reply = vec![0; 2048];
        for _ in 0..ATTEMPTS {
            self.socket.send(&request).context("cannot send")?;
            let Ok(length) = self.socket.recv(&mut reply) else { continue };
            ensure!(length >= 8, "a reply of {length} bytes");
            ensure!(number(&reply, 4)? == transaction, "a reply to another request");
            let text = String::from_utf8_lossy(&reply[8..length]);
            ensure!(number(&reply, 0)? == action, "action {action} was answered by an error: {text}");
            reply.truncate(length);
            return Ok(reply);
        }
        bail!("no answer to action {action}")
    }
}

/// Encodes the body of an announce request: everything behind the transaction id.
fn announce(info_hash: &[u8; 20], event: u32) -> Vec<u8> {
    let mut body = info_hash.to_vec();
    body.extend_from_slice(OBSERVER_ID);
    body.extend_from_slice(&0_u64.to_be_bytes()); // downloaded
    body.extend_from_slice(&1_u64.to_be_bytes()); // left
    body.extend_from_slice(&0_u64.to_be_bytes()); // uploaded
    body.extend_from_slice(&event.to_be_bytes());
    body.extend_from_slice(&0_u32.to_be_bytes()); // IP address: the sender's
    body.extend_from_slice(&fastrand::u32(..).to_be_bytes()); // key
    body.extend_from_slice(&50_i32.to_be_bytes()); // numwant
    body.extend_from_slice(&OBSERVER_PORT.to_be_bytes());
    body
}

fn number(reply: &[u8], at: usize) -> Result<u32> {
    let bytes = reply.get(at..at + 4).context("the reply is too short")?;
    Ok(u32::from_be_bytes(bytes.try_into()?))
}
